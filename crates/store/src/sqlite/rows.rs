//! Rows as readers see them: sessions with their state (R4), inbox, claims, nodes, effects.

use super::event;
use super::head::{WIDTH, head_columns, labels_of, load, read};
use super::node::lease_left;
use super::reader::ReadStop;
use super::tx::{first, int, key, uint};
use crate::api::{EffectRow, Fence, ProcessId};
use crate::error::ReadError;
use crate::machine::head::{Head, phase_of};
use crate::machine::rows::shown_left;
use crate::machine::status::{self, LiveOwner};
use crate::status::*;
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use tenure_core::event::EventBody;
use tenure_core::event::body::Phase;
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tenure_core::placement::Serves;

/// What tells the living from the dead while rows are read.
pub(super) struct Now<'a> {
    pub(super) boot_ms: i64,
    pub(super) wall_ms: i64,
    pub(super) boot_id: String,
    pub(super) is_gone: &'a dyn Fn(&str) -> bool,
}

/// A session with its owner's node, as the queries below select them.
struct Seen {
    head: Head,
    eligible: bool,
    node: Option<SeenNode>,
}

struct SeenNode {
    name: String,
    dead: bool,
    boot_id: String,
    lease_until: i64,
}

const SEEN: &str = concat!(
    "SELECT ",
    head_columns!(),
    ", EXISTS (SELECT 1 FROM inbox i WHERE i.sid = s.sid AND i.state = 0 \
        AND i.seq > coalesce(s.parked_through, -1)), \
     n.name, n.state, n.boot_id, n.lease_until \
     FROM session s LEFT JOIN node n ON n.incarnation = s.owner "
);

fn seen(row: &Row<'_>) -> rusqlite::Result<Seen> {
    let head = read(row)?;
    let name: Option<String> = row.get(WIDTH + 1)?;
    let node = match name {
        None => None,
        Some(name) => Some(SeenNode {
            name,
            dead: row.get::<_, i64>(WIDTH + 2)? > 1,
            boot_id: row.get(WIDTH + 3)?,
            lease_until: row.get(WIDTH + 4)?,
        }),
    };
    Ok(Seen {
        eligible: row.get::<_, bool>(WIDTH)? && !head.dormant,
        head,
        node,
    })
}

/// Is it what is stored that cannot be read, rather than the file?
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::*;
    matches!(
        error,
        FromSqlConversionFailure(..)
            | InvalidColumnType(..)
            | IntegralValueOutOfRange(..)
            | Utf8Error(..)
    )
}

/// What lists show of a row that cannot be read. None: not even its id can be.
fn unreadable(row: &Row<'_>, why: &rusqlite::Error) -> Option<Box<SessionRow>> {
    let id = row.get::<_, String>(1).ok()?;
    tracing::debug!(session = id, %why, "a session's row cannot be read");
    let title = row.get(27).unwrap_or_default();
    let id = SessionId::parse(&id).ok()?;
    Some(Box::new(SessionRow::unreadable(
        id,
        title,
        &why.to_string(),
    )))
}

/// A row, or what lists show of one that cannot be read.
type Read = Result<Seen, Option<Box<SessionRow>>>;

fn query(
    conn: &Connection,
    tail: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Vec<Read>> {
    let mut statement = conn.prepare_cached(&format!("{SEEN}{tail}"))?;
    let rows = statement.query_map(params, |row| match seen(row) {
        Ok(seen) => Ok(Ok(seen)),
        Err(error) if is_damage(&error) => Ok(Err(unreadable(row, &error))),
        Err(error) => Err(error),
    })?;
    rows.collect()
}

fn state(seen: &Seen, now: &Now<'_>) -> Result<SessionState, BadId> {
    let live = seen.head.owner.as_deref().zip(seen.node.as_ref());
    let live = live
        .filter(|(owner, node)| !node.dead && node.boot_id == now.boot_id && !(now.is_gone)(owner));
    let live = live.map(|(_, node)| LiveOwner {
        name: &node.name,
        lease_until: node.lease_until,
    });
    status::state(&seen.head, live, seen.eligible, now.boot_ms)
}

/// Why no node that takes sessions serves this one; none when one does, or when there is no node to ask.
fn unserved(conn: &Connection, head: &Head, now: &Now<'_>) -> rusqlite::Result<Option<String>> {
    let mut statement = conn.prepare_cached(
        "SELECT incarnation, labels, roots FROM node WHERE state = 0 AND boot_id = ?1",
    )?;
    let mut rows = statement.query([&now.boot_id])?;
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        let serves = Serves {
            labels: labels_of(&row.get::<_, String>(1)?),
            roots: labels_of(&row.get::<_, String>(2)?),
        };
        if !(now.is_gone)(&row.get::<_, String>(0)?) {
            nodes.push(serves);
        }
    }
    Ok(status::unserved(head, &nodes))
}

