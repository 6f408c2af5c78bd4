//! Opening: wrong URLs, passwords, rights and schemas are said in words; TLS and poolers are what they are asked to be.

use crate::postgres_backend::{Bare, lasting, place};
use std::sync::Arc;
use tenure_store::conformance::World;
use tenure_store::postgres::{Options, PostgresStore, without_password};
use tenure_store::*;
use tenure_testbed::pgbouncer::{Mode, Pooler};
use tenure_testbed::postgres::{Cluster, Database, Options as Servers, Tls, shared_or_skip};

fn refused(url: &str) -> OpenError {
    PostgresStore::open(url, Options::default()).unwrap_err()
}

fn database() -> Option<Database> {
    Some(shared_or_skip()?.database().unwrap())
}

/// `url` with another user and password.
fn as_user(url: &str, user: &str, password: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap();
    let (_, host) = rest.rsplit_once('@').unwrap();
    format!("postgres://{user}:{password}@{host}")
}

#[test]
fn what_is_wrong_with_the_way_in_is_said_without_the_password() {
    let Some(database) = database() else { return };
    let secret = "s3cr3t-that-nobody-may-see";
    let user = database.url().split("://").nth(1).unwrap();
    let user = user.split([':', '@']).next().unwrap().to_owned();
    let wrong = refused(&as_user(database.url(), &user, secret));
    assert!(matches!(wrong, OpenError::NotAdmitted { .. }), "{wrong}");
    let unknown = refused(&as_user(database.url(), "nobody_here", secret));
    assert!(
        matches!(unknown, OpenError::NotAdmitted { .. }),
        "{unknown}"
    );
    let closed = refused(&format!("postgres://u:{secret}@127.0.0.1:1/d"));
    assert!(matches!(closed, OpenError::Unreachable { .. }), "{closed}");
    let nameless = refused(&format!("postgres://u:{secret}@no.such.host.invalid/d"));
    assert!(
        matches!(nameless, OpenError::Unreachable { .. }),
        "{nameless}"
    );
    let missing = refused(&database.server().url_of("no_such_database"));
    assert!(missing.to_string().contains("createdb"), "{missing}");
    for said in [wrong, unknown, closed, nameless] {
        assert!(!said.to_string().contains(secret), "{said}");
        assert!(!format!("{said:?}").contains(secret), "{said:?}");
    }
}

#[test]
fn a_newer_schema_and_an_edited_one_are_refused_untouched() {
    let Some(database) = database() else { return };
    let url = place(database.url(), "tenure");
    drop(PostgresStore::open(&url, Options::default()).unwrap());
    let newer = "INSERT INTO tenure.migration VALUES (99, 'x', 0)";
    database.execute(newer).unwrap();
    let said = refused(&url);
    assert!(matches!(said, OpenError::Newer { found: 99, .. }), "{said}");
    database
        .execute("DELETE FROM tenure.migration WHERE version = 99; UPDATE tenure.migration SET checksum = 'y'")
        .unwrap();
    assert!(refused(&url).to_string().contains("schema step 1"));
}

#[test]
fn many_that_open_an_empty_database_at_once_make_one_schema() {
    let Some(database) = database() else { return };
    let url = place(database.url(), "tenure");
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || PostgresStore::open(&url, Options::default()).map(drop))
        })
        .collect();
    for one in opening {
        one.join().unwrap().unwrap();
    }
    let count = "SELECT count(*) FROM tenure.migration";
    assert_eq!(database.value(count).unwrap().as_deref(), Some("1"));
    let secrets = "SELECT count(*) || ' of ' || max(octet_length(secret)) FROM tenure.cluster";
    assert_eq!(database.value(secrets).unwrap().as_deref(), Some("1 of 32"));
}

