//! Requests to the different makers' models behind Converse, held against the validator of its rules.

use super::BEDROCK;
use crate::requests::{self, *};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_core::model::ModelLimits;
use tenure_core::request::*;
use tenure_provider::{Dialect, encode};
use tenure_scripted::validate;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const OLD_CLAUDE: &str = "anthropic.claude-3-haiku-20240307-v1:0";
const NOVA: &str = "us.amazon.nova-2-lite-v1:0";
const LLAMA: &str = "us.meta.llama4-maverick-17b-instruct-v1:0";
const TITAN: &str = "amazon.titan-text-express-v1";
const PROFILE: &str = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc";
const MODELS: [&str; 6] = [CLAUDE, OLD_CLAUDE, NOVA, LLAMA, TITAN, PROFILE];

fn request(model: &str, messages: Vec<RequestMessage>) -> Request {
    let schema = json!({"properties": {"command": {"type": "string"}}});
    plain(
        model,
        &["Be brief.", "Two."],
        messages,
        vec![tool("bash", "", schema)],
    )
}

fn call(id: &str) -> AssistantBlock {
    call_of(id, "bash", "{\"command\":\"true\"}", None)
}

fn result(id: &str, text: &str) -> ToolResult {
    result_of(id, "bash", text)
}

fn long() -> Vec<RequestMessage> {
    requests::long("c2", call, result)
}

/// The body, which the validator accepts.
fn body(request: &Request) -> Value {
    let limits = ModelLimits {
        context: None,
        output: Some(20_000),
    };
    let encoded = encode(BEDROCK, Dialect::Common, &limits, request).unwrap();
    assert_eq!(encoded.model, request.model.model);
    let body = serde_json::from_slice(&encoded.body).unwrap();
    if let Err(broken) = validate::bedrock_converse_model(&request.model.model, &body) {
        panic!("{}: {broken:#?}\n{body:#}", request.model.model);
    }
    body
}

#[test]
fn a_request_to_claude_has_the_shape_of_converse() {
    let body = body(&request(CLAUDE, long()));
    assert_eq!(body["inferenceConfig"], json!({"maxTokens": 20_000}));
    assert_eq!(body.get("model"), None, "the path names it");
    let point = json!({"cachePoint": {"type": "default"}});
    assert_eq!(
        body["system"],
        json!([{"text": "Be brief."}, {"text": "Two."}, point])
    );
    let spec = &body["toolConfig"]["tools"][0]["toolSpec"];
    assert_eq!(spec["description"], "bash", "a description is never empty");
    assert_eq!(spec["inputSchema"]["json"]["type"], "object");
    assert_eq!(body["toolConfig"]["tools"][1], point);
    assert_eq!(
        body["toolConfig"].get("toolChoice"),
        None,
        "auto is the default"
    );
    assert_eq!(
        roles(&body),
        ["user", "assistant", "user", "assistant", "user"]
    );
    let messages = &body["messages"];
    assert_eq!(messages[1]["content"][0], json!({"text": "calling"}));
    let called = &messages[1]["content"][1]["toolUse"];
    assert_eq!(called["input"], json!({"command": "true"}));
    let answers = &messages[2]["content"];
    assert_eq!(answers[0]["toolResult"]["toolUseId"], called["toolUseId"]);
    assert_eq!(answers[0]["toolResult"].get("status"), None);
    assert_eq!(
        answers[1],
        json!({"toolResult": {"toolUseId": "c2", "content": [{"text": "bad"}], "status": "error"}})
    );
    assert_eq!(
        answers[2],
        json!({"text": "<tenure-note>\nInstructions changed.\n</tenure-note>"})
    );
    assert_eq!((&answers[3]["text"], &answers[4]), (&json!("two"), &point));
    assert_eq!(messages[4]["content"], json!([{"text": "three"}, point]));
}

#[test]
fn other_makers_models_get_turns_of_words_and_of_calls_apart() {
    let body = body(&request(LLAMA, long()));
    assert_eq!(
        roles(&body),
        [
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user"
        ]
    );
    assert_eq!(body["messages"][1]["content"], json!([{"text": "calling"}]));
    assert!(body["messages"][3]["content"][0].get("toolUse").is_some());
    let sent = body.to_string();
    assert!(
        !sent.contains("cachePoint") && !sent.contains("status"),
        "{sent}"
    );
    assert!(sent.contains("\"two\""));
}

