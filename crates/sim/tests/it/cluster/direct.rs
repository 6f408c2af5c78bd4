//! A wish that is told to one node reaches the owner on another at once: by a direct call, and by notification.

use super::{PATIENCE, Work, ends_well, fleet};
use tenure_core::Event;
use tenure_engine::{Client, Prompt};
use tenure_sim::cluster::{Fleet, Ground, Overlaps, Watch};
use tenure_testbed::postgres_or_skip;

/// How often each is asked.
const ROUNDS: usize = 30;
/// What half of them may take in an unoptimized build on a busy machine: no poll is as quick.
const AT_ONCE_MS: i64 = 400;

/// The times between the last event of one type and the first of another behind it, in milliseconds.
fn between(events: &[Event], from: &str, to: &str) -> Vec<i64> {
    let mut asked = None;
    let mut took = Vec::new();
    for event in events {
        if event.body.type_name() == from {
            asked = Some(event.created_ms);
        } else if event.body.type_name() == to
            && let Some(at) = asked.take()
        {
            took.push(event.created_ms - at);
        }
    }
    took.sort_unstable();
    took
}

fn are_quick(what: &str, took: &[i64]) {
    assert_eq!(took.len(), ROUNDS, "{what}: {took:?}");
    let (median, longest) = (took[ROUNDS / 2], took[ROUNDS - 1]);
    println!("{what}: median {median} ms, longest {longest} ms");
    assert!(
        median <= AT_ONCE_MS,
        "half of them waited for the poll: {took:?}"
    );
}

/// Prompts for a session that rests, one after another, told by `client`.
async fn inputs(fleet: &Fleet, watch: &Watch, client: &Client) -> Vec<i64> {
    for round in 0..ROUNDS {
        watch
            .until_events("execution.succeeded", round + 1, PATIENCE)
            .await
            .unwrap();
        client
            .admit(watch.session(), Prompt::steer("Again."))
            .await
            .unwrap();
    }
    watch
        .until_events("execution.succeeded", ROUNDS + 1, PATIENCE)
        .await
        .unwrap();
    ends_well(fleet, Overlaps::Forbidden).await;
    let events = watch.events();
    // The first prompt is the fleet's own.
    let first = events
        .iter()
        .position(|event| event.body.type_name() == "execution.succeeded")
        .unwrap();
    between(&events[first..], "input.admitted", "execution.started")
}

async fn resting() -> Option<(Fleet, Watch)> {
    let server = tenure_testbed::postgres::shared_or_skip()?;
    let work = Work {
        steps: 0,
        pieces: 1,
        pause_ms: 0,
        command_s: 0.0,
    };
    let mut fleet = fleet(2, Ground::postgres(server.database().unwrap()), work).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    Some((fleet, watch))
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_input_told_elsewhere_is_taken_up_at_once_by_a_direct_call() {
    let Some((fleet, watch)) = resting().await else {
        return;
    };
    let client = fleet.direct_client().await.unwrap();
    let took = inputs(&fleet, &watch, &client).await;
    are_quick("input by a direct call, to its execution", &took);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_input_told_elsewhere_is_taken_up_at_once_by_notification() {
    let Some((fleet, watch)) = resting().await else {
        return;
    };
    let took = inputs(&fleet, &watch, fleet.client()).await;
    are_quick("input by notification, to its execution", &took);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_an_interrupt_told_elsewhere_ends_the_turn_at_once() {
    let server = postgres_or_skip!();
    let work = Work {
        steps: 1,
        pieces: 1,
        pause_ms: 0,
        command_s: 300.0,
    };
    let mut fleet = fleet(2, Ground::postgres(server.database().unwrap()), work).await;
    let session = fleet.busy(1).await.unwrap().remove(0);
    let watch = fleet.watch(&session);
    let client = fleet.direct_client().await.unwrap();
    for round in 1..=ROUNDS {
        watch
            .until_events("tool.started", round, PATIENCE)
            .await
            .unwrap();
        client.interrupt(&session, None, "the test").await.unwrap();
        watch
            .until_events("execution.interrupted", round, PATIENCE)
            .await
            .unwrap();
        if round < ROUNDS {
            client
                .admit(&session, Prompt::steer("Once more."))
                .await
                .unwrap();
        }
    }
    ends_well(&fleet, Overlaps::Forbidden).await;
    let took = between(
        &watch.events(),
        "interrupt.requested",
        "execution.interrupted",
    );
    are_quick("interrupt told elsewhere, to the end of its turn", &took);
}
