//! What the model remembers: rows of the store, memories of the nodes, appends under way, and bookkeeping.
//!
//! Epochs, claim generations and write numbers only ever grow and are only ever compared for equality. So the
//! model keeps, for each fence, whether each part *still equals the head row's*: that makes the states finite
//! without a bound on how long a run lasts.

use std::fmt;

/// Nodes in the model.
pub const NODES: usize = 3;

/// The incarnation of a node: its slot, and how many incarnations ago (0: the one of now).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation {
    pub slot: u8,
    pub age: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    Safe,
    Active,
    Cancelling,
}

/// The one call a step of the model may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Tool {
    #[default]
    None,
    Started,
    Ended,
}

/// The fold of a session's fenced events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Turn {
    /// An execution is open.
    pub execution: bool,
    /// The conversation ends with something the model has not answered.
    pub wants: bool,
    /// A step is open.
    pub step: bool,
    /// Its call.
    pub tool: Tool,
}

/// A hand-over to a named successor that has not accepted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Offer {
    No,
    Open,
    /// The acceptance deadline has passed.
    Over,
}

/// The head row with its claim row and inbox. The numbers are in the fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Head {
    pub owner: Option<Incarnation>,
    pub phase: Option<Phase>,
    /// An interrupt of an open execution that nobody owns.
    pub cancel: bool,
    pub loading: bool,
    pub attempts: u8,
    pub quarantined: bool,
    pub offer: Offer,
    pub turn: Turn,
    /// Users' pending inputs.
    pub pending: u8,
    /// Those of them that came after the interrupt of the open execution.
    pub later: u8,
    /// `interrupt_seq` is set.
    pub interrupt: bool,
    /// `parked_through` covers what is pending.
    pub parked: bool,
    /// Recovery's own input is pending.
    pub continuation: bool,
}

impl Head {
    /// Is any pending input eligible (R4)?
    pub fn eligible(&self) -> bool {
        self.pending > 0 && !self.parked || self.continuation
    }
}

/// A fence as it compares with the head row now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence {
    pub epoch: bool,
    pub claim: bool,
    pub write: bool,
    /// Whose: how many incarnations of the slot ago.
    pub age: u8,
    /// Is the tenure this fence was given for the one in force? No store compares this: it is the truth the
    /// parts above stand for.
    pub tenure: bool,
}

/// A fenced append: its events and operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Write {
    /// `recovery.started` where nothing was open.
    GoOn,
    /// Recovery settles what was open and admits the continuation.
    Continue,
    /// Recovery sets the session aside.
    Quarantine,
    /// `execution.started` with a promotion.
    Begin,
    /// A promotion into the open execution: of the continuation, or of a user's input.
    Promote {
        own: bool,
    },
    StartStep,
    StartTool,
    EndTool,
    EndStep,
    /// `execution.succeeded` and the release that looks at the inbox.
    Finish,
    /// `execution.failed` and release.
    Fail,
    /// Settles everything open as interrupted and releases.
    Interrupted,
    /// Gives the session to a successor, or to nobody.
    HandOver {
        to: Option<Incarnation>,
    },
    /// The end of the drain budget: settles the step, admits the continuation and hands over.
    Shutdown {
        to: Option<Incarnation>,
    },
}

/// An append on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flight {
    pub fence: Fence,
    pub write: Write,
    /// It is durable, and its node does not know yet.
    pub landed: bool,
    /// Its node waits for the answer.
    pub awaited: bool,
    /// Its node resolved it as not in the log and went on.
    pub given_up: bool,
}

/// What a node believes while it holds tenure, or thinks so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Memory {
    pub fence: Fence,
    pub turn: Turn,
    /// Recovery is to be written first.
    pub recover: bool,
    /// Recovery's own input is promoted next, and nothing else.
    pub resume: bool,
    /// `tool.started` is durable; the process is not begun.
    pub spawn: bool,
    /// From whom it took over, where it is to fear that one only.
    pub after: Option<u8>,
}

/// A node's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Row {
    Active,
    Draining,
    /// Dead by time, or because its process said so.
    Dead,
    /// Dead by fast suspicion, while its lease may still run.
    Suspected,
}

impl Row {
    pub fn dead(self) -> bool {
        matches!(self, Row::Dead | Row::Suspected)
    }
}

/// A node's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    Runs,
    /// Stopped, or cut off from the store: it writes nothing and renews nothing. A process that was cut off
    /// can still spawn, so the model lets this one, which covers both.
    Paused,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    pub row: Row,
    /// Its lease is really over: it has not renewed for a whole lease, its guardian killed its processes.
    pub expired: bool,
    /// Somebody found it expired and is about to bury it. Used only where the test is not repeated.
    pub marked: bool,
    pub process: Process,
    pub memory: Option<Memory>,
    pub flight: Option<Flight>,
    /// A tool's process group runs on its machine.
    pub group: bool,
}

/// How the database's clock was set wrong, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lie {
    /// Ahead: every lease seems over.
    Ahead,
    /// Back: none does.
    Back,
}

