//! Compaction: by threshold, by overflow, by hand; and how each of them fails.

use crate::support::*;
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::body::CompactionReason;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::SessionId;
use tenure_engine::*;

fn overflow() -> Play {
    Play::Refuse(ProviderError::new(
        ErrorClass::ContextOverflow,
        "prompt is too long",
    ))
}

fn failed(outcome: Outcome) -> SessionError {
    match outcome {
        Outcome::Failed(error) => error,
        other => panic!("expected a failure, got {other:?}"),
    }
}

fn reasons(log: &[Event]) -> Vec<CompactionReason> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::CompactionStarted(c) => Some(c.reason),
            _ => None,
        })
        .collect()
}

fn steps(log: &[Event]) -> Vec<u32> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::StepStarted(s) => Some(s.step),
            _ => None,
        })
        .collect()
}

/// A session that has something to compact.
async fn with_history(bed: &Bed, engine: &Engine) -> SessionId {
    let session = bed.session().await;
    bed.model.push(Play::Answer(text("an old answer")));
    ask(engine, &session, "an old question").await;
    engine.idle().await;
    session
}

#[tokio::test]
async fn an_overflow_compacts_once_and_asks_again_under_the_same_number() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    bed.model.push(overflow());
    bed.model.push(Play::Answer(text("short summary")));
    bed.model.push(Play::Answer(text("fits")));
    let (_, ended) = ask(&engine, &session, "the new question").await;
    assert_eq!(ended, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    assert_eq!(reasons(&log), [CompactionReason::Overflow]);
    assert_eq!(steps(&log), [1, 1, 1]);
    let asked = bed.asked_last();
    assert!(asked.contains("short summary") && asked.contains("user: the new question"));
    assert!(!asked.contains("an old answer"), "{asked}");
}

#[tokio::test]
async fn a_second_overflow_is_the_end_and_says_what_to_do() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    bed.model.push(overflow());
    bed.model.push(Play::Answer(text("short summary")));
    bed.model.push(overflow());
    let error = failed(ask(&engine, &session, "the new question").await.1);
    assert_eq!(error.kind, "context_overflow");
    assert!(error.message.contains("larger window"), "{}", error.message);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(reasons(&bed.log(&session).await).len(), 1);
    assert_eq!(bed.model.sent(), 4);
    // It is over with that turn: the next one asks anew.
    assert_eq!(
        ask(&engine, &session, "shorter").await.1,
        Outcome::Succeeded
    );
    assert_eq!(bed.model.sent(), 5);
}

#[tokio::test]
async fn with_compaction_off_an_overflow_gives_the_hint_and_by_hand_it_works() {
    let mut bed = Bed::new([]);
    bed.config.auto_compaction = false;
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    bed.model.push(overflow());
    let error = failed(ask(&engine, &session, "the new question").await.1);
    assert_eq!(error.kind, "context_overflow");
    assert!(error.message.contains("by hand"), "{}", error.message);
    engine.idle().await;
    assert_eq!(reasons(&bed.log(&session).await), []);
    assert_eq!(bed.model.sent(), 2);
    bed.model.push(Play::Answer(text("short summary")));
    bed.client().compact(&session).await.unwrap();
    bed.until(&session, "compaction.ended").await;
    let (_, ended) = ask(&engine, &session, "again").await;
    assert_eq!(ended, Outcome::Succeeded);
    assert!(bed.asked_last().contains("short summary"));
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn the_threshold_compacts_before_the_next_step() {
    let mut bed = Bed::new([]);
    bed.window(1_000, 100);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let mut full = text(&"words ".repeat(400));
    full[1] = Ok(vec![
        tenure_core::provider::ProviderEvent::TextEnd {
            id: "t".to_owned(),
            native: None,
        },
        tenure_core::provider::ProviderEvent::Finish {
            finish: tenure_core::provider::Finish::Stop,
            raw: None,
            usage: usage(500, 480),
        },
    ]);
    bed.model.push(Play::Answer(full));
    ask(&engine, &session, "hi").await;
    bed.model.push(Play::Answer(text("short summary")));
    let (_, ended) = ask(&engine, &session, "the new question").await;
    assert_eq!(ended, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(
        reasons(&bed.log(&session).await),
        [CompactionReason::Threshold]
    );
    assert_eq!(bed.model.sent(), 3);
    let asked = bed.asked_last();
    assert!(
        asked.contains("short summary") && asked.contains("the new question"),
        "{asked}"
    );
}

/// A failed manual compaction is shown, changes nothing, and stops nothing else.
async fn manual_fails(play: Play, why: &str) {
    let mut bed = Bed::new([]);
    bed.config.retry.max_retries = 0;
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    bed.model.push(play);
    bed.client().compact(&session).await.unwrap();
    let EventBody::CompactionFailed(failed) = bed.until(&session, "compaction.failed").await.body
    else {
        panic!("asked for it")
    };
    assert!(
        failed.error.message.contains(why),
        "{}",
        failed.error.message
    );
    let (_, ended) = ask(&engine, &session, "and now").await;
    assert_eq!(ended, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert!(
        bed.asked_last().contains("an old answer"),
        "history is as it was"
    );
    assert_eq!(bed.count(&session, "compaction.ended").await, 0);
}

#[tokio::test]
async fn an_empty_summary_is_a_failure() {
    let empty = vec![Ok(vec![finish(tenure_core::provider::Finish::Stop)])];
    manual_fails(Play::Answer(empty), "empty summary").await;
}

#[tokio::test]
async fn a_cut_summary_is_a_failure() {
    manual_fails(Play::Answer(half("the summary of")), "cut off").await;
}

#[tokio::test]
async fn a_refused_summary_is_a_failure() {
    let refused = ProviderError::new(ErrorClass::InvalidRequest, "no such thing");
    manual_fails(Play::Refuse(refused), "no such thing").await;
}

#[tokio::test]
async fn with_nothing_to_compact_it_says_so_without_asking_the_model() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.client().compact(&session).await.unwrap();
    engine.run(&session);
    let EventBody::CompactionFailed(failed) = bed.until(&session, "compaction.failed").await.body
    else {
        panic!("asked for it")
    };
    assert_eq!(failed.error.kind, "nothing_to_compact");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 0);
}

#[tokio::test]
async fn a_transient_failure_of_a_summary_is_tried_again() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    let busy = ProviderError::new(ErrorClass::Overloaded, "busy");
    bed.model.push(Play::Refuse(busy));
    bed.model.push(Play::Answer(text("short summary")));
    bed.client().compact(&session).await.unwrap();
    bed.until(&session, "compaction.ended").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "compaction.started").await, 2);
}
