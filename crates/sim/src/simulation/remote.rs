//! The store of one simulated process: the production contract in front of a network that fails.
//!
//! As the PostgreSQL backend, it gathers appends while one flush is under way and gives each its own verdict;
//! after-commit hooks run here, when this process first learns that a batch is durable (R3); leases are judged
//! by the database's clock and by what this process has observed (R7); wakes are hints, with a poll behind them.

use super::environment::Machine;
use super::executor::{Executor, Proc};
use super::ledger::Ledger;
use super::network::{Asks, Gone, Network};
use super::takings::{self, Giving, Taking};
use crate::chance::Chance;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tenure_core::event::{EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tenure_core::placement::Serves;
use tenure_store::memory::{BatchKey, Database, HookBook, Observer};
use tenure_store::mutation::Mutation;
use tenure_store::*;
use tokio::sync::{oneshot, watch};

/// The poll behind every hint.
const POLL_MICROS: u64 = 1_000_000;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who watches what in one process.
#[derive(Debug, Default)]
pub struct Watchers {
    sessions: Mutex<BTreeMap<SessionId, watch::Sender<u64>>>,
    all: watch::Sender<u64>,
}

impl Watchers {
    /// Wakes the watchers of these sessions, and those of everything.
    pub fn wake(&self, changed: &BTreeSet<SessionId>) {
        let sessions = lock(&self.sessions);
        for session in changed {
            if let Some(sender) = sessions.get(session) {
                sender.send_modify(|count| *count += 1);
            }
        }
        if !changed.is_empty() {
            self.all.send_modify(|count| *count += 1);
        }
    }
}

/// What came of an append, with its hook where that has not run (which a broken rule does).
type Verdict = Result<(Committed, Option<AfterCommit>), AppendError>;

struct Queued {
    append: Append,
    hook: Option<AfterCommit>,
    /// Set when the hook runs.
    ran: Arc<AtomicBool>,
    key: BatchKey,
    reply: oneshot::Sender<Verdict>,
}

/// The hook, and whether it ran, as an observer of the commit sees it.
fn observed(hook: Option<AfterCommit>) -> (Option<AfterCommit>, Arc<AtomicBool>) {
    let ran = Arc::new(AtomicBool::new(hook.is_none()));
    let says = ran.clone();
    let hook = hook.map(|hook| -> AfterCommit {
        Box::new(move |committed| {
            says.store(true, Ordering::Relaxed);
            hook(committed);
        })
    });
    (hook, ran)
}

/// The store as one process has it.
pub struct RemoteStore {
    me: Weak<RemoteStore>,
    node: usize,
    proc: Proc,
    machine: Arc<Machine>,
    network: Network,
    ledger: Arc<Ledger>,
    serves: Serves,
    hooks: HookBook,
    watchers: Arc<Watchers>,
    queue: Mutex<Queue>,
    observer: Mutex<BTreeMap<Incarnation, Observer>>,
    joined: Mutex<Vec<Incarnation>>,
    /// The next hook panics.
    hook_panics: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Queued>,
    flushing: bool,
}

impl RemoteStore {
    /// For a process that has just been started as `node`.
    pub fn new(
        node: usize,
        proc: Proc,
        machine: Arc<Machine>,
        (network, ledger): (Network, Arc<Ledger>),
        serves: Serves,
        seed: u64,
    ) -> Arc<Self> {
        let watchers = Arc::<Watchers>::default();
        network.listen(node, &watchers);
        let store = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            node,
            proc,
            machine,
            network,
            ledger,
            serves,
            hooks: HookBook::default(),
            watchers,
            queue: Mutex::default(),
            observer: Mutex::default(),
            joined: Mutex::default(),
            hook_panics: AtomicBool::new(false),
        });
        let polled = Arc::downgrade(&store);
        let executor = store.executor().clone();
        let chance = Chance::of(seed, 0x9011 + u64::from(proc.0));
        executor.clone().spawn(proc, poll(executor, polled, chance));
        store
    }

    fn executor(&self) -> &Executor {
        self.network.executor()
    }

    /// Every incarnation this process has joined as.
    pub fn joined(&self) -> Vec<Incarnation> {
        lock(&self.joined).clone()
    }

    /// The next after-commit hook panics instead of doing its work.
    pub fn panic_in_next_hook(&self) {
        self.hook_panics.store(true, Ordering::Relaxed);
    }

    fn trip(&self, hook: AfterCommit) -> AfterCommit {
        if !self.hook_panics.swap(false, Ordering::Relaxed) {
            return hook;
        }
        self.ledger
            .note(|| format!("node {}: a hook panics", self.node));
        self.ledger.count("hook panicked");
        // As a panic, without its words on the terminal.
        Box::new(|_| std::panic::resume_unwind(Box::new("as the seed says")))
    }

    async fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Database) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        self.network.call(self.node, Asks::Read, request).await
    }

    async fn read_with<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Database) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        match self.ask(request).await {
            Ok(answer) => answer,
            Err(gone) => Err(ReadError::Unavailable {
                reason: words(gone).to_owned(),
            }),
        }
    }

    async fn node_with<T: Send + 'static>(
        &self,
        request: impl FnOnce(&Database) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        match self.network.call(self.node, Asks::Node, request).await {
            Ok(answer) => answer,
            Err(gone) => Err(NodeError::Unavailable {
                reason: words(gone).to_owned(),
            }),
        }
    }

    async fn write_with<T: Send + 'static>(
        &self,
        session: &SessionId,
        request: impl FnOnce(&Database) -> Result<T, AppendError> + Send + 'static,
    ) -> Result<T, AppendError> {
        self.write_asking(session, Asks::Session, request).await
    }

    async fn write_asking<T: Send + 'static>(
        &self,
        session: &SessionId,
        asks: Asks,
        request: impl FnOnce(&Database) -> Result<T, AppendError> + Send + 'static,
    ) -> Result<T, AppendError> {
        match self.network.call(self.node, asks, request).await {
            Ok(answer) => answer,
            Err(gone) => Err(append_gone(session, gone)),
        }
    }

    /// Flushes until nothing waits. One flush is under way at a time; what comes meanwhile goes together.
    async fn flush(self: Arc<Self>) {
        loop {
            let mut batch: Vec<Queued> = {
                let mut queue = lock(&self.queue);
                if queue.waiting.is_empty() {
                    queue.flushing = false;
                    return;
                }
                queue.waiting.drain(..).collect()
            };
            let appends: Vec<Append> = batch
                .iter_mut()
                .map(|queued| {
                    let append = &mut queued.append;
                    Append {
                        session: append.session.clone(),
                        fence: append.fence.clone(),
                        guard: append.guard,
                        events: std::mem::take(&mut append.events),
                        ops: std::mem::take(&mut append.ops),
                        lane: append.lane,
                        after_commit: None,
                    }
                })
                .collect();
            let (ledger, proc) = (self.ledger.clone(), self.proc);
            let executor = self.executor().clone();
            let request = move |database: &Database| -> Vec<_> {
                let appended = appends.into_iter().map(|append| {
                    let giving = Giving::of(&append);
                    let verdict = database.append(append);
                    if let (Some(giving), Ok(_)) = (giving, &verdict) {
                        giving.judge(&ledger, database, proc, executor.now());
                    }
                    verdict
                });
                let mut verdicts: Vec<_> = appended.collect();
                let harmed = database.switches().on(Mutation::RefusalHarmsBatch);
                if harmed && verdicts.iter().any(Result::is_err) {
                    for verdict in verdicts.iter_mut().filter(|verdict| verdict.is_ok()) {
                        let reason = "a neighbour was refused".to_owned();
                        *verdict = Err(AppendError::Unavailable { reason });
                    }
                }
                verdicts
            };
            let answer = self.network.call(self.node, Asks::Session, request).await;
            self.tell(batch, answer);
        }
    }

    /// Takes a session, and is watched.
    async fn take_with(
        &self,
        session: &SessionId,
        taker: &Incarnation,
        take: impl FnOnce(&Database) -> Result<Acquire, AppendError> + Send + 'static,
    ) -> Result<Acquire, AppendError> {
        let ledger = self.ledger.clone();
        let taking = Taking {
            session: session.clone(),
            taker: taker.clone(),
            serves: self.serves.clone(),
        };
        let taken = self.write_with(session, move |db| {
            let holder = db.live_holder(&taking.session);
            let taken = take(db)?;
            if let Acquire::Acquired(tenure) = &taken {
                takings::judge(&ledger, db, &taking, holder, tenure);
            }
            Ok(taken)
        });
        let taken = taken.await?;
        // As the PostgreSQL backend: the database's clock, and what this process has seen on its own (R10).
        let now = self.machine.boot_ms(self.executor()) as i64;
        let switches = self.network.database().switches();
        let mut observers = lock(&self.observer);
        let seen = observers.entry(taker.clone()).or_default();
        Ok(seen.quiet(now, taken, switches))
    }

    /// Whoever holds tenure is not refused: only a lost one's fence fails, and what was given up (R3).
    fn judge_refusal(&self, append: &Append) {
        let Some(fence) = &append.fence else { return };
        if self
            .network
            .database()
            .is_held_under(&append.session, fence)
        {
            let words = format!(
                "{}: {} holds it at epoch {}, and its write {} was refused",
                append.session, fence.owner, fence.epoch, fence.write_no
            );
            self.ledger.violated("R3", words);
        }
    }

    /// Hooks first, then watchers and callers.
    fn tell(&self, batch: Vec<Queued>, answer: Result<Vec<Result<Committed, AppendError>>, Gone>) {
        let late = self
            .network
            .database()
            .switches()
            .on(Mutation::HookAfterNotify);
        let silent = self
            .network
            .database()
            .switches()
            .on(Mutation::HookPanicSilent);
        let mut changed = BTreeSet::new();
        let mut replies = Vec::with_capacity(batch.len());
        let mut verdicts = answer.map(Vec::into_iter);
        for queued in batch {
            let Queued {
                append,
                hook,
                ran,
                key,
                reply,
            } = queued;
            let verdict = match &mut verdicts {
                Err(gone) => Err(append_gone(&append.session, *gone)),
                Ok(verdicts) => verdicts
                    .next()
                    .unwrap_or_else(|| Err(append_gone(&append.session, Gone::Lost))),
            };
            let verdict = match verdict {
                Ok(committed) if late => Ok((committed, hook)),
                Ok(committed) => {
                    let hook = hook.map(|hook| self.trip(hook));
                    match self.hooks.learn(&key, hook, &committed) {
                        Err(error) if !silent => Err(error),
                        _ => Ok((committed, None)),
                    }
                }
                Err(error) => {
                    if let AppendError::StaleClaim { .. } | AppendError::Rewound { .. } = &error {
                        self.judge_refusal(&append);
                    }
                    if let (AppendError::Unknown { .. }, Some(hook)) = (&error, hook) {
                        self.hooks.keep(key, hook);
                    }
                    Err(error)
                }
            };
            if let Ok((committed, _)) = &verdict {
                // What a listener is about to see must be in the memory of who wrote it.
                if !committed.duplicate && !ran.load(Ordering::Relaxed) {
                    let words = format!("{}: a commit was told before its hook", append.session);
                    self.ledger.violated("R3", words);
                }
                changed.insert(append.session);
            }
            replies.push((reply, verdict));
        }
        self.watchers.wake(&changed);
        for (reply, verdict) in replies {
            // A caller that is gone has lost nothing: its hook ran.
            let _ = reply.send(verdict);
        }
    }
}

