//! A cluster of one's own: databases, TLS, stops, pauses, settings; and what is left when it is gone.

use std::time::Duration;

use tenure_testbed::postgres::{Cluster, Database, Options, Stop, Tls};
use tenure_testbed::{postgres_or_skip, wait};

use crate::sessions::Session;

#[test]
fn each_database_is_fresh_and_gone_at_the_end() {
    let server = postgres_or_skip!();
    let database = server.database().unwrap();
    let other = server.database().unwrap();
    assert_ne!(database.name(), other.name());
    database
        .execute("CREATE TABLE t (n int); INSERT INTO t VALUES (7)")
        .unwrap();
    assert_eq!(
        database.value("SELECT n FROM t").unwrap().as_deref(),
        Some("7")
    );
    assert!(
        other
            .value("SELECT n FROM t")
            .unwrap_err()
            .to_string()
            .contains("does not exist")
    );

    // Somebody who is still connected, or comes back, is no obstacle.
    let session = Session::open(database.url()).unwrap();
    let url = database.url().to_owned();
    drop(database);
    assert!(session.run("SELECT 1").is_err());
    assert!(Session::open(&url).is_err());
    assert_eq!(other.value("SELECT 1").unwrap().as_deref(), Some("1"));
}

#[test]
fn real_used_databases_are_lent_again_empty_and_under_another_name() {
    let _server = postgres_or_skip!();
    let cluster = Cluster::lending().unwrap();
    let number = |database: &Database| {
        let sql = "SELECT oid FROM pg_database WHERE datname = current_database()";
        database.value(sql).unwrap().unwrap()
    };
    let first = cluster.database().unwrap();
    let of_first = number(&first);
    first
        .execute(
            "CREATE TABLE t (n int); CREATE SCHEMA s; CREATE FUNCTION s.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; \
             CREATE TYPE s.mood AS ENUM ('good')",
        )
        .unwrap();
    let (name, url) = (first.name().to_owned(), first.url().to_owned());
    drop(first);
    assert!(Session::open(&url).is_err(), "nobody is let in between");

    let second = cluster.database().unwrap();
    assert_eq!(number(&second), of_first, "it is the same one");
    assert_ne!(second.name(), name);
    assert!(Session::open(&url).is_err(), "the old name is gone");
    let objects = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE nspname = 'public' OR nspname = 's'";
    assert_eq!(second.value(objects).unwrap().as_deref(), Some("0"));
    let schemas = |database: &Database| {
        let sql = "SELECT string_agg(nspname || ':' || nspowner || ':' || nspacl::text, ',' ORDER BY nspname) \
            FROM pg_namespace";
        database.value(sql).unwrap().unwrap()
    };
    let new = cluster.database().unwrap();
    assert_ne!(number(&new), of_first);
    assert_eq!(schemas(&second), schemas(&new), "as a new one");

    // Changed rights are not undone, so such a one is dropped.
    second
        .execute(&format!(
            "REVOKE CONNECT ON DATABASE {} FROM PUBLIC",
            second.name()
        ))
        .unwrap();
    drop(second);
    assert_ne!(number(&cluster.database().unwrap()), of_first);
}

#[test]
fn a_wrong_password_and_a_missing_database_are_refused() {
    let server = postgres_or_skip!();
    let (_, password) = server.credentials().unwrap();
    let wrong = server.url().replace(&password, "wrong");
    let refused = Session::open(&wrong).err().unwrap();
    assert!(
        refused.contains("password authentication failed"),
        "{refused}"
    );
    let refused = Session::open(&server.url_of("nowhere")).err().unwrap();
    assert!(refused.contains("does not exist"), "{refused}");
}

