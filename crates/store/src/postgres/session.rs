//! The head row's columns, and the rest of it as JSON: reading and writing what the rules work on.

use super::sql::{int, uint};
use crate::api::{LostOwner, ProcessId};
use crate::machine::head::{Head, phase_of};
use crate::machine::loaded::{InboxState, Session};
use crate::machine::moving::Moving;
use serde::{Deserialize, Serialize};
use tenure_core::event::body::Delivery;
use tenure_core::id::SessionId;
use tenure_core::usage::Usage;
use tokio_postgres::Row;

/// The head row's columns, in the order [`read_head`] expects.
macro_rules! head_columns {
    () => {
        "s.sid, s.id, s.rev, s.head, s.base, s.parent, s.epoch, s.owner, s.claim_id, s.write_no, s.phase, \
         s.attempts, s.quarantine, s.handed_until, s.activity, s.title, s.directory, s.last_line, s.rest"
    };
}
pub(super) use head_columns;

/// How many columns `head_columns!` names: what a query selects after them begins here.
pub(super) const WIDTH: usize = 19;

/// What no query looks into.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rest {
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forked_through: Option<u64>,
    loading: bool,
    cancel: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked_through: Option<u64>,
    dormant: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupt_seq: Option<u64>,
    generation: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_compaction: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_text: Option<String>,
    pending: u32,
    provider: String,
    model: String,
    usage: Usage,
    cost: u64,
    cost_incomplete: bool,
    line_done: bool,
    created_ms: i64,
    updated_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet_until: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<LostOwner>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requires: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    moving: Option<Moving>,
}

/// The head row's remainder as it is stored.
pub(super) fn rest(head: &Head) -> String {
    let rest = Rest {
        forked_from: head.forked_from.clone(),
        forked_through: head.forked_through,
        loading: head.loading,
        cancel: head.cancel,
        parked_through: head.parked_through,
        dormant: head.dormant,
        interrupt_seq: head.interrupt_seq,
        generation: head.generation,
        execution: head.execution.clone(),
        last_outcome: head.last_outcome.clone(),
        open_step: head.open_step.clone(),
        open_compaction: head.open_compaction.clone(),
        open_text: head.open_text.clone(),
        pending: head.pending,
        provider: head.provider.clone(),
        model: head.model.clone(),
        usage: head.usage,
        cost: head.cost,
        cost_incomplete: head.cost_incomplete,
        line_done: head.line_done,
        created_ms: head.created_ms,
        updated_ms: head.updated_ms,
        quiet_until: head.quiet_until,
        lost: head.lost.clone(),
        requires: head.requires.clone(),
        moving: head.moving.clone(),
    };
    serde_json::to_string(&rest).unwrap_or_default()
}

/// A stored row that this version cannot read, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damaged(pub(super) String);

/// Reads `head_columns!`.
pub(super) fn read_head(row: &Row) -> Result<Head, Damaged> {
    let id: String = row.get(1);
    let damaged = |what: String| Damaged(format!("the row of session {id} is damaged: {what}"));
    let session = SessionId::parse(&id).map_err(|bad| damaged(bad.to_string()))?;
    let rest: Rest =
        serde_json::from_str(row.get(18)).map_err(|error| damaged(error.to_string()))?;
    Ok(Head {
        rev: row.get(2),
        head: u64::try_from(row.get::<_, i64>(3)).ok(),
        base: uint(row.get(4)),
        parent: row.get(5),
        forked_from: rest.forked_from,
        forked_through: rest.forked_through,
        epoch: uint(row.get(6)),
        owner: row.get(7),
        claim_id: row.get(8),
        write_no: uint(row.get(9)),
        phase: row.get::<_, Option<i64>>(10).map(phase_of),
        loading: rest.loading,
        cancel: rest.cancel,
        attempts: u32::try_from(row.get::<_, i64>(11)).unwrap_or(0),
        quarantine: row.get(12),
        parked_through: rest.parked_through,
        dormant: rest.dormant,
        interrupt_seq: rest.interrupt_seq,
        generation: rest.generation,
        execution: rest.execution,
        last_outcome: rest.last_outcome,
        open_step: rest.open_step,
        open_compaction: rest.open_compaction,
        open_text: rest.open_text,
        pending: rest.pending,
        title: row.get(15),
        directory: row.get(16),
        provider: rest.provider,
        model: rest.model,
        usage: rest.usage,
        cost: rest.cost,
        cost_incomplete: rest.cost_incomplete,
        last_line: row.get(17),
        line_done: rest.line_done,
        created_ms: rest.created_ms,
        updated_ms: rest.updated_ms,
        activity: row.get(14),
        handed_until: row.get(13),
        quiet_until: rest.quiet_until,
        lost: rest.lost,
        requires: rest.requires,
        moving: rest.moving,
        ..Head::fresh(row.get(0), session)
    })
}

/// Would the session be claimable if nobody owned it (R4)? Kept as a column, so that one query finds them all.
pub(super) fn is_runnable(session: &Session, head: &Head) -> bool {
    let waiting = || {
        session
            .inbox
            .values()
            .any(|input| input.state == InboxState::Pending && head.eligible(input.seq))
    };
    head.quarantine.is_none() && !head.dormant && (head.execution.is_some() || waiting())
}

pub(super) fn delivery_number(delivery: Delivery) -> i64 {
    match delivery {
        Delivery::Steer => 0,
        Delivery::Queue => 1,
    }
}

pub(super) fn delivery_of(number: i64) -> Delivery {
    match number {
        0 => Delivery::Steer,
        _ => Delivery::Queue,
    }
}

/// An effect's process from its three columns.
pub(super) fn process_of(row: &Row, from: usize) -> Option<ProcessId> {
    let pid: Option<i64> = row.get(from);
    pid.map(|pid| ProcessId {
        pid: u32::try_from(pid).unwrap_or(0),
        pid_start: row.get::<_, Option<i64>>(from + 1).map_or(0, uint),
        boot_id: row.get::<_, Option<String>>(from + 2).unwrap_or_default(),
    })
}

/// The last seq as it is stored: -1 while there is none.
pub(super) fn head_number(head: &Head) -> i64 {
    head.head.map_or(-1, int)
}
