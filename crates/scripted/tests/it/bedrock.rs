//! Bedrock: every rule with a breaking example, recorded requests, frames over real sockets, errors, signatures.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};
use tenure_scripted::validate;
use tenure_scripted::{CutHow, Fault, Part, Script, ScriptedModel, Seal, Turn};

use crate::client::{Answer, End, post, serve};
use crate::good::PNG;

const CLAUDE: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const NOVA: &str = "us.amazon.nova-2-lite-v1:0";
const LLAMA: &str = "us.meta.llama4-maverick-17b-instruct-v1:0";
const PATH: &str = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream";

/// `%PDF-1.7` in base64.
const PDF: &str = "JVBERi0xLjc=";

fn good() -> Value {
    json!({
        "additionalModelRequestFields": {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        "inferenceConfig": {"maxTokens": 4000, "temperature": 1.0, "stopSequences": ["END"]},
        "outputConfig": {"textFormat": {"type": "json_schema",
            "structure": {"jsonSchema": {"name": "a", "schema": "{\"type\":\"object\"}"}}}},
        "toolConfig": {"tools": [
            {"toolSpec": {"name": "read", "description": "Reads.",
                "inputSchema": {"json": {"type": "object", "properties": {}}}}},
            {"cachePoint": {"type": "default"}}
        ]},
        "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
        "messages": [
            {"role": "user", "content": [
                {"text": "look"},
                {"document": {"format": "pdf", "name": "a report (1)", "source": {"bytes": PDF}}},
                {"image": {"format": "png", "source": {"bytes": PNG}}},
                {"cachePoint": {"type": "default", "ttl": "1h"}}
            ]},
            {"role": "assistant", "content": [
                {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "S"}}},
                {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
                {"text": "I look."},
                {"toolUse": {"toolUseId": "t1", "name": "read", "input": {"path": "a"}}},
                {"toolUse": {"toolUseId": "t2", "name": "read", "input": {}}}
            ]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}]}},
                {"toolResult": {"toolUseId": "t2", "content": [{"json": {"a": 1}}], "status": "error"}},
                {"cachePoint": {"type": "default"}}
            ]}
        ]
    })
}

/// What a model of another maker takes.
fn plain() -> Value {
    json!({
        "toolConfig": {"tools": [{"toolSpec": {"name": "read",
            "inputSchema": {"json": {"type": "object", "properties": {}}}}}]},
        "messages": [
            {"role": "user", "content": [{"text": "look"}]},
            {"role": "assistant", "content": [
                {"toolUse": {"toolUseId": "t1", "name": "read", "input": {}}}
            ]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}]}}]}
        ]
    })
}

/// Amazon's own tool, called and answered within one message.
fn hosted() -> Value {
    let mut body = plain();
    body["toolConfig"]["tools"] = json!([{"systemTool": {"name": "nova_code_interpreter"}}]);
    body["messages"][1]["content"] = json!([
        {"toolUse": {"toolUseId": "h1", "name": "nova_code_interpreter", "type": "server_tool_use", "input": {}}},
        {"toolResult": {"toolUseId": "h1", "type": "nova_code_interpreter_result", "status": "success",
            "content": [{"json": {"stdOut": "42"}}]}},
        {"text": "42"}
    ]);
    body["messages"][2]["content"] = json!([{"text": "thanks"}]);
    body
}

/// The content of a message, to be changed.
fn content(body: &mut Value, message: usize) -> &mut Vec<Value> {
    body["messages"][message]["content"].as_array_mut().unwrap()
}

