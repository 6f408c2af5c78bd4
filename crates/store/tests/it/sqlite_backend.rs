//! A fresh SQLite store under the suite's hand: its clocks, its crashes, its faults.

use futures::stream::BoxStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::id::*;
use tenure_store::conformance::Backend;
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::sqlite::Fault;
use tenure_store::*;

/// A clock that stands still until it is told.
#[derive(Debug)]
pub struct HandClock(pub AtomicI64);

impl HandClock {
    /// Standing at `ms`.
    pub fn at(ms: i64) -> Self {
        Self(AtomicI64::new(ms))
    }
}

impl StoreClock for HandClock {
    fn boottime_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
    fn wall_ms(&self) -> i64 {
        1_700_000_000_000
    }
    fn boot_id(&self) -> String {
        "boot-1".to_owned()
    }
}

/// The tables in which sessions are.
pub const SESSIONS: [&str; 6] = ["session", "claim", "event", "inbox", "effect", "receipt"];

pub struct SqliteBackend {
    store: Arc<SqliteStore>,
    other: Arc<SqliteStore>,
    clock: Arc<HandClock>,
    mutations: Mutations,
    path: PathBuf,
    /// Holds the copy in tables of its own.
    copied: Mutex<Option<rusqlite::Connection>>,
    _dir: tempfile::TempDir,
}

pub fn fresh() -> Box<dyn Backend> {
    mutated(Mutations::default())
}

pub fn mutated(mutations: Mutations) -> Box<dyn Backend> {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::at(1_000_000));
    let open = |name: &str| {
        let options = OpenOptions {
            clock: Arc::<HandClock>::clone(&clock),
            mutations: mutations.clone(),
            ..OpenOptions::default()
        };
        SqliteStore::open(&dir.path().join(name), options).unwrap()
    };
    Box::new(SqliteBackend {
        store: open("t.db"),
        other: open("other.db"),
        path: dir.path().join("t.db"),
        clock,
        mutations,
        copied: Mutex::default(),
        _dir: dir,
    })
}

impl Backend for SqliteBackend {
    fn store(&self) -> Arc<dyn Store> {
        Arc::<SqliteStore>::clone(&self.store)
    }
    fn other_store(&self) -> Arc<dyn Store> {
        Arc::<SqliteStore>::clone(&self.other)
    }
    fn crash(&self, node: &Incarnation) {
        self.store.crash_node(node);
    }
    fn advance(&self, by: Duration) {
        self.clock
            .0
            .fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
    fn copy(&self) {
        let conn = rusqlite::Connection::open(&self.path).unwrap();
        conn.busy_timeout(Duration::from_secs(10)).unwrap();
        for table in SESSIONS {
            let copy = format!("CREATE TEMP TABLE copied_{table} AS SELECT * FROM main.{table}");
            conn.execute_batch(&copy).unwrap();
        }
        *self.copied.lock().unwrap() = Some(conn);
    }
    fn set_back(&self) {
        let back = SESSIONS.map(|table| {
            format!(
                "DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM copied_{table};"
            )
        });
        let all = format!("BEGIN IMMEDIATE; {} COMMIT", back.concat());
        let copied = self.copied.lock().unwrap().take();
        copied.unwrap().execute_batch(&all).unwrap();
    }
    fn fail_next_commit(&self, fault: Fault) {
        self.store.fail_next_commit(fault);
    }
    fn hold_writer(&self) -> Box<dyn Send> {
        // Another process's write lock, as far as the writer can tell.
        let conn = rusqlite::Connection::open(&self.path).unwrap();
        conn.busy_timeout(Duration::from_secs(10)).unwrap();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        Box::new(conn)
    }
    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).unwrap().len()
    }
    fn follow(
        &self,
        session: SessionId,
        after: Option<u64>,
    ) -> BoxStream<'static, Result<FollowItem, ReadError>> {
        if self.mutations.on(Mutation::FollowSubscribesLate) {
            return tenure_store::follow::follow_subscribing_late(self.store(), session, after);
        }
        tenure_store::follow(self.store(), session, after)
    }
}