/// The poll that is always on.
async fn poll(executor: Executor, store: Weak<RemoteStore>, mut chance: Chance) {
    let mut seen = 0;
    loop {
        let jitter = chance.below(POLL_MICROS / 5);
        executor.sleep_micros(POLL_MICROS - jitter).await;
        let Some(store) = store.upgrade() else { return };
        let since = seen;
        if let Ok((version, changed)) = store.ask(move |db| db.changes(since)).await {
            seen = version;
            store.watchers.wake(&changed.into_iter().collect());
        }
    }
}

fn words(gone: Gone) -> &'static str {
    match gone {
        Gone::Refused => "the connection was refused",
        Gone::Lost => "the connection was lost",
    }
}

fn append_gone(session: &SessionId, gone: Gone) -> AppendError {
    let reason = words(gone).to_owned();
    match gone {
        Gone::Refused => AppendError::Unavailable { reason },
        Gone::Lost => AppendError::Unknown {
            session: session.clone(),
            reason,
        },
    }
}

#[async_trait]
impl Store for RemoteStore {
    async fn append(&self, mut append: Append) -> Result<Committed, AppendError> {
        let first = append.events.first().map(|event| event.id.clone());
        let key = BatchKey::of(&append.session, append.fence.as_ref(), first.as_ref());
        let session = append.session.clone();
        let (hook, ran) = observed(append.after_commit.take());
        let (reply, answer) = oneshot::channel();
        let start = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(Queued {
                append,
                hook,
                ran,
                key: key.clone(),
                reply,
            });
            !std::mem::replace(&mut queue.flushing, true)
        };
        if start && let Some(me) = self.me.upgrade() {
            self.executor().spawn(self.proc, me.flush());
        }
        let verdict = answer
            .await
            .unwrap_or_else(|_| Err(append_gone(&session, Gone::Lost)));
        let (committed, hook) = verdict?;
        if hook.is_some() {
            // Where the rule is broken, a caller that is dropped takes the hook along.
            self.hooks.learn(&key, hook, &committed)?;
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
        let (id, asked, ids) = (session.clone(), fence.clone(), ids.to_vec());
        let found = self
            .write_asking(session, Asks::Resolve, move |db| {
                db.resolve(&id, &asked, &ids)
            })
            .await?;
        match &found {
            Some(committed) => self.hooks.learn(&key, None, committed)?,
            None => self.hooks.give_up(&key),
        }
        Ok(found)
    }

