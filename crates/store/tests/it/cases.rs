//! Known faults of such systems, as far as the store alone answers them.

use crate::processes::{as_full_disk, child_at};
use crate::sqlite_backend::fresh;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::conformance::world::{Owner, RELEASE_IDLE, admitted};
use tenure_store::*;

fn open(path: &Path) -> Arc<SqliteStore> {
    SqliteStore::open(path, OpenOptions::default()).unwrap()
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_017_order_is_seq_whatever_the_clock_says() {
    let w = World::new(fresh());
    let session = w.create().await;
    for n in 0..200_i64 {
        let mut event = w.renamed(&n.to_string());
        event.created_ms = 1_000 - (n % 7) * 5_000;
        w.write(&session, event).await;
    }
    let titles: Vec<_> = w.log(&session).await.into_iter().skip(1).collect();
    for (n, event) in titles.iter().enumerate() {
        assert!(
            matches!(&event.body, EventBody::SessionRenamed(data) if data.title == n.to_string())
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_018_a_repeated_creation_is_one_session() {
    let w = World::new(fresh());
    let session = SessionId::derived(&["request key k1"]);
    let created = w.created();
    for duplicate in [false, true] {
        let append = Append::unfenced(session.clone(), vec![created.clone()]);
        assert_eq!(w.store.append(append).await.unwrap().duplicate, duplicate);
    }
    assert_eq!(
        w.store
            .sessions(SessionQuery::default())
            .await
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_019_a_repeated_prompt_enters_once() {
    let w = World::new(fresh());
    let session = w.create().await;
    let input = MessageId::derived(&[session.as_str(), "k9"]);
    let event = w.event(admitted(&input, Delivery::Steer));
    let first = w.write(&session, event.clone()).await;
    let second = w.write(&session, event).await;
    assert_eq!((second.duplicate, second.events), (true, first.events));
    // Through the other endpoint, with an event of its own: refused, not a second input.
    let queued = w.event(admitted(&input, Delivery::Queue));
    let refused = w
        .store
        .append(Append::unfenced(session.clone(), vec![queued]))
        .await;
    assert!(
        matches!(refused, Err(AppendError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!(w.store.inbox(&session).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_021_028_pending_inputs_stay_in_order_until_promoted() {
    let w = World::new(fresh());
    let (session, _, mut owner, execution, message) = w.running().await;
    let (b, c) = (w.admit(&session).await, w.admit(&session).await);
    owner.end_step(&w, &message).await;
    owner.interrupted(&w, &execution).await;
    let waiting = || async {
        let inbox = w.store.inbox(&session).await.unwrap();
        inbox
            .into_iter()
            .map(|input| (input.input, input.eligible))
            .collect::<Vec<_>>()
    };
    assert_eq!(waiting().await, [(b.clone(), false), (c.clone(), false)]);
    let mut resume = Append::unfenced(session.clone(), Vec::new());
    resume.ops = vec![HookOp::Unpark];
    w.store.append(resume).await.unwrap();
    let node = w.join().await;
    let mut next = w.acquire(&session, &node).await;
    let seq = next.promote(&w, &b).await.unwrap().head;
    assert!(seq > 0, "delivery is an event of its own");
    assert_eq!(waiting().await, [(c, true)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_022_an_accepted_prompt_survives_every_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let mut child = child_at("admit", &path, 3, "admitted");
    child.kill().unwrap();
    child.wait().unwrap();
    let store = open(&path);
    let session = SessionId::from_bits(1);
    let inbox = store.inbox(&session).await.unwrap();
    assert_eq!((inbox.len(), inbox[0].eligible), (1, true));
    assert_eq!(store.claimable(9).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_023_a_prompt_in_the_closing_window_is_never_left() {
    let w = World::new(fresh());
    for round in 0..20 {
        let (session, node) = (w.create().await, w.join().await);
        let mut owner = w.acquire(&session, &node).await;
        let input = w.message();
        let event = w.event(admitted(&input, Delivery::Steer));
        let prompt = w
            .store
            .append(Append::unfenced(session.clone(), vec![event]));
        let close = owner.ops(vec![RELEASE_IDLE]);
        let released = if round % 2 == 0 {
            tokio::join!(prompt, close).1
        } else {
            tokio::join!(close, prompt).0
        };
        // Either the owner was told to go on, or the session is there for anybody to take.
        match (released, w.state(&session).await) {
            (Ok(_), SessionState::Claimable { .. }) => {}
            (Err(AppendError::NotIdle { .. }), SessionState::Owned { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_072_the_file_grows_with_the_text_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = open(&path);
    let w = World::new(fresh());
    let (session, node) = (SessionId::from_bits(1), Incarnation::from_bits(1));
    store
        .append(Append::unfenced(session.clone(), vec![w.created()]))
        .await
        .unwrap();
    let lease = Duration::from_secs(600);
    let info = NodeInfo {
        incarnation: node.clone(),
        name: "n".into(),
        address: None,
        serves: tenure_core::placement::Serves::everywhere(),
        lease,
    };
    store.join(info).await.unwrap();
    let Acquire::Acquired(tenure) = store.acquire(&session, &node, true).await.unwrap() else {
        panic!("not acquired");
    };
    store.gc().await.unwrap();
    let before = size(&path);
    let trait_store: Arc<dyn Store> = Arc::<SqliteStore>::clone(&store);
    let mut owner = Owner::new(&trait_store, &session, tenure);
    let message = w.message();
    // 4,000 deltas of 50 bytes arrive as checkpoints of 2 KB; ten such replies.
    for _ in 0..10 {
        let chunks = (0..100).map(|_| {
            w.event(FragmentChunk {
                message: message.clone(),
                part: 0,
                text: "t".repeat(2_000),
            })
        });
        owner
            .append(Guard::Settling, chunks.collect(), Vec::new())
            .await
            .unwrap();
    }
    store.gc().await.unwrap();
    let grown = size(&path) - before;
    // A page holds one checkpoint of 2 KB with its event, so the worst case is twice the text.
    assert!(
        grown < 2_000_000 * 9 / 4,
        "{grown} bytes for 2,000,000 of text"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_073_deleting_gives_space_back_while_others_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = open(&path);
    let w = World::new(fresh());
    let session = |n: u128| SessionId::from_bits(n + 1);
    let text = "z".repeat(20_000);
    for n in 0..50 {
        let mut events = vec![w.created()];
        events.extend((0..30).map(|_| w.renamed(&text)));
        store
            .append(Append::unfenced(session(n), events))
            .await
            .unwrap();
    }
    let full = store.gc().await.unwrap().bytes_after;
    assert!(full > 30_000_000);
    for n in 0..45 {
        store.delete(&session(n)).await.unwrap();
        store
            .append(Append::unfenced(session(49), vec![w.renamed("on")]))
            .await
            .unwrap();
    }
    let mut report = store.gc().await.unwrap();
    while report.more {
        store
            .append(Append::unfenced(session(49), vec![w.renamed("on")]))
            .await
            .unwrap();
        report = store.gc().await.unwrap();
    }
    assert!(report.bytes_after < full / 5, "{report:?} of {full}");
    assert_eq!(size(&path) / 1_000_000, report.bytes_after / 1_000_000);
    assert_eq!(store.health().await.unwrap().problems, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_074_a_full_disk_loses_nothing_and_goes_on_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(said) = as_full_disk(dir.path()) else {
        eprintln!("no small file system can be mounted here; not tested");
        return;
    };
    for line in [
        "refused: the store cannot be written: the disk is full",
        "as acknowledged",
        "went on",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(
        said.contains("opening: ") && said.contains("disk is full; free some space"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_077_the_list_reads_no_logs_and_sees_what_is_new() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let (store, other) = (open(&path), open(&path));
    let w = World::new(fresh());
    let appends = (0..2_000).map(|n| {
        let mut created = w.created();
        if let EventBody::SessionCreated(data) = &mut created.body {
            data.title = Some(format!("title {n}"));
        }
        store.append(Append::unfenced(SessionId::from_bits(n + 1), vec![created]))
    });
    for done in futures::future::join_all(appends).await {
        done.unwrap();
    }
    let newest = SessionId::from_bits(99_999);
    other
        .append(Append::unfenced(newest.clone(), vec![w.created()]))
        .await
        .unwrap();
    let page = store.sessions(SessionQuery::default()).await.unwrap();
    assert_eq!((page.len(), &page[0].id), (100, &newest));
    let found = SessionQuery {
        text: Some("TITLE 1999".into()),
        ..SessionQuery::default()
    };
    assert_eq!(store.sessions(found).await.unwrap().len(), 1);
    // The first page comes from the index on activity: no sort, no scan of the table.
    let conn = rusqlite::Connection::open(&path).unwrap();
    let sql = "EXPLAIN QUERY PLAN SELECT * FROM session s WHERE s.deleted = 0 \
               ORDER BY s.activity DESC LIMIT 100";
    let plan: String = conn.query_row(sql, [], |row| row.get(3)).unwrap();
    assert!(plan.contains("session_activity"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_080_a_torn_last_event_leaves_the_others_readable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = open(&path);
    let w = World::new(fresh());
    let session = SessionId::from_bits(1);
    let mut events = vec![w.created()];
    events.extend((0..400).map(|_| w.renamed("x")));
    store
        .append(Append::unfenced(session.clone(), events))
        .await
        .unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.busy_timeout(Duration::from_secs(10)).unwrap();
    conn.execute(
        "UPDATE event SET body = '{\"tit' WHERE key = (SELECT max(key) FROM event)",
        [],
    )
    .unwrap();
    let page = store.read(&session, None, 10_000).await.unwrap();
    assert_eq!((page.events.len(), page.head), (400, Some(400)));
    let torn = store.read(&session, Some(399), 10).await.unwrap_err();
    assert!(
        matches!(torn, ReadError::Damaged { seq: 400, .. }),
        "{torn}"
    );
    let committed = store
        .append(Append::unfenced(session, vec![w.renamed("goes on")]))
        .await
        .unwrap();
    assert_eq!(committed.head, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_081_the_last_used_session_is_the_one_with_the_last_activity() {
    let w = World::new(fresh());
    let (one, two) = (w.create().await, w.create().await);
    let mut event = w.event(admitted(&w.message(), Delivery::Steer));
    // Its clock went back by an hour; it is the last used one all the same.
    event.created_ms -= 3_600_000;
    w.write(&one, event).await;
    let rows = w.store.sessions(SessionQuery::default()).await.unwrap();
    assert_eq!(
        rows.iter().map(|row| &row.id).collect::<Vec<_>>(),
        [&one, &two]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_082_a_projection_is_never_older_than_its_log() {
    let w = World::new(fresh());
    let session = w.create().await;
    for n in 0..20 {
        w.write(&session, w.renamed(&n.to_string())).await;
        let row = w.store.session(&session).await.unwrap().unwrap();
        assert_eq!((row.head, row.title), (n + 1, Some(n.to_string())));
    }
}
