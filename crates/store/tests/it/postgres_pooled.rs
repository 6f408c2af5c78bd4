//! The conformance suite through a transaction-mode pooler: the reduced mode keeps every promise but fast suspicion.

use crate::mutants::holds_on;
use crate::postgres_backend::{Bare, place, reached};
use crate::postgres_settings::{FLUSHES_SEEN, SEE_FLUSHES};
use futures::StreamExt;
use std::sync::Arc;
use tenure_store::conformance::CASES;
use tenure_store::conformance::World;
use tenure_store::mutation::Mutations;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_testbed::pgbouncer::Pooler;
use tenure_testbed::postgres::shared_or_skip;

/// How many worlds stand at once.
const AT_ONCE: usize = 4;
/// Parts of the suite that write; the others read what these wrote.
const WRITING: [&str; 6] = [
    "appending::",
    "claiming::",
    "dropping::",
    "handing::",
    "hooking::",
    "interrupting::",
];
/// A crash is found at once, which takes a presence that a pooler does not pass on.
const SUSPECTING: &str = "claiming::loading_is_charged_until_a_step_begins";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_case_that_writes_holds_behind_a_pooler() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let Some(pooler) = Pooler::or_skip(server, 8) else {
        return;
    };
    let pooler = Arc::new(pooler);
    let cases = CASES.iter().filter(|case| {
        let writes = WRITING.iter().any(|part| case.name.starts_with(part));
        writes && case.name != SUSPECTING
    });
    let runs = cases.map(|case| {
        let pooler = Arc::clone(&pooler);
        async move {
            // Every case takes for granted that the server answers. One whose disk stands still for longer than an answer
            // is waited for fails any of them; what a pooler breaks is broken the second time, too.
            for _ in 0..2 {
                let database = server.database().unwrap();
                let backend = reached(Mutations::default(), database, |url| pooler.url(url));
                if holds_on(case.name, backend).await {
                    return None;
                }
            }
            Some(case.name)
        }
    });
    let runs = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
    let failed: Vec<&str> = runs
        .filter_map(|failed| async move { failed })
        .collect()
        .await;
    assert_eq!(failed, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_database_promises_less_than_a_flush_is_raised_in_each_transaction() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let Some(pooler) = Pooler::or_skip(server, 4) else {
        return;
    };
    let database = server.database().unwrap();
    let off = format!(
        "ALTER DATABASE \"{}\" SET synchronous_commit = off",
        database.name()
    );
    database.execute(&off).unwrap();
    let url = place(&pooler.url(database.url()), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    assert!(store.is_reduced());
    database.execute(SEE_FLUSHES).unwrap();
    let w = World::new(Box::new(Bare(store)));
    let session = w.create().await;
    w.admit(&session).await;
    let seen = |sql: &str| database.value(sql).unwrap();
    assert_eq!(seen(FLUSHES_SEEN).as_deref(), Some("on"));
    assert_eq!(
        seen("SHOW synchronous_commit").as_deref(),
        Some("off"),
        "what the database says for itself"
    );
}
