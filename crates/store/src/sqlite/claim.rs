//! Taking tenure, and stopping it: acquire (R1, R7, R8) and interrupt (R5).

use super::append::write;
use super::event::Encoded;
use super::head::Head;
use super::job::Ran;
use super::node::{self, NodeState};
use super::project::Work;
use super::tx::{AppendStop, Stop, Tx, uint};
use crate::api::{Acquire, Fence, Interrupt, Interrupted, Tenure};
use crate::error::AppendError;
use rusqlite::params;
use serde::{Deserialize, Serialize};
use tenure_core::event::EventBody;
use tenure_core::event::body::{InterruptRequested, Phase};
use tenure_core::id::{ClaimId, EventId, ExecutionId, Incarnation, MessageId, SessionId};

/// One conditional write on the head row.
pub(super) fn acquire(
    tx: &Tx<'_>,
    session: &SessionId,
    taker: &Incarnation,
    even_if_idle: bool,
) -> Result<(Acquire, Ran), AppendStop> {
    let Some(mut head) = Head::load(tx.conn, session)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(session.clone())));
    };
    let allowed = node::state(tx.conn, taker.as_str())? == Some(NodeState::Active);
    if !allowed && !broken!(tx.switches, AcquireWhenDraining) {
        return Ok((Acquire::NotAllowed, Ran::Nothing));
    }
    if let Some(owner) = head.owner.clone() {
        let dead = node::gone(tx.conn, &owner)?;
        if !dead && !broken!(tx.switches, TakeoverOfLive) {
            let wake = "UPDATE claim SET wake_pending = 1 WHERE sid = ?1 AND wake_pending = 0";
            let news = tx.exec(wake, [head.sid])? > 0;
            if news {
                head.save(tx)?;
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
        || head.has_eligible(tx.conn)?;
    if !runnable && !even_if_idle {
        return Ok((Acquire::Idle, Ran::Nothing));
    }
    let tenure = take(tx, head, taker, Charge::IfAtWork)?;
    Ok((Acquire::Acquired(tenure), Ran::Wrote))
}

/// An own claim that nothing works on any more; anything else is for [`acquire`].
pub(super) fn adopt(
    tx: &Tx<'_>,
    session: &SessionId,
    owner: &Incarnation,
) -> Result<(Acquire, Ran), AppendStop> {
    let allowed = node::state(tx.conn, owner.as_str())? == Some(NodeState::Active);
    let head = Head::load(tx.conn, session)?.filter(|head| {
        allowed && head.quarantine.is_none() && head.owner.as_deref() == Some(owner.as_str())
    });
    let Some(head) = head else {
        return acquire(tx, session, owner, false);
    };
    let charge = if broken!(tx.switches, AdoptCharges) {
        Charge::IfAtWork
    } else {
        Charge::Nothing
    };
    Ok((
        Acquire::Acquired(take(tx, head, owner, charge)?),
        Ran::Wrote,
    ))
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
    tx: &Tx<'_>,
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
    // R8: only a session that was doing something pays for its owner's death.
    let doing = head.open_step.is_some() || head.open_compaction.is_some() || head.loading;
    let charged = taken_from.is_some()
        && doing
        && charge == Charge::IfAtWork
        && !broken!(tx.switches, NoCharge);
    if charged {
        head.attempts = head.attempts.saturating_add(1);
    }
    let found = match head.phase {
        Some(phase) if !broken!(tx.switches, TakeoverForgetsPhase) => phase,
        _ if head.cancel => Phase::Cancelling,
        _ => Phase::Safe,
    };
    let takeover_keeps = broken!(tx.switches, TakeoverKeepsEpoch);
    let adopt_keeps = broken!(tx.switches, AdoptKeepsEpoch);
    if !(taken_from.is_some() && takeover_keeps || adopted && adopt_keeps) {
        head.epoch += 1;
    }
    let claim = ClaimId::derived(&[head.id.as_str(), taker.as_str(), &head.epoch.to_string()]);
    head.owner = Some(taker.as_str().to_owned());
    head.claim_id = Some(claim.as_str().to_owned());
    head.write_no += 1;
    head.phase = Some(found);
    head.loading = true;
    head.cancel = false;
    head.dormant = false;
    let continuation: Option<String> = tx
        .first(
            "SELECT recovery_input_id FROM claim WHERE sid = ?1",
            [head.sid],
            |row| row.get(0),
        )?
        .flatten();
    tx.exec(
        "INSERT INTO claim(sid, wake_pending, created_ms) VALUES (?1, 0, ?2) \
         ON CONFLICT(sid) DO UPDATE SET wake_pending = 0, created_ms = excluded.created_ms",
        params![head.sid, tx.wall_ms],
    )?;
    head.save(tx)?;
    let continuation = continuation
        .map(|input| stored_id(MessageId::parse(&input), &head))
        .transpose()?;
    Ok(Tenure {
        fence: Fence {
            claim,
            epoch: head.epoch,
            owner: taker.clone(),
            write_no: head.write_no,
        },
        phase: found,
        taken_from,
        attempts: head.attempts,
        charged,
        head: head.last(),
        generation: head.generation,
        continuation,
    })
}

fn stored_id<T>(id: Result<T, tenure_core::id::BadId>, head: &Head) -> Result<T, AppendStop> {
    id.map_err(|bad| super::tx::rejected(&head.id, format!("its row is damaged: {bad}")))
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
pub(super) fn interrupt(tx: &Tx<'_>, asked: &Interrupt) -> Result<Interrupted, AppendStop> {
    let Some(head) = Head::load(tx.conn, &asked.session)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(
            asked.session.clone(),
        )));
    };
    if !broken!(tx.switches, InterruptNotKeyed)
        && let Some(first) = receipt(tx, &head, asked)?
    {
        return Ok(first.into());
    }
    let named = asked.execution.as_ref().map(ExecutionId::as_str);
    if named.is_some() && named != head.execution.as_deref() {
        return Ok(Interrupted::AlreadyFinished);
    }
    let running = head.owner.is_some() || (head.execution.is_some() && !head.dormant);
    if !running && !head.has_eligible(tx.conn)? {
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
        Some(owner) => node::gone(tx.conn, owner.as_str())?,
        None => true,
    };
    let seq = record(tx, head, asked, execution.clone(), running)?;
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
    keep(tx, asked, &answer)?;
    Ok(answer.into())
}

