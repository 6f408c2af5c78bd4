//! Rows and states as readers see them: sessions, claims, nodes, health.

use serde::{Deserialize, Serialize};
use tenure_core::event::body::{Location, Phase};
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_core::placement::{Serves, Unserved};
use tenure_core::usage::Usage;

/// The state of a session, by one query (R4, P7): every session is in exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SessionState {
    /// Owned under a live lease.
    Owned {
        /// The owner.
        owner: Incarnation,
        /// The owner's label.
        node: String,
        /// The epoch.
        epoch: u64,
        /// The phase.
        phase: Phase,
    },
    /// Runnable, and free to be taken now.
    Claimable {
        /// Why it is runnable.
        reason: String,
    },
    /// Runnable, its owner is silent but not yet dead.
    Waiting {
        /// On whom.
        owner: Incarnation,
        /// Milliseconds until its lease can be judged.
        lease_ms: u64,
    },
    /// Inputs are pending but rest until woken.
    Parked {
        /// How many.
        inputs: u32,
    },
    /// No node serves its location, or can ask its model.
    Unplaceable {
        /// Why.
        reason: String,
    },
    /// Set aside after crashes.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// Nothing to do.
    Idle,
}

/// A session as lists show it: projected from its log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    /// The session.
    pub id: SessionId,
    /// Title, once it has one.
    pub title: Option<String>,
    /// Where its tools run.
    pub location: Location,
    /// Where it waits to be moved to. Where no node serves its place any more, those of this one take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moving: Option<Location>,
    /// The model in force.
    pub model: ModelRef,
    /// The last seq.
    pub head: u64,
    /// The epoch in force or last in force.
    pub epoch: u64,
    /// State and reason.
    #[serde(flatten)]
    pub state: SessionState,
    /// An interrupt was accepted and is not settled yet; any node may settle it.
    pub cancelling: bool,
    /// The open execution.
    pub execution: Option<ExecutionId>,
    /// How the last execution ended: `succeeded`, `failed`, `interrupted`.
    pub last_outcome: Option<String>,
    /// Inputs not yet in the conversation.
    pub pending: u32,
    /// Tokens so far.
    pub usage: Usage,
    /// Cost so far in millionths of a US dollar.
    pub cost: u64,
    /// Some attempt had no known price or usage: `cost` is a lower bound.
    pub cost_incomplete: bool,
    /// The last line of text the model wrote, at most 200 characters.
    pub last_line: String,
    /// Attachment generation.
    pub generation: u64,
    /// Crashes charged (R8).
    pub attempts: u32,
    /// The parent and the last shared seq, for a fork.
    pub forked_from: Option<(SessionId, u64)>,
    /// Wall-clock milliseconds of creation.
    pub created_ms: i64,
    /// Wall-clock milliseconds of the last user activity.
    pub updated_ms: i64,
}

impl SessionRow {
    /// Where its tools will run: what waits to be carried out counts as done.
    pub fn destination(&self) -> &Location {
        self.moving.as_ref().unwrap_or(&self.location)
    }

    /// May a node that serves this have the session: at its place, or at the one it waits to be moved to?
    ///
    /// # Errors
    /// What the node lacks.
    pub fn check_served(&self, serves: &Serves) -> Result<(), Unserved> {
        serves.check_moving(&self.location, self.moving.as_ref(), &self.model)
    }

    /// What lists show of a session whose row cannot be read, and why: it must not hide the others.
    pub(crate) fn unreadable(id: SessionId, title: Option<String>, why: &str) -> Self {
        Self {
            id,
            title,
            location: Location::at(""),
            moving: None,
            model: ModelRef {
                provider: String::new(),
                model: String::new(),
            },
            head: 0,
            epoch: 0,
            state: SessionState::Quarantined {
                reason: format!("unreadable: {why}"),
            },
            cancelling: false,
            execution: None,
            last_outcome: None,
            pending: 0,
            usage: Usage::default(),
            cost: 0,
            cost_incomplete: true,
            last_line: String::new(),
            generation: 0,
            attempts: 0,
            forked_from: None,
            created_ms: 0,
            updated_ms: 0,
        }
    }
}

