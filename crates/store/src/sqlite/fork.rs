//! Forks by reference, and deleting without harming them.

use super::append::write;
use super::event::{self, Encoded, Segment};
use super::head::Head;
use super::project::Work;
use super::tx::{AppendStop, MAX_SEQ, Stop, Tx, first, key, rejected, uint};
use crate::api::Committed;
use crate::error::{AppendError, DeleteError};
use rusqlite::{Connection, params};
use tenure_core::event::EventBody;
use tenure_core::id::{Incarnation, SessionId};

/// Events one transaction removes at most.
const PURGE: i64 = 4_000;

/// Makes the child. A repeated fork with the same event returns the first one's answer.
pub(super) fn fork(
    tx: &Tx<'_>,
    parent: &SessionId,
    through: u64,
    child: &SessionId,
    event: &Encoded,
) -> Result<Committed, AppendStop> {
    match &event.body {
        EventBody::SessionForked(data) if &data.parent == parent && data.through == through => {}
        _ => {
            return Err(rejected(
                child,
                "a fork begins with its own `session.forked`",
            ));
        }
    }
    if let Some(existing) = Head::load(tx.conn, child)? {
        return repeated(tx, &existing, event);
    }
    let Some(from) = Head::load(tx.conn, parent)? else {
        return Err(Stop::Refused(AppendError::UnknownSession(parent.clone())));
    };
    if from.head.is_none_or(|head| through > head) {
        let reason = format!(
            "{parent} ends at {}; it cannot be forked at {through}",
            from.last()
        );
        return Err(rejected(child, reason));
    }
    let chain = event::segments(tx.conn, &from)?;
    let Some(holder) = chain.iter().find(|s| s.from <= through && through <= s.to) else {
        return Err(rejected(
            child,
            format!("seq {through} of {parent} is missing"),
        ));
    };
    let mut head = Head::insert(tx, child)?;
    head.head = Some(through);
    head.base = through + 1;
    head.parent = Some(holder.sid);
    settings(tx.conn, &chain, through, &mut head)?;
    let mut work = Work::new(tx, head, false, false);
    let events = write(&mut work, std::slice::from_ref(event))?;
    let mut head = work.head;
    head.save(tx)?;
    Ok(Committed {
        events,
        head: head.last(),
        write_no: head.write_no,
        duplicate: false,
    })
}

fn repeated(tx: &Tx<'_>, existing: &Head, event: &Encoded) -> Result<Committed, AppendStop> {
    let stored = event::by_id(tx.conn, existing.sid, &event.id)?
        .filter(|row| row.sid == existing.sid && row.body == event.text)
        .and_then(|row| row.decode(&existing.id).ok());
    match stored {
        Some(event) => Ok(Committed {
            events: vec![event],
            head: existing.last(),
            write_no: existing.write_no,
            duplicate: true,
        }),
        None => Err(Stop::Refused(AppendError::SessionExists(
            existing.id.clone(),
        ))),
    }
}

/// The settings in force after `through`: a handful of rows, found by their own index.
fn settings(
    conn: &Connection,
    chain: &[Segment],
    through: u64,
    head: &mut Head,
) -> Result<(), AppendStop> {
    for segment in chain.iter().filter(|segment| segment.from <= through) {
        let mut statement = conn.prepare_cached(
            "SELECT type, version, body FROM event INDEXED BY event_setting WHERE key BETWEEN ?1 AND ?2 \
             AND type IN ('session.created', 'session.renamed', 'model.selected', 'attachment.replaced', \
             'session.forked') ORDER BY key",
        )?;
        let to = segment.to.min(through);
        let mut rows = statement.query([key(segment.sid, segment.from), key(segment.sid, to)])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let body = EventBody::decode(&name, row.get(1)?, &row.get::<_, String>(2)?)
                .map_err(|bad| rejected(&head.id, bad.to_string()))?;
            setting(head, body);
        }
    }
    Ok(())
}

