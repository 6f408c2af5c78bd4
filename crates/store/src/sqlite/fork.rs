//! Deleting sessions without harming their forks.

use super::head::load;
use super::tx::{MAX_SEQ, Stop, Tx, first, key, uint};
use crate::error::DeleteError;
use crate::machine::rows::Rows;
use rusqlite::params;
use tenure_core::id::{Incarnation, SessionId};

/// Events one transaction removes at most.
const PURGE: i64 = 4_000;

/// Deletes a session that nobody alive owns: at once for every reader; its events go bit by bit.
pub(crate) fn delete(
    tx: &Tx<'_>,
    session: &SessionId,
    is_gone: &dyn Fn(&str) -> bool,
) -> Result<i64, Stop<DeleteError>> {
    let Some(head) = load(tx.conn, session)? else {
        return Err(Stop::Refused(DeleteError::UnknownSession(session.clone())));
    };
    if let Some(owner) = &head.owner
        && !tx.is_gone(owner)?
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
pub(crate) struct Purged {
    pub(crate) removed: u64,
    pub(crate) more: bool,
}

/// Removes some events of deleted sessions that no fork needs, and rows nothing hangs on any more.
pub(crate) fn purge(tx: &Tx<'_>) -> rusqlite::Result<Purged> {
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