    async fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let id = session.clone();
        self.read_with(move |db| db.read(&id, after, limit)).await
    }

    fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        let mut sessions = lock(&self.watchers.sessions);
        sessions.entry(session.clone()).or_default().subscribe()
    }

    fn watch_all(&self) -> watch::Receiver<u64> {
        self.watchers.all.subscribe()
    }

    async fn fork(
        &self,
        parent: &SessionId,
        through: u64,
        child: &SessionId,
        event: NewEvent,
    ) -> Result<Committed, AppendError> {
        let (parent, id) = (parent.clone(), child.clone());
        self.write_with(child, move |db| db.fork(&parent, through, &id, event))
            .await
    }

    async fn delete(&self, session: &SessionId) -> Result<(), DeleteError> {
        let (id, ledger) = (session.clone(), self.ledger.clone());
        let delete = move |db: &Database| {
            db.delete(&id)?;
            ledger.forget(&id);
            Ok(())
        };
        match self.network.call(self.node, Asks::Session, delete).await {
            Ok(answer) => answer,
            Err(gone) => Err(DeleteError::Unavailable {
                reason: words(gone).to_owned(),
            }),
        }
    }

    async fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError> {
        let id = session.clone();
        match self
            .network
            .call(self.node, Asks::Session, move |db| db.replay(&id, events))
            .await
        {
            Ok(answer) => answer,
            Err(gone) => Err(ReplayError::Unavailable {
                reason: words(gone).to_owned(),
            }),
        }
    }

    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        let id = session.clone();
        self.read_with(move |db| db.session(&id)).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        self.read_with(move |db| db.sessions(&query)).await
    }

    async fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        self.read_with(move |db| db.claimable(limit)).await
    }

    async fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        let id = session.clone();
        self.read_with(move |db| db.inbox(&id)).await
    }

    async fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        let id = session.clone();
        self.read_with(move |db| db.effects(&id)).await
    }

    async fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError> {
        self.read_with(move |db| db.leftovers(limit)).await
    }

    async fn interrupt(&self, interrupt: Interrupt) -> Result<Interrupted, AppendError> {
        let session = interrupt.session.clone();
        self.write_with(&session, move |db| db.interrupt(&interrupt))
            .await
    }

    async fn join(&self, node: NodeInfo) -> Result<(), NodeError> {
        lock(&self.joined).push(node.incarnation.clone());
        self.node_with(move |db| db.join(node)).await
    }

    async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError> {
        let id = incarnation.clone();
        self.node_with(move |db| Ok(db.renew(&id))).await
    }

    async fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let (id, ledger) = (incarnation.clone(), self.ledger.clone());
        self.node_with(move |db| {
            db.drain(&id)?;
            ledger.registry.retired(&id);
            Ok(())
        })
        .await
    }

    async fn leave(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let (id, ledger) = (incarnation.clone(), self.ledger.clone());
        self.node_with(move |db| {
            db.leave(&id);
            ledger.registry.retired(&id);
            Ok(())
        })
        .await
    }

    async fn resign(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.clone();
        let ledger = self.ledger.clone();
        self.node_with(move |db| {
            db.resign(&id);
            ledger.registry.resigned(&id);
            Ok(())
        })
        .await
    }

    async fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        let id = incarnation.clone();
        self.read_with(move |db| db.held(&id)).await
    }

    async fn reap(&self, observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError> {
        let away = |gone| NodeError::Unavailable {
            reason: words(gone).to_owned(),
        };
        let suspects = self.ask(Database::suspects).await.map_err(away)?;
        let judged = {
            let now = self.machine.boot_ms(self.executor()) as i64;
            let switches = self.network.database().switches();
            let mut observers = lock(&self.observer);
            let seen = observers.entry(observer.clone()).or_default();
            seen.judge(now, observer, &suspects, switches)?
        };
        if judged.is_empty() {
            return Ok(Vec::new());
        }
        let ledger = self.ledger.clone();
        self.node_with(move |db| {
            let buried = db.bury(&judged);
            buried.iter().for_each(|life| ledger.registry.retired(life));
            Ok(buried)
        })
        .await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, NodeError> {
        let away = |gone| NodeError::Unavailable {
            reason: words(gone).to_owned(),
        };
        self.ask(Database::nodes).await.map_err(away)
    }

    async fn acquire(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
        even_if_idle: bool,
    ) -> Result<Acquire, AppendError> {
        let (id, taker) = (session.clone(), incarnation.clone());
        self.take_with(session, incarnation, move |db| {
            db.acquire(&id, &taker, even_if_idle)
        })
        .await
    }

    async fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError> {
        let (id, owner) = (session.clone(), incarnation.clone());
        self.take_with(session, incarnation, move |db| db.adopt(&id, &owner))
            .await
    }

    async fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        let (id, fence) = (session.clone(), fence.clone());
        self.read_with(move |db| db.claim_phase(&id, &fence)).await
    }

    async fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        self.read_with(Database::claims).await
    }

    async fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError> {
        let id = session.clone();
        self.read_with(move |db| db.put_checkpoint(&id, checkpoint))
            .await
    }

    async fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        let id = session.clone();
        self.read_with(move |db| db.checkpoints(&id, version)).await
    }

    async fn gc(&self) -> Result<GcReport, ReadError> {
        self.read_with(|db| Ok(db.gc())).await
    }

    async fn health(&self) -> Result<StoreHealth, ReadError> {
        self.read_with(|db| Ok(db.health())).await
    }
}
