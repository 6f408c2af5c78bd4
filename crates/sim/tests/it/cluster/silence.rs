//! An owner that is alive and silent: others wait for its lease, then go on; when it wakes it writes nothing.

use super::{PATIENCE, Work, all_stream, ends_well, fleet, with_lease};
use std::time::{Duration, Instant};
use tenure_core::EventBody;
use tenure_sim::cluster::{Fleet, Gaps, Ground, Lease, Overlaps};
use tenure_sim::processes::marked;
use tenure_testbed::postgres_or_skip;
use tenure_testbed::proxy::{Door, Flow};

const STEPS: Work = Work {
    steps: 3,
    pieces: 30,
    pause_ms: 20,
    command_s: 0.05,
};

/// How the owner falls silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Silence {
    /// SIGSTOP.
    Paused,
    /// Its connections hang, and new ones do.
    CutOff,
    /// Its connections are reset, and new ones refused.
    Refused,
}

impl Silence {
    fn begin(self, fleet: &mut Fleet, node: usize) -> i64 {
        match self {
            Silence::Paused => fleet.pause_between_writes(node).unwrap(),
            Silence::CutOff => {
                fleet.node(node).proxy().unwrap().flows(Flow::Stall);
                Self::now()
            }
            Silence::Refused => {
                fleet.node(node).proxy().unwrap().die().unwrap();
                Self::now()
            }
        }
    }

    fn end(self, fleet: &mut Fleet, node: usize) {
        match self {
            Silence::Paused => fleet.node(node).resume().unwrap(),
            Silence::CutOff | Silence::Refused => fleet.node(node).proxy().unwrap().heal().unwrap(),
        }
    }

    fn now() -> i64 {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        i64::try_from(since.as_millis()).unwrap()
    }
}

/// The owner falls silent, somebody else goes on, the owner comes back; the others' incarnations are the same after it.
async fn silent_owner(ground: Ground, nodes: usize, silence: Silence) {
    let mut fleet = fleet(nodes, ground, STEPS).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    all_stream(&fleet, std::slice::from_ref(&session)).await;
    let owner = fleet.until_owned(&session).await.unwrap();
    let mut healthy = Vec::new();
    for node in (0..nodes).filter(|node| *node != owner) {
        healthy.push((node, fleet.incarnation(node).await.unwrap()));
    }
    let before = fleet.log(&session).await.unwrap();
    let old = before.iter().filter_map(|event| event.epoch).max();
    let at = silence.begin(&mut fleet, owner);

    let watch = fleet.watch(&session);
    watch
        .until("takeover", PATIENCE, |seen| {
            seen.iter().any(|(_, event)| event.epoch > old)
        })
        .await
        .unwrap();
    silence.end(&mut fleet, owner);
    // The checker finds any event of the old epoch behind one of the new.
    ends_well(&fleet, Overlaps::Allowed).await;
    for (node, incarnation) in healthy {
        let now = fleet.incarnation(node).await.unwrap();
        assert_eq!(
            now, incarnation,
            "its own silence was taken for that of node{node}"
        );
    }
    let log = fleet.log(&session).await.unwrap();
    let gap = Gaps::to_next_owner([&log[..]], at);
    println!("owner {silence:?}, to the first event elsewhere: {gap}");
    assert!(gap.percentile(100) <= 8_000, "{gap}");
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_paused_owner_is_replaced_and_writes_nothing_afterwards_on_one_file() {
    silent_owner(Ground::Sqlite, 2, Silence::Paused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_a_paused_owner_is_replaced_and_writes_nothing_afterwards() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    silent_owner(ground, 3, Silence::Paused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_owner_whose_connections_hang_is_replaced() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    silent_owner(ground, 2, Silence::CutOff).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_owner_whose_connections_are_refused_is_replaced() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    silent_owner(ground, 2, Silence::Refused).await;
}

/// A node that cannot renew ends its own work before its lease can: its tools are gone when another one takes over.
#[tokio::test(flavor = "multi_thread")]
async fn real_a_cut_off_owner_kills_its_tools_before_anybody_takes_over() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    let work = Work {
        steps: 1,
        pieces: 1,
        pause_ms: 0,
        command_s: 307.0,
    };
    let mut fleet = fleet(2, ground, work).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    watch
        .until_events("tool.started", 1, PATIENCE)
        .await
        .unwrap();
    let owner = fleet.until_owned(&session).await.unwrap();
    let tools = |fleet: &Fleet| {
        let all = marked(fleet.mark()).unwrap();
        all.iter().filter(|one| one.command == "sleep 307").count()
    };
    let deadline = Instant::now() + PATIENCE;
    while tools(&fleet) == 0 {
        assert!(Instant::now() < deadline, "the tool does not run");
        tokio::task::yield_now().await;
    }
    fleet.node(owner).proxy().unwrap().flows(Flow::Stall);
    fleet
        .node(owner)
        .proxy()
        .unwrap()
        .door(Door::Refuse)
        .unwrap();
    watch
        .until_events("recovery.started", 1, PATIENCE)
        .await
        .unwrap();
    assert_eq!(
        tools(&fleet),
        0,
        "a tool of the old owner runs on under the new one"
    );
    fleet.node(owner).proxy().unwrap().heal().unwrap();
    watch
        .until_events("tool.failed", 1, PATIENCE)
        .await
        .unwrap();
    fleet
        .node(owner)
        .output(&["interrupt", session.as_str()])
        .unwrap();
    ends_well(&fleet, Overlaps::Allowed).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn real_an_interrupt_by_another_node_stops_the_owner() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    let took = interrupted_from_elsewhere(ground).await;
    assert!(took < Duration::from_secs(3), "{took:?}");
}