type Mutation = (&'static str, fn(&mut Value));

const CLAUDES: &[Mutation] = &[
    ("bedrock.body_object", |b| *b = json!([1])),
    ("bedrock.unknown_field", |b| b["model"] = json!("m")),
    ("bedrock.messages", |b| b["messages"] = json!([])),
    ("bedrock.role", |b| {
        b["messages"][0]["role"] = json!("system")
    }),
    ("bedrock.first_user", |b| {
        b["messages"].as_array_mut().unwrap().remove(0);
    }),
    ("bedrock.last_user", |b| {
        b["messages"].as_array_mut().unwrap().pop();
    }),
    ("bedrock.alternate", |b| {
        let again = json!({"role": "user", "content": [{"text": "again"}]});
        b["messages"].as_array_mut().unwrap().push(again);
    }),
    ("bedrock.content", |b| {
        b["messages"][0]["content"] = json!([])
    }),
    ("bedrock.content", |b| {
        b["messages"][0]["content"] = json!("text")
    }),
    ("bedrock.block_union", |b| {
        content(b, 0)[0] = json!({"type": "text", "text": "x"});
    }),
    ("bedrock.block_union", |b| {
        content(b, 0)[0] = json!({"audience": {}})
    }),
    ("bedrock.block_role", |b| {
        let picture = content(b, 0)[2].clone();
        content(b, 1).insert(0, picture);
    }),
    ("bedrock.text_empty", |b| {
        content(b, 0)[0] = json!({"text": " \n"})
    }),
    ("bedrock.image", |b| {
        content(b, 0)[2]["image"]["format"] = json!("tiff")
    }),
    ("bedrock.image", |b| {
        content(b, 0)[2]["image"]["source"]["bytes"] = json!("not base64!");
    }),
    ("bedrock.image_count", |b| {
        let picture = content(b, 0)[2].clone();
        content(b, 0).splice(2..2, vec![picture; 20]);
    }),
    ("bedrock.document", |b| {
        content(b, 0)[1]["document"]["format"] = json!("exe")
    }),
    ("bedrock.document_name", |b| {
        content(b, 0)[1]["document"]["name"] = json!("report_v1.pdf");
    }),
    ("bedrock.document_name", |b| {
        content(b, 0)[1]["document"]["name"] = json!("two  spaces");
    }),
    ("bedrock.document_name_unique", |b| {
        let document = content(b, 0)[1].clone();
        content(b, 0).insert(1, document);
    }),
    ("bedrock.document_text", |b| {
        content(b, 0).remove(0);
    }),
    ("bedrock.document_count", |b| {
        for n in 0..5 {
            let mut document = content(b, 0)[1].clone();
            document["document"]["name"] = json!(format!("number {n}"));
            content(b, 0).insert(1, document);
        }
    }),
    ("bedrock.tool_use", |b| {
        content(b, 1)[3]["toolUse"]["input"] = json!("{}")
    }),
    ("bedrock.tool_use_id", |b| {
        content(b, 1)[3]["toolUse"]["toolUseId"] = json!("call:1");
    }),
    ("bedrock.tool_use_id", |b| {
        content(b, 2)[0]["toolResult"]["toolUseId"] = json!("x".repeat(65));
    }),
    ("bedrock.tool_use_id_unique", |b| {
        content(b, 1)[4]["toolUse"]["toolUseId"] = json!("t1");
    }),
    ("bedrock.tool_name", |b| {
        content(b, 1)[3]["toolUse"]["name"] = json!("re ad")
    }),
    ("bedrock.tool_result", |b| {
        content(b, 2)[0]["toolResult"]["content"] = json!([]);
    }),
    ("bedrock.tool_result", |b| {
        content(b, 2)[0]["toolResult"]["content"] = json!([{"text": ""}]);
    }),
    ("bedrock.tool_result", |b| {
        content(b, 2)[0]["toolResult"]["status"] = json!("failed");
    }),
    ("bedrock.unanswered_tool_use", |b| {
        content(b, 2).remove(1);
    }),
    ("bedrock.orphan_result", |b| {
        content(b, 2)[0]["toolResult"]["toolUseId"] = json!("t9");
    }),
    ("bedrock.result_count", |b| {
        let more = content(b, 2)[0].clone();
        content(b, 2).insert(0, more);
    }),
    ("bedrock.duplicate_result", |b| {
        content(b, 2)[1]["toolResult"]["toolUseId"] = json!("t1");
    }),
    ("bedrock.result_first", |b| {
        content(b, 2).insert(0, json!({"text": "so:"}))
    }),
    ("bedrock.reasoning", |b| {
        content(b, 1)[0]["reasoningContent"] = json!({})
    }),
    ("bedrock.reasoning", |b| {
        content(b, 1)[1]["reasoningContent"]["redactedContent"] = json!("?");
    }),
    ("bedrock.reasoning_signature", |b| {
        content(b, 1)[0]["reasoningContent"]["reasoningText"] = json!({"text": "hm"});
    }),
    ("bedrock.reasoning_last", |b| {
        let thought = content(b, 1)[0].clone();
        content(b, 1).push(thought);
    }),
    ("bedrock.thinking_first", |b| {
        content(b, 1).drain(..2);
    }),
    ("bedrock.cache_point", |b| {
        content(b, 2)[2]["cachePoint"]["type"] = json!("ephemeral");
    }),
    ("bedrock.cache_point_place", |b| {
        let point = content(b, 0).pop().unwrap();
        content(b, 0).insert(2, point);
    }),
    ("bedrock.cache_point_place", |b| {
        let point = content(b, 0).pop().unwrap();
        content(b, 0).insert(0, point);
    }),
    ("bedrock.cache_point_count", |b| {
        let point = content(b, 2)[2].clone();
        content(b, 1).insert(3, point);
    }),
    ("bedrock.system", |b| b["system"] = json!("Be brief.")),
    ("bedrock.system", |b| b["system"] = json!([{"text": " "}])),
    ("bedrock.tool_config_required", |b| {
        b.as_object_mut().unwrap().remove("toolConfig");
    }),
    ("bedrock.tools", |b| b["toolConfig"]["tools"] = json!([])),
    ("bedrock.tools", |b| {
        b["toolConfig"]["tools"][0] = json!({"name": "read", "input_schema": {}});
    }),
    ("bedrock.tools", |b| {
        b["toolConfig"]["tools"][0]["toolSpec"]["description"] = json!("");
    }),
    ("bedrock.tool_schema", |b| {
        b["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"] = json!({"type": "object"});
    }),
    ("bedrock.duplicate_tool", |b| {
        let tool = b["toolConfig"]["tools"][0].clone();
        b["toolConfig"]["tools"].as_array_mut().unwrap().push(tool);
    }),
    ("bedrock.tool_choice", |b| {
        b["toolConfig"]["toolChoice"] = json!({"none": {}})
    }),
    ("bedrock.tool_choice", |b| {
        b["toolConfig"]["toolChoice"] = json!({"tool": {"name": "write"}});
    }),
    ("bedrock.inference_config", |b| {
        b["inferenceConfig"]["maxTokens"] = json!(0)
    }),
    ("bedrock.inference_config", |b| {
        b["inferenceConfig"]["top_p"] = json!(1)
    }),
    ("bedrock.output_config", |b| {
        b["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["schema"] =
            json!({"type": "object"});
    }),
    ("bedrock.additional_fields", |b| {
        b["additionalModelRequestFields"] = json!([])
    }),
    ("bedrock.thinking_budget", |b| {
        b["additionalModelRequestFields"]["thinking"]["budget_tokens"] = json!(4000);
    }),
    ("bedrock.thinking_forced_tool", |b| {
        b["toolConfig"]["toolChoice"] = json!({"any": {}})
    }),
];

const OTHERS: &[Mutation] = &[
    ("bedrock.mixed_turn", |b| {
        content(b, 1).insert(0, json!({"text": "I look."}))
    }),
    ("bedrock.mixed_turn", |b| {
        content(b, 2).push(json!({"text": "and then?"}))
    }),
    ("bedrock.cache_point_model", |b| {
        content(b, 0).push(json!({"cachePoint": {"type": "default"}}));
    }),
    ("bedrock.tool_choice_model", |b| {
        b["toolConfig"]["toolChoice"] = json!({"any": {}})
    }),
    ("bedrock.additional_fields", |b| {
        b["additionalModelRequestFields"] = json!({"thinking": {"type": "enabled"}});
    }),
];

const HOSTED: &[Mutation] = &[
    ("bedrock.hosted_unanswered", |b| {
        content(b, 1).remove(1);
    }),
    ("bedrock.cache_point_model", |b| {
        let point = json!({"cachePoint": {"type": "default"}});
        b["toolConfig"]["tools"].as_array_mut().unwrap().push(point);
    }),
];

#[test]
fn every_bedrock_rule_refuses_its_breaking_example() {
    let rules = validate::bedrock_converse_rules();
    let mut shown = BTreeSet::new();
    for (model, good, mutations) in [
        (CLAUDE, good(), CLAUDES),
        (LLAMA, plain(), OTHERS),
        (NOVA, hosted(), HOSTED),
    ] {
        validate::bedrock_converse_model(model, &good).expect("the good request passes");
        validate::bedrock_converse(&good).expect("so it does for a model nobody names");
        for (rule, mutate) in mutations {
            let mut body = good.clone();
            mutate(&mut body);
            let broken = validate::bedrock_converse_model(model, &body).expect_err(rule);
            let names: Vec<&str> = broken.iter().map(|b| b.rule).collect();
            assert!(names.contains(rule), "{rule} is not among {broken:#?}");
            for b in &broken {
                assert!(rules.contains(&b.rule), "{} is not listed", b.rule);
                assert!(!b.message.is_empty());
            }
            shown.insert(*rule);
        }
    }
    let listed: BTreeSet<&str> = rules.iter().copied().collect();
    assert_eq!(shown, listed, "each listed rule has a breaking example");
    assert_eq!(listed.len(), rules.len(), "no rule is listed twice");
}

#[test]
fn bedrock_requests_of_the_corpus_pass() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let Ok(manifest) = std::fs::read_to_string(root.join("manifest.jsonl")) else {
        println!("skipped: no corpus at {}", root.display());
        return;
    };
    let (mut seen, mut good) = (0, 0);
    let mut refused = Vec::new();
    for line in manifest.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let (Some("bedrock"), Some(file)) = (entry["protocol"].as_str(), entry["request"].as_str())
        else {
            continue;
        };
        let body: Value = serde_json::from_slice(&std::fs::read(root.join(file)).unwrap()).unwrap();
        // InvokeModel takes each model's own body.
        if body.get("inputText").is_some() || body.get("anthropic_version").is_some() {
            continue;
        }
        seen += 1;
        let model = entry["model"]
            .as_str()
            .unwrap_or_default()
            .replace("%3A", ":");
        match validate::bedrock_converse_model(&model, &body) {
            Ok(()) => good += 1,
            Err(broken) => refused.push((file.to_owned(), broken)),
        }
    }
    println!("corpus bedrock: {good} of {seen} recorded Converse requests are accepted");
    assert!(
        refused.is_empty(),
        "recorded requests refused: {refused:#?}"
    );
    assert!(seen >= 18, "only {seen} requests found");
}

