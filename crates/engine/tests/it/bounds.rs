//! Known faults, the second part: effects at most once, and turns that stay within bounds.

use crate::fakes::*;
use crate::support::*;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::history::LENGTH_NOTICE;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_engine::*;
use tenure_store::Interrupted;

/// Text, with the tokens its provider counted.
fn counted(words: &str, input: u64, output: u64) -> Play {
    let mut answer = text(words);
    answer[1] = Ok(vec![
        ProviderEvent::TextEnd {
            id: "t".to_owned(),
            native: None,
        },
        ProviderEvent::Finish {
            finish: Finish::Stop,
            raw: None,
            usage: usage(input, output),
        },
    ]);
    Play::Answer(answer)
}

/// When the process is killed around a call with an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Killed {
    BeforeStart,
    AfterEffect,
    AfterResult,
}

async fn effect(killed: Killed) {
    let (tool, hold) = Line::new();
    let (blocker, block) = Held::new(Manner::Ignores);
    let mut bed = Bed::new([Play::Answer(calls([
        call("first", "hold", "{}"),
        call("tc_line", "line", "{}"),
    ]))])
    .with_tool(tool)
    .with_tool(blocker);
    bed.config.tool_concurrency = 1;
    bed.model.push(Play::Hang(Vec::new()));
    let session = bed.session().await;
    let victim = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("go")).await;
    victim.engine.run(&session);
    eventually("the first", async || block.begun() == 1).await;
    if killed != Killed::BeforeStart {
        block.release();
        eventually("the effect", async || hold.begun() == 1).await;
    }
    if killed == Killed::AfterResult {
        hold.release();
        bed.until_nth(&session, "attempt.started", 2).await;
    }
    victim.kill().await;
    bed.model.clear();
    hold.release();
    let engine = bed.engine().await;
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let settled = settlements(&bed.log(&session).await);
    let line = settled.iter().find(|s| s.0 == "tc_line").unwrap();
    let wanted = match killed {
        Killed::BeforeStart => Some(ToolFailure::NotExecuted),
        Killed::AfterEffect => Some(ToolFailure::OutcomeUnknown),
        Killed::AfterResult => None,
    };
    assert_eq!(line.1, wanted, "{killed:?}");
    let lines = std::fs::read_to_string(bed.workspace().join("lines")).unwrap_or_default();
    assert_eq!(
        lines.lines().count(),
        usize::from(killed != Killed::BeforeStart)
    );
    assert!(bed.asked_last().contains(&line.2), "the model is told");
}

#[tokio::test]
async fn bc_s_020_an_effect_happens_at_most_once_wherever_the_process_is_killed() {
    for killed in [
        Killed::BeforeStart,
        Killed::AfterEffect,
        Killed::AfterResult,
    ] {
        effect(killed).await;
    }
}

#[tokio::test]
async fn bc_s_027_the_execution_that_events_name_is_the_one_an_interrupt_reaches() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    let EventBody::ExecutionStarted(started) = bed.until(&session, "execution.started").await.body
    else {
        panic!("asked for it")
    };
    bed.admit(&session, Prompt::steer("more")).await;
    bed.until(&session, "fragment.started").await;
    let named = Some(started.execution.clone());
    let receipt = bed.client().interrupt(&session, named, "me").await.unwrap();
    let Interrupted::Accepted { execution, .. } = receipt else {
        panic!("{receipt:?}")
    };
    assert_eq!(execution, Some(started.execution.clone()));
    let EventBody::ExecutionInterrupted(ended) =
        bed.until(&session, "execution.interrupted").await.body
    else {
        panic!("asked for it")
    };
    assert_eq!(ended.execution, started.execution);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn bc_s_029_a_fixed_part_that_does_not_fit_is_compacted_once_and_then_named() {
    let mut bed = Bed::new([counted("an answer", 10_000, 100)]);
    bed.window(33_000, 1_000);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "one").await;
    bed.model.push(counted("a long way", 43_000, 100));
    ask(&engine, &session, "two").await;
    let before = bed.model.sent();
    bed.model.push(counted("the summary", 30_000, 100));
    bed.model.push(counted("no smaller", 43_000, 100));
    ask(&engine, &session, "three").await;
    let (_, ended) = ask(&engine, &session, "four").await;
    let Outcome::Failed(error) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(error.kind, "context_overflow");
    for word in ["43000", "33000", "larger window"] {
        assert!(error.message.contains(word), "{}", error.message);
    }
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert!(
        bed.model.sent() - before <= 3,
        "{}",
        bed.model.sent() - before
    );
    assert_eq!(bed.count(&session, "compaction.started").await, 1);
}

#[tokio::test]
async fn bc_s_036_after_a_compaction_that_helped_there_is_no_second_one() {
    let mut bed = Bed::new([counted("an answer", 26_000, 1_000)]);
    bed.window(33_000, 8_000);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "one").await;
    bed.model.push(counted("the summary", 27_000, 100));
    for i in 0..3 {
        bed.model.push(counted("short", 3_000 + i, 10));
    }
    for words in ["two", "three", "four"] {
        assert_eq!(ask(&engine, &session, words).await.1, Outcome::Succeeded);
    }
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "compaction.started").await, 1);
    assert_eq!(bed.model.sent(), 5);
}

#[tokio::test]
async fn bc_s_057_a_call_cut_by_the_output_limit_asks_for_smaller_steps() {
    let cut = vec![Ok(vec![
        ProviderEvent::ToolInputStart {
            id: "tc_1".to_owned(),
            name: "echo".to_owned(),
        },
        ProviderEvent::ToolInputDelta {
            id: "tc_1".to_owned(),
            name: None,
            text: "x".repeat(200),
        },
        finish(Finish::Length),
    ])];
    let bed = Bed::new([Play::Answer(cut)]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    assert_eq!(
        ask(&engine, &session, "write it").await.1,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let EventBody::AttemptEnded(attempt) = bed.until(&session, "attempt.ended").await.body else {
        panic!("asked for it")
    };
    assert_eq!(attempt.finish, Finish::Length);
    assert_eq!(bed.model.sent(), 2, "the turn goes on");
    let asked = bed.asked_last();
    assert!(
        asked.contains(LENGTH_NOTICE) && asked.contains("200 bytes"),
        "{asked}"
    );
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}
