//! What the process is given from outside: environment variables, folders and the working directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::exit::{CliError, CliResult};

/// Environment variables and the working directory, as values, so that tests need not change the process's own.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    vars: BTreeMap<String, String>,
}

impl Environment {
    /// The process's own. Variables that are not valid text are left out.
    pub fn real() -> Self {
        let vars = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { vars }
    }

    /// Variables given as pairs.
    #[cfg(test)]
    pub fn of(vars: &[(&str, &str)]) -> Self {
        Self {
            vars: vars
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        }
    }

    /// A variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.vars
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The user's folders.
    pub fn folders(&self) -> CliResult<Folders> {
        Ok(Folders {
            config: self.folder("XDG_CONFIG_HOME", ".config")?,
            data: self.folder("XDG_DATA_HOME", ".local/share")?,
            state: self.folder("XDG_STATE_HOME", ".local/state")?,
        })
    }

    fn folder(&self, name: &str, below_home: &str) -> CliResult<PathBuf> {
        let base = match self.var(name).map(Path::new) {
            // The convention says that a relative path there is to be ignored.
            Some(path) if path.is_absolute() => path.to_owned(),
            _ => self
                .home()
                .ok_or_else(|| {
                    CliError::usage(format!("neither HOME nor {name} is set"))
                        .hint("set HOME, or XDG_CONFIG_HOME, XDG_DATA_HOME and XDG_STATE_HOME")
                })?
                .join(below_home),
        };
        Ok(base.join("tenure"))
    }

    fn home(&self) -> Option<PathBuf> {
        self.var("HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// `~` and `~/…` led to the home folder; anything else as it is.
    pub fn expand(&self, path: &str) -> PathBuf {
        match (path.strip_prefix('~'), self.home()) {
            (Some(""), Some(home)) => home,
            (Some(rest), Some(home)) if rest.starts_with('/') => home.join(&rest[1..]),
            _ => PathBuf::from(path),
        }
    }
}

/// Where the user's files of Tenure are. None is created by naming it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// Configuration.
    pub config: PathBuf,
    /// The store, trust, whole tool outputs.
    pub data: PathBuf,
    /// Logs of background nodes.
    pub state: PathBuf,
}

/// The working folder, canonical. Says so when it has been removed under the shell.
pub fn working_folder(given: Option<&Path>) -> CliResult<PathBuf> {
    let start = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_dir().map_err(|e| {
            CliError::usage(format!("the current folder cannot be used: {e}"))
                .hint("it may have been removed: cd to an existing folder, or give --cwd DIR")
        })?,
    };
    let real = start.canonicalize().map_err(|e| {
        CliError::usage(format!(
            "the folder {} cannot be used: {e}",
            start.display()
        ))
        .hint("give --cwd an existing folder")
    })?;
    if !real.is_dir() {
        return Err(
            CliError::usage(format!("{} is not a folder", real.display()))
                .hint("give --cwd an existing folder"),
        );
    }
    if real.to_str().is_none() {
        return Err(CliError::usage(format!(
            "the folder {} has a name that is not valid UTF-8",
            real.display()
        ))
        .hint("sessions remember their folder as text: rename it, or work from another one"));
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_follow_the_convention_and_fall_back_to_home() {
        let env = Environment::of(&[
            ("HOME", "/h"),
            ("XDG_DATA_HOME", "/d"),
            ("XDG_STATE_HOME", "rel"),
        ]);
        let folders = env.folders().unwrap();
        assert_eq!(folders.config, Path::new("/h/.config/tenure"));
        assert_eq!(folders.data, Path::new("/d/tenure"));
        assert_eq!(folders.state, Path::new("/h/.local/state/tenure"));
    }

    #[test]
    fn without_a_home_the_error_says_what_to_set() {
        let error = Environment::default().folders().unwrap_err();
        assert!(error.to_string().contains("HOME"), "{error}");
        assert_eq!(error.kind.code(), 2);
    }

    #[test]
    fn tilde_is_led_home_and_nothing_else_is() {
        let env = Environment::of(&[("HOME", "/h")]);
        assert_eq!(env.expand("~/x"), Path::new("/h/x"));
        assert_eq!(env.expand("~"), Path::new("/h"));
        assert_eq!(env.expand("~other/x"), Path::new("~other/x"));
        assert_eq!(env.expand("/a~"), Path::new("/a~"));
    }

    #[test]
    fn a_folder_that_is_gone_is_a_usage_error() {
        let gone = tempfile::tempdir().unwrap().path().join("gone");
        let error = working_folder(Some(&gone)).unwrap_err();
        assert_eq!(error.kind.code(), 2);
        assert!(error.to_string().contains("--cwd"), "{error}");
    }
}
