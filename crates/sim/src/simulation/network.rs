//! The network between the nodes and the one database: requests travel, are executed, and their answers travel.
//!
//! Each leg may be slow, lost, or come late. What a node has sent is executed by the database's side whether or
//! not the node still lives: that is how the late append of a lost owner (a ghost) comes about.

use super::executor::{Executor, Micros, WORLD};
use super::remote::Watchers;
use crate::chance::Chance;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use tenure_core::id::SessionId;
use tenure_store::memory::Database;
use tokio::sync::{oneshot, watch};

/// How long a node waits for an answer before it gives the connection up.
const PATIENCE: Micros = 4_000_000;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The request never left: it was not executed and will not be.
    Refused,
    /// Nobody knows whether it was or will be executed.
    Lost,
}

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// It only reads.
    Read,
    /// It writes the node's own row.
    Node,
    /// It writes a session: what commit faults meet.
    Session,
    /// It resolves a write of a session: as that, and what is held back for it arrives behind it.
    Resolve,
}

/// The state of one node's link to the database.
#[derive(Debug, Clone, Default)]
pub struct Link {
    /// Nothing passes.
    pub cut: bool,
    /// No answer passes.
    pub mute: bool,
    /// Each leg takes up to so many microseconds more.
    pub slow: Micros,
    /// Each answer takes up to so many microseconds more.
    pub late_answers: Micros,
    /// Hints from the database do not arrive.
    pub deaf: bool,
    /// Hints take up to so many microseconds more.
    pub late_hints: Micros,
    /// Streams to other nodes lose, repeat and delay what they carry, and break.
    pub bad_wires: bool,
}

/// What the next committing request of a node meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// It is not executed, and the node cannot know.
    Lost,
    /// It is executed, and the node is not told.
    AnswerLost,
    /// It is executed much later than the node waits.
    Late(Micros),
    /// It is not executed, and the first answer to whoever asks what became of it is lost, too.
    Unresolved,
    /// It is executed right behind the resolution that did not find it, or else much later.
    Behind,
}

/// When a write that is held back for its own resolution comes all the same.
const BEHIND_AT_LAST: Micros = 20_000_000;

/// Told after each committing request: its number and the node that made it.
pub type OnCommit = Box<dyn Fn(u64, usize) + Send + Sync>;

/// The network. Clones share it.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    executor: Executor,
    database: Arc<Database>,
    state: Mutex<State>,
    on_commit: OnceLock<OnCommit>,
}

struct State {
    chance: Chance,
    links: Vec<Link>,
    faults: Vec<Option<CommitFault>>,
    /// The answer to the node's next resolution is lost.
    unresolved: Vec<bool>,
    store_out: bool,
    /// The database takes no writes.
    store_full: bool,
    commits: u64,
    seen: u64,
    readers: Vec<Reader>,
    /// Resolutions executed, by node.
    resolved: Vec<watch::Sender<u64>>,
}

/// A process that listens for hints.
struct Reader {
    node: usize,
    watchers: Weak<Watchers>,
    pending: BTreeSet<SessionId>,
    scheduled: bool,
}