fn request() -> Value {
    json!({"messages": [{"role": "user", "content": [{"text": "hi"}]}]})
}

/// The events of a stream of frames: the headers' type and the payload. Both checksums are tested.
fn frames(mut body: &[u8]) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while body.len() >= 16 {
        let word = |at: usize| u32::from_be_bytes(body[at..at + 4].try_into().unwrap());
        let (total, headers) = (word(0) as usize, word(4) as usize);
        assert_eq!(word(8), crc32fast::hash(&body[..8]));
        assert_eq!(word(total - 4), crc32fast::hash(&body[..total - 4]));
        let mut named = &body[12..12 + headers];
        let mut kind = String::new();
        while !named.is_empty() {
            let name = usize::from(named[0]);
            let value = usize::from(u16::from_be_bytes([named[name + 2], named[name + 3]]));
            let text = String::from_utf8(named[name + 4..name + 4 + value].to_vec()).unwrap();
            if named[1..=name].ends_with(b"-type")
                && named[1..=name] != *b":content-type"
                && kind.is_empty()
            {
                kind = text;
            }
            named = &named[name + 4 + value..];
        }
        let payload = serde_json::from_slice(&body[12 + headers..total - 4]).unwrap();
        all.push((kind, payload));
        body = &body[total..];
    }
    assert!(body.is_empty(), "half a frame at the end");
    all
}

