//! Replaying an export: every projection rebuilt, nothing started, nothing guessed.

mod once;

use super::check;
use super::event::{Encoded, Ready, Stored};
use super::head::Head;
use super::project::{Work, project};
use super::rows::Rows;
use super::{AppendStop, MAX_SEQ, Stop};
use crate::api::Replayed;
use crate::error::{AppendError, ReplayError};
use once::Once;
use std::collections::HashSet;
use tenure_core::event::{EventBody, EventRecord};
use tenure_core::id::SessionId;

/// An exported event, read and checked, with the line it stood on.
pub(crate) struct Line {
    line: u64,
    seq: u64,
    epoch: Option<u64>,
    /// The highest epoch up to here.
    highest: u64,
    event: Encoded,
}

/// Reads the lines of an export: dense, of this session, of known types.
pub(crate) fn read_lines(
    session: &SessionId,
    records: Vec<EventRecord>,
    accept_gaps: bool,
) -> Result<Vec<Line>, ReplayError> {
    let mut lines: Vec<Line> = Vec::with_capacity(records.len());
    let mut once = Once::default();
    for (index, record) in records.into_iter().enumerate() {
        let line = index as u64 + 1;
        let bad = |detail: String| ReplayError::BadEvent { line, detail };
        if &record.session != session {
            let detail = format!("it belongs to {}, not to {session}", record.session);
            return Err(bad(detail));
        }
        if let Some(last) = lines.last()
            && record.seq != last.seq + 1
            && !accept_gaps
        {
            return Err(ReplayError::Gap {
                line,
                expected: last.seq + 1,
                found: record.seq,
            });
        }
        if record.seq > MAX_SEQ {
            return Err(bad(format!("seq {} is too large", record.seq)));
        }
        if let Some(problem) = misplaced(&record, lines.last()) {
            return Err(bad(problem));
        }
        let text = record.data.get().to_owned();
        if let Some(problem) = check::problem(&text) {
            return Err(bad(problem));
        }
        let body = EventBody::decode(&record.type_name, record.version, &text)
            .map_err(|error| bad(error.to_string()))?;
        if matches!(body, EventBody::Unknown(_)) {
            return Err(ReplayError::UnknownType {
                line,
                type_name: record.type_name,
                version: record.version,
            });
        }
        if let Some(problem) = elsewhere(&body).or_else(|| once.problem(&body)) {
            return Err(bad(problem));
        }
        let highest = lines.last().map_or(0, |line| line.highest);
        lines.push(Line {
            line,
            seq: record.seq,
            epoch: record.epoch,
            highest: highest.max(record.epoch.unwrap_or(0)),
            event: Encoded::from(Ready {
                id: record.id,
                created_ms: record.created_ms,
                body,
                text,
            }),
        });
    }
    Ok(lines)
}

/// What is wrong with the numbers of a line, given the one before it.
fn misplaced(record: &EventRecord, before: Option<&Line>) -> Option<String> {
    if record.created_ms < 0 {
        return Some(format!(
            "its time, {} ms, is before 1970",
            record.created_ms
        ));
    }
    let epoch = record.epoch?;
    if epoch > MAX_SEQ {
        return Some(format!("epoch {epoch} is too large"));
    }
    let highest = before.map_or(0, |line| line.highest);
    (epoch < highest).then(|| format!("epoch {epoch} follows epoch {highest}: epochs never fall"))
}

/// What is wrong with the place a session is to be at.
fn elsewhere(body: &EventBody) -> Option<String> {
    let location = match body {
        EventBody::SessionCreated(data) => &data.location,
        EventBody::AttachmentReplaced(data) => &data.location,
        _ => return None,
    };
    let directory = &location.directory;
    (!std::path::Path::new(directory).is_absolute())
        .then(|| format!("its directory, `{directory}`, is not an absolute path"))
}

/// Inserts what is new and compares what is there.
pub(crate) fn replay(
    rows: &impl Rows,
    session: &SessionId,
    lines: &[Line],
) -> Result<Replayed, Stop<ReplayError>> {
    let mut done = Replayed {
        inserted: 0,
        equal: 0,
    };
    let Some(begin) = lines.first() else {
        return Ok(done);
    };
    let head = open(rows, session, begin)?;
    let known = head.head;
    let gaps = broken!(rows.switches(), ReplayAcceptsGap);
    if let Some(last) = known {
        if begin.seq > last + 1 && !gaps {
            return Err(gap(begin, last + 1));
        }
        done.equal = compare(rows, &head, lines)?;
    } else if begin.seq != 0 && !gaps {
        return Err(gap(begin, 0));
    }
    let fresh = &lines[usize::try_from(done.equal).unwrap_or(0)..];
    if fresh.is_empty() {
        return Ok(done);
    }
    if head.owner.is_some() {
        return Err(Stop::Refused(ReplayError::BadEvent {
            line: fresh[0].line,
            detail: "the session is running here; interrupt it first".to_owned(),
        }));
    }
    let mut work = Work::new(rows, head, false, true);
    let family = family(session, lines);
    for line in fresh {
        insert(&mut work, line, &family)?;
        done.inserted += 1;
    }
    let mut head = work.head;
    // Starts nothing: what is open or pending rests until somebody wakes it.
    head.dormant = head.execution.is_some() || head.pending > 0;
    rows.save(&mut head)?;
    Ok(done)
}

