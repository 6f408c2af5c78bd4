//! API keys: read from the environment or a private file, and never shown again.

use std::fmt;
use std::path::{Path, PathBuf};

/// A key that no `Debug`, `Display` or error shows. It is not serialisable.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a key could not be read. Never holds any part of the key.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The environment variable is not set or empty.
    #[error(
        "the environment variable {name} is not set: set it to the API key, or use api_key_file"
    )]
    Missing {
        /// The variable.
        name: String,
    },
    /// The key holds a character that cannot stand in an HTTP header.
    #[error(
        "the API key from {origin} holds a line break or another character that HTTP cannot carry: store the bare key"
    )]
    NotAHeader {
        /// Variable or file.
        origin: String,
    },
    /// The file could not be read.
    #[error("cannot read the API key file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is readable by others.
    #[error("the API key file {} can be read by other users (mode {mode:03o}): run chmod 600 {}", path.display(), path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds nothing.
    #[error("the API key file {} is empty: write the key into it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// A key file is one line; more than this is a mistake in the path.
const MAX_FILE: u64 = 64 * 1024;

impl Secret {
    /// Wraps a key, without white space around it. For tests and keys from elsewhere.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().to_owned())
    }

    /// Reads the key from an environment variable.
    ///
    /// # Errors
    /// When the variable is unset or empty, or the key cannot stand in a header.
    pub fn from_env(name: &str) -> Result<Self, SecretError> {
        match std::env::var(name) {
            Ok(key) if !key.trim().is_empty() => Self::checked(&key, name.to_owned()),
            _ => Err(SecretError::Missing {
                name: name.to_owned(),
            }),
        }
    }

    /// Reads the key from a file that only its owner may read.
    ///
    /// # Errors
    /// When the file cannot be read, is empty, or group or others may read it.
    pub fn from_file(path: &Path) -> Result<Self, SecretError> {
        use std::io::Read;
        let io = |source| SecretError::Io {
            path: path.to_owned(),
            source,
        };
        let file = std::fs::File::open(path).map_err(io)?;
        refuse_exposed(&file, path)?;
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text).map_err(io)?;
        if text.trim().is_empty() {
            return Err(SecretError::Empty {
                path: path.to_owned(),
            });
        }
        Self::checked(&text, path.display().to_string())
    }

    fn checked(key: &str, origin: String) -> Result<Self, SecretError> {
        let key = key.trim();
        if key.bytes().any(|b| b < 0x20 || b == 0x7f) {
            return Err(SecretError::NotAHeader { origin });
        }
        Ok(Self(key.to_owned()))
    }

    /// The key itself, for the one place that writes it into a header.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `text` with every occurrence of the key masked: endpoints echo keys in their errors.
    pub fn mask(&self, text: &str) -> String {
        // A very short key would mask ordinary words; no vendor issues one.
        if self.0.len() < 4 || !text.contains(&self.0) {
            return text.to_owned();
        }
        text.replace(&self.0, "[key]")
    }
}

/// Checks the opened file, not the path: nobody can swap it in between.
#[cfg(unix)]
fn refuse_exposed(file: &std::fs::File, path: &Path) -> Result<(), SecretError> {
    use std::os::unix::fs::PermissionsExt;
    let meta = file.metadata().map_err(|source| SecretError::Io {
        path: path.to_owned(),
        source,
    })?;
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Exposed {
            path: path.to_owned(),
            mode,
        });
    }
    Ok(())
}

#[cfg(not(unix))]
fn refuse_exposed(_file: &std::fs::File, _path: &Path) -> Result<(), SecretError> {
    Ok(())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret([key])")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}
