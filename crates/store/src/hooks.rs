//! After-commit hooks: which ran in this process, which wait for their batch to be resolved (R3), and how a caller
//! is told that the store failed.

use crate::api::{AfterCommit, Committed, Fence};
use crate::error::AppendError;
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use tenure_core::id::{EventId, SessionId};

/// The store could not do it: nothing was written, or (`unknown`) nobody knows.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) unknown: bool,
    pub(crate) reason: String,
}

/// Which after-commit hooks ran in this process, and which still wait for their batch to be resolved (R3).
#[derive(Default)]
pub(crate) struct Hooks(Mutex<HookState>);

#[derive(Default)]
struct HookState {
    ran: HashSet<EventId>,
    order: VecDeque<EventId>,
    unknown: HashMap<BatchKey, AfterCommit>,
    /// In the order in which they came, resolved or not.
    unknown_order: VecDeque<BatchKey>,
}

/// A batch by its first event, or by its fence when it has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum BatchKey {
    Event(EventId),
    Write(SessionId, u64, u64),
}

/// How many batches are remembered as having run their hook here. Beyond it a duplicate may run its hook
/// again, which is harmless: applying is idempotent by seq.
const REMEMBERED: usize = 4096;

impl Hooks {
    fn state(&self) -> std::sync::MutexGuard<'_, HookState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ran(&self, first: &EventId) -> bool {
        self.state().ran.contains(first)
    }

    fn remember(&self, first: &EventId) {
        let mut state = self.state();
        if state.ran.insert(first.clone()) {
            state.order.push_back(first.clone());
        }
        if state.order.len() > REMEMBERED
            && let Some(oldest) = state.order.pop_front()
        {
            state.ran.remove(&oldest);
        }
    }

    pub(crate) fn keep(&self, key: BatchKey, hook: AfterCommit) {
        let mut state = self.state();
        state.unknown_order.push_back(key.clone());
        state.unknown.insert(key, hook);
        // Whoever was fenced meanwhile never asks.
        if state.unknown_order.len() > REMEMBERED
            && let Some(oldest) = state.unknown_order.pop_front()
        {
            state.unknown.remove(&oldest);
        }
    }

    /// The hook of a batch whose fate was unknown until now.
    pub(crate) fn take_unknown(&self, key: &BatchKey) -> Option<AfterCommit> {
        self.state().unknown.remove(key)
    }

    /// Runs a hook once, on the calling thread. A panic stays here: the session's memory is then not
    /// what the log says, and its owner, who is told, has to reload it.
    pub(crate) fn run(&self, hook: AfterCommit, committed: &Committed) -> Result<(), Panicked> {
        let first = committed.events.first();
        if catch_unwind(AssertUnwindSafe(|| hook(committed))).is_err() {
            let session = first.map(|event| event.session.clone());
            let head = committed.head;
            tracing::error!(?session, head, "an after-commit hook panicked");
            return Err(Panicked);
        }
        if let Some(first) = first {
            self.remember(&first.id);
        }
        Ok(())
    }
}

/// An after-commit hook panicked: the batch is durable, and what the hook should have done is not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panicked;

impl Panicked {
    /// What the caller is told, so that it looks at the log before anything else.
    pub(crate) fn told(self, session: &SessionId) -> AppendError {
        AppendError::Unknown {
            session: session.clone(),
            reason: "it is stored, but its after-commit hook panicked; read the log again"
                .to_owned(),
        }
    }
}

/// The key of a batch.
pub(crate) fn batch_key(
    session: &SessionId,
    fence: Option<&Fence>,
    first: Option<&EventId>,
) -> BatchKey {
    match (first, fence) {
        (Some(first), _) => BatchKey::Event(first.clone()),
        (None, Some(fence)) => BatchKey::Write(session.clone(), fence.epoch, fence.write_no),
        (None, None) => BatchKey::Write(session.clone(), 0, u64::MAX),
    }
}

/// A failure as an append's caller sees it.
pub(crate) fn append_failed(session: &SessionId, failure: &Failure) -> AppendError {
    let reason = failure.reason.clone();
    if failure.unknown {
        AppendError::Unknown {
            session: session.clone(),
            reason,
        }
    } else {
        AppendError::Unavailable { reason }
    }
}
