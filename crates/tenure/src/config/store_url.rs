//! The store's address: `sqlite:PATH`.

use crate::environment::Environment;
use crate::exit::{CliError, CliResult};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where sessions are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file.
    Sqlite(PathBuf),
}

impl StoreUrl {
    /// Reads an address. A relative path is taken from `base`.
    ///
    /// # Errors
    /// A usage error that says which form is understood.
    pub fn parse(text: &str, base: &Path, env: &Environment) -> CliResult<Self> {
        if text.starts_with("postgres:") || text.starts_with("postgresql:") {
            return Err(CliError::usage("PostgreSQL stores are not in this version")
                .hint("use --store sqlite:PATH"));
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            return Err(
                CliError::usage(format!("the store `{text}` is not understood")).hint(format!(
                    "write sqlite:{}",
                    text.rsplit_once(':').map_or(text, |(_, p)| p)
                )),
            );
        };
        let path = path
            .strip_prefix("//")
            .map_or(path, |rest| if rest.starts_with('/') { rest } else { path });
        if path.is_empty() || path == ":memory:" {
            return Err(CliError::usage(format!("the store `{text}` names no file"))
                .hint("write sqlite:PATH with the path of a file"));
        }
        Ok(Self::Sqlite(base.join(env.expand(path))))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Sqlite(path) => path,
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> CliResult<StoreUrl> {
        StoreUrl::parse(
            text,
            Path::new("/base"),
            &Environment::of(&[("HOME", "/h")]),
        )
    }

    #[test]
    fn paths_are_absolute_relative_or_at_home() {
        for (text, path) in [
            ("sqlite:/a/b.db", "/a/b.db"),
            ("sqlite:///a/b.db", "/a/b.db"),
            ("sqlite:b.db", "/base/b.db"),
            ("sqlite:~/b.db", "/h/b.db"),
        ] {
            assert_eq!(parse(text).unwrap().path(), Path::new(path), "{text}");
        }
    }

    #[test]
    fn other_addresses_are_refused_with_what_to_write() {
        assert!(
            parse("postgres://x/y")
                .unwrap_err()
                .message
                .contains("not in this version")
        );
        assert!(
            parse("/a/b.db")
                .unwrap_err()
                .to_string()
                .contains("sqlite:/a/b.db")
        );
        assert!(parse("sqlite:").is_err());
        assert!(parse("sqlite::memory:").is_err());
    }
}
