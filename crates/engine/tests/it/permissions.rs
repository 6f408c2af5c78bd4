//! Permission: rules, questions as events, the first answer, "always", nobody there.

use crate::fakes::*;
use crate::support::*;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_engine::*;
use tenure_tools::permission::{Mode, PermissionConfig, Rules};

/// A session whose model asks for one write, and the question it led to.
async fn asked(bed: &Bed, engine: &Engine) -> (SessionId, Admission, MessageId, CallId) {
    let session = bed.session_with(Rules::default(), 0).await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    let EventBody::PermissionAsked(question) = bed.until(&session, "permission.asked").await.body
    else {
        panic!("asked for it")
    };
    assert!(question.question.contains("a.txt"), "{}", question.question);
    (session, admission, question.message, question.call)
}

/// The default rules, and this tool allowed.
fn allowing(tool: &str) -> Rules {
    let mut config = PermissionConfig::default();
    config.set(tool, "*", Mode::Allow).unwrap();
    Rules::from_config(&config)
}

fn bed(answers: usize) -> Bed {
    let mut bed = Bed::new((0..answers).map(|i| {
        Play::Answer(calls([call(
            &format!("c{i}"),
            "asks",
            r#"{"path":"a.txt"}"#,
        )]))
    }))
    .with_tool(Asks);
    bed.config.approvals = Approvals::Wait;
    bed
}

#[tokio::test]
async fn once_lets_this_call_run_and_the_first_answer_wins() {
    let bed = bed(1);
    let engine = bed.engine().await;
    let (session, admission, message, call) = asked(&bed, &engine).await;
    let client = bed.client();
    let once = PermissionAnswer::Once;
    client
        .answer(&session, &message, &call, once, "me")
        .await
        .unwrap();
    let no = PermissionAnswer::No {
        note: None,
        nobody: false,
    };
    let late = client.answer(&session, &message, &call, no, "you").await;
    assert!(
        matches!(late, Err(EngineError::AlreadyAnswered { .. })),
        "{late:?}"
    );
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.last_results(), ["done as allowed"]);
    assert_eq!(bed.count(&session, "permission.answered").await, 1);
    assert_eq!(bed.count(&session, "permissions.changed").await, 0);
}

