//! A node whose lease could end stops by itself, loses nothing, and comes back (R7, R8).

use crate::fakes::*;
use crate::heard::Heard;
use crate::support::*;
use crate::weather::{Sky, Weather};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_engine::*;

/// A lease short enough to run out in a test.
fn hasty(bed: &Bed) -> EngineConfig {
    EngineConfig {
        scope: Scope::Any,
        lease: Duration::from_millis(1_200),
        margin: Duration::from_millis(400),
        renew_every: Duration::from_millis(100),
        ..bed.config.clone()
    }
}

async fn under_weather(bed: &Bed) -> (Engine, Arc<Sky>) {
    let (store, sky) = Weather::over(&bed.store);
    (bed.engine_on(store, hasty(bed)).await, sky)
}

#[tokio::test]
async fn an_outage_longer_than_the_lease_stops_all_work_and_is_no_crash() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(tool);
    let (engine, sky) = under_weather(&bed).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    eventually("the tool", async || hold.begun() == 1).await;
    let first = engine.incarnation();
    sky.away.store(true, Ordering::SeqCst);
    // It does not listen to anybody, and is gone all the same before the lease can end.
    let gone = tokio::time::timeout(Duration::from_millis(1_200), async {
        while hold.at_work() > 0 {
            // tidy: sleep ok because it is the pause between looks at a condition that no event tells of
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    gone.await.expect("the tool ends before the lease can");
    assert_eq!(engine.incarnation(), first, "it cannot come back yet");
    let before = bed.log(&session).await.len();
    sky.away.store(false, Ordering::SeqCst);
    let ended = engine.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    engine.idle().await;
    assert_ne!(engine.incarnation(), first);
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    let recovery = &log[before..];
    assert_eq!(recovery[0].body.type_name(), "recovery.started");
    assert_eq!(settlements(&log)[0].1, Some(ToolFailure::OutcomeUnknown));
    assert_eq!(hold.begun(), 1, "nothing is run again by itself");
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 0);
    let charged = log.iter().any(
        |e| matches!(&e.body, tenure_core::event::EventBody::RecoveryStarted(r) if r.attempts > 0),
    );
    assert!(!charged, "it stopped by itself, and said so");
}

#[tokio::test]
async fn an_outage_shorter_than_the_lease_is_only_a_delay() {
    let gate = Gate::shut();
    let bed = Bed::new([Play::Gated(
        half("half"),
        gate.clone(),
        text(" whole").split_off(1),
    )]);
    let (engine, sky) = under_weather(&bed).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.chunk").await;
    let first = engine.incarnation();
    sky.take_asked();
    sky.away.store(true, Ordering::SeqCst);
    gate.open();
    // It tries, and tries again.
    let mut tries = 0;
    eventually("some tries", async || {
        tries += sky.take_asked().get("append").copied().unwrap_or(0);
        tries >= 3
    })
    .await;
    sky.away.store(false, Ordering::SeqCst);
    let ended = engine.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(engine.incarnation(), first);
    assert_eq!(bed.count(&session, "attempt.started").await, 1);
    assert_eq!(bed.count(&session, "step.failed").await, 0);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
}

#[tokio::test]
async fn a_store_that_renews_and_takes_no_writes_is_complained_of_until_it_does() {
    let heard = Heard::listen();
    let gate = Gate::shut();
    let bed = Bed::new([Play::Gated(
        half("half"),
        gate.clone(),
        text(" whole").split_off(1),
    )]);
    let (engine, sky) = under_weather(&bed).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.chunk").await;
    let first = engine.incarnation();
    sky.full.store(true, Ordering::SeqCst);
    gate.open();
    let refuses = "the store refuses writes";
    eventually("the complaint", async || heard.times(refuses) > 0).await;
    sky.take_asked();
    let mut tries = 0;
    eventually("more tries", async || {
        tries += sky.take_asked().get("append").copied().unwrap_or(0);
        tries >= 3
    })
    .await;
    sky.full.store(false, Ordering::SeqCst);
    let ended = engine.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    engine.idle().await;
    assert_eq!(engine.incarnation(), first);
    assert_eq!(heard.times(refuses), 1, "every ten seconds at most");
    assert_eq!(heard.times("the store takes writes again"), 1);
    assert_eq!(heard.times("not renewed"), 0);
}

#[tokio::test]
async fn an_outage_is_told_once_and_its_end_when_it_is_over() {
    let heard = Heard::listen();
    let bed = Bed::new([]);
    let (engine, sky) = under_weather(&bed).await;
    let first = engine.incarnation();
    eventually("a renewal", async || sky.take_asked().contains_key("renew")).await;
    sky.away.store(true, Ordering::SeqCst);
    let stops = "stopping all work";
    eventually("the fence", async || heard.times(stops) > 0).await;
    let fenced = Instant::now();
    eventually(
        "a pass of the reconciler, which looks at nothing",
        async || {
            let ago = engine.service().health().looked_ms_ago;
            u128::from(ago) < fenced.elapsed().as_millis()
        },
    )
    .await;
    // Several more renewals fail.
    let mut renewals = 0;
    eventually("renewals that fail", async || {
        renewals += sky.take_asked().get("renew").copied().unwrap_or(0);
        renewals >= 5
    })
    .await;
    for over in ["takes renewals again", "reads the store again"] {
        assert_eq!(heard.times(over), 0, "it is away: {over}");
    }
    assert_eq!(heard.times("lease not renewed"), 1);
    sky.away.store(false, Ordering::SeqCst);
    eventually("a new life", async || engine.incarnation() != first).await;
    for over in ["takes renewals again", "reads the store again"] {
        eventually(over, async || heard.times(over) == 1).await;
    }
    assert_eq!(heard.times("the reconciler cannot read the store"), 1);
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_outage_at_a_boundary_is_waited_for() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(tool);
    let (engine, sky) = under_weather(&bed).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    eventually("the tool", async || hold.begun() == 1).await;
    sky.away.store(true, Ordering::SeqCst);
    hold.release();
    eventually("the tool's end", async || hold.at_work() == 0).await;
    sky.take_asked();
    eventually("a try", async || sky.take_asked().contains_key("append")).await;
    sky.away.store(false, Ordering::SeqCst);
    let ended = engine.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.succeeded").await, 1);
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
}

/// Others were quicker: what they took was a crash to them; what they did not take yet is none.
#[tokio::test]
async fn who_comes_back_in_time_says_that_it_was_no_crash() {
    let bed = Bed::new([Play::Hang(half("x")), Play::Answer(text("done"))]);
    let (engine, sky) = under_weather(&bed).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    bed.until(&session, "fragment.started").await;
    let first = engine.incarnation();
    sky.away.store(true, Ordering::SeqCst);
    eventually("the end of its work", async || engine.running() == 0).await;
    // Somebody marks it dead, and takes nothing.
    bed.store.leave(&first).await.unwrap();
    sky.away.store(false, Ordering::SeqCst);
    let ended = engine.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 0);
    let log = bed.log(&session).await;
    let charges: Vec<u32> = (log.iter())
        .filter_map(|e| match &e.body {
            tenure_core::event::EventBody::RecoveryStarted(r) => Some(r.attempts),
            _ => None,
        })
        .collect();
    assert_eq!(charges, [0]);
}

