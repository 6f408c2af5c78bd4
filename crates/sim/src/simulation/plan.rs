//! What is to happen in one run: drawn from the seed before anything moves, so that parts can be left out.

use super::executor::Micros;
use super::network::CommitFault;
use super::provider::SPOKEN;
use crate::chance::Chance;
use std::fmt;
use tenure_provider::Protocol;

const SECOND: Micros = 1_000_000;

/// What waits for a commit that does not come happens at this time all the same.
pub const PATIENCE_FOR_COMMITS: Micros = 6 * SECOND;

/// What a run is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Everything at once.
    Mixed,
    /// One session, and interrupts at every moment of its life.
    Interrupts,
    /// Owners die at their own commits.
    Crashes,
    /// Nodes are restarted one after the other under load.
    Drains,
    /// The database goes away, slows down, loses answers.
    Outages,
    /// What arrives exactly when something ends: writes behind their own resolution, prompts at a release, interrupts
    /// and drains while nobody knows what became of a commit.
    Edges,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Self; 6] = [
        Self::Mixed,
        Self::Interrupts,
        Self::Crashes,
        Self::Drains,
        Self::Outages,
        Self::Edges,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Interrupts => "interrupts",
            Self::Crashes => "crashes",
            Self::Drains => "drains",
            Self::Outages => "outages",
            Self::Edges => "edges",
        }
    }

    /// The scenario of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

/// When something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At this time.
    At(Micros),
    /// With the database's n-th committing request, before its answer.
    Commit(u64),
    /// So long after the n-th committing request.
    After(u64, Micros),
}

/// Which node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// By number.
    Node(usize),
    /// The one whose request committed.
    Actor,
}

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub when: When,
    /// Where, if it is a node's.
    pub node: Which,
    /// What.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The process is gone. `noticed`: its connections close and its address refuses; else the host is lost.
    Crash {
        /// Is it noticed at once?
        noticed: bool,
        /// Another process starts on the machine after so long.
        back: Micros,
    },
    /// It does not run for so long; time goes on.
    Pause(Micros),
    /// It is asked to shut down, and another starts after it.
    Drain {
        /// So long after.
        back: Micros,
    },
    /// It and the database do not reach each other for so long.
    Cut(Micros),
    /// What it sends arrives, and no answer comes back, for so long.
    Mute(Micros),
    /// Each leg takes up to so much more, for so long.
    Slow {
        /// More time.
        by: Micros,
        /// For so long.
        lasts: Micros,
    },
    /// What its next committing request meets.
    Commit(CommitFault),
    /// No hint reaches it for so long.
    Deaf(Micros),
    /// Hints are late by up to so much, for so long.
    LateHints {
        /// More time.
        by: Micros,
        /// For so long.
        lasts: Micros,
    },
    /// Its wall clock jumps.
    WallJump(i64),
    /// The database is away for everybody.
    StoreOut(Micros),
    /// The database's clock jumps by so many milliseconds, ahead or back.
    DatabaseJump(i64),
}

impl FaultKind {
    fn lasts(&self) -> Micros {
        match self {
            Self::Crash { back, .. } | Self::Drain { back } => *back,
            Self::Pause(lasts)
            | Self::Cut(lasts)
            | Self::Mute(lasts)
            | Self::Deaf(lasts)
            | Self::StoreOut(lasts)
            | Self::Slow { lasts, .. }
            | Self::LateHints { lasts, .. } => *lasts,
            Self::Commit(_) | Self::WallJump(_) | Self::DatabaseJump(_) => 0,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.when {
            When::At(at) => write!(f, "at {}.{:03} s", at / SECOND, at % SECOND / 1_000)?,
            When::Commit(n) => write!(f, "at commit {n}")?,
            When::After(n, later) => write!(f, "{later} µs after commit {n}")?,
        }
        match self.node {
            Which::Node(node) => write!(f, " node {node}: ")?,
            Which::Actor => write!(f, " the node that made it: ")?,
        }
        write!(f, "{:?}", self.kind)
    }
}

/// Something a client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// When.
    pub when: When,
    /// To which session of the run.
    pub session: usize,
    /// What.
    pub kind: ActionKind,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// Admits a prompt.
    Admit {
        /// To be delivered at an idle boundary.
        queue: bool,
    },
    /// Interrupts what runs.
    Interrupt {
        /// Only the execution that is open when it is decided.
        named: bool,
    },
    /// Takes the last prompt back.
    CancelInput,
    /// Wakes what is parked.
    Unpark,
    /// Asks for a compaction.
    Compact,
    /// Moves the session.
    Move,
    /// Renames it.
    Rename,
    /// Forks it at its head, and prompts the fork.
    Fork,
    /// Deletes it.
    Delete,
    /// Ends its quarantine.
    Release,
}

