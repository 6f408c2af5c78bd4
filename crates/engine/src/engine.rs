//! The engine of one process: a node with a reconciler, and the sessions it runs.

mod orphans;

use crate::client::Client;
use crate::config::{Asked, EngineConfig, Scope};
use crate::error::EngineError;
use crate::hub::{Hub, LiveItem};
use crate::models::Models;
use crate::node::Node;
use crate::outcome::{Outcome, OutcomeTracker};
use crate::owner::isolation::Isolations;
use crate::owner::{Owned, own};
use futures::{FutureExt, StreamExt};
use orphans::Orphans;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_core::error::SessionError;
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::request::ToolDef;
use tenure_store::follow::FollowItem;
use tenure_store::{NodeError, SessionState, Store};
use tenure_tools::ToolSet;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

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
    /// The drain budget is over: settle and let go now.
    pub stop_now: CancellationToken,
    draining: AtomicBool,
    stop: CancellationToken,
    asked: Mutex<Asked>,
    running: Mutex<HashMap<SessionId, Run>>,
    running_count: watch::Sender<usize>,
    look: Notify,
    results: broadcast::Sender<(SessionId, Owned)>,
    /// Grows whenever a peer asks to look at a session.
    pub nudges: watch::Sender<u64>,
}

/// A session this process runs or is trying to.
#[derive(Debug, Default)]
struct Run {
    /// Woken meanwhile: look again before leaving.
    again: bool,
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

    fn running(&self) -> MutexGuard<'_, HashMap<SessionId, Run>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer asks to look at a session at once.
    pub fn nudge(self: &Arc<Self>, session: &SessionId) {
        self.nudges.send_modify(|n| *n += 1);
        if self.config.scope == Scope::Any || self.asked().contains(session) {
            wake(self, session);
        }
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
        let client = Client::new(store.clone(), config.env.clone());
        let shared = Arc::new(Shared {
            store,
            models,
            tools,
            hub: Hub::default(),
            node,
            isolations: Isolations::default(),
            stop_now: CancellationToken::new(),
            draining: AtomicBool::new(false),
            stop: CancellationToken::new(),
            asked: Mutex::default(),
            running: Mutex::default(),
            running_count: watch::Sender::new(0),
            look: Notify::new(),
            results: broadcast::channel(64).0,
            nudges: watch::Sender::new(0),
            config,
        });
        listen(&shared);
        let keeper = shared.clone();
        shared.config.env.spawn(Box::pin(async move {
            let reborn = || {
                listen(&keeper);
                keeper.look.notify_one();
            };
            keeper.node.keep(keeper.stop.clone(), reborn).await;
        }));
        let reconciler = shared.clone();
        shared
            .config
            .env
            .spawn(Box::pin(async move { reconcile(reconciler).await }));
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

    /// Follows the session from `after` until the outcome of `input` is in the log, whoever runs it.
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
                    let row = self.shared.store.session(session).await?;
                    if let Some(SessionState::Quarantined { reason }) = row.map(|row| row.state) {
                        return Ok(Outcome::Quarantined(SessionError::new("unusable", reason)));
                    }
                }
            }
        }
        Err(EngineError::Stopped)
    }

    /// Takes no more sessions, brings those it runs to a safe boundary within the drain budget, settles the
    /// rest, and leaves the store. What was running is claimable by others at once.
    ///
    /// # Errors
    /// The store cannot be written; then the others learn of the end from the lock or the lease.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        let shared = &self.shared;
        shared.draining.store(true, Ordering::Release);
        let incarnation = self.incarnation();
        // A node that was just declared dead has nothing left to drain; its own drains notice by the fence.
        if let Err(error) = shared.store.drain(&incarnation).await {
            tracing::warn!(%error, "not marked as draining");
        }
        tokio::select! {
            biased;
            () = self.idle() => {}
            () = shared.config.env.sleep(shared.config.drain_budget) => {
                shared.stop_now.cancel();
                self.idle().await;
            }
        }
        shared.stop.cancel();
        match shared.store.leave(&incarnation).await {
            Ok(()) | Err(NodeError::NotLive(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
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

/// Opens the socket of the node's current life, if it has one.
fn listen(shared: &Arc<Shared>) {
    let life = shared.node.life();
    let path = shared
        .config
        .socket_dir
        .as_ref()
        .and_then(|dir| crate::peer::socket_path(dir, life.incarnation.as_str()));
    let Some(path) = path else { return };
    let task = shared.clone();
    let stop = shared.stop.clone();
    shared.config.env.spawn(Box::pin(async move {
        let ended = stop.child_token();
        let until = ended.clone();
        tokio::select! {
            biased;
            () = life.fenced.cancelled() => ended.cancel(),
            () = crate::peer::serve(task, path, until) => {}
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
    shared.config.env.spawn(Box::pin(async move {
        // Whatever happens in here, the session does not stay "running".
        let entry = Entry {
            shared: task.clone(),
            session: session.clone(),
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
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut running = self.shared.running();
        let again = running.remove(&self.session).is_some_and(|run| run.again);
        self.shared.running_count.send_replace(running.len());
        drop(running);
        if again {
            self.shared.look.notify_one();
        }
    }
}

/// Level-triggered: looks at the store, not at what it remembers (P7).
async fn reconcile(shared: Arc<Shared>) {
    let mut changes = shared.store.watch_all();
    let env = shared.config.env.clone();
    let mut orphans = Orphans::default();
    loop {
        changes.borrow_and_update();
        let waiting = match look(&shared, &mut orphans).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(%error, "the reconciler cannot read the store");
                false
            }
        };
        // A session asked for here and held by another: notice at once when that one dies.
        let poll = if waiting {
            shared.config.poll.min(Duration::from_millis(100))
        } else {
            shared.config.poll
        };
        env.sleep(Duration::from_millis(20).min(poll)).await;
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            changed = changes.changed() => if changed.is_err() { return },
            () = shared.look.notified() => {}
            () = env.sleep(poll) => {}
        }
    }
}

/// One pass. True when a session asked for here is held elsewhere.
async fn look(shared: &Arc<Shared>, orphans: &mut Orphans) -> Result<bool, EngineError> {
    if shared.draining() || !shared.node.may_start() {
        return Ok(false);
    }
    let incarnation = shared.node.life().incarnation;
    orphans.look(shared, &incarnation).await?;
    for dead in shared.store.reap(&incarnation).await? {
        tracing::info!(incarnation = %dead, "a node is gone");
    }
    if shared.config.scope == Scope::Any {
        // Rows of other locations may stand before those that are for this node.
        for row in shared.store.claimable(4_096).await? {
            if shared.config.serves.check(&row.location).is_ok() || row.cancelling {
                wake(shared, &row.id);
            }
        }
        return Ok(false);
    }
    let asked: Vec<SessionId> = shared.asked().iter().cloned().collect();
    let mut waiting = false;
    for session in asked {
        let row = shared.store.session(&session).await?;
        match row.map(|row| row.state) {
            // It may have been taken back while the row was read.
            Some(SessionState::Claimable { .. }) if shared.asked().contains(&session) => {
                wake(shared, &session);
            }
            Some(SessionState::Owned { owner, .. } | SessionState::Waiting { owner, .. })
                if owner != incarnation =>
            {
                waiting = true;
            }
            _ => {}
        }
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests;
