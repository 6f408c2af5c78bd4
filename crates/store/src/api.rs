//! The contract of a store: what an append, a claim and a reader are promised, whatever the backend.
//!
//! Both backends and the simulation implement [`Store`]; `conformance` tests them with the same cases.
//! The rules are those of the ownership protocol; `R1`… name them.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tenure_core::event::body::{Phase, RecoveryDecision};
use tenure_core::event::{Event, EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tenure_core::placement::Serves;
use tokio::sync::watch;

pub use crate::error::*;
pub use crate::status::*;

/// What proves that a writer still holds tenure (R1): all four must match the session's head row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The claim.
    pub claim: ClaimId,
    /// Its epoch.
    pub epoch: u64,
    /// The owner's incarnation.
    pub owner: Incarnation,
    /// The number of this write under the claim; each successful fenced append raises it by one.
    pub write_no: u64,
}

impl Fence {
    /// The fence to go on with once this write was resolved as *not in the log* (R3). It skips the number the
    /// write itself would have left behind: so the head row tells a write that happened from one that was
    /// given up, though it left no event, and resolving twice says the same as once.
    #[must_use]
    pub fn given_up(&self) -> Self {
        Self {
            write_no: self.write_no + 2,
            ..self.clone()
        }
    }
}

/// Whether an append may pass while an interrupt is being settled (R2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Starts something: refused with [`AppendError::Cancelling`] when the phase is `cancelling`.
    Running,
    /// Records or settles what already happened: passes in every phase.
    Settling,
}

/// Which queue an append waits in. Lanes reorder across sessions only (R12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Interrupts, approvals, terminals, starts.
    Control,
    /// Text checkpoints.
    Text,
}

/// A local operational change that commits or rolls back with the events, and is neither serialised nor
/// replayed. Each is compare-and-set under the head row's lock (R2).
#[derive(Debug, Clone, PartialEq)]
pub enum HookOp {
    /// `safe` → `active` for a step (with its message) or a compaction (without). Clears `loading`.
    /// Fails with `Cancelling` when the phase is `cancelling`, `StaleClaim` when it is not `safe`.
    Enter {
        /// The step's message; none for a compaction.
        message: Option<MessageId>,
    },
    /// `active` → `safe`; a `cancelling` claim stays `cancelling`.
    Leave,
    /// What is appended was decided on the log up to this seq, which must still be its head, else `HeadMoved`. With
    /// none it is only said again: what is not in the log yet is refused.
    HeadAt {
        /// The head that was seen.
        seq: Option<u64>,
    },
    /// The input must still be pending and eligible, else `InboxChanged`. Goes with its `input.promoted`.
    Promote {
        /// The input.
        input: MessageId,
    },
    /// Ends tenure: deletes the claim row and clears the owner; the epoch stays.
    Release {
        /// Refuse with `NotIdle` while eligible input is pending or an execution is open.
        only_when_idle: bool,
        /// Set `parked_through` to the head (R4), so that what is pending rests until woken.
        park: bool,
    },
    /// Ends tenure in favour of a named successor (R11), from `safe` or from a step whose open calls all wait for
    /// approval. Active, live and serving the location, tested here: it becomes the owner, the epoch rises, the
    /// phase stays, and nobody else may take the session before `accept_ms` are over. Else, or with nobody
    /// named: no owner, the epoch rises, claimable. `Cancelling` when an interrupt came first.
    HandOver {
        /// The successor.
        to: Option<Incarnation>,
        /// How long it has to accept, in milliseconds; a minute at most.
        accept_ms: u64,
    },
    /// Something that calls of this tenure started may live so long yet, though they are settled: whoever takes the
    /// session next is told ([`Tenure::quiet_ms`]).
    Quiet {
        /// How long at most, in milliseconds from now.
        ms: u64,
    },
    /// The call is about to be spawned under this attachment generation: records the effect row.
    /// `StaleAttachment` when the generation is not current (R14), `Conflict` when the row exists.
    EffectStart {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// The attachment generation.
        generation: u64,
    },
    /// The effect's process, to find leftovers after a crash.
    EffectProcess {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// The process.
        process: ProcessId,
    },
    /// The call is settled: removes the effect row, if any, unless something is `left`. With a generation given, a
    /// mismatch is `StaleAttachment`: the work was done for a location that has been replaced.
    EffectEnd {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// The attachment generation the work ran under; none when recovery settles it.
        generation: Option<u64>,
        /// Something of the call may be at work yet: the row stays, so that whoever comes next finds it, until
        /// [`HookOp::EffectGone`].
        left: bool,
    },
    /// Nothing of a settled call is at work any more: removes its effect row if that is still the one that was looked
    /// at. Needs no tenure, for whoever settled the call may have let go, or be lost. With the last row goes what its
    /// owner said ([`HookOp::Quiet`]), unless an owner was lost.
    EffectGone {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// Its process as the row has it.
        process: Option<ProcessId>,
    },
    /// Raises the attachment's generation from `from` to `from + 1`, else `StaleAttachment`.
    ReplaceAttachment {
        /// The generation replaced.
        from: u64,
    },
    /// Something ended in normal running after a charge: sets `attempts` to 0 (R8).
    Progress,
    /// Remembers the continuation input of this recovery in the claim row.
    Continuation {
        /// The input.
        input: MessageId,
    },
    /// Remembers why recovery had trouble, for people.
    RecoveryError {
        /// The words.
        message: String,
    },
    /// Sets the session aside (R8) and deletes the claim row.
    Quarantine {
        /// Why.
        reason: String,
    },
    /// Ends a quarantine and sets `attempts` to 0.
    Unquarantine,
    /// Clears `parked_through`, so that pending inputs are eligible again (`resume`).
    Unpark,
}

