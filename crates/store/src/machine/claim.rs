//! Taking tenure, and stopping it: acquire (R1, R7, R8) and interrupt (R5).

use super::append::write;
use super::event::{Encoded, Ready};
use super::head::Head;
use super::project::Work;
use super::rows::{LOCK_DELAY_MS, NodeState, PROVEN_GONE, Rows};
use super::{AppendStop, Ran, Stop};
use crate::api::{Acquire, Fence, Interrupt, Interrupted, LostOwner, Tenure};
use crate::error::AppendError;
use serde::{Deserialize, Serialize};
use tenure_core::event::EventBody;
use tenure_core::event::body::{InterruptRequested, Phase};
use tenure_core::id::{ClaimId, EventId, ExecutionId, Incarnation, MessageId, SessionId};

/// One conditional write on the head row.
pub(crate) fn acquire(
    rows: &impl Rows,
    session: &SessionId,
    taker: &Incarnation,
    even_if_idle: bool,
) -> Result<(Acquire, Ran), AppendStop> {
    let Some(mut head) = rows.head(session)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(session.clone())));
    };
    let allowed = is_active(rows, taker)?;
    if !allowed && !broken!(rows.switches(), AcquireWhenDraining) {
        return Ok((Acquire::NotAllowed, Ran::Nothing));
    }
    if let Some(owner) = head.owner.clone() {
        // A successor that did not accept in time has lost what it was given.
        let dead = head.missed(rows.lease_ms()) || rows.is_gone(&owner)?;
        if !dead && !broken!(rows.switches(), TakeoverOfLive) {
            let news = rows.set_wake_pending(head.sid)?;
            if news {
                rows.save(&mut head)?;
            }
            let held = Acquire::Held {
                owner: stored_id(Incarnation::parse(&owner), &head)?,
                epoch: head.epoch,
            };
            return Ok((held, if news { Ran::Wrote } else { Ran::Nothing }));
        }
    }
    if let Some(reason) = head.quarantine {
        return Ok((Acquire::Quarantined { reason }, Ran::Nothing));
    }
    let runnable = (head.execution.is_some() && !head.dormant)
        || head.owner.is_some()
        || head.has_eligible(rows)?;
    if !runnable && !even_if_idle {
        return Ok((Acquire::Idle, Ran::Nothing));
    }
    if let Some(reason) = unserved(rows, &head, taker)? {
        return Ok((Acquire::Unplaceable { reason }, Ran::Nothing));
    }
    // What was handed over and not yet accepted was not at work on its new node.
    let charge = match head.handed_until {
        Some(_) => Charge::Nothing,
        None => Charge::IfAtWork,
    };
    let tenure = take(rows, head, taker, charge)?;
    Ok((Acquire::Acquired(tenure), Ran::Wrote))
}

/// Why a node may not run the session: it does not serve its location or cannot ask its model. Any node may settle an
/// interrupted one (R9).
fn unserved(
    rows: &impl Rows,
    head: &Head,
    taker: &Incarnation,
) -> Result<Option<String>, AppendStop> {
    let settles = head.cancel || head.phase == Some(Phase::Cancelling);
    if settles || broken!(rows.switches(), PlacementIgnored) {
        return Ok(None);
    }
    let node = rows.node(taker.as_str())?;
    let check = node.map(|node| head.check_served(&node.serves));
    Ok(check.and_then(Result::err).map(|why| why.to_string()))
}

/// An own claim that nothing works on any more; anything else is for [`acquire`].
pub(crate) fn adopt(
    rows: &impl Rows,
    session: &SessionId,
    owner: &Incarnation,
) -> Result<(Acquire, Ran), AppendStop> {
    let allowed = is_active(rows, owner)?;
    let head = rows.head(session)?.filter(|head| {
        allowed && head.quarantine.is_none() && head.owner.as_deref() == Some(owner.as_str())
    });
    let Some(head) = head else {
        return acquire(rows, session, owner, false);
    };
    if head.handed_until.is_some() {
        let tenure = accept(rows, head, owner)?;
        return Ok((Acquire::Acquired(tenure), Ran::Wrote));
    }
    let charge = if broken!(rows.switches(), AdoptCharges) {
        Charge::IfAtWork
    } else {
        Charge::Nothing
    };
    Ok((
        Acquire::Acquired(take(rows, head, owner, charge)?),
        Ran::Wrote,
    ))
}

/// Accepts what was handed over (R11): the epoch rose when it was.
fn accept(rows: &impl Rows, mut head: Head, owner: &Incarnation) -> Result<Tenure, AppendStop> {
    head.handed_until = None;
    head.write_no += 1;
    head.loading = true;
    let continuation = rows.open_claim(head.sid, rows.wall_ms())?;
    rows.save(&mut head)?;
    let mut tenure = tenure(rows, &head, owner, continuation)?;
    tenure.handed_over = true;
    Ok(tenure)
}

