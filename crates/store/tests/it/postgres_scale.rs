//! What many sessions cost that only wait.

use crate::postgres_backend::{Bare, lasting, place};
use futures::StreamExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::id::SessionId;
use tenure_store::conformance::World;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::shared_or_skip;

/// Sessions that wait, on an approval or on a model.
const WAITING: usize = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_ten_thousand_waiting_sessions_cost_one_row_write_a_renewal() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    let url = place(database.url(), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    let w = Arc::new(World::new(Box::new(Bare(Arc::clone(&store)))));
    let node = lasting(&w).await;
    let began = Instant::now();
    let owned = futures::stream::iter(0..WAITING).map(|_| {
        let (w, node) = (Arc::clone(&w), node.clone());
        tokio::spawn(async move {
            let session = w.create().await;
            w.acquire(&session, &node).await;
            session
        })
    });
    let owned: Vec<_> = owned.buffer_unordered(1_000).collect().await;
    let sessions: Vec<SessionId> = owned.into_iter().map(Result::unwrap).collect();
    println!("{WAITING} sessions made and owned in {:?}", began.elapsed());
    // Every version of a row has a place and a writer of its own: nothing was written where both are as before.
    let rows = || {
        let rows = "SELECT md5(string_agg(place, ',' ORDER BY place)) FROM \
             (SELECT 's' || sid || ctid::TEXT || xmin::TEXT AS place FROM tenure.session \
              UNION ALL SELECT 'c' || sid || ctid::TEXT || xmin::TEXT FROM tenure.claim) r";
        database.value(rows).unwrap().unwrap()
    };
    let renewals = || {
        let sum = "SELECT sum(renewal_no) FROM tenure.node";
        database
            .value(sum)
            .unwrap()
            .unwrap()
            .parse::<i64>()
            .unwrap()
    };
    let before = (rows(), renewals());
    // What a node does for them in five seconds: it renews, looks at what it holds, for the dead, and for work.
    const ROUNDS: i64 = 5;
    let mut slowest = Duration::ZERO;
    for _ in 0..ROUNDS {
        let round = Instant::now();
        assert_eq!(store.renew(&node).await.unwrap(), Renewal::Renewed);
        assert_eq!(store.reap(&node).await.unwrap(), []);
        assert_eq!(store.held(&node).await.unwrap().len(), WAITING);
        assert_eq!(store.claimable(10).await.unwrap(), []);
        slowest = slowest.max(round.elapsed());
    }
    println!("a round of upkeep took at most {slowest:?}");
    let after = (before.0, before.1 + ROUNDS);
    assert_eq!(
        (rows(), renewals()),
        after,
        "one row for each renewal, and none for a session"
    );
    // Their owner goes: all of them are for anybody, oldest first.
    store.leave(&node).await.unwrap();
    let heir = lasting(&w).await;
    let began = Instant::now();
    let free = store.claimable(200).await.unwrap();
    println!(
        "200 of {WAITING} free sessions found in {:?}",
        began.elapsed()
    );
    assert_eq!(free.len(), 200);
    assert!(free.iter().all(|row| sessions.contains(&row.id)));
    let taken = store.acquire(&free[0].id, &heir, false).await.unwrap();
    assert!(matches!(taken, Acquire::Acquired(_)), "{taken:?}");
}
