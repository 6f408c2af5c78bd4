//! Who only looks makes no store and brings none up to date, over SQLite and PostgreSQL alike.

use crate::postgres_backend::{Bare, place};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tenure_store::conformance::World;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::shared_or_skip;

fn file(path: &Path, opening: Opening) -> Result<Arc<SqliteStore>, OpenError> {
    let options = OpenOptions {
        opening,
        ..OpenOptions::default()
    };
    SqliteStore::open(path, options)
}

fn server(url: &str, opening: Opening) -> Result<Arc<PostgresStore>, OpenError> {
    let options = Options {
        opening,
        ..Options::default()
    };
    PostgresStore::open(url, options)
}

#[test]
fn looking_makes_no_file_and_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/tenure.db");
    for opening in [Opening::Look, Opening::Update] {
        let said = file(&path, opening).unwrap_err();
        assert!(matches!(said, OpenError::Missing { .. }), "{said}");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    drop(file(&path, Opening::Make).unwrap());
    drop(file(&path, Opening::Look).unwrap());
}

#[test]
fn looking_leaves_an_older_file_as_it_is_and_working_brings_it_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    // As the first version made it.
    let made = Connection::open(&path).unwrap();
    let first = include_str!("../../src/sqlite/schema.sql");
    made.execute_batch(first).unwrap();
    let sum = first.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    made.execute_batch(&format!(
        "INSERT INTO migration(version, checksum, applied_ms) VALUES (1, '{sum:016x}', 0); \
         PRAGMA application_id = {}; PRAGMA user_version = 1; PRAGMA journal_mode = WAL;",
        0x746e_7265
    ))
    .unwrap();
    made.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let said = file(&path, Opening::Look).unwrap_err();
    assert!(matches!(said, OpenError::Older { found: 1, .. }), "{said}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    drop(file(&path, Opening::Update).unwrap());
    drop(file(&path, Opening::Look).unwrap());
}

#[test]
fn another_programs_file_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE mine(x)").unwrap();
    other.close().unwrap();
    let before = std::fs::read(&path).unwrap();
    for opening in [Opening::Look, Opening::Make] {
        let said = file(&path, opening).unwrap_err().to_string();
        assert!(said.contains("another program"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn looking_makes_no_schema_and_names_those_that_are_there() {
    let Some(shared) = shared_or_skip() else {
        return;
    };
    let database = shared.database().unwrap();
    let url = place(database.url(), "tenure");
    for opening in [Opening::Look, Opening::Update] {
        let said = server(&url, opening).unwrap_err();
        let OpenError::Missing { others, grant, .. } = &said else {
            panic!("{said}")
        };
        assert_eq!((others.len(), grant), (0, &None));
        assert!(said.to_string().contains("schema `tenure`"), "{said}");
    }
    assert_eq!(database.schemas().unwrap(), None);
    drop(server(&url, Opening::Make).unwrap());
    drop(server(&url, Opening::Look).unwrap());
    let said = server(&place(database.url(), "tenuer"), Opening::Look).unwrap_err();
    let OpenError::Missing { others, .. } = &said else {
        panic!("{said}")
    };
    assert_eq!(others, &["tenure"]);
    assert_eq!(database.schemas().unwrap().as_deref(), Some("tenure"));
}

#[test]
fn looking_leaves_an_older_schema_as_it_is() {
    let Some(shared) = shared_or_skip() else {
        return;
    };
    let database = shared.database().unwrap();
    let url = place(database.url(), "tenure");
    drop(server(&url, Opening::Make).unwrap());
    // There is only one version so far: what came before it is a table of versions that holds none.
    let taken = "CREATE TABLE public.taken AS TABLE tenure.migration; DELETE FROM tenure.migration";
    database.execute(taken).unwrap();
    let said = server(&url, Opening::Look).unwrap_err();
    assert!(matches!(said, OpenError::Older { found: 0, .. }), "{said}");
    let count = "SELECT count(*) FROM tenure.migration";
    assert_eq!(database.value(count).unwrap().as_deref(), Some("0"));
    let back = "INSERT INTO tenure.migration SELECT * FROM public.taken";
    database.execute(back).unwrap();
    drop(server(&url, Opening::Look).unwrap());
}

/// A role that may read and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_only_read_can_look() {
    let Some(shared) = shared_or_skip() else {
        return;
    };
    let database = shared.database().unwrap();
    let name = format!("u_{}", uuid::Uuid::new_v4().simple());
    let create = format!("CREATE ROLE {name} LOGIN PASSWORD 'pw'");
    database.execute(&create).unwrap();
    let (_, host) = database.url().rsplit_once('@').unwrap();
    let reader = place(&format!("postgres://{name}:pw@{host}"), "tenure");
    let said = server(&reader, Opening::Look).unwrap_err();
    assert!(
        matches!(&said, OpenError::Missing { grant: Some(grant), .. } if grant.starts_with("GRANT CREATE ON DATABASE")),
        "{said}"
    );
    let owner = server(&place(database.url(), "tenure"), Opening::Make).unwrap();
    let w = World::new(Box::new(Bare(owner)));
    let session = w.create().await;
    let said = server(&reader, Opening::Look).unwrap_err();
    let OpenError::MissingRights { grant, .. } = &said else {
        panic!("{said}")
    };
    assert!(!grant.contains("ALL ON SCHEMA"), "{grant}");
    // What it says is enough; the nodes' secret is no reader's.
    let given = format!("{grant}; REVOKE ALL ON tenure.cluster FROM {name}");
    database.execute(&given).unwrap();
    let store = server(&reader, Opening::Look).unwrap();
    let rows = store.sessions(SessionQuery::default()).await.unwrap();
    assert_eq!(rows.len(), 1);
    let page = store.read(&session, None, 10).await.unwrap();
    assert_eq!(page.events.len(), 1);
    assert!(store.claims().await.unwrap().is_empty());
    assert!(store.nodes().await.unwrap().is_empty());
    assert!(store.claimable(1).await.unwrap().is_empty());
    assert_eq!(store.health().await.unwrap().sessions, 1);
    store.weak().await.unwrap();
    let secret = store.cluster_secret().await.unwrap_err().to_string();
    assert!(secret.contains("permission denied"), "{secret}");
    let event = w.renamed("x");
    let refused = store
        .append(Append::unfenced(session.clone(), vec![event]))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("permission denied"), "{refused}");
    drop(store);
    let gone = format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}");
    database.execute(&gone).unwrap();
}