impl Network {
    /// A sound network of so many nodes.
    pub fn new(executor: Executor, database: Arc<Database>, nodes: usize, seed: u64) -> Self {
        Self(Arc::new(Inner {
            executor,
            database,
            state: Mutex::new(State {
                chance: Chance::of(seed, 0x0e7),
                links: vec![Link::default(); nodes],
                faults: vec![None; nodes],
                unresolved: vec![false; nodes],
                store_out: false,
                store_full: false,
                commits: 0,
                seen: 0,
                readers: Vec::new(),
                resolved: (0..nodes).map(|_| watch::Sender::new(0)).collect(),
            }),
            on_commit: OnceLock::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The executor.
    pub fn executor(&self) -> &Executor {
        &self.0.executor
    }

    /// The database at its far end.
    pub fn database(&self) -> &Arc<Database> {
        &self.0.database
    }

    /// Sets who is told of commits; the first to be set stays.
    pub fn on_commit(&self, told: OnCommit) {
        let _ = self.0.on_commit.set(told);
    }

    /// Changes a node's link.
    pub fn link(&self, node: usize, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.state().links.get_mut(node) {
            change(link);
        }
    }

    /// Can the node reach the database now, in good time?
    pub fn is_sound(&self, node: usize) -> bool {
        let state = self.state();
        let sound = |link: &Link| {
            !link.cut && !link.mute && link.slow < 100_000 && link.late_answers < 100_000
        };
        !state.store_out && !state.store_full && state.links.get(node).is_some_and(sound)
    }

    /// The database does not answer anybody, or does again.
    pub fn store_out(&self, out: bool) {
        self.state().store_out = out;
    }

    /// The database takes no writes, or does again.
    pub fn store_full(&self, full: bool) {
        self.state().store_full = full;
    }

    /// What the next committing request of the node meets.
    pub fn fail_next(&self, node: usize, fault: CommitFault) {
        if let Some(next) = self.state().faults.get_mut(node) {
            *next = Some(fault);
        }
    }

    /// Takes every fault away.
    pub fn heal(&self) {
        let mut state = self.state();
        state.links.fill(Link::default());
        state.faults.fill(None);
        state.unresolved.fill(false);
        (state.store_out, state.store_full) = (false, false);
    }

    /// Sends a request of `node` and waits for the answer.
    pub async fn call<T: Send + 'static>(
        &self,
        node: usize,
        asks: Asks,
        request: impl FnOnce(&Database) -> T + Send + 'static,
    ) -> Result<T, Gone> {
        let (answer, told) = oneshot::channel();
        let executor = self.0.executor.clone();
        match self.plan(node, asks) {
            Fate::Refused(after) => {
                executor.sleep_micros(after).await;
                return Err(Gone::Refused);
            }
            Fate::Vanishes => drop(answer),
            Fate::Arrives {
                after,
                behind,
                answer_lost,
                ghost,
            } => {
                let network = self.clone();
                executor.spawn(WORLD, async move {
                    if let Some(mut resolved) = behind {
                        let at_last = network.0.executor.sleep_micros(BEHIND_AT_LAST);
                        tokio::select! {
                            biased;
                            // The sender lives in the network.
                            _ = resolved.changed() => {}
                            () = at_last => {}
                        }
                    }
                    network.0.executor.sleep_micros(after).await;
                    let value = network.execute(node, asks, ghost, request);
                    match (value, network.plan_answer(node, answer_lost)) {
                        (Some(value), Some(back)) => {
                            network.0.executor.sleep_micros(back).await;
                            // The process may be gone.
                            let _ = answer.send(value);
                        }
                        _ => drop(answer),
                    }
                });
            }
        }
        let patience = executor.sleep_micros(PATIENCE);
        tokio::select! {
            biased;
            answered = told => match answered {
                Ok(value) => Ok(value),
                Err(_) => {
                    // The loss of a connection is not noticed at once.
                    executor.sleep_micros(self.below(PATIENCE)).await;
                    Err(Gone::Lost)
                }
            },
            () = patience => Err(Gone::Lost),
        }
    }

    fn below(&self, most: u64) -> u64 {
        self.state().chance.below(most)
    }

    fn plan(&self, node: usize, asks: Asks) -> Fate {
        let mut state = self.state();
        let state = &mut *state;
        let link = state.links.get(node).cloned().unwrap_or_default();
        let chance = &mut state.chance;
        let leg = 80 + chance.below(400) + chance.below(link.slow + 1);
        if link.cut || state.store_out {
            return match chance.below(10) {
                0..=4 => Fate::Refused(200 + chance.below(2_000)),
                // Held back by the network, and delivered when it heals, perhaps.
                5..=6 => Fate::Arrives {
                    after: leg + chance.below(20_000_000),
                    behind: None,
                    answer_lost: true,
                    ghost: true,
                },
                _ => Fate::Vanishes,
            };
        }
        if state.store_full && asks != Asks::Read {
            return Fate::Refused(leg);
        }
        let unheard = state.unresolved.get_mut(node);
        let fault = match asks {
            Asks::Resolve if unheard.is_some_and(std::mem::take) => Some(CommitFault::AnswerLost),
            Asks::Session | Asks::Resolve => state.faults.get_mut(node).and_then(Option::take),
            Asks::Read | Asks::Node => None,
        };
        let arrives = |after| Fate::Arrives {
            after,
            behind: None,
            answer_lost: false,
            ghost: false,
        };
        let late = |after, behind| Fate::Arrives {
            after,
            behind,
            answer_lost: true,
            ghost: true,
        };
        match fault {
            None => arrives(leg),
            Some(CommitFault::Lost) => Fate::Vanishes,
            Some(CommitFault::Unresolved) => {
                if let Some(unheard) = state.unresolved.get_mut(node) {
                    *unheard = true;
                }
                Fate::Vanishes
            }
            Some(CommitFault::AnswerLost) => Fate::Arrives {
                after: leg,
                behind: None,
                answer_lost: true,
                ghost: false,
            },
            Some(CommitFault::Late(by)) => late(leg + by, None),
            Some(CommitFault::Behind) => {
                let resolved = state.resolved.get(node).map(watch::Sender::subscribe);
                late(chance.below(400), resolved)
            }
        }
    }

    /// Executes a request that has arrived; none when the way is closed at that moment.
    fn execute<T>(
        &self,
        node: usize,
        asks: Asks,
        ghost: bool,
        request: impl FnOnce(&Database) -> T,
    ) -> Option<T> {
        {
            let state = self.state();
            let cut = state.links.get(node).is_some_and(|link| link.cut);
            if state.store_out || (cut && !ghost) {
                return None;
            }
        }
        let value = request(&self.0.database);
        match asks {
            Asks::Read => return Some(value),
            Asks::Resolve => {
                if let Some(resolved) = self.state().resolved.get(node) {
                    resolved.send_modify(|count| *count += 1);
                }
            }
            Asks::Node | Asks::Session => {}
        }
        let number = {
            let mut state = self.state();
            let (version, changed) = self.0.database.changes(state.seen);
            if version == state.seen {
                return Some(value);
            }
            state.seen = version;
            state.commits += 1;
            let number = state.commits;
            self.hint(&mut state, &changed);
            number
        };
        if let Some(told) = self.0.on_commit.get() {
            told(number, node);
        }
        Some(value)
    }

    fn plan_answer(&self, node: usize, lost: bool) -> Option<Micros> {
        let mut state = self.state();
        let link = state.links.get(node).cloned().unwrap_or_default();
        let late = link.slow.max(link.late_answers);
        let back = 80 + state.chance.below(400) + state.chance.below(late + 1);
        (!lost && !link.cut && !link.mute && !state.store_out).then_some(back)
    }

    /// A process listens from now on.
    pub fn listen(&self, node: usize, watchers: &Arc<Watchers>) {
        let mut state = self.state();
        state
            .readers
            .retain(|reader| reader.watchers.strong_count() > 0);
        state.readers.push(Reader {
            node,
            watchers: Arc::downgrade(watchers),
            pending: BTreeSet::new(),
            scheduled: false,
        });
    }

    /// Coalesced hints to every node: late, lost or twice, as the links are.
    fn hint(&self, state: &mut State, changed: &[SessionId]) {
        let State {
            links,
            readers,
            chance,
            ..
        } = state;
        for (at, reader) in readers.iter_mut().enumerate() {
            let link = links.get(reader.node).cloned().unwrap_or_default();
            if link.deaf || link.cut || reader.watchers.strong_count() == 0 {
                continue;
            }
            reader.pending.extend(changed.iter().cloned());
            if reader.scheduled {
                continue;
            }
            reader.scheduled = true;
            let delay = 500 + chance.below(4_500) + chance.below(link.late_hints + 1);
            let twice = chance.percent(3).then(|| chance.below(2_000_000));
            let (network, watchers) = (self.clone(), reader.watchers.clone());
            self.0.executor.spawn(WORLD, async move {
                network.0.executor.sleep_micros(delay).await;
                let told = network.due(at, &watchers);
                for again in [None, twice]
                    .into_iter()
                    .take(1 + usize::from(twice.is_some()))
                {
                    if let Some(again) = again {
                        network.0.executor.sleep_micros(again).await;
                    }
                    if let Some(watchers) = watchers.upgrade() {
                        watchers.wake(&told);
                    }
                }
            });
        }
    }

    /// When what is said to a node directly arrives there, each time after the one before; none when it is lost.
    pub fn direct(&self, to: usize) -> Option<Vec<Micros>> {
        let mut state = self.state();
        let link = state.links.get(to).cloned().unwrap_or_default();
        let chance = &mut state.chance;
        let first = 100 + chance.below(900) + chance.below(link.late_hints + 1);
        let twice = chance.percent(3).then(|| chance.below(2_000_000));
        let lost = chance.percent(5) || link.deaf;
        (!lost).then(|| [Some(first), twice].into_iter().flatten().collect())
    }

    /// What becomes of the next item of a stream that a node sends to another.
    pub fn wire(&self, from: usize) -> Wire {
        let mut state = self.state();
        let bad = state.links.get(from).is_some_and(|link| link.bad_wires);
        let chance = &mut state.chance;
        let after = 100 + chance.below(if bad { 400_000 } else { 900 });
        match chance.below(if bad { 40 } else { 1_000 }) {
            0 => Wire::Breaks,
            1..=3 => Wire::Lost,
            4..=6 => Wire::Twice { after },
            7..=9 => Wire::Alone {
                after: after + chance.below(2_000_000),
            },
            _ => Wire::Next { after },
        }
    }

    /// The sessions a reader is to be told of now.
    fn due(&self, at: usize, watchers: &Weak<Watchers>) -> BTreeSet<SessionId> {
        let mut state = self.state();
        let mut readers = state.readers.iter_mut();
        let same = |reader: &&mut Reader| reader.watchers.ptr_eq(watchers);
        let _ = at;
        match readers.find(same) {
            Some(reader) => {
                reader.scheduled = false;
                std::mem::take(&mut reader.pending)
            }
            None => BTreeSet::new(),
        }
    }

    /// Committing requests so far.
    pub fn commits(&self) -> u64 {
        self.state().commits
    }
}

/// What becomes of an item of a stream between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// It arrives behind the one before.
    Next {
        /// After so long.
        after: Micros,
    },
    /// It arrives twice.
    Twice {
        /// After so long, each.
        after: Micros,
    },
    /// It arrives by itself: what is sent behind it overtakes it.
    Alone {
        /// After so long.
        after: Micros,
    },
    /// It does not arrive.
    Lost,
    /// Neither it nor anything behind it arrives.
    Breaks,
}

/// What becomes of a request.
enum Fate {
    Refused(Micros),
    Vanishes,
    Arrives {
        after: Micros,
        /// Held back until the node has resolved something.
        behind: Option<watch::Receiver<u64>>,
        answer_lost: bool,
        /// It passes a link that is cut for its sender by now.
        ghost: bool,
    },
}

/// Numbers of what was seen, for the summary of a run.
pub type Counts = BTreeMap<&'static str, u64>;
