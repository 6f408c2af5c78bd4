//! The uncommitted tail of a streamed fragment, and when it is checkpointed.

use crate::turn::short_hash;
use sha2::{Digest, Sha256};

/// A durable chunk is written at most this many bytes after the one before it (design §5).
pub const CHECKPOINT_BYTES: usize = 2048;
/// A durable chunk is written at most this many milliseconds after its first byte arrived (design §5).
pub const CHECKPOINT_MS: u64 = 100;

/// Text of one part that has not been handed to the log, with the digest of all of it.
#[derive(Debug)]
pub struct Draft {
    part: u32,
    pending: String,
    bytes: u64,
    hash: Sha256,
}

impl Draft {
    /// An empty draft of a part.
    pub fn new(part: u32) -> Self {
        Self {
            part,
            pending: String::new(),
            bytes: 0,
            hash: Sha256::new(),
        }
    }

    /// The part.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Enough waits for a checkpoint.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= CHECKPOINT_BYTES
    }

    /// Adds text; returns the offset in bytes at which it begins.
    pub fn push(&mut self, text: &str) -> u64 {
        let offset = self.bytes;
        self.bytes += text.len() as u64;
        self.pending.push_str(text);
        offset
    }

    /// Takes what waits.
    pub fn take(&mut self) -> Option<String> {
        if self.pending.is_empty() {
            return None;
        }
        self.hash.update(self.pending.as_bytes());
        Some(std::mem::take(&mut self.pending))
    }

    /// Bytes and short digest of everything taken.
    pub fn digest(self) -> (u64, String) {
        debug_assert!(self.pending.is_empty(), "take before digest");
        (self.bytes, short_hash(self.hash))
    }
}