/// A call that blocks its thread cannot be stopped. As long as it lives nobody says that this node has stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_life_that_a_tool_outlives_does_not_resign() {
    let (tool, hold) = Held::new(Manner::Blocks);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let (engine, sky) = under_weather(&bed).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    eventually("the tool", async || hold.begun() == 1).await;
    let first = engine.incarnation();
    sky.away.store(true, Ordering::SeqCst);
    eventually("the end of its work", async || engine.running() == 0).await;
    sky.take_asked();
    sky.away.store(false, Ordering::SeqCst);
    eventually("a new life", async || engine.incarnation() != first).await;
    assert_eq!(hold.at_work(), 1);
    assert!(!sky.take_asked().contains_key("resign"));
    hold.release();
    let ended = engine.outcome(&session, &admission.input, Some(admission.seq));
    assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    assert_eq!(hold.begun(), 1, "nothing is run again by itself");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_node_that_a_tool_outlives_does_not_leave() {
    for stubborn in [true, false] {
        let manner = if stubborn {
            Manner::Blocks
        } else {
            Manner::Ignores
        };
        let (tool, hold) = Held::new(manner);
        let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
        let (engine, sky) = under_weather(&bed).await;
        let session = bed.session().await;
        bed.admit(&session, Prompt::steer("hi")).await;
        eventually("the tool", async || hold.begun() == 1).await;
        engine.shutdown_now().await.unwrap();
        assert_eq!(hold.at_work(), usize::from(stubborn));
        let left = sky.take_asked().contains_key("leave");
        assert_eq!(left, !stubborn);
        hold.release();
    }
}