/// Any node may settle what was interrupted (R9).
fn settles(head: &Head) -> bool {
    head.cancel || head.phase == Some(Phase::Cancelling)
}

fn session_row(conn: &Connection, seen: Seen, now: &Now<'_>) -> Result<SessionRow, ReadStop> {
    let damaged = |bad: BadId| {
        ReadStop::Error(ReadError::Damaged {
            session: seen.head.id.clone(),
            seq: seen.head.last(),
            detail: bad.to_string(),
        })
    };
    let mut state = state(&seen, now).map_err(damaged)?;
    if matches!(state, SessionState::Claimable { .. })
        && !settles(&seen.head)
        && let Some(reason) = unserved(conn, &seen.head, now)?
    {
        state = SessionState::Unplaceable { reason };
    }
    let execution = seen.head.execution.as_deref().map(ExecutionId::parse);
    let execution = execution.transpose().map_err(damaged)?;
    let parent = seen.head.forked_from.as_deref().map(SessionId::parse);
    let parent = parent.transpose().map_err(damaged)?;
    let head = seen.head;
    let (location, moving) = (head.location(), head.goes_to().cloned());
    let model = head.model();
    Ok(SessionRow {
        cancelling: settles(&head),
        head: head.last(),
        state,
        execution,
        forked_from: parent.zip(head.forked_through),
        id: head.id,
        title: head.title,
        location,
        moving,
        model,
        epoch: head.epoch,
        last_outcome: head.last_outcome,
        pending: head.pending,
        usage: head.usage,
        cost: head.cost,
        cost_incomplete: head.cost_incomplete,
        last_line: head.last_line,
        generation: head.generation,
        attempts: head.attempts,
        created_ms: head.created_ms,
        updated_ms: head.updated_ms,
    })
}

pub(super) fn session(
    conn: &Connection,
    id: &SessionId,
    now: &Now<'_>,
) -> Result<Option<SessionRow>, ReadStop> {
    let rows = query(conn, "WHERE s.id = ?1 AND s.deleted = 0", [id.as_str()])?;
    Ok(all_rows(conn, rows, now)?.into_iter().next())
}

/// Asks about each owner's lock at most once per query.
fn remembering<'a>(
    ask: &'a dyn Fn(&str) -> bool,
    known: &'a std::cell::RefCell<HashMap<String, bool>>,
) -> impl Fn(&str) -> bool + 'a {
    move |owner| {
        let mut known = known.borrow_mut();
        match known.get(owner) {
            Some(gone) => *gone,
            None => {
                let gone = ask(owner);
                known.insert(owner.to_owned(), gone);
                gone
            }
        }
    }
}

fn all_rows(
    conn: &Connection,
    rows: Vec<Read>,
    now: &Now<'_>,
) -> Result<Vec<SessionRow>, ReadStop> {
    let known = std::cell::RefCell::default();
    let ask = remembering(now.is_gone, &known);
    let now = Now {
        boot_ms: now.boot_ms,
        wall_ms: now.wall_ms,
        boot_id: now.boot_id.clone(),
        is_gone: &ask,
    };
    let mut all = Vec::with_capacity(rows.len());
    for read in rows {
        let seen = match read {
            Ok(seen) => seen,
            Err(unreadable) => {
                all.extend(unreadable.map(|row| *row));
                continue;
            }
        };
        let (id, title) = (seen.head.id.clone(), seen.head.title.clone());
        // One that cannot be read hides no other.
        all.push(match session_row(conn, seen, &now) {
            Err(ReadStop::Error(ReadError::Damaged { detail, .. })) => {
                SessionRow::unreadable(id, title, &detail)
            }
            read => read?,
        });
    }
    Ok(all)
}