/// A process on a machine, so that a reused pid is not mistaken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessId {
    /// The pid.
    pub pid: u32,
    /// Start time in clock ticks since boot, from `/proc/<pid>/stat`.
    pub pid_start: u64,
    /// Where `pid` means something: the kernel's boot id and, within a container, its process namespace.
    pub boot_id: String,
}

/// Called exactly once, on the thread that committed, when this process first learns that the batch is
/// durable: before the caller or any listener can observe the commit. Never called for a refused append,
/// nor for a duplicate that already ran it here. It must not block. Whatever it owns is dropped when the
/// append is refused. When it panics, the answer is [`AppendError::Unknown`] although the batch is durable:
/// whatever the hook kept is not to be trusted, and the caller resolves and reads the log (R3).
pub type AfterCommit = Box<dyn FnOnce(&Committed) + Send>;

/// One append: one transaction, one verdict.
pub struct Append {
    /// The session.
    pub session: SessionId,
    /// The fence; none for admissions, interrupts and settings made by any client.
    pub fence: Option<Fence>,
    /// May it pass under `cancelling`? Only looked at with a fence.
    pub guard: Guard,
    /// The events; may be empty when only operations are needed.
    pub events: Vec<NewEvent>,
    /// The operations, run after the projectors, in order.
    pub ops: Vec<HookOp>,
    /// The queue.
    pub lane: Lane,
    /// The after-commit hook.
    pub after_commit: Option<AfterCommit>,
}

impl Append {
    /// An unfenced append of `events` in the control lane.
    pub fn unfenced(session: SessionId, events: Vec<NewEvent>) -> Self {
        Self {
            session,
            fence: None,
            guard: Guard::Settling,
            events,
            ops: Vec::new(),
            lane: Lane::Control,
            after_commit: None,
        }
    }
}

/// A batch that is durable.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The events with their seqs, in order.
    pub events: Vec<Event>,
    /// The head after the batch.
    pub head: u64,
    /// The write number the next fenced append must carry.
    pub write_no: u64,
    /// The events were there before: nothing was written now.
    pub duplicate: bool,
}

/// A page of the log.
#[derive(Debug, Clone)]
pub struct Page {
    /// Events after the cursor, in order.
    pub events: Vec<Event>,
    /// The head when the page was read; none for a session without events.
    pub head: Option<u64>,
}

