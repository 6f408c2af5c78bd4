//! Giving space back, and saying whether the store is sound.

use super::SharedState;
use super::fork::purge;
use super::locks::remove_socket;
use super::node;
use super::open::{Role, connect};
use super::reader::{ReadStop, read, unavailable};
use super::rows::count;
use super::schema;
use super::tx::{Stop, Tx};
use super::writer::words;
use crate::error::ReadError;
use crate::machine::Ran;
use crate::machine::rows::NodeState;
use crate::status::{GcReport, StoreHealth};
use rusqlite::Connection;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::Incarnation;

/// Pages one call gives back to the file system at most: 16 MB.
const PAGES: i64 = 4_096;
/// Dead nodes are remembered for an hour, for people who look.
const REMEMBER_NODES_MS: i64 = 3_600_000;

/// What one bounded step did.
pub(super) struct Step {
    pub(super) events: u64,
    pub(super) nodes: u64,
    pub(super) more: bool,
}

/// One bounded step in the writer's transaction.
pub(super) fn step(tx: &Tx<'_>) -> Result<(Step, Ran), Stop<ReadError>> {
    let purged = purge(tx)?;
    let nodes = node::forget(tx, tx.wall_ms - REMEMBER_NODES_MS)?;
    let free = pragma(tx.conn, "freelist_count")?;
    if free > 0 {
        let mut statement = tx
            .conn
            .prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    let step = Step {
        events: purged.removed,
        nodes: nodes as u64,
        more: purged.more || free > PAGES,
    };
    Ok((step, Ran::Wrote))
}

fn pragma(conn: &Connection, name: &str) -> rusqlite::Result<i64> {
    conn.pragma_query_value(None, name, |row| row.get(0))
}

/// Bytes on disk: the file and its log.
pub(super) fn bytes(shared: &SharedState) -> u64 {
    let size = |suffix: &str| {
        let mut name = shared.path.as_os_str().to_owned();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |meta| meta.len())
    };
    size("") + size("-wal")
}

/// Folds the WAL back and cuts it: only then does the file itself shrink.
pub(super) fn truncate(shared: &SharedState) -> Result<(), ReadError> {
    let conn =
        connect(&shared.path, Role::Write).map_err(|error| unavailable(error.to_string()))?;
    let fold = || {
        conn.busy_timeout(Duration::from_secs(2))?;
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    };
    fold().map_err(|error| unavailable(words(&error)))
}

/// What dead nodes left beside the store: their sockets, and lock files that are free and whose node is not
/// alive in the table, be it that its process died at birth.
pub(super) fn sweep_nodes(shared: &SharedState, conn: &Connection) -> rusqlite::Result<()> {
    for incarnation in shared.locks.node_files() {
        let known = Incarnation::parse(&incarnation).is_err()
            || node::facts(conn, &incarnation, 0)?
                .is_some_and(|node| node.state != NodeState::Dead);
        // A node that joins right now holds its lock before its row is there, or is about to.
        if !known {
            shared.locks.remove_free_node(&incarnation);
        }
    }
    for address in node::left_addresses(conn)? {
        remove_socket(&address);
    }
    Ok(())
}

pub(super) fn report(before: u64, after: u64, step: &Step) -> GcReport {
    GcReport {
        bytes_before: before,
        bytes_after: after,
        events_removed: step.events,
        nodes_removed: step.nodes,
        more: step.more,
    }
}

/// What the store is, with SQLite's own check of the whole file.
pub(super) async fn health(shared: &Arc<SharedState>) -> Result<StoreHealth, ReadError> {
    let state = Arc::clone(shared);
    read(shared, move |conn| {
        let mut statement = conn.prepare("PRAGMA quick_check(20)")?;
        let said: Vec<String> = statement
            .query_map([], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let text = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, String>(0));
        let synchronous = match pragma(conn, "synchronous")? {
            2 => "FULL".to_owned(),
            other => other.to_string(),
        };
        let schema = u32::try_from(pragma(conn, "user_version")?).unwrap_or(schema::newest());
        Ok::<_, ReadStop>(StoreHealth {
            engine: format!("sqlite {}", rusqlite::version()),
            place: state.path.display().to_string(),
            schema,
            problems: said.into_iter().filter(|line| line != "ok").collect(),
            bytes: bytes(&state),
            sessions: count(conn, "SELECT count(*) FROM session WHERE deleted = 0")?,
            durability: format!(
                "synchronous={synchronous} journal_mode={}",
                text("journal_mode")?
            ),
        })
    })
    .await
}