/// How the model answers; chances in percent, times in microseconds.
#[derive(Debug, Clone)]
pub struct ModelPlan {
    /// Where its answers are drawn from.
    pub seed: u64,
    /// Its wire form.
    pub protocol: Protocol,
    /// Requests refused.
    pub refusals: u64,
    /// Streams cut.
    pub cuts: u64,
    /// Answers with calls.
    pub calls: u64,
    /// Requests judged by the vendor's validator.
    pub validated: u64,
    /// The longest wait for the first byte.
    pub first_byte: Micros,
    /// The longest wait between two deltas.
    pub delta: Micros,
    /// The longest call, in milliseconds.
    pub work_ms: u64,
}

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where everything is drawn from.
    pub seed: u64,
    /// What it is about.
    pub scenario: Scenario,
    /// How many nodes.
    pub nodes: usize,
    /// How many sessions are made at the beginning.
    pub sessions: usize,
    /// The model.
    pub model: ModelPlan,
    /// How long a drain may take.
    pub drain_budget: Micros,
    /// A reader follows each session.
    pub follow: bool,
    /// What clients do.
    pub actions: Vec<Action>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// The plan of a seed: its scenario, too, unless one is asked for.
    pub fn of(seed: u64, scenario: Option<Scenario>) -> Self {
        let mut chance = Chance::of(seed, 0x91a4);
        let drawn = match chance.below(10) {
            0..=3 => Scenario::Mixed,
            4 if seed % 2 == 1 => Scenario::Edges,
            4..=5 => Scenario::Interrupts,
            6..=7 => Scenario::Crashes,
            8 => Scenario::Drains,
            _ if seed % 2 == 1 => Scenario::Edges,
            _ => Scenario::Outages,
        };
        let scenario = scenario.unwrap_or(drawn);
        let mut draft = Draft { chance, scenario };
        let model = draft.model(seed);
        let nodes = draft.within(2, 3) as usize;
        let sessions = match scenario {
            Scenario::Interrupts => 1,
            Scenario::Drains => draft.within(2, 4) as usize,
            _ => draft.within(1, 3) as usize,
        };
        let (actions, faults) = match scenario {
            Scenario::Edges => draft.edges(nodes, sessions),
            _ => {
                let actions = draft.actions(sessions);
                (actions, draft.faults(nodes))
            }
        };
        Self {
            seed,
            scenario,
            nodes,
            sessions,
            model,
            drain_budget: draft.within(1, 10) * SECOND,
            follow: draft.chance.percent(50),
            actions,
            faults,
        }
    }

    /// When everything planned is over: from then on nothing goes wrong any more.
    pub fn horizon(&self) -> Micros {
        let faults = self.faults.iter().map(|fault| match fault.when {
            When::At(at) => at + fault.kind.lasts(),
            When::Commit(_) => PATIENCE_FOR_COMMITS + fault.kind.lasts(),
            When::After(_, later) => PATIENCE_FOR_COMMITS + later + fault.kind.lasts(),
        });
        let actions = self.actions.iter().map(|action| match action.when {
            When::At(at) => at,
            When::Commit(_) => PATIENCE_FOR_COMMITS,
            When::After(_, later) => PATIENCE_FOR_COMMITS + later,
        });
        faults.chain(actions).max().unwrap_or(0) + SECOND
    }
}

/// A plan being drawn.
struct Draft {
    chance: Chance,
    scenario: Scenario,
}

