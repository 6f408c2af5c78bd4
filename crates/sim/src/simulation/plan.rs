//! What is to happen in one run: drawn from the seed before anything moves, so that parts can be left out.

mod draft;
mod stories;

use super::executor::Micros;
use super::network::CommitFault;
use crate::chance::Chance;
use draft::Draft;
use std::fmt;
use tenure_core::event::body::Location;
use tenure_core::placement::Serves;
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
    /// Owners that are cut off, or hear late that they still hold their lease, in the middle of long work.
    Silence,
    /// Owners that die at once, while what they had started lives on for a while.
    Orphans,
    /// Inputs that rest: stopped before they began, or behind an execution that failed by itself.
    Rests,
    /// Sessions that move, places that only some nodes serve, sandboxes rebuilt under running calls.
    Places,
    /// Readers on every node of what one of them streams, while it dies, is paused, cut off or drained.
    Relays,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Self; 11] = [
        Self::Mixed,
        Self::Interrupts,
        Self::Crashes,
        Self::Drains,
        Self::Outages,
        Self::Edges,
        Self::Silence,
        Self::Orphans,
        Self::Rests,
        Self::Places,
        Self::Relays,
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
            Self::Silence => "silence",
            Self::Orphans => "orphans",
            Self::Rests => "rests",
            Self::Places => "places",
            Self::Relays => "relays",
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
        /// What it had started under guardians lives on until its lease is over (R10).
        lingers: bool,
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
    /// Each answer takes up to so much more, for so long.
    LateAnswers {
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
    /// The database takes no write of anybody, as on a full disk, and still reads.
    StoreFull(Micros),
    /// Each leg of everybody takes up to so much more, for so long.
    SlowStore {
        /// More time.
        by: Micros,
        /// For so long.
        lasts: Micros,
    },
    /// The database's clock jumps by so many milliseconds, ahead or back.
    DatabaseJump(i64),
    /// The next after-commit hook that runs there panics.
    HookPanics,
    /// What its streams to other nodes carry is lost, repeated, late or cut, for so long.
    BadWires(Micros),
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
            | Self::StoreFull(lasts)
            | Self::BadWires(lasts)
            | Self::Slow { lasts, .. }
            | Self::SlowStore { lasts, .. }
            | Self::LateAnswers { lasts, .. }
            | Self::LateHints { lasts, .. } => *lasts,
            Self::Commit(_) | Self::HookPanics | Self::WallJump(_) | Self::DatabaseJump(_) => 0,
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
    /// Says that the session's place was rebuilt, whatever runs there.
    Rebuild,
    /// Renames it.
    Rename,
    /// Forks it at its head, and prompts the fork.
    Fork,
    /// Deletes it.
    Delete,
    /// Ends its quarantine.
    Release,
    /// Imports an export of some other session that lacks an event, and then the whole one.
    Import,
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
    /// Requests refused for good: their execution fails.
    pub fatal: u64,
    /// Answers with calls.
    pub calls: u64,
    /// Calls that need leave first.
    pub asks: u64,
    /// Calls that take their time inside the node's own process.
    pub inside: u64,
    /// Commands whose guardian is stopped: nothing but a look at their machine ends them.
    pub deaf: u64,
    /// Requests judged by the vendor's validator.
    pub validated: u64,
    /// The longest wait for the first byte.
    pub first_byte: Micros,
    /// The longest wait between two deltas.
    pub delta: Micros,
    /// The longest call, in milliseconds.
    pub work_ms: u64,
    /// Pieces of its longest text.
    pub talk: u64,
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
    /// Nodes have labels, and places want them; else every node serves every place.
    pub placed: bool,
    /// How long a drain may take.
    pub drain_budget: Micros,
    /// So many readers follow each session.
    pub readers: usize,
    /// What clients do.
    pub actions: Vec<Action>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// What each seed's scenario is drawn from: so many parts each.
const SHARES: [(Scenario, u64); 11] = [
    (Scenario::Mixed, 6),
    (Scenario::Interrupts, 2),
    (Scenario::Crashes, 2),
    (Scenario::Drains, 2),
    (Scenario::Outages, 1),
    (Scenario::Edges, 2),
    (Scenario::Silence, 1),
    (Scenario::Orphans, 1),
    (Scenario::Rests, 1),
    (Scenario::Places, 1),
    (Scenario::Relays, 2),
];

/// Where a session of a run with placement is made; where it is moved to.
pub const PLACES: [&str; 2] = ["/usr", "/"];

impl Plan {
    /// The plan of a seed: its scenario, too, unless one is asked for.
    pub fn of(seed: u64, scenario: Option<Scenario>) -> Self {
        let mut chance = Chance::of(seed, 0x91a4);
        let drawn = drawn(&mut chance);
        let scenario = scenario.unwrap_or(drawn);
        let mut draft = Draft { chance, scenario };
        let mut model = draft.model(seed);
        let nodes = match scenario {
            Scenario::Places | Scenario::Relays => 3,
            _ => draft.within(2, 3) as usize,
        };
        let sessions = match scenario {
            Scenario::Interrupts | Scenario::Orphans | Scenario::Rests => 1,
            Scenario::Silence | Scenario::Relays => draft.within(1, 2) as usize,
            Scenario::Drains => draft.within(2, 4) as usize,
            _ => draft.within(1, 3) as usize,
        };
        let (mut actions, mut faults) = draft.events(nodes, sessions);
        // Drawn apart, so that what the other seeds do stays what it was.
        if scenario == Scenario::Orphans && Chance::of(seed, 0xdeaf).percent(25) {
            model.deaf = 60;
            (actions, faults) = draft.deaf();
        }
        Self {
            seed,
            scenario,
            nodes,
            sessions,
            model,
            placed: scenario == Scenario::Places,
            drain_budget: draft.within(1, 10) * SECOND,
            readers: match scenario {
                Scenario::Relays => nodes,
                _ => usize::from(draft.chance.percent(50)),
            },
            actions,
            faults,
        }
    }

    /// What a node serves. With placement each place is served by two nodes of three.
    pub fn serves(&self, node: usize) -> Serves {
        if !self.placed {
            return Serves::everywhere();
        }
        let labels = (0..PLACES.len()).filter(|place| node != *place);
        Serves {
            labels: labels.map(label).collect(),
            roots: Vec::new(),
        }
    }

    /// The `n`-th of [`PLACES`], with what it wants of a node.
    pub fn place(&self, n: usize) -> Location {
        let mut place = Location::at(PLACES[n % PLACES.len()]);
        if self.placed {
            place.requires.push(label(n % PLACES.len()));
        }
        place
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

fn label(place: usize) -> String {
    format!("place-{place}")
}

fn drawn(chance: &mut Chance) -> Scenario {
    let all: u64 = SHARES.iter().map(|(_, share)| share).sum();
    let mut at = chance.below(all);
    for (scenario, share) in SHARES {
        match at.checked_sub(share) {
            None => return scenario,
            Some(rest) => at = rest,
        }
    }
    Scenario::Mixed
}
