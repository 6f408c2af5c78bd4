//! The inbox: who enters the conversation when, in which order, and what is never lost (P2).

use crate::fakes::*;
use crate::support::*;
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody};
use tenure_core::history::LAST_STEP_NOTICE;
use tenure_core::id::{MessageId, SessionId};
use tenure_core::request::ToolChoice;
use tenure_engine::*;
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::{Append, AppendError, OpenOptions};
use tenure_tools::permission::Rules;

fn promoted(log: &[Event]) -> Vec<MessageId> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::InputPromoted(p) => Some(p.input.clone()),
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

#[tokio::test]
async fn steers_join_at_the_next_boundary_all_at_once_and_start_the_count_again() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let second = bed.admit(&session, Prompt::steer("one more")).await;
    let third = bed.admit(&session, Prompt::steer("and this")).await;
    assert_eq!(
        promoted(&bed.log(&session).await),
        std::slice::from_ref(&first.input)
    );
    hold.release();
    assert_eq!(outcome(&engine, &session, &third).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    assert_eq!(promoted(&log), [first.input, second.input, third.input]);
    assert_eq!(steps(&log), [1, 1]);
    let asked = bed.asked(1);
    let (result, one, this) = (
        asked.find("result a: released").unwrap(),
        asked.find("user: one more").unwrap(),
        asked.find("user: and this").unwrap(),
    );
    assert!(result < one && one < this, "{asked}");
    assert_eq!(bed.count(&session, "execution.started").await, 1);
}

#[tokio::test]
async fn the_queue_waits_for_idle_and_goes_one_at_a_time() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Answer(text("first done")),
        Play::Answer(text("second done")),
        Play::Answer(text("third done")),
    ])
    .with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    bed.admit(&session, Prompt::queue("q-one")).await;
    let last = bed.admit(&session, Prompt::queue("q-two")).await;
    bed.admit(&session, Prompt::steer("s-one")).await;
    hold.release();
    assert_eq!(outcome(&engine, &session, &last).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert!(bed.asked(1).contains("s-one") && !bed.asked(1).contains("q-one"));
    assert!(bed.asked(2).contains("q-one") && !bed.asked(2).contains("q-two"));
    assert!(bed.asked(3).contains("q-two"));
    assert_eq!(bed.model.sent(), 4);
    assert_eq!(bed.count(&session, "execution.started").await, 1);
}

#[tokio::test]
async fn steers_do_not_cross_a_control_input() {
    let bed = Bed::new([
        Play::Answer(text("history")),
        Play::Answer(text("the summary")),
        Play::Answer(text("after it")),
    ]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    engine.idle().await;
    engine.forget(&session);
    let before = bed.admit(&session, Prompt::steer("s-before")).await;
    let compact = bed.client().compact(&session).await.unwrap();
    let last = bed.admit(&session, Prompt::steer("s-after")).await;
    assert_eq!(outcome(&engine, &session, &last).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    assert_eq!(
        promoted(&log)[1..],
        [before.input, compact.input, last.input]
    );
    assert!(bed.asked(1).contains("Summarise") && !bed.asked(1).contains("s-after"));
    let after = bed.asked(2);
    let (summary, first, second) = (
        after.find("the summary").unwrap(),
        after.find("user: s-before").unwrap(),
        after.find("user: s-after").unwrap(),
    );
    assert!(summary < first && first < second, "{after}");
}

#[tokio::test]
async fn a_move_takes_its_turn_and_tools_run_at_the_new_place() {
    let bed = Bed::new([Play::Answer(calls([call("a", "where", "{}")]))]).with_tool(Where);
    let there = bed.dir.path().join("there");
    std::fs::create_dir(&there).unwrap();
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("one")).await;
    bed.client()
        .relocate(&session, there.display().to_string())
        .await
        .unwrap();
    let last = bed.admit(&session, Prompt::steer("two")).await;
    assert_eq!(outcome(&engine, &session, &last).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let there = there.canonicalize().unwrap().display().to_string();
    assert_eq!(bed.last_results(), std::slice::from_ref(&there));
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.generation, 1);
    assert_eq!(row.location.directory, there);
}

#[tokio::test]
async fn a_repeated_id_is_one_input_and_other_words_under_it_are_refused() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let id = Some(MessageId::from_bits(77));
    let prompt = |text: &str| Prompt {
        id: id.clone(),
        ..Prompt::steer(text)
    };
    let first = bed.admit(&session, prompt("words")).await;
    let same = bed.admit(&session, prompt("words")).await;
    let other = bed.client().admit(&session, prompt("other words")).await;
    assert_eq!(
        other,
        Err(EngineError::InputExists {
            session: session.clone(),
            input: first.input.clone(),
        })
    );
    assert!(!first.duplicate && same.duplicate);
    assert_eq!(first.seq, same.seq);
    outcome(&engine, &session, &first).await;
    engine.idle().await;
    let late = bed.admit(&session, prompt("words")).await;
    assert!(late.duplicate);
    engine.wake(&session);
    engine.idle().await;
    assert_eq!(bed.model.sent(), 1);
    assert_eq!(bed.count(&session, "input.admitted").await, 1);
    assert!(!bed.asked(0).contains("other words"));
}

