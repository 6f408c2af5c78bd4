//! Presence: a lock of the database that a node holds for as long as its process lives (fast suspicion, R7).

use super::Shared;
use super::conn::{Conn, Use};
use super::migrate::fnv;
use super::sql::params;
use super::trouble::Trouble;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::id::Incarnation;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Between questions to a connection that says nothing by itself: its end may not have come through.
const LOOK: Duration = Duration::from_secs(2);
/// Between tries to take the lock again: at first, and at most, when the server is away or has no connection left.
const AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The number of a node's lock.
pub(super) fn key(schema: &str, incarnation: &str) -> i64 {
    fnv(&["tenure presence", schema, incarnation]).cast_signed()
}

/// A node's lock, held until this is dropped.
pub(super) struct Presence {
    task: JoinHandle<()>,
    conn: Arc<Mutex<Option<Arc<Conn>>>>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.task.abort();
        let conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conn) = &*conn {
            conn.cut();
        }
    }
}

/// Takes the lock. Returns once it is held, or says why it could not be.
pub(super) async fn hold(
    shared: &Arc<Shared>,
    incarnation: &Incarnation,
) -> Result<Presence, Trouble> {
    let key = key(&shared.maker.place.schema, incarnation.as_str());
    let name = format!("tenure/{incarnation}");
    let (told, first) = oneshot::channel();
    let slot: Arc<Mutex<Option<Arc<Conn>>>> = Arc::default();
    let (maker, kept) = (shared.maker.clone(), Arc::clone(&slot));
    let looks = !shared.events_only;
    let task = tokio::spawn(async move {
        let (mut told, mut pause) = (Some(told), AGAIN.0);
        loop {
            let taken = async {
                let conn = maker.connect(Use::Idle, &name).await;
                let conn = conn.map_err(|error| Trouble::lost(error.to_string()))?;
                let row = conn
                    .first("SELECT pg_try_advisory_lock($1)", params![INT8: key])
                    .await?;
                match row.is_some_and(|row| row.get(0)) {
                    true => Ok(Arc::new(conn)),
                    false => Err(Trouble::lost("the presence lock is held by another")),
                }
            };
            let taken = taken.await;
            let held = taken.as_ref().ok().cloned();
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = held.clone();
            if let Some(told) = told.take() {
                let failed = taken.is_err();
                let _ = told.send(taken.map(|_| ()));
                if failed {
                    return;
                }
            }
            let Some(conn) = held else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
                continue;
            };
            pause = AGAIN.0;
            // Lost and taken again at once: whoever looked meanwhile finds the address answering.
            while !conn.is_closed() {
                tokio::select! {
                    () = conn.closed() => break,
                    () = tokio::time::sleep(LOOK), if looks => {}
                }
                if conn.first("SELECT 1", &[]).await.is_err() {
                    break;
                }
            }
        }
    });
    let presence = Presence { task, conn: slot };
    first
        .await
        .unwrap_or_else(|_| Err(Trouble::lost("the store is closing")))?;
    Ok(presence)
}
