//! The pooler in transaction mode: it serves, and what belongs to a session is lost between transactions.

use tenure_testbed::pgbouncer::Pooler;
use tenure_testbed::postgres_or_skip;

use crate::sessions::Session;

#[test]
fn real_a_pooler_lends_one_connection_to_many_clients() {
    let server = postgres_or_skip!();
    let Some(pooler) = Pooler::or_skip(server, 1) else {
        return;
    };
    let database = server.database().unwrap();
    let url = pooler.url(database.url());
    let first = Session::open(&url).unwrap();
    let second = Session::open(&url).unwrap();
    let backend = |session: &Session| session.run("SELECT pg_backend_pid()").unwrap().unwrap();
    assert_eq!(backend(&first), backend(&second));
    first.run("SELECT pg_advisory_lock(1)").unwrap();
    // Held by the connection, not by the client: this is what transaction mode breaks.
    let held = second.run("SELECT pg_try_advisory_lock(1)").unwrap();
    assert_eq!(held.as_deref(), Some("t"));
    let direct = database.value("SELECT pg_try_advisory_lock(1)").unwrap();
    assert_eq!(direct.as_deref(), Some("f"));
    let address = pooler.address();
    drop(pooler);
    assert!(std::net::TcpStream::connect(address).is_err());
}
