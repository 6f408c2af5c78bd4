//! Every vendor's way to say that a prompt is too long leads onto one path: one compaction, and the step once more
//! under its number.

use crate::small_window::{OUTPUT, Small, protocols, reasons, small_model, summary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tenure_core::event::EventBody;
use tenure_core::event::body::CompactionReason;
use tenure_engine::*;
use tenure_provider::Protocol;
use tenure_scripted::{Fault, Script, Turn};

/// A refusal with a status and a body.
fn refusal(status: u16, body: Value) -> Turn {
    Turn::fault(Fault::Status {
        status,
        headers: BTreeMap::new(),
        body: Some(body),
        message: None,
        error_type: None,
    })
}

/// An error within a stream that began well.
fn event(error_type: &str, message: &str, failed: bool) -> Turn {
    Turn::fault(Fault::ErrorEvent {
        after_events: Some(0),
        after_parts: None,
        error_type: Some(error_type.to_owned()),
        message: Some(message.to_owned()),
        failed,
    })
}

/// The refusal as the server words it that plays the vendor.
fn usual() -> Turn {
    Turn::fault(Fault::Overflow {
        used: 208_310,
        limit: 200_000,
    })
}

/// The forms in which `protocol` was seen to say it.
fn forms(protocol: Protocol) -> Vec<(&'static str, Turn)> {
    let mut forms = vec![("as usual", usual())];
    let openai = |message: &str, code: Value| json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}});
    let window = "Your input exceeds the context window of this model. Please adjust your input and try again.";
    let claude = "prompt is too long: 208310 tokens > 200000 maximum";
    let google = |code: u16, message: &str| json!({"error": {"code": code, "message": message, "status": "INVALID_ARGUMENT"}});
    let counted =
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
    match protocol {
        Protocol::OpenaiChat => forms.extend([
            // Unusual words, and a code that says it.
            (
                "by code",
                refusal(
                    400,
                    openai(
                        "prompt has 49202 tokens, size is 49152",
                        "context_length_exceeded".into(),
                    ),
                ),
            ),
            // llama.cpp: by its type.
            (
                "by type",
                refusal(
                    400,
                    json!({"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it",
                        "type": "exceed_context_size_error", "n_prompt_tokens": 40_000, "n_ctx": 32_768}}),
                ),
            ),
            // By its words alone, and a status of another kind.
            (
                "by words, 413",
                refusal(
                    413,
                    openai("This model's maximum context length is 4096 tokens, however you requested 5000 tokens", Value::Null),
                ),
            ),
            (
                "an event",
                event("context_length_exceeded", "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.", false),
            ),
        ]),
        Protocol::OpenaiResponses => forms.extend([
            ("an error event", event("context_length_exceeded", window, false)),
            ("a failed response", event("context_length_exceeded", window, true)),
        ]),
        Protocol::AnthropicMessages => {
            let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": claude}});
            forms.extend([
                ("400", refusal(400, body.clone())),
                ("413", refusal(413, body.clone())),
                ("422", refusal(422, body)),
                ("an event in a 200", event("invalid_request_error", claude, false)),
            ]);
        }
        Protocol::Gemini => forms.extend([
            ("400", refusal(400, google(400, counted))),
            ("an event in a 200", event("INVALID_ARGUMENT", counted, false)),
        ]),
        Protocol::BedrockConverse => forms.extend([
            (
                "in AWS's words",
                refusal(400, json!({"message": "Input is too long for requested model."})),
            ),
            ("an exception in the stream", event("validationException", claude, false)),
        ]),
    }
    forms
}

/// A session that was asked one long question, which the script's first turn has answered.
async fn with_history(protocol: Protocol, script: Script) -> Small {
    let model = small_model(protocol);
    let small = Small::new(protocol, model, script, (None, Some(OUTPUT))).await;
    small.ask(&"an old question ".repeat(300)).await;
    small
}

/// One request, one compaction, and the step again under its number.
async fn takes_the_path(protocol: Protocol, turn: Turn, what: &str) {
    // The summary stands behind the refusal, so that it is the third request.
    let script = Script::new([
        Turn::text("an old answer"),
        turn,
        summary(),
        Turn::text("fits now"),
    ]);
    let small = with_history(protocol, script).await;
    assert_eq!(
        small.ask("the new question").await,
        Outcome::Succeeded,
        "{what}"
    );
    small.at_rest().await;
    let log = small.log().await;
    assert_eq!(reasons(&log), [CompactionReason::Overflow], "{what}");
    assert_eq!(
        small.server.requests().len(),
        4,
        "{what}: it was not sent again as it was"
    );
    assert_eq!(small.count("retry.scheduled").await, 0, "{what}");
    let failures: Vec<&str> = log
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::StepFailed(s) => Some(s.error.kind.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(failures, ["context_overflow"], "{what}");
    let steps: Vec<u32> = log
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::StepStarted(s) => Some(s.step),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [1, 1, 1], "{what}");
}

async fn all_forms_take_the_path(protocol: Protocol) {
    for (form, turn) in forms(protocol) {
        takes_the_path(protocol, turn, &format!("{protocol:?}, {form}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_037_an_overflow_by_its_code_is_compacted_and_not_retried() {
    all_forms_take_the_path(Protocol::OpenaiChat).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_039_an_overflow_by_any_status_or_as_an_event_takes_one_path() {
    let mut spoken = 0;
    for protocol in protocols().filter(|protocol| *protocol != Protocol::OpenaiChat) {
        all_forms_take_the_path(protocol).await;
        spoken += 1;
    }
    assert!(
        spoken >= 3,
        "Messages, Responses and Gemini are in every build"
    );
}

/// However it is said, a second one right behind the summary is not met with another summary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overflow_behind_the_summary_ends_the_step_in_every_protocol() {
    for protocol in protocols() {
        let script = Script::new([
            Turn::text("an old answer"),
            usual(),
            summary(),
            usual(),
            Turn::text("never asked for"),
        ]);
        let small = with_history(protocol, script).await;
        let Outcome::Failed(error) = small.ask("the new question").await else {
            panic!("{protocol:?}: it cannot succeed")
        };
        assert_eq!(error.kind, "context_overflow", "{protocol:?}: {error:?}");
        small.at_rest().await;
        let log = small.log().await;
        assert_eq!(reasons(&log), [CompactionReason::Overflow], "{protocol:?}");
        assert_eq!(small.server.requests().len(), 4, "{protocol:?}");
    }
}
