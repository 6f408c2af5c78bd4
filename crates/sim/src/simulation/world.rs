//! The simulated world: machines with production engines on them, one database, and what goes wrong.

use super::environment::{Machine, SimEnvironment, true_wall_ms};
use super::executor::{Executor, Micros, Proc, WORLD};
use super::ledger::Ledger;
use super::network::{Link, Network};
use super::peers::{SimPeers, Switchboard};
use super::plan::{Fault, FaultKind, Plan, When, Which};
use super::provider::SimProvider;
use super::remote::RemoteStore;
use super::tools::Bench;
use crate::chance::Chance;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tenure_core::event::body::Location;
use tenure_core::model::ModelRef;
use tenure_core::retry::RetryPolicy;
use tenure_engine::{Approvals, Client, Engine, EngineConfig, Models, Scope};
use tenure_provider::Catalogue;
use tenure_store::StoreClock;
use tenure_store::memory::Database;
use tenure_store::mutation::Mutations;
use tenure_tools::guardian::GuardianCommand;
use tokio::sync::{oneshot, watch};

/// The provider's name in the settings of every session.
pub const PROVIDER: &str = "sim";

/// How long a process that was asked to shut down gets before it is killed.
const SHUTDOWN_PATIENCE: Micros = 60_000_000;

/// The database's own clock.
struct DatabaseClock {
    executor: Executor,
    offset_ms: AtomicI64,
}

impl StoreClock for DatabaseClock {
    fn boottime_ms(&self) -> i64 {
        (self.executor.now() / 1_000) as i64 + self.offset_ms.load(Ordering::Relaxed)
    }

    fn wall_ms(&self) -> i64 {
        true_wall_ms(&self.executor) + self.offset_ms.load(Ordering::Relaxed)
    }

    fn boot_id(&self) -> String {
        "database".to_owned()
    }
}

/// A machine and the process on it.
struct Slot {
    machine: Arc<Machine>,
    process: Option<Process>,
}

/// A node's process.
struct Process {
    proc: Proc,
    store: Arc<RemoteStore>,
    /// Once it has joined.
    engine: Option<Engine>,
    paused: u32,
    draining: bool,
}

/// The world of one run.
pub struct World {
    /// Runs everything.
    pub executor: Executor,
    /// The one database.
    pub database: Arc<Database>,
    /// What lies between it and the nodes.
    pub network: Network,
    /// Where nodes reach each other.
    switchboard: Switchboard,
    /// What physically happened.
    pub ledger: Arc<Ledger>,
    /// What is to happen.
    pub plan: Plan,
    /// Committing requests so far.
    pub commits: watch::Sender<u64>,
    clock: Arc<DatabaseClock>,
    slots: Mutex<Vec<Slot>>,
    next_proc: AtomicU32,
    /// Nothing goes wrong any more.
    healed: AtomicBool,
    /// When something last went wrong with a node, or a process last started or ended on it.
    disturbed: Mutex<Vec<Micros>>,
    chance: Mutex<Chance>,
}

