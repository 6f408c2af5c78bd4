//! Commits whose answer is lost, that never arrive, or that arrive late: what the server has then.

use std::time::Duration;
use tenure_testbed::postgres::Database;
use tenure_testbed::proxy::{CommitFault, Flow, Proxy};
use tenure_testbed::{postgres_or_skip, wait};

use crate::sessions::Session;

struct Setting {
    database: Database,
    proxy: Proxy,
    session: Session,
}

impl Setting {
    fn new(server: &tenure_testbed::postgres::Server) -> Self {
        let database = server.database().unwrap();
        database.execute("CREATE TABLE t (n int)").unwrap();
        let proxy = Proxy::before_postgres(server.address().unwrap()).unwrap();
        let session = Session::open(&proxy.url(database.url())).unwrap();
        Setting {
            database,
            proxy,
            session,
        }
    }

    fn sum(&self) -> String {
        let sum = self.database.value("SELECT coalesce(sum(n), 0) FROM t");
        sum.unwrap().unwrap()
    }

    fn met(&self) {
        self.proxy.commit_met(wait::PATIENCE).unwrap();
    }
}

#[test]
fn a_lost_answer_leaves_the_commit_and_cuts_only_the_next_one() {
    let at = Setting::new(postgres_or_skip!());
    at.session
        .run("BEGIN; INSERT INTO t VALUES (1); COMMIT")
        .unwrap();
    at.proxy.at_next_commit(CommitFault::AnswerLost);
    at.session.run("INSERT INTO t VALUES (10)").unwrap();
    at.session.run("BEGIN").unwrap();
    at.session.run("INSERT INTO t VALUES (100)").unwrap();
    assert!(at.session.run("COMMIT").is_err());
    at.met();
    assert_eq!(at.sum(), "111", "the server had it when the client was cut");

    let again = Session::open(&at.proxy.url(at.database.url())).unwrap();
    again
        .run("BEGIN; INSERT INTO t VALUES (1000); COMMIT")
        .unwrap();
    assert_eq!(at.sum(), "1111");
}

#[test]
fn prepared_commits_meet_the_fault_too() {
    let at = Setting::new(postgres_or_skip!());
    at.session.run("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    at.proxy.at_next_commit(CommitFault::AnswerLost);
    assert!(at.session.run_prepared("COMMIT").is_err());
    at.met();
    assert_eq!(at.sum(), "1");
}

#[test]
fn a_refused_commit_whose_answer_is_lost_ends_as_well() {
    let at = Setting::new(postgres_or_skip!());
    at.session.run("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    assert!(at.session.run("SELECT 1/0").is_err());
    at.proxy.at_next_commit(CommitFault::AnswerLost);
    assert!(at.session.run("COMMIT").is_err());
    at.met();
    assert_eq!(at.sum(), "0");
}

#[test]
fn a_lost_request_is_rolled_back() {
    let at = Setting::new(postgres_or_skip!());
    at.proxy.at_next_commit(CommitFault::RequestLost);
    at.session.run("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    assert!(at.session.run("COMMIT").is_err());
    at.met();
    // Its locks are gone when the server has noticed.
    at.database.execute("BEGIN; LOCK TABLE t; COMMIT").unwrap();
    assert_eq!(at.sum(), "0");
}

#[test]
fn a_late_commit_holds_its_locks_until_it_is_delivered() {
    let at = Setting::new(postgres_or_skip!());
    at.proxy.at_next_commit(CommitFault::Late);
    at.session.run("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    assert!(at.session.run("COMMIT").is_err());
    at.met();
    assert_eq!(at.sum(), "0");
    let locked = at
        .database
        .execute("BEGIN; LOCK TABLE t NOWAIT; COMMIT")
        .unwrap_err();
    assert!(
        locked.to_string().contains("could not obtain lock"),
        "{locked}"
    );
    at.proxy.deliver_late().unwrap();
    assert_eq!(at.sum(), "1");
}

#[test]
fn a_late_transaction_has_not_begun() {
    let at = Setting::new(postgres_or_skip!());
    at.proxy.at_next_commit(CommitFault::WholeLate);
    assert!(
        at.session
            .run("BEGIN; INSERT INTO t VALUES (1); COMMIT")
            .is_err()
    );
    at.met();
    at.database
        .execute("BEGIN; LOCK TABLE t NOWAIT; COMMIT")
        .unwrap();
    assert_eq!(at.sum(), "0");
    at.proxy.deliver_late().unwrap();
    assert_eq!(at.sum(), "1");
}

#[test]
fn a_server_that_loses_patience_drops_the_late_commit() {
    let at = Setting::new(postgres_or_skip!());
    at.session
        .run("SET idle_in_transaction_session_timeout = 100")
        .unwrap();
    at.proxy.at_next_commit(CommitFault::Late);
    at.session.run("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    assert!(at.session.run("COMMIT").is_err());
    at.met();
    at.database.execute("BEGIN; LOCK TABLE t; COMMIT").unwrap();
    at.proxy.deliver_late().unwrap();
    assert_eq!(at.sum(), "0");
}

#[test]
fn only_connections_that_listen_go_deaf() {
    let at = Setting::new(postgres_or_skip!());
    let listener = Session::open(&at.proxy.url(at.database.url())).unwrap();
    listener.run("LISTEN news").unwrap();
    at.proxy.listeners(Flow::Swallow);
    assert_eq!(at.session.run("SELECT 1").unwrap().as_deref(), Some("1"));
    assert!(listener.is_silent("SELECT 2", Duration::from_millis(200)));
    let late = Session::open(&at.proxy.url(at.database.url())).unwrap();
    assert!(late.is_silent("LISTEN news", Duration::from_millis(200)));
    at.proxy.heal().unwrap();
    let fresh = Session::open(&at.proxy.url(at.database.url())).unwrap();
    fresh.run("LISTEN news").unwrap();
}