/// A node as it joins.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// This process start.
    pub incarnation: Incarnation,
    /// A label for people, for example the command.
    pub name: String,
    /// Where peers reach it: the path of its Unix socket, or its HTTP address, if it has one.
    pub address: Option<String>,
    /// What it serves: sessions of other locations and models are not for it.
    pub serves: Serves,
    /// How long a renewal is good for.
    pub lease: Duration,
}

/// The answer to a renewal (R7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs again from the moment *before* the renewal was sent.
    Renewed,
    /// This incarnation was declared dead: stop everything, write nothing, come back as a new one.
    Dead,
}

/// The answer to an attempt to take tenure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquire {
    /// It is ours.
    Acquired(Tenure),
    /// Somebody alive has it; `wake_pending` was set in the same transaction.
    Held {
        /// The owner.
        owner: Incarnation,
        /// Its epoch.
        epoch: u64,
    },
    /// Set aside; see `tenure release`.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// Nothing to do: no open execution, no eligible input, and `even_if_idle` was not set.
    Idle,
    /// The caller's node is draining or dead and may not acquire.
    NotAllowed,
    /// The caller's node does not serve the session's location or model. An interrupted session may be settled by any.
    Unplaceable {
        /// What it needs.
        reason: String,
    },
}

/// A claim just taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The fence of the first write.
    pub fence: Fence,
    /// The phase found: `safe` for a fresh claim, the dead owner's otherwise.
    pub phase: Phase,
    /// The dead owner, when this is a takeover.
    pub taken_from: Option<Incarnation>,
    /// Crashes charged to the session, the one of this takeover included (R8).
    pub attempts: u32,
    /// Was this takeover charged?
    pub charged: bool,
    /// The head at that moment.
    pub head: u64,
    /// The attachment's generation.
    pub generation: u64,
    /// The continuation input of an earlier, unfinished recovery.
    pub continuation: Option<MessageId>,
    /// It was handed over to this node, which has just accepted it: nothing was lost, and a step that is open
    /// waits only for approvals (R11).
    pub handed_over: bool,
    /// How many milliseconds from now on something that an owner before started may still live (R10): of a lost one,
    /// what is left of its last lease by the store's clock and by this process's own, and a second; of one that let
    /// go, what it said ([`HookOp::Quiet`]). 0 when its process is known to be gone with all it started, and when
    /// there was no such owner. The log moves at once; the first spawn waits, or for a proof. Of an owner that let go it
    /// is told by the store's clock: while something is [`Tenure::left`] it is not 0 before somebody has waited, and the
    /// taker counts on its own clock.
    pub quiet_ms: u64,
    /// Whom [`Tenure::quiet_ms`] is about, as far as the store keeps it.
    pub lost: Vec<LostOwner>,
    /// The session's effect rows: what calls started that are open, or were settled before it was known to be gone.
    pub left: Vec<EffectRow>,
}

/// An owner that was lost without a proof that what it had started is over (R10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostOwner {
    /// Its incarnation.
    pub incarnation: String,
    /// The number of its last renewal; none is negative, and a negative one says that it is not known.
    pub renewal_no: i64,
    /// How long a renewal was good for, in milliseconds.
    pub lease_ms: i64,
}

/// An interrupt request (R5), one keyed unfenced transaction.
#[derive(Debug, Clone)]
pub struct Interrupt {
    /// The session.
    pub session: SessionId,
    /// The key: repeating it returns the first answer.
    pub interrupt: InterruptId,
    /// Only this execution; none for whatever runs.
    pub execution: Option<ExecutionId>,
    /// By whom, for people.
    pub by: String,
    /// Wall-clock milliseconds.
    pub now_ms: i64,
}

