//! Several processes on one database: wakes through every path, who is alive, and what the dead leave behind.

use crate::postgres_backend::{Bare, lasting, place};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::{Database, shared_or_skip};
use tenure_testbed::wait::PATIENCE;

/// Two processes' stores on one database.
struct Two {
    one: World,
    two: World,
    first: Arc<PostgresStore>,
    second: Arc<PostgresStore>,
    database: Database,
}

fn two() -> Option<Two> {
    two_that(false)
}

/// `events_only`: nothing is looked at now and then, so that what is noticed was told.
fn two_that(events_only: bool) -> Option<Two> {
    let database = shared_or_skip()?.database().unwrap();
    let open = || {
        let url = place(database.url(), "tenure");
        let options = Options {
            silent_is_gone: true,
            events_only,
            ..Options::default()
        };
        PostgresStore::open(&url, options).unwrap()
    };
    let (first, second) = (open(), open());
    let world = |store: &Arc<PostgresStore>| World::new(Box::new(Bare(Arc::clone(store))));
    let (one, two) = (world(&first), world(&second));
    // Ids of the two worlds must not meet.
    for _ in 0..1_000 {
        two.bits();
    }
    Some(Two {
        one,
        two,
        first,
        second,
        database,
    })
}

async fn woken(wake: &mut tokio::sync::watch::Receiver<u64>, within: Duration) -> bool {
    tokio::time::timeout(within, wake.changed()).await.is_ok()
}

