//! Which project files the user trusts: by folder and by the exact content of the file.

use crate::environment::Folders;
use crate::exit::{CliError, CliResult};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

/// The remembered trust, in `trust.json` of the user's data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trust {
    path: PathBuf,
    folders: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    version: u32,
    /// Folder to SHA-256 of the file's content.
    folders: BTreeMap<String, String>,
}

/// The digest that trust is bound to.
pub fn digest(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

impl Trust {
    /// Reads what is remembered; nothing is, when the file is not there.
    ///
    /// # Errors
    /// When the file is there and cannot be read: trust is then not guessed at.
    pub fn load(folders: &Folders) -> CliResult<Self> {
        let path = folders.data.join("trust.json");
        let stored = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Stored>(&bytes).map_err(|e| {
                CliError::failed(format!("{} cannot be read: {e}", path.display()))
                    .hint("remove the file to trust no folder, then `tenure trust` those you want")
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Stored {
                version: VERSION,
                folders: BTreeMap::new(),
            },
            Err(e) => {
                return Err(
                    CliError::failed(format!("{} cannot be read: {e}", path.display()))
                        .hint("check the file's owner and mode"),
                );
            }
        };
        if stored.version != VERSION {
            return Err(CliError::failed(format!(
                "{} was written by a newer version",
                path.display()
            ))
            .hint("use a newer tenure"));
        }
        Ok(Self {
            path,
            folders: stored.folders,
        })
    }

    /// Is this content of the folder's file trusted?
    pub fn covers(&self, folder: &Path, digest: &str) -> bool {
        folder
            .to_str()
            .and_then(|folder| self.folders.get(folder))
            .is_some_and(|trusted| trusted == digest)
    }

    /// Was some content of this folder's file trusted before?
    pub fn knows(&self, folder: &Path) -> bool {
        folder
            .to_str()
            .is_some_and(|f| self.folders.contains_key(f))
    }

    /// Trusts this content from now on, and no other content of that file.
    pub fn grant(&mut self, folder: &Path, digest: String) -> CliResult {
        let folder = folder.to_string_lossy().into_owned();
        self.folders.insert(folder, digest);
        self.save()
    }

    /// Trusts the folder no longer. Says whether it was trusted.
    pub fn revoke(&mut self, folder: &Path) -> CliResult<bool> {
        let known = self.folders.remove(&*folder.to_string_lossy()).is_some();
        if known {
            self.save()?;
        }
        Ok(known)
    }

    /// Replaces the file as a whole, readable by its owner only.
    fn save(&self) -> CliResult {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let cannot = |e: std::io::Error| {
            CliError::failed(format!("{} cannot be written: {e}", self.path.display()))
                .hint("check the folder's owner and mode")
        };
        private_folder(folder).map_err(cannot)?;
        let stored = Stored {
            version: VERSION,
            folders: self.folders.clone(),
        };
        let text =
            serde_json::to_vec_pretty(&stored).map_err(|e| CliError::failed(e.to_string()))?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(cannot)?;
        file.write_all(&text).map_err(cannot)?;
        file.as_file().sync_all().map_err(cannot)?;
        file.persist(&self.path).map_err(|e| cannot(e.error))?;
        Ok(())
    }
}

/// Makes a folder, and those above it, for the user alone.
pub fn private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(base: &Path) -> Folders {
        Folders {
            config: base.join("c"),
            data: base.join("d"),
            state: base.join("s"),
        }
    }

    #[test]
    fn trust_is_bound_to_the_exact_content() {
        let base = tempfile::tempdir().unwrap();
        let folders = folders(base.path());
        let (one, two) = (digest(b"one"), digest(b"two"));
        let mut trust = Trust::load(&folders).unwrap();
        assert!(!trust.covers(Path::new("/p"), &one));
        trust.grant(Path::new("/p"), one.clone()).unwrap();
        let again = Trust::load(&folders).unwrap();
        assert!(again.covers(Path::new("/p"), &one));
        assert!(!again.covers(Path::new("/p"), &two));
        assert!(again.knows(Path::new("/p")));
        assert!(!again.covers(Path::new("/q"), &one));
    }

    #[test]
    fn the_file_is_private_and_revoking_is_remembered() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let folders = folders(base.path());
        let mut trust = Trust::load(&folders).unwrap();
        trust.grant(Path::new("/p"), digest(b"x")).unwrap();
        let mode = std::fs::metadata(folders.data.join("trust.json"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(trust.revoke(Path::new("/p")).unwrap());
        assert!(!trust.revoke(Path::new("/p")).unwrap());
        assert!(!Trust::load(&folders).unwrap().knows(Path::new("/p")));
    }

    #[test]
    fn a_damaged_file_is_an_error_not_an_empty_list() {
        let base = tempfile::tempdir().unwrap();
        let folders = folders(base.path());
        std::fs::create_dir_all(&folders.data).unwrap();
        std::fs::write(folders.data.join("trust.json"), "{").unwrap();
        assert!(Trust::load(&folders).is_err());
    }
}