fn setting(head: &mut Head, body: EventBody) {
    match body {
        EventBody::SessionCreated(data) => {
            head.title = data.title;
            head.directory = data.location.directory;
            head.provider = data.model.provider;
            head.model = data.model.model;
        }
        EventBody::SessionRenamed(data) => head.title = Some(data.title),
        EventBody::ModelSelected(data) => {
            head.provider = data.model.provider;
            head.model = data.model.model;
        }
        EventBody::AttachmentReplaced(data) => {
            head.generation = data.generation;
            head.directory = data.location.directory;
        }
        _ => {}
    }
}

/// Deletes a session that nobody alive owns: at once for every reader; its events go bit by bit.
pub(super) fn delete(
    tx: &Tx<'_>,
    session: &SessionId,
    is_gone: &dyn Fn(&str) -> bool,
) -> Result<i64, Stop<DeleteError>> {
    let Some(head) = Head::load(tx.conn, session)? else {
        return Err(Stop::Refused(DeleteError::UnknownSession(session.clone())));
    };
    if let Some(owner) = &head.owner
        && !super::node::gone(tx.conn, owner)?
        && !is_gone(owner)
    {
        let owner = Incarnation::parse(owner).map_err(|bad| {
            Stop::Refused(DeleteError::Unavailable {
                reason: bad.to_string(),
            })
        })?;
        return Err(Stop::Refused(DeleteError::Owned {
            session: session.clone(),
            owner,
        }));
    }
    let sid = head.sid;
    for sql in [
        "DELETE FROM claim WHERE sid = ?1",
        "DELETE FROM inbox WHERE sid = ?1",
        "DELETE FROM effect WHERE sid = ?1",
        "DELETE FROM receipt WHERE sid = ?1",
        // Checkpoints go as the events do that they stand for: a fork opens from its parent's.
        "DELETE FROM checkpoint WHERE sid = ?1 AND through >= \
         coalesce((SELECT max(base) FROM session WHERE parent = ?1), 0)",
        // The id is free again; the row stays while forks read through it.
        "UPDATE session SET deleted = 1, id = id || '#' || sid, owner = NULL, claim_id = NULL, \
         phase = NULL, busy = 0, pending = 0, execution = NULL, rev = rev + 1 WHERE sid = ?1",
    ] {
        tx.exec(sql, [sid])?;
    }
    if broken!(tx.switches, DeleteForgetsCheckpoints) {
        tx.exec("DELETE FROM checkpoint WHERE sid = ?1", [sid])?;
    }
    Ok(sid)
}

/// What a step of purging did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Purged {
    pub(super) removed: u64,
    pub(super) more: bool,
}

/// Removes some events of deleted sessions that no fork needs, and rows nothing hangs on any more.
pub(super) fn purge(tx: &Tx<'_>) -> rusqlite::Result<Purged> {
    let mut done = Purged::default();
    let mut statement = tx
        .conn
        .prepare_cached("SELECT sid FROM session WHERE deleted = 1")?;
    let deleted: Vec<i64> = statement
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    // Children before parents: a fork has a higher number than what it was forked from.
    for sid in deleted.into_iter().rev() {
        let mut needed = first(
            tx.conn,
            "SELECT max(base) FROM session WHERE parent = ?1",
            [sid],
            |row| row.get::<_, Option<i64>>(0),
        )?
        .flatten();
        if broken!(tx.switches, DeleteHarmsForks) {
            needed = None;
        }
        tx.exec(
            "DELETE FROM checkpoint WHERE sid = ?1 AND through >= ?2",
            params![sid, needed.unwrap_or(0)],
        )?;
        let removed = tx.exec(
            "DELETE FROM event WHERE key IN \
             (SELECT key FROM event WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3)",
            [
                key(sid, uint(needed.unwrap_or(0))),
                key(sid, MAX_SEQ),
                PURGE,
            ],
        )?;
        done.removed += removed as u64;
        if removed as i64 == PURGE {
            done.more = true;
            return Ok(done);
        }
        if needed.is_none() {
            tx.exec("DELETE FROM session WHERE sid = ?1", [sid])?;
        }
    }
    Ok(done)
}
