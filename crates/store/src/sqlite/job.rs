//! A piece of work for the writer: run in a transaction, told once what became of it.

use super::tx::{Stop, Tx};
use crate::api::{AfterCommit, Append, Committed, Lane};
use crate::error::AppendError;
use crate::machine::Failure as Failed;
pub(super) use crate::machine::Ran;
use crate::machine::append::{self, Wanted};
use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tenure_core::id::{EventId, SessionId};
use tokio::sync::oneshot;

/// The store could not do it: nothing was written, or (`unknown`) nobody knows.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) unknown: bool,
    pub(super) reason: String,
}

/// Work for the writer thread. `run` may be called more than once, each time in a fresh transaction.
pub(super) trait Job: Send {
    /// The session whose order it keeps, if any.
    fn session(&self) -> Option<&SessionId>;
    fn lane(&self) -> Lane;
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<Ran>;
    /// It is durable: the after-commit hook, before anybody is told.
    fn committed(&mut self) {}
    /// Tells the caller the verdict.
    fn reply(&mut self);
    /// Tells the caller that the store failed.
    fn fail(&mut self, failure: &Failure);
    /// Sessions whose watchers are to be woken once it is durable.
    fn wakes(&self) -> &[SessionId];
}

/// What is done once with a task's result before the caller is told: with none when it was refused. What it
/// returns is told instead of the result.
pub(super) type After<T, E> = Box<dyn FnOnce(Option<&T>) -> Option<E> + Send>;

/// Any job but an append: a closure and its reply.
pub(super) struct Task<T, E, F> {
    pub(super) after: Option<After<T, E>>,
    pub(super) session: Option<SessionId>,
    pub(super) wakes: Vec<SessionId>,
    pub(super) work: F,
    pub(super) verdict: Option<Result<T, E>>,
    pub(super) failed: fn(&Failure) -> E,
    pub(super) reply: Option<oneshot::Sender<Result<T, E>>>,
}

impl<T, E, F> Job for Task<T, E, F>
where
    T: Send,
    E: Send,
    F: FnMut(&Tx<'_>) -> Result<(T, Ran), Stop<E>> + Send,
{
    fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    fn lane(&self) -> Lane {
        Lane::Control
    }

    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<Ran> {
        match (self.work)(tx) {
            Ok((value, ran)) => {
                self.verdict = Some(Ok(value));
                Ok(ran)
            }
            Err(Stop::Refused(refusal)) => {
                self.verdict = Some(Err(refusal));
                Ok(Ran::Nothing)
            }
            Err(Stop::Failed(Failed::Sqlite(error))) => Err(error),
        }
    }

    fn committed(&mut self) {
        if let (Some(after), Some(Ok(value))) = (self.after.take(), &self.verdict)
            && let Some(instead) = after(Some(value))
        {
            self.verdict = Some(Err(instead));
        }
    }

    fn reply(&mut self) {
        if let Some(after) = self.after.take() {
            after(None);
        }
        if let (Some(reply), Some(verdict)) = (self.reply.take(), self.verdict.take()) {
            let _ = reply.send(verdict);
        }
    }

    fn fail(&mut self, failure: &Failure) {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err((self.failed)(failure)));
        }
    }

    fn wakes(&self) -> &[SessionId] {
        &self.wakes
    }
}

/// Which after-commit hooks ran in this process, and which still wait for their batch to be resolved (R3).
#[derive(Default)]
pub(super) struct Hooks(Mutex<HookState>);

#[derive(Default)]
struct HookState {
    ran: HashSet<EventId>,
    order: VecDeque<EventId>,
    unknown: HashMap<BatchKey, AfterCommit>,
}

