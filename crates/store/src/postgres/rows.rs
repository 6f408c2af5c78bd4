//! Rows as readers see them: sessions with their state (R4), inbox, claims, nodes, effects, checkpoints.

use super::conn::Conn;
use super::load::{chain, read_stored};
use super::session::{Damaged, WIDTH, delivery_of, head_columns, process_of, read_head};
use super::sql::{int, params, uint};
use super::trouble::Trouble;
use crate::api::{Checkpoint, EffectRow, Fence, Page};
use crate::error::ReadError;
use crate::machine::event::Stored;
use crate::machine::head::{Head, phase_of};
use crate::machine::rows::shown_left;
use crate::machine::status::{self, LiveOwner};
use crate::status::*;
use tenure_core::event::EventBody;
use tenure_core::event::body::Phase;
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tenure_core::placement::Serves;
use tokio_postgres::Row;

/// Bytes of bodies after which a page ends early.
const PAGE_BYTES: i64 = 32 << 20;
/// Claimable sessions looked at in one go.
const LOOK: i64 = 500;

/// Why a read stops.
#[derive(Debug)]
pub(super) enum ReadStop {
    Error(ReadError),
    Trouble(Trouble),
}

impl ReadStop {
    fn words(&self) -> String {
        match self {
            Self::Error(ReadError::Unavailable { reason }) => reason.clone(),
            Self::Error(error) => error.to_string(),
            Self::Trouble(trouble) => trouble.words(),
        }
    }
}