impl Draft {
    fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.chance.below(to - from + 1)
    }

    fn model(&mut self, seed: u64) -> ModelPlan {
        let rough = self.chance.percent(40);
        let protocol = SPOKEN[self.chance.below(SPOKEN.len() as u64) as usize];
        ModelPlan {
            seed,
            protocol,
            refusals: if rough { 15 } else { 2 },
            cuts: if rough { 15 } else { 2 },
            calls: self.within(30, 70),
            validated: 25,
            first_byte: 1 + self.within(1, 600) * 1_000,
            delta: 1 + self.within(1, 300) * 1_000,
            work_ms: 1 + self.within(1, 4_000),
        }
    }

    fn when(&mut self, horizon: Micros, commits: u64) -> When {
        if self.chance.percent(60) {
            When::Commit(1 + self.chance.below(commits))
        } else {
            When::At(self.chance.below(horizon))
        }
    }

    fn actions(&mut self, sessions: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        for session in 0..sessions {
            let when = When::At(self.chance.below(SECOND));
            actions.push(Action {
                when,
                session,
                kind: ActionKind::Admit { queue: false },
            });
        }
        let more = match self.scenario {
            Scenario::Interrupts => self.within(1, 5),
            Scenario::Drains => self.within(2, 8),
            _ => self.within(1, 7),
        };
        for _ in 0..more {
            let session = self.chance.below(sessions as u64) as usize;
            let when = self.when(8 * SECOND, 90);
            let kind = self.action();
            actions.push(Action {
                when,
                session,
                kind,
            });
        }
        actions
    }

    fn action(&mut self) -> ActionKind {
        use ActionKind as A;
        let interrupts = match self.scenario {
            Scenario::Interrupts => 60,
            Scenario::Mixed => 20,
            _ => 10,
        };
        if self.chance.percent(interrupts) {
            return A::Interrupt {
                named: self.chance.percent(40),
            };
        }
        match self.chance.below(20) {
            0..=8 => A::Admit { queue: false },
            9..=11 => A::Admit { queue: true },
            12 => A::CancelInput,
            13 => A::Unpark,
            14 => A::Compact,
            15 => A::Move,
            16 => A::Rename,
            17 => A::Fork,
            18 => A::Delete,
            _ => A::Release,
        }
    }

    fn faults(&mut self, nodes: usize) -> Vec<Fault> {
        let count = match self.scenario {
            Scenario::Interrupts => self.within(0, 2),
            Scenario::Drains => self.within(nodes as u64, nodes as u64 + 2),
            _ => self.within(0, 5),
        };
        let mut faults = Vec::new();
        for n in 0..count {
            let (when, node) = if self.chance.percent(50) {
                let when = When::Commit(1 + self.chance.below(110));
                let actor = self.chance.percent(75);
                (
                    when,
                    if actor {
                        Which::Actor
                    } else {
                        self.node(nodes)
                    },
                )
            } else {
                (When::At(self.chance.below(10 * SECOND)), self.node(nodes))
            };
            let kind = self.fault();
            let fault = match (self.scenario, n < nodes as u64) {
                (Scenario::Drains, true) => Fault {
                    when: When::At((2 + 3 * n) * SECOND + self.chance.below(2 * SECOND)),
                    node: Which::Node(n as usize),
                    kind: FaultKind::Drain {
                        back: self.chance.below(3 * SECOND),
                    },
                },
                _ => Fault { when, node, kind },
            };
            faults.push(fault);
        }
        faults
    }

    /// Meetings at the edge: each of a write that is resolved and then arrives, and of what happens meanwhile.
    fn edges(&mut self, nodes: usize, sessions: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = Vec::new();
        let mut faults = Vec::new();
        for session in 0..sessions {
            actions.push(Action {
                when: When::At(self.chance.below(SECOND)),
                session,
                kind: ActionKind::Admit { queue: false },
            });
        }
        for _ in 0..self.within(1, 2) {
            let commit = self.within(5, 60);
            faults.push(Fault {
                when: When::Commit(commit),
                node: Which::Actor,
                kind: FaultKind::Commit(self.edge_of_a_commit()),
            });
            let later = When::After(commit, self.chance.below(6 * SECOND));
            match self.chance.below(10) {
                0..=5 => actions.push(Action {
                    when: later,
                    session: self.chance.below(sessions as u64) as usize,
                    kind: ActionKind::Interrupt { named: false },
                }),
                6..=7 => faults.push(Fault {
                    when: later,
                    node: self.node(nodes),
                    kind: FaultKind::Drain { back: SECOND },
                }),
                _ => {}
            }
        }
        // A few round trips behind a commit: perhaps just when the owner has looked and lets go.
        for _ in 0..self.within(1, 5) {
            actions.push(Action {
                when: When::After(self.within(8, 80), self.chance.below(3_000)),
                session: self.chance.below(sessions as u64) as usize,
                kind: ActionKind::Admit {
                    queue: self.chance.percent(30),
                },
            });
        }
        if self.chance.percent(40) {
            actions.push(Action {
                when: When::After(self.within(8, 60), self.chance.below(3_000)),
                session: 0,
                kind: ActionKind::CancelInput,
            });
        }
        if self.chance.percent(50) {
            faults.push(self.strange_link(nodes));
        }
        (actions, faults)
    }

    fn edge_of_a_commit(&mut self) -> CommitFault {
        match self.chance.below(10) {
            0..=6 => CommitFault::Behind,
            _ => self.commit_fault(),
        }
    }

    /// A link or a clock that is wrong without being down.
    fn strange_link(&mut self, nodes: usize) -> Fault {
        let kind = match self.chance.below(4) {
            0 => FaultKind::Mute(self.within(1, 20) * SECOND),
            1 => FaultKind::DatabaseJump(-(self.chance.below(60_000) as i64)),
            // Renewals are slow, and the node is alive.
            2 => FaultKind::Slow {
                by: self.within(500, 2_000) * 1_000,
                lasts: self.within(2, 12) * SECOND,
            },
            _ => FaultKind::LateHints {
                by: self.within(1, 10) * SECOND,
                lasts: self.within(2, 12) * SECOND,
            },
        };
        Fault {
            when: When::At(self.chance.below(8 * SECOND)),
            node: self.node(nodes),
            kind,
        }
    }

    fn node(&mut self, nodes: usize) -> Which {
        Which::Node(self.chance.below(nodes as u64) as usize)
    }

    /// A short time mostly, a long one now and then.
    fn lasts(&mut self) -> Micros {
        match self.chance.below(10) {
            0..=4 => self.within(100, 2_000) * 1_000,
            5..=8 => self.within(2, 12) * SECOND,
            _ => self.within(12, 60) * SECOND,
        }
    }

    fn fault(&mut self) -> FaultKind {
        use FaultKind as F;
        let lasts = self.lasts();
        let kind = self.chance.below(100);
        let crash = |chance: &mut Chance| F::Crash {
            noticed: chance.percent(70),
            back: chance.below(15 * SECOND),
        };
        match self.scenario {
            Scenario::Crashes if kind < 70 => return crash(&mut self.chance),
            Scenario::Outages if kind < 25 => {
                let long = self.chance.percent(5);
                return F::StoreOut(if long { 300 * SECOND } else { lasts });
            }
            Scenario::Outages if kind < 60 => return F::Commit(self.commit_fault()),
            _ => {}
        }
        match self.chance.below(20) {
            0..=3 => crash(&mut self.chance),
            4..=6 => F::Pause(lasts),
            7 => F::Drain {
                back: self.chance.below(5 * SECOND),
            },
            8..=9 => F::Cut(lasts),
            10..=11 => F::Slow {
                by: self.within(10, 2_000) * 1_000,
                lasts,
            },
            12..=14 => F::Commit(self.commit_fault()),
            15 => F::Deaf(lasts),
            16 => F::LateHints {
                by: self.within(1, 10) * SECOND,
                lasts,
            },
            17 => {
                let day = 86_400_000;
                F::WallJump(self.chance.below(2 * day) as i64 - day as i64)
            }
            18 => F::StoreOut(lasts),
            _ => F::DatabaseJump(self.chance.below(86_400_000) as i64),
        }
    }

    fn commit_fault(&mut self) -> CommitFault {
        match self.chance.below(3) {
            0 => CommitFault::Lost,
            1 => CommitFault::AnswerLost,
            _ => CommitFault::Late(self.within(4, 20) * SECOND),
        }
    }
}