async fn ask(script: Script, path: &str) -> Answer {
    let model = serve(script).await;
    let answer = post(&model, path, &request()).await;
    model.shutdown().await;
    answer
}

#[tokio::test]
async fn a_turn_is_streamed_in_frames() {
    let turn = Turn::default()
        .and(Part::reasoning("Look first."))
        .and(Part::Reasoning {
            text: String::new(),
            deltas: None,
            seal: Seal::Literal("hidden".into()),
            redacted: true,
        })
        .and(Part::text("Ünïcode \"quoted\"."))
        .and(Part::call("read", json!({"path": "ä"})));
    let answer = ask(Script::new([turn]), PATH).await;
    assert_eq!((answer.status, answer.end), (200, End::Proper));
    assert!(
        answer.head.contains("application/vnd.amazon.eventstream"),
        "{}",
        answer.head
    );
    let events = frames(&answer.body);
    assert_eq!(events[0].1["role"], "assistant");
    let joined = |pointer: &str| -> String {
        events
            .iter()
            .filter_map(|(_, e)| e.pointer(pointer)?.as_str())
            .collect()
    };
    assert_eq!(joined("/delta/reasoningContent/text"), "Look first.");
    assert!(joined("/delta/reasoningContent/signature").starts_with("tnscripted.b."));
    assert_eq!(
        joined("/delta/reasoningContent/redactedContent"),
        "aGlkZGVu"
    );
    assert_eq!(joined("/delta/text"), "Ünïcode \"quoted\".");
    assert_eq!(joined("/delta/toolUse/input"), "{\"path\":\"ä\"}");
    assert!(joined("/start/toolUse/toolUseId").starts_with("tooluse_"));
    let last: Vec<&str> = events
        .iter()
        .rev()
        .take(2)
        .map(|(kind, _)| kind.as_str())
        .collect();
    assert_eq!(last, ["metadata", "messageStop"]);
    assert!(events.iter().all(|(_, event)| event["p"].is_string()));
}

