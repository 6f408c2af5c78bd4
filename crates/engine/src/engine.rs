//! The engine of one process: a node with a reconciler, and the sessions it runs.

pub(crate) mod board;
pub(crate) mod leftovers;
pub(crate) mod living;
mod orphans;
pub(crate) mod rank;
mod reconcile;
pub(crate) mod stopped;
mod successors;

use crate::client::Client;
use crate::complaint::Complaint;
use crate::config::{Asked, EngineConfig, Scope};
use crate::error::EngineError;
use crate::hub::{Hub, LiveItem};
use crate::models::Models;
use crate::node::Node;
use crate::outcome::{Outcome, OutcomeTracker};
use crate::owner::isolation::Isolations;
use crate::owner::{Owned, own};
use crate::peer::owners::Reach;
use crate::peer::{NodeHealth, NodeService};
use crate::recover::quiet::LOCK_DELAY;
use board::Board;
use futures::{FutureExt, StreamExt};
use living::{Alive, Living};
use rank::{serves_both, takes};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stopped::{Behind, Group};
use successors::Successors;
use tenure_core::error::SessionError;
use tenure_core::event::body::Location;
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::model::ModelRef;
use tenure_core::request::ToolDef;
use tenure_store::follow::FollowItem;
use tenure_store::{NodeError, ReadError, SessionState, Store};
use tenure_tools::ToolSet;
use tokio::sync::{Notify, Semaphore, broadcast, watch};
use tokio_util::sync::CancellationToken;

/// How long a node that leaves waits for what it stopped: longer than the tools themselves may take to end what does
/// not answer.
const ENDED_WITHIN: Duration = Duration::from_secs(6);

/// What everything in this process shares.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub models: Models,
    pub tools: ToolSet,
    pub config: EngineConfig,
    pub hub: Hub,
    pub node: Node,
    /// Sessions given a process of their own.
    pub isolations: Isolations,
    /// What the claims' poll tells the sessions that run here.
    pub board: Board,
    /// Acquisitions and loads under way.
    pub starts: Semaphore,
    /// The ways to other nodes.
    pub reach: Arc<Reach>,
    successors: Successors,
    /// The drain budget is over: settle and let go now.
    pub stop_now: CancellationToken,
    /// The store knows that this node drains: sessions at a boundary go to a successor.
    pub let_go: CancellationToken,
    draining: AtomicBool,
    stop: CancellationToken,
    asked: Mutex<Asked>,
    running: Mutex<BTreeMap<SessionId, Run>>,
    running_count: watch::Sender<usize>,
    /// Whatever of this node could still do something.
    pub living: Living,
    /// What is said while the store refuses writes.
    pub unwritten: Arc<Complaint>,
    /// What sessions left behind when they let go of their calls.
    pub behind: Behind,
    look: Notify,
    /// Something may be left of calls that are over, and whoever knew is gone.
    pub left: Notify,
    /// Nodes died: what they held is looked at right away.
    bereaved: Notify,
    results: broadcast::Sender<(SessionId, Owned)>,
    /// Boot-clock milliseconds when the reconciler last read the store to the end.
    looked_ms: AtomicU64,
}

/// A session this process runs or is trying to.
#[derive(Debug, Default)]
struct Run {
    /// Woken meanwhile: look again before leaving.
    again: bool,
    shown: ShownRun,
}

/// What peers may know of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShownRun {
    /// The epoch held; none while it is still acquired.
    pub epoch: Option<u64>,
    /// Cancelled when the session no longer runs here.
    pub over: CancellationToken,
}

impl Shared {
    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Tool definitions in stable order.
    pub fn tool_defs(&self) -> Vec<ToolDef> {
        self.tools
            .specs()
            .iter()
            .map(|spec| ToolDef {
                name: spec.name.clone(),
                description: spec.description.clone(),
                input_schema: spec.input_schema.clone(),
            })
            .collect()
    }

    fn running(&self) -> MutexGuard<'_, BTreeMap<SessionId, Run>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run of a session here, if there is one.
    pub fn run_of(&self, session: &SessionId) -> Option<ShownRun> {
        self.running().get(session).map(|run| run.shown.clone())
    }

    /// Tenure over the session was taken.
    pub fn holds(&self, session: &SessionId, epoch: u64) {
        if let Some(run) = self.running().get_mut(session) {
            run.shown.epoch = Some(epoch);
        }
    }