impl Two {
    /// Waits until the second process listens: until then everybody is woken for its own sake.
    async fn listening(&self) {
        let began = Instant::now();
        loop {
            let durability = self.second.health().await.unwrap().durability;
            if !durability.contains("deaf") {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{durability}");
            // tidy: sleep ok because it only paces the looks.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets the first looks at a fresh watch pass, so that only news wakes it.
    async fn settled(&self, wake: &mut tokio::sync::watch::Receiver<u64>) {
        self.listening().await;
        while woken(wake, Duration::from_millis(1_300)).await {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn news_reaches_another_process_without_its_poll() {
    let Some(at) = two_that(true) else { return };
    let session = at.one.create().await;
    let mut wake = at.second.watch(&session);
    at.listening().await;
    // One may be woken by the listener's beginning; the others only by what it hears.
    for n in 0..10 {
        at.one.write(&session, at.one.renamed(&n.to_string())).await;
        assert!(woken(&mut wake, PATIENCE).await, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_its_listener_dead_the_poll_finds_it_and_the_listener_comes_back() {
    let Some(at) = two() else { return };
    let session = at.one.create().await;
    let mut wake = at.second.watch(&session);
    at.settled(&mut wake).await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE application_name IN ('tenure listener', 'tenure notifier') \
               AND datname = current_database()";
    at.database.value(end).unwrap();
    at.one.write(&session, at.one.renamed("news")).await;
    assert!(woken(&mut wake, PATIENCE).await);
    at.listening().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_append_to_one_session_leave_a_dense_log() {
    let Some(at) = two() else { return };
    let session = at.one.create().await;
    let mut writing = Vec::new();
    for (w, store) in [(&at.one, &at.first), (&at.two, &at.second)] {
        for _ in 0..4 {
            let events: Vec<_> = (0..25).map(|n| w.renamed(&n.to_string())).collect();
            let (store, session) = (Arc::clone(store), session.clone());
            writing.push(tokio::spawn(async move {
                for event in events {
                    let append = Append::unfenced(session.clone(), vec![event]);
                    store.append(append).await.unwrap();
                }
            }));
        }
    }
    for one in writing {
        one.await.unwrap();
    }
    let log = at.two.log(&session).await;
    assert_eq!(log.len(), 201);
    assert!(
        log.iter()
            .enumerate()
            .all(|(n, event)| event.seq == n as u64)
    );
}

/// Batches of many sessions in two processes at once, each over the same ones: nobody waits for the other in a ring.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_over_the_same_sessions_never_deadlock() {
    let Some(at) = two() else { return };
    let mut sessions = Vec::new();
    for _ in 0..12 {
        sessions.push(at.one.create().await);
    }
    let mut writing = Vec::new();
    for (backwards, w, store) in [(false, &at.one, &at.first), (true, &at.two, &at.second)] {
        let mut order = sessions.clone();
        if backwards {
            order.reverse();
        }
        for session in order {
            for _ in 0..10 {
                let append = Append::unfenced(session.clone(), vec![w.renamed("x")]);
                let store = Arc::clone(store);
                writing.push(tokio::spawn(async move { store.append(append).await }));
            }
        }
    }
    for one in writing {
        one.await.unwrap().unwrap();
    }
    for session in &sessions {
        assert_eq!(at.one.log(session).await.len(), 21);
    }
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(at.database.value(deadlocks).unwrap().as_deref(), Some("0"));
}

async fn join(w: &World, address: Option<String>) -> Incarnation {
    let incarnation = Incarnation::from_bits(w.bits());
    w.store
        .join(NodeInfo {
            incarnation: incarnation.clone(),
            name: "test".to_owned(),
            address,
            serves: Default::default(),
            lease: Duration::from_secs(3_600),
        })
        .await
        .unwrap();
    incarnation
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_address_answers_is_not_suspected() {
    let Some(at) = two() else { return };
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}#machine=m1", door.local_addr().unwrap());
    let cut_off = join(&at.one, Some(address)).await;
    let told = |machine| Some(format!("http://127.0.0.1:1#machine={machine}"));
    let (beside, far) = (
        join(&at.two, told("m1")).await,
        join(&at.two, told("m2")).await,
    );
    at.first.crash_node(&cut_off);
    assert_eq!(at.second.reap(&beside).await.unwrap(), []);
    // Its process goes too: now the address refuses, on the machine that it means something on.
    drop(door);
    assert_eq!(at.second.reap(&far).await.unwrap(), []);
    assert_eq!(at.second.reap(&beside).await.unwrap(), [cut_off]);
}

/// Fast suspicion needs both halves: one whose presence is gone and that named no address has its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_an_address_is_judged_by_its_lease() {
    let Some(at) = two() else { return };
    let url = place(at.database.url(), "tenure");
    let strict = PostgresStore::open(&url, Options::default()).unwrap();
    let cut_off = join(&at.one, None).await;
    let observer = join(&at.two, None).await;
    at.first.crash_node(&cut_off);
    assert_eq!(strict.reap(&observer).await.unwrap(), []);
    assert_eq!(at.second.reap(&observer).await.unwrap(), [cut_off]);
}

/// A presence that the server drops is taken again as soon as its end is heard, not at the next look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_presence_is_taken_again_at_once() {
    // Nobody looks whether it is still there: only its end can be heard.
    let Some(at) = two_that(true) else { return };
    let node = lasting(&at.one).await;
    let held = format!(
        "SELECT coalesce(min(a.pid), 0) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND a.application_name = 'tenure/{node}'"
    );
    let holder = || at.database.value(&held).unwrap().unwrap();
    let first = holder();
    assert_ne!(first, "0");
    let began = Instant::now();
    at.database
        .value(&format!("SELECT pg_terminate_backend({first})"))
        .unwrap();
    while ["0", first.as_str()].contains(&holder().as_str()) {
        assert!(began.elapsed() < PATIENCE);
        // tidy: sleep ok because it only paces the looks.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_node_left_on_the_server_is_ended() {
    let Some(at) = two() else { return };
    let session = at.one.create().await;
    let node = lasting(&at.one).await;
    let owner = at.one.acquire(&session, &node).await;
    // A transaction of its own that holds the head row, as if its process were stopped in the middle of it.
    let (client, connection) = {
        let mut config: tokio_postgres::Config = at.database.url().parse().unwrap();
        config.application_name(format!("tenure/{node}"));
        config.connect(tokio_postgres::NoTls).await.unwrap()
    };
    tokio::spawn(connection);
    let lock = format!("BEGIN; SELECT 1 FROM tenure.session WHERE id = '{session}' FOR UPDATE");
    client.batch_execute(&lock).await.unwrap();
    let observer = lasting(&at.two).await;
    at.first.crash_node(&node);
    assert_eq!(at.second.reap(&observer).await.unwrap(), [node]);
    let heir = at.second.acquire(&session, &observer, true).await.unwrap();
    let Acquire::Acquired(tenure) = heir else {
        panic!("{heir:?}")
    };
    assert_eq!(tenure.fence.epoch, owner.fence.epoch + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nodes_connections_bear_its_name() {
    let Some(at) = two() else { return };
    let session = at.one.create().await;
    let node = lasting(&at.one).await;
    at.one.write(&session, at.one.renamed("x")).await;
    // Its presence, and the connection it writes by, which was there before it joined.
    let named = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure/{node}' \
         AND datname = current_database()"
    );
    assert_eq!(at.database.value(&named).unwrap().as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_secret_is_one_for_all_and_long() {
    let Some(at) = two() else { return };
    let secret = at.first.cluster_secret().await.unwrap().unwrap();
    assert_eq!(secret.len(), 32);
    assert_eq!(at.second.cluster_secret().await.unwrap(), Some(secret));
}