/// What the holder of the head row's claim works with.
fn tenure(
    rows: &impl Rows,
    head: &Head,
    owner: &Incarnation,
    continuation: Option<String>,
) -> Result<Tenure, AppendStop> {
    let continuation = continuation
        .map(|input| stored_id(MessageId::parse(&input), head))
        .transpose()?;
    let claim = head.claim_id.as_deref().unwrap_or_default();
    let left = rows.effects(head.sid)?;
    let quiet = head
        .quiet_until
        .map_or(0, |until| until.saturating_sub(rows.lease_ms()));
    // Nobody has waited for what is left, and the clock may have been set: whoever comes is told, and counts by its own.
    let told = head.quiet_until.is_some() && !left.is_empty();
    let quiet = quiet.max(i64::from(told));
    Ok(Tenure {
        fence: Fence {
            claim: stored_id(ClaimId::parse(claim), head)?,
            epoch: head.epoch,
            owner: owner.clone(),
            write_no: head.write_no,
        },
        phase: head.phase.unwrap_or(Phase::Safe),
        taken_from: None,
        attempts: head.attempts,
        charged: false,
        head: head.last(),
        generation: head.generation,
        continuation,
        handed_over: false,
        quiet_ms: u64::try_from(quiet).unwrap_or(0),
        lost: head.lost.clone(),
        left,
    })
}

/// Does the session pay for the loss of its owner (R8)?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Charge {
    /// When it was doing something.
    IfAtWork,
    /// Its owner is alive.
    Nothing,
}

fn take(
    rows: &impl Rows,
    mut head: Head,
    taker: &Incarnation,
    charge: Charge,
) -> Result<Tenure, AppendStop> {
    let adopted = head.owner.as_deref() == Some(taker.as_str());
    let taken_from = head
        .owner
        .take()
        .map(|owner| stored_id(Incarnation::parse(&owner), &head))
        .transpose()?;
    let lost = match &taken_from {
        Some(owner) if !adopted && head.handed_until.is_none() => rows.node(owner.as_str())?,
        _ => None,
    };
    if broken!(rows.switches(), QuietForgotten) {
        head.end_quiet();
    }
    if let (Some(node), Some(owner)) = (&lost, &taken_from)
        && node.lease_until != PROVEN_GONE
    {
        let owner = LostOwner {
            incarnation: owner.as_str().to_owned(),
            renewal_no: node.renewal_no,
            lease_ms: node.lease_ms,
        };
        head.lose(owner, node.lease_until.saturating_add(LOCK_DELAY_MS));
    }
    // A node that stopped by itself, and says so, did not crash.
    let resigned =
        lost.as_ref().is_some_and(|node| node.resigned) && !broken!(rows.switches(), ResignCharges);
    // R8: only a session that was doing something pays for its owner's death.
    let doing = head.open_step.is_some() || head.open_compaction.is_some() || head.loading;
    let charged = taken_from.is_some()
        && doing
        && !resigned
        && charge == Charge::IfAtWork
        && !broken!(rows.switches(), NoCharge);
    if charged {
        head.attempts = head.attempts.saturating_add(1);
    }
    let found = phase_found(rows, &head);
    let takeover_keeps = broken!(rows.switches(), TakeoverKeepsEpoch);
    let adopt_keeps = broken!(rows.switches(), AdoptKeepsEpoch);
    if !(taken_from.is_some() && takeover_keeps || adopted && adopt_keeps) {
        head.epoch += 1;
    }
    head.owner = Some(taker.as_str().to_owned());
    head.claim_id = Some(claim_of(&head, taker).as_str().to_owned());
    head.write_no += 1;
    head.phase = Some(found);
    head.loading = true;
    head.cancel = false;
    head.dormant = false;
    head.handed_until = None;
    let continuation = rows.open_claim(head.sid, rows.wall_ms())?;
    rows.save(&mut head)?;
    let mut tenure = tenure(rows, &head, taker, continuation)?;
    tenure.taken_from = taken_from;
    tenure.charged = charged;
    Ok(tenure)
}

/// Where the session stands for whoever takes it now.
fn phase_found(rows: &impl Rows, head: &Head) -> Phase {
    let open =
        head.execution.is_some() && (head.open_step.is_some() || head.open_compaction.is_some());
    match head.phase {
        _ if broken!(rows.switches(), TakeoverForgetsPhase) => Phase::Safe,
        Some(phase) => phase,
        None if head.cancel => Phase::Cancelling,
        // Let go in the middle of a step, with nobody there to take it over (R11).
        None if open => Phase::Active,
        None => Phase::Safe,
    }
}

/// The claim of an owner at the head row's epoch.
pub(crate) fn claim_of(head: &Head, owner: &Incarnation) -> ClaimId {
    ClaimId::derived(&[head.id.as_str(), owner.as_str(), &head.epoch.to_string()])
}

fn stored_id<T>(id: Result<T, tenure_core::id::BadId>, head: &Head) -> Result<T, AppendStop> {
    id.map_err(|bad| super::rejected(&head.id, format!("its row is damaged: {bad}")))
}