    /// How this node is getting on.
    pub fn health(&self) -> NodeHealth {
        let looked = self.looked_ms.load(Ordering::Acquire);
        NodeHealth {
            incarnation: self.node.life().incarnation,
            may_start: self.node.may_start(),
            draining: self.draining(),
            running: self.running().len(),
            looked_ms_ago: self.config.env.boot_ms().saturating_sub(looked),
            poll_ms: self.config.poll.as_millis() as u64,
        }
    }

    /// Somebody asks to look at a session at once: the run that is under way, or what may be taken, or what was
    /// handed over to this node.
    pub fn nudge(self: &Arc<Self>, session: &SessionId) {
        if self.board.urge(session) {
            // It may be just about to end.
            if let Some(run) = self.running().get_mut(session) {
                run.again = true;
            }
            return;
        }
        if self.config.scope == Scope::Any || self.asked().contains(session) {
            wake(self, session);
        }
    }

    /// Who is to have the session when this node lets it go; none when nobody can.
    pub async fn successor(
        &self,
        session: &SessionId,
        needs: (&Location, &ModelRef),
    ) -> Option<Incarnation> {
        let own = self.node.life().incarnation;
        let env = self.config.env.as_ref();
        self.successors
            .choose(self.store.as_ref(), env, &own, session, needs)
            .await
    }

    /// Is there another node that takes sessions like this one by itself?
    pub async fn is_taken_elsewhere(
        &self,
        location: &Location,
        model: &ModelRef,
    ) -> Result<bool, NodeError> {
        let own = self.node.life().incarnation;
        let nodes = self.store.nodes().await?;
        Ok(nodes.iter().any(|node| {
            node.incarnation != own && takes(node) && serves_both(node, location, model)
        }))
    }

    /// A new group of the session's calls. What was stopped is waited for as long as what a lost owner left (R10).
    pub fn calls_of(&self, session: &SessionId) -> Group {
        let longest = self.config.lease + LOCK_DELAY;
        self.behind.group(self.config.env.clone(), session, longest)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Shared {
    /// A test runs the session by hand: the reconciler leaves it alone.
    pub fn mark_running(&self, session: &SessionId) {
        self.running().insert(session.clone(), Run::default());
    }

    pub fn unmark_running(&self, session: &SessionId) {
        self.running().remove(session);
    }
}

/// An engine: a node of a store that runs sessions. When its last handle is dropped, what runs is settled as
/// stopped by a shutdown; [`Engine::shutdown`] lets go in order and waits for it.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    client: Client,
    _last: Arc<LastHandle>,
}

/// Stops the engine's tasks when the last [`Engine`] is dropped.
struct LastHandle(Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.draining.store(true, Ordering::Release);
        self.0.stop_now.cancel();
        self.0.stop.cancel();
    }
}

impl Engine {
    /// Joins the store as a node and starts renewing, reconciling and, with [`Scope::Any`], running.
    ///
    /// # Errors
    /// The settings do not fit each other, or the store cannot be written.
    pub async fn start(
        store: Arc<dyn Store>,
        models: Models,
        tools: ToolSet,
        config: EngineConfig,
    ) -> Result<Self, EngineError> {
        config.check()?;
        let node = Node::join(store.clone(), config.clone()).await?;
        let client = Client::with_peers(store.clone(), config.env.clone(), config.peers());
        // What is followed here goes on for as long as the node does, which comes back with the store.
        let client = client.reading_for(Duration::MAX);
        #[cfg(feature = "testing")]
        let client = client.breaking(config.mutations.clone());
        let looked_ms = AtomicU64::new(config.env.boot_ms());
        let shared = Arc::new(Shared {
            store,
            models,
            tools,
            hub: Hub::default(),
            node,
            isolations: Isolations::default(),
            board: Board::default(),
            starts: Semaphore::new(config.start_concurrency),
            reach: client.reach(),
            successors: Successors::default(),
            stop_now: CancellationToken::new(),
            let_go: CancellationToken::new(),
            draining: AtomicBool::new(false),
            stop: CancellationToken::new(),
            asked: Mutex::default(),
            running: Mutex::default(),
            running_count: watch::Sender::new(0),
            living: Living::default(),
            behind: Behind::default(),
            unwritten: Arc::default(),
            look: Notify::new(),
            left: Notify::new(),
            bereaved: Notify::new(),
            results: broadcast::channel(64).0,
            looked_ms,
            config,
        });
        listen(&shared);
        let keeper = shared.clone();
        shared.config.env.spawn(Box::pin(async move {
            let reborn = || {
                listen(&keeper);
                keeper.look.notify_one();
            };
            let living = keeper.living.clone();
            keeper.node.keep(keeper.stop.clone(), living, reborn).await;
        }));
        let env = shared.config.env.clone();
        env.spawn(Box::pin(reconcile::keep_claims(shared.clone())));
        env.spawn(Box::pin(reconcile::suspect(shared.clone())));
        env.spawn(Box::pin(reconcile::reconcile(shared.clone())));
        env.spawn(Box::pin(leftovers::look_after(shared.clone())));
        let last = Arc::new(LastHandle(shared.clone()));
        Ok(Self {
            shared,
            client,
            _last: last,
        })
    }

