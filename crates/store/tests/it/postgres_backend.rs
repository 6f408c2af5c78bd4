//! A fresh PostgreSQL store under the suite's hand: its clocks, its crashes, its faults.

use crate::sqlite_backend::{HandClock, SESSIONS};
use futures::stream::BoxStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenure_core::id::*;
use tenure_store::conformance::{Backend, World};
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::sqlite::Fault;
use tenure_store::*;
use tenure_testbed::postgres::{Database, shared_or_skip};

/// When the clocks of these worlds begin.
const BEGIN: i64 = 1_000_000;

pub struct PostgresBackend {
    store: Arc<PostgresStore>,
    other: Arc<PostgresStore>,
    clock: Arc<HandClock>,
    mutations: Mutations,
    // Dropped last: the stores must have let go of it.
    database: Database,
}

/// None where there is no server, which was said then.
pub fn fresh() -> Option<Box<dyn Backend>> {
    mutated(Mutations::default())
}

pub fn mutated(mutations: Mutations) -> Option<Box<dyn Backend>> {
    let database = shared_or_skip()?.database().unwrap();
    Some(reached(mutations, database, str::to_owned))
}

/// The same, with the database reached by the URL that `through` makes of its own.
pub fn reached(
    mutations: Mutations,
    database: Database,
    through: impl Fn(&str) -> String,
) -> Box<dyn Backend> {
    let clock = Arc::new(HandClock::at(BEGIN));
    let open = |schema: &str| {
        let options = Options {
            clock: Arc::<HandClock>::clone(&clock),
            mutations: mutations.clone(),
            silent_is_gone: true,
            ..Options::default()
        };
        let store = PostgresStore::open(&place(&through(database.url()), schema), options).unwrap();
        hold_clock(&database, schema);
        store
    };
    Box::new(PostgresBackend {
        store: open("tenure"),
        other: open("other"),
        clock,
        mutations,
        database,
    })
}

/// The URL of a store in a schema of its own.
pub fn place(url: &str, schema: &str) -> String {
    let mark = if url.contains('?') { '&' } else { '?' };
    format!("{url}{mark}schema={schema}")
}

/// Puts the clock that leases are judged by into a table, where a test moves it. Bodies are kept as they are, so that
/// what a fork adds can be told from what its parent takes.
fn hold_clock(database: &Database, schema: &str) {
    database
        .execute(&format!(
            "CREATE TABLE {schema}.hand_clock(ms BIGINT NOT NULL); \
             INSERT INTO {schema}.hand_clock VALUES ({BEGIN}); \
             CREATE OR REPLACE FUNCTION {schema}.lease_clock() RETURNS BIGINT LANGUAGE sql VOLATILE AS \
             $$ SELECT ms FROM {schema}.hand_clock $$; \
             ALTER TABLE {schema}.event ALTER COLUMN body SET STORAGE EXTERNAL"
        ))
        .unwrap();
}

/// Copies the tables of sessions into a schema of their own.
pub fn copy(database: &Database) {
    let tables =
        SESSIONS.map(|table| format!("CREATE TABLE copied.{table} AS TABLE tenure.{table};"));
    let all = format!(
        "DROP SCHEMA IF EXISTS copied CASCADE; CREATE SCHEMA copied; {}",
        tables.concat()
    );
    database.execute(&all).unwrap();
}

/// The statements that put them back, as one transaction.
pub fn set_back() -> String {
    let back = SESSIONS.map(|table| {
        format!(
            "DELETE FROM tenure.{table}; INSERT INTO tenure.{table} SELECT * FROM copied.{table};"
        )
    });
    format!("BEGIN; {} COMMIT", back.concat())
}

impl Backend for PostgresBackend {
    fn store(&self) -> Arc<dyn Store> {
        Arc::<PostgresStore>::clone(&self.store)
    }
    fn other_store(&self) -> Arc<dyn Store> {
        Arc::<PostgresStore>::clone(&self.other)
    }
    fn crash(&self, node: &Incarnation) {
        self.store.crash_node(node);
    }
    fn advance(&self, by: Duration) {
        let by = by.as_millis() as i64;
        self.clock.0.fetch_add(by, Ordering::SeqCst);
        self.set_clock(by);
    }
    fn set_clock(&self, by_ms: i64) {
        let set = |schema| format!("UPDATE {schema}.hand_clock SET ms = ms + {by_ms};");
        let both = format!("{}{}", set("tenure"), set("other"));
        self.database.execute(&both).unwrap();
    }
    fn copy(&self) {
        copy(&self.database);
    }
    fn set_back(&self) {
        self.database.execute(&set_back()).unwrap();
    }
    fn fail_next_commit(&self, fault: Fault) {
        self.store.fail_next_commit(fault);
    }
    fn hold_writer(&self) -> Box<dyn Send> {
        self.store.hold_writer()
    }
    fn bytes(&self) -> u64 {
        let size = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n \
                    ON n.oid = c.relnamespace WHERE n.nspname = 'tenure' AND c.relkind = 'r'";
        let size = self.database.value(size).unwrap().unwrap();
        size.parse().unwrap()
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

/// A store by the real clocks, as a world of the suite for tests that mistreat its server.
pub struct Bare(pub Arc<PostgresStore>);

impl Backend for Bare {
    fn store(&self) -> Arc<dyn Store> {
        Arc::<PostgresStore>::clone(&self.0)
    }
    fn other_store(&self) -> Arc<dyn Store> {
        self.store()
    }
    fn crash(&self, node: &Incarnation) {
        self.0.crash_node(node);
    }
    fn advance(&self, by: Duration) {
        // tidy: sleep ok because these worlds go by the real clock: time passes by waiting.
        std::thread::sleep(by);
    }
    fn fail_next_commit(&self, fault: Fault) {
        self.0.fail_next_commit(fault);
    }
    fn hold_writer(&self) -> Box<dyn Send> {
        self.0.hold_writer()
    }
    fn bytes(&self) -> u64 {
        0
    }
}

/// A node whose lease outlives any test.
pub async fn lasting(w: &World) -> Incarnation {
    let incarnation = Incarnation::from_bits(w.bits());
    w.store
        .join(NodeInfo {
            incarnation: incarnation.clone(),
            name: "test".to_owned(),
            address: None,
            serves: Default::default(),
            lease: Duration::from_secs(3_600),
        })
        .await
        .unwrap();
    incarnation
}
