//! Which contents of which files a session's model has read, so that it never edits what it has not seen.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest, Sha256};

/// SHA-256 of a file's bytes.
pub type ContentHash = [u8; 32];

/// What was read or written last, by real path and hash of the bytes. Shared by all calls of one session.
///
/// Time stamps are not looked at: a checkout may set them to anything, and content is what matters.
#[derive(Debug, Clone, Default)]
pub struct SeenFiles(Arc<Mutex<HashMap<PathBuf, ContentHash>>>);

impl SeenFiles {
    /// Remembers the content last shown to, or written for, the model.
    pub fn remember(&self, real: &Path, hash: ContentHash) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(real.to_owned(), hash);
    }

    /// The content last seen, if the file was seen at all.
    #[must_use]
    pub fn get(&self, real: &Path) -> Option<ContentHash> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(real)
            .copied()
    }
}

/// Hashes bytes.
#[must_use]
pub fn content_hash(bytes: &[u8]) -> ContentHash {
    Sha256::digest(bytes).into()
}