/// What an interrupt did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// The claim is `cancelling`; its owner, or whoever takes over, settles it.
    Accepted {
        /// The interrupt's seq: it applies to what precedes it.
        seq: u64,
        /// The execution it stops, if one was open.
        execution: Option<ExecutionId>,
        /// The owner, to wake it.
        owner: Option<Incarnation>,
        /// The owner is known to be dead: it takes effect at the takeover.
        after_takeover: bool,
    },
    /// Nothing ran; waiting input was parked before it started.
    StoppedBeforeStart {
        /// The interrupt's seq.
        seq: u64,
    },
    /// The named execution is over.
    AlreadyFinished,
    /// Nothing runs and nothing waits; nothing was written.
    Idle,
}

/// An effect row: a tool process that may have been left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectRow {
    /// The step's message.
    pub message: MessageId,
    /// The call.
    pub call: CallId,
    /// The epoch that started it.
    pub epoch: u64,
    /// The attachment generation.
    pub generation: u64,
    /// The process, once known.
    pub process: Option<ProcessId>,
}

/// A cached piece of a session's fold: derived, versioned, thrown away when the version differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last seq folded in.
    pub through: u64,
    /// The fold's format.
    pub version: u32,
    /// Opaque to the store.
    pub bytes: Vec<u8>,
}

/// What a replay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Events inserted.
    pub inserted: u64,
    /// Events that were there, equal.
    pub equal: u64,
}

