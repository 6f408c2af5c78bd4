//! Several real nodes on one store: killed, paused, restarted one after another, interrupted from elsewhere.
//!
//! Each scenario is written once, for any store, and run on each.

mod database;
mod direct;
mod restarts;
mod silence;
mod takeovers;
mod wakes;

use std::time::Duration;
use tenure_core::{Event, SessionId};
use tenure_sim::cluster::work::Work;
use tenure_sim::cluster::{Fleet, Ground, Lease, Overlaps, Setup};

/// A busy machine may be slow; it is never this slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// So many sessions, or as many as `TENURE_FLEET_SESSIONS` says: figures are taken with more than a test needs.
fn sessions(usually: usize) -> usize {
    std::env::var("TENURE_FLEET_SESSIONS").map_or(usually, |given| {
        given.parse().expect("TENURE_FLEET_SESSIONS is a number")
    })
}

/// Nodes with the product's own lease.
async fn fleet(nodes: usize, ground: Ground, work: Work) -> Fleet {
    with_lease(nodes, ground, work, None).await
}

async fn with_lease(nodes: usize, ground: Ground, work: Work, lease: Option<Lease>) -> Fleet {
    let setup = Setup {
        nodes,
        ground,
        script: work.script(),
        lease,
        config: String::new(),
    };
    Fleet::start(setup).await.unwrap()
}

/// Every session is at rest, and no promise was broken.
async fn ends_well(fleet: &Fleet, overlaps: Overlaps) {
    fleet.at_rest(PATIENCE).await.unwrap();
    let wrong = fleet.judge(overlaps).await.unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn count(events: &[Event], type_name: &str) -> usize {
    let of_type = events
        .iter()
        .filter(|event| event.body.type_name() == type_name);
    of_type.count()
}

/// Waits until every session's first step is under way.
async fn all_stream(fleet: &Fleet, sessions: &[SessionId]) {
    for session in sessions {
        let watch = fleet.watch(session);
        watch
            .until_events("fragment.started", 1, PATIENCE)
            .await
            .unwrap();
    }
}
