//! Rows that cannot be read: each is said to be so, and strands nobody else.

use crate::postgres_backend::{Bare, lasting, place};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::*;
use tenure_store::conformance::world::Owner;
use tenure_store::conformance::{Backend, World};
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::sqlite::Fault;
use tenure_store::*;
use tenure_testbed::postgres::shared_or_skip;

/// A store in a file, by the real clock.
struct Plain(Arc<SqliteStore>);

impl Backend for Plain {
    fn store(&self) -> Arc<dyn Store> {
        Arc::<SqliteStore>::clone(&self.0)
    }
    fn other_store(&self) -> Arc<dyn Store> {
        self.store()
    }
    fn crash(&self, node: &Incarnation) {
        self.0.crash_node(node);
    }
    fn advance(&self, _by: Duration) {}
    fn fail_next_commit(&self, fault: Fault) {
        self.0.fail_next_commit(fault);
    }
    fn hold_writer(&self) -> Box<dyn Send> {
        Box::new(())
    }
    fn bytes(&self) -> u64 {
        0
    }
}

/// Damages a column of a session by hand, past every rule.
type Damage<'a> = dyn Fn(&SessionId, &str, &str) + 'a;

/// `column` is one whose value `broken` no version can read.
async fn one_hides_no_other(
    store: &Arc<dyn Store>,
    w: &World,
    column: &str,
    broken: &str,
    damage: &Damage<'_>,
) {
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let session = w.create().await;
        w.admit(&session).await;
        sessions.push(session);
    }
    damage(&sessions[1], column, broken);
    let found = store.claimable(10).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|row| row.id).collect();
    assert_eq!(found, [sessions[0].clone(), sessions[2].clone()]);
    let listed = store.sessions(SessionQuery::default()).await.unwrap();
    assert_eq!(listed.len(), 3);
    for row in &listed {
        let unreadable = matches!(&row.state, SessionState::Quarantined { reason } if reason.starts_with("unreadable: "));
        assert_eq!(unreadable, row.id == sessions[1], "{row:?}");
    }
    let shown = store.session(&sessions[1]).await.unwrap();
    assert_eq!(
        shown.as_ref(),
        listed.iter().find(|row| row.id == sessions[1])
    );
    // What a node holds, and what all of them hold.
    let node = lasting(w).await;
    let mut held = Vec::new();
    for session in [&sessions[0], &sessions[2]] {
        let Acquire::Acquired(tenure) = store.acquire(session, &node, false).await.unwrap() else {
            panic!("not acquired");
        };
        held.push(Owner::new(store, session, tenure));
    }
    damage(&sessions[2], "claim_id", "no claim");
    let claims = store.claims().await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(|claim| claim.session).collect();
    assert_eq!(claims, [sessions[0].clone()]);
    let own = store.held(&node).await.unwrap();
    let own: Vec<_> = own.into_iter().map(|claim| claim.session).collect();
    assert_eq!(own, [sessions[0].clone()]);
    let on = vec![w.renamed("on")];
    held[0]
        .append(Guard::Settling, on, Vec::new())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_sqlite_that_cannot_be_read_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.db");
    let store = SqliteStore::open(&path, OpenOptions::default()).unwrap();
    let w = World::new(Box::new(Plain(Arc::clone(&store))));
    let damage = |session: &SessionId, column: &str, broken: &str| {
        let file = rusqlite::Connection::open(&path).unwrap();
        file.busy_timeout(Duration::from_secs(10)).unwrap();
        let set = format!("UPDATE session SET {column} = ?1 WHERE id = ?2");
        assert_eq!(file.execute(&set, [broken, session.as_str()]).unwrap(), 1);
    };
    let shared: Arc<dyn Store> = store;
    one_hides_no_other(&shared, &w, "forked_from", "no session", &damage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_postgres_that_cannot_be_read_hides_no_other() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    let store = PostgresStore::open(&place(database.url(), "tenure"), Options::default()).unwrap();
    let w = World::new(Box::new(Bare(Arc::clone(&store))));
    let damage = |session: &SessionId, column: &str, broken: &str| {
        let set = format!("UPDATE tenure.session SET {column} = '{broken}' WHERE id = '{session}'");
        database.execute(&set).unwrap();
    };
    let shared: Arc<dyn Store> = store;
    one_hides_no_other(&shared, &w, "rest", "{", &damage).await;
}
