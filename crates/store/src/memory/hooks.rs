//! The after-commit hooks of one process in front of a database in memory (R3).

use crate::api::{AfterCommit, Committed, Fence};
use crate::error::AppendError;
use crate::hooks::{self, Hooks, batch_key};
use tenure_core::id::{EventId, SessionId};

/// Which hooks ran in a process, and which wait for their batch to be resolved.
#[derive(Default)]
pub struct HookBook(Hooks);

/// A batch, by its first event or by its fence.
#[derive(Debug, Clone)]
pub struct BatchKey {
    session: SessionId,
    key: hooks::BatchKey,
}

impl BatchKey {
    /// The key of a batch.
    pub fn of(session: &SessionId, fence: Option<&Fence>, first: Option<&EventId>) -> Self {
        Self {
            session: session.clone(),
            key: batch_key(session, fence, first),
        }
    }
}

impl HookBook {
    /// The batch's fate is not known: its hook waits for the resolution.
    pub fn keep(&self, key: BatchKey, hook: AfterCommit) {
        self.0.keep(key.key, hook);
    }

    /// This process learns that a batch is durable: its hook runs, once. A duplicate that ran here before is
    /// passed over.
    ///
    /// # Errors
    /// What is told instead of the commit: the hook panicked.
    pub fn learn(
        &self,
        key: &BatchKey,
        hook: Option<AfterCommit>,
        committed: &Committed,
    ) -> Result<(), AppendError> {
        let earlier = self.0.take_unknown(&key.key);
        let first = committed.events.first();
        if committed.duplicate && first.is_some_and(|first| self.0.ran(&first.id)) {
            return Ok(());
        }
        match hook.or(earlier) {
            Some(hook) => {
                let ran = self.0.run(hook, committed);
                ran.map_err(|panicked| panicked.told(&key.session))
            }
            None => Ok(()),
        }
    }

    /// The batch is not in the log and never will be.
    pub fn give_up(&self, key: &BatchKey) {
        drop(self.0.take_unknown(&key.key));
    }
}
