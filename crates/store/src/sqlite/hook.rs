//! The commit hook's operations: compare-and-set under the head row's lock (R2).

use super::project::Work;
use super::tx::{AppendStop, Stop, int, rejected};
use crate::api::{HookOp, ProcessId};
use crate::error::AppendError;
use rusqlite::params;
use tenure_core::event::body::Phase;
use tenure_core::id::{CallId, EventId, MessageId};

/// Runs one operation. An error rolls back the whole append.
pub(super) fn run(work: &mut Work<'_>, op: &HookOp) -> Result<(), AppendStop> {
    if !work.fenced && needs_fence(op) {
        return Err(rejected(
            &work.head.id,
            format!("{} is for the holder of tenure only", name(op)),
        ));
    }
    match op {
        HookOp::Enter { message } => enter(work, message.as_ref()),
        HookOp::Leave => leave(work),
        HookOp::Promote { input } => promote(work, input),
        HookOp::Release {
            only_when_idle,
            park,
        } => release(work, *only_when_idle, *park),
        HookOp::EffectStart {
            message,
            call,
            generation,
        } => effect_start(work, message, call, *generation),
        HookOp::EffectProcess {
            message,
            call,
            process,
        } => effect_process(work, message, call, process),
        HookOp::EffectEnd {
            message,
            call,
            generation,
        } => effect_end(work, message, call, *generation),
        HookOp::ReplaceAttachment { from } => {
            if work.generation != *from && !broken!(work.tx.switches, NoGenerationCheck) {
                return Err(work.stale_attachment());
            }
            work.head.generation = from + 1;
            Ok(())
        }
        HookOp::Progress => {
            work.head.attempts = 0;
            Ok(())
        }
        HookOp::Continuation { input } => claim_text(work, "recovery_input_id", input.as_str()),
        HookOp::RecoveryError { message } => claim_text(work, "recovery_error", message),
        HookOp::Quarantine { reason } => {
            work.head.quarantine = Some(reason.clone());
            Ok(work.head.clear_owner(work.tx)?)
        }
        HookOp::Unquarantine => {
            work.head.quarantine = None;
            work.head.attempts = 0;
            Ok(())
        }
        HookOp::Unpark => {
            work.head.parked_through = None;
            work.head.dormant = false;
            Ok(())
        }
    }
}

/// What only the holder of tenure may do.
fn needs_fence(op: &HookOp) -> bool {
    !matches!(
        op,
        HookOp::Unquarantine | HookOp::Unpark | HookOp::ReplaceAttachment { .. }
    )
}

fn name(op: &HookOp) -> &'static str {
    match op {
        HookOp::Enter { .. } => "Enter",
        HookOp::Leave => "Leave",
        HookOp::Promote { .. } => "Promote",
        HookOp::Release { .. } => "Release",
        HookOp::EffectStart { .. } => "EffectStart",
        HookOp::EffectProcess { .. } => "EffectProcess",
        HookOp::EffectEnd { .. } => "EffectEnd",
        HookOp::ReplaceAttachment { .. } => "ReplaceAttachment",
        HookOp::Progress => "Progress",
        HookOp::Continuation { .. } => "Continuation",
        HookOp::RecoveryError { .. } => "RecoveryError",
        HookOp::Quarantine { .. } => "Quarantine",
        HookOp::Unquarantine => "Unquarantine",
        HookOp::Unpark => "Unpark",
    }
}

fn enter(work: &mut Work<'_>, message: Option<&MessageId>) -> Result<(), AppendStop> {
    let session = work.head.id.clone();
    match work.head.phase {
        Some(Phase::Safe) => {}
        Some(Phase::Cancelling) if broken!(work.tx.switches, NoGuardCancelling) => return Ok(()),
        Some(Phase::Cancelling) => return Err(Stop::Refused(AppendError::Cancelling { session })),
        Some(Phase::Active) | None => {
            return Err(Stop::Refused(AppendError::StaleClaim { session }));
        }
    }
    work.head.phase = Some(Phase::Active);
    work.head.loading = false;
    let seq = message.and(work.entered.or(work.head.head));
    work.tx.exec(
        "UPDATE claim SET assistant_message_id = ?2, assistant_seq = ?3 WHERE sid = ?1",
        params![work.head.sid, message.map(MessageId::as_str), seq.map(int)],
    )?;
    Ok(())
}