#[tokio::test]
async fn an_answer_to_a_call_that_is_settled_is_refused_and_not_stored() {
    let bed = bed(1);
    let engine = bed.engine().await;
    let (session, admission, message, call) = asked(&bed, &engine).await;
    let client = bed.client();
    client.interrupt(&session, None, "me").await.unwrap();
    outcome(&engine, &session, &admission).await;
    engine.idle().await;
    let never = CallId::new("never");
    for (call, answer) in [
        (&call, PermissionAnswer::Once),
        (
            &call,
            PermissionAnswer::No {
                note: None,
                nobody: false,
            },
        ),
        (&never, PermissionAnswer::Once),
    ] {
        let late = client.answer(&session, &message, call, answer, "you").await;
        let named = EngineError::NotAsked {
            session: session.clone(),
            call: call.clone(),
        };
        assert_eq!(late, Err(named));
    }
    assert_eq!(bed.count(&session, "permission.answered").await, 0);
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn no_is_told_to_the_model_with_the_words_of_the_user() {
    let bed = bed(1);
    let engine = bed.engine().await;
    let (session, admission, message, call) = asked(&bed, &engine).await;
    let no = PermissionAnswer::No {
        note: Some("use b.txt".to_owned()),
        nobody: false,
    };
    bed.client()
        .answer(&session, &message, &call, no, "me")
        .await
        .unwrap();
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert!(bed.last_results()[0].contains("use b.txt"));
    assert_eq!(
        settlements(&bed.log(&session).await)[0].1,
        Some(ToolFailure::Denied)
    );
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn a_no_that_nobody_said_names_the_rule_that_would_allow_it() {
    let bed = bed(1);
    let engine = bed.engine().await;
    let (session, admission, message, call) = asked(&bed, &engine).await;
    let no = PermissionAnswer::No {
        note: None,
        nobody: true,
    };
    bed.client()
        .answer(&session, &message, &call, no, "a pipe")
        .await
        .unwrap();
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let told = bed.last_results().remove(0);
    assert!(
        told.contains("nobody can be asked here") && told.contains("[permissions.asks]"),
        "{told}"
    );
    assert_eq!(
        settlements(&bed.log(&session).await)[0].1,
        Some(ToolFailure::Denied)
    );
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn always_becomes_part_of_the_sessions_rules() {
    let bed = bed(2);
    let engine = bed.engine().await;
    let (session, admission, message, call) = asked(&bed, &engine).await;
    let EventBody::PermissionAsked(question) = bed.until(&session, "permission.asked").await.body
    else {
        panic!("asked for it")
    };
    let rule = question.proposals[0].clone();
    bed.client()
        .answer(
            &session,
            &message,
            &call,
            PermissionAnswer::Always { rule },
            "me",
        )
        .await
        .unwrap();
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 3);
    assert_eq!(bed.count(&session, "permissions.changed").await, 1);
    assert_eq!(
        bed.count(&session, "permission.asked").await,
        1,
        "the second call is not asked for"
    );
    assert_eq!(bed.count(&session, "tool.succeeded").await, 2);
    // Whoever takes over runs under the same rules.
    bed.model.push(Play::Answer(calls([crate::support::call(
        "d", "asks", "{}",
    )])));
    engine.shutdown().await.unwrap();
    let other = bed.engine().await;
    ask(&other, &session, "again").await;
    assert_eq!(bed.count(&session, "permission.asked").await, 1);
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_call_is_denied_and_the_rule_is_named() {
    let mut bed = bed(1);
    bed.config.approvals = Approvals::Headless;
    let engine = bed.engine().await;
    let session = bed.session_with(Rules::default(), 0).await;
    assert_eq!(ask(&engine, &session, "hi").await.1, Outcome::Succeeded);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let text = &bed.last_results()[0];
    assert!(text.contains("nobody can be asked"), "{text}");
    assert_eq!(bed.count(&session, "permission.asked").await, 0);
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn an_answer_may_come_from_another_handle() {
    let bed = bed(1);
    let engine = bed.engine().await;
    let (session, admission, message, call) = asked(&bed, &engine).await;
    let other = Client::new(bed.reopen(), bed.config.env.clone());
    other
        .answer(&session, &message, &call, PermissionAnswer::Once, "me")
        .await
        .unwrap();
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn a_question_outlives_its_process_as_not_executed() {
    let bed = bed(1);
    let victim = bed.victim().await;
    let (session, admission, message, call) = asked(&bed, &victim.engine).await;
    victim.kill().await;
    let engine = bed.engine().await;
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    // Too late: nothing comes of it.
    let client = bed.client();
    let _ = client
        .answer(&session, &message, &call, PermissionAnswer::Once, "me")
        .await;
    engine.wake(&session);
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(
        settlements(&bed.log(&session).await)[0].1,
        Some(ToolFailure::NotExecuted)
    );
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn calls_that_wait_for_an_answer_hold_up_no_other_call() {
    let mut questions: Vec<_> = (0..3)
        .map(|i| call(&format!("q{i}"), "asks", r#"{"path":"a.txt"}"#))
        .collect();
    questions.push(call("free", "echo", r#"{"say":"meanwhile"}"#));
    let mut bed = Bed::new([Play::Answer(calls(questions))])
        .with_tool(Asks)
        .with_tool(Echo);
    bed.config.approvals = Approvals::Wait;
    bed.config.tool_concurrency = 1;
    let engine = bed.engine().await;
    let session = bed.session_with(allowing("echo"), 0).await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    bed.until_nth(&session, "permission.asked", 3).await;
    bed.until(&session, "tool.succeeded").await;
    // All at once: they still run one at a time.
    for event in bed.log(&session).await {
        if let EventBody::PermissionAsked(asked) = event.body {
            let once = PermissionAnswer::Once;
            let client = bed.client();
            let answered = client.answer(&session, &asked.message, &asked.call, once, "me");
            answered.await.unwrap();
        }
    }
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    let mut running = 0;
    for event in bed.log(&session).await {
        match event.body {
            EventBody::ToolStarted(_) => running += 1,
            EventBody::ToolSucceeded(_) => running -= 1,
            _ => {}
        }
        assert!((0..=1).contains(&running), "one slot");
    }
}

#[tokio::test]
async fn a_call_allowed_while_it_waits_for_its_slot_is_stopped_by_an_interrupt() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let mut bed = Bed::new([Play::Answer(calls([
        call("q", "asks", r#"{"path":"a.txt"}"#),
        call("long", "hold", "{}"),
    ]))])
    .with_tool(Asks)
    .with_tool(tool);
    bed.config.approvals = Approvals::Wait;
    bed.config.tool_concurrency = 1;
    let engine = bed.engine().await;
    let session = bed.session_with(allowing("hold"), 0).await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    let EventBody::PermissionAsked(asked) = bed.until(&session, "permission.asked").await.body
    else {
        panic!("asked for it")
    };
    eventually("the other tool", async || hold.begun() == 1).await;
    bed.client()
        .answer(
            &session,
            &asked.message,
            &asked.call,
            PermissionAnswer::Once,
            "me",
        )
        .await
        .unwrap();
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.started").await, 1);
    let settled = settlements(&bed.log(&session).await);
    let one = settled.iter().find(|s| s.0 == "q").unwrap();
    assert_eq!(one.1, Some(ToolFailure::NotExecuted), "{}", one.2);
}