impl World {
    /// A world in which nothing has happened yet.
    pub fn new(plan: Plan, mutations: Mutations) -> Arc<Self> {
        let executor = Executor::new(plan.seed);
        let clock = Arc::new(DatabaseClock {
            executor: executor.clone(),
            offset_ms: AtomicI64::new(0),
        });
        let database = Arc::new(Database::new(clock.clone(), mutations));
        let network = Network::new(executor.clone(), database.clone(), plan.nodes, plan.seed);
        let ledger = Arc::new(Ledger::new(executor.clone(), database.clone()));
        let mut chance = Chance::of(plan.seed, 0x301d);
        let slots = (0..plan.nodes).map(|node| Slot {
            machine: Arc::new(Machine::new(node, &mut chance)),
            process: None,
        });
        let slots = slots.collect();
        let world = Arc::new(Self {
            executor,
            database,
            network,
            switchboard: Switchboard::default(),
            ledger,
            commits: watch::Sender::new(0),
            clock,
            slots: Mutex::new(slots),
            // 0 is the world, 1 the clients.
            next_proc: AtomicU32::new(2),
            healed: AtomicBool::new(false),
            disturbed: Mutex::new(vec![0; plan.nodes]),
            chance: Mutex::new(chance),
            plan,
        });
        let told: Weak<Self> = Arc::downgrade(&world);
        world.network.on_commit(Box::new(move |number, node| {
            if let Some(world) = told.upgrade() {
                world.committed(number, node);
            }
        }));
        world
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Below `n`, from the world's own chance.
    pub fn below(&self, n: u64) -> u64 {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        chance.below(n)
    }

    /// Starts the nodes and whatever goes wrong at a time.
    pub fn begin(self: &Arc<Self>) {
        for node in 0..self.plan.nodes {
            self.start(node);
        }
        for fault in &self.plan.faults {
            let When::At(at) = fault.when else { continue };
            let (world, fault) = (self.clone(), fault.clone());
            self.executor.spawn(WORLD, async move {
                world.executor.sleep_until(at).await;
                world.strike(&fault, 0);
            });
        }
    }

    fn disturb(&self, node: usize) {
        let mut disturbed = self
            .disturbed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = disturbed.get_mut(node) {
            *since = self.executor.now();
        }
    }

    /// Marks nodes that are not sound now: sound is one whose process runs and may take sessions, and that reaches the
    /// database.
    pub fn mark_disturbed(&self) {
        let slots = self.slots();
        for (node, slot) in slots.iter().enumerate() {
            let process = slot.process.as_ref();
            let runs = process.is_some_and(|process| {
                process.engine.is_some() && process.paused == 0 && !process.draining
            });
            if !runs || !self.network.is_sound(node) {
                self.disturb(node);
            }
        }
    }

    /// Since when some node that serves the place and the model has been sound; none when none is.
    pub fn undisturbed_since(&self, place: &Location, model: &ModelRef) -> Option<Micros> {
        let disturbed = self
            .disturbed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let now = self.executor.now();
        let able = disturbed.iter().enumerate();
        let able = able.filter(|(node, _)| self.plan.serves(*node).check(place, model).is_ok());
        able.map(|(_, since)| *since)
            .filter(|since| *since < now)
            .min()
    }

    /// Starts a process on a machine that has none.
    pub fn start(self: &Arc<Self>, node: usize) {
        let proc = Proc(self.next_proc.fetch_add(1, Ordering::Relaxed));
        let (machine, store) = {
            let mut slots = self.slots();
            let Some(slot) = slots.get_mut(node).filter(|slot| slot.process.is_none()) else {
                return;
            };
            let machine = slot.machine.clone();
            let network = self.network.clone();
            let store = RemoteStore::new(
                node,
                proc,
                machine.clone(),
                (network, self.ledger.clone()),
                self.plan.serves(node),
                self.plan.seed,
            );
            slot.process = Some(Process {
                proc,
                store: store.clone(),
                engine: None,
                paused: 0,
                draining: false,
            });
            (machine, store)
        };
        self.ledger
            .note(|| format!("node {node} starts as {proc:?}"));
        let env = Arc::new(SimEnvironment::new(
            self.executor.clone(),
            proc,
            machine.clone(),
            self.ledger.clone(),
            self.plan.seed,
        ));
        let bench = Bench {
            executor: self.executor.clone(),
            ledger: self.ledger.clone(),
            proc,
            serves: self.plan.serves(node),
            machine,
        };
        let provider = SimProvider {
            executor: self.executor.clone(),
            ledger: self.ledger.clone(),
            proc,
            plan: self.plan.model.clone(),
        };
        let models = Models::new(Catalogue::new()).with(PROVIDER, Arc::new(provider));
        let mut config = EngineConfig::new(
            format!("node-{node}"),
            PathBuf::from("/nowhere"),
            GuardianCommand::new("/nowhere"),
        );
        config.scope = Scope::Any;
        config.approvals = Approvals::Wait;
        config.drain_budget = Duration::from_micros(self.plan.drain_budget);
        config.retry = RetryPolicy {
            base_ms: 300,
            ..RetryPolicy::default()
        };
        config.serves = self.plan.serves(node);
        let network = self.network.clone();
        config.peers = Some(Arc::new(SimPeers::new(
            node,
            proc,
            network,
            &self.switchboard,
        )));
        config.mutations = self.database.switches().clone();
        config.env = env;
        let world = Arc::downgrade(self);
        let executor = self.executor.clone();
        self.executor.spawn(proc, async move {
            loop {
                let tools = bench.tools();
                match Engine::start(store.clone(), models.clone(), tools, config.clone()).await {
                    Ok(engine) => {
                        if let Some(world) = world.upgrade() {
                            world.started(node, proc, engine);
                        }
                        return;
                    }
                    Err(_) => executor.sleep_micros(300_000).await,
                }
            }
        });
    }

    fn started(&self, node: usize, proc: Proc, engine: Engine) {
        let mut slots = self.slots();
        let process = slots.get_mut(node).and_then(|slot| slot.process.as_mut());
        if let Some(process) = process.filter(|process| process.proc == proc) {
            process.engine = Some(engine);
        }
    }

    /// The process on a machine is gone, from one moment to the next. `lingers`: what it had started is not.
    fn kill(self: &Arc<Self>, node: usize, noticed: bool, lingers: bool) {
        let process = self
            .slots()
            .get_mut(node)
            .and_then(|slot| slot.process.take());
        let Some(process) = process else { return };
        self.ledger.dies(process.proc, lingers);
        self.executor.kill(process.proc);
        if !process.draining {
            self.ledger.registry.crashed(&process.store.joined());
        }
        if noticed {
            let world = self.clone();
            let lives = process.store.joined();
            let after = 5_000 + self.below(60_000);
            self.executor.spawn(WORLD, async move {
                world.executor.sleep_micros(after).await;
                for incarnation in lives {
                    if lingers {
                        world.database.process_absent(&incarnation);
                    } else {
                        world.database.process_gone(&incarnation);
                    }
                }
            });
        }
        drop(process);
    }

    fn back(self: &Arc<Self>, node: usize, after: Micros) {
        let world = self.clone();
        self.executor.spawn(WORLD, async move {
            world.executor.sleep_micros(after).await;
            world.start(node);
        });
    }

    /// A committing request was executed; its answer has not left yet.
    fn committed(self: &Arc<Self>, number: u64, node: usize) {
        self.commits.send_replace(number);
        for fault in &self.plan.faults {
            match fault.when {
                When::Commit(at) if at == number => self.strike(&fault.clone(), node),
                When::After(at, later) if at == number => {
                    let fault = fault.clone();
                    self.later(later, move |world| world.strike(&fault, node));
                }
                _ => {}
            }
        }
    }

    fn strike(self: &Arc<Self>, fault: &Fault, actor: usize) {
        if self.healed.load(Ordering::Relaxed) {
            return;
        }
        let node = match fault.node {
            Which::Node(node) => node,
            Which::Actor => actor,
        };
        match fault.kind {
            FaultKind::StoreOut(_)
            | FaultKind::StoreFull(_)
            | FaultKind::SlowStore { .. }
            | FaultKind::DatabaseJump(_) => {
                (0..self.plan.nodes).for_each(|node| self.disturb(node));
            }
            _ => self.disturb(node),
        }
        self.ledger
            .note(|| format!("node {node}: {:?}", fault.kind));
        match fault.kind {
            FaultKind::Crash {
                noticed,
                lingers,
                back,
            } => {
                self.kill(node, noticed, lingers);
                self.back(node, back);
            }
            FaultKind::Pause(lasts) => self.pause(node, lasts),
            FaultKind::Drain { back } => self.drain(node, back),
            FaultKind::Cut(lasts) => {
                self.spoil(node, lasts, move |link, on| link.cut = on);
            }
            FaultKind::Mute(lasts) => {
                self.spoil(node, lasts, move |link, on| link.mute = on);
            }
            FaultKind::Slow { by, lasts } => {
                self.spoil(node, lasts, move |link, on| {
                    link.slow = if on { by } else { 0 }
                });
            }
            FaultKind::LateAnswers { by, lasts } => {
                self.spoil(node, lasts, move |link, on| {
                    link.late_answers = if on { by } else { 0 }
                });
            }
            FaultKind::SlowStore { by, lasts } => {
                let nodes = 0..self.plan.nodes;
                for node in nodes.clone() {
                    self.network.link(node, |link| link.slow = by);
                }
                self.later(lasts, move |world| {
                    for node in nodes {
                        world.network.link(node, |link| link.slow = 0);
                    }
                });
            }
            FaultKind::StoreFull(lasts) => {
                self.network.store_full(true);
                self.later(lasts, |world| world.network.store_full(false));
            }
            FaultKind::Commit(commit) => self.network.fail_next(node, commit),
            FaultKind::HookPanics => {
                let slots = self.slots();
                let process = slots.get(node).and_then(|slot| slot.process.as_ref());
                if let Some(process) = process {
                    process.store.panic_in_next_hook();
                }
            }
            FaultKind::Deaf(lasts) => {
                self.spoil(node, lasts, move |link, on| link.deaf = on);
            }
            FaultKind::LateHints { by, lasts } => {
                self.spoil(node, lasts, move |link, on| {
                    link.late_hints = if on { by } else { 0 }
                });
            }
            FaultKind::WallJump(by_ms) => {
                if let Some(slot) = self.slots().get(node) {
                    slot.machine.jump(by_ms);
                }
            }
            FaultKind::StoreOut(lasts) => {
                self.network.store_out(true);
                self.later(lasts, |world| world.network.store_out(false));
            }
            FaultKind::BadWires(lasts) => {
                self.spoil(node, lasts, move |link, on| link.bad_wires = on);
            }
            FaultKind::DatabaseJump(by_ms) => {
                self.clock.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
            }
        }
    }

    /// Makes something of a node's link wrong, and right again after so long.
    fn spoil(
        self: &Arc<Self>,
        node: usize,
        lasts: Micros,
        set: impl Fn(&mut Link, bool) + Send + 'static,
    ) {
        self.network.link(node, |link| set(link, true));
        self.later(lasts, move |world| {
            world.network.link(node, |link| set(link, false));
        });
    }

    fn later(self: &Arc<Self>, after: Micros, what: impl FnOnce(&Arc<Self>) + Send + 'static) {
        let world = self.clone();
        self.executor.spawn(WORLD, async move {
            world.executor.sleep_micros(after).await;
            what(&world);
        });
    }

    fn pause(self: &Arc<Self>, node: usize, lasts: Micros) {
        let proc = {
            let mut slots = self.slots();
            let process = slots.get_mut(node).and_then(|slot| slot.process.as_mut());
            let Some(process) = process else { return };
            process.paused += 1;
            process.proc
        };
        self.ledger.pauses(proc);
        self.executor.pause(proc);
        self.later(lasts, move |world| {
            let goes_on = {
                let mut slots = world.slots();
                let process = slots.get_mut(node).and_then(|slot| slot.process.as_mut());
                process.filter(|p| p.proc == proc).is_some_and(|process| {
                    process.paused = process.paused.saturating_sub(1);
                    process.paused == 0
                })
            };
            if goes_on {
                world.executor.unpause(proc);
            }
        });
    }

    /// SIGTERM: the process shuts down in order, or is killed when it takes too long.
    fn drain(self: &Arc<Self>, node: usize, back: Micros) {
        let (proc, engine) = {
            let mut slots = self.slots();
            let process = slots.get_mut(node).and_then(|slot| slot.process.as_mut());
            let Some(process) = process.filter(|process| !process.draining) else {
                return;
            };
            process.draining = true;
            (process.proc, process.engine.clone())
        };
        let until = self.executor.now() + self.plan.drain_budget;
        self.ledger.registry.drains(proc, until);
        let (done, told) = oneshot::channel::<()>();
        self.executor.spawn(proc, async move {
            if let Some(engine) = engine {
                // However it ends, the process ends.
                let _ = engine.shutdown().await;
            }
            let _ = done.send(());
        });
        let world = self.clone();
        self.executor.spawn(WORLD, async move {
            let patience = world.executor.sleep_micros(SHUTDOWN_PATIENCE);
            tokio::select! {
                biased;
                _ = told => {}
                () = patience => {}
            }
            let same = {
                let slots = world.slots();
                let process = slots.get(node).and_then(|slot| slot.process.as_ref());
                process.is_some_and(|process| process.proc == proc)
            };
            if same {
                world.ledger.note(|| format!("node {node} has shut down"));
                world.kill(node, true, false);
                world.executor.sleep_micros(back).await;
                world.start(node);
            }
        });
    }

    /// Nothing is wrong any more: the network is sound, and every machine has a process that runs.
    pub fn heal(self: &Arc<Self>) {
        self.ledger
            .note(|| "everything is well from now on".to_owned());
        self.healed.store(true, Ordering::Relaxed);
        self.network.heal();
        for node in 0..self.plan.nodes {
            let paused = {
                let mut slots = self.slots();
                let process = slots.get_mut(node).and_then(|slot| slot.process.as_mut());
                process.map(|process| {
                    process.paused = 0;
                    process.proc
                })
            };
            match paused {
                Some(proc) => self.executor.unpause(proc),
                None => self.start(node),
            }
        }
    }

    /// Runs `work` in the process of some node, as a request handler does; none when it did not answer, which
    /// says nothing about what it did.
    pub async fn on_some_node<T, F>(
        &self,
        node: usize,
        work: impl FnOnce(Client, Arc<RemoteStore>) -> F + Send,
    ) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (proc, client, store) = {
            let slots = self.slots();
            let process = slots.get(node)?.process.as_ref()?;
            let engine = process.engine.as_ref()?;
            (process.proc, engine.client().clone(), process.store.clone())
        };
        let (answer, told) = oneshot::channel();
        let work = work(client, store);
        self.executor.spawn(proc, async move {
            // The client may have given up.
            let _ = answer.send(work.await);
        });
        let patience = self.executor.sleep_micros(12_000_000);
        tokio::select! {
            biased;
            answered = told => answered.ok(),
            () = patience => None,
        }
    }

    /// Sessions that engines say they run.
    pub fn running(&self) -> usize {
        let slots = self.slots();
        let engines = slots
            .iter()
            .filter_map(|slot| slot.process.as_ref()?.engine.as_ref());
        engines.map(Engine::running).sum()
    }

    /// Ends the world: every task is dropped.
    pub fn end(&self) {
        self.executor.clear();
        let processes: Vec<Process> = {
            let mut slots = self.slots();
            slots
                .iter_mut()
                .filter_map(|slot| slot.process.take())
                .collect()
        };
        drop(processes);
        self.executor.clear();
    }
}
