//! The drain loop: promotion, steps, tools, retries, terminals.

use crate::fakes::Echo;
use crate::support::*;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::event::EventBody;
use tenure_core::request::RequestMessage;
use tenure_engine::Outcome;

#[tokio::test]
async fn a_text_answer_is_one_step_and_leaves_no_claim() {
    let bed = Bed::new([Play::Answer(text("hello"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, outcome) = ask(&engine, &session, "hi").await;
    assert_eq!(outcome, Outcome::Succeeded);
    engine.idle().await;
    assert_eq!(
        bed.types(&session).await,
        [
            "session.created",
            "input.admitted",
            "execution.started",
            "instructions.set",
            "session.renamed",
            "input.promoted",
            "step.started",
            "attempt.started",
            "fragment.started",
            "fragment.chunk",
            "fragment.ended",
            "attempt.ended",
            "step.ended",
            "execution.succeeded"
        ]
    );
    assert_eq!(bed.store.claims().await.unwrap(), []);
}

#[tokio::test]
async fn parallel_calls_run_and_their_results_go_back_in_call_order() {
    let bed = Bed::new([Play::Answer(calls([
        call("a", "echo", r#"{"say":"one"}"#),
        call("b", "echo", r#"{"say":"two"}"#),
        call("c", "nope", "{}"),
        call("d", "echo", r#"{"panic":true}"#),
        call("e", "echo", "{broken"),
    ]))])
    .with_tool(Echo);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, outcome) = ask(&engine, &session, "hi").await;
    assert_eq!(outcome, Outcome::Succeeded);
    let request = bed.model.request(1);
    let Some(RequestMessage::ToolResults { results }) = request.messages.last() else {
        panic!("results come last: {:?}", request.messages)
    };
    let got: Vec<(&str, bool)> = results
        .iter()
        .map(|r| (r.id.as_str(), r.is_error))
        .collect();
    assert_eq!(
        got,
        [
            ("a", false),
            ("b", false),
            ("c", true),
            ("d", true),
            ("e", true)
        ]
    );
    assert_eq!(
        (results[0].text.as_str(), results[1].text.as_str()),
        ("one", "two")
    );
    assert!(
        results[2].text.contains("no tool `nope`"),
        "{}",
        results[2].text
    );
    assert!(results[3].text.contains("panicked"), "{}", results[3].text);
}

#[tokio::test]
async fn a_cut_stream_is_tried_again_and_its_text_superseded() {
    let cut = vec![text("half").remove(0)];
    let bed = Bed::new([Play::Answer(cut), Play::Answer(text("whole"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, outcome) = ask(&engine, &session, "hi").await;
    assert_eq!(outcome, Outcome::Succeeded);
    ask(&engine, &session, "again").await;
    let asked = format!("{:?}", bed.model.request(2).messages);
    assert!(
        asked.contains("whole") && !asked.contains("half"),
        "{asked}"
    );
    let types = bed.types(&session).await;
    assert_eq!(types.iter().filter(|t| *t == "attempt.started").count(), 3);
    assert_eq!(types.iter().filter(|t| *t == "retry.scheduled").count(), 1);
    assert_eq!(types.iter().filter(|t| *t == "step.started").count(), 2);
}

#[tokio::test]
async fn a_refused_key_fails_the_execution_and_the_next_prompt_runs() {
    let refused = ProviderError::new(ErrorClass::Auth, "bad key");
    let bed = Bed::new([Play::Refuse(refused), Play::Answer(text("ok"))]);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let (_, outcome) = ask(&engine, &session, "hi").await;
    assert!(matches!(outcome, Outcome::Failed(error) if error.kind == "auth"));
    engine.idle().await;
    assert_eq!(bed.store.claims().await.unwrap(), []);
    let (_, outcome) = ask(&engine, &session, "again").await;
    assert_eq!(outcome, Outcome::Succeeded);
    let last = bed.log(&session).await.pop().unwrap();
    assert!(matches!(last.body, EventBody::ExecutionSucceeded(_)));
}

#[tokio::test]
async fn bc_s_126_a_key_a_tool_prints_is_neither_stored_nor_sent() {
    let key = "sk-test-0123456789abcdef";
    let mut bed = Bed::new([Play::Answer(calls([call(
        "a",
        "echo",
        &format!(r#"{{"say":"the key is {key}"}}"#),
    )]))])
    .with_tool(Echo);
    bed.config.secrets = vec![tenure_provider::Secret::new(key)];
    let engine = bed.engine().await;
    let session = bed.session().await;
    ask(&engine, &session, "hi").await;
    let request = bed.model.request(1);
    let Some(RequestMessage::ToolResults { results }) = request.messages.last() else {
        panic!("results come last: {:?}", request.messages)
    };
    assert!(results[0].text.starts_with("the key is ") && !results[0].text.contains(key));
    let results: Vec<String> = bed
        .log(&session)
        .await
        .iter()
        .filter(|event| event.body.type_name() == "tool.succeeded")
        .map(|event| event.body.encode())
        .collect();
    assert!(!results.is_empty() && results.iter().all(|body| !body.contains(key)));
}