/// A batch by its first event, or by its fence when it has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum BatchKey {
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

    fn ran(&self, first: &EventId) -> bool {
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

    fn keep(&self, key: BatchKey, hook: AfterCommit) {
        self.state().unknown.insert(key, hook);
    }

    /// The hook of a batch whose fate was unknown until now.
    pub(super) fn take_unknown(&self, key: &BatchKey) -> Option<AfterCommit> {
        self.state().unknown.remove(key)
    }

    /// Runs a hook once, on the calling thread. A panic stays here: the session's memory is then not
    /// what the log says, and its owner, who is told, has to reload it.
    pub(super) fn run(&self, hook: AfterCommit, committed: &Committed) -> Result<(), Panicked> {
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
pub(super) struct Panicked;

impl Panicked {
    /// What the caller is told, so that it looks at the log before anything else.
    pub(super) fn told(self, session: &SessionId) -> AppendError {
        AppendError::Unknown {
            session: session.clone(),
            reason: "it is stored, but its after-commit hook panicked; read the log again"
                .to_owned(),
        }
    }
}

/// The key of a batch.
pub(super) fn batch_key(
    session: &SessionId,
    fence: Option<&crate::api::Fence>,
    first: Option<&EventId>,
) -> BatchKey {
    match (first, fence) {
        (Some(first), _) => BatchKey::Event(first.clone()),
        (None, Some(fence)) => BatchKey::Write(session.clone(), fence.epoch, fence.write_no),
        (None, None) => BatchKey::Write(session.clone(), 0, u64::MAX),
    }
}

/// The answer to an append. `late_hook` is only ever used by a test's switch.
pub(super) struct AppendReply {
    pub(super) committed: Committed,
    pub(super) late_hook: Option<AfterCommit>,
}

/// An append and its hook.
pub(super) struct AppendJob {
    wanted: Wanted,
    lane: Lane,
    hook: Option<AfterCommit>,
    hooks: Arc<Hooks>,
    verdict: Option<Result<Committed, AppendError>>,
    late: bool,
    silent: bool,
    reply: Option<oneshot::Sender<Result<AppendReply, AppendError>>>,
    wakes: Vec<SessionId>,
}

impl AppendJob {
    pub(super) fn new(
        append: Append,
        hooks: Arc<Hooks>,
        reply: oneshot::Sender<Result<AppendReply, AppendError>>,
    ) -> Result<Self, AppendError> {
        let events = crate::machine::check::encode(&append.session, append.events)?;
        Ok(Self {
            wakes: vec![append.session.clone()],
            lane: append.lane,
            hook: append.after_commit,
            wanted: Wanted {
                session: append.session,
                fence: append.fence,
                guard: append.guard,
                events,
                ops: append.ops,
            },
            hooks,
            verdict: None,
            late: false,
            silent: false,
            reply: Some(reply),
        })
    }

    /// What it weighs in the queue, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.wanted
            .events
            .iter()
            .map(|event| event.text.len())
            .sum()
    }

    fn key(&self) -> BatchKey {
        let first = self.wanted.events.first().map(|event| &event.id);
        batch_key(&self.wanted.session, self.wanted.fence.as_ref(), first)
    }

    fn run_hook(&mut self) {
        let Some(Ok(committed)) = &self.verdict else {
            return;
        };
        // The hook of an earlier try of the same batch is dropped for this one: it is the same fact.
        let earlier = self.hooks.take_unknown(&self.key());
        let done = committed.duplicate
            && committed
                .events
                .first()
                .is_some_and(|first| self.hooks.ran(&first.id));
        if done {
            self.hook = None;
        } else if !self.late
            && let Some(hook) = self.hook.take().or(earlier)
            && let Err(panicked) = self.hooks.run(hook, committed)
            && !self.silent
        {
            self.verdict = Some(Err(panicked.told(&self.wanted.session)));
        }
    }
}

impl Job for AppendJob {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.wanted.session)
    }

    fn lane(&self) -> Lane {
        self.lane
    }

    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<Ran> {
        self.late = broken!(tx.switches, HookAfterNotify);
        self.silent = broken!(tx.switches, HookPanicSilent);
        match append::run(tx, &self.wanted) {
            Ok(committed) => {
                let ran = if committed.duplicate {
                    Ran::Nothing
                } else {
                    Ran::Wrote
                };
                self.verdict = Some(Ok(committed));
                Ok(ran)
            }
            Err(Stop::Refused(refusal)) => {
                self.verdict = Some(Err(refusal));
                Ok(Ran::Nothing)
            }
            Err(Stop::Failed(Failed::Sqlite(error))) => Err(error),
        }
    }

    fn committed(&mut self) {
        self.run_hook();
    }

    fn reply(&mut self) {
        // A duplicate from elsewhere: this process learns of it now.
        if self
            .verdict
            .as_ref()
            .is_some_and(|verdict| matches!(verdict, Ok(c) if c.duplicate))
        {
            self.run_hook();
        }
        let (Some(reply), Some(verdict)) = (self.reply.take(), self.verdict.take()) else {
            return;
        };
        let late_hook = self.hook.take().filter(|_| self.late);
        let _ = reply.send(verdict.map(|committed| AppendReply {
            committed,
            late_hook,
        }));
    }

    fn fail(&mut self, failure: &Failure) {
        if failure.unknown
            && let Some(hook) = self.hook.take()
        {
            self.hooks.keep(self.key(), hook);
        }
        let session = self.wanted.session.clone();
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(Err(append_failed(&session, failure)));
        }
    }

    fn wakes(&self) -> &[SessionId] {
        &self.wakes
    }
}

/// A failure as an append's caller sees it.
pub(super) fn append_failed(session: &SessionId, failure: &Failure) -> AppendError {
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
