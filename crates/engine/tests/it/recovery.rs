//! Recovery: an owner is killed in each phase, another one takes over.

use crate::checks::show;
use crate::fakes::*;
use crate::stores::ON_POSTGRES;
use crate::support::*;
use std::sync::Arc;
use tenure_core::claim::{CONTINUATION_AFTER_CRASH, continuation_id};
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::SessionId;
use tenure_engine::*;
use tenure_store::{Interrupted, SessionState};

/// The recoveries in the log: phase found, charges, decision.
fn recoveries(log: &[Event]) -> Vec<(Phase, u32, RecoveryDecision)> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::RecoveryStarted(r) => Some((r.phase, r.attempts, r.decision)),
            _ => None,
        })
        .collect()
}

/// Inputs that Tenure wrote, with the seqs of their admission.
fn synthetic(log: &[Event]) -> Vec<(tenure_core::id::MessageId, u64)> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::InputAdmitted(i) if matches!(i.kind, InputKind::Synthetic { .. }) => {
                Some((i.input.clone(), e.seq))
            }
            _ => None,
        })
        .collect()
}

fn step_messages(log: &[Event]) -> Vec<tenure_core::id::MessageId> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::StepStarted(s) => Some(s.message.clone()),
            _ => None,
        })
        .collect()
}

/// Runs on another engine to the end and checks what every recovery owes.
async fn taken_over(bed: &Bed, session: &SessionId, admission: &Admission) -> (Engine, Vec<Event>) {
    let engine = bed.engine().await;
    let ended = outcome(&engine, session, admission).await;
    assert_eq!(
        ended,
        Outcome::Succeeded,
        "{}",
        show(&bed.log(session).await)
    );
    engine.idle().await;
    bed.assert_at_rest(session).await;
    let log = bed.log(session).await;
    (engine, log)
}

