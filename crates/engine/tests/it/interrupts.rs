//! Interrupts: at every kind of moment, with their receipts, and what they leave alone (R4, R5).

use crate::checks::show;
use crate::fakes::*;
use crate::support::*;
use tenure_core::event::EventBody;
use tenure_core::event::body::{InterruptReason, ToolFailure};
use tenure_core::id::InterruptId;
use tenure_engine::*;
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::{Acquire, Interrupt, Interrupted, OpenOptions, SessionState};
use tenure_tools::permission::Rules;

fn accepted(receipt: &Interrupted) -> bool {
    matches!(
        receipt,
        Interrupted::Accepted {
            execution: Some(_),
            after_takeover: false,
            ..
        }
    )
}

/// Waits for the settlement, then shows that the session is as good as new.
async fn settled_and_usable(bed: &Bed, engine: &Engine, session: &tenure_core::id::SessionId) {
    bed.until(session, "execution.interrupted").await;
    engine.idle().await;
    bed.assert_at_rest(session).await;
    bed.model.clear();
    let (_, outcome) = ask(engine, session, "and now?").await;
    assert_eq!(outcome, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(session).await;
    let asked = bed.asked_last();
    assert!(asked.contains("The user stopped the turn here"), "{asked}");
}

#[tokio::test]
async fn while_text_streams() {
    let bed = Bed::new([Play::Hang(half("thinking"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "fragment.chunk").await;
    let receipt = bed.interrupt(&session).await;
    assert!(accepted(&receipt), "{receipt:?}");
    let ended = outcome(&engine, &session, &admission).await;
    assert_eq!(ended, Outcome::Interrupted(InterruptReason::User));
    settled_and_usable(&bed, &engine, &session).await;
    let asked = bed.asked_last();
    assert!(asked.contains("thinking"), "what was said stays: {asked}");
}

async fn while_a_tool_runs(manner: Manner) {
    let (tool, hold) = Held::new(manner);
    let bed = Bed::new([Play::Answer(calls([
        call("a", "hold", "{}"),
        call("b", "echo", r#"{"say":"quick"}"#),
    ]))])
    .with_tool(tool)
    .with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "tool.succeeded").await;
    eventually("the tool", async || hold.begun() == 1).await;
    assert!(accepted(&bed.interrupt(&session).await));
    bed.until(&session, "execution.interrupted").await;
    hold.release();
    let log = bed.log(&session).await;
    let settled = settlements(&log);
    let a = settled.iter().find(|s| s.0 == "a").unwrap();
    assert_eq!(a.1, Some(ToolFailure::Interrupted));
    assert!(a.2.starts_with("Tool execution interrupted"), "{}", a.2);
    settled_and_usable(&bed, &engine, &session).await;
    assert_eq!(hold.begun(), 1);
    assert!(bed.last_results()[0].starts_with("Tool execution interrupted"));
}

#[tokio::test]
async fn while_a_tool_runs_that_obeys() {
    while_a_tool_runs(Manner::Obeys).await;
}

#[tokio::test]
async fn while_a_tool_runs_that_ignores_it() {
    while_a_tool_runs(Manner::Ignores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn while_a_tool_runs_that_blocks_its_thread() {
    while_a_tool_runs(Manner::Blocks).await;
}

#[tokio::test]
async fn while_a_retry_is_waited_for() {
    let mut bed = Bed::new([Play::Answer(half("x"))]);
    bed.config.retry.base_ms = 600_000;
    bed.config.retry.cap_ms = 600_000;
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "retry.scheduled").await;
    assert!(accepted(&bed.interrupt(&session).await));
    settled_and_usable(&bed, &engine, &session).await;
}

#[tokio::test]
async fn while_permission_is_waited_for() {
    let mut bed = Bed::new([Play::Answer(calls([call("a", "asks", "{}")]))]).with_tool(Asks);
    bed.config.approvals = Approvals::Wait;
    let engine = bed.engine().await;
    let session = bed.session_with(Rules::default(), 0).await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "permission.asked").await;
    assert!(accepted(&bed.interrupt(&session).await));
    settled_and_usable(&bed, &engine, &session).await;
    let settled = settlements(&bed.log(&session).await);
    assert_eq!(settled[0].1, Some(ToolFailure::NotExecuted));
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn while_a_compaction_runs() {
    let bed = Bed::new([Play::Answer(text("first")), Play::Hang(half("summ"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    bed.client().compact(&session).await.unwrap();
    bed.until(&session, "compaction.started").await;
    assert!(accepted(&bed.interrupt(&session).await));
    settled_and_usable(&bed, &engine, &session).await;
    assert_eq!(bed.count(&session, "compaction.failed").await, 1);
}

#[tokio::test]
async fn between_the_claim_and_the_start() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("one")).await;
    let nobody = bed.raw_node().await;
    let acquired = bed.store.acquire(&session, &nobody, false).await.unwrap();
    assert!(matches!(acquired, Acquire::Acquired(_)));
    let receipt = bed.interrupt(&session).await;
    assert!(
        matches!(
            receipt,
            Interrupted::Accepted {
                execution: None,
                ..
            }
        ),
        "{receipt:?}"
    );
    bed.store.leave(&nobody).await.unwrap();
    let engine = bed.engine().await;
    engine.run(&session);
    eventually("the claim's end", async || {
        bed.store.claims().await.unwrap().is_empty()
    })
    .await;
    engine.idle().await;
    let ended = outcome(&engine, &session, &first).await;
    assert_eq!(ended, Outcome::StoppedBeforeStart);
    assert_eq!(bed.model.sent(), 0);
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Parked { inputs: 1 });
    // A later prompt wakes it, and both enter together.
    ask(&engine, &session, "two").await;
    engine.idle().await;
    let asked = bed.asked(0);
    assert!(asked.contains("one") && asked.contains("two"), "{asked}");
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn before_anything_ran_the_input_is_parked() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("one")).await;
    let receipt = bed.interrupt(&session).await;
    assert!(matches!(receipt, Interrupted::StoppedBeforeStart { .. }));
    let engine = bed.engine().await;
    let ended = outcome(&engine, &session, &first).await;
    assert_eq!(ended, Outcome::StoppedBeforeStart);
    engine.idle().await;
    assert_eq!(bed.model.sent(), 0);
    bed.client().unpark(&session).await.unwrap();
    bed.until(&session, "execution.succeeded").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn when_idle_it_says_so_and_writes_nothing() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    engine.idle().await;
    let before = bed.log(&session).await;
    assert_eq!(bed.interrupt(&session).await, Interrupted::Idle);
    let EventBody::ExecutionSucceeded(ended) = &before.last().unwrap().body else {
        panic!("{}", show(&before))
    };
    let named = Some(ended.execution.clone());
    let receipt = bed.client().interrupt(&session, named, "test").await;
    assert_eq!(receipt.unwrap(), Interrupted::AlreadyFinished);
    assert_eq!(bed.log(&session).await.len(), before.len());
}

#[tokio::test]
async fn of_an_unknown_session_is_an_error() {
    let bed = Bed::new([]);
    let nobody = tenure_core::id::SessionId::from_bits(9);
    let error = bed.client().interrupt(&nobody, None, "test").await;
    assert!(error.unwrap_err().to_string().contains("does not exist"));
}

#[tokio::test]
async fn twice_is_once_and_a_repeated_key_gets_the_first_answer() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let keyed = |bits| Interrupt {
        session: session.clone(),
        interrupt: InterruptId::from_bits(bits),
        execution: None,
        by: "test".to_owned(),
        now_ms: 0,
    };
    let first = bed.store.interrupt(keyed(1)).await.unwrap();
    let again = bed.store.interrupt(keyed(1)).await.unwrap();
    assert_eq!(first, again);
    let other = bed.store.interrupt(keyed(2)).await.unwrap();
    assert!(accepted(&other));
    settled_and_usable(&bed, &engine, &session).await;
    assert_eq!(bed.count(&session, "execution.interrupted").await, 1);
    assert_eq!(bed.count(&session, "interrupt.requested").await, 2);
    assert_eq!(bed.store.interrupt(keyed(1)).await.unwrap(), first);
}

#[tokio::test]
async fn pending_steers_rest_until_a_later_prompt() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let parked = bed.admit(&session, Prompt::steer("parked words")).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Parked { inputs: 1 });
    assert_eq!(bed.model.sent(), 1);
    let inbox = bed.store.inbox(&session).await.unwrap();
    assert_eq!(inbox[0].input, parked.input);
    assert!(!inbox[0].eligible);
    settled_and_usable(&bed, &engine, &session).await;
    let asked = bed.asked_last();
    assert!(asked.contains("parked words"), "{asked}");
}

#[tokio::test]
async fn an_input_after_the_interrupt_is_not_stopped_by_it() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    assert!(accepted(&bed.interrupt(&session).await));
    // The tool holds its settlement back for its grace: this prompt comes in between.
    let later = bed.admit(&session, Prompt::steer("later")).await;
    let log = bed.log(&session).await;
    assert!(
        !log.iter()
            .any(|e| matches!(e.body, EventBody::ExecutionInterrupted(_)))
    );
    assert_eq!(
        outcome(&engine, &session, &first).await,
        Outcome::Interrupted(InterruptReason::User)
    );
    assert_eq!(outcome(&engine, &session, &later).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

/// A small generator: the same seed makes the same run of waits.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[tokio::test]
async fn two_hundred_interleavings_lose_none_and_hit_no_later_turn() {
    let bed = Bed::new([]).with_tool(Echo);
    let engine = bed.engine().await;
    let moments = [
        "input.promoted",
        "step.started",
        "attempt.ended",
        "tool.succeeded",
        "step.ended",
    ];
    let mut seen = [0; 3];
    for round in 1..=200_u64 {
        let mut seed = round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bed.model.clear();
        bed.model
            .push(Play::Answer(calls([call("a", "echo", "{}")])));
        let session = bed.session().await;
        engine.run(&session);
        let admission = bed.admit(&session, Prompt::steer("go")).await;
        let moment = moments[(next(&mut seed) % 5) as usize];
        if !round.is_multiple_of(7) {
            bed.until(&session, moment).await;
        }
        for _ in 0..next(&mut seed) % 40 {
            tokio::task::yield_now().await;
        }
        let receipt = bed.interrupt(&session).await;
        let ended = match &receipt {
            Interrupted::StoppedBeforeStart { .. } => Outcome::StoppedBeforeStart,
            _ => outcome(&engine, &session, &admission).await,
        };
        engine.idle().await;
        let log = bed.log(&session).await;
        let round_log = log.as_slice();
        let interrupted = round_log.iter().filter_map(|e| match &e.body {
            EventBody::ExecutionInterrupted(e) => Some(e.execution.clone()),
            _ => None,
        });
        let interrupted: Vec<_> = interrupted.collect();
        match receipt {
            Interrupted::Accepted {
                execution: Some(named),
                ..
            } => {
                seen[0] += 1;
                assert_eq!(interrupted, [named], "round {round}\n{}", show(round_log));
                assert_eq!(ended, Outcome::Interrupted(InterruptReason::User));
            }
            Interrupted::Accepted {
                execution: None, ..
            }
            | Interrupted::StoppedBeforeStart { .. } => {
                seen[1] += 1;
                assert_eq!(interrupted, [], "round {round}\n{}", show(round_log));
                assert_eq!(ended, Outcome::StoppedBeforeStart);
            }
            Interrupted::Idle => {
                seen[2] += 1;
                assert_eq!(interrupted, [], "round {round}\n{}", show(round_log));
                assert_eq!(
                    ended,
                    Outcome::Succeeded,
                    "round {round}\n{}",
                    show(round_log)
                );
            }
            Interrupted::AlreadyFinished => panic!("nothing was named"),
        }
        bed.assert_at_rest(&session).await;
        bed.model.requests.lock().unwrap().clear();
    }
    assert!(
        seen[0] > 50 && seen[0] + seen[1] + seen[2] == 200,
        "{seen:?}"
    );
}

/// What is left of a steer that waited when its execution was interrupted.
async fn left_waiting(options: OpenOptions) -> SessionState {
    let bed = Bed::with_options([Play::Hang(half("x"))], options);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    engine.forget(&session);
    bed.admit(&session, Prompt::steer("waits")).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.store.session(&session).await.unwrap().unwrap().state
}

#[tokio::test]
async fn what_waits_is_parked_and_without_the_rule_it_is_not() {
    let state = left_waiting(OpenOptions::default()).await;
    assert_eq!(state, SessionState::Parked { inputs: 1 });
    let broken = OpenOptions {
        mutations: Mutations::only(Mutation::NoPark),
        ..OpenOptions::default()
    };
    // Then it runs, or is about to.
    let state = left_waiting(broken).await;
    assert_ne!(state, SessionState::Parked { inputs: 1 });
}
