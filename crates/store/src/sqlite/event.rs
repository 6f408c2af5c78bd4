//! Event rows: writing them, reading them by ranges, across the prefixes forks share.

use super::tx::{Tx, first, int, key, seq_of, uint};
use crate::error::ReadError;
use crate::machine::event::{Encoded, Stored};
use crate::machine::head::Head;
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};
use tenure_core::event::Event;
use tenure_core::id::{BadId, EventId};

/// Bytes of bodies after which a page ends early.
const PAGE_BYTES: usize = 32 << 20;

/// Reads a stored id; a stored id of the wrong shape is damage.
pub(super) fn parse<T>(
    column: usize,
    text: &str,
    read: impl Fn(&str) -> Result<T, BadId>,
) -> rusqlite::Result<T> {
    read(text)
        .map_err(|bad| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(bad)))
}

/// Inserts one event row.
pub(super) fn insert(
    tx: &Tx<'_>,
    sid: i64,
    seq: u64,
    epoch: Option<u64>,
    event: &Encoded,
) -> rusqlite::Result<()> {
    tx.exec(
        "INSERT INTO event(key, id, epoch, created_ms, type, version, body) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            key(sid, seq),
            event.id.as_str(),
            epoch.map(int),
            event.created_ms,
            event.body.type_name(),
            event.body.version(),
            event.text,
        ],
    )?;
    Ok(())
}

/// Reads the columns of the queries below.
fn read(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let key: i64 = row.get(0)?;
    Ok(Stored {
        sid: key >> 32,
        seq: seq_of(key),
        id: row.get(1)?,
        epoch: row.get::<_, Option<i64>>(2)?.map(uint),
        created_ms: row.get(3)?,
        type_name: row.get(4)?,
        version: row.get(5)?,
        // Bytes that are no text are found by the decoder, with their seq.
        body: String::from_utf8(row.get_ref(6)?.as_bytes()?.to_vec()).unwrap_or_default(),
    })
}

const COLUMNS_BY_ID: &str = "SELECT key, id, epoch, created_ms, type, version, body FROM event WHERE id = ?1 \
     ORDER BY (key >> 32) = ?2 DESC LIMIT 1";
const COLUMNS_BY_RANGE: &str = "SELECT key, id, epoch, created_ms, type, version, body FROM event \
    WHERE key BETWEEN ?1 AND ?2 ORDER BY key";

/// The row of an event id: the session's own, else the one of another session.
pub(super) fn by_id(conn: &Connection, sid: i64, id: &EventId) -> rusqlite::Result<Option<Stored>> {
    // A new event's id is nowhere: the index alone tells, and nothing is sorted.
    let known = "SELECT 1 FROM event WHERE id = ?1 LIMIT 1";
    if first(conn, known, [id.as_str()], |_| Ok(()))?.is_none() {
        return Ok(None);
    }
    first(
        conn,
        COLUMNS_BY_ID,
        rusqlite::params![id.as_str(), sid],
        read,
    )
}

/// A stretch of a session's log and the session that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) sid: i64,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The stretches of a session's log, oldest first: shared prefixes, then its own events.
pub(super) fn segments(conn: &Connection, head: &Head) -> rusqlite::Result<Vec<Segment>> {
    let mut chain = Vec::new();
    if let Some(last) = head.head
        && last >= head.base
    {
        chain.push(Segment {
            sid: head.sid,
            from: head.base,
            to: last,
        });
    }
    let (mut parent, mut below) = (head.parent, head.base);
    while let Some(sid) = parent {
        let row = first(
            conn,
            "SELECT base, parent FROM session WHERE sid = ?1",
            [sid],
            |row| Ok((uint(row.get(0)?), row.get::<_, Option<i64>>(1)?)),
        )?;
        let Some((base, next)) = row else { break };
        if below > base {
            chain.push(Segment {
                sid,
                from: base,
                to: below - 1,
            });
        }
        below = below.min(base);
        parent = next;
    }
    chain.reverse();
    Ok(chain)
}

/// Calls `each` for the rows of `from..=to` in order, until it says stop.
pub(super) fn scan(
    conn: &Connection,
    chain: &[Segment],
    from: u64,
    mut each: impl FnMut(Stored) -> bool,
) -> rusqlite::Result<()> {
    for segment in chain {
        if segment.to < from {
            continue;
        }
        let start = segment.from.max(from);
        let mut statement = conn.prepare_cached(COLUMNS_BY_RANGE)?;
        let mut rows = statement.query([key(segment.sid, start), key(segment.sid, segment.to)])?;
        while let Some(row) = rows.next()? {
            if !each(read(row)?) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// At most `limit` events from `from` on. A damaged or missing row ends the page before it, or is the
/// error when it would be the first.
pub(super) fn page(
    conn: &Connection,
    head: &Head,
    from: u64,
    limit: usize,
) -> Result<Result<Vec<Event>, ReadError>, rusqlite::Error> {
    let chain = segments(conn, head)?;
    let mut events: Vec<Event> = Vec::new();
    let (mut bytes, mut expected, mut damage) = (0, from, None);
    scan(conn, &chain, from, |stored| {
        if events.len() >= limit || bytes >= PAGE_BYTES {
            return false;
        }
        if stored.seq != expected {
            damage = Some((expected, "it is missing".to_owned()));
            return false;
        }
        match stored.decode(&head.id) {
            Ok(event) => {
                bytes += stored.body.len();
                expected += 1;
                events.push(event);
                true
            }
            Err(detail) => {
                damage = Some((stored.seq, detail));
                false
            }
        }
    })?;
    let cut = damage.is_none() && events.len() < limit && bytes < PAGE_BYTES;
    if cut && limit > 0 && head.head.is_some_and(|last| expected <= last) {
        damage = Some((expected, "it is missing".to_owned()));
    }
    Ok(match damage {
        Some((seq, detail)) if events.is_empty() => Err(ReadError::Damaged {
            session: head.id.clone(),
            seq,
            detail,
        }),
        _ => Ok(events),
    })
}