    /// What needs no ownership.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// This process start.
    pub fn incarnation(&self) -> Incarnation {
        self.shared.node.life().incarnation
    }

    /// Live items of a session that this process runs.
    pub fn live(&self, session: &SessionId) -> broadcast::Receiver<LiveItem> {
        self.shared.hub.subscribe(session)
    }

    /// The hub, for relays to other processes.
    pub fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    /// What this node does for others, for whoever answers its peers.
    pub fn service(&self) -> NodeService {
        NodeService::new(self.shared.clone())
    }

    /// Asks this process to run the session whenever it is runnable and nobody else does, until
    /// [`Engine::forget`].
    pub fn run(&self, session: &SessionId) {
        self.shared.asked().insert(session.clone());
        wake(&self.shared, session);
    }

    /// Takes [`Engine::run`] back; what runs goes on to its end.
    pub fn forget(&self, session: &SessionId) {
        self.shared.asked().remove(session);
    }

    /// A hint that a session may have work.
    pub fn wake(&self, session: &SessionId) {
        wake(&self.shared, session);
    }

    /// What came of each attempt to run a session.
    pub fn results(&self) -> broadcast::Receiver<(SessionId, Owned)> {
        self.shared.results.subscribe()
    }

    /// Waits until nothing runs here.
    pub async fn idle(&self) {
        let mut count = self.shared.running_count.subscribe();
        // The sender lives in `shared`.
        let _ = count.wait_for(|n| *n == 0).await;
    }

    /// Sessions running here now.
    pub fn running(&self) -> usize {
        *self.shared.running_count.borrow()
    }

