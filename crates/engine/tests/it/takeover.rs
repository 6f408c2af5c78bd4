//! Many sessions of a dead node at once, and what a new owner may start when (R10).

use crate::fakes::*;
use crate::support::*;
use crate::weather::Weather;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_engine::*;
use tenure_tools::permission::Rules;

fn any(bed: &Bed) -> EngineConfig {
    EngineConfig {
        scope: Scope::Any,
        approvals: Approvals::Wait,
        ..bed.config.clone()
    }
}

#[tokio::test]
async fn the_first_spawn_waits_for_the_old_lease_and_the_log_does_not() {
    const QUIET: Duration = Duration::from_millis(700);
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Answer(calls([call("b", "hold", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(tool);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    victim.kill().await;
    // As where a peer died on another machine: its lease is not over, and nothing can be proven.
    let (store, sky) = Weather::over(&bed.store);
    sky.quiet_ms
        .store(QUIET.as_millis() as u64, Ordering::SeqCst);
    let began = Instant::now();
    let heir = bed.engine_on(store, bed.config.clone()).await;
    heir.run(&session);
    bed.until_nth(&session, "tool.called", 2).await;
    assert_eq!(hold.begun(), 1, "the log has moved on, and no tool has");
    assert_eq!(bed.count(&session, "tool.started").await, 1);
    hold.release();
    bed.until_nth(&session, "tool.started", 2).await;
    assert!(began.elapsed() >= QUIET, "after {:?}", began.elapsed());
    assert_eq!(
        outcome(&heir, &session, &admission).await,
        Outcome::Succeeded
    );
    heir.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(hold.begun(), 2);
}

/// Nothing was at work: nothing is waited for, however long the old lease still runs.
#[tokio::test]
async fn without_an_effect_the_first_spawn_waits_for_nothing() {
    let bed = Bed::new([
        Play::Hang(half("x")),
        Play::Answer(calls([call("b", "echo", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(Echo);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    victim.kill().await;
    let (store, sky) = Weather::over(&bed.store);
    sky.quiet_ms.store(3_600_000, Ordering::SeqCst);
    let heir = bed.engine_on(store, bed.config.clone()).await;
    assert_eq!(
        outcome(&heir, &session, &admission).await,
        Outcome::Succeeded
    );
    heir.idle().await;
    bed.assert_at_rest(&session).await;
}

/// The heir dies in its turn before the first one's lease is over: what that one started may live still, though the
/// heir's recovery has settled it.
#[tokio::test]
async fn the_heir_of_an_heir_waits_too() {
    const QUIET: Duration = Duration::from_millis(700);
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Hang(half("x")),
        Play::Answer(calls([call("b", "echo", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(tool)
    .with_tool(Echo);
    let session = bed.session().await;
    let first = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    first.engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    first.kill().await;
    let second = bed.victim().await;
    second.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    second.kill().await;
    // Where a crash is proven, the first one's row is gone with its settlement; else it tells.
    let (store, sky) = Weather::over(&bed.store);
    sky.quiet_ms
        .store(QUIET.as_millis() as u64, Ordering::SeqCst);
    let began = Instant::now();
    let heir = bed.engine_on(store, bed.config.clone()).await;
    heir.run(&session);
    bed.until_nth(&session, "tool.started", 2).await;
    assert!(began.elapsed() >= QUIET, "after {:?}", began.elapsed());
    assert_eq!(
        outcome(&heir, &session, &admission).await,
        Outcome::Succeeded
    );
    heir.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_call_that_had_not_begun_is_settled_and_not_run() {
    let bed = Bed::new([
        Play::Answer(calls([call("a", "asks", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(Asks);
    let session = bed.session_with(Rules::default(), 0).await;
    let mut config = bed.config.clone();
    config.approvals = Approvals::Wait;
    let victim = bed.victim_with(&bed.store, config.clone()).await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "permission.asked").await;
    victim.kill().await;
    let heir = bed.engine_with(&bed.store, config).await;
    assert_eq!(
        outcome(&heir, &session, &admission).await,
        Outcome::Succeeded
    );
    heir.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    assert_eq!(settlements(&log)[0].1, Some(ToolFailure::NotExecuted));
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

/// The heirs share what a dead node left, each session is taken once, and soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_of_a_dead_node_are_shared_by_the_living() {
    const SESSIONS: usize = 60;
    let bed = Bed::new((0..SESSIONS).map(|_| Play::Hang(half("x"))));
    let config = any(&bed);
    let victim = bed.victim_with(&bed.store, config.clone()).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = bed.session().await;
        let admission = bed.admit(&session, Prompt::steer("hi")).await;
        sessions.push((session, admission));
    }
    for (session, _) in &sessions {
        bed.until(session, "fragment.started").await;
    }
    let b = bed.engine_with(&bed.store, config.clone()).await;
    let c = bed.engine_with(&bed.store, config).await;
    let (from_b, from_c) = (counted(&b), counted(&c));
    victim.kill().await;
    let killed = Instant::now();
    for (session, admission) in &sessions {
        let ended = b.outcome(session, &admission.input, Some(admission.seq));
        assert_eq!(ended.await.unwrap(), Outcome::Succeeded);
    }
    let took = killed.elapsed();
    b.idle().await;
    c.idle().await;
    let all = async || from_b.ended() + from_c.ended() >= SESSIONS;
    eventually("every end", all).await;
    for (session, _) in &sessions {
        bed.assert_at_rest(session).await;
        assert_eq!(bed.count(session, "recovery.started").await, 1);
    }
    let share = [from_b.ended(), from_c.ended()];
    println!("{SESSIONS} sessions in {took:?}, shared {share:?}");
    assert_eq!(share[0] + share[1], SESSIONS);
    assert!(share.iter().all(|n| *n >= SESSIONS / 5), "{share:?}");
}

/// Counts the runs that came to an end on this engine.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn ended(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn counted(engine: &Engine) -> Counted {
    let (count, mut results) = (Arc::new(AtomicUsize::new(0)), engine.results());
    let ended = count.clone();
    tokio::spawn(async move {
        while let Ok((_, owned)) = results.recv().await {
            ended.fetch_add(usize::from(owned == Owned::Ended), Ordering::SeqCst);
        }
    });
    Counted(count)
}
