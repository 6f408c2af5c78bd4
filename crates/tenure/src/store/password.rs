//! The password of a PostgreSQL store: in the URL, in a file of its own, in PGPASSWORD, or in a password file as
//! PostgreSQL's own programs read it.

use crate::config::origin::Setting;
use crate::config::store_url;
use crate::environment::Environment;
use crate::exit::{CliError, CliResult};
use std::fmt;
use std::path::{Path, PathBuf};

/// A password file is a few lines; more than this is a mistake in the path.
const MAX_BYTES: u64 = 64 * 1024;

/// Where a password may be. Nothing is read before it is needed; `Debug` shows none.
#[derive(Clone, Default)]
pub struct Passwords {
    file: Option<Setting<PathBuf>>,
    variable: Option<String>,
    passfile: Option<PathBuf>,
    user: Option<String>,
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").finish_non_exhaustive()
    }
}

impl Passwords {
    /// `file` is `store_password_file`; the rest is the environment's.
    pub fn new(file: Option<Setting<PathBuf>>, env: &Environment) -> Self {
        let passfile = match env.var("PGPASSFILE") {
            Some(path) => PathBuf::from(path),
            None => env.expand("~/.pgpass"),
        };
        Self {
            file,
            variable: env.var("PGPASSWORD").map(str::to_owned),
            passfile: Some(passfile),
            user: ["PGUSER", "USER", "LOGNAME"]
                .into_iter()
                .find_map(|name| env.var(name))
                .map(str::to_owned),
        }
    }

    /// `store_password_file`, where it is set.
    pub fn file(&self) -> Option<&Setting<PathBuf>> {
        self.file.as_ref()
    }

    /// The URL with user and password, for the driver alone.
    ///
    /// # Errors
    /// A password file that is named cannot be read, or others may read it.
    pub fn complete(&self, url: &str) -> CliResult<String> {
        let bare = store_url::with_login(url, self.user.as_deref(), None);
        if store_url::password(url).is_some() {
            return Ok(bare);
        }
        let password = match (&self.file, &self.variable) {
            (Some(file), _) => Some(from_file(&file.value)?),
            (None, Some(variable)) => Some(variable.clone()),
            (None, None) => self.passfile_password(&bare),
        };
        Ok(store_url::with_login(&bare, None, password.as_deref()))
    }

    /// Which of the places the password comes from, in words.
    pub fn source(&self, url: &str) -> String {
        if store_url::password(url).is_some() {
            return "the password is the one in the URL".to_owned();
        }
        if let Some(file) = &self.file {
            return format!(
                "the password is that of store_password_file, {}",
                file.value.display()
            );
        }
        if self.variable.is_some() {
            return "the password is that of PGPASSWORD".to_owned();
        }
        let bare = store_url::with_login(url, self.user.as_deref(), None);
        match (&self.passfile, self.passfile_password(&bare)) {
            (Some(file), Some(_)) => format!("the password is a line of {}", file.display()),
            _ => "no password was given".to_owned(),
        }
    }

    fn passfile_password(&self, url: &str) -> Option<String> {
        let path = self.passfile.as_deref()?;
        if !path.is_file() || exposed(path) {
            if path.is_file() {
                tracing::warn!(path = %path.display(), "others can read this password file: it is left out");
            }
            return None;
        }
        let text = std::fs::read_to_string(path).ok()?;
        let (host, port, database, user) = store_url::target(url)?;
        in_passfile(&text, [&host, &port, &database, &user])
    }
}

fn from_file(path: &Path) -> CliResult<String> {
    let cannot = |e: std::io::Error| {
        CliError::usage(format!(
            "the password file {} cannot be read: {e}",
            path.display()
        ))
        .hint("it comes from store_password_file")
    };
    let size = std::fs::metadata(path).map_err(cannot)?.len();
    if exposed(path) {
        return Err(CliError::usage(format!(
            "other users can read the password file {}",
            path.display()
        ))
        .hint(format!("run chmod 600 {}", path.display())));
    }
    if size > MAX_BYTES {
        return Err(CliError::usage(format!(
            "the password file {} is too large to be one",
            path.display()
        )));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let password = text.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        return Err(CliError::usage(format!(
            "the password file {} is empty",
            path.display()
        )));
    }
    Ok(password.to_owned())
}

/// May anybody but its owner read it?
fn exposed(path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 != 0)
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// The first line that fits: `host:port:database:user:password`, where `*` fits all and `\` escapes.
fn in_passfile(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .find_map(|line| {
            let fields = fields(line);
            let fits = fields.len() == 5
                && wanted
                    .iter()
                    .zip(&fields)
                    .all(|(wanted, field)| field == "*" || field == wanted);
            fits.then(|| fields[4].clone())
        })
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => {
                if let (Some(field), Some(next)) = (fields.last_mut(), chars.next()) {
                    field.push(next);
                }
            }
            c => {
                if let Some(field) = fields.last_mut() {
                    field.push(c);
                }
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::origin::Origin;
    use std::os::unix::fs::PermissionsExt;

    const URL: &str = "postgres://me@h:1/d";

    fn write(path: &Path, text: &str, mode: u32) {
        std::fs::write(path, text).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_nearest_password_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (own, pass) = (folder.path().join("own"), folder.path().join("pass"));
        write(&own, "from own file\n", 0o600);
        write(
            &pass,
            "# mine\nother:*:*:*:no\nh:1:d:me:from\\:pass\n",
            0o600,
        );
        let path = pass.to_str().unwrap();
        let env = Environment::of(&[("PGPASSWORD", "from env"), ("PGPASSFILE", path)]);
        let file = || Some(Setting::new(own.clone(), Origin::Default));
        let complete = |passwords: Passwords, url| passwords.complete(url).unwrap();
        let all = Passwords::new(file(), &env);
        assert_eq!(
            complete(all.clone(), "postgres://me:url@h:1/d"),
            "postgres://me:url@h:1/d"
        );
        assert_eq!(
            complete(all.clone(), URL),
            "postgres://me:from%20own%20file@h:1/d"
        );
        assert_eq!(
            complete(Passwords::new(None, &env), URL),
            "postgres://me:from%20env@h:1/d"
        );
        let env = Environment::of(&[("PGPASSFILE", path)]);
        assert_eq!(
            complete(Passwords::new(None, &env), URL),
            "postgres://me:from%3Apass@h:1/d"
        );
        assert_eq!(complete(Passwords::default(), URL), URL);
        assert!(!format!("{all:?}").contains("from"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_or_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        write(&path, "h:1:d:me:secret", 0o644);
        let named = Passwords::new(
            Some(Setting::new(path.clone(), Origin::Default)),
            &Environment::default(),
        );
        let error = named.complete(URL).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
        let env = Environment::of(&[("PGPASSFILE", path.to_str().unwrap())]);
        assert_eq!(Passwords::new(None, &env).complete(URL).unwrap(), URL);
    }

    #[test]
    fn the_user_comes_from_the_environment_when_the_url_names_none() {
        let env = Environment::of(&[("USER", "os"), ("PGUSER", "pg")]);
        let passwords = Passwords::new(None, &env);
        assert_eq!(
            passwords.complete("postgres://h/d").unwrap(),
            "postgres://pg@h/d"
        );
    }
}