/// How much is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Left {
    /// Prompts.
    pub inputs: u8,
    /// Troubles, of whatever kinds the model has.
    pub troubles: u8,
}

/// What an outside observer knows. Nothing here decides what store or nodes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Facts {
    /// An accepted interrupt is not settled yet.
    pub stopping: bool,
    /// What is pending was stopped, and nobody asked for it since.
    pub must_rest: bool,
    /// Losses of an owner at work since the last progress.
    pub losses: u8,
    /// The epoch in force has events of this tenure, and of an earlier one. Kept only where it may happen.
    pub written: bool,
    pub foreign: bool,
    pub violation: Option<Violation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    pub head: Head,
    pub nodes: [Node; NODES],
    pub lie: Option<Lie>,
    pub left: Left,
    pub facts: Facts,
}

/// What must never happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Violation {
    /// P1: a write under a tenure that is over took effect.
    DeposedWrote,
    /// P1: two tenures wrote under one epoch.
    EpochShared,
    /// P1: two nodes hold a fence that matches.
    TwoOwners,
    /// R3: a write that was resolved as not in the log landed after all.
    GhostLanded,
    /// The owner's memory is not the fold of the log.
    MemoryIsNotLog,
    /// R2, R10: something was started after an accepted interrupt.
    StartedAfterInterrupt,
    /// R10: a call was started twice, or outside its step.
    CallStartedTwice,
    /// R5: an accepted interrupt ended otherwise.
    InterruptLost,
    /// R5: an execution ended by an interrupt that was not its own.
    InterruptMisapplied,
    /// R4: what rests was run without being asked for.
    RestingRan,
    /// P2: an input entered the conversation twice.
    DeliveredTwice,
    /// R9: a continuation outlived the execution it belongs to.
    StaleContinuation,
    /// R2: the session was let go of as idle while input was eligible.
    ReleasedWithInput,
    /// R8: set aside with too few losses.
    QuarantinedEarly,
    /// R8: too many losses, and it runs on.
    NotQuarantined,
    /// R1: a draining or dead node got the session.
    OwnerNotActive,
    /// R7: a live owner lost the session.
    LiveRobbed,
    /// R7: dead by time, and its lease runs.
    BuriedAlive,
    /// R10: tools of two owners run at once.
    TwoGroups,
}

impl State {
    /// Three fresh nodes, an idle session.
    pub fn first(left: Left) -> Self {
        let node = Node {
            row: Row::Active,
            expired: false,
            marked: false,
            process: Process::Runs,
            memory: None,
            flight: None,
            group: false,
        };
        State {
            head: Head {
                owner: None,
                phase: None,
                cancel: false,
                loading: false,
                attempts: 0,
                quarantined: false,
                offer: Offer::No,
                turn: Turn::default(),
                pending: 0,
                later: 0,
                interrupt: false,
                parked: false,
                continuation: false,
            },
            nodes: [node; NODES],
            lie: None,
            left,
            facts: Facts {
                stopping: false,
                must_rest: false,
                losses: 0,
                written: false,
                foreign: false,
                violation: None,
            },
        }
    }

    pub fn violate(&mut self, violation: Violation) {
        self.facts.violation.get_or_insert(violation);
    }

    /// Is the node's lease over by the database's clock?
    pub fn seems_over(&self, node: &Node) -> bool {
        self.lie.map_or(node.expired, |lie| lie == Lie::Ahead)
    }

    /// Is the incarnation's row dead (R7)? Rows of earlier incarnations always are.
    pub fn gone(&self, who: Incarnation) -> bool {
        who.age > 0 || self.nodes[usize::from(who.slot)].row.dead()
    }

    /// What must hold in every state, beside what is checked where it happens.
    pub fn invariant(&mut self) {
        let owns = |slot: usize, node: &Node| {
            node.memory.is_some_and(|memory| {
                let fence = memory.fence;
                let owner = Incarnation {
                    slot: slot as u8,
                    age: fence.age,
                };
                fence.epoch && fence.claim && self.head.owner == Some(owner)
            })
        };
        let owners = (0..NODES).filter(|i| owns(*i, &self.nodes[*i])).count();
        let astray = (0..NODES).any(|i| {
            let node = &self.nodes[i];
            let waits = node.flight.is_some_and(|flight| flight.awaited);
            owns(i, node)
                && !waits
                && node
                    .memory
                    .is_some_and(|m| m.turn != self.head.turn || !m.fence.write)
        });
        let groups = self.nodes.iter().filter(|node| node.group).count();
        let cancelling = self.head.phase == Some(Phase::Cancelling) || self.head.cancel;
        if owners > 1 {
            self.violate(Violation::TwoOwners);
        }
        if astray {
            self.violate(Violation::MemoryIsNotLog);
        }
        if groups > 1 {
            self.violate(Violation::TwoGroups);
        }
        if self.facts.stopping && !cancelling {
            self.violate(Violation::InterruptLost);
        }
        if cancelling && !self.facts.stopping {
            self.violate(Violation::InterruptMisapplied);
        }
    }

