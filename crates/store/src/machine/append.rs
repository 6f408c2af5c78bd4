//! One append inside its transaction: fence, seqs, projectors, operations, insert.

use super::event::Encoded;
use super::head::Head;
use super::hook;
use super::project::{Work, needs_fence, project};
use super::rows::Rows;
use super::{AppendStop, MAX_SEQ, Stop, rejected};
use crate::api::{Committed, Fence, Guard, HookOp};
use crate::error::AppendError;
use tenure_core::event::body::Phase;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{EventId, SessionId};

/// What an append wants, its bodies encoded and checked.
pub(crate) struct Wanted {
    pub(crate) session: SessionId,
    pub(crate) fence: Option<Fence>,
    pub(crate) guard: Guard,
    pub(crate) events: Vec<Encoded>,
    pub(crate) ops: Vec<HookOp>,
}

/// Runs the append. Nothing it wrote stands when it is refused: the caller rolls back to its savepoint.
pub(crate) fn run(rows: &impl Rows, wanted: &Wanted) -> Result<Committed, AppendStop> {
    let head = open(rows, wanted)?;
    if let Some(fence) = &wanted.fence {
        check_fence(rows, &head, fence)?;
        check_guard(rows, &head, wanted.guard)?;
    }
    if let Some(stored) = duplicate(rows, &head, &wanted.events)? {
        return Ok(Committed {
            events: stored,
            head: head.last(),
            write_no: head.write_no,
            duplicate: true,
        });
    }
    let fenced = wanted.fence.is_some();
    check_types(&head, &wanted.events, fenced)?;
    let mut work = Work::new(rows, head, fenced, false);
    let events = write(&mut work, &wanted.events)?;
    for op in &wanted.ops {
        hook::run(&mut work, op)?;
    }
    let mut head = work.head;
    if fenced {
        head.write_no += 1;
    }
    // An append of nothing is a place in the session's line: it waits for those before it, and writes none.
    if fenced || !events.is_empty() || !wanted.ops.is_empty() {
        rows.save(&mut head)?;
    }
    Ok(Committed {
        events,
        head: head.last(),
        write_no: head.write_no,
        duplicate: false,
    })
}

/// The session's head row; a new one when the batch begins with `session.created`.
fn open(rows: &impl Rows, wanted: &Wanted) -> Result<Head, AppendStop> {
    let creates = matches!(
        wanted.events.first().map(|event| &event.body),
        Some(EventBody::SessionCreated(_))
    );
    match rows.head(&wanted.session)? {
        Some(head) => Ok(head),
        None if creates && wanted.fence.is_none() => Ok(rows.new_head(&wanted.session)?),
        None => Err(Stop::Refused(AppendError::UnknownSession(
            wanted.session.clone(),
        ))),
    }
}

/// R1: all four must match.
pub(crate) fn check_fence(rows: &impl Rows, head: &Head, fence: &Fence) -> Result<(), AppendStop> {
    let epoch = head.epoch == fence.epoch || broken!(rows.switches(), NoFenceEpoch);
    let owner = head.owner.as_deref() == Some(fence.owner.as_str())
        || broken!(rows.switches(), NoFenceOwner);
    let claim = head.claim_id.as_deref() == Some(fence.claim.as_str())
        || broken!(rows.switches(), NoFenceClaim);
    let write_no = head.write_no == fence.write_no || broken!(rows.switches(), NoFenceWriteNo);
    if epoch && owner && claim && write_no {
        return Ok(());
    }
    Err(Stop::Refused(stale(head, fence)))
}

/// The log lacks what this owner was told is in it. Nothing but a log that was set back has a smaller epoch, or under
/// the same claim a smaller `write_no`: neither ever falls, and a fence holds only what was confirmed.
fn is_set_back(head: &Head, fence: &Fence) -> bool {
    let same = head.epoch == fence.epoch && head.claim_id.as_deref() == Some(fence.claim.as_str());
    head.epoch < fence.epoch || same && head.write_no < fence.write_no
}

/// Why a fence does not match.
fn stale(head: &Head, fence: &Fence) -> AppendError {
    let session = head.id.clone();
    match is_set_back(head, fence) {
        true => AppendError::Rewound { session },
        false => AppendError::StaleClaim { session },
    }
}

/// R2: while an interrupt is settled, nothing starts.
fn check_guard(rows: &impl Rows, head: &Head, guard: Guard) -> Result<(), AppendStop> {
    let starts = guard == Guard::Running && head.phase == Some(Phase::Cancelling);
    if starts && !broken!(rows.switches(), NoGuardCancelling) {
        return Err(Stop::Refused(AppendError::Cancelling {
            session: head.id.clone(),
        }));
    }
    Ok(())
}

/// The stored events when the whole batch is in the log already; none when it is new.
fn duplicate(
    rows: &impl Rows,
    head: &Head,
    events: &[Encoded],
) -> Result<Option<Vec<Event>>, AppendStop> {
    if broken!(rows.switches(), NotIdempotent) {
        return Ok(None);
    }
    let mut stored = Vec::new();
    let mut fresh = None;
    for event in events {
        match rows.event(head.sid, &event.id)? {
            None => fresh = fresh.or(Some(&event.id)),
            Some(row) => {
                let same = row.sid == head.sid
                    && row.type_name == event.body.type_name()
                    && row.version == event.body.version()
                    && row.body == event.text;
                let known = same.then(|| row.decode(&head.id).ok()).flatten();
                stored.push(known.ok_or_else(|| conflict(head, &event.id))?);
            }
        }
    }
    match fresh {
        Some(_) if stored.is_empty() => Ok(None),
        // A part of it is there under other company: that is another batch.
        Some(_) => Err(conflict(head, &stored[0].id)),
        None if events.is_empty() => Ok(None),
        None => Ok(Some(stored)),
    }
}

