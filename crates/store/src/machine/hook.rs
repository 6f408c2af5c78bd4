//! The commit hook's operations: compare-and-set under the head row's lock (R2).

use super::claim;
use super::project::Work;
use super::rows::Rows;
use super::{AppendStop, Stop, rejected};
use crate::api::{HookOp, ProcessId};
use crate::error::AppendError;
use tenure_core::event::body::Phase;
use tenure_core::id::{CallId, EventId, Incarnation, MessageId};

/// Runs one operation. An error rolls back the whole append.
pub(crate) fn run(work: &mut Work<'_, impl Rows>, op: &HookOp) -> Result<(), AppendStop> {
    if !work.fenced && needs_fence(op) {
        return Err(rejected(
            &work.head.id,
            format!("{} is for the holder of tenure only", name(op)),
        ));
    }
    match op {
        HookOp::Enter { message } => enter(work, message.as_ref()),
        HookOp::HeadAt { seq } => head_at(work, *seq),
        HookOp::Leave => leave(work),
        HookOp::Promote { input } => promote(work, input),
        HookOp::Release {
            only_when_idle,
            park,
        } => release(work, *only_when_idle, *park),
        HookOp::HandOver { to, accept_ms } => hand_over(work, to.as_ref(), *accept_ms),
        HookOp::Quiet { ms } => {
            let length = i64::try_from(*ms).unwrap_or(i64::MAX / 4);
            let until = work.rows.lease_ms().saturating_add(length);
            work.head.be_quiet_until(until);
            Ok(())
        }
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
            left,
        } => effect_end(work, message, call, *generation, *left),
        HookOp::EffectGone {
            message,
            call,
            process,
        } => effect_gone(work, message, call, process.as_ref()),
        HookOp::ReplaceAttachment { from } => {
            if work.generation != *from && !broken!(work.rows.switches(), NoGenerationCheck) {
                return Err(work.stale_attachment());
            }
            work.head.generation = from + 1;
            Ok(())
        }
        HookOp::Progress => {
            work.head.attempts = 0;
            Ok(())
        }
        HookOp::Continuation { input } => Ok(work.rows.set_continuation(work.head.sid, input)?),
        HookOp::RecoveryError { message } => {
            Ok(work.rows.set_recovery_error(work.head.sid, message)?)
        }
        HookOp::Quarantine { reason } => {
            work.head.quarantine = Some(reason.clone());
            Ok(work.head.clear_owner(work.rows)?)
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
        HookOp::HeadAt { .. }
            | HookOp::Unquarantine
            | HookOp::Unpark
            | HookOp::ReplaceAttachment { .. }
            | HookOp::EffectGone { .. }
    )
}

fn name(op: &HookOp) -> &'static str {
    match op {
        HookOp::Enter { .. } => "Enter",
        HookOp::HeadAt { .. } => "HeadAt",
        HookOp::Leave => "Leave",
        HookOp::Promote { .. } => "Promote",
        HookOp::Release { .. } => "Release",
        HookOp::HandOver { .. } => "HandOver",
        HookOp::Quiet { .. } => "Quiet",
        HookOp::EffectStart { .. } => "EffectStart",
        HookOp::EffectProcess { .. } => "EffectProcess",
        HookOp::EffectEnd { .. } => "EffectEnd",
        HookOp::EffectGone { .. } => "EffectGone",
        HookOp::ReplaceAttachment { .. } => "ReplaceAttachment",
        HookOp::Progress => "Progress",
        HookOp::Continuation { .. } => "Continuation",
        HookOp::RecoveryError { .. } => "RecoveryError",
        HookOp::Quarantine { .. } => "Quarantine",
        HookOp::Unquarantine => "Unquarantine",
        HookOp::Unpark => "Unpark",
    }
}

fn head_at(work: &Work<'_, impl Rows>, seq: Option<u64>) -> Result<(), AppendStop> {
    if (seq.is_some() && seq == work.before) || broken!(work.rows.switches(), OldHeadDecides) {
        return Ok(());
    }
    Err(Stop::Refused(AppendError::HeadMoved {
        session: work.head.id.clone(),
    }))
}

fn enter(work: &mut Work<'_, impl Rows>, message: Option<&MessageId>) -> Result<(), AppendStop> {
    let session = work.head.id.clone();
    match work.head.phase {
        Some(Phase::Safe) => {}
        Some(Phase::Cancelling) if broken!(work.rows.switches(), NoGuardCancelling) => {
            return Ok(());
        }
        Some(Phase::Cancelling) => return Err(Stop::Refused(AppendError::Cancelling { session })),
        Some(Phase::Active) | None => {
            return Err(Stop::Refused(AppendError::StaleClaim { session }));
        }
    }
    work.head.phase = Some(Phase::Active);
    work.head.loading = false;
    let seq = message.and(work.entered.or(work.head.head));
    work.rows.set_step(work.head.sid, message, seq)?;
    Ok(())
}

