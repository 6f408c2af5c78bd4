//! The deadline that all guardians of one process watch.

use std::time::Duration;

use tokio::sync::watch;

use super::since_boot;

/// A shared deadline on the boot-time clock. Whoever renews the lease extends it; every running call passes the new
/// value to its guardian, and a guardian that sees it pass ends its command.
///
/// It is a point in time, not a duration, so that a message that arrives late cannot lengthen it.
#[derive(Debug, Clone)]
pub struct LeaseDeadline(watch::Sender<Duration>);

impl LeaseDeadline {
    /// A deadline that ends when the boot-time clock ([`since_boot`]) shows `at`.
    #[must_use]
    pub fn at(at: Duration) -> Self {
        Self(watch::Sender::new(at))
    }

    /// A deadline `length` from now.
    #[must_use]
    pub fn after(length: Duration) -> Self {
        Self::at(since_boot().saturating_add(length))
    }

    /// Moves the deadline to where the boot-time clock shows `at`. For a renewal, `at` is computed from the time read
    /// *before* the renewal was sent. An earlier deadline is taken, too: that is how work is ended early.
    pub fn set(&self, at: Duration) {
        self.0
            .send_if_modified(|current| std::mem::replace(current, at) != at);
    }

    /// The deadline now.
    #[must_use]
    pub fn get(&self) -> Duration {
        *self.0.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Duration> {
        self.0.subscribe()
    }
}