    /// Follows the session from `after` until the outcome of `input` is in the log, whoever runs it. A store
    /// that is away in the middle is waited for, for as long as it takes.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn outcome(
        &self,
        session: &SessionId,
        input: &tenure_core::id::MessageId,
        after: Option<u64>,
    ) -> Result<Outcome, EngineError> {
        let mut tracker = OutcomeTracker::new(input.clone());
        let mut items = self.client.follow(session, after);
        loop {
            tokio::select! {
                biased;
                item = items.next() => match item {
                    Some(item) => if let FollowItem::Event(event) = item?
                        && let Some(outcome) = tracker.on(&event)
                    {
                        return Ok(outcome);
                    },
                    None => break,
                },
                // A session whose log takes no event any more is set aside without one (R12).
                () = self.shared.config.env.sleep(self.shared.config.poll) => {
                    let row = match self.shared.store.session(session).await {
                        // The log says when it is back.
                        Err(ReadError::Unavailable { .. }) => continue,
                        row => row?,
                    };
                    if let Some(SessionState::Quarantined { reason }) = row.map(|row| row.state) {
                        return Ok(Outcome::Quarantined(SessionError::new("unusable", reason)));
                    }
                }
            }
        }
        Err(EngineError::Stopped)
    }

    /// Takes no more sessions and, all at once, hands those it runs over to other nodes: each at its next safe
    /// boundary, or as it is when it waits for approvals. What has not come to one within the drain budget is
    /// stopped, settled and handed over then, uncharged. Where no node can take a session it is left claimable.
    /// Then leaves the store; while a tool still runs that does not let itself be stopped, or something that one started,
    /// it only stops renewing.
    ///
    /// # Errors
    /// The store cannot be written; then the others learn of the end from the lock or the lease.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        let shared = &self.shared;
        shared.draining.store(true, Ordering::Release);
        let incarnation = self.incarnation();
        // Before anything is given away: nobody may give something here meanwhile. A node that was just declared
        // dead has nothing left to drain; its own drains notice by the fence.
        tokio::select! {
            biased;
            marked = shared.store.drain(&incarnation) => if let Err(error) = marked {
                tracing::warn!(%error, "not marked as draining");
            },
            () = shared.config.env.sleep(shared.config.renew_every) => {
                tracing::warn!("the store does not take the mark of draining; going on without");
            }
        }
        shared.let_go.cancel();
        tokio::select! {
            biased;
            () = self.idle() => {}
            () = shared.config.env.sleep(shared.config.drain_budget) => {
                shared.stop_now.cancel();
                self.idle().await;
            }
        }
        let env = shared.config.env.as_ref();
        let gone = shared.living.gone(env, ENDED_WITHIN).await;
        shared.stop.cancel();
        if !gone {
            tracing::error!(%incarnation, "a tool does not let itself be stopped; the lease is left to run out");
            return Ok(());
        }
        match shared.store.leave(&incarnation).await {
            Ok(()) | Err(NodeError::NotLive(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Resolves with the reason when this node has stopped for good and by itself, because a newer version of this
    /// program has changed the store: all its work is over, nothing more is written, and there is nothing to shut down.
    /// Its sessions go on elsewhere when its lease ends. Cancellation safe.
    pub async fn outdated(&self) -> String {
        let why = self.shared.node.outdated().await;
        self.shared
            .living
            .gone(self.shared.config.env.as_ref(), ENDED_WITHIN)
            .await;
        why
    }

    /// As [`Engine::shutdown`] with no budget: what runs is settled as stopped by a shutdown, now.
    ///
    /// # Errors
    /// As [`Engine::shutdown`].
    pub async fn shutdown_now(&self) -> Result<(), EngineError> {
        self.shared.draining.store(true, Ordering::Release);
        self.shared.stop_now.cancel();
        self.shutdown().await
    }
}

/// Answers peers for the node's current life.
fn listen(shared: &Arc<Shared>) {
    let life = shared.node.life();
    let service = NodeService::new(shared.clone());
    let ended = shared.stop.child_token();
    let until = ended.clone();
    let peers = shared.config.peers();
    shared.config.env.spawn(Box::pin(async move {
        let serving = peers.serve(&life.incarnation, service, until);
        tokio::select! {
            biased;
            () = life.fenced.cancelled() => ended.cancel(),
            () = serving => {}
        }
    }));
}

/// Runs the session here unless it does already; then it looks again when it ends.
fn wake(shared: &Arc<Shared>, session: &SessionId) {
    if shared.draining() {
        return;
    }
    let mut running = shared.running();
    if let Some(run) = running.get_mut(session) {
        run.again = true;
        return;
    }
    running.insert(session.clone(), Run::default());
    shared.running_count.send_replace(running.len());
    drop(running);
    let task = shared.clone();
    let session = session.clone();
    let alive = shared.living.begin();
    shared.config.env.spawn(Box::pin(async move {
        // Whatever happens in here, the session does not stay "running".
        let entry = Entry {
            shared: task.clone(),
            session: session.clone(),
            _alive: alive,
        };
        loop {
            let caught = AssertUnwindSafe(own(&task, &session)).catch_unwind().await;
            let Ok(result) = caught else {
                // The reconciler finds the claim without anybody working on it.
                tracing::error!(%session, "running the session panicked");
                break;
            };
            let again = {
                let mut running = task.running();
                running
                    .get_mut(&session)
                    .is_some_and(|run| std::mem::take(&mut run.again))
            };
            match result {
                Ok(owned) => {
                    let retry = again && owned == Owned::Ended && !task.draining();
                    // Nobody listening is not an error.
                    let _ = task.results.send((session.clone(), owned));
                    if retry {
                        continue;
                    }
                }
                Err(error) => tracing::error!(%session, %error, "cannot run the session now"),
            }
            break;
        }
        drop(entry);
    }));
}

/// A session's place in the map of running ones; gives it back however the task ends.
struct Entry {
    shared: Arc<Shared>,
    session: SessionId,
    _alive: Alive,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut running = self.shared.running();
        let run = running.remove(&self.session).unwrap_or_default();
        run.shown.over.cancel();
        let again = run.again;
        self.shared.running_count.send_replace(running.len());
        drop(running);
        if again {
            self.shared.look.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
