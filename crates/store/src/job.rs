//! A piece of work for a writer: run over the rows of a transaction, told once what became of it.

use crate::api::{AfterCommit, Append, Committed, HookOp, Lane};
use crate::error::AppendError;
use crate::hooks::{BatchKey, Failure, Hooks, append_failed, batch_key};
use crate::machine::append::{self, Wanted};
use crate::machine::rows::Rows;
use crate::machine::{Failure as Failed, Ran, Stop};
use std::sync::Arc;
use tenure_core::event::EventBody;
use tenure_core::id::{EventId, Incarnation, MessageId, SessionId};
use tokio::sync::oneshot;

/// What the rules will ask of a session's surroundings while a job runs, for backends that read it beforehand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asks {
    /// Events that may be stored already.
    pub(crate) events: Vec<EventId>,
    /// Inputs that may have been accepted before: they are asked about whatever became of them.
    pub(crate) inputs: Vec<MessageId>,
    /// Nodes, and with them the session's owner.
    pub(crate) nodes: Vec<Incarnation>,
    /// An interrupt's key.
    pub(crate) receipt: Option<String>,
    /// The session may have to be made.
    pub(crate) creates: bool,
    /// Whom it is forked from, and the last shared seq.
    pub(crate) parent: Option<(SessionId, u64)>,
    /// What an import compares with: its first seq and how many events it has.
    pub(crate) stored: Option<(u64, usize)>,
    /// The verdict rests on what is asked here or on rows that others write: memory is not enough.
    pub(crate) fresh: bool,
}

/// Work over the rows `R` of a transaction. `run` may be called more than once, each time in a fresh one.
pub(crate) trait Job<R: ?Sized>: Send {
    /// The session whose order it keeps, if any.
    fn session(&self) -> Option<&SessionId>;
    fn lane(&self) -> Lane;
    /// Bytes of its bodies.
    fn bytes(&self) -> usize {
        0
    }
    /// What it will ask beside its session's own rows.
    fn asks(&self) -> Asks;
    fn run(&mut self, rows: &R) -> Result<Ran, Failed>;
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
pub(crate) type After<T, E> = Box<dyn FnOnce(Option<&T>) -> Option<E> + Send>;

/// Any job but an append: a closure and its reply.
pub(crate) struct Task<T, E, F> {
    pub(crate) after: Option<After<T, E>>,
    pub(crate) session: Option<SessionId>,
    pub(crate) wakes: Vec<SessionId>,
    pub(crate) asks: Asks,
    pub(crate) work: F,
    pub(crate) verdict: Option<Result<T, E>>,
    pub(crate) failed: fn(&Failure) -> E,
    pub(crate) reply: Option<oneshot::Sender<Result<T, E>>>,
}

impl<R, T, E, F> Job<R> for Task<T, E, F>
where
    R: ?Sized,
    T: Send,
    E: Send,
    F: FnMut(&R) -> Result<(T, Ran), Stop<E>> + Send,
{
    fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    fn lane(&self) -> Lane {
        Lane::Control
    }

    fn asks(&self) -> Asks {
        self.asks.clone()
    }

    fn run(&mut self, rows: &R) -> Result<Ran, Failed> {
        match (self.work)(rows) {
            Ok((value, ran)) => {
                self.verdict = Some(Ok(value));
                Ok(ran)
            }
            Err(Stop::Refused(refusal)) => {
                self.verdict = Some(Err(refusal));
                Ok(Ran::Nothing)
            }
            Err(Stop::Failed(failed)) => Err(failed),
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

/// The answer to an append. `late_hook` is only ever used by a test's switch.
pub(crate) struct AppendReply {
    pub(crate) committed: Committed,
    pub(crate) late_hook: Option<AfterCommit>,
}

/// An append and its hook.
pub(crate) struct AppendJob {
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
    pub(crate) fn new(
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
    pub(crate) fn bytes(&self) -> usize {
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

impl<R: Rows> Job<R> for AppendJob {
    fn session(&self) -> Option<&SessionId> {
        Some(&self.wanted.session)
    }

    fn lane(&self) -> Lane {
        self.lane
    }

    fn asks(&self) -> Asks {
        asks(&self.wanted)
    }

    fn run(&mut self, rows: &R) -> Result<Ran, Failed> {
        self.late = broken!(rows.switches(), HookAfterNotify);
        self.silent = broken!(rows.switches(), HookPanicSilent);
        match append::run(rows, &self.wanted) {
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
            Err(Stop::Failed(failed)) => Err(failed),
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

/// What the rules will ask about an append.
fn asks(wanted: &Wanted) -> Asks {
    let mut asks = Asks {
        events: wanted.events.iter().map(|event| event.id.clone()).collect(),
        ..Asks::default()
    };
    for event in &wanted.events {
        match &event.body {
            EventBody::SessionCreated(_) => asks.creates = true,
            EventBody::InputAdmitted(admitted) => asks.inputs.push(admitted.input.clone()),
            _ => {}
        }
    }
    for op in &wanted.ops {
        if let HookOp::HandOver { to: Some(to), .. } = op {
            asks.nodes.push(to.clone());
        }
    }
    asks.fresh = asks.creates || !asks.inputs.is_empty() || !asks.nodes.is_empty();
    asks
}