#[test]
fn a_model_without_a_system_prompt_is_told_it_in_the_first_message() {
    let body = body(&request(TITAN, vec![user("hi")]));
    assert_eq!(body.get("system"), None);
    let first = &body["messages"][0]["content"];
    assert_eq!(first[0]["text"], "<tenure-note>\nBe brief.\n</tenure-note>");
    assert_eq!(first[2]["text"], "hi");
}

#[test]
fn nova_caches_all_but_its_tools() {
    let body = body(&request(NOVA, long()));
    assert_eq!(body["toolConfig"]["tools"].as_array().unwrap().len(), 1);
    assert_eq!(body.to_string().matches("cachePoint").count(), 3);
}

#[test]
fn forbidden_calls_are_said_in_words_and_the_definitions_stay() {
    for model in MODELS {
        let may = request(model, long());
        let may_not = Request {
            tool_choice: ToolChoice::None,
            ..may.clone()
        };
        let (with, without) = (body(&may), body(&may_not));
        assert_eq!(with["toolConfig"], without["toolConfig"], "{model}");
        let last = without["messages"].as_array().unwrap().last().unwrap();
        let words = last["content"].as_array().unwrap().last().unwrap();
        assert!(
            words["text"]
                .as_str()
                .unwrap()
                .contains("Do not call any tool"),
            "{words}"
        );
        let summary = Request {
            tools: Vec::new(),
            ..may
        };
        let tools = &body(&summary)["toolConfig"]["tools"];
        assert_eq!(
            tools[0]["toolSpec"]["name"], "bash",
            "a history with calls needs definitions"
        );
    }
}

#[test]
fn forced_calls_go_out_where_they_are_taken() {
    let choice = |model: &str, tool_choice, effort| {
        let request = Request {
            tool_choice,
            effort,
            ..request(model, vec![user("a")])
        };
        body(&request)["toolConfig"].get("toolChoice").cloned()
    };
    let bash = || ToolChoice::Tool("bash".into());
    assert_eq!(
        choice(CLAUDE, ToolChoice::Required, None),
        Some(json!({"any": {}}))
    );
    assert_eq!(
        choice(NOVA, bash(), None),
        Some(json!({"tool": {"name": "bash"}}))
    );
    assert_eq!(choice(NOVA, ToolChoice::Tool("other".into()), None), None);
    assert_eq!(choice(LLAMA, ToolChoice::Required, None), None);
    assert_eq!(
        choice(CLAUDE, bash(), Some(Effort::High)),
        None,
        "not while it thinks"
    );
}

#[test]
fn thinking_has_a_budget_below_the_limit_and_waits_for_a_fresh_turn() {
    let ask = |messages| {
        let request = Request {
            effort: Some(Effort::High),
            ..request(CLAUDE, messages)
        };
        body(&request)
    };
    let fields = &ask(vec![user("a")])["additionalModelRequestFields"];
    assert_eq!(
        fields["thinking"],
        json!({"type": "enabled", "budget_tokens": 10_000})
    );
    let looping = vec![
        user("a"),
        assistant(vec![text("so"), call("c1")]),
        results(vec![result("c1", "x")]),
    ];
    assert_eq!(ask(looping).get("additionalModelRequestFields"), None);
}

#[test]
fn bc_s_061_only_sealed_reasoning_goes_back_and_byte_for_byte() {
    let signed = r#"{"reasoningContent": {"reasoningText":{"text":"why","signature":"S+/=="}}}"#;
    let hidden = r#"{"reasoningContent":{"redactedContent":"aGlkZGVu"}}"#;
    let blocks = vec![
        thought("why", signed),
        thought("", hidden),
        thought(
            "why",
            r#"{"reasoningContent":{"reasoningText":{"text":"other","signature":"S"}}}"#,
        ),
        thought(
            "why",
            r#"{"reasoningContent":{"reasoningText":{"text":"why","signature":""}}}"#,
        ),
        thought(
            "why",
            r#"{"type":"thinking","thinking":"why","signature":"S"}"#,
        ),
        thought("why", "damaged"),
        text("so"),
    ];
    let request = request(CLAUDE, vec![user("a"), assistant(blocks), user("b")]);
    let encoded = encode(
        BEDROCK,
        Dialect::Common,
        &ModelLimits {
            context: None,
            output: None,
        },
        &request,
    )
    .unwrap();
    let sent = String::from_utf8(encoded.body.to_vec()).unwrap();
    assert!(
        sent.contains(&format!(
            "\"content\":[{signed},{hidden},{{\"text\":\"so\"}}]"
        )),
        "{sent}"
    );
    body(&request);
}

