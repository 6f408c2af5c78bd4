//! What a job sees of the write transaction it runs in, and how it ends.

use crate::Switches;
use crate::error::AppendError;
use rusqlite::{Connection, Params, Row};
use tenure_core::id::SessionId;

/// The open write transaction, with the time it was opened.
pub(super) struct Tx<'a> {
    pub(super) conn: &'a Connection,
    /// Boot-time clock, milliseconds.
    pub(super) boot_ms: i64,
    /// Wall clock, milliseconds.
    pub(super) wall_ms: i64,
    pub(super) boot_id: &'a str,
    pub(super) switches: &'a Switches,
}

/// Why a piece of work stops: refused by a rule, or failed below.
#[derive(Debug)]
pub(super) enum Stop<E> {
    /// A verdict: this job alone is rolled back.
    Refused(E),
    /// SQLite failed.
    Failed(rusqlite::Error),
}

impl<E> From<rusqlite::Error> for Stop<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

pub(super) type AppendStop = Stop<AppendError>;

/// Refuses an append with words.
pub(super) fn rejected(session: &SessionId, reason: impl Into<String>) -> AppendStop {
    Stop::Refused(AppendError::Rejected {
        session: session.clone(),
        reason: reason.into(),
    })
}

impl Tx<'_> {
    /// Runs a cached statement; the number of rows it changed.
    pub(super) fn exec(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.conn.prepare_cached(sql)?.execute(params)
    }

    /// The first row of a cached query, if any.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        first(self.conn, sql, params, read)
    }
}

/// The first row of a cached query, if any.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    rows.next()?.map(read).transpose()
}

/// An unsigned number as SQLite holds it. Values beyond `i64::MAX` do not occur in practice and saturate.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A stored number that is never negative.
pub(super) fn uint(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// The key of an event: the session's number above its seq.
pub(super) fn key(sid: i64, seq: u64) -> i64 {
    (sid << 32) | (int(seq) & 0xffff_ffff)
}

/// The seq of an event's key.
pub(super) fn seq_of(key: i64) -> u64 {
    uint(key & 0xffff_ffff)
}

/// The highest seq a session may have, given by the layout of [`key`].
pub(super) const MAX_SEQ: u64 = 0xffff_fffe;