/// A receipt as it is stored, so that a repeated key gets the first answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
enum Receipt {
    Accepted {
        seq: u64,
        execution: Option<ExecutionId>,
        owner: Option<Incarnation>,
        after_takeover: bool,
    },
    StoppedBeforeStart {
        seq: u64,
    },
}

impl From<Receipt> for Interrupted {
    fn from(receipt: Receipt) -> Self {
        match receipt {
            Receipt::Accepted {
                seq,
                execution,
                owner,
                after_takeover,
            } => Self::Accepted {
                seq,
                execution,
                owner,
                after_takeover,
            },
            Receipt::StoppedBeforeStart { seq } => Self::StoppedBeforeStart { seq },
        }
    }
}

/// R5: one unfenced, keyed transaction on the head row.
pub(crate) fn interrupt(rows: &impl Rows, asked: &Interrupt) -> Result<Interrupted, AppendStop> {
    let Some(head) = rows.head(&asked.session)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(
            asked.session.clone(),
        )));
    };
    if !broken!(rows.switches(), InterruptNotKeyed)
        && let Some(first) = receipt(rows, &head, asked)?
    {
        return Ok(first.into());
    }
    let named = asked.execution.as_ref().map(ExecutionId::as_str);
    if named.is_some() && named != head.execution.as_deref() {
        return Ok(Interrupted::AlreadyFinished);
    }
    let running = head.owner.is_some() || (head.execution.is_some() && !head.dormant);
    if !running && !head.has_eligible(rows)? {
        return Ok(Interrupted::Idle);
    }
    let execution = head
        .execution
        .as_deref()
        .map(|id| stored_id(ExecutionId::parse(id), &head))
        .transpose()?;
    let owner = head
        .owner
        .as_deref()
        .map(|id| stored_id(Incarnation::parse(id), &head))
        .transpose()?;
    let after_takeover = match &owner {
        Some(owner) => rows.is_gone(owner.as_str())?,
        None => true,
    };
    let sid = head.sid;
    let seq = record(rows, head, asked, execution.clone(), running)?;
    let answer = if running {
        Receipt::Accepted {
            seq,
            execution,
            owner,
            after_takeover,
        }
    } else {
        Receipt::StoppedBeforeStart { seq }
    };
    keep(rows, sid, asked, &answer)?;
    Ok(answer.into())
}

fn receipt(
    rows: &impl Rows,
    head: &Head,
    asked: &Interrupt,
) -> Result<Option<Receipt>, AppendStop> {
    let stored = rows.receipt(asked.interrupt.as_str())?;
    match stored {
        None => Ok(None),
        Some((sid, answer)) if sid == head.sid => Ok(serde_json::from_str(&answer).ok()),
        Some(_) => Err(super::rejected(
            &head.id,
            format!("interrupt {} was used for another session", asked.interrupt),
        )),
    }
}

fn keep(rows: &impl Rows, sid: i64, asked: &Interrupt, answer: &Receipt) -> Result<(), AppendStop> {
    let text = serde_json::to_string(answer)
        .map_err(|error| super::rejected(&asked.session, error.to_string()))?;
    Ok(rows.put_receipt(asked.interrupt.as_str(), sid, &text)?)
}

/// Writes the event and marks the claim; the event's seq.
fn record(
    rows: &impl Rows,
    mut head: Head,
    asked: &Interrupt,
    execution: Option<ExecutionId>,
    running: bool,
) -> Result<u64, AppendStop> {
    let seq = head.next_seq();
    if running {
        match head.owner {
            Some(_) => head.phase = Some(Phase::Cancelling),
            None => head.cancel = true,
        }
    }
    let body = EventBody::from(InterruptRequested {
        interrupt: asked.interrupt.clone(),
        execution,
        by: asked.by.clone(),
    });
    let event = Encoded::from(Ready {
        // The key makes the event's id: one interrupt is one event, whoever repeats it. A repetition that
        // finds no receipt is a new fact, so the seq takes part.
        id: EventId::derived(&[head.id.as_str(), asked.interrupt.as_str(), &seq.to_string()]),
        created_ms: asked.now_ms,
        text: body.encode(),
        body,
    });
    let mut work = Work::new(rows, head, false, false);
    write(&mut work, std::slice::from_ref(&event))?;
    rows.save(&mut work.head)?;
    Ok(seq)
}

/// May a node be given this session: active, live, and serving its location and model?
pub(crate) fn can_succeed(
    rows: &impl Rows,
    head: &Head,
    node: &Incarnation,
) -> Result<bool, AppendStop> {
    let Some(node) = rows.node(node.as_str())? else {
        return Ok(false);
    };
    let alive = node.state == NodeState::Active && node.leased;
    Ok((alive || broken!(rows.switches(), HandOverUntested))
        && node.serves.check(&head.location(), &head.model()).is_ok())
}

fn is_active(rows: &impl Rows, node: &Incarnation) -> Result<bool, AppendStop> {
    let node = rows.node(node.as_str())?;
    Ok(node.is_some_and(|node| node.state == NodeState::Active))
}