/// An event log with claims. All methods are cancellation safe: dropping a future either leaves nothing
/// done or lets the one transaction finish, with its after-commit hook, unobserved.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Appends in one transaction: fence, seqs, projectors, operations, insert, commit, after-commit hook,
    /// wake. Appends of one session commit in the order of the calls' first poll. What only the holder of
    /// tenure may write (executions, steps, attempts, fragments, calls, compactions, promotions, recovery) is
    /// `Rejected` without a fence. An append without events and operations only waits for those before it.
    /// An event's id is in one log of the store (and, by [`Store::replay`], in those of its forks): whoever gives it to
    /// another session is told `Conflict`, also when one process gives it to both at the same moment. Ids are
    /// random, so that two processes never draw the same one; of theirs only what is stored already is compared.
    async fn append(&self, append: Append) -> Result<Committed, AppendError>;

    /// After [`AppendError::Unknown`]: locks the head and looks the ids up (R3). `Some`: the batch is durable.
    /// `None`: it is not in the log and never will be, for `write_no` was raised to that of
    /// [`Fence::given_up`], with which the owner goes on. Asking again gives the same answer, so a caller
    /// dropped in here loses nothing. A batch without events is told by `write_no` alone. `Rewound`: the log lacks what
    /// was confirmed before, and nothing is raised.
    async fn resolve(
        &self,
        session: &SessionId,
        fence: &Fence,
        ids: &[EventId],
    ) -> Result<Option<Committed>, AppendError>;

    /// Events after `after` (none: from the start), at most `limit`, and fewer where they are very large:
    /// the reader is done when it has the head. A fork reads its parent's prefix as its own. A damaged event
    /// ends the page before it and is the error of the page that would begin with it. Errors: unknown
    /// session, a cursor beyond the head.
    async fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError>;

    /// A hint that the session's log or claim may have changed, in this process or another. The value
    /// only ever grows; read the log to know.
    fn watch(&self, session: &SessionId) -> watch::Receiver<u64>;

    /// A hint that anything at all may have changed.
    fn watch_all(&self) -> watch::Receiver<u64>;

    /// Makes a child that shares the parent's events `0..=through`; its first own event is
    /// `session.forked`. Nothing is copied.
    async fn fork(
        &self,
        parent: &SessionId,
        through: u64,
        child: &SessionId,
        event: NewEvent,
    ) -> Result<Committed, AppendError>;

    /// Deletes a session that nobody owns, or whose owner is dead. What forks still need of its log stays
    /// until they go.
    async fn delete(&self, session: &SessionId) -> Result<(), DeleteError>;

    /// Inserts exported events in order, rebuilding every projection and starting nothing: what is open or
    /// pending rests (`Parked`) until an input, `Unpark` or an acquisition wakes it. Refuses a gap, an unknown
    /// type, an event that differs from the stored one, a foreign session id, an id used elsewhere.
    async fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError>;

    /// The session's row with its state and reason (R4).
    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError>;

    /// Sessions by latest activity first.
    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, ReadError>;

    /// Runnable sessions that nobody alive owns, oldest first: what a reconciler claims (P7).
    async fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError>;

    /// Pending inputs in admission order, with their eligibility.
    async fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError>;

    /// Effect rows of the session.
    async fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError>;

    /// Effect rows of calls that are over and left something, in sessions that nobody owns or in steps that have
    /// ended, at most `limit`: what may be ended by anybody who can, whoever takes the session next.
    async fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError>;

    /// Stops what runs (R5).
    async fn interrupt(&self, interrupt: Interrupt) -> Result<Interrupted, AppendError>;

    /// Adds this process as a node.
    async fn join(&self, node: NodeInfo) -> Result<(), NodeError>;

    /// Renews the node's lease (R7).
    async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError>;

    /// The node takes no more sessions.
    async fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError>;

    /// The node is gone: marks it dead, so that what it still held is claimable at once.
    async fn leave(&self, incarnation: &Incarnation) -> Result<(), NodeError>;

    /// As [`Store::leave`], for a node that has stopped all its work by itself because it could not renew in time:
    /// that was no crash, so what it still held is not charged to its sessions (R8), and nothing it started
    /// lives on (R10). Also when others have marked it dead meanwhile: what nobody took yet is not charged then.
    async fn resign(&self, incarnation: &Incarnation) -> Result<(), NodeError>;

    /// Marks dead every node this observer can prove dead, or whose lease ended by the rules of R7, and
    /// returns them. By fast suspicion, where the backend has it: its connection is gone *and* its address
    /// refuses. Every node calls this several times a second: it must cost one cheap read when nobody is
    /// suspicious.
    async fn reap(&self, observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError>;

    /// Every node that is not dead.
    async fn nodes(&self) -> Result<Vec<NodeRow>, NodeError>;

    /// Takes tenure if nobody alive has it: one conditional write on the head row. A takeover keeps the
    /// dead owner's phase, raises the epoch, and charges the crash first (R8).
    async fn acquire(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
        even_if_idle: bool,
    ) -> Result<Acquire, AppendError>;

    /// Takes over a claim of `incarnation` itself on which nothing in this process works any more (its task
    /// panicked, the acquisition's answer was lost): as a takeover, with the phase kept and the epoch raised,
    /// so that what the lost task still sends is refused; but nobody died, so nothing is charged. A claim that
    /// was handed over to it is accepted, at the epoch it was handed over with. Anything else is answered as
    /// [`Store::acquire`] does.
    async fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError>;

    /// The claim's phase and wake flag as they are now; `None` when the fence no longer holds.
    async fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError>;

    /// What the node holds, in one read whatever their number: the poll that is always on (design §6), by which
    /// a node learns of interrupts, of sessions it lost, of new events in sessions that wait, and of sessions
    /// handed over to it, each of which a hint may have told it before. By session id.
    async fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError>;

    /// Every claim row, for people and tests.
    async fn claims(&self) -> Result<Vec<ClaimRow>, ReadError>;

    /// Stores a piece of the fold. Derived data: not fenced, last one for a `through` wins.
    async fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError>;

    /// Checkpoints of `version`, in order of `through`.
    async fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError>;

    /// Gives space back, bounded per call so that others are not held up; says what it did.
    async fn gc(&self) -> Result<GcReport, ReadError>;

    /// What the store is and whether it is sound, for `doctor`.
    async fn health(&self) -> Result<StoreHealth, ReadError>;

    /// Which of the store's promises do not hold where it is; none: all of them do. Cheap.
    async fn weak(&self) -> Result<Vec<Weakness>, ReadError> {
        Ok(Vec::new())
    }

    /// What the nodes of this store prove to each other that they belong to it: 32 random bytes, made with the
    /// store. None where nodes reach each other by other means.
    async fn cluster_secret(&self) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(None)
    }
}

/// What recovery decided, re-exported for callers that read claims.
pub type Decision = RecoveryDecision;