fn leave(work: &mut Work<'_, impl Rows>) -> Result<(), AppendStop> {
    let cancelling = work.head.phase == Some(Phase::Cancelling);
    if work.head.phase.is_some()
        && (!cancelling || broken!(work.rows.switches(), LeaveClearsCancelling))
    {
        work.head.phase = Some(Phase::Safe);
    }
    work.rows.set_step(work.head.sid, None, None)?;
    Ok(())
}

fn promote(work: &mut Work<'_, impl Rows>, input: &MessageId) -> Result<(), AppendStop> {
    let changed = || {
        Stop::Refused(AppendError::InboxChanged {
            session: work.head.id.clone(),
        })
    };
    if broken!(work.rows.switches(), NoCasPromote) {
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

fn release(
    work: &mut Work<'_, impl Rows>,
    only_when_idle: bool,
    park: bool,
) -> Result<(), AppendStop> {
    if park {
        work.head.parked_through = work.head.head;
    }
    if only_when_idle {
        let open = work.head.execution.is_some();
        let more = !broken!(work.rows.switches(), ReleaseIgnoresInbox)
            && work.head.has_eligible(work.rows)?;
        if open || more {
            return Err(Stop::Refused(AppendError::NotIdle {
                session: work.head.id.clone(),
            }));
        }
    }
    // An interrupt of an execution that outlives its owner waits for the next one.
    let cancel = work.head.phase == Some(Phase::Cancelling) && work.head.execution.is_some();
    work.head.clear_owner(work.rows)?;
    work.head.cancel = cancel;
    Ok(())
}

/// R11: epoch + 1 to a successor that can take it now, else to nobody.
fn hand_over(
    work: &mut Work<'_, impl Rows>,
    to: Option<&Incarnation>,
    accept_ms: u64,
) -> Result<(), AppendStop> {
    let session = work.head.id.clone();
    match work.head.phase {
        Some(Phase::Cancelling) => return Err(Stop::Refused(AppendError::Cancelling { session })),
        Some(_) => {}
        None => return Err(Stop::Refused(AppendError::StaleClaim { session })),
    }
    let successor = match to {
        Some(node) if claim::can_succeed(work.rows, &work.head, node)? => node,
        _ => {
            // A step that waits for approvals is settled by whoever comes: nobody holds it.
            work.head.clear_owner(work.rows)?;
            work.head.epoch += 1;
            return Ok(());
        }
    };
    if !broken!(work.rows.switches(), HandOverKeepsEpoch) {
        work.head.epoch += 1;
    }
    work.head.owner = Some(successor.as_str().to_owned());
    let claim = claim::claim_of(&work.head, successor);
    work.head.claim_id = Some(claim.as_str().to_owned());
    work.head.loading = false;
    work.head.hand_until(work.rows.lease_ms(), accept_ms);
    Ok(())
}

fn effect_start(
    work: &mut Work<'_, impl Rows>,
    message: &MessageId,
    call: &CallId,
    generation: u64,
) -> Result<(), AppendStop> {
    if generation != work.generation && !broken!(work.rows.switches(), NoGenerationCheck) {
        return Err(work.stale_attachment());
    }
    let epoch = work.head.epoch;
    let fresh = work
        .rows
        .start_effect(work.head.sid, message, call, epoch, generation)?;
    if !fresh {
        // No event stands for an effect row: name it by a derived id, for people.
        return Err(Stop::Refused(AppendError::Conflict {
            session: work.head.id.clone(),
            event: EventId::derived(&[message.as_str(), call.as_str()]),
        }));
    }
    work.head.end_quiet();
    Ok(())
}

fn effect_process(
    work: &mut Work<'_, impl Rows>,
    message: &MessageId,
    call: &CallId,
    process: &ProcessId,
) -> Result<(), AppendStop> {
    work.rows
        .set_process(work.head.sid, message, call, process)?;
    Ok(())
}

fn effect_end(
    work: &mut Work<'_, impl Rows>,
    message: &MessageId,
    call: &CallId,
    generation: Option<u64>,
    left: bool,
) -> Result<(), AppendStop> {
    let stale = generation.is_some_and(|generation| generation != work.generation);
    if stale && !broken!(work.rows.switches(), NoGenerationCheck) {
        return Err(work.stale_attachment());
    }
    if !left || broken!(work.rows.switches(), EffectForgotten) {
        work.rows.end_effect(work.head.sid, message, call)?;
    }
    Ok(())
}

/// What was left is gone. Whoever says so looked at the row before: a row of the same call that names another process
/// is not the one that was looked at.
fn effect_gone(
    work: &mut Work<'_, impl Rows>,
    message: &MessageId,
    call: &CallId,
    process: Option<&ProcessId>,
) -> Result<(), AppendStop> {
    let mut rows = work.rows.effects(work.head.sid)?;
    let before = rows.len();
    rows.retain(|row| (&row.message, &row.call, row.process.as_ref()) != (message, call, process));
    if rows.len() == before {
        return Ok(());
    }
    work.rows.end_effect(work.head.sid, message, call)?;
    // What an owner said was about what it left; what a lost one may have left beside that is for time to end.
    if rows.is_empty() && work.head.lost.is_empty() {
        work.head.end_quiet();
    }
    Ok(())
}
