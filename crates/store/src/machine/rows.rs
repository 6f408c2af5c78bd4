//! The rows one transaction works on, as the rules ask for them.

use super::Failure;
use super::event::{Encoded, Stored};
use super::head::Head;
use crate::Switches;
use crate::api::{EffectRow, ProcessId};
use tenure_core::event::body::Delivery;
use tenure_core::id::{CallId, EventId, MessageId, SessionId};
use tenure_core::placement::Serves;

/// The state of a node row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeState {
    Active,
    Draining,
    Dead,
}

/// What is waited beyond the end of a dead node's lease before anything is spawned where it worked (R10).
pub(crate) const LOCK_DELAY_MS: i64 = 1_000;

/// The end of the lease of a node that is known to be gone together with all it started. No clock shows it, so one that
/// jumps cannot be taken for such a proof.
pub(crate) const PROVEN_GONE: i64 = i64::MIN / 4;

/// How much of a lease is left, for people: a proven end is shown as one that has just come.
pub(crate) fn shown_left(left_ms: i64) -> i64 {
    match left_ms < PROVEN_GONE / 2 {
        true => -LOCK_DELAY_MS,
        false => left_ms,
    }
}

/// What the rules ask about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) state: NodeState,
    /// Its lease runs, on the clock leases are judged by.
    pub(crate) leased: bool,
    /// When its last lease ends or ended, on that clock; [`PROVEN_GONE`] for a node that is known to be gone together
    /// with all it started.
    pub(crate) lease_until: i64,
    /// How long a renewal is good for, in milliseconds.
    pub(crate) lease_ms: i64,
    /// How often it has renewed.
    pub(crate) renewal_no: i64,
    /// It said by itself that it is dead, with all it ran stopped (`Store::resign`).
    pub(crate) resigned: bool,
    /// What it serves.
    pub(crate) serves: Serves,
}

/// What became of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    Promoted,
    Cancelled,
}

/// A session that holds an event: its id (a deleted one has a mark behind it), and whose forks it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kin {
    pub(crate) id: String,
    pub(crate) parents: Vec<String>,
}

/// A stored setting, to be decoded: type, version, body.
pub(crate) type Setting = (String, u32, String);

/// One transaction's view. Every write is undone when the work that made it is refused.
pub(crate) trait Rows {
    fn switches(&self) -> &Switches;
    /// The store's wall clock, milliseconds, for people.
    fn wall_ms(&self) -> i64;
    /// The clock leases are judged by, milliseconds.
    fn lease_ms(&self) -> i64;

    // The head row.
    fn head(&self, session: &SessionId) -> Result<Option<Head>, Failure>;
    /// A fresh row.
    fn new_head(&self, session: &SessionId) -> Result<Head, Failure>;
    /// Writes everything back and raises `rev`.
    fn save(&self, head: &mut Head) -> Result<(), Failure>;
    /// The place in the order of user activity that a session at `now` moves to.
    fn next_activity(&self, now: i64) -> Result<i64, Failure>;

    // Events.
    /// The row of an event id: the session's own, else one of another session.
    fn event(&self, sid: i64, id: &EventId) -> Result<Option<Stored>, Failure>;
    fn put_event(
        &self,
        sid: i64,
        seq: u64,
        epoch: Option<u64>,
        event: &Encoded,
    ) -> Result<(), Failure>;
    /// Stored events from `from` on, shared prefixes included, at most `limit`.
    fn events_from(&self, head: &Head, from: u64, limit: usize) -> Result<Vec<Stored>, Failure>;
    /// The session that holds `seq` of this one's log: itself, or one it was forked from.
    fn holder(&self, head: &Head, seq: u64) -> Result<Option<i64>, Failure>;
    /// The settings in force after `through`, oldest first.
    fn settings(&self, head: &Head, through: u64) -> Result<Vec<Setting>, Failure>;
    fn kin(&self, sid: i64) -> Result<Option<Kin>, Failure>;

    // The claim row.
    /// A fresh claim keeps the continuation of the one before; its id.
    fn open_claim(&self, sid: i64, created_ms: i64) -> Result<Option<String>, Failure>;
    fn close_claim(&self, sid: i64) -> Result<(), Failure>;
    /// True when it was not set.
    fn set_wake_pending(&self, sid: i64) -> Result<bool, Failure>;
    fn set_step(
        &self,
        sid: i64,
        message: Option<&MessageId>,
        seq: Option<u64>,
    ) -> Result<(), Failure>;
    fn set_continuation(&self, sid: i64, input: &MessageId) -> Result<(), Failure>;
    fn set_recovery_error(&self, sid: i64, message: &str) -> Result<(), Failure>;

    // The inbox.
    /// False when the input was there before.
    fn admit(
        &self,
        sid: i64,
        input: &MessageId,
        seq: u64,
        delivery: Delivery,
        fenced: bool,
    ) -> Result<bool, Failure>;
    /// Takes a pending input out; its seq.
    fn take_input(&self, sid: i64, input: &MessageId, taken: Taken)
    -> Result<Option<u64>, Failure>;
    /// False when it is not pending.
    fn redeliver(&self, sid: i64, input: &MessageId, delivery: Delivery) -> Result<bool, Failure>;
    /// Is an input pending after `after`? With `by_users`: one that no owner wrote.
    fn is_pending(&self, sid: i64, after: Option<u64>, by_users: bool) -> Result<bool, Failure>;
    fn clear_inbox(&self, sid: i64) -> Result<(), Failure>;

    // Effects.
    /// False when the row exists.
    fn start_effect(
        &self,
        sid: i64,
        message: &MessageId,
        call: &CallId,
        epoch: u64,
        generation: u64,
    ) -> Result<bool, Failure>;
    fn set_process(
        &self,
        sid: i64,
        message: &MessageId,
        call: &CallId,
        process: &ProcessId,
    ) -> Result<(), Failure>;
    fn end_effect(&self, sid: i64, message: &MessageId, call: &CallId) -> Result<(), Failure>;
    /// All of the session, by message and call.
    fn effects(&self, sid: i64) -> Result<Vec<EffectRow>, Failure>;

    // Nodes.
    fn node(&self, incarnation: &str) -> Result<Option<NodeFacts>, Failure>;

    // Receipts of interrupts.
    fn receipt(&self, key: &str) -> Result<Option<(i64, String)>, Failure>;
    fn put_receipt(&self, key: &str, sid: i64, answer: &str) -> Result<(), Failure>;

    /// R7: a claim is expired only if its owner's node row is missing or dead.
    fn is_gone(&self, incarnation: &str) -> Result<bool, Failure> {
        let node = self.node(incarnation)?;
        Ok(node.is_none_or(|node| node.state == NodeState::Dead))
    }
}