/// Which sessions to list.
#[derive(Debug, Clone, Default)]
pub struct SessionQuery {
    /// Only sessions of this folder.
    pub directory: Option<String>,
    /// Only titles or last lines that contain this, ignoring case.
    pub text: Option<String>,
    /// At most so many; 0 means 100.
    pub limit: usize,
    /// Skip so many.
    pub offset: usize,
}

/// The claim row of an owner that looks at its own claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimView {
    /// The phase now.
    pub phase: Phase,
    /// Somebody wanted the session woken since this was last looked at. Reading clears nothing.
    pub wake_pending: bool,
}

/// A claim as its owner's poll reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldClaim {
    /// The session.
    pub session: SessionId,
    /// The claim.
    pub claim: ClaimId,
    /// The epoch.
    pub epoch: u64,
    /// The phase now.
    pub phase: Phase,
    /// The session's last seq.
    pub head: u64,
    /// It was handed over to this node, which has not accepted it yet.
    pub handed: bool,
}

/// A claim row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRow {
    /// The claim.
    pub id: ClaimId,
    /// The session.
    pub session: SessionId,
    /// The owner.
    pub owner: Incarnation,
    /// The epoch.
    pub epoch: u64,
    /// The phase.
    pub phase: Phase,
    /// The open step's message.
    pub assistant_message_id: Option<MessageId>,
    /// The seq of its `step.started`.
    pub assistant_seq: Option<u64>,
    /// The continuation input of the recovery in progress.
    pub recovery_input_id: Option<MessageId>,
    /// Why recovery had trouble.
    pub recovery_error: Option<String>,
    /// Somebody wanted the session woken.
    pub wake_pending: bool,
    /// Crashes charged.
    pub attempts: u32,
    /// When the owner's lease ends, wall-clock milliseconds, for display only.
    pub expires_at: i64,
    /// Wall-clock milliseconds of the acquisition, by the store's own clock.
    pub time_created: i64,
    /// Milliseconds since then, by the same clock: no other machine's has a part in it.
    pub held_ms: u64,
}

/// A node row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The process start.
    pub incarnation: Incarnation,
    /// Its label.
    pub name: String,
    /// Where peers reach it.
    pub address: Option<String>,
    /// Labels it has.
    pub labels: Vec<String>,
    /// Folders it serves; none means every folder.
    pub roots: Vec<String>,
    /// It takes no more sessions.
    pub draining: bool,
    /// Its pid, on this machine.
    pub pid: u32,
    /// Milliseconds left of its lease; negative when it is over.
    pub lease_ms: i64,
    /// Sessions it owns.
    pub sessions: u32,
}

/// What `gc` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// File size before, in bytes.
    pub bytes_before: u64,
    /// File size after, in bytes.
    pub bytes_after: u64,
    /// Events removed that no fork needed any more.
    pub events_removed: u64,
    /// Dead node rows removed.
    pub nodes_removed: u64,
    /// There is more to do: call again.
    pub more: bool,
}

/// A promise that the store cannot keep where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weakness {
    /// What is weaker, and why.
    pub what: String,
    /// What to do.
    pub next: String,
}

/// What the store is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreHealth {
    /// For example `sqlite 3.51.3`.
    pub engine: String,
    /// Where it is.
    pub place: String,
    /// Schema version.
    pub schema: u32,
    /// `quick_check` found nothing wrong; else what it said.
    pub problems: Vec<String>,
    /// Size in bytes.
    pub bytes: u64,
    /// Sessions.
    pub sessions: u64,
    /// How flushes are done, for example `synchronous=FULL journal_mode=wal`.
    pub durability: String,
}
