//! The store of one process over a database in memory, with nothing in between.

use super::database::{Database, Observer};
use super::hooks::{BatchKey, HookBook};
use crate::Switches;
use crate::api::*;
use crate::sqlite::{Fault, StoreClock};
use async_trait::async_trait;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::event::{EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tokio::sync::{oneshot, watch};

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore(Arc<Shared>);

struct Shared {
    database: Database,
    clock: Arc<dyn StoreClock>,
    hooks: HookBook,
    queue: Mutex<Queue>,
    observers: Mutex<HashMap<Incarnation, Observer>>,
    watchers: Mutex<Watchers>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    held: usize,
    fault: Option<Fault>,
}

struct Job {
    append: Append,
    reply: oneshot::Sender<Result<(Committed, Option<AfterCommit>), AppendError>>,
}

#[derive(Default)]
struct Watchers {
    sessions: HashMap<SessionId, watch::Sender<u64>>,
    all: watch::Sender<u64>,
    seen: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets the writer go when dropped.
struct Hold(MemoryStore);

impl Drop for Hold {
    fn drop(&mut self) {
        lock(&self.0.0.queue).held -= 1;
        self.0.flush();
    }
}

impl MemoryStore {
    /// An empty store, with one clock for the database and its nodes.
    pub fn new(clock: Arc<dyn StoreClock>, switches: Switches) -> Self {
        Self::apart(clock.clone(), clock, switches)
    }

    /// As [`MemoryStore::new`], with a clock of the database's own. `clock` is what the nodes measure by.
    pub fn apart(
        clock: Arc<dyn StoreClock>,
        databases: Arc<dyn StoreClock>,
        switches: Switches,
    ) -> Self {
        Self(Arc::new(Shared {
            database: Database::new(databases, switches),
            clock,
            hooks: HookBook::default(),
            queue: Mutex::default(),
            observers: Mutex::default(),
            watchers: Mutex::default(),
        }))
    }

    /// The quiet time of a claim, by what its taker has seen, too (R10).
    fn quieted(&self, taker: &Incarnation, taken: Acquire) -> Acquire {
        let mut observers = lock(&self.0.observers);
        let seen = observers.entry(taker.clone()).or_default();
        seen.quiet(self.0.clock.boottime_ms(), taken, self.switches())
    }

    /// The database behind it.
    pub fn database(&self) -> &Database {
        &self.0.database
    }

    /// Appends queue up until the guard is dropped, and then run together.
    pub fn hold_writer(&self) -> Box<dyn Send> {
        lock(&self.0.queue).held += 1;
        Box::new(Hold(self.clone()))
    }

    /// The next commit goes wrong.
    pub fn fail_next_commit(&self, fault: Fault) {
        lock(&self.0.queue).fault = Some(fault);
    }

    /// The node's process died without a word.
    pub fn crash_node(&self, incarnation: &Incarnation) {
        self.0.database.process_gone(incarnation);
    }

    /// Bytes of the bodies it holds.
    pub fn bytes(&self) -> u64 {
        self.0.database.bytes()
    }

    fn switches(&self) -> &Switches {
        self.0.database.switches()
    }

    /// Runs what is queued, unless the writer is held.
    fn flush(&self) {
        let (jobs, fault) = {
            let mut queue = lock(&self.0.queue);
            if queue.held > 0 || queue.jobs.is_empty() {
                return;
            }
            (std::mem::take(&mut queue.jobs), queue.fault.take())
        };
        let mut told = Vec::with_capacity(jobs.len());
        for job in jobs {
            told.push(self.run(job, fault));
        }
        let harmed = broken!(self.switches(), RefusalHarmsBatch)
            && told.len() > 1
            && told.iter().any(|(_, result)| result.is_err());
        for (reply, result) in told {
            let result = match result {
                Ok(_) if harmed => Err(AppendError::Unavailable {
                    reason: "a neighbour was refused (test)".to_owned(),
                }),
                other => other,
            };
            // A caller that is gone has lost nothing: its hook ran.
            let _ = reply.send(result);
        }
        self.wake();
    }

    #[allow(clippy::type_complexity, reason = "the reply and what it is told")]
    fn run(
        &self,
        job: Job,
        fault: Option<Fault>,
    ) -> (
        oneshot::Sender<Result<(Committed, Option<AfterCommit>), AppendError>>,
        Result<(Committed, Option<AfterCommit>), AppendError>,
    ) {
        let Job { mut append, reply } = job;
        let hook = append.after_commit.take();
        let session = append.session.clone();
        let first = append.events.first().map(|event| event.id.clone());
        let key = BatchKey::of(&session, append.fence.as_ref(), first.as_ref());
        let unknown = |reason: &str| AppendError::Unknown {
            session: session.clone(),
            reason: reason.to_owned(),
        };
        if fault == Some(Fault::CommitLost) {
            hook.into_iter()
                .for_each(|hook| self.0.hooks.keep(key.clone(), hook));
            return (reply, Err(unknown("the commit was lost (test)")));
        }
        let committed = match self.0.database.append(append) {
            Ok(committed) => committed,
            Err(error) => return (reply, Err(error)),
        };
        if fault == Some(Fault::AnswerLost) {
            hook.into_iter()
                .for_each(|hook| self.0.hooks.keep(key.clone(), hook));
            return (reply, Err(unknown("the answer was lost (test)")));
        }
        if broken!(self.switches(), HookAfterNotify) {
            return (reply, Ok((committed, hook)));
        }
        let silent = broken!(self.switches(), HookPanicSilent);
        match self.0.hooks.learn(&key, hook, &committed) {
            Err(error) if !silent => (reply, Err(error)),
            _ => (reply, Ok((committed, None))),
        }
    }

    /// What a fault makes of a write that is no append.
    fn faulty<T>(
        &self,
        session: &SessionId,
        write: impl FnOnce() -> Result<T, AppendError>,
    ) -> Result<T, AppendError> {
        let fault = lock(&self.0.queue).fault.take();
        let unknown = |reason: &str| AppendError::Unknown {
            session: session.clone(),
            reason: reason.to_owned(),
        };
        let result = match fault {
            None => write(),
            Some(Fault::CommitLost) => Err(unknown("the commit was lost (test)")),
            Some(Fault::AnswerLost) => {
                write().and_then(|_| Err(unknown("the answer was lost (test)")))
            }
        };
        self.wake();
        result
    }

    /// Wakes who watches what changed.
    fn wake(&self) {
        let mut watchers = lock(&self.0.watchers);
        let (version, changed) = self.0.database.changes(watchers.seen);
        if version == watchers.seen {
            return;
        }
        watchers.seen = version;
        for session in changed {
            if let Some(sender) = watchers.sessions.get(&session) {
                sender.send_modify(|count| *count += 1);
            }
        }
        watchers.all.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn append(&self, append: Append) -> Result<Committed, AppendError> {
        let key = BatchKey::of(
            &append.session,
            append.fence.as_ref(),
            append.events.first().map(|event| &event.id),
        );
        if let Some(problem) = append
            .events
            .iter()
            .find_map(|event| crate::machine::check::problem(&event.body.encode()))
        {
            return Err(AppendError::Rejected {
                session: append.session,
                reason: problem,
            });
        }
        let (reply, answer) = oneshot::channel();
        lock(&self.0.queue).jobs.push_back(Job { append, reply });
        self.flush();
        let closed = AppendError::Unavailable {
            reason: "the store was closed".to_owned(),
        };
        let (committed, late) = answer.await.unwrap_or(Err(closed))?;
        if late.is_some() {
            self.0.hooks.learn(&key, late, &committed)?;
        }
        Ok(committed)
    }

    async fn resolve(
        &self,
        session: &SessionId,
        fence: &Fence,
        ids: &[EventId],
    ) -> Result<Option<Committed>, AppendError> {
        let key = BatchKey::of(session, Some(fence), ids.first());
        let found = self.faulty(session, || self.0.database.resolve(session, fence, ids))?;
        match &found {
            Some(committed) => self.0.hooks.learn(&key, None, committed)?,
            None => self.0.hooks.give_up(&key),
        }
        Ok(found)
    }

    async fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        self.0.database.read(session, after, limit)
    }

    fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        let mut watchers = lock(&self.0.watchers);
        let sender = watchers.sessions.entry(session.clone()).or_default();
        sender.subscribe()
    }

    fn watch_all(&self) -> watch::Receiver<u64> {
        lock(&self.0.watchers).all.subscribe()
    }

    async fn fork(
        &self,
        parent: &SessionId,
        through: u64,
        child: &SessionId,
        event: NewEvent,
    ) -> Result<Committed, AppendError> {
        self.faulty(child, || {
            self.0.database.fork(parent, through, child, event)
        })
    }

    async fn delete(&self, session: &SessionId) -> Result<(), DeleteError> {
        let deleted = self.0.database.delete(session);
        self.wake();
        deleted
    }

    async fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError> {
        let replayed = self.0.database.replay(session, events);
        self.wake();
        replayed
    }

    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        self.0.database.session(session)
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        self.0.database.sessions(&query)
    }

    async fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        self.0.database.claimable(limit)
    }

    async fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        self.0.database.inbox(session)
    }

    async fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        self.0.database.effects(session)
    }

    async fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError> {
        self.0.database.leftovers(limit)
    }

    async fn interrupt(&self, interrupt: Interrupt) -> Result<Interrupted, AppendError> {
        self.faulty(&interrupt.session, || self.0.database.interrupt(&interrupt))
    }

    async fn join(&self, node: NodeInfo) -> Result<(), NodeError> {
        self.0.database.join(node)
    }

    async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError> {
        Ok(self.0.database.renew(incarnation))
    }

    async fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        self.0.database.drain(incarnation)
    }

    async fn leave(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        self.0.database.leave(incarnation);
        self.wake();
        Ok(())
    }

    async fn resign(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        self.0.database.resign(incarnation);
        self.wake();
        Ok(())
    }

    async fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        self.0.database.held(incarnation)
    }

    async fn reap(&self, observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError> {
        let suspects = self.0.database.suspects();
        let judged = {
            let mut observers = lock(&self.0.observers);
            let seen = observers.entry(observer.clone()).or_default();
            seen.judge(
                self.0.clock.boottime_ms(),
                observer,
                &suspects,
                self.switches(),
            )?
        };
        let buried = self.0.database.bury(&judged);
        self.wake();
        Ok(buried)
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, NodeError> {
        Ok(self.0.database.nodes())
    }

    async fn acquire(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
        even_if_idle: bool,
    ) -> Result<Acquire, AppendError> {
        let taken = self.faulty(session, || {
            self.0.database.acquire(session, incarnation, even_if_idle)
        })?;
        Ok(self.quieted(incarnation, taken))
    }

    async fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError> {
        let taken = self.faulty(session, || self.0.database.adopt(session, incarnation))?;
        Ok(self.quieted(incarnation, taken))
    }

    async fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        self.0.database.claim_phase(session, fence)
    }

    async fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        self.0.database.claims()
    }

    async fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError> {
        self.0.database.put_checkpoint(session, checkpoint)
    }

    async fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        self.0.database.checkpoints(session, version)
    }

    async fn gc(&self) -> Result<GcReport, ReadError> {
        Ok(self.0.database.gc())
    }

    async fn health(&self) -> Result<StoreHealth, ReadError> {
        Ok(self.0.database.health())
    }
}
