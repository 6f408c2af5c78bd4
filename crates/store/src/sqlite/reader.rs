//! Reads on a few connections of their own, on blocking threads, each in one snapshot.

use super::SharedState;
use super::open::{Role, connect};
use super::writer::{step, words};
use crate::error::ReadError;
use rusqlite::Connection;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// Connections at most.
const MOST: usize = 4;

/// The pool. Connections are opened when first needed.
pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(MOST)),
        }
    }
}

impl Readers {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn unavailable(reason: impl Into<String>) -> ReadError {
    ReadError::Unavailable {
        reason: reason.into(),
    }
}

/// Why a read stops.
pub(super) enum ReadStop {
    Error(ReadError),
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for ReadStop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<ReadError> for ReadStop {
    fn from(error: ReadError) -> Self {
        Self::Error(error)
    }
}

/// Runs `work` in a read transaction on a blocking thread.
pub(super) async fn read<T: Send + 'static>(
    shared: &Arc<SharedState>,
    work: impl FnOnce(&Connection) -> Result<T, ReadStop> + Send + 'static,
) -> Result<T, ReadError> {
    let permit = Arc::clone(&shared.readers.permits)
        .acquire_owned()
        .await
        .map_err(|_| unavailable("it is closed"))?;
    let shared = Arc::clone(shared);
    let done = tokio::task::spawn_blocking(move || {
        let result = read_now(&shared, work);
        drop(permit);
        result
    });
    done.await.map_err(|error| unavailable(error.to_string()))?
}

/// Runs `work` in a read transaction on this thread.
pub(super) fn read_now<T>(
    shared: &SharedState,
    work: impl FnOnce(&Connection) -> Result<T, ReadStop>,
) -> Result<T, ReadError> {
    let idle = shared.readers.idle().pop();
    let conn = match idle {
        Some(conn) => conn,
        None => {
            connect(&shared.path, Role::Read).map_err(|error| unavailable(error.to_string()))?
        }
    };
    let result = snapshot(shared, &conn, work);
    let ended = conn.is_autocommit() || step(&conn, "ROLLBACK").is_ok();
    if ended && !matches!(result, Err(ReadStop::Failed(_))) {
        shared.readers.idle().push(conn);
    }
    result.map_err(|stop| match stop {
        ReadStop::Error(error) => error,
        ReadStop::Failed(error) => unavailable(words(&error)),
    })
}

fn snapshot<T>(
    shared: &SharedState,
    conn: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, ReadStop>,
) -> Result<T, ReadStop> {
    step(conn, "BEGIN")?;
    // The first read fixes the snapshot; only then is it known which commits it may hold.
    conn.prepare_cached("SELECT 1 FROM session LIMIT 1")?
        .query([])?
        .next()?;
    shared.gate.pass();
    work(conn)
}