fn conflict(head: &Head, event: &EventId) -> AppendStop {
    Stop::Refused(AppendError::Conflict {
        session: head.id.clone(),
        event: event.clone(),
    })
}

/// What may stand where, and under a fence or not.
fn check_types(head: &Head, events: &[Encoded], fenced: bool) -> Result<(), AppendStop> {
    for (index, event) in events.iter().enumerate() {
        match &event.body {
            EventBody::SessionCreated(_) if index == 0 && head.head.is_none() => {}
            EventBody::SessionCreated(_) => {
                return Err(Stop::Refused(AppendError::SessionExists(head.id.clone())));
            }
            EventBody::SessionForked(_) => {
                return Err(rejected(&head.id, "`session.forked` is written by `fork`"));
            }
            EventBody::Unknown(unknown) => {
                let reason = format!("event type {} is not known", unknown.type_name);
                return Err(rejected(&head.id, reason));
            }
            body if !fenced && needs_fence(body) => {
                let reason = format!("`{}` is for the holder of tenure only", body.type_name());
                return Err(rejected(&head.id, reason));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Assigns seqs, projects and inserts.
pub(crate) fn write(
    work: &mut Work<'_, impl Rows>,
    events: &[Encoded],
) -> Result<Vec<Event>, AppendStop> {
    let epoch = work.fenced.then_some(work.head.epoch);
    let mut written = Vec::with_capacity(events.len());
    for event in events {
        let seq = work.head.next_seq();
        if seq > MAX_SEQ {
            return Err(rejected(&work.head.id, "the session is full; fork it"));
        }
        project(work, seq, event)?;
        work.rows.put_event(work.head.sid, seq, epoch, event)?;
        work.head.head = Some(seq);
        written.push(Event {
            id: event.id.clone(),
            session: work.head.id.clone(),
            seq,
            epoch,
            created_ms: event.created_ms,
            body: event.body.clone(),
        });
    }
    Ok(written)
}

/// Is a write without events that was sent under `fence` the hand-over that the head row shows? It raises the epoch,
/// and leaves nobody, or a successor that has not accepted yet. Whoever takes a session becomes its owner at once,
/// and whoever lets it go after that has raised `write_no` again. Once the successor has accepted, nothing tells any
/// more, and nobody needs to be told.
fn gave_away(head: &Head, fence: &Fence) -> bool {
    head.epoch == fence.epoch + 1
        && head.write_no == fence.write_no + 1
        && (head.owner.is_none() || head.handed_until.is_some())
}

/// R3: after an unknown commit. Says whether the batch is in the log; if not, raises `write_no`, so that a late
/// ghost of the batch fails its fence. Doing it again changes nothing.
pub(crate) fn resolve(
    rows: &impl Rows,
    session: &SessionId,
    fence: &Fence,
    ids: &[EventId],
) -> Result<Option<Committed>, AppendStop> {
    let Some(mut head) = rows.head(session)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(session.clone())));
    };
    let mut events = Vec::with_capacity(ids.len());
    for id in ids {
        match rows.event(head.sid, id)? {
            Some(row) if row.sid == head.sid => {
                let event = row
                    .decode(session)
                    .map_err(|detail| rejected(session, detail))?;
                events.push(event);
            }
            _ => break,
        }
    }
    let ours = head.epoch == fence.epoch
        && head.claim_id.as_deref() == Some(fence.claim.as_str())
        && head.owner.as_deref() == Some(fence.owner.as_str());
    // Operations without events leave no id. Under this epoch only the batch itself, which may have ended the
    // claim, raises `write_no` by one: giving it up raises it by more.
    let moved = head.epoch == fence.epoch && head.write_no == fence.write_no + 1;
    let found = if ids.is_empty() {
        moved || gave_away(&head, fence)
    } else {
        events.len() == ids.len()
    };
    if found {
        let committed = Committed {
            events,
            head: head.last(),
            write_no: head.write_no,
            duplicate: false,
        };
        return Ok(Some(committed));
    }
    // Raising `write_no` over what the log lacks would let a memory that is ahead of it write on.
    let set_back = is_set_back(&head, fence) && !broken!(rows.switches(), ResolveOverLost);
    if !ours || set_back {
        return Err(Stop::Refused(stale(&head, fence)));
    }
    let given_up = if broken!(rows.switches(), ResolveLooksDone) {
        fence.write_no + 1
    } else {
        fence.given_up().write_no
    };
    if broken!(rows.switches(), ResolveRaisesAgain) {
        head.write_no = head.write_no.max(fence.write_no) + 2;
        rows.save(&mut head)?;
    } else if head.write_no < given_up && !broken!(rows.switches(), ResolveKeepsWriteNo) {
        head.write_no = given_up;
        rows.save(&mut head)?;
    }
    Ok(None)
}