#[test]
fn a_missing_right_is_named_with_the_statement_that_gives_it() {
    let Some(database) = database() else { return };
    let name = format!("u_{}", uuid::Uuid::new_v4().simple());
    database
        .execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'pw'"))
        .unwrap();
    let url = place(&as_user(database.url(), &name, "pw"), "tenure");
    let said = refused(&url);
    let OpenError::MissingRights { grant, .. } = &said else {
        panic!("{said}")
    };
    assert!(grant.starts_with("GRANT CREATE ON DATABASE"), "{grant}");
    // What it says is enough.
    database.execute(grant).unwrap();
    drop(PostgresStore::open(&url, Options::default()).unwrap());
    // A schema that another made, with nothing given.
    let other = place(database.url(), "other");
    drop(PostgresStore::open(&other, Options::default()).unwrap());
    let url = place(&as_user(database.url(), &name, "pw"), "other");
    let said = refused(&url);
    let OpenError::MissingRights { grant, .. } = &said else {
        panic!("{said}")
    };
    database.execute(grant).unwrap();
    drop(PostgresStore::open(&url, Options::default()).unwrap());
    database
        .execute(&format!("DROP OWNED BY {name} CASCADE; DROP ROLE {name}"))
        .unwrap();
}

#[test]
fn a_server_without_a_connection_left_is_not_taken_for_one_that_is_away() {
    let Some(database) = database() else { return };
    let name = format!("u_{}", uuid::Uuid::new_v4().simple());
    let one = format!("CREATE ROLE {name} LOGIN PASSWORD 'pw' CONNECTION LIMIT 1");
    database.execute(&one).unwrap();
    let said = refused(&as_user(database.url(), &name, "pw"));
    assert!(matches!(said, OpenError::Crowded { .. }), "{said}");
    let told = said.to_string();
    assert!(
        told.contains("max_connections") && !told.contains("address right"),
        "{told}"
    );
    database.execute(&format!("DROP ROLE {name}")).unwrap();
}

#[test]
fn real_a_pooler_in_statement_mode_is_told_with_the_modes_that_work() {
    let Some(database) = database() else { return };
    if Pooler::or_skip(database.server(), 1).is_none() {
        return;
    }
    let pooler = Pooler::with_mode(database.server(), 4, Mode::Statement).unwrap();
    let said = refused(&pooler.url(database.url()));
    assert!(matches!(said, OpenError::StatementPooled { .. }), "{said}");
    let told = said.to_string();
    assert!(
        told.contains("session or transaction") && !told.contains("address right"),
        "{told}"
    );
}

#[test]
fn real_tls_checks_what_it_is_asked_to_check() {
    if shared_or_skip().is_none() {
        return;
    }
    let servers = Servers {
        tls: Tls::Required,
        ..Servers::disposable()
    };
    let cluster = Cluster::start(&servers).unwrap();
    let database = cluster.database().unwrap();
    let base = place(&without_query(database.url()), "tenure");
    let authority = cluster.authority().unwrap();
    let authority = authority.to_str().unwrap();
    let stranger = tempfile::NamedTempFile::new().unwrap();
    let other = Cluster::start(&servers).unwrap();
    std::fs::copy(other.authority().unwrap(), stranger.path()).unwrap();
    let stranger = stranger.path().to_str().unwrap();
    for fine in [
        format!("{base}&sslmode=require"),
        format!("{base}&sslmode=prefer"),
        format!("{base}&sslmode=verify-full&sslrootcert={authority}"),
        format!("{base}&sslmode=verify-ca&sslrootcert={authority}"),
        format!("{base}&sslmode=require&sslrootcert={authority}"),
    ] {
        drop(
            PostgresStore::open(&fine, Options::default())
                .unwrap_or_else(|error| panic!("{fine}: {error}")),
        );
    }
    for bad in [
        format!("{base}&sslmode=disable"),
        format!("{base}&sslmode=verify-full&sslrootcert={stranger}"),
        format!("{base}&sslmode=verify-ca&sslrootcert={stranger}"),
        format!("{base}&sslmode=require&sslrootcert={stranger}"),
        format!("{base}&sslmode=verify-full&sslrootcert=/no/such/file"),
    ] {
        let said = refused(&bad).to_string();
        assert!(!said.contains("pw="), "{said}");
    }
}

fn without_query(url: &str) -> String {
    url.split('?').next().unwrap().to_owned()
}

