//! What a machine may not find out by itself: the time and fresh ids, handed in by the shell.

use crate::id::{CompactionId, EventId, ExecutionId, MessageId};

/// A source of fresh 128-bit values. The shell's draws from the operating system and is ordered by
/// time (UUID v7); the simulation's is seeded.
pub trait IdSource: Send + Sync {
    /// The next value; never the same twice.
    fn next_bits(&self) -> u128;
}

/// Time and ids for one decision.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// Wall-clock time in milliseconds since 1970 UTC; shown to people, never used for order.
    pub now_ms: i64,
    /// Fresh ids.
    pub ids: &'a dyn IdSource,
}

impl Facts<'_> {
    /// A fresh event id.
    pub fn event(&self) -> EventId {
        EventId::from_bits(self.ids.next_bits())
    }
    /// A fresh message id.
    pub fn message(&self) -> MessageId {
        MessageId::from_bits(self.ids.next_bits())
    }
    /// A fresh execution id.
    pub fn execution(&self) -> ExecutionId {
        ExecutionId::from_bits(self.ids.next_bits())
    }
    /// A fresh compaction id.
    pub fn compaction(&self) -> CompactionId {
        CompactionId::from_bits(self.ids.next_bits())
    }
}

/// A counting [`IdSource`] for tests and simulation: the same sequence in every run.
#[derive(Debug)]
pub struct CountingIds(std::sync::atomic::AtomicU64);

impl CountingIds {
    /// Starts counting after `from`.
    pub const fn new(from: u64) -> Self {
        Self(std::sync::atomic::AtomicU64::new(from))
    }
}

impl IdSource for CountingIds {
    fn next_bits(&self) -> u128 {
        let next = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        u128::from(next) + 1
    }
}
