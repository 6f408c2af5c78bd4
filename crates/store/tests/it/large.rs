//! Known faults of large sessions: one bad session, one very large record, many forks of a large log.

use crate::sqlite_backend::fresh;
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::*;

/// Megabytes from the environment, where somebody wants a larger log than a usual run makes.
fn megabytes(name: &str, usual: usize) -> usize {
    let named = std::env::var(name).ok().and_then(|n| n.parse().ok());
    named.unwrap_or(usual)
}

/// A session whose log holds that many megabytes; its head.
async fn large(w: &World, megabytes: usize) -> (SessionId, u64) {
    let session = w.create().await;
    let text = "z".repeat(128 << 10);
    let mut head = 0;
    for _ in 0..megabytes {
        let events = (0..8).map(|_| w.renamed(&text)).collect();
        let append = Append::unfenced(session.clone(), events);
        head = w.store.append(append).await.unwrap().head;
    }
    // The list shows this, not the large one.
    assert_eq!(w.write(&session, w.renamed("short")).await.head, head + 1);
    (session, head + 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_078_one_large_record_and_one_bad_session_spoil_no_list() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let w = World::new(fresh());
    let (good, bad) = (SessionId::from_bits(1), SessionId::from_bits(2));
    for session in [&good, &bad] {
        let events = vec![w.created(), w.renamed("short"), w.renamed("also short")];
        let append = Append::unfenced(session.clone(), events);
        store.append(append).await.unwrap();
    }
    // What is too large for a record is told so, before anything is written.
    let huge = w.renamed(&"x".repeat(100 << 20));
    let refused = store
        .append(Append::unfenced(good.clone(), vec![huge]))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("in a file"), "{refused}");
    // The largest there can be ends its page: a page stays small however many are asked for.
    let text = "y".repeat(15 << 20);
    for _ in 0..4 {
        let event = w.renamed(&text);
        let append = Append::unfenced(good.clone(), vec![event]);
        store.append(append).await.unwrap();
    }
    let page = store.read(&good, None, 10_000).await.unwrap();
    assert!((4..7).contains(&page.events.len()), "{}", page.events.len());
    assert_eq!(page.head, Some(6));
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    let first = "UPDATE event SET body = '{\"tit' WHERE type = 'session.renamed' AND key IN
                 (SELECT key FROM event WHERE key >> 32 = (SELECT sid FROM session WHERE id = ?1))";
    assert_eq!(conn.execute(first, [bad.as_str()]).unwrap(), 2);
    let torn = store.read(&bad, Some(0), 10).await.unwrap_err();
    assert!(matches!(torn, ReadError::Damaged { .. }), "{torn}");
    // The program starts again: the list is read without any log.
    drop(store);
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let began = Instant::now();
    let rows = store.sessions(SessionQuery::default()).await.unwrap();
    let took = began.elapsed();
    let mut ids: Vec<&SessionId> = rows.iter().map(|row| &row.id).collect();
    ids.sort();
    assert_eq!(ids, [&good, &bad]);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(
        store.read(&good, Some(5), 10).await.unwrap().events.len(),
        1
    );
    for session in [&good, &bad] {
        let append = Append::unfenced(session.clone(), vec![w.renamed("goes on")]);
        store.append(append).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_079_twenty_forks_of_a_large_session_add_little_and_outlive_it() {
    let w = World::new(fresh());
    let (parent, head) = large(&w, megabytes("TENURE_FORK_MB", 24)).await;
    while w.store.gc().await.unwrap().more {}
    let before = w.backend.bytes();
    let mut forks = Vec::new();
    for _ in 0..20 {
        let child = SessionId::from_bits(w.bits());
        let event = w.event(SessionForked {
            parent: parent.clone(),
            through: head,
        });
        let began = Instant::now();
        w.store.fork(&parent, head, &child, event).await.unwrap();
        // Time and room are those of one small record, whatever the log's length.
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
        forks.push(child);
    }
    while w.store.gc().await.unwrap().more {}
    let added = w.backend.bytes().saturating_sub(before);
    assert!(added / 20 < 8 << 10, "a fork takes {} bytes", added / 20);
    let last = w.store.read(&parent, Some(head - 2), 2).await.unwrap();
    w.store.delete(&parent).await.unwrap();
    while w.store.gc().await.unwrap().more {}
    for child in &forks {
        let page = w.store.read(child, Some(head - 2), 10).await.unwrap();
        assert_eq!(page.head, Some(head + 1));
        let shared: Vec<_> = page.events.iter().take(2).map(|e| &e.body).collect();
        assert_eq!(
            shared,
            last.events.iter().map(|e| &e.body).collect::<Vec<_>>()
        );
        let first = w.store.read(child, None, 3).await.unwrap();
        assert_eq!(first.events.len(), 3);
        w.write(child, w.renamed("on its own")).await;
    }
    // With the last of them goes what they shared.
    for child in &forks {
        w.store.delete(child).await.unwrap();
    }
    while w.store.gc().await.unwrap().more {}
    assert!(w.backend.bytes() < before / 4, "{}", w.backend.bytes());
}