#[test]
fn a_place_is_shown_without_its_password() {
    let Some(database) = database() else { return };
    let shown = without_password(database.url());
    let store = PostgresStore::open(database.url(), Options::default()).unwrap();
    assert_eq!(store.place(), shown);
    assert!(!format!("{store:?}").contains("password"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_everything_works_in_reduced_mode() {
    let Some(database) = database() else { return };
    let Some(pooler) = Pooler::or_skip(database.server(), 6) else {
        return;
    };
    let url = place(&pooler.url(database.url()), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    assert!(store.is_reduced());
    let health = store.health().await.unwrap();
    assert!(
        health.durability.contains("pooler"),
        "{}",
        health.durability
    );
    let w = World::new(Box::new(Bare(Arc::clone(&store))));
    let session = w.create().await;
    w.admit(&session).await;
    let node = lasting(&w).await;
    let mut owner = w.acquire(&session, &node).await;
    for n in 0..20 {
        let event = vec![w.renamed(&n.to_string())];
        owner
            .append(Guard::Settling, event, Vec::new())
            .await
            .unwrap();
    }
    assert_eq!(w.log(&session).await.len(), 22);
    // Another process, told by the poll alone.
    let other = PostgresStore::open(&url, Options::default()).unwrap();
    let mut wake = other.watch(&session);
    // The first looks at a fresh watch wake it for their own sake.
    let quiet = std::time::Duration::from_millis(1_300);
    while tokio::time::timeout(quiet, wake.changed()).await.is_ok() {}
    w.write(&session, w.renamed("news")).await;
    tokio::time::timeout(std::time::Duration::from_secs(10), wake.changed())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(store.renew(&node).await.unwrap(), Renewal::Renewed);
    let observer = lasting(&w).await;
    assert_eq!(store.reap(&observer).await.unwrap(), []);
    // Straight to the server it is not reduced.
    let direct = PostgresStore::open(&place(database.url(), "tenure"), Options::default());
    assert!(!direct.unwrap().is_reduced());
}

/// A newer program has changed the schema while this one had the store open: its next renewal says so, and so does every
/// connection it makes from then on. Nothing is written through one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_schema_that_a_newer_program_changed_stops() {
    let Some(server) = shared_or_skip() else {
        return;
    };
    let database = server.database().unwrap();
    let url = crate::postgres_backend::place(database.url(), "tenure");
    let store = PostgresStore::open(&url, Options::default()).unwrap();
    let w = World::new(Box::new(Bare(Arc::clone(&store))));
    let (session, node) = (w.create().await, lasting(&w).await);
    assert_eq!(store.renew(&node).await, Ok(Renewal::Renewed));
    let newer = "INSERT INTO tenure.migration(version, checksum, applied_ms) VALUES (99, '', 0)";
    database.execute(newer).unwrap();
    let says_so = |said: &str| {
        assert!(
            said.contains("schema 99") && said.contains("use a newer tenure"),
            "{said}"
        );
    };
    // Over the connection that it has, and over one that is made anew.
    for cut in [false, true] {
        if cut {
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
            database.execute(cut).unwrap();
        }
        match store.renew(&node).await {
            Err(NodeError::Outdated { reason }) => says_so(&reason),
            other => panic!("{other:?}"),
        }
    }
    let event = w.renamed("by an old program");
    let append = || Append::unfenced(session.clone(), vec![event.clone()]);
    let refused = loop {
        match store.append(append()).await {
            // The end of its old connection came just now.
            Err(AppendError::Unknown { .. }) => {}
            Err(AppendError::Unavailable { reason }) if reason.contains("ended the connection") => {
            }
            other => break other,
        }
    };
    says_so(&refused.unwrap_err().to_string());
    let read = loop {
        match store.read(&session, None, 10).await {
            Err(ReadError::Unavailable { reason }) if reason.contains("ended the connection") => {}
            other => break other,
        }
    };
    says_so(&read.unwrap_err().to_string());
    let written = format!("SELECT head FROM tenure.session WHERE id = '{session}'");
    assert_eq!(database.value(&written).unwrap().as_deref(), Some("0"));
}