fn open(rows: &impl Rows, session: &SessionId, begin: &Line) -> Result<Head, Stop<ReplayError>> {
    if let Some(head) = rows.head(session)? {
        return Ok(head);
    }
    if begin.seq == 0 && !matches!(begin.event.body, EventBody::SessionCreated(_)) {
        return Err(Stop::Refused(ReplayError::BadEvent {
            line: begin.line,
            detail: "a session begins with `session.created`".to_owned(),
        }));
    }
    Ok(rows.new_head(session)?)
}

fn gap(line: &Line, expected: u64) -> Stop<ReplayError> {
    Stop::Refused(ReplayError::Gap {
        line: line.line,
        expected,
        found: line.seq,
    })
}

/// How many of the lines, from the first on, are stored already. All of them must be equal.
fn compare(rows: &impl Rows, head: &Head, lines: &[Line]) -> Result<u64, Stop<ReplayError>> {
    let mut equal = 0;
    let mut divergent = None;
    let stored = rows.events_from(head, lines[0].seq, lines.len())?;
    for (stored, line) in stored.iter().zip(lines) {
        if !is_stored_as(stored, line) {
            divergent = Some(line.seq);
            break;
        }
        equal += 1;
    }
    match divergent {
        Some(seq) => Err(Stop::Refused(ReplayError::Divergent { seq })),
        None => Ok(equal),
    }
}

/// The session and those whose events it shares, as its own log names them.
fn family(session: &SessionId, lines: &[Line]) -> HashSet<String> {
    let parents = lines.iter().filter_map(|line| match &line.event.body {
        EventBody::SessionForked(forked) => Some(forked.parent.to_string()),
        _ => None,
    });
    std::iter::once(session.to_string())
        .chain(parents)
        .collect()
}

/// Is a stored session one of the family, or a fork of one?
fn is_kin(rows: &impl Rows, sid: i64, family: &HashSet<String>) -> Result<bool, Stop<ReplayError>> {
    let Some(kin) = rows.kin(sid)? else {
        return Ok(false);
    };
    // A deleted session whose events forks keep has its sid behind its id.
    let name = kin.id.split('#').next().unwrap_or_default();
    Ok(family.contains(name) || kin.parents.iter().any(|parent| family.contains(parent)))
}

fn is_stored_as(stored: &Stored, line: &Line) -> bool {
    stored.seq == line.seq
        && stored.id == line.event.id.as_str()
        && stored.epoch == line.epoch
        && stored.created_ms == line.event.created_ms
        && stored.type_name == line.event.body.type_name()
        && stored.version == line.event.body.version()
        && stored.body == line.event.text
}

fn insert(
    work: &mut Work<'_, impl Rows>,
    line: &Line,
    family: &HashSet<String>,
) -> Result<(), Stop<ReplayError>> {
    if let Some(row) = work.rows.event(work.head.sid, &line.event.id)? {
        // A fork is exported with the events it shares: beside its parent, or another fork, they are there already,
        // in the same place and equal. Anything else is another event under a used id.
        let shared = row.sid != work.head.sid && is_stored_as(&row, line);
        if !shared || !is_kin(work.rows, row.sid, family)? {
            return Err(Stop::Refused(ReplayError::BadEvent {
                line: line.line,
                detail: format!(
                    "event {} is in this store already, as seq {} of another log or place",
                    row.id, row.seq
                ),
            }));
        }
    }
    work.fenced = line.epoch.is_some();
    project(work, line.seq, &line.event).map_err(|stop| as_replay(line, stop))?;
    work.rows
        .put_event(work.head.sid, line.seq, line.epoch, &line.event)?;
    work.head.head = Some(line.seq);
    work.head.epoch = work.head.epoch.max(line.epoch.unwrap_or(0));
    work.generation = work.head.generation;
    Ok(())
}

fn as_replay(line: &Line, stop: AppendStop) -> Stop<ReplayError> {
    match stop {
        Stop::Failed(error) => Stop::Failed(error),
        Stop::Refused(refusal) => Stop::Refused(ReplayError::BadEvent {
            line: line.line,
            detail: match refusal {
                AppendError::Rejected { reason, .. } => reason,
                other => other.to_string(),
            },
        }),
    }
}
