//! An owner that is alive and silent: others wait for its lease, then go on; when it wakes it writes nothing.

use super::{PATIENCE, Work, all_stream, ends_well, fleet, with_lease};
use std::time::{Duration, Instant};
use tenure_core::EventBody;
use tenure_sim::cluster::{Gaps, Ground, Lease, Overlaps};

async fn paused_owner(ground: Ground) {
    let work = Work {
        steps: 3,
        pieces: 30,
        pause_ms: 20,
        command_s: 0.05,
    };
    let mut fleet = fleet(2, ground, work).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    all_stream(&fleet, std::slice::from_ref(&session)).await;
    let owner = fleet.until_owned(&session).await.unwrap();
    let before = fleet.log(&session).await.unwrap();
    let old = before.iter().filter_map(|event| event.epoch).max();
    let at = fleet.node(owner).pause().unwrap();

    let watch = fleet.watch(&session);
    watch
        .until("a takeover", PATIENCE, |seen| {
            seen.iter().any(|(_, event)| event.epoch > old)
        })
        .await
        .unwrap();
    fleet.node(owner).resume().unwrap();
    // The checker finds any event of the old epoch behind one of the new.
    ends_well(&fleet, Overlaps::Allowed).await;
    let log = fleet.log(&session).await.unwrap();
    let gap = Gaps::to_next_owner([&log[..]], at);
    println!("owner paused, to the first event elsewhere: {gap}");
    assert!(gap.percentile(100) <= 8_000, "{gap}");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_paused_owner_is_replaced_and_writes_nothing_afterwards_on_one_file() {
    paused_owner(Ground::Sqlite).await;
}

async fn interrupted_from_elsewhere(ground: Ground) -> Duration {
    let work = Work {
        steps: 1,
        pieces: 1,
        pause_ms: 0,
        command_s: 300.0,
    };
    let lease = Lease {
        renew_ms: 500,
        duration_ms: 3_000,
        margin_ms: 800,
    };
    let mut fleet = with_lease(2, ground, work, Some(lease)).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    watch
        .until_events("tool.started", 1, PATIENCE)
        .await
        .unwrap();
    let owner = fleet.until_owned(&session).await.unwrap();
    let other = 1 - owner;
    let asked = Instant::now();
    fleet
        .node(other)
        .output(&["interrupt", session.as_str()])
        .unwrap();
    watch
        .until_events("execution.interrupted", 1, PATIENCE)
        .await
        .unwrap();
    let took = asked.elapsed();
    println!(
        "interrupt from a node that is not the owner, start of the program included: {took:?}"
    );
    ends_well(&fleet, Overlaps::Forbidden).await;
    let log = fleet.log(&session).await.unwrap();
    assert!(
        matches!(log.last().unwrap().body, EventBody::ExecutionInterrupted(_)),
        "{:?}",
        log.last()
    );
    took
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_interrupt_by_another_node_stops_the_owner_on_one_file() {
    let took = interrupted_from_elsewhere(Ground::Sqlite).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}
