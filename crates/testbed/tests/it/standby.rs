//! Standbys: they follow, fall behind when told to, and are promoted with what they have.

use tenure_testbed::postgres::{Cluster, Options, Stop};
use tenure_testbed::postgres_or_skip;

#[test]
fn real_a_promoted_standby_lacks_exactly_the_commits_it_was_held_back_from() {
    let _server = postgres_or_skip!();
    let primary = Cluster::start(&Options::disposable()).unwrap();
    let database = primary.database().unwrap();
    database.execute("CREATE TABLE t (n int)").unwrap();
    let insert = |n: u32| {
        database
            .execute(&format!("INSERT INTO t VALUES ({n})"))
            .unwrap()
    };
    let standby = primary.standby().unwrap();
    insert(1);
    standby.catch_up(&primary).unwrap();
    let copy = standby.server().url_of(database.name());
    let sum = || {
        let session = crate::sessions::Session::open(&copy).unwrap();
        session.run("SELECT sum(n) FROM t").unwrap().unwrap()
    };
    assert_eq!(sum(), "1");

    standby.hold_back().unwrap();
    insert(10);
    assert_eq!(sum(), "1");
    standby.follow_again().unwrap();
    standby.catch_up(&primary).unwrap();
    assert_eq!(sum(), "11");

    standby.hold_back().unwrap();
    insert(100);
    insert(1000);
    primary.stop(Stop::Immediate).unwrap();
    let promoted = standby.promote().unwrap();
    assert_eq!(sum(), "11");
    let writes = crate::sessions::Session::open(&copy).unwrap();
    writes.run("INSERT INTO t VALUES (5)").unwrap();
    assert_eq!(sum(), "16");
    let timeline = promoted
        .server()
        .value("SELECT timeline_id FROM pg_control_checkpoint()")
        .unwrap();
    assert!(timeline.is_some());
}
