//! Known faults of large sessions: one bad session, one very large record, many forks of a large log.

use crate::sqlite_backend::fresh;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody, EventRecord};
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::*;

/// Megabytes from the environment, where somebody wants a larger log than a usual run makes.
fn megabytes(name: &str, usual: usize) -> usize {
    let named = std::env::var(name).ok().and_then(|n| n.parse().ok());
    named.unwrap_or(usual)
}

/// A session whose log holds that many megabytes of what is no setting of it; its head.
async fn large(store: &Arc<SqliteStore>, w: &World, megabytes: usize) -> (SessionId, u64) {
    let session = SessionId::from_bits(w.bits());
    let record = |seq: u64, body: EventBody| {
        EventRecord::from(&Event {
            id: EventId::from_bits(w.bits()),
            session: session.clone(),
            seq,
            epoch: None,
            created_ms: 1,
            body,
        })
    };
    let created = record(0, w.created().body);
    store.replay(&session, vec![created]).await.unwrap();
    let text = "z".repeat(128 << 10);
    let mut head = 0;
    for _ in 0..megabytes {
        let changed = |n| InstructionsChanged {
            text: text.clone(),
            digest: format!("{n}"),
        };
        let seqs = head + 1..=head + 8;
        let records = seqs.map(|n| record(n, changed(n).into())).collect();
        store.replay(&session, records).await.unwrap();
        head += 8;
    }
    let append = Append::unfenced(session.clone(), vec![w.renamed("short")]);
    assert_eq!(store.append(append).await.unwrap().head, head + 1);
    (session, head + 1)
}

/// Another connection to the file, as another program has it.
fn beside(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn
}

/// Makes these events of a session unreadable without changing their length: whoever looks at one of them finds out.
fn spoil(conn: &rusqlite::Connection, session: &SessionId, from: u64, to: u64) {
    let sql =
        "UPDATE event SET body = replace(body, '}', ' ') WHERE key & 4294967295 BETWEEN ?2 AND ?3
               AND key >> 32 = (SELECT sid FROM session WHERE id = ?1)";
    let changed = conn.execute(
        sql,
        rusqlite::params![session.as_str(), from as i64, to as i64],
    );
    assert_eq!(changed.unwrap() as u64, to - from + 1);
}

/// The rows of all tables.
fn rows(conn: &rusqlite::Connection) -> i64 {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let mut names = conn.prepare(names).unwrap();
    let names = names.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let count = |name: rusqlite::Result<String>| {
        let sql = format!("SELECT count(*) FROM {}", name.unwrap());
        conn.query_row(&sql, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    names.map(count).sum()
}

async fn collected(store: &Arc<SqliteStore>) {
    while store.gc().await.unwrap().more {}
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
    let conn = beside(&path);
    let first = "UPDATE event SET body = '{\"tit' WHERE type = 'session.renamed' AND key IN
                 (SELECT key FROM event WHERE key >> 32 = (SELECT sid FROM session WHERE id = ?1))";
    assert_eq!(conn.execute(first, [bad.as_str()]).unwrap(), 2);
    let torn = store.read(&bad, Some(0), 10).await.unwrap_err();
    assert!(matches!(torn, ReadError::Damaged { .. }), "{torn}");
    // The program starts again: the list is read without any log, which nobody could read now.
    spoil(&conn, &good, 0, 5);
    drop(store);
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let rows = store.sessions(SessionQuery::default()).await.unwrap();
    let mut ids: Vec<&SessionId> = rows.iter().map(|row| &row.id).collect();
    ids.sort();
    assert_eq!(ids, [&good, &bad]);
    assert_eq!(
        store.read(&good, Some(5), 10).await.unwrap().events.len(),
        1
    );
    for session in [&good, &bad] {
        let append = Append::unfenced(session.clone(), vec![w.renamed("goes on")]);
        store.append(append).await.unwrap();
    }
}

/// What is in force at the end of a log stands in its session's row: forking there looks at no event that set it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_at_the_end_reads_no_setting_however_many_there_were() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let w = World::new(fresh());
    let parent = SessionId::from_bits(w.bits());
    let mut events = vec![w.created()];
    events.extend((0..50).map(|n| w.renamed(&n.to_string())));
    let made = store
        .append(Append::unfenced(parent.clone(), events))
        .await
        .unwrap();
    spoil(&beside(&path), &parent, 0, made.head);
    let child = SessionId::from_bits(w.bits());
    let through = made.head;
    let fork = |through| {
        w.event(SessionForked {
            parent: parent.clone(),
            through,
        })
    };
    store
        .fork(&parent, through, &child, fork(through))
        .await
        .unwrap();
    let (of, like) = (store.session(&child), store.session(&parent));
    let (of, like) = (of.await.unwrap().unwrap(), like.await.unwrap().unwrap());
    assert_eq!(of.title.as_deref(), Some("49"));
    assert_eq!(
        (of.title, of.location, of.model),
        (like.title, like.location, like.model)
    );
    // Before the end they have to be looked at.
    let early = SessionId::from_bits(w.bits());
    let refused = store.fork(&parent, through - 1, &early, fork(through - 1));
    assert!(matches!(refused.await, Err(AppendError::Rejected { .. })));
}

/// Rows that one fork may add: the session, its event, and what lists show of it.
const ROWS_OF_A_FORK: i64 = 4;
/// Bytes that one fork may add, however long the log is.
const BYTES_OF_A_FORK: u64 = 8 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_079_twenty_forks_of_a_large_session_add_little_and_outlive_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let w = World::new(fresh());
    let bytes = || std::fs::metadata(&path).unwrap().len();
    let (parent, head) = large(&store, &w, megabytes("TENURE_FORK_MB", 24)).await;
    let conn = beside(&path);
    // A fork that looked into the log, which is what takes time, would not succeed.
    spoil(&conn, &parent, 4, head - 3);
    let read = store.read(&parent, Some(100), 1).await.unwrap_err();
    assert!(matches!(read, ReadError::Damaged { .. }), "{read}");
    collected(&store).await;
    let (before, rows_before) = (bytes(), rows(&conn));
    let mut forks = Vec::new();
    for _ in 0..20 {
        let child = SessionId::from_bits(w.bits());
        let event = w.event(SessionForked {
            parent: parent.clone(),
            through: head,
        });
        store.fork(&parent, head, &child, event).await.unwrap();
        forks.push(child);
    }
    let added = (rows(&conn) - rows_before) / 20;
    assert!(added <= ROWS_OF_A_FORK, "a fork adds {added} rows");
    collected(&store).await;
    let added = bytes().saturating_sub(before) / 20;
    assert!(added < BYTES_OF_A_FORK, "a fork takes {added} bytes");
    let last = store.read(&parent, Some(head - 2), 2).await.unwrap();
    store.delete(&parent).await.unwrap();
    collected(&store).await;
    for child in &forks {
        let page = store.read(child, Some(head - 2), 10).await.unwrap();
        assert_eq!(page.head, Some(head + 1));
        let shared: Vec<_> = page.events.iter().take(2).map(|e| &e.body).collect();
        assert_eq!(
            shared,
            last.events.iter().map(|e| &e.body).collect::<Vec<_>>()
        );
        let first = store.read(child, None, 3).await.unwrap();
        assert_eq!(first.events.len(), 3);
        let append = Append::unfenced(child.clone(), vec![w.renamed("on its own")]);
        store.append(append).await.unwrap();
    }
    // With the last of them goes what they shared.
    for child in &forks {
        store.delete(child).await.unwrap();
    }
    collected(&store).await;
    assert!(bytes() < before / 4, "{}", bytes());
}