impl From<Trouble> for ReadStop {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl From<ReadError> for ReadStop {
    fn from(error: ReadError) -> Self {
        Self::Error(error)
    }
}

impl From<Damaged> for ReadStop {
    fn from(damaged: Damaged) -> Self {
        Self::Error(ReadError::Unavailable { reason: damaged.0 })
    }
}

/// A stored id of the wrong shape is damage.
fn parse<T>(text: &str, read: impl Fn(&str) -> Result<T, BadId>) -> Result<T, ReadStop> {
    read(text).map_err(|bad| ReadStop::from(Damaged(bad.to_string())))
}

/// A session with its owner's node, as the queries below select them.
struct Seen {
    head: Head,
    eligible: bool,
    node: Option<SeenNode>,
    /// The clock leases are judged by.
    now: i64,
}

struct SeenNode {
    name: String,
    dead: bool,
    lease_until: i64,
}

/// Each session with whether something waits, its owner's node, and the time.
macro_rules! seen {
    () => {
        concat!(
            "SELECT ",
            head_columns!(),
            ", s.runnable, n.name, n.state, n.lease_until, @.lease_clock() \
             FROM @.session s LEFT JOIN @.node n ON n.incarnation = s.owner "
        )
    };
}

fn seen(row: &Row) -> Result<Seen, Damaged> {
    let head = read_head(row)?;
    let name: Option<String> = row.get(WIDTH + 1);
    Ok(Seen {
        // Of a session without an open execution, `runnable` says that something eligible waits.
        eligible: row.get(WIDTH),
        node: name.map(|name| SeenNode {
            name,
            dead: row.get::<_, i64>(WIDTH + 2) > 1,
            lease_until: row.get(WIDTH + 3),
        }),
        now: row.get(WIDTH + 4),
        head,
    })
}

fn state(seen: &Seen) -> Result<SessionState, ReadStop> {
    let live = seen.node.as_ref().filter(|node| !node.dead);
    let live = live.map(|node| LiveOwner {
        name: &node.name,
        lease_until: node.lease_until,
    });
    status::state(&seen.head, live, seen.eligible, seen.now)
        .map_err(|bad| ReadStop::from(Damaged(bad.to_string())))
}

/// What the nodes that take sessions serve.
async fn serving(conn: &Conn) -> Result<Vec<Serves>, Trouble> {
    let rows = conn
        .rows("SELECT labels, roots FROM @.node WHERE state = 0", &[])
        .await?;
    let serves = rows.iter().map(|row| Serves {
        labels: row.get(0),
        roots: row.get(1),
    });
    Ok(serves.collect())
}

/// Any node may settle what was interrupted (R9).
fn settles(head: &Head) -> bool {
    head.cancel || head.phase == Some(Phase::Cancelling)
}

fn session_row(row: &Row, nodes: &[Serves]) -> Result<SessionRow, ReadStop> {
    let seen = seen(row)?;
    let mut state = state(&seen)?;
    if matches!(state, SessionState::Claimable { .. })
        && !settles(&seen.head)
        && let Some(reason) = status::unserved(&seen.head, nodes)
    {
        state = SessionState::Unplaceable { reason };
    }
    let head = seen.head;
    let execution = head.execution.as_deref();
    let execution = execution
        .map(|id| parse(id, ExecutionId::parse))
        .transpose()?;
    let parent = head.forked_from.as_deref();
    let parent = parent.map(|id| parse(id, SessionId::parse)).transpose()?;
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

pub(super) async fn session(conn: &Conn, id: &SessionId) -> Result<Option<SessionRow>, ReadStop> {
    let id = id.as_str();
    let params = params![TEXT: id];
    let row = conn.first(concat!(seen!(), "WHERE s.id = $1"), params);
    let (row, nodes) = futures::try_join!(row, serving(conn))?;
    Ok(row.and_then(|row| listed(&row, &nodes)))
}

pub(super) async fn sessions(
    conn: &Conn,
    wanted: &SessionQuery,
) -> Result<Vec<SessionRow>, ReadStop> {
    let limit = if wanted.limit == 0 { 100 } else { wanted.limit };
    let (limit, offset) = (int(limit as u64), int(wanted.offset as u64));
    let pattern = wanted.text.as_deref().map(like);
    let rows = conn
        .rows(
            concat!(
                seen!(),
                "WHERE NOT s.deleted AND ($1 IS NULL OR s.directory = $1) \
                 AND ($2 IS NULL OR s.title ILIKE $2 OR s.last_line ILIKE $2) \
                 ORDER BY s.activity DESC LIMIT $3 OFFSET $4"
            ),
            params![TEXT: wanted.directory, TEXT: pattern, INT8: limit, INT8: offset],
        )
        .await?;
    let nodes = serving(conn).await?;
    Ok(rows.iter().filter_map(|row| listed(row, &nodes)).collect())
}

/// A session as lists show it: one that cannot be read is said to be so, and hides no other. None: not even its id
/// can be read.
fn listed(row: &Row, nodes: &[Serves]) -> Option<SessionRow> {
    let why = match session_row(row, nodes) {
        Ok(read) => return Some(read),
        Err(stop) => stop.words(),
    };
    let id: &str = row.get(1);
    tracing::debug!(session = id, why, "a session's row cannot be read");
    let id = SessionId::parse(id).ok()?;
    Some(SessionRow::unreadable(id, row.get(15), &why))
}

/// The rows that can be read; the others are passed over, and said.
fn readable<T>(rows: &[Row], read: impl Fn(&Row) -> Result<T, ReadStop>) -> Vec<T> {
    let each = rows.iter().map(read);
    each.filter_map(|read| {
        read.inspect_err(|stop| tracing::warn!(why = stop.words(), "a claim cannot be read"))
            .ok()
    })
    .collect()
}

/// A pattern that finds `text` itself anywhere.
fn like(text: &str) -> String {
    let mut pattern = String::from("%");
    for character in text.chars().filter(|character| *character != '\0') {
        if matches!(character, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern.push('%');
    pattern
}

/// P7 in one query: sessions without an owner that are runnable, those whose owner is gone, and those that wait to be
/// accepted: whether in time, their state tells. The distinct owners are found by steps through their index, however many sessions each has.
const CLAIMABLE: &str = concat!(
    "WITH RECURSIVE owner(name) AS (\
       (SELECT owner FROM @.session WHERE owner IS NOT NULL ORDER BY owner LIMIT 1) \
       UNION ALL SELECT (SELECT x.owner FROM @.session x WHERE x.owner > o.name ORDER BY x.owner LIMIT 1) \
       FROM owner o WHERE o.name IS NOT NULL), \
     gone AS (SELECT o.name FROM owner o WHERE o.name IS NOT NULL AND NOT EXISTS \
       (SELECT 1 FROM @.node n WHERE n.incarnation = o.name AND n.state < 2)), \
     free AS ((SELECT sid FROM @.session WHERE runnable AND owner IS NULL AND activity > $1 \
         AND NOT deleted ORDER BY activity LIMIT $2) \
       UNION (SELECT x.sid FROM @.session x JOIN gone g ON g.name = x.owner \
         WHERE x.activity > $1 ORDER BY x.activity LIMIT $2) \
       UNION (SELECT sid FROM @.session WHERE handed_until IS NOT NULL AND activity > $1)) ",
    seen!(),
    "WHERE s.sid IN (SELECT sid FROM free) AND NOT s.deleted AND s.quarantine IS NULL \
     ORDER BY s.activity LIMIT $2"
);

/// Oldest activity first, so that nobody starves.
pub(super) async fn claimable(conn: &Conn, limit: usize) -> Result<Vec<SessionRow>, ReadStop> {
    let nodes = serving(conn).await?;
    let (mut found, mut after) = (Vec::new(), i64::MIN);
    while found.len() < limit {
        let rows = conn
            .rows(CLAIMABLE, params![INT8: after, INT8: LOOK])
            .await?;
        for row in &rows {
            after = row.get(14);
            let row = listed(row, &nodes);
            let row = row.filter(|row| matches!(row.state, SessionState::Claimable { .. }));
            if found.len() < limit {
                found.extend(row);
            }
        }
        if (rows.len() as i64) < LOOK {
            break;
        }
    }
    Ok(found)
}

/// The head of a session, or that there is none.
async fn head_of(conn: &Conn, id: &SessionId) -> Result<Head, ReadStop> {
    let row = conn
        .first(
            concat!(
                "SELECT ",
                head_columns!(),
                " FROM @.session s WHERE s.id = $1"
            ),
            params![TEXT: id.as_str()],
        )
        .await?;
    match row {
        Some(row) => Ok(read_head(&row)?),
        None => Err(ReadError::UnknownSession(id.clone()).into()),
    }
}

/// One statement, one snapshot: the inputs beside the head row that says which of them are eligible.
pub(super) async fn inbox(conn: &Conn, id: &SessionId) -> Result<Vec<PendingInput>, ReadStop> {
    let rows = conn
        .rows(
            concat!(
                "SELECT ",
                head_columns!(),
                ", i.seq, i.delivery, e.type, e.version, e.body, e.created_ms FROM @.session s \
                 LEFT JOIN @.inbox i ON i.sid = s.sid AND i.state = 0 \
                 LEFT JOIN @.event e ON e.sid = i.sid AND e.seq = i.seq \
                 WHERE s.id = $1 ORDER BY i.seq"
            ),
            params![TEXT: id.as_str()],
        )
        .await?;
    let Some(first) = rows.first() else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    let head = read_head(first)?;
    let mut pending = Vec::new();
    for row in &rows {
        let Some(seq) = row.get::<_, Option<i64>>(WIDTH).map(uint) else {
            continue;
        };
        let damaged = |detail: String| ReadError::Damaged {
            session: id.clone(),
            seq,
            detail,
        };
        let Some(name) = row.get::<_, Option<String>>(WIDTH + 2) else {
            return Err(damaged("it is missing".to_owned()).into());
        };
        let version = u32::try_from(row.get::<_, i64>(WIDTH + 3)).unwrap_or(u32::MAX);
        let data = match EventBody::decode(&name, version, row.get(WIDTH + 4)) {
            Ok(EventBody::InputAdmitted(data)) => data,
            Ok(_) => {
                let detail = "it is not the input its inbox row says".to_owned();
                return Err(damaged(detail).into());
            }
            Err(bad) => return Err(damaged(bad.to_string()).into()),
        };
        pending.push(PendingInput {
            input: data.input,
            kind: data.kind,
            delivery: delivery_of(row.get(WIDTH + 1)),
            seq,
            eligible: head.eligible(seq),
            admitted_ms: row.get(WIDTH + 5),
        });
    }
    Ok(pending)
}

pub(super) async fn effects(conn: &Conn, id: &SessionId) -> Result<Vec<EffectRow>, ReadStop> {
    let rows = conn
        .rows(
            "SELECT e.message, e.call, e.epoch, e.generation, e.pid, e.pid_start, e.boot_id \
             FROM @.session s LEFT JOIN @.effect e ON e.sid = s.sid WHERE s.id = $1 \
             ORDER BY e.message, e.call",
            params![TEXT: id.as_str()],
        )
        .await?;
    if rows.is_empty() {
        return Err(ReadError::UnknownSession(id.clone()).into());
    }
    let there = rows
        .iter()
        .filter(|row| row.get::<_, Option<&str>>(0).is_some());
    there.map(|row| effect_row(row, 0)).collect()
}

/// Effect rows of calls that are over: in sessions nobody owns, or in steps that have ended.
pub(super) async fn leftovers(
    conn: &Conn,
    limit: usize,
) -> Result<Vec<(SessionId, EffectRow)>, ReadStop> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = conn
        .rows(
            "SELECT s.id, e.message, e.call, e.epoch, e.generation, e.pid, e.pid_start, e.boot_id \
             FROM @.effect e JOIN @.session s ON s.sid = e.sid WHERE s.owner IS NULL \
             OR (s.rest::json ->> 'open_step') IS DISTINCT FROM e.message LIMIT $1",
            params![INT8: limit],
        )
        .await?;
    let rows = rows.iter();
    rows.map(|row| Ok((parse(row.get(0), SessionId::parse)?, effect_row(row, 1)?)))
        .collect()
}

/// An effect row whose columns begin at `from`.
fn effect_row(row: &Row, from: usize) -> Result<EffectRow, ReadStop> {
    Ok(EffectRow {
        message: parse(row.get(from), MessageId::parse)?,
        call: CallId::new(row.get::<_, String>(from + 1)),
        epoch: uint(row.get(from + 2)),
        generation: uint(row.get(from + 3)),
        process: process_of(row, from + 4),
    })
}

/// The claim's phase and wake flag while the fence's owner still holds it.
pub(super) async fn claim_phase(
    conn: &Conn,
    id: &SessionId,
    fence: &Fence,
) -> Result<Option<ClaimView>, ReadStop> {
    let row = conn
        .first(
            "SELECT s.epoch, s.owner, s.claim_id, s.phase, coalesce(c.wake_pending, FALSE) \
             FROM @.session s LEFT JOIN @.claim c ON c.sid = s.sid WHERE s.id = $1",
            params![TEXT: id.as_str()],
        )
        .await?;
    let Some(row) = row else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    let holds = row.get::<_, i64>(0) == int(fence.epoch)
        && row.get::<_, Option<&str>>(1) == Some(fence.owner.as_str())
        && row.get::<_, Option<&str>>(2) == Some(fence.claim.as_str());
    let phase = row.get::<_, Option<i64>>(3).filter(|_| holds);
    Ok(phase.map(|phase| ClaimView {
        phase: phase_of(phase),
        wake_pending: row.get(4),
    }))
}

/// What an owner holds, by the index of owners.
pub(super) async fn held(conn: &Conn, owner: &Incarnation) -> Result<Vec<HeldClaim>, ReadStop> {
    let rows = conn
        .rows(
            "SELECT s.id, s.claim_id, s.epoch, s.phase, s.head, s.handed_until IS NOT NULL FROM @.session s \
             WHERE s.owner = $1 AND s.claim_id IS NOT NULL AND s.phase IS NOT NULL ORDER BY s.id",
            params![TEXT: owner.as_str()],
        )
        .await?;
    Ok(readable(&rows, |row| {
        Ok(HeldClaim {
            session: parse(row.get(0), SessionId::parse)?,
            claim: parse(row.get(1), ClaimId::parse)?,
            epoch: uint(row.get(2)),
            phase: phase_of(row.get(3)),
            head: uint(row.get(4)),
            handed: row.get(5),
        })
    }))
}

pub(super) async fn claims(conn: &Conn, wall_ms: i64) -> Result<Vec<ClaimRow>, ReadStop> {
    let rows = conn
        .rows(
            "SELECT s.claim_id, s.id, s.owner, s.epoch, s.phase, c.assistant_message_id, c.assistant_seq, \
             c.recovery_input_id, c.recovery_error, c.wake_pending, s.attempts, \
             coalesce(least(n.lease_until - @.lease_clock(), n.lease_ms), 0), c.created_ms, \
             greatest(@.lease_clock() - c.created_ms, 0) \
             FROM @.claim c JOIN @.session s ON s.sid = c.sid \
             LEFT JOIN @.node n ON n.incarnation = s.owner \
             WHERE s.owner IS NOT NULL AND s.claim_id IS NOT NULL ORDER BY c.created_ms, s.sid",
            &[],
        )
        .await?;
    let maybe = |row: &Row, at: usize| {
        let text: Option<&str> = row.get(at);
        text.map(|text| parse(text, MessageId::parse)).transpose()
    };
    Ok(readable(&rows, |row| {
        Ok(ClaimRow {
            id: parse(row.get(0), ClaimId::parse)?,
            session: parse(row.get(1), SessionId::parse)?,
            owner: parse(row.get(2), Incarnation::parse)?,
            epoch: uint(row.get(3)),
            phase: phase_of(row.get::<_, Option<i64>>(4).unwrap_or(0)),
            assistant_message_id: maybe(row, 5)?,
            assistant_seq: row.get::<_, Option<i64>>(6).map(uint),
            recovery_input_id: maybe(row, 7)?,
            recovery_error: row.get(8),
            wake_pending: row.get(9),
            attempts: u32::try_from(row.get::<_, i64>(10)).unwrap_or(0),
            expires_at: wall_ms.saturating_add(shown_left(row.get(11))),
            time_created: row.get(12),
            held_ms: uint(row.get(13)),
        })
    }))
}

pub(super) async fn nodes(conn: &Conn) -> Result<Vec<NodeRow>, ReadStop> {
    let rows = conn
        .rows(
            "SELECT n.incarnation, n.name, n.address, n.state, n.pid, \
             least(n.lease_until - @.lease_clock(), n.lease_ms), n.labels, n.roots, (SELECT count(*) FROM @.session s WHERE s.owner = n.incarnation) \
             FROM @.node n WHERE n.state < 2 ORDER BY n.joined_ms, n.incarnation",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            Ok(NodeRow {
                incarnation: parse(row.get(0), Incarnation::parse)?,
                name: row.get(1),
                address: row.get(2),
                draining: row.get::<_, i64>(3) == 1,
                pid: u32::try_from(row.get::<_, i64>(4)).unwrap_or(0),
                lease_ms: row.get(5),
                labels: row.get(6),
                roots: row.get(7),
                sessions: u32::try_from(row.get::<_, i64>(8)).unwrap_or(u32::MAX),
            })
        })
        .collect()
}

/// The page's rows with their head, in one statement: bodies are counted on the server, so that a page of very
/// large ones ends early.
const PAGE: &str = concat!(
    chain!(),
    ", picked AS (SELECT e.*, sum(octet_length(e.body)) OVER (ORDER BY e.seq ROWS UNBOUNDED PRECEDING) AS total \
       FROM chain c CROSS JOIN LATERAL (SELECT x.* FROM @.event x WHERE x.sid = c.sid \
         AND x.seq BETWEEN greatest(c.lo, $2) AND c.hi ORDER BY x.seq LIMIT $3) e ORDER BY e.seq LIMIT $3) \
     SELECT p.sid, p.seq, p.id, p.epoch, p.created_ms, p.type, p.version, p.body, s.head \
     FROM @.session s LEFT JOIN picked p ON p.total - octet_length(p.body) < $4 \
     WHERE s.id = $1 ORDER BY p.seq"
);

/// At most `limit` events after `after`. A damaged or missing row ends the page before it, or is the error when it
/// would be the first.
pub(super) async fn page(
    conn: &Conn,
    id: &SessionId,
    after: Option<u64>,
    limit: usize,
) -> Result<Page, ReadStop> {
    let from = after.map_or(0, |after| after + 1);
    let wanted = int(limit as u64);
    let rows = conn
        .rows(
            PAGE,
            params![TEXT: id.as_str(), INT8: int(from), INT8: wanted, INT8: PAGE_BYTES],
        )
        .await?;
    let Some(first) = rows.first() else {
        return Err(ReadError::UnknownSession(id.clone()).into());
    };
    let head = u64::try_from(first.get::<_, i64>(8)).ok();
    if let Some(after) = after
        && head.is_none_or(|last| after > last)
    {
        return Err(ReadError::CursorBeyondHead {
            session: id.clone(),
            after,
            head: head.unwrap_or(0),
        }
        .into());
    }
    let there = rows
        .iter()
        .filter(|row| row.get::<_, Option<i64>>(0).is_some());
    let stored: Vec<Stored> = there.map(read_stored).collect();
    let (mut events, mut expected, mut bytes, mut damage) = (Vec::new(), from, 0, None);
    for row in &stored {
        if row.seq != expected {
            damage = Some((expected, "it is missing".to_owned()));
            break;
        }
        match row.decode(id) {
            Ok(event) => events.push(event),
            Err(detail) => {
                damage = Some((row.seq, detail));
                break;
            }
        }
        bytes += int(row.body.len() as u64);
        expected += 1;
    }
    let cut = damage.is_none() && events.len() < limit && bytes < PAGE_BYTES;
    if cut && head.is_some_and(|last| expected <= last) {
        damage = Some((expected, "it is missing".to_owned()));
    }
    match damage {
        Some((seq, detail)) if events.is_empty() => Err(ReadError::Damaged {
            session: id.clone(),
            seq,
            detail,
        }
        .into()),
        _ => Ok(Page { events, head }),
    }
}

pub(super) async fn put_checkpoint(
    conn: &Conn,
    id: &SessionId,
    checkpoint: &Checkpoint,
) -> Result<(), ReadStop> {
    let version = i64::from(checkpoint.version);
    let rows = conn
        .rows(
            "WITH s AS (SELECT sid FROM @.session WHERE id = $1), \
             old AS (DELETE FROM @.checkpoint c USING s WHERE c.sid = s.sid AND c.version <> $2) \
             INSERT INTO @.checkpoint(sid, version, through, bytes) SELECT s.sid, $2, $3, $4 FROM s \
             ON CONFLICT (sid, version, through) DO UPDATE SET bytes = excluded.bytes RETURNING 1",
            params![
                TEXT: id.as_str(), INT8: version, INT8: int(checkpoint.through), BYTEA: checkpoint.bytes
            ],
        )
        .await?;
    if rows.is_empty() {
        return Err(ReadError::UnknownSession(id.clone()).into());
    }
    Ok(())
}

/// A fork may use its parent's, as far as the shared events reach.
pub(super) async fn checkpoints(
    conn: &Conn,
    id: &SessionId,
    version: u32,
) -> Result<Vec<Checkpoint>, ReadStop> {
    // Both questions are on their way before the first is answered.
    let params = params![TEXT: id.as_str(), INT8: i64::from(version)];
    let stored = conn.rows(
        concat!(
            chain!(),
            "SELECT k.through, k.bytes FROM chain c JOIN @.checkpoint k ON k.sid = c.sid \
             AND k.version = $2 AND k.through BETWEEN c.lo AND c.hi ORDER BY k.through"
        ),
        params,
    );
    let (known, stored) = tokio::join!(head_of(conn, id), stored);
    known?;
    let rows = stored?;
    let found = rows.iter().map(|row| Checkpoint {
        through: uint(row.get(0)),
        version,
        bytes: row.get(1),
    });
    Ok(found.collect())
}