/// After a step that was open: settled, one continuation with its derived id, in a step of its own.
fn assert_continued(session: &SessionId, log: &[Event]) {
    let steps = step_messages(log);
    let own = continuation_id(session, steps[0].as_str());
    let written = synthetic(log);
    assert_eq!(written.len(), 1, "{}", show(log));
    assert_eq!(written[0].0, own);
    let promoted_then: Vec<_> = log
        .iter()
        .filter(|e| e.seq > written[0].1)
        .take_while(|e| !matches!(e.body, EventBody::StepStarted(_)))
        .filter_map(|e| match &e.body {
            EventBody::InputPromoted(p) => Some(p.input.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(promoted_then, [own], "{}", show(log));
}

#[tokio::test]
async fn killed_while_text_streams() {
    let bed = Bed::new([Play::Hang(half("half a thought"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.chunk").await;
    // A steer that waits must not join the continuation.
    bed.admit(&session, Prompt::steer("meanwhile")).await;
    victim.kill().await;
    let (_, log) = taken_over(&bed, &session, &admission).await;
    assert_eq!(
        recoveries(&log),
        [(Phase::Active, 1, RecoveryDecision::Continue)]
    );
    assert_continued(&session, &log);
    let ended: Vec<_> = log
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::AttemptEnded(a) => Some((a.usage, a.cost)),
            _ => None,
        })
        .collect();
    assert_eq!(
        ended[0],
        (None, None),
        "what it cost is unknown, and said to be"
    );
    assert_eq!(bed.model.sent(), 3);
    let continuation = bed.asked(1);
    assert!(continuation.contains("half a thought"), "{continuation}");
    assert!(continuation.contains(CONTINUATION_AFTER_CRASH));
    assert!(
        !continuation.contains("meanwhile"),
        "promotion is suppressed"
    );
    assert!(bed.asked(2).contains("meanwhile"));
}

#[tokio::test]
async fn killed_while_tools_run_and_wait() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let mut bed = Bed::new([Play::Answer(calls([
        call("a", "hold", "{}"),
        call("b", "hold", "{}"),
    ]))])
    .with_tool(tool);
    bed.config.tool_concurrency = 1;
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    victim.kill().await;
    hold.release();
    let (_, log) = taken_over(&bed, &session, &admission).await;
    assert_eq!(hold.begun(), 1, "nothing is run again by itself");
    let settled = settlements(&log);
    assert_eq!(settled[0].1, Some(ToolFailure::OutcomeUnknown));
    assert_eq!(settled[1].1, Some(ToolFailure::NotExecuted));
    assert_continued(&session, &log);
    // A file's lock proves that the process is gone; elsewhere what ran inside it may go on until its lease is over.
    let rows = bed.store.effects(&session).await.unwrap();
    let left: Vec<_> = rows
        .iter()
        .map(|row| (row.call.as_str(), &row.process))
        .collect();
    if ON_POSTGRES {
        assert_eq!(left, [("a", &None)]);
    } else {
        assert_eq!(left, []);
    }
    // The stream had ended: its usage is not lost.
    let known = log.iter().any(
        |e| matches!(&e.body, EventBody::AttemptEnded(a) if a.usage.is_some_and(|u| u.input == 10)),
    );
    assert!(known);
    let results = bed.last_results();
    assert!(results[0].starts_with("Outcome unknown"), "{results:?}");
    assert!(results[1].starts_with("Not executed"), "{results:?}");
}

/// A wait that only its owner could have ended, for a retry it had scheduled or for a call it ran, is over with that
/// owner: whoever loads the session settles it, and a new message is processed.
#[tokio::test]
async fn a_wait_that_only_a_lost_owner_could_end_holds_no_new_message_up() {
    for retries in [true, false] {
        let first = if retries {
            // Cut in the middle: asked again, in a week.
            Play::Answer(half("x"))
        } else {
            Play::Answer(calls([call("a", "hold", "{}")]))
        };
        let (tool, hold) = Held::new(Manner::Ignores);
        let mut bed = Bed::new([first]).with_tool(tool);
        bed.config.retry.base_ms = 600_000_000;
        bed.config.retry.cap_ms = 600_000_000;
        let session = bed.session().await;
        let victim = bed.victim().await;
        bed.admit(&session, Prompt::steer("hi")).await;
        victim.engine.run(&session);
        let wait = if retries {
            "retry.scheduled"
        } else {
            "tool.started"
        };
        bed.until(&session, wait).await;
        victim.kill().await;
        let next = bed.admit(&session, Prompt::steer("and this?")).await;
        let (_, log) = taken_over(&bed, &session, &next).await;
        assert_continued(&session, &log);
        let settled: Vec<_> = settlements(&log).into_iter().map(|s| s.1).collect();
        let expected = match retries {
            true => vec![],
            false => vec![Some(ToolFailure::OutcomeUnknown)],
        };
        assert_eq!(settled, expected);
        assert!(bed.asked_last().contains("and this?"));
        assert!(hold.begun() <= 1, "nothing is run again by itself");
        let row = bed.store.session(&session).await.unwrap().unwrap();
        assert_eq!((row.state, row.attempts), (SessionState::Idle, 0));
    }
}

#[tokio::test]
async fn killed_at_a_safe_boundary_it_just_goes_on() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    let nobody = bed.raw_node().await;
    bed.store.acquire(&session, &nobody, false).await.unwrap();
    bed.store.crash_node(&nobody);
    let (_, log) = taken_over(&bed, &session, &admission).await;
    // It was loading: that alone may be what kills a process, so it is charged (R8).
    assert_eq!(recoveries(&log), [(Phase::Safe, 1, RecoveryDecision::GoOn)]);
    assert_eq!(synthetic(&log), []);
    assert_eq!(bed.model.sent(), 1);
}

#[tokio::test]
async fn killed_while_a_retry_is_waited_for() {
    let mut bed = Bed::new([Play::Answer(half("x"))]);
    bed.config.retry.base_ms = 600_000;
    bed.config.retry.cap_ms = 600_000;
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "retry.scheduled").await;
    victim.kill().await;
    let (_, log) = taken_over(&bed, &session, &admission).await;
    assert_continued(&session, &log);
    assert_eq!(bed.count(&session, "attempt.started").await, 2);
}

#[tokio::test]
async fn killed_during_a_compaction() {
    let bed = Bed::new([Play::Answer(text("first")), Play::Hang(half("summ"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    ask(&victim.engine, &session, "hi").await;
    bed.client().compact(&session).await.unwrap();
    bed.until(&session, "compaction.started").await;
    let later = bed.admit(&session, Prompt::steer("after it")).await;
    victim.kill().await;
    let (_, log) = taken_over(&bed, &session, &later).await;
    assert_eq!(
        recoveries(&log),
        [(Phase::Active, 1, RecoveryDecision::Continue)]
    );
    assert_eq!(synthetic(&log), []);
    let failed: Vec<_> = log
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::CompactionFailed(c) => Some((c.usage, c.error.kind.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [(None, "crashed".to_owned())]);
}

#[tokio::test]
async fn killed_under_an_interrupt_it_settles_and_does_not_go_on() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let receipt = bed.interrupt(&session).await;
    victim.kill().await;
    assert!(matches!(receipt, Interrupted::Accepted { .. }));
    assert_eq!(bed.count(&session, "execution.interrupted").await, 0);
    let engine = bed.engine().await;
    let ended = outcome(&engine, &session, &admission).await;
    assert_eq!(ended, Outcome::Interrupted(InterruptReason::User));
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    assert_eq!(
        recoveries(&log),
        [(Phase::Cancelling, 1, RecoveryDecision::SettleOnly)]
    );
    assert_eq!(synthetic(&log), []);
    assert_eq!(bed.model.sent(), 1);
    // Nobody knows how far it came before its process was gone (P5).
    assert_eq!(
        settlements(&log)[0].1,
        Some(ToolFailure::OutcomeUnknown),
        "{}",
        show(&log)
    );
    let (_, outcome) = ask(&engine, &session, "next").await;
    assert_eq!(outcome, Outcome::Succeeded);
}

#[tokio::test]
async fn interrupted_after_the_owner_was_lost_it_settles_at_the_takeover() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    victim.kill().await;
    assert!(matches!(
        bed.interrupt(&session).await,
        Interrupted::Accepted { .. }
    ));
    let engine = bed.engine().await;
    let ended = outcome(&engine, &session, &admission).await;
    assert_eq!(ended, Outcome::Interrupted(InterruptReason::User));
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 1);
}

#[tokio::test]
async fn a_continuation_nobody_consumed_goes_with_the_interrupt() {
    let bed = Bed::new([Play::Hang(half("x")), Play::Hang(half("y"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    victim.kill().await;
    // Recovery wrote the continuation, and its process is lost before it is promoted.
    let second = bed.victim().await;
    second.engine.run(&session);
    bed.until(&session, "recovery.started").await;
    second.kill().await;
    bed.interrupt(&session).await;
    let engine = bed.engine().await;
    engine.run(&session);
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.store.inbox(&session).await.unwrap(), []);
}

/// Three crashes while it does something: the third takeover sets it aside.
#[tokio::test]
async fn crashes_are_charged_and_the_third_quarantines() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    for crash in 1..=3 {
        bed.model.push(Play::Hang(half("x")));
        let victim = bed.victim().await;
        victim.engine.run(&session);
        bed.until_nth(&session, "fragment.started", crash).await;
        victim.kill().await;
    }
    let engine = bed.engine().await;
    let ended = outcome(&engine, &session, &admission).await;
    assert!(matches!(ended, Outcome::Quarantined(_)), "{ended:?}");
    engine.idle().await;
    assert_eq!(bed.store.claims().await.unwrap(), []);
    let log = bed.log(&session).await;
    let charges: Vec<_> = recoveries(&log).iter().map(|r| (r.1, r.2)).collect();
    assert_eq!(
        charges,
        [
            (1, RecoveryDecision::Continue),
            (2, RecoveryDecision::Continue),
            (3, RecoveryDecision::Quarantine)
        ]
    );
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert!(matches!(row.state, SessionState::Quarantined { .. }));
    // Inputs are still accepted; nothing runs before a person says so.
    let later = bed.admit(&session, Prompt::steer("still there?")).await;
    engine.wake(&session);
    engine.idle().await;
    assert_eq!(bed.model.sent(), 3);
    bed.client().release(&session, "test").await.unwrap();
    assert_eq!(outcome(&engine, &session, &later).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_step_that_ends_well_clears_the_charges() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    victim.kill().await;
    taken_over(&bed, &session, &admission).await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 0);
}

#[tokio::test]
async fn from_the_second_charge_on_it_is_asked_to_run_alone() {
    let mut bed = Bed::new([Play::Hang(half("x")), Play::Hang(half("y"))]);
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    for crash in 1..=2 {
        let victim = bed.victim().await;
        victim.engine.run(&session);
        bed.until_nth(&session, "fragment.started", crash).await;
        victim.kill().await;
    }
    let (told, mut asked) = tokio::sync::mpsc::unbounded_channel();
    bed.config.isolate = Some(Arc::new(move |session| {
        told.send(session.clone()).map_err(std::io::Error::other)
    }));
    let engine = bed.engine().await;
    let mut results = engine.results();
    engine.run(&session);
    assert_eq!(asked.recv().await, Some(session.clone()));
    // Until the lost node is known to be lost, its claim stands.
    let first = loop {
        match results.recv().await.unwrap() {
            (_, Owned::Held { .. }) => {}
            result => break result,
        }
    };
    assert_eq!(first, (session.clone(), Owned::Isolated));
    // That process died before it took the session: another one is not started at every look.
    for _ in 0..5 {
        engine.idle().await;
        engine.wake(&session);
        assert_eq!(
            results.recv().await.unwrap(),
            (session.clone(), Owned::Isolated)
        );
    }
    assert!(asked.try_recv().is_err(), "asked once");
    assert_eq!(bed.model.sent(), 2, "this process leaves it alone");
}

/// A node with others whose isolated processes are told to `asked`, and that fail to start while it says so.
fn beside_others(
    bed: &Bed,
    fails: bool,
) -> (
    EngineConfig,
    tokio::sync::mpsc::UnboundedReceiver<SessionId>,
) {
    let (told, asked) = tokio::sync::mpsc::unbounded_channel();
    let isolate = move |session: &SessionId| {
        told.send(session.clone()).map_err(std::io::Error::other)?;
        match fails {
            true => Err(std::io::Error::other("no process here")),
            false => Ok(()),
        }
    };
    let config = EngineConfig {
        scope: Scope::Any,
        isolate: Some(Arc::new(isolate)),
        ..bed.config.clone()
    };
    (config, asked)
}

/// The session crashed two owners, and is to end well in the end.
async fn crashed_twice(bed: &Bed) -> (SessionId, Admission) {
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    for crash in 1..=2 {
        let victim = bed.victim().await;
        victim.engine.run(&session);
        bed.until_nth(&session, "fragment.started", crash).await;
        victim.kill().await;
    }
    (session, admission)
}

#[tokio::test]
async fn it_does_not_run_beside_others_even_when_no_process_can_be_started() {
    let bed = Bed::new([Play::Hang(half("x")), Play::Hang(half("y"))]);
    let (session, admission) = crashed_twice(&bed).await;
    let (config, mut asked) = beside_others(&bed, true);
    let engine = bed.engine_with(&bed.store, config).await;
    let mut results = engine.results();
    assert_eq!(asked.recv().await, Some(session.clone()));
    for _ in 0..5 {
        assert_eq!(
            results.recv().await.unwrap(),
            (session.clone(), Owned::Isolated)
        );
        engine.idle().await;
        engine.wake(&session);
    }
    assert!(asked.try_recv().is_err(), "not tried again at once");
    assert_eq!(bed.model.sent(), 2);
    // Somebody runs it alone by hand.
    let alone = bed.engine().await;
    assert_eq!(
        outcome(&alone, &session, &admission).await,
        Outcome::Succeeded
    );
}

#[tokio::test]
async fn what_is_handed_over_after_two_charges_is_let_go_to_run_alone() {
    let bed = Bed::new([
        Play::Hang(half("x")),
        Play::Hang(half("y")),
        Play::Hang(half("z")),
    ]);
    let (session, admission) = crashed_twice(&bed).await;
    let first = bed.engine().await;
    first.run(&session);
    bed.until_nth(&session, "fragment.started", 3).await;
    let charged = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(charged.attempts, 2);
    let (config, mut asked) = beside_others(&bed, false);
    let heir = bed.engine_with(&bed.store, config).await;
    first.shutdown_now().await.unwrap();
    assert_eq!(asked.recv().await, Some(session.clone()));
    heir.idle().await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert!(
        matches!(row.state, SessionState::Claimable { .. }),
        "{:?}",
        row.state
    );
    // To the heir, and from the heir to nobody.
    assert_eq!((row.attempts, row.epoch), (2, charged.epoch + 2));
    assert_eq!(bed.model.sent(), 3, "nothing ran beside others");
    let alone = bed.engine().await;
    assert_eq!(
        outcome(&alone, &session, &admission).await,
        Outcome::Succeeded
    );
    alone.idle().await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 0);
}

#[tokio::test]
async fn a_shutdown_with_no_budget_hands_the_step_over_uncharged() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let session = bed.session().await;
    let first = bed.engine().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    first.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    first.shutdown_now().await.unwrap();
    assert_eq!(bed.store.claims().await.unwrap(), []);
    let (_, log) = taken_over(&bed, &session, &admission).await;
    assert_continued(&session, &log);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.attempts, 0);
    assert_eq!(hold.begun(), 1);
    assert_eq!(recoveries(&log), []);
}

#[tokio::test]
async fn a_drain_hands_over_at_the_next_boundary() {
    let gate = Gate::shut();
    let begun = calls([call("a", "echo", r#"{"say":"x"}"#)]);
    let bed = Bed::new([Play::Gated(Vec::new(), gate.clone(), begun)]).with_tool(Echo);
    let session = bed.session().await;
    let first = bed.engine().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    first.run(&session);
    bed.until(&session, "attempt.started").await;
    let leaving = tokio::spawn({
        let first = first.clone();
        async move { first.shutdown().await }
    });
    eventually("draining", async || {
        bed.store.nodes().await.unwrap().iter().all(|n| n.draining)
    })
    .await;
    gate.open();
    leaving.await.unwrap().unwrap();
    assert_eq!(bed.count(&session, "step.ended").await, 1);
    assert_eq!(bed.count(&session, "execution.succeeded").await, 0);
    let (_, log) = taken_over(&bed, &session, &admission).await;
    assert_eq!(synthetic(&log), []);
    assert_eq!(bed.count(&session, "execution.started").await, 1);
}
