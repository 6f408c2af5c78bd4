//! Whose rights a service runs with: servers refuse root, so under root they run as an ordinary user.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{Uid, User, chown};

use crate::Error;

/// Users that exist on most systems and may run a server, best first.
const CANDIDATES: &[&str] = &["postgres", "nobody", "daemon", "games"];
/// Folders for temporary files that every user may enter, should the usual one be private.
const BASES: &[&str] = &["/tmp", "/var/tmp", "/dev/shm"];

/// The user a service runs as.
#[derive(Debug, Clone)]
pub struct Account {
    /// Absent: as we are.
    user: Option<User>,
}

impl Account {
    /// Ourselves, unless we are root: then the first ordinary user that exists.
    ///
    /// # Errors
    /// Root on a system with none of the usual users.
    pub fn ordinary() -> Result<Self, Error> {
        if !Uid::effective().is_root() {
            return Ok(Account { user: None });
        }
        let user = CANDIDATES
            .iter()
            .filter_map(|name| User::from_name(name).ok().flatten())
            .find(|user| !user.uid.is_root());
        match user {
            Some(user) => Ok(Account { user: Some(user) }),
            None => Err(Error::Wrong(format!(
                "servers refuse to run as root, and none of the users {} exists: run the tests as an ordinary user",
                CANDIDATES.join(", ")
            ))),
        }
    }

    /// The user's name; absent when it is ourselves.
    pub fn name(&self) -> Option<&str> {
        self.user.as_ref().map(|user| user.name.as_str())
    }

    /// A command that runs with this user's rights, in a process group of its own, with a plain environment.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        if let Some(user) = &self.user {
            // Extra groups of root are dropped with this.
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command
            .process_group(0)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }

    /// Gives one file or folder to the user.
    ///
    /// # Errors
    /// The file is not there.
    pub fn give(&self, path: &Path) -> Result<(), Error> {
        if let Some(user) = &self.user {
            chown(path, Some(user.uid), Some(user.gid)).map_err(|errno| Error::System {
                doing: format!("give {} to {}", path.display(), user.name),
                source: errno.into(),
            })?;
        }
        Ok(())
    }

    /// A new private folder (mode 0700) that the user can work in. Removing it is the caller's business.
    ///
    /// # Errors
    /// No folder for temporary files can be entered by the user.
    pub fn folder(&self, prefix: &str) -> Result<PathBuf, Error> {
        let usual = std::env::temp_dir();
        let bases = std::iter::once(usual.as_path()).chain(BASES.iter().map(Path::new));
        for base in bases {
            let Ok(folder) = tempfile::Builder::new().prefix(prefix).tempdir_in(base) else {
                continue;
            };
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700))
                .map_err(Error::system("make a folder private"))?;
            self.give(folder.path())?;
            if self.can_work_in(folder.path()) {
                return Ok(folder.keep());
            }
        }
        Err(Error::Wrong(format!(
            "no folder for temporary files can be entered by {}: set TMPDIR to one that can",
            self.name().unwrap_or("this user")
        )))
    }

    /// Writes a private file (mode 0600) of the user.
    ///
    /// # Errors
    /// The folder is not there or full.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), Error> {
        let failed = || Error::system(format!("write {}", path.display()));
        fs::write(path, text).map_err(failed())?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed())?;
        self.give(path)
    }

    fn can_work_in(&self, folder: &Path) -> bool {
        // Asked of the user itself: any folder above may be closed to it.
        self.command("/bin/sh")
            .args(["-c", r#"cd "$1" && : > probe && rm probe"#, "sh"])
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_as_an_ordinary_user_that_can_use_the_folder() {
        let account = Account::ordinary().unwrap();
        let output = account.command("id").arg("-u").output().unwrap();
        assert_ne!(String::from_utf8_lossy(&output.stdout).trim(), "0");
        let folder = account.folder("tenure-testbed-account-").unwrap();
        let file = folder.join("secret");
        account.write(&file, "words").unwrap();
        let read = account.command("cat").arg(&file).output().unwrap();
        assert_eq!(read.stdout, b"words");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::remove_dir_all(folder).unwrap();
    }
}