#[test]
fn real_a_stopped_server_comes_back_where_it_was_with_what_was_committed() {
    let _server = postgres_or_skip!();
    let cluster = Cluster::start(&Options::default()).unwrap();
    assert_eq!(
        cluster.server().value("SHOW fsync").unwrap().as_deref(),
        Some("on")
    );
    let database = cluster.database().unwrap();
    database
        .execute("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
        .unwrap();
    let session = Session::open(database.url()).unwrap();
    for how in [Stop::Fast, Stop::Immediate] {
        cluster.stop(how).unwrap();
        assert_eq!(cluster.pid(), None);
        assert!(session.run("SELECT 1").is_err());
        assert!(Session::open(database.url()).is_err());
        cluster.start_again().unwrap();
        let session = Session::open(database.url()).unwrap();
        assert_eq!(
            session.run("SELECT n FROM t").unwrap().as_deref(),
            Some("1")
        );
    }
    cluster.restart(Stop::Fast).unwrap();
    assert_eq!(
        database.value("SELECT n FROM t").unwrap().as_deref(),
        Some("1")
    );
}

#[test]
fn real_a_paused_server_answers_nobody_until_it_is_resumed() {
    let _server = postgres_or_skip!();
    let cluster = Cluster::start(&Options::disposable()).unwrap();
    let session = Session::open(&cluster.server().url()).unwrap();
    session.run("SELECT 1").unwrap();
    cluster.pause().unwrap();
    assert!(session.is_silent("SELECT 1", Duration::from_millis(300)));
    cluster.resume().unwrap();
    assert_eq!(session.run("SELECT 2").unwrap().as_deref(), Some("2"));
    // A paused server can be stopped, too.
    cluster.pause().unwrap();
    cluster.stop(Stop::Fast).unwrap();
}

#[test]
fn real_settings_take_effect_at_once_or_say_that_they_do_not() {
    let _server = postgres_or_skip!();
    let cluster = Cluster::start(&Options::disposable().with("work_mem", "5MB")).unwrap();
    let shown = |name: &str| {
        cluster
            .server()
            .value(&format!("SHOW {name}"))
            .unwrap()
            .unwrap()
    };
    assert_eq!(shown("work_mem"), "5MB");
    for value in ["700ms", "2s"] {
        cluster.set("lock_timeout", value).unwrap();
        assert_eq!(shown("lock_timeout"), value);
    }
    assert!(cluster.set("lock_timeout", "soon").is_err());
    let pending = cluster.set("max_connections", "123").unwrap_err();
    assert!(pending.to_string().contains("next restart"), "{pending}");
    assert_eq!(shown("max_connections"), "300");
    cluster.restart(Stop::Fast).unwrap();
    assert_eq!(shown("max_connections"), "123");
}

#[test]
fn real_tls_is_offered_or_required() {
    let _server = postgres_or_skip!();
    let cluster = Cluster::start(&Options {
        tls: Tls::Required,
        ..Options::disposable()
    })
    .unwrap();
    let refused = Session::open(&cluster.server().url()).err().unwrap();
    assert!(refused.contains("no encryption"), "{refused}");
    // Our own way in does not need it.
    let database = cluster.database().unwrap();
    assert_eq!(database.value("SHOW ssl").unwrap().as_deref(), Some("on"));
    let authority = std::fs::read_to_string(cluster.authority().unwrap()).unwrap();
    assert!(authority.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(tls_answer(&cluster), b'S');

    let plain = Cluster::start(&Options::disposable()).unwrap();
    assert!(plain.authority().is_err());
    assert_eq!(tls_answer(&plain), b'N');
}

/// The server's one-byte answer to a client that asks for TLS.
fn tls_answer(cluster: &Cluster) -> u8 {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(cluster.address()).unwrap();
    stream.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).unwrap();
    let mut answer = [0];
    stream.read_exact(&mut answer).unwrap();
    answer[0]
}

#[test]
fn real_nothing_is_left_of_a_dropped_cluster() {
    let _server = postgres_or_skip!();
    let cluster = Cluster::start(&Options::disposable()).unwrap();
    let (pid, folder) = (
        cluster.pid().unwrap(),
        cluster.socket_folder().to_path_buf(),
    );
    cluster.pause().unwrap();
    drop(cluster);
    assert!(!folder.exists());
    wait::until_true("the postmaster's end", wait::PATIENCE, || {
        !std::path::Path::new(&format!("/proc/{pid}")).exists()
    })
    .unwrap();
}
