//! Where PostgreSQL's programs are: on the PATH, or in Debian's folder, the newest first.

use std::path::{Path, PathBuf};

use crate::Error;

/// Debian's command line that brings the programs.
pub const INSTALL: &str = "apt-get install postgresql";
/// Debian keeps each version apart, and none of them on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";
/// What we start.
const NEEDED: &[&str] = &["initdb", "postgres", "pg_basebackup"];

/// The folder of one version's programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Looks for them.
    ///
    /// # Errors
    /// [`Error::Missing`] with the install line.
    pub fn find() -> Result<Self, Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::find_in(std::env::split_paths(&path), Path::new(DEBIAN))
    }

    fn find_in(path: impl Iterator<Item = PathBuf>, debian: &Path) -> Result<Self, Error> {
        let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir(debian)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
            .collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version.0));
        let in_debian = versions.into_iter().map(|(_, folder)| folder.join("bin"));
        path.chain(in_debian)
            .find(|folder| NEEDED.iter().all(|name| folder.join(name).is_file()))
            .map(|folder| Binaries { folder })
            .ok_or(Error::Missing {
                program: "PostgreSQL",
                install: INSTALL,
            })
    }

    /// The path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(folder: &Path, programs: &[&str]) {
        std::fs::create_dir_all(folder).unwrap();
        for program in programs {
            std::fs::write(folder.join(program), "").unwrap();
        }
    }

    #[test]
    fn the_path_wins_then_the_newest_version_and_halves_do_not_count() {
        let place = tempfile::tempdir().unwrap();
        let (path, debian) = (place.path().join("path"), place.path().join("debian"));
        let found = || Binaries::find_in([path.clone()].into_iter(), &debian);
        let missing = found().unwrap_err();
        assert!(missing.is_missing());
        assert!(missing.to_string().ends_with("apt-get install postgresql"));

        install(&debian.join("9/bin"), NEEDED);
        install(&debian.join("15/bin"), NEEDED);
        install(&debian.join("17/bin"), &["initdb"]);
        install(&path, &["postgres"]);
        assert_eq!(found().unwrap().folder, debian.join("15/bin"));
        install(&path, NEEDED);
        assert_eq!(found().unwrap().folder, path);
    }
}
