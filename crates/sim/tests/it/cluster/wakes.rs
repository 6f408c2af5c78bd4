//! Wake paths break: without notifications and without a direct call, the poll still brings every wish to the owner.

use super::{PATIENCE, Work, count, ends_well, fleet};
use std::time::{Duration, Instant};
use tenure_engine::Prompt;
use tenure_sim::cluster::{Fleet, Ground, Overlaps};
use tenure_testbed::postgres_or_skip;
use tenure_testbed::proxy::Flow;

/// What a deaf node's poll may take, on a busy machine.
const POLLED: Duration = Duration::from_millis(3_000);

/// Two nodes that hear no notification, with a session in the middle of a long command. The harness reaches nodes by
/// nothing but the store.
async fn deaf(command_s: f32) -> Option<(Fleet, tenure_sim::cluster::Watch)> {
    let server = tenure_testbed::postgres::shared_or_skip()?;
    let ground = Ground::postgres(server.database().unwrap());
    let work = Work {
        steps: 1,
        pieces: 1,
        pause_ms: 0,
        command_s,
    };
    let mut fleet = fleet(2, ground, work).await;
    for node in 0..2 {
        let proxy = fleet.node(node).proxy().unwrap();
        proxy.listeners(Flow::Swallow);
    }
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    watch
        .until_events("tool.started", 1, PATIENCE)
        .await
        .unwrap();
    Some((fleet, watch))
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_interrupt_reaches_a_deaf_owner() {
    let Some((fleet, watch)) = deaf(300.0).await else {
        return;
    };
    let asked = Instant::now();
    fleet
        .client()
        .interrupt(watch.session(), None, "the test")
        .await
        .unwrap();
    watch
        .until_events("execution.interrupted", 1, PATIENCE)
        .await
        .unwrap();
    let took = asked.elapsed();
    println!("interrupt with every wake path broken: {took:?}");
    assert!(took < POLLED, "{took:?}");
    ends_well(&fleet, Overlaps::Forbidden).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn real_inputs_reach_nodes_whose_listeners_hang() {
    let Some((mut fleet, watch)) = deaf(0.5).await else {
        return;
    };
    let session = watch.session().clone();
    for number in 0..20 {
        let prompt = Prompt::steer(format!("Steer {number}."));
        fleet.prompt(&session, prompt).await.unwrap();
    }
    watch
        .until_events("input.promoted", 21, PATIENCE)
        .await
        .unwrap();
    ends_well(&fleet, Overlaps::Forbidden).await;
    // An idle session is woken, too.
    let asked = Instant::now();
    fleet
        .prompt(&session, Prompt::steer("And now?"))
        .await
        .unwrap();
    let before = count(&watch.events(), "execution.started");
    watch
        .until_events("execution.started", before + 1, PATIENCE)
        .await
        .unwrap();
    let took = asked.elapsed();
    println!("input to an idle session with every wake path broken: {took:?}");
    ends_well(&fleet, Overlaps::Forbidden).await;
}

/// How soon an owner hears of an input from elsewhere, when nothing is broken: figures, and a bound that no poll reaches.
#[tokio::test(flavor = "multi_thread")]
async fn real_inputs_wake_idle_sessions_by_notification() {
    let server = postgres_or_skip!();
    let ground = Ground::postgres(server.database().unwrap());
    let work = Work {
        steps: 0,
        pieces: 1,
        pause_ms: 0,
        command_s: 0.0,
    };
    let mut fleet = fleet(2, ground, work).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    let mut took = Vec::new();
    for round in 1..=20 {
        watch
            .until_events("execution.succeeded", round, PATIENCE)
            .await
            .unwrap();
        let asked = Instant::now();
        fleet
            .prompt(&session, Prompt::steer("Again."))
            .await
            .unwrap();
        watch
            .until_events("execution.started", round + 1, PATIENCE)
            .await
            .unwrap();
        took.push(asked.elapsed());
    }
    ends_well(&fleet, Overlaps::Forbidden).await;
    took.sort_unstable();
    println!(
        "input from elsewhere to its execution: median {:?}, longest {:?}",
        took[10], took[19]
    );
    assert!(
        took[10] < Duration::from_millis(500),
        "half of them waited for the poll: {took:?}"
    );
}