fn leave(work: &mut Work<'_>) -> Result<(), AppendStop> {
    let cancelling = work.head.phase == Some(Phase::Cancelling);
    if work.head.phase.is_some()
        && (!cancelling || broken!(work.tx.switches, LeaveClearsCancelling))
    {
        work.head.phase = Some(Phase::Safe);
    }
    work.tx.exec(
        "UPDATE claim SET assistant_message_id = NULL, assistant_seq = NULL WHERE sid = ?1",
        [work.head.sid],
    )?;
    Ok(())
}

fn promote(work: &mut Work<'_>, input: &MessageId) -> Result<(), AppendStop> {
    let changed = || {
        Stop::Refused(AppendError::InboxChanged {
            session: work.head.id.clone(),
        })
    };
    if broken!(work.tx.switches, NoCasPromote) {
        return Ok(());
    }
    match work.promoted.iter().find(|(promoted, _)| promoted == input) {
        Some((_, true)) => Ok(()),
        Some((_, false)) => Err(changed()),
        None => Err(rejected(
            &work.head.id,
            format!("input {input} is promoted without its `input.promoted`"),
        )),
    }
}

fn release(work: &mut Work<'_>, only_when_idle: bool, park: bool) -> Result<(), AppendStop> {
    if park {
        work.head.parked_through = work.head.head;
    }
    if only_when_idle {
        let open = work.head.execution.is_some();
        let more = !broken!(work.tx.switches, ReleaseIgnoresInbox)
            && work.head.has_eligible(work.tx.conn)?;
        if open || more {
            return Err(Stop::Refused(AppendError::NotIdle {
                session: work.head.id.clone(),
            }));
        }
    }
    // An interrupt of an execution that outlives its owner waits for the next one.
    let cancel = work.head.phase == Some(Phase::Cancelling) && work.head.execution.is_some();
    work.head.clear_owner(work.tx)?;
    work.head.cancel = cancel;
    Ok(())
}

fn effect_start(
    work: &mut Work<'_>,
    message: &MessageId,
    call: &CallId,
    generation: u64,
) -> Result<(), AppendStop> {
    if generation != work.generation && !broken!(work.tx.switches, NoGenerationCheck) {
        return Err(work.stale_attachment());
    }
    let inserted = work.tx.exec(
        "INSERT INTO effect(sid, message, call, epoch, generation) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT DO NOTHING",
        params![
            work.head.sid,
            message.as_str(),
            call.as_str(),
            int(work.head.epoch),
            int(generation)
        ],
    )?;
    if inserted == 0 {
        // No event stands for an effect row: name it by a derived id, for people.
        return Err(Stop::Refused(AppendError::Conflict {
            session: work.head.id.clone(),
            event: EventId::derived(&[message.as_str(), call.as_str()]),
        }));
    }
    Ok(())
}

fn effect_process(
    work: &mut Work<'_>,
    message: &MessageId,
    call: &CallId,
    process: &ProcessId,
) -> Result<(), AppendStop> {
    work.tx.exec(
        "UPDATE effect SET pid = ?4, pid_start = ?5, boot_id = ?6 \
         WHERE sid = ?1 AND message = ?2 AND call = ?3",
        params![
            work.head.sid,
            message.as_str(),
            call.as_str(),
            process.pid,
            int(process.pid_start),
            process.boot_id
        ],
    )?;
    Ok(())
}

fn effect_end(
    work: &mut Work<'_>,
    message: &MessageId,
    call: &CallId,
    generation: Option<u64>,
) -> Result<(), AppendStop> {
    let stale = generation.is_some_and(|generation| generation != work.generation);
    if stale && !broken!(work.tx.switches, NoGenerationCheck) {
        return Err(work.stale_attachment());
    }
    work.tx.exec(
        "DELETE FROM effect WHERE sid = ?1 AND message = ?2 AND call = ?3",
        params![work.head.sid, message.as_str(), call.as_str()],
    )?;
    Ok(())
}

fn claim_text(work: &mut Work<'_>, column: &'static str, text: &str) -> Result<(), AppendStop> {
    let sql = match column {
        "recovery_input_id" => "UPDATE claim SET recovery_input_id = ?2 WHERE sid = ?1",
        _ => "UPDATE claim SET recovery_error = ?2 WHERE sid = ?1",
    };
    work.tx.exec(sql, params![work.head.sid, text])?;
    Ok(())
}
