//! What providers and stores do wrong: retries, cuts, violations, refusals, a store that is away.

use crate::fakes::*;
use crate::support::*;
use std::time::{Duration, Instant};
use tenure_core::claim::CONTINUATION_AFTER_CUT;
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::EventBody;
use tenure_core::event::body::ToolFailure;
use tenure_core::history::LENGTH_NOTICE;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_engine::*;
use tenure_store::sqlite::Fault;

fn refuse(class: ErrorClass) -> Play {
    Play::Refuse(ProviderError::new(class, "refused"))
}

fn failed(outcome: Outcome) -> SessionError {
    match outcome {
        Outcome::Failed(error) => error,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// A call that arrived whole, and then nothing.
fn cut_behind(id: &str) -> Play {
    Play::Answer(vec![Ok(vec![call(id, "echo", r#"{"say":"kept"}"#)])])
}

#[tokio::test]
async fn a_retry_waits_as_long_as_the_provider_says() {
    let patient = ProviderError {
        retry_after_ms: Some(60),
        ..ProviderError::new(ErrorClass::RateLimit, "slow down")
    };
    let bed = Bed::new([Play::Refuse(patient), Play::Answer(text("ok"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let begun = Instant::now();
    let (_, ended) = ask(&engine, &session, "hi").await;
    assert_eq!(ended, Outcome::Succeeded);
    assert!(begun.elapsed() >= Duration::from_millis(60));
    let EventBody::RetryScheduled(retry) = bed.until(&session, "retry.scheduled").await.body else {
        panic!("asked for it")
    };
    assert_eq!((retry.attempt, retry.delay_ms), (2, 60));
    assert_eq!(retry.error.class, ErrorClass::RateLimit);
}

#[tokio::test]
async fn an_unreasonable_wait_is_shown_instead_of_slept() {
    let far = ProviderError {
        retry_after_ms: Some(999_999_000),
        ..ProviderError::new(ErrorClass::RateLimit, "slow down")
    };
    let bed = Bed::new([Play::Refuse(far)]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert!(
        error.message.contains("available again in"),
        "{}",
        error.message
    );
    assert_eq!(bed.model.sent(), 1);
}

#[tokio::test]
async fn retries_end_after_four_and_say_so() {
    let bed = Bed::new((0..9).map(|_| refuse(ErrorClass::Server)));
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert!(
        error.message.contains("gave up after 5 attempts"),
        "{}",
        error.message
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 5);
    assert_eq!(bed.count(&session, "retry.scheduled").await, 4);
}

#[tokio::test]
async fn bc_s_066_a_picture_refused_with_500_is_left_out_at_once_instead_of_retried() {
    let blind = ProviderError::new(
        ErrorClass::Server,
        "image input is not supported - hint: you may need to provide the mmproj",
    );
    let bed = Bed::new([Play::Refuse(blind), Play::Answer(text("ok"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let prompt = Prompt {
        media: vec![media::attach("a.png", b"\x89PNG\r\n\x1a\n").unwrap()],
        ..Prompt::steer("look")
    };
    let admission = engine.client().admit(&session, prompt).await.unwrap();
    let ended = outcome(&engine, &session, &admission).await;
    assert_eq!(ended, Outcome::Succeeded);
    assert_eq!(bed.model.sent(), 2);
    assert_eq!(bed.count(&session, "retry.scheduled").await, 0);
}

#[tokio::test]
async fn a_cut_behind_a_complete_call_keeps_it_and_goes_on_in_a_new_message() {
    let bed = Bed::new([cut_behind("a")]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, ended) = ask(&engine, &session, "hi").await;
    assert_eq!(ended, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "step.failed").await, 1);
    assert_eq!(bed.count(&session, "tool.started").await, 1);
    let asked = bed.asked(1);
    assert!(asked.contains("result a: kept"), "{asked}");
    assert!(asked.contains(CONTINUATION_AFTER_CUT), "{asked}");
}

#[tokio::test]
async fn cuts_behind_calls_share_the_budget_of_retries() {
    let bed = Bed::new((0..20).map(|i| cut_behind(&format!("c{i}")))).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert_eq!(error.kind, "cut");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert!(bed.model.sent() <= 5, "{} requests", bed.model.sent());
    // A person's words renew it.
    bed.model.clear();
    bed.model.push(cut_behind("again"));
    assert_eq!(ask(&engine, &session, "go on").await.1, Outcome::Succeeded);
}

#[tokio::test]
async fn a_violation_ends_the_step_as_failed_and_names_the_ids() {
    let twice = calls([call("tc_9", "echo", "{}"), call("tc_9", "echo", "{}")]);
    let bed = Bed::new([Play::Answer(twice)]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert_eq!(error.kind, "violation");
    assert!(error.message.contains("tc_9"), "{}", error.message);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 1);
    assert_eq!(ask(&engine, &session, "again").await.1, Outcome::Succeeded);
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_name_that_changes_names_both() {
    let renamed = vec![Ok(vec![
        ProviderEvent::ToolInputStart {
            id: "tc_1".to_owned(),
            name: "echo".to_owned(),
        },
        call("tc_1", "hold", "{}"),
    ])];
    let bed = Bed::new([Play::Answer(renamed)]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    for word in ["tc_1", "echo", "hold"] {
        assert!(error.message.contains(word), "{}", error.message);
    }
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

fn nothing(finish: Finish) -> Answer {
    vec![Ok(vec![ProviderEvent::Finish {
        finish,
        raw: None,
        usage: usage(10, 0),
    }])]
}

#[tokio::test]
async fn an_answer_of_nothing_is_no_success() {
    let bed = Bed::new((0..9).map(|_| Play::Answer(nothing(Finish::Stop))));
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert!(error.message.contains("nothing"), "{}", error.message);
    assert_eq!(bed.model.sent(), 5);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_content_filter_that_left_nothing_fails_at_once_and_says_why() {
    let bed = Bed::new([Play::Answer(nothing(Finish::ContentFilter))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert_eq!(error.kind, "content_filter");
    assert_eq!(
        bed.model.sent(),
        1,
        "the same request would be filtered again"
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(
        ask(&engine, &session, "other words").await.1,
        Outcome::Succeeded
    );
}

#[tokio::test]
async fn the_output_limit_is_told_to_the_model() {
    let mut answer = text("a long");
    answer[1] = Ok(vec![
        ProviderEvent::TextEnd {
            id: "t".to_owned(),
            native: None,
        },
        finish(Finish::Length),
    ]);
    let bed = Bed::new([Play::Answer(answer)]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    ask(&engine, &session, "go on").await;
    assert!(bed.asked(1).contains(LENGTH_NOTICE));
}

#[tokio::test]
async fn a_paused_turn_is_called_again() {
    let mut paused = text("searching");
    paused[1] = Ok(vec![
        ProviderEvent::TextEnd {
            id: "t".to_owned(),
            native: None,
        },
        finish(Finish::Pause),
    ]);
    let bed = Bed::new([Play::Answer(paused), Play::Answer(text("found"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, ended) = ask(&engine, &session, "hi").await;
    assert_eq!((ended, bed.model.sent()), (Outcome::Succeeded, 2));
}

#[tokio::test]
async fn an_unknown_model_fails_clearly_and_the_session_can_be_used() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let nowhere = tenure_core::model::ModelRef {
        provider: "nowhere".to_owned(),
        model: "m".to_owned(),
    };
    bed.client().select_model(&session, nowhere).await.unwrap();
    let error = failed(ask(&engine, &session, "hi").await.1);
    assert!(error.message.contains("nowhere") && error.message.contains("Configured: p"));
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    bed.client()
        .select_model(&session, Bed::model_ref())
        .await
        .unwrap();
    assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_told_to_the_model() {
    let bed = Bed::new([Play::Answer(calls([call("a", "echo", "{}")]))]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    std::fs::remove_dir(bed.workspace()).unwrap();
    assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
    let settled = settlements(&bed.log(&session).await);
    assert_eq!(settled[0].1, Some(ToolFailure::NotExecuted));
    assert!(settled[0].2.contains("cannot be used"), "{}", settled[0].2);
}

/// A commit that goes wrong at the n-th event of a turn: nothing starts without its durable start, nothing
/// is lost, and the turn goes on after.
async fn store_fault(fault: Fault) {
    for trigger in [
        "input.promoted",
        "attempt.started",
        "tool.called",
        "tool.started",
        "tool.succeeded",
        "attempt.ended",
    ] {
        let bed = Bed::new([Play::Answer(calls([call("a", "echo", r#"{"say":"x"}"#)]))]);
        let bed = bed.with_tool(Echo);
        let engine = bed.engine().await;
        let session = bed.session().await;
        let first = bed.admit(&session, Prompt::steer("hi")).await;
        engine.run(&session);
        bed.until(&session, trigger).await;
        bed.store.fail_next_commit(fault);
        let ended = outcome(&engine, &session, &first).await;
        assert_eq!(ended, Outcome::Succeeded, "{fault:?} after {trigger}");
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        let started = bed.count(&session, "attempt.started").await;
        assert!(
            bed.model.sent() <= started,
            "no request without its durable start"
        );
        assert!(bed.count(&session, "tool.started").await <= 1);
    }
}

#[tokio::test]
async fn a_lost_commit_stops_nothing_for_good() {
    store_fault(Fault::CommitLost).await;
}

#[tokio::test]
async fn a_lost_answer_changes_nothing() {
    store_fault(Fault::AnswerLost).await;
}

/// The store loses most of its commits for a while: nothing starts without its durable start, and the turn goes on after.
#[tokio::test]
async fn a_store_that_is_away_for_a_while_is_waited_for() {
    let gate = Gate::shut();
    let tool = calls([call("a", "echo", r#"{"say":"x"}"#)]);
    let bed = Bed::new([Play::Gated(Vec::new(), gate.clone(), tool)]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until(&session, "attempt.started").await;
    let store = bed.store.clone();
    let away = tokio::spawn(async move {
        for _ in 0..300 {
            store.fail_next_commit(Fault::CommitLost);
            // tidy: sleep ok because it is how long the store stays away, and nothing waits for it
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    gate.open();
    away.await.unwrap();
    let sent = bed.model.sent();
    let started = bed.count(&session, "attempt.started").await;
    assert!(
        sent <= started,
        "{sent} requests, {started} of them recorded"
    );
    assert_eq!(outcome(&engine, &session, &first).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let started = bed.count(&session, "attempt.started").await;
    assert!(bed.model.sent() <= started);
    assert!(bed.count(&session, "tool.started").await <= 1);
}