#[tokio::test]
async fn a_pending_input_can_be_taken_back_and_a_delivered_one_not() {
    let gate = Gate::shut();
    let bed = Bed::new([Play::Gated(Vec::new(), gate.clone(), text("ok"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "attempt.started").await;
    let back = bed.admit(&session, Prompt::steer("no, wait")).await;
    let client = bed.client();
    client
        .cancel_input(&session, &back.input, "me")
        .await
        .unwrap();
    let gone = client.cancel_input(&session, &first.input, "me").await;
    assert!(
        matches!(
            gone,
            Err(EngineError::Append(AppendError::InboxChanged { .. }))
        ),
        "{gone:?}"
    );
    gate.open();
    assert_eq!(
        outcome(&engine, &session, &back).await,
        Outcome::Cancelled {
            by: "me".to_owned()
        }
    );
    assert_eq!(outcome(&engine, &session, &first).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 1);
}

/// Promotion and withdrawal race: whoever commits first wins, and the input has one end.
async fn promote_against_cancel(bed: &Bed) -> Result<(), String> {
    let engine = bed.engine().await;
    for round in 0..60_usize {
        let session = bed.session().await;
        let first = bed.admit(&session, Prompt::steer("go")).await;
        engine.run(&session);
        for _ in 0..round % 20 {
            tokio::task::yield_now().await;
        }
        let cancelled = bed
            .client()
            .cancel_input(&session, &first.input, "me")
            .await;
        let ended = outcome(&engine, &session, &first).await;
        engine.idle().await;
        let log = bed.log(&session).await;
        let faults = crate::checks::faults_at_rest(&log);
        if !faults.is_empty() {
            return Err(format!("{faults:?}"));
        }
        match cancelled {
            Ok(())
                if ended
                    == (Outcome::Cancelled {
                        by: "me".to_owned(),
                    }) => {}
            Err(_) if ended == Outcome::Succeeded => {}
            other => return Err(format!("round {round}: {other:?} and {ended:?}")),
        }
        engine.forget(&session);
    }
    Ok(())
}

#[tokio::test]
async fn promotion_and_withdrawal_race_to_one_end() {
    let bed = Bed::new([]);
    promote_against_cancel(&bed).await.unwrap();
}

#[tokio::test]
async fn the_last_step_defines_tools_and_runs_none_and_a_steer_starts_the_count_again() {
    let again = || Play::Answer(calls([call("a", "echo", r#"{"say":"x"}"#)]));
    let bed = Bed::new([again(), again()]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session_with(Rules::allow_all(), 2).await;
    let (_, ended) = ask(&engine, &session, "go").await;
    assert!(
        matches!(&ended, Outcome::Failed(error) if error.kind == "step_limit"),
        "a turn that was cut short is no success: {ended:?}"
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 2);
    let (first, last) = (bed.model.request(0), bed.model.request(1));
    assert_eq!(first.tool_choice, ToolChoice::Auto);
    assert_eq!(last.tool_choice, ToolChoice::None);
    assert_eq!(first.tools, last.tools);
    assert!(!words(&first).contains(LAST_STEP_NOTICE) && words(&last).contains(LAST_STEP_NOTICE));
    assert_eq!(
        bed.count(&session, "tool.started").await,
        1,
        "the forbidden call is not run"
    );
    let settled = settlements(&bed.log(&session).await);
    assert_eq!(settled[1].1, Some(ToolFailure::NotExecuted));
    assert!(settled[1].2.contains("last step"), "{}", settled[1].2);
    ask(&engine, &session, "go on").await;
    let log = bed.log(&session).await;
    assert_eq!(steps(&log), [1, 2, 1]);
    let next = bed.model.request(2);
    assert_eq!(next.tool_choice, ToolChoice::Auto);
    assert!(!words(&next).contains(LAST_STEP_NOTICE));
}

#[tokio::test]
async fn a_title_comes_from_the_first_prompt_and_changed_instructions_are_appended() {
    let bed = Bed::new([]);
    let file = bed.workspace().join("AGENTS.md");
    std::fs::write(&file, "Speak softly.").unwrap();
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "  Fix the parser\nand more").await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.title.as_deref(), Some("Fix the parser"));
    std::fs::write(&file, "Speak loudly.").unwrap();
    ask(&engine, &session, "again").await;
    ask(&engine, &session, "and again").await;
    engine.idle().await;
    let (first, second, third) = (
        bed.model.request(0),
        bed.model.request(1),
        bed.model.request(2),
    );
    assert!(first.system.concat().contains("Speak softly."));
    assert_eq!(
        first.system, second.system,
        "the prefix stays, byte for byte"
    );
    assert_eq!(first.messages[..], second.messages[..first.messages.len()]);
    let told = words(&second);
    assert!(
        told.find("Speak loudly.") < told.find("user: again"),
        "{told}"
    );
    assert_eq!(words(&third).matches("Speak loudly.").count(), 1);
    assert_eq!(bed.count(&session, "instructions.changed").await, 1);
    assert_eq!(bed.count(&session, "session.renamed").await, 1);
}

#[tokio::test]
async fn settings_hold_from_the_next_step_on() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let other = tenure_core::model::ModelRef {
        provider: "p".to_owned(),
        model: "other".to_owned(),
    };
    bed.client()
        .select_model(&session, other.clone())
        .await
        .unwrap();
    hold.release();
    outcome(&engine, &session, &first).await;
    assert_eq!(bed.model.request(0).model, Bed::model_ref());
    assert_eq!(bed.model.request(1).model, other);
}

/// Replaces the attachment from outside, as a sandbox that is rebuilt under a running call does.
async fn replace_under_it(bed: &Bed, session: &SessionId) {
    let event = tenure_core::event::NewEvent {
        id: tenure_core::id::EventId::from_bits(4711),
        created_ms: 0,
        body: AttachmentReplaced {
            location: Location::at(bed.workspace().display().to_string()),
            generation: 1,
            reason: "rebuilt".to_owned(),
        }
        .into(),
    };
    let append = Append::unfenced(session.clone(), vec![event]);
    bed.store.append(append).await.unwrap();
}

async fn stale_result(options: OpenOptions) -> Vec<(String, Option<ToolFailure>, String)> {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::with_options([Play::Answer(calls([call("a", "hold", "{}")]))], options);
    let bed = bed.with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let first = bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    bed.until(&session, "tool.started").await;
    replace_under_it(&bed, &session).await;
    hold.release();
    assert_eq!(outcome(&engine, &session, &first).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.store.effects(&session).await.unwrap(), []);
    settlements(&bed.log(&session).await)
}

#[tokio::test]
async fn a_result_of_a_replaced_attachment_is_refused_and_the_call_is_stale() {
    let settled = stale_result(OpenOptions::default()).await;
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].1, Some(ToolFailure::Stale));
    // Without the check it would have been taken for a result.
    let broken = OpenOptions {
        mutations: Mutations::only(Mutation::NoGenerationCheck),
        ..OpenOptions::default()
    };
    assert_eq!(stale_result(broken).await[0].1, None);
}
