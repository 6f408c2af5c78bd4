//! What a server, a database or a role was told for other programs' sake changes nothing that the store promises.

use crate::postgres_backend::{Bare, place};
use std::sync::Arc;
use tenure_store::conformance::World;
use tenure_store::postgres::{Options, PostgresStore};
use tenure_store::*;
use tenure_testbed::postgres::{Cluster, Database, Options as Servers, shared_or_skip};
use tenure_testbed::wait;

fn tell(database: &Database, settings: &[&str]) {
    for setting in settings {
        let alter = format!("ALTER DATABASE \"{}\" SET {setting}", database.name());
        // From outside, where it does not hold yet.
        database.server().execute(&alter).unwrap();
    }
}

fn open(database: &Database) -> Result<Arc<PostgresStore>, OpenError> {
    PostgresStore::open(&place(database.url(), "tenure"), Options::default())
}

fn world(store: &Arc<PostgresStore>) -> World {
    World::new(Box::new(Bare(Arc::clone(store))))
}

/// A row that somebody wrote meanwhile is looked at again: a transaction that may see only what was there when it
/// began would be refused instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_default_isolation_makes_no_append_fail() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    tell(
        &database,
        &[
            "default_transaction_isolation = 'serializable'",
            "default_transaction_deferrable = on",
        ],
    );
    let store = open(&database).unwrap();
    let w = world(&store);
    let connected = tokio_postgres::connect(database.url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    for _ in 0..10 {
        let session = w.create().await;
        let write =
            format!("BEGIN; UPDATE tenure.session SET title = title WHERE id = '{session}'");
        client.batch_execute(&write).await.unwrap();
        let append = Append::unfenced(session.clone(), vec![w.renamed("x")]);
        let writer = Arc::clone(&store);
        let meets = tokio::spawn(async move { writer.append(append).await });
        let waiting = "SELECT count(*) FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND datname = current_database()";
        tokio::task::block_in_place(|| {
            wait::until_true("an append that waits", wait::PATIENCE, || {
                meets.is_finished() || database.value(waiting).unwrap().as_deref() == Some("1")
            })
            .unwrap();
        });
        client.batch_execute("COMMIT").await.unwrap();
        match meets.await.unwrap() {
            Ok(committed) => {
                assert_eq!(committed.head, 1);
                return;
            }
            // On a busy machine its patience with the lock may be over; that is not always so.
            Err(AppendError::Unavailable { reason }) if reason.contains("locked") => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("nothing was written before its patience was over");
}

/// Whoever may make functions in a schema that is searched first would otherwise be asked in the server's place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_path_leads_no_statement_elsewhere() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    let mut traps = String::from("CREATE SCHEMA trap;");
    for (function, returns) in [
        ("unnest(TEXT[])", "SETOF TEXT"),
        ("unnest(BIGINT[])", "SETOF BIGINT"),
        ("nextval(TEXT)", "BIGINT"),
        ("pg_notify(TEXT, TEXT)", "VOID"),
        ("current_setting(TEXT)", "TEXT"),
        ("clock_timestamp()", "TIMESTAMPTZ"),
        ("max(BIGINT)", "BIGINT"),
    ] {
        traps.push_str(&format!(
            "CREATE FUNCTION trap.{function} RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'trapped in {function}'; END $$;"
        ));
    }
    database.execute(&traps).unwrap();
    tell(&database, &["search_path = trap, pg_catalog"]);
    let store = open(&database).unwrap();
    let w = world(&store);
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    let event = vec![w.renamed("safe")];
    owner
        .append(Guard::Settling, event, Vec::new())
        .await
        .unwrap();
    assert_eq!(store.renew(&node).await.unwrap(), Renewal::Renewed);
    assert_eq!(w.log(&session).await.len(), 2);
    assert_eq!(store.health().await.unwrap().sessions, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_default_is_said_when_it_is_met() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    let read_only = ["default_transaction_read_only = on"];
    tell(&database, &read_only);
    let refused = open(&database).unwrap_err().to_string();
    assert!(
        refused.contains("default_transaction_read_only"),
        "{refused}"
    );
    tell(&database, &["default_transaction_read_only = off"]);
    let session = world(&open(&database).unwrap()).create().await;
    tell(&database, &read_only);
    let store = open(&database).unwrap();
    let w = world(&store);
    // Ids of the two worlds must not meet.
    for _ in 0..100 {
        w.bits();
    }
    // What is there can be read.
    assert_eq!(w.log(&session).await.len(), 1);
    let event = w.renamed("x");
    let refused = store
        .append(Append::unfenced(session.clone(), vec![event]))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, AppendError::Unavailable { reason } if reason.contains("default_transaction_read_only")),
        "{refused:?}"
    );
    tell(&database, &["default_transaction_read_only = off"]);
    w.write(&session, w.renamed("y")).await;
}

/// From then on the server notes what each append's commit waits for.
pub const SEE_FLUSHES: &str = "CREATE TABLE tenure.seen(setting TEXT); \
     CREATE FUNCTION tenure.see() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN \
     INSERT INTO tenure.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$; \
     CREATE TRIGGER see AFTER INSERT ON tenure.event FOR EACH ROW EXECUTE FUNCTION tenure.see()";
/// All it has noted.
pub const FLUSHES_SEEN: &str = "SELECT string_agg(DISTINCT setting, ',') FROM tenure.seen";

/// Acknowledged means flushed, also after somebody told the running server otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_a_server_that_is_told_to_flush_less_while_it_runs_flushes_for_us() {
    if shared_or_skip().is_none() {
        return;
    }
    let cluster = Cluster::start(&Servers::disposable()).unwrap();
    let database = cluster.database().unwrap();
    let store = open(&database).unwrap();
    let w = world(&store);
    let session = w.create().await;
    database.execute(SEE_FLUSHES).unwrap();
    tokio::task::block_in_place(|| cluster.set("synchronous_commit", "off")).unwrap();
    for n in 0..20 {
        w.write(&session, w.renamed(&n.to_string())).await;
    }
    let seen = database.value(FLUSHES_SEEN).unwrap();
    assert_eq!(seen.as_deref(), Some("on"));
    let others = database.value("SHOW synchronous_commit").unwrap();
    assert_eq!(others.as_deref(), Some("off"), "what the server says");
}