#[tokio::test]
async fn converse_answers_in_one_body() {
    let answer = ask(Script::new([Turn::text("hello")]), "/v1/model/m1/converse").await;
    let body = answer.json();
    assert_eq!(body["output"]["message"]["content"][0]["text"], "hello");
    assert_eq!(body["stopReason"], "end_turn");
    assert!(body["usage"]["inputTokens"].is_u64());
}

#[tokio::test]
async fn errors_are_named_by_a_header() {
    let overflow = Turn {
        fault: Some(Fault::Overflow { used: 9, limit: 8 }),
        ..Turn::default()
    };
    let answer = ask(Script::new([overflow]), PATH).await;
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .head
            .contains("x-amzn-errortype: ValidationException:"),
        "{}",
        answer.head
    );
    assert!(
        answer.json()["message"]
            .as_str()
            .unwrap()
            .contains("9 tokens > 8 maximum")
    );
    let model = serve(Script::new([Turn::text("hi")])).await;
    let mut bad = request();
    bad["messages"][0]["content"][0]["text"] = json!(" ");
    let answer = post(&model, PATH, &bad).await;
    assert_eq!(answer.rules(), ["bedrock.text_empty"]);
    assert!(
        answer
            .head
            .contains("x-amzn-errortype: ValidationException:"),
        "{}",
        answer.head
    );
    model.shutdown().await;
    let mut script = Script::new([Turn::text("hi")]);
    script.models = vec![CLAUDE.to_owned()];
    let model = serve(script).await;
    let answer = post(&model, "/model/other/converse-stream", &request()).await;
    assert_eq!(answer.status, 404);
    assert_eq!(post(&model, PATH, &request()).await.status, 200);
    model.shutdown().await;
}

#[tokio::test]
async fn an_exception_is_the_last_frame_and_a_cut_is_none() {
    let fault = Fault::ErrorEvent {
        after_events: Some(2),
        after_parts: None,
        error_type: Some("throttlingException".into()),
        message: Some("Slow down.".into()),
        failed: false,
    };
    let turn = Turn {
        fault: Some(fault),
        ..Turn::text("one two three")
    };
    let events = frames(&ask(Script::new([turn]), PATH).await.body);
    assert_eq!(events.len(), 3);
    assert_eq!(
        events[2],
        (
            "throttlingException".into(),
            json!({"message": "Slow down."})
        )
    );
    let turn = Turn {
        fault: Some(Fault::Cut {
            after_events: Some(2),
            after_bytes: None,
            after_parts: None,
            how: CutHow::End,
        }),
        ..Turn::text("one two three")
    };
    let answer = ask(Script::new([turn]), PATH).await;
    assert_eq!(frames(&answer.body).len(), 2);
}

#[tokio::test]
async fn an_aws_key_has_to_sign_and_any_other_is_a_bearer() {
    let model = ScriptedModel::builder(Script::new([Turn::text("hi")]))
        .api_key("AKIDEXAMPLE:secret")
        .bind("127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let answer = post(&model, PATH, &request()).await;
    assert_eq!(answer.status, 403);
    assert!(
        answer.head.contains("UnrecognizedClientException"),
        "{}",
        answer.head
    );
    model.shutdown().await;
}