    /// The session is at rest and nothing is left over: what P7 promises in the end.
    pub fn settled(&self) -> bool {
        let resting =
            self.head.owner.is_none() && !self.head.turn.execution && !self.head.eligible();
        (self.head.quarantined && self.head.owner.is_none() || resting)
            && !self.facts.stopping
            && self
                .nodes
                .iter()
                .all(|node| !node.group && node.memory.is_none())
    }

    /// Nodes have no names: the least of the equal states stands for all of them.
    pub fn canonical(&self) -> Self {
        const ORDERS: [[u8; NODES]; 6] = [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ];
        let key = |i: u8| {
            let node = &self.nodes[usize::from(i)];
            let flight = node
                .flight
                .map(|f| (f.fence, f.landed, f.awaited, f.given_up));
            let owner = self.head.owner.filter(|owner| owner.slot == i);
            let owner = owner.map(|owner| owner.age);
            (
                owner,
                node.row,
                node.expired,
                node.process,
                node.group,
                node.marked,
                node.memory,
                flight,
            )
        };
        let keys = [key(0), key(1), key(2)];
        ORDERS
            .iter()
            .filter(|o| (1..NODES).all(|i| keys[usize::from(o[i - 1])] <= keys[usize::from(o[i])]))
            .map(|order| self.reordered(order))
            .min()
            .unwrap_or(*self)
    }

    /// The node at `order[i]` becomes node `i`.
    fn reordered(&self, order: &[u8; NODES]) -> Self {
        let mut to = [0; NODES];
        for (new, old) in order.iter().enumerate() {
            to[usize::from(*old)] = new as u8;
        }
        let name = |who: Incarnation| Incarnation {
            slot: to[usize::from(who.slot)],
            ..who
        };
        let mut state = *self;
        for (new, old) in order.iter().enumerate() {
            state.nodes[new] = self.nodes[usize::from(*old)];
            if let Some(memory) = &mut state.nodes[new].memory {
                memory.after = memory.after.map(|slot| to[usize::from(slot)]);
            }
            if let Some(flight) = &mut state.nodes[new].flight
                && let Write::HandOver { to } | Write::Shutdown { to } = &mut flight.write
            {
                *to = to.map(name);
            }
        }
        state.head.owner = self.head.owner.map(name);
        state
    }
}

impl fmt::Display for State {
    /// One line: what a reader of a counterexample needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = &self.head;
        let name = |who: Incarnation| format!("n{}{}", who.slot, "'".repeat(who.age.into()));
        match head.owner {
            Some(owner) => write!(f, "owner {}", name(owner))?,
            None => write!(f, "unowned")?,
        }
        if let Some(phase) = head.phase {
            write!(f, " {phase:?}")?;
        }
        if head.offer != Offer::No {
            write!(f, " offer {:?}", head.offer)?;
        }
        let turn = &head.turn;
        let open = [
            (head.cancel, "cancel"),
            (head.loading, "loading"),
            (turn.execution, "execution"),
            (turn.wants, "wants"),
            (turn.step, "step"),
            (head.continuation, "continuation"),
            (head.parked, "parked"),
            (head.quarantined, "quarantined"),
            (self.facts.stopping, "(stopping)"),
            (self.facts.must_rest, "(must rest)"),
        ];
        for (_, word) in open.iter().filter(|(on, _)| *on) {
            write!(f, " {word}")?;
        }
        if turn.tool != Tool::None {
            write!(f, " tool {:?}", turn.tool)?;
        }
        write!(f, " pending {} attempts {}", head.pending, head.attempts)?;
        for (i, node) in self.nodes.iter().enumerate() {
            write!(f, " | n{i} {:?} {:?}", node.row, node.process)?;
            if node.expired {
                write!(f, " expired")?;
            }
            if node.group {
                write!(f, " group")?;
            }
            if let Some(memory) = node.memory {
                write!(
                    f,
                    " holds{}{}",
                    fence(memory.fence),
                    if memory.spawn { " spawn due" } else { "" }
                )?;
            }
            if let Some(flight) = node.flight {
                let landed = if flight.landed { " landed" } else { "" };
                let given_up = if flight.given_up { " given up" } else { "" };
                write!(
                    f,
                    " flight {:?}{}{landed}{given_up}",
                    flight.write,
                    fence(flight.fence)
                )?;
            }
        }
        Ok(())
    }
}

/// The parts of a fence that no longer match.
fn fence(fence: Fence) -> String {
    let parts = [
        (fence.epoch, "epoch"),
        (fence.claim, "claim"),
        (fence.write, "write_no"),
    ];
    let stale: Vec<_> = parts
        .iter()
        .filter(|(ok, _)| !ok)
        .map(|(_, name)| *name)
        .collect();
    if stale.is_empty() {
        String::new()
    } else {
        format!(" (stale: {})", stale.join(" "))
    }
}
