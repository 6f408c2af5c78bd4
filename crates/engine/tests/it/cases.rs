//! Known faults of such systems, as behaviours to have: one test for each case, named by it.

use crate::checks::show;
use crate::fakes::*;
use crate::stores::every;
use crate::support::*;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::MessageId;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::RequestMessage;
use tenure_engine::*;
use tenure_store::SessionState;

#[tokio::test]
async fn bc_s_001_an_interrupted_call_has_one_end_and_the_next_request_is_paired() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("tc_1", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("run it")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    assert_eq!(ask(&engine, &session, "hello").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let settled = settlements(&bed.log(&session).await);
    assert_eq!(settled.len(), 1);
    assert_eq!(settled[0].1, Some(ToolFailure::Interrupted));
    let messages = bed.model.last_request().messages;
    let at = messages
        .iter()
        .position(|m| matches!(m, RequestMessage::Assistant { .. }))
        .unwrap();
    let RequestMessage::ToolResults { results } = &messages[at + 1] else {
        panic!("{messages:?}")
    };
    assert!(results[0].is_error && results[0].id == "tc_1");
}

#[tokio::test]
async fn bc_s_002_calls_of_abandoned_attempts_are_settled_and_left_out() {
    // Half of a call's input, then nothing: the attempt is given up.
    let abandoned = |ids: [&str; 3]| {
        let starts = ids.map(|id| ProviderEvent::ToolInputStart {
            id: id.to_owned(),
            name: "echo".to_owned(),
        });
        Play::Answer(vec![Ok(starts.to_vec())])
    };
    let bed = Bed::new([
        abandoned(["a1", "a2", "a3"]),
        abandoned(["b1", "b2", "b3"]),
        abandoned(["c1", "c2", "c3"]),
        Play::Answer(calls([call("d1", "echo", r#"{"say":"x"}"#)])),
    ])
    .with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
    assert_eq!(ask(&engine, &session, "and on").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(settlements(&bed.log(&session).await).len(), 10);
    assert_eq!(bed.count(&session, "tool.started").await, 1);
    let asked = bed.asked_last();
    assert!(
        asked.contains("call d1") && !asked.contains("call a1"),
        "{asked}"
    );
}

#[tokio::test]
async fn bc_s_003_after_a_kill_calls_are_unknown_and_every_way_on_works() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([Play::Answer(calls([
        call("tc_a", "hold", "{}"),
        call("tc_b", "hold", "{}"),
    ]))])
    .with_tool(tool);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let first = bed.admit(&session, Prompt::steer("go")).await;
    victim.engine.run(&session);
    eventually("both tools", async || hold.begun() == 2).await;
    victim.kill().await;
    let engine = bed.engine().await;
    assert_eq!(outcome(&engine, &session, &first).await, Outcome::Succeeded);
    let log = bed.log(&session).await;
    let unknown =
        |s: &&(String, Option<ToolFailure>, String)| s.1 == Some(ToolFailure::OutcomeUnknown);
    assert_eq!(settlements(&log).iter().filter(unknown).count(), 2);
    assert_eq!(
        ask(&engine, &session, "a prompt").await.1,
        Outcome::Succeeded
    );
    bed.model.push(Play::Answer(text("the summary")));
    bed.client().compact(&session).await.unwrap();
    bed.until(&session, "compaction.ended").await;
    let other = tenure_core::model::ModelRef {
        provider: "p".to_owned(),
        model: "another".to_owned(),
    };
    bed.client().select_model(&session, other).await.unwrap();
    assert_eq!(
        ask(&engine, &session, "with another").await.1,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(hold.begun(), 2, "neither was run again");
}

#[tokio::test]
async fn bc_s_004_a_stopped_turn_leaves_a_mark_before_the_next_words() {
    let bed = Bed::new([
        Play::Answer(calls([call("tc_1", "echo", r#"{"say":"7 files"}"#)])),
        Play::Hang(Vec::new()),
    ])
    .with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("count the files")).await;
    engine.run(&session);
    bed.until_nth(&session, "attempt.started", 2).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    ask(&engine, &session, "what is 2+2?").await;
    let asked = bed.asked_last();
    let (result, mark, words) = (
        asked.find("7 files").unwrap(),
        asked.find("The user stopped the turn here").unwrap(),
        asked.find("user: what is 2+2?").unwrap(),
    );
    assert!(result < mark && mark < words, "{asked}");
    assert!(asked.trim_end().ends_with("what is 2+2?"));
}

#[tokio::test]
async fn bc_s_005_a_cut_call_and_an_empty_retry_are_no_success() {
    let cut = Play::Answer(vec![Ok(vec![
        ProviderEvent::ToolInputStart {
            id: "tc_1".to_owned(),
            name: "echo".to_owned(),
        },
        ProviderEvent::ToolInputDelta {
            id: "tc_1".to_owned(),
            name: None,
            text: r#"{"say":"ha"#.to_owned(),
        },
    ])]);
    let empty = || {
        Play::Answer(vec![Ok(vec![ProviderEvent::Finish {
            finish: Finish::Stop,
            raw: None,
            usage: usage(0, 0),
        }])])
    };
    let bed = Bed::new([cut, empty(), empty(), empty(), empty()]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, ended) = ask(&engine, &session, "hi").await;
    assert!(matches!(ended, Outcome::Failed(_)), "{ended:?}");
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn bc_s_006_a_call_whose_input_never_comes_is_not_executed() {
    let silent = Play::Answer(vec![
        Ok(vec![ProviderEvent::ToolInputStart {
            id: "tc_1".to_owned(),
            name: "echo".to_owned(),
        }]),
        Err(ProviderError::new(
            ErrorClass::Timeout,
            "nothing came for 2 s",
        )),
    ]);
    let bed = Bed::new([silent]).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let settled = settlements(&bed.log(&session).await);
    assert_eq!(settled[0].1, Some(ToolFailure::NotExecuted));
    assert!(
        settled[0].2.contains("never arrived whole"),
        "{}",
        settled[0].2
    );
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn bc_s_007_finished_turns_are_the_same_bytes_after_a_resume() {
    let (tool, hold) = Held::new(Manner::Ignores);
    let bed = Bed::new([]).with_tool(tool).with_tool(Echo);
    let session = bed.session().await;
    let victim = bed.victim().await;
    for turn in 0..3 {
        let id = format!("tc_{turn}");
        bed.model
            .push(Play::Answer(calls([call(&id, "echo", r#"{"say":"x"}"#)])));
        ask(&victim.engine, &session, "go").await;
    }
    bed.model
        .push(Play::Answer(calls([call("tc_3", "hold", "{}")])));
    bed.admit(&session, Prompt::steer("go")).await;
    eventually("the tool", async || hold.begun() == 1).await;
    let before = bed.log(&session).await;
    let sent = bed.model.last_request();
    victim.kill().await;
    let engine = bed.engine().await;
    engine.run(&session);
    bed.until_nth(&session, "execution.succeeded", 4).await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let after = bed.log(&session).await;
    assert_eq!(before[..], after[..before.len()]);
    let next = bed.model.last_request();
    assert_eq!(sent.messages[..], next.messages[..sent.messages.len()]);
    assert_eq!(sent.system, next.system);
    assert_eq!(settlements(&after).len(), 4);
}

#[tokio::test]
async fn bc_s_009_a_killed_message_is_closed_and_nothing_shows_as_queued() {
    let bed = Bed::new([Play::Hang(half("m1"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    let first = bed.admit(&session, Prompt::steer("hi")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    victim.kill().await;
    let engine = bed.engine().await;
    outcome(&engine, &session, &first).await;
    engine.idle().await;
    for _ in 0..2 {
        bed.assert_at_rest(&session).await;
        assert_eq!(bed.store.inbox(&session).await.unwrap(), []);
        let row = bed.store.session(&session).await.unwrap().unwrap();
        assert_eq!((row.pending, row.state), (0, SessionState::Idle));
        ask(&engine, &session, "more").await;
        engine.idle().await;
    }
}

#[tokio::test]
async fn bc_s_010_a_refused_key_leaves_running_without_a_restart() {
    let bad = ProviderError::new(ErrorClass::Auth, "401: bad key");
    let bed = Bed::new([Play::Refuse(bad)]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, ended) = ask(&engine, &session, "hi").await;
    assert!(matches!(ended, Outcome::Failed(e) if e.message.contains("401")));
    engine.idle().await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Idle);
    assert_eq!(row.last_outcome.as_deref(), Some("failed"));
    assert_eq!(
        ask(&engine, &session, "good key now").await.1,
        Outcome::Succeeded
    );
}

#[tokio::test]
async fn bc_s_011_a_reader_that_never_reads_holds_nothing_open() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let _live = engine.live(&session);
    let _followed = bed.client().follow(&session, None);
    let _results = engine.results();
    for _ in 0..20 {
        assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
    }
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn bc_s_015_one_prompt_is_one_request() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let _live = engine.live(&session);
    ask(&engine, &session, "hi").await;
    for _ in 0..3 {
        engine.wake(&session);
        engine.idle().await;
    }
    assert_eq!(bed.model.sent(), 1);
    assert_eq!(bed.count(&session, "step.started").await, 1);
    assert_eq!(bed.count(&session, "input.admitted").await, 1);
}

#[tokio::test]
async fn bc_s_016_ids_and_clocks_decide_no_order() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    // The largest id there is, as a clock far ahead would make it; then the smallest.
    for bits in [u128::MAX, 1] {
        let prompt = Prompt {
            id: Some(MessageId::from_bits(bits)),
            ..Prompt::steer("hi")
        };
        let admission = bed.admit(&session, prompt).await;
        assert_eq!(
            outcome(&engine, &session, &admission).await,
            Outcome::Succeeded
        );
        engine.idle().await;
    }
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 2);
}

#[tokio::test]
async fn bc_s_018_creating_twice_is_one_session() {
    let bed = Bed::new([]);
    let new = || NewSession {
        id: Some(tenure_core::id::SessionId::from_bits(5)),
        directory: bed.workspace().display().to_string(),
        model: Bed::model_ref(),
        title: None,
        limits: tenure_core::event::body::Limits::default(),
        permissions: tenure_tools::permission::Rules::allow_all(),
    };
    let first = bed.client().create(new()).await.unwrap();
    let again = bed.client().create(new()).await.unwrap();
    assert_eq!(first, again);
    let engine = bed.engine().await;
    ask(&engine, &first, "hi").await;
    engine.idle().await;
    assert_eq!(bed.count(&first, "session.created").await, 1);
    assert_eq!(bed.model.sent(), 1);
}

#[tokio::test]
async fn bc_s_019_a_repeated_steer_enters_once_also_as_a_queued_one() {
    let bed = Bed::new([]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let id = Some(MessageId::from_bits(9));
    let steer = Prompt {
        id: id.clone(),
        ..Prompt::steer("the words")
    };
    let first = bed.admit(&session, steer.clone()).await;
    assert_eq!(bed.admit(&session, steer).await.input, first.input);
    let queued = Prompt {
        id,
        ..Prompt::queue("the words")
    };
    assert!(bed.admit(&session, queued).await.duplicate);
    outcome(&engine, &session, &first).await;
    engine.idle().await;
    assert_eq!(bed.asked_last().matches("the words").count(), 1);
}

#[tokio::test]
async fn bc_s_021_an_interrupt_leaves_the_queue_pending_and_in_order() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("A")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let b = bed.admit(&session, Prompt::queue("B")).await;
    let c = bed.admit(&session, Prompt::queue("C")).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    let inbox = bed.store.inbox(&session).await.unwrap();
    let pending: Vec<_> = inbox
        .iter()
        .map(|p| (p.input.clone(), p.eligible))
        .collect();
    assert_eq!(
        pending,
        [(b.input.clone(), false), (c.input.clone(), false)]
    );
    assert_eq!(bed.model.sent(), 1);
    bed.client().unpark(&session).await.unwrap();
    let mut promoted = Vec::new();
    bed.until_event(&session, "both", |e| {
        if let EventBody::InputPromoted(p) = &e.body {
            promoted.push(p.input.clone());
        }
        promoted.ends_with(&[b.input.clone(), c.input.clone()])
    })
    .await;
    bed.until(&session, "execution.succeeded").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn bc_s_022_an_accepted_prompt_survives_every_process() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let session = bed.session().await;
    let victim = bed.victim().await;
    bed.admit(&session, Prompt::steer("first")).await;
    victim.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let p1 = bed.admit(&session, Prompt::steer("p one")).await;
    victim.kill().await;
    let inbox = bed.store.inbox(&session).await.unwrap();
    assert_eq!(inbox[0].input, p1.input);
    let engine = bed.engine().await;
    assert_eq!(outcome(&engine, &session, &p1).await, Outcome::Succeeded);
    assert!(bed.asked_last().contains("user: p one"));
}

/// A prompt posted at each event of a turn that closes is answered without anything else being sent.
#[tokio::test]
async fn bc_s_023_a_prompt_at_each_write_of_the_closing_path_is_answered() {
    let moments = [
        "fragment.started",
        "fragment.chunk",
        "fragment.ended",
        "attempt.ended",
        "step.ended",
        "execution.succeeded",
    ];
    for moment in moments {
        for delay in (0..12).step_by(every(6)) {
            let bed = Bed::new([]);
            let engine = bed.engine().await;
            let session = bed.session().await;
            bed.admit(&session, Prompt::steer("first")).await;
            engine.run(&session);
            bed.until(&session, moment).await;
            for _ in 0..delay * 3 {
                tokio::task::yield_now().await;
            }
            let late = bed.admit(&session, Prompt::steer("late")).await;
            let ended = outcome(&engine, &session, &late).await;
            assert_eq!(ended, Outcome::Succeeded, "{moment} + {delay}");
            engine.idle().await;
            bed.assert_at_rest(&session).await;
        }
    }
}

#[tokio::test]
async fn bc_s_025_a_steer_during_a_compaction_is_answered_right_after() {
    for ends_well in [true, false] {
        let gate = Gate::shut();
        let mut bed = Bed::new([Play::Answer(text("history"))]);
        bed.config.retry.max_retries = 0;
        let rest = if ends_well { text("sum") } else { half("sum") };
        bed.model.push(Play::Gated(Vec::new(), gate.clone(), rest));
        let engine = bed.engine().await;
        let session = bed.session().await;
        ask(&engine, &session, "hi").await;
        bed.client().compact(&session).await.unwrap();
        bed.until(&session, "compaction.started").await;
        let steer = bed.admit(&session, Prompt::steer("meanwhile")).await;
        gate.open();
        assert_eq!(outcome(&engine, &session, &steer).await, Outcome::Succeeded);
        engine.idle().await;
        bed.assert_at_rest(&session).await;
    }
}

#[tokio::test]
async fn bc_s_026_the_task_and_the_steer_outlive_a_compaction() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([
        Play::Answer(calls([call("a", "hold", "{}")])),
        Play::Answer(text("summary: task T is open")),
    ])
    .with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("user task T")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let steer = bed.admit(&session, Prompt::steer("steer S")).await;
    bed.client().compact(&session).await.unwrap();
    hold.release();
    assert_eq!(outcome(&engine, &session, &steer).await, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let asked = bed.asked_last();
    let (task, steer) = (
        asked.find("task T").unwrap(),
        asked.find("user: steer S").unwrap(),
    );
    assert!(task < steer, "{asked}");
}

#[tokio::test]
async fn bc_s_028_accepted_and_delivered_are_two_events() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let steer = bed.admit(&session, Prompt::steer("steer")).await;
    assert_eq!(bed.store.inbox(&session).await.unwrap().len(), 1);
    assert_eq!(bed.count(&session, "input.promoted").await, 1);
    hold.release();
    let delivered = bed
        .until_event(
            &session,
            "the delivery",
            |e| matches!(&e.body, EventBody::InputPromoted(p) if p.input == steer.input),
        )
        .await;
    outcome(&engine, &session, &steer).await;
    let log = bed.log(&session).await;
    let next = log.iter().find(|e| e.seq > delivered.seq).unwrap();
    assert_eq!(next.body.type_name(), "step.started", "{}", show(&log));
}

#[tokio::test]
async fn bc_s_033_compacted_is_said_only_when_it_is_durable() {
    use tenure_store::sqlite::Fault;
    let gate = Gate::shut();
    let bed = Bed::new([
        Play::Answer(text("history")),
        Play::Gated(Vec::new(), gate.clone(), text("the summary")),
    ]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    bed.client().compact(&session).await.unwrap();
    bed.until(&session, "compaction.started").await;
    bed.store.fail_next_commit(Fault::CommitLost);
    gate.open();
    // The commit is tried again, and said once, when it is there.
    bed.until(&session, "compaction.ended").await;
    assert_eq!(bed.count(&session, "compaction.failed").await, 0);
    assert_eq!(
        ask(&engine, &session, "and now").await.1,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "compaction.ended").await, 1);
    assert!(bed.asked_last().contains("the summary"));
}

#[tokio::test]
async fn bc_s_043_a_used_up_quota_is_not_retried_and_names_its_reset() {
    let quota = ProviderError {
        retry_after_ms: Some(5 * 3_600_000),
        ..ProviderError::new(ErrorClass::Quota, "the 5-hour quota is used up")
    };
    let bed = Bed::new([Play::Refuse(quota)]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, ended) = ask(&engine, &session, "hi").await;
    let Outcome::Failed(error) = ended else {
        panic!("{ended:?}")
    };
    assert!(
        error.message.contains("available again in 5 h"),
        "{}",
        error.message
    );
    assert_eq!(bed.model.sent(), 1);
}

#[tokio::test]
async fn bc_s_051_empty_input_is_an_object() {
    let bed = Bed::new([Play::Answer(calls([
        call("a", "echo", ""),
        call("b", "echo", "{}"),
        call("c", "echo", " "),
    ]))])
    .with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.succeeded").await, 3);
    assert_eq!(bed.asked_last().matches("echo {}").count(), 3);
}

#[tokio::test]
async fn bc_s_052_cut_arguments_are_never_run() {
    for why in [Finish::Length, Finish::ToolCalls] {
        let cut = r#"{"path":"a.txt","content":"line 1\nline 2"#;
        let answer = vec![Ok(vec![call("a", "echo", cut), finish(why)])];
        let bed = Bed::new([Play::Answer(answer)]).with_tool(Echo);
        let engine = bed.engine().await;
        let session = bed.session().await;
        assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
        engine.idle().await;
        bed.assert_at_rest(&session).await;
        assert_eq!(bed.count(&session, "tool.started").await, 0);
        let text = &bed.last_results()[0];
        assert!(text.contains(&format!("{} bytes", cut.len())), "{text}");
    }
}

/// The same bad call on every step, or one tool failing whatever it is given: bounded, and named.
async fn repeats(answers: Vec<Play>, most: usize) {
    let bed = Bed::new(answers).with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, ended) = ask(&engine, &session, "hi").await;
    let Outcome::Failed(error) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!(error.kind, "repeating_failure");
    assert!(error.message.contains("echo"), "{}", error.message);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert!(bed.model.sent() <= most, "{} requests", bed.model.sent());
    bed.model.clear();
    assert_eq!(
        ask(&engine, &session, "differently").await.1,
        Outcome::Succeeded
    );
}

#[tokio::test]
async fn bc_s_058_the_same_failing_call_stops_the_turn() {
    let bad = |i: usize| Play::Answer(calls([call(&format!("c{i}"), "echo", r#"{"fail":true}"#)]));
    repeats((0..20).map(bad).collect(), 4).await;
}

#[tokio::test]
async fn bc_s_059_a_tool_that_fails_on_and_on_stops_the_turn() {
    let bad = |i: usize| {
        let input = format!(r#"{{"fail":true,"path":"{i}"}}"#);
        Play::Answer(calls([call(&format!("c{i}"), "echo", &input)]))
    };
    repeats((0..20).map(bad).collect(), 9).await;
}