pub(super) fn sessions(
    conn: &Connection,
    wanted: &SessionQuery,
    now: &Now<'_>,
) -> Result<Vec<SessionRow>, ReadStop> {
    let limit = if wanted.limit == 0 { 100 } else { wanted.limit };
    let page = params![
        wanted.directory,
        wanted.text.as_deref().map(like),
        int(limit as u64),
        int(wanted.offset as u64)
    ];
    let rows = query(
        conn,
        "WHERE s.deleted = 0 AND (?1 IS NULL OR s.directory = ?1) AND (?2 IS NULL \
         OR s.title LIKE ?2 ESCAPE '\\' OR s.last_line LIKE ?2 ESCAPE '\\') \
         ORDER BY s.activity DESC LIMIT ?3 OFFSET ?4",
        page,
    )?;
    all_rows(conn, rows, now)
}

/// A pattern that finds `text` itself anywhere.
fn like(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

/// Nodes that are neither dead nor known to be gone.
fn living(conn: &Connection, now: &Now<'_>) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        conn.prepare_cached("SELECT incarnation FROM node WHERE state < 2 AND boot_id = ?1")?;
    let rows = statement.query_map([&now.boot_id], |row| row.get::<_, String>(0))?;
    let mut living = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    living.retain(|incarnation| !(now.is_gone)(incarnation));
    Ok(living)
}

/// Oldest activity first, so that nobody starves.
pub(super) fn claimable(
    conn: &Connection,
    limit: usize,
    now: &Now<'_>,
) -> Result<Vec<SessionRow>, ReadStop> {
    // What a living node holds is not looked at: there may be thousands of sessions that wait.
    let living = serde_json::Value::from(living(conn, now)?).to_string();
    let rows = query(
        conn,
        "WHERE s.busy = 1 AND s.deleted = 0 AND s.quarantine IS NULL AND (s.owner IS NULL \
         OR s.handed_until IS NOT NULL OR s.owner NOT IN (SELECT value FROM json_each(?1))) \
         ORDER BY s.activity",
        [living],
    )?;
    let mut rows = all_rows(conn, rows, now)?;
    rows.retain(|row| matches!(row.state, SessionState::Claimable { .. }));
    rows.truncate(limit);
    Ok(rows)
}

pub(super) fn inbox(conn: &Connection, id: &SessionId) -> Result<Vec<PendingInput>, ReadStop> {
    let Some(head) = load(conn, id)? else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    let mut statement = conn.prepare_cached(
        "SELECT i.seq, i.delivery, e.type, e.version, e.body, e.created_ms \
         FROM inbox i JOIN event e ON e.key = ?2 + i.seq WHERE i.sid = ?1 AND i.state = 0 ORDER BY i.seq",
    )?;
    let mut rows = statement.query([head.sid, key(head.sid, 0)])?;
    let mut pending = Vec::new();
    while let Some(row) = rows.next()? {
        let seq = uint(row.get(0)?);
        let (name, version, body) = (
            row.get::<_, String>(2)?,
            row.get(3)?,
            row.get::<_, String>(4)?,
        );
        let data = match EventBody::decode(&name, version, &body) {
            Ok(EventBody::InputAdmitted(data)) => data,
            other => {
                let detail = match other {
                    Err(bad) => bad.to_string(),
                    Ok(_) => "it is not the input its inbox row says".to_owned(),
                };
                return Err(ReadError::Damaged {
                    session: id.clone(),
                    seq,
                    detail,
                }
                .into());
            }
        };
        pending.push(PendingInput {
            input: data.input,
            kind: data.kind,
            delivery: match row.get::<_, i64>(1)? {
                0 => tenure_core::event::body::Delivery::Steer,
                _ => tenure_core::event::body::Delivery::Queue,
            },
            seq,
            eligible: head.eligible(seq),
            admitted_ms: row.get(5)?,
        });
    }
    Ok(pending)
}

pub(super) fn effects(conn: &Connection, id: &SessionId) -> Result<Vec<EffectRow>, ReadStop> {
    let Some(head) = load(conn, id)? else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    Ok(effects_of(conn, head.sid)?)
}

pub(super) fn effects_of(conn: &Connection, sid: i64) -> rusqlite::Result<Vec<EffectRow>> {
    let mut statement = conn.prepare_cached(
        "SELECT message, call, epoch, generation, pid, pid_start, boot_id FROM effect WHERE sid = ?1",
    )?;
    let rows = statement.query_map([sid], |row| effect_row(row, 0))?;
    rows.collect()
}

/// Effect rows of calls that are over: in sessions nobody owns, or in steps that have ended.
pub(super) fn leftovers(
    conn: &Connection,
    limit: usize,
) -> Result<Vec<(SessionId, EffectRow)>, ReadStop> {
    let mut statement = conn.prepare_cached(
        "SELECT s.id, e.message, e.call, e.epoch, e.generation, e.pid, e.pid_start, e.boot_id \
         FROM effect e JOIN session s ON s.sid = e.sid \
         WHERE s.owner IS NULL OR s.open_step IS NOT e.message LIMIT ?1",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map([limit], |row| {
        let session = event::parse(0, &row.get::<_, String>(0)?, SessionId::parse)?;
        Ok((session, effect_row(row, 1)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// An effect row whose columns begin at `from`.
fn effect_row(row: &rusqlite::Row<'_>, from: usize) -> rusqlite::Result<EffectRow> {
    let process = match row.get::<_, Option<u32>>(from + 4)? {
        None => None,
        Some(pid) => Some(ProcessId {
            pid,
            pid_start: uint(row.get(from + 5)?),
            boot_id: row.get(from + 6)?,
        }),
    };
    Ok(EffectRow {
        message: event::parse(from, &row.get::<_, String>(from)?, MessageId::parse)?,
        call: CallId::new(row.get::<_, String>(from + 1)?),
        epoch: uint(row.get(from + 2)?),
        generation: uint(row.get(from + 3)?),
        process,
    })
}

/// The claim's phase and wake flag while the fence's owner still holds it.
pub(super) fn claim_phase(
    conn: &Connection,
    id: &SessionId,
    fence: &Fence,
) -> Result<Option<ClaimView>, ReadStop> {
    let Some(head) = load(conn, id)? else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    let holds = head.epoch == fence.epoch
        && head.owner.as_deref() == Some(fence.owner.as_str())
        && head.claim_id.as_deref() == Some(fence.claim.as_str());
    let Some(phase) = head.phase.filter(|_| holds) else {
        return Ok(None);
    };
    Ok(Some(ClaimView {
        phase,
        wake_pending: wake_pending(conn, head.sid)?,
    }))
}

/// What an owner holds, by the index of owners.
pub(super) fn held(conn: &Connection, owner: &Incarnation) -> Result<Vec<HeldClaim>, ReadStop> {
    let mut statement = conn.prepare_cached(
        "SELECT id, claim_id, epoch, phase, head, handed_until IS NOT NULL FROM session \
         WHERE owner = ?1 AND claim_id IS NOT NULL AND phase IS NOT NULL ORDER BY id",
    )?;
    let rows = statement.query_map([owner.as_str()], |row| {
        Ok(HeldClaim {
            session: event::parse(0, &row.get::<_, String>(0)?, SessionId::parse)?,
            claim: event::parse(1, &row.get::<_, String>(1)?, ClaimId::parse)?,
            epoch: uint(row.get(2)?),
            phase: phase_of(row.get(3)?),
            head: row.get::<_, Option<i64>>(4)?.map_or(0, uint),
            handed: row.get(5)?,
        })
    })?;
    readable(rows)
}

pub(super) fn claims(conn: &Connection, now: &Now<'_>) -> Result<Vec<ClaimRow>, ReadStop> {
    let mut statement = conn.prepare_cached(
        "SELECT s.claim_id, s.id, s.owner, s.epoch, s.phase, c.assistant_message_id, c.assistant_seq, \
         c.recovery_input_id, c.recovery_error, c.wake_pending, s.attempts, n.lease_until, c.created_ms \
         FROM claim c JOIN session s ON s.sid = c.sid LEFT JOIN node n ON n.incarnation = s.owner \
         WHERE s.owner IS NOT NULL ORDER BY c.created_ms, s.sid",
    )?;
    let rows = statement.query_map([], |row| {
        let maybe_message = |i: usize| {
            let text: Option<String> = row.get(i)?;
            text.map(|text| event::parse(i, &text, MessageId::parse))
                .transpose()
        };
        let left = row
            .get::<_, Option<i64>>(11)?
            .map_or(0, |until| lease_left(until, now.boot_ms));
        let left = shown_left(left);
        Ok(ClaimRow {
            id: event::parse(0, &row.get::<_, String>(0)?, ClaimId::parse)?,
            session: event::parse(1, &row.get::<_, String>(1)?, SessionId::parse)?,
            owner: event::parse(2, &row.get::<_, String>(2)?, Incarnation::parse)?,
            epoch: uint(row.get(3)?),
            phase: phase_of(row.get(4)?),
            assistant_message_id: maybe_message(5)?,
            assistant_seq: row.get::<_, Option<i64>>(6)?.map(uint),
            recovery_input_id: maybe_message(7)?,
            recovery_error: row.get(8)?,
            wake_pending: row.get(9)?,
            attempts: row.get(10)?,
            expires_at: now.wall_ms.saturating_add(left),
            time_created: row.get(12)?,
            held_ms: uint(now.wall_ms.saturating_sub(row.get(12)?).max(0)),
        })
    })?;
    readable(rows)
}

/// The rows that can be read; the others are passed over, and said.
fn readable<T>(rows: impl Iterator<Item = rusqlite::Result<T>>) -> Result<Vec<T>, ReadStop> {
    let mut all = Vec::new();
    for read in rows {
        match read {
            Err(why) if is_damage(&why) => tracing::warn!(%why, "a claim cannot be read"),
            read => all.push(read?),
        }
    }
    Ok(all)
}

pub(super) fn nodes(conn: &Connection, now: &Now<'_>) -> Result<Vec<NodeRow>, ReadStop> {
    let mut statement = conn.prepare_cached(
        "SELECT incarnation, name, address, state, pid, lease_until, boot_id, labels, roots, \
         (SELECT count(*) FROM session s WHERE s.owner = node.incarnation) \
         FROM node WHERE state < 2 ORDER BY joined_ms, incarnation",
    )?;
    let rows = statement.query_map([], |row| {
        let same_boot = row.get::<_, String>(6)? == now.boot_id;
        Ok(NodeRow {
            incarnation: event::parse(0, &row.get::<_, String>(0)?, Incarnation::parse)?,
            name: row.get(1)?,
            address: row.get(2)?,
            draining: row.get::<_, i64>(3)? == 1,
            pid: row.get(4)?,
            // The clock of another boot says nothing: that node is gone.
            lease_ms: if same_boot {
                lease_left(row.get(5)?, now.boot_ms)
            } else {
                -1
            },
            labels: labels_of(&row.get::<_, String>(7)?),
            roots: labels_of(&row.get::<_, String>(8)?),
            sessions: row.get(9)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The head of a session for a page, with the cursor checked.
pub(super) fn head_for(
    conn: &Connection,
    id: &SessionId,
    after: Option<u64>,
) -> Result<Head, ReadStop> {
    let Some(head) = load(conn, id)? else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    if let Some(after) = after
        && head.head.is_none_or(|last| after > last)
    {
        return Err(ReadError::CursorBeyondHead {
            session: id.clone(),
            after,
            head: head.last(),
        }
        .into());
    }
    Ok(head)
}

/// The wake flag of a claim.
fn wake_pending(conn: &Connection, sid: i64) -> rusqlite::Result<bool> {
    let sql = "SELECT wake_pending FROM claim WHERE sid = ?1";
    first(conn, sql, [sid], |row| row.get::<_, bool>(0)).map(|flag| flag == Some(true))
}

/// How many rows a table holds that a condition is true of.
pub(super) fn count(conn: &Connection, sql: &str) -> rusqlite::Result<u64> {
    first(conn, sql, [], |row| row.get::<_, i64>(0)).map(|n| uint(n.unwrap_or(0)))
}