#[test]
fn a_reply_of_reasoning_alone_is_left_out() {
    let hidden = r#"{"reasoningContent":{"redactedContent":"aGlkZGVu"}}"#;
    let body = body(&request(
        CLAUDE,
        vec![user("a"), assistant(vec![thought("", hidden)]), user("b")],
    ));
    assert_eq!(roles(&body), ["user"]);
    assert_eq!(body["messages"][0]["content"].as_array().unwrap().len(), 3);
}

#[test]
fn hosted_calls_go_back_as_they_were_or_in_words() {
    let hosted = AssistantBlock::Hosted {
        id: "h1".into(),
        name: "nova_code_interpreter".into(),
        input: "{}".into(),
        call: Some(r#"{"toolUse":{"toolUseId":"h1","name":"nova_code_interpreter","type":"server_tool_use","input":{}}}"#.into()),
        result: Some(r#"{"toolResult":{"toolUseId":"h1","type":"nova_code_interpreter_result","status":"success","content":[{"json":{"stdOut":"42"}}]}}"#.into()),
        text: "42".into(),
    };
    let history = vec![user("a"), assistant(vec![hosted, text("so")]), user("b")];
    let with = Request {
        hosted_tools: vec![HostedTool::CodeExecution, HostedTool::WebSearch],
        ..request(NOVA, history.clone())
    };
    let sent = body(&with);
    assert_eq!(
        sent["toolConfig"]["tools"][1],
        json!({"systemTool": {"name": "nova_code_interpreter"}})
    );
    assert_eq!(
        sent["toolConfig"]["tools"][2],
        json!({"systemTool": {"name": "nova_grounding"}})
    );
    assert!(sent["messages"][1]["content"][0]["toolUse"]["type"] == "server_tool_use");
    let sent = body(&request(NOVA, history));
    let words = sent["messages"][1]["content"][0]["text"].as_str().unwrap();
    assert!(words.contains("42"), "{words}");
}

#[test]
fn the_form_of_an_answer_is_a_field_or_words() {
    let schema = OutputSchema {
        name: "answer".into(),
        schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    };
    let ask = |model: &str| {
        let request = Request {
            output_schema: Some(schema.clone()),
            ..request(model, vec![user("a")])
        };
        body(&request)
    };
    let format = &ask(CLAUDE)["outputConfig"]["textFormat"];
    assert_eq!(format["type"], "json_schema");
    let held = format["structure"]["jsonSchema"]["schema"]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(held).unwrap()["additionalProperties"],
        false
    );
    let body = ask(LLAMA);
    assert_eq!(body.get("outputConfig"), None);
    assert!(body.to_string().contains("JSON Schema"));
}

fn media(name: &str, media_type: &str, start: &[u8]) -> UserPart {
    use base64::Engine;
    let data = base64::engine::general_purpose::STANDARD.encode(start);
    UserPart::Media(Media {
        name: name.into(),
        media_type: media_type.into(),
        data: data.into(),
    })
}

#[test]
fn pictures_and_documents_go_to_models_that_see_them() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x03";
    let parts = vec![
        "look".into(),
        media("a_b.png", "image/png", png),
        media(
            "My  report_v1.2 (final).pdf",
            "application/pdf",
            b"%PDF-1.7",
        ),
        media("My report-v1.2 (final).pdf", "application/pdf", b"%PDF-1.7"),
    ];
    let ask = |model: &str| {
        body(&request(
            model,
            vec![RequestMessage::User {
                parts: parts.clone(),
            }],
        ))
    };
    let sent = ask(CLAUDE);
    let content = sent["messages"][0]["content"].as_array().unwrap();
    let names: Vec<&str> = content
        .iter()
        .filter_map(|b| b.pointer("/document/name")?.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "My report-v1-2 (final)-pdf",
            "My report-v1-2 (final)-pdf (2)"
        ]
    );
    let image = content.iter().find_map(|b| b.get("image")).unwrap();
    assert_eq!(image["format"], "png");
    let blind = ask(PROFILE).to_string();
    assert!(
        blind.contains("a_b.png") && !blind.contains("\"image\""),
        "{blind}"
    );
    // No more than five documents.
    let many = (0..8).map(|n| media(&format!("d{n}"), "application/pdf", b"%PDF-1.7"));
    let sent = body(&request(
        CLAUDE,
        vec![RequestMessage::User {
            parts: many.collect(),
        }],
    ))
    .to_string();
    assert_eq!(sent.matches("\"document\":").count(), 5);
    assert!(!sent.contains("\"name\":\"d2\"") && sent.contains("\"name\":\"d7\""));
}

