//! What a job sees of the write transaction it runs in.

pub(super) use crate::machine::{AppendStop, MAX_SEQ, Stop};

use crate::Switches;
use rusqlite::{Connection, Params, Row};

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