fn receipt(tx: &Tx<'_>, head: &Head, asked: &Interrupt) -> Result<Option<Receipt>, AppendStop> {
    let stored = tx.first(
        "SELECT sid, answer FROM receipt WHERE key = ?1",
        [asked.interrupt.as_str()],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
    )?;
    match stored {
        None => Ok(None),
        Some((sid, answer)) if sid == head.sid => Ok(serde_json::from_str(&answer).ok()),
        Some(_) => Err(super::tx::rejected(
            &head.id,
            format!("interrupt {} was used for another session", asked.interrupt),
        )),
    }
}

fn keep(tx: &Tx<'_>, asked: &Interrupt, answer: &Receipt) -> Result<(), AppendStop> {
    let text = serde_json::to_string(answer)
        .map_err(|error| super::tx::rejected(&asked.session, error.to_string()))?;
    tx.exec(
        "INSERT OR REPLACE INTO receipt(key, sid, answer) \
         SELECT ?1, sid, ?3 FROM session WHERE id = ?2",
        params![asked.interrupt.as_str(), asked.session.as_str(), text],
    )?;
    Ok(())
}

/// Writes the event and marks the claim; the event's seq.
fn record(
    tx: &Tx<'_>,
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
    let event = Encoded {
        // The key makes the event's id: one interrupt is one event, whoever repeats it. A repetition that
        // finds no receipt is a new fact, so the seq takes part.
        id: EventId::derived(&[head.id.as_str(), asked.interrupt.as_str(), &seq.to_string()]),
        created_ms: asked.now_ms,
        text: body.encode(),
        body,
    };
    let mut work = Work::new(tx, head, false, false);
    write(&mut work, std::slice::from_ref(&event))?;
    work.head.save(tx)?;
    Ok(seq)
}

/// The wake flag of a claim.
pub(super) fn wake_pending(conn: &rusqlite::Connection, sid: i64) -> rusqlite::Result<bool> {
    super::tx::first(
        conn,
        "SELECT wake_pending FROM claim WHERE sid = ?1",
        [sid],
        |row| row.get::<_, i64>(0).map(uint),
    )
    .map(|flag| flag == Some(1))
}