#[test]
fn a_longer_request_shares_its_prefix() {
    for model in MODELS {
        let strip = |request: &Request| {
            let body = encode(
                BEDROCK,
                Dialect::Common,
                &ModelLimits {
                    context: None,
                    output: None,
                },
                request,
            )
            .unwrap()
            .body;
            let text = String::from_utf8(body.to_vec()).unwrap();
            text.replace(",{\"cachePoint\":{\"type\":\"default\"}}", "")
        };
        let short = strip(&request(model, long()));
        let mut messages = long();
        messages.extend([
            assistant(vec![call("c3")]),
            results(vec![result("c3", "x")]),
            user("four"),
        ]);
        let longer = strip(&request(model, messages));
        let head = short.trim_end_matches(['}', ']']);
        assert!(longer.starts_with(head), "{model}\n{short}\n{longer}");
    }
}

fn any_block() -> impl Strategy<Value = AssistantBlock> {
    let sealed = r#"{"reasoningContent":{"reasoningText":{"text":"t","signature":"S"}}}"#;
    prop_oneof![
        "[a-z \n]{0,6}".prop_map(|t| text(&t)),
        Just(thought("t", sealed)),
        Just(thought(
            "t",
            r#"{"type":"thinking","thinking":"t","signature":"S"}"#
        )),
        Just(AssistantBlock::Opaque {
            native: "{\"image\":{}}".into()
        }),
        "[a-z]{0,3}".prop_map(|t| AssistantBlock::Hosted {
            id: "h".into(),
            name: "web_search".into(),
            input: "{}".into(),
            call: None,
            result: None,
            text: t,
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever the history looks like, as long as each call has its result.
    #[test]
    fn any_history_is_sendable(
        turns in proptest::collection::vec(
            (proptest::collection::vec(any_block(), 0..4), 0usize..3, "[a-z ]{0,4}", any::<bool>()), 0..6),
        which in 0usize..MODELS.len(),
        effort in proptest::option::of(prop_oneof![Just(Effort::Off), Just(Effort::Low), Just(Effort::High)]),
        choice in prop_oneof![Just(ToolChoice::Auto), Just(ToolChoice::None), Just(ToolChoice::Required)],
        tools in any::<bool>(),
    ) {
        let mut messages = vec![user("begin")];
        let mut n = 0;
        for (mut blocks, calls, said, note) in turns {
            let ids: Vec<String> = (0..calls).map(|_| { n += 1; format!("call:{n}|{}", "x".repeat(n * 20)) }).collect();
            blocks.extend(ids.iter().map(|id| call(id)));
            messages.push(assistant(blocks));
            if note {
                messages.push(RequestMessage::System { text: "note".into() });
            }
            if !ids.is_empty() {
                let answer = |id: &String| ToolResult { is_error: note, ..result(id, " ") };
                messages.push(results(ids.iter().map(answer).collect()));
            }
            messages.push(user(&said));
        }
        let mut request = Request { effort, tool_choice: choice, ..request(MODELS[which], messages) };
        if !tools {
            request.tools.clear();
        }
        body(&request);
    }
}
