//! Compaction: by threshold, by overflow, by hand; and how each of them fails.

use crate::support::*;
use std::sync::Arc;
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::body::CompactionReason;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::SessionId;
use tenure_core::request::{Effort, Media};
use tenure_engine::*;
use tenure_provider::ModelSettings;
use tenure_provider::catalogue::{Abilities, Ability};

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
async fn bc_s_031_with_compaction_off_an_overflow_gives_the_hint_and_by_hand_it_works() {
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
    bed.model.push(counted(&"words ".repeat(400), 500, 480));
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
async fn manual_fails(plays: impl IntoIterator<Item = Play>, why: &str) {
    let mut bed = Bed::new([]);
    bed.config.retry.max_retries = 0;
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    plays.into_iter().for_each(|play| bed.model.push(play));
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
async fn bc_s_030_an_empty_summary_is_a_failure() {
    // It is asked for once more.
    manual_fails([nothing(), nothing()], "empty summary").await;
}

#[tokio::test]
async fn bc_s_033_a_summary_cut_behind_its_first_words_leaves_the_old_history() {
    manual_fails([Play::Answer(half("the summary of"))], "cut off").await;
}

#[tokio::test]
async fn a_refused_summary_is_a_failure() {
    let refused = ProviderError::new(ErrorClass::InvalidRequest, "no such thing");
    manual_fails([Play::Refuse(refused)], "no such thing").await;
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

/// An answer whose prompt the provider counts.
fn counted(words: &str, prompt: u64, output: u64) -> Play {
    let mut answer = text(words);
    answer[1] = Ok(vec![
        tenure_core::provider::ProviderEvent::TextEnd {
            id: "t".to_owned(),
            native: None,
        },
        tenure_core::provider::ProviderEvent::Finish {
            finish: tenure_core::provider::Finish::Stop,
            raw: None,
            usage: usage(prompt, output),
        },
    ]);
    Play::Answer(answer)
}

/// An answer without a word.
fn nothing() -> Play {
    Play::Answer(vec![Ok(vec![finish(tenure_core::provider::Finish::Stop)])])
}

/// Failures of compactions, by kind.
fn kinds(log: &[Event]) -> Vec<String> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::CompactionFailed(c) => Some(c.error.kind.clone()),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn bc_s_030_summaries_of_nothing_are_bounded_over_turns_and_restarts() {
    let mut bed = Bed::new([]);
    bed.window(2_500, 100);
    let session = bed.session().await;
    // Summaries that are asked for and come back empty, turn by turn; each turn in a process of its own.
    for tries in [0, 2, 1, 0, 0, 0] {
        for _ in 0..tries {
            bed.model.push(nothing());
        }
        bed.model.push(counted("an answer", 2_450, 10));
        let engine = bed.engine().await;
        let before = bed.model.sent();
        let (_, ended) = ask(&engine, &session, "go on").await;
        assert_eq!(ended, Outcome::Succeeded, "it still fits, so it is sent");
        assert_eq!(bed.model.sent() - before, tries + 1);
        engine.idle().await;
        engine.shutdown().await.unwrap();
    }
    let log = bed.log(&session).await;
    assert_eq!(kinds(&log), ["unusable_summary"; 3], "bounded, and shown");
    assert_eq!(bed.count(&session, "compaction.ended").await, 0);
    bed.assert_at_rest(&session).await;
    let folded = tenure_core::session::SessionState::fold(&log);
    assert!(folded.summary.is_none(), "history is as it was");
    // By hand, with a model that answers, it works, and the next turn has room.
    let engine = bed.engine().await;
    bed.model.push(Play::Answer(text("short summary")));
    bed.client().compact(&session).await.unwrap();
    engine.run(&session);
    bed.until(&session, "compaction.ended").await;
    assert_eq!(ask(&engine, &session, "again").await.1, Outcome::Succeeded);
    engine.idle().await;
    assert!(bed.asked_last().contains("short summary"));
}

#[tokio::test]
async fn summaries_that_are_calls_or_cut_are_asked_for_once_more_and_more_firmly() {
    let cut = |finish| {
        let mut answer = text("half of a summ");
        answer[1] = Ok(vec![
            tenure_core::provider::ProviderEvent::TextEnd {
                id: "t".to_owned(),
                native: None,
            },
            crate::support::finish(finish),
        ]);
        Play::Answer(answer)
    };
    let bad = [
        Play::Answer(calls([call("c", "echo", "{}")])),
        cut(tenure_core::provider::Finish::Length),
    ];
    for play in bad {
        let bed = Bed::new([]);
        let engine = bed.engine().await;
        let session = with_history(&bed, &engine).await;
        bed.model.push(overflow());
        bed.model.push(play);
        bed.model.push(Play::Answer(text("short summary")));
        bed.model.push(Play::Answer(text("fits")));
        assert_eq!(ask(&engine, &session, "new").await.1, Outcome::Succeeded);
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        assert_eq!(kinds(&bed.log(&session).await), ["unusable_summary"]);
        assert!(
            bed.asked(3).contains("An earlier try came back"),
            "{}",
            bed.asked(3)
        );
        assert!(bed.asked_last().contains("short summary"));
    }
}

#[tokio::test]
async fn a_summarising_request_that_does_not_fit_is_made_smaller_a_bounded_number_of_times() {
    let mut bed = Bed::new([]);
    bed.window(400_000, 8_000);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.model
        .push(Play::Answer(text(&"an old answer ".repeat(40_000))));
    ask(&engine, &session, "an old question").await;
    bed.model.push(overflow());
    for _ in 0..2 {
        bed.model.push(overflow());
    }
    bed.model.push(Play::Answer(text("short summary")));
    bed.model.push(Play::Answer(text("fits")));
    assert_eq!(ask(&engine, &session, "new").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let sizes: Vec<usize> = (2..5).map(|n| bed.asked(n).len()).collect();
    assert!(sizes.windows(2).all(|pair| pair[1] < pair[0]), "{sizes:?}");
    assert_eq!(kinds(&bed.log(&session).await), ["context_overflow"; 2]);
    // A provider that takes nothing at all ends the turn.
    for _ in 0..20 {
        bed.model.push(overflow());
    }
    let before = bed.model.sent();
    let error = failed(ask(&engine, &session, "once more").await.1);
    assert_eq!(error.kind, "context_overflow");
    assert!(
        bed.model.sent() - before <= 5,
        "{}",
        bed.model.sent() - before
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_summary_that_shrinks_nothing_ends_the_turn_and_says_so() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = with_history(&bed, &engine).await;
    bed.model.push(overflow());
    for _ in 0..2 {
        bed.model
            .push(Play::Answer(text(&"a long summary ".repeat(500))));
    }
    let error = failed(ask(&engine, &session, "the new question").await.1);
    assert_eq!(error.kind, "context_overflow");
    assert!(error.message.contains("no shorter"), "{}", error.message);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(kinds(&bed.log(&session).await), ["unusable_summary"; 2]);
    assert_eq!(bed.model.sent(), 4, "no loop");
}

#[tokio::test]
async fn a_node_lost_behind_a_compaction_leaves_the_step_its_number() {
    let bed = Bed::new([]);
    let victim = bed.victim().await;
    let session = bed.session().await;
    bed.model.push(Play::Answer(text("an old answer")));
    ask(&victim.engine, &session, "an old question").await;
    bed.model.push(overflow());
    bed.model.push(Play::Hang(half("summ")));
    bed.admit(&session, Prompt::steer("the new question")).await;
    victim.engine.run(&session);
    bed.until(&session, "compaction.started").await;
    victim.kill().await;
    // Whoever takes over settles the compaction, makes it anew, and asks for the step under its number.
    bed.model.clear();
    bed.model.push(Play::Answer(text("short summary")));
    bed.model.push(Play::Answer(text("fits")));
    let engine = bed.engine().await;
    engine.run(&session);
    bed.until_nth(&session, "execution.succeeded", 2).await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    assert_eq!(kinds(&log), ["crashed"]);
    assert_eq!(reasons(&log), [CompactionReason::Overflow; 2]);
    assert_eq!(steps(&log), [1, 1, 1], "{}", crate::checks::show(&log));
    let asked = bed.asked_last();
    assert!(
        asked.contains("short summary") && asked.contains("the new question"),
        "{asked}"
    );
}

#[tokio::test]
async fn a_model_that_thinks_is_told_to_think_little_about_a_summary_unless_it_refuses_to_be_told()
{
    let refused = || {
        Play::Refuse(ProviderError::new(
            ErrorClass::InvalidRequest,
            "unsupported value for reasoning.effort",
        ))
    };
    for thinks in [true, false] {
        let mut bed = Bed::new([]);
        let known = Abilities::default().with(Ability::Tools);
        let settings = ModelSettings {
            abilities: Some(if thinks {
                known.with(Ability::Reasoning)
            } else {
                known
            }),
            ..ModelSettings::default()
        };
        bed.catalogue.declare(&Bed::model_ref(), settings);
        let engine = bed.engine().await;
        let session = with_history(&bed, &engine).await;
        bed.model.push(overflow());
        bed.model.push(refused());
        bed.model.push(Play::Answer(text("short summary")));
        bed.model.push(Play::Answer(text("fits")));
        let (_, ended) = ask(&engine, &session, "new").await;
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        let effort = |index| bed.model.request(index).effort;
        if thinks {
            assert_eq!(ended, Outcome::Succeeded);
            assert_eq!((effort(2), effort(3)), (Some(Effort::Low), None));
            assert_eq!(kinds(&bed.log(&session).await), ["invalid_request"]);
        } else {
            // It was told nothing that it could refuse: asking again would change nothing.
            assert_eq!(failed(ended).kind, "context_overflow");
            assert_eq!((effort(2), bed.model.sent()), (None, 3));
        }
    }
}

#[tokio::test]
async fn files_are_looked_into_off_the_threads_that_serve_others() {
    let mut bed = Bed::new([]);
    let world = Arc::new(Mortal::default());
    bed.config.env = world.clone();
    let engine = bed.engine().await;
    let session = bed.session().await;
    let done = || world.blocked();
    bed.model.push(Play::Answer(text("first")));
    ask(&engine, &session, "begins").await;
    engine.idle().await;
    let begun = done();
    bed.model.push(Play::Answer(text("second")));
    ask(&engine, &session, "words only").await;
    engine.idle().await;
    let words = done() - begun;
    bed.model.push(Play::Answer(text("third")));
    let prompt = Prompt {
        media: vec![Media {
            name: "plan.pdf".to_owned(),
            media_type: "application/pdf".to_owned(),
            data: "JVBERi0xLjQK".into(),
        }],
        ..Prompt::steer("and a file")
    };
    let admission = bed.admit(&session, prompt).await;
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    assert_eq!(done() - begun - words, words + 1);
}
