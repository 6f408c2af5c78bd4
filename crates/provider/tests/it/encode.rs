//! Requests: valid for each vendor whatever the history, stable in their bytes, exact in what is replayed.

mod thinking;

use crate::fold::read;
use crate::requests::{self, *};
use crate::streams::chat;
use crate::wire::sample;
use serde_json::{Value, json};
use std::collections::HashSet;
use tenure_core::error::ErrorClass;
use tenure_core::model::ModelLimits;
use tenure_core::request::{
    AssistantBlock, Effort, Request, RequestMessage, ToolChoice, ToolResult,
};
use tenure_provider::{Dialect, Encoded, Protocol, encode};

fn request(messages: Vec<RequestMessage>) -> Request {
    let schema =
        json!({"$schema": "x", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}});
    let tools = vec![tool("bash", "Runs.", schema)];
    plain("m", &["You are Tenure.", "Be brief."], messages, tools)
}

fn call(id: &str) -> AssistantBlock {
    call_of(id, "bash", "{\"command\":\"true\"}", None)
}

fn result(id: &str, text: &str) -> ToolResult {
    result_of(id, "bash", text)
}

fn long() -> Vec<RequestMessage> {
    requests::long("c:2", call, result)
}

fn bytes(protocol: Protocol, request: &Request) -> Encoded {
    encode(protocol, Dialect::Common, &NO_LIMITS, request).unwrap()
}

fn body(protocol: Protocol, request: &Request) -> Value {
    serde_json::from_slice(&bytes(protocol, request).body).unwrap()
}

#[test]
fn equal_requests_give_equal_bytes_and_hash() {
    for protocol in Protocol::ALL {
        let (a, b) = (
            bytes(protocol, &request(long())),
            bytes(protocol, &request(long())),
        );
        assert_eq!(a, b);
        assert_eq!(a.hash.len(), 64);
        let other = bytes(protocol, &request(vec![user("other")]));
        assert_ne!(a.hash, other.hash);
    }
}

#[test]
fn a_longer_request_shares_its_prefix() {
    for protocol in Protocol::ALL {
        let short = bytes(protocol, &request(long())).body;
        let mut messages = long();
        messages.extend([
            assistant(vec![call("c3")]),
            results(vec![result("c3", "x")]),
            user("four"),
        ]);
        let longer = bytes(protocol, &request(messages)).body;
        let strip = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .unwrap()
                .replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
        };
        let (short, longer) = (strip(&short), strip(&longer));
        let head = short.trim_end_matches(['}', ']']);
        assert!(longer.starts_with(head), "{protocol:?}\n{short}\n{longer}");
    }
}

#[test]
fn tool_order_of_keys_does_not_depend_on_the_map() {
    let mut a = request(long());
    a.tools[0].input_schema =
        serde_json::from_str("{\"type\":\"object\",\"b\":1,\"a\":{\"y\":1,\"x\":2}}").unwrap();
    let mut b = a.clone();
    b.tools[0].input_schema =
        serde_json::from_str("{\"a\":{\"x\":2,\"y\":1},\"b\":1,\"type\":\"object\"}").unwrap();
    for protocol in Protocol::ALL {
        assert_eq!(bytes(protocol, &a), bytes(protocol, &b));
    }
}

#[test]
fn anthropic_shape() {
    let body = body(Protocol::AnthropicMessages, &request(long()));
    assert_eq!(body["max_tokens"], 8192);
    assert_eq!(body["stream"], true);
    assert_eq!(body["tool_choice"], json!({"type": "auto"}));
    assert_eq!(
        body["system"][1]["cache_control"],
        json!({"type": "ephemeral"})
    );
    assert_eq!(body["tools"][0]["input_schema"]["type"], "object");
    assert!(body["tools"][0]["input_schema"].get("$schema").is_none());
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let answers = &messages[2]["content"];
    assert_eq!(answers[0]["tool_use_id"], messages[1]["content"][1]["id"]);
    assert_eq!(answers[1]["tool_use_id"], messages[1]["content"][2]["id"]);
    assert_ne!(answers[0]["tool_use_id"], answers[1]["tool_use_id"]);
    assert_eq!(
        (answers[1]["is_error"].clone(), answers[0].get("is_error")),
        (json!(true), None)
    );
    assert_eq!(
        answers[2]["text"],
        "<tenure-note>\nInstructions changed.\n</tenure-note>"
    );
    assert_eq!(answers[3]["text"], "two");
    assert_eq!(
        messages[1]["content"][0]["text"], "calling",
        "trailing white space is refused at the end"
    );
    let marks = serde_json::to_string(&body)
        .unwrap()
        .matches("cache_control")
        .count();
    assert_eq!(marks, 4, "the most the API takes");
}

#[test]
fn anthropic_output_limit() {
    let limits = ModelLimits {
        context: None,
        output: Some(32_000),
    };
    let tokens = |max_output| {
        let request = Request {
            max_output,
            ..request(long())
        };
        let encoded = encode(
            Protocol::AnthropicMessages,
            Dialect::Common,
            &limits,
            &request,
        )
        .unwrap();
        serde_json::from_slice::<Value>(&encoded.body).unwrap()["max_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(
        (tokens(None), tokens(Some(100)), tokens(Some(99_999))),
        (32_000, 100, 32_000)
    );
}

#[test]
fn no_tools_in_the_last_step_but_their_definitions_stay() {
    let last = Request {
        tool_choice: ToolChoice::None,
        ..request(long())
    };
    for protocol in Protocol::ALL {
        // Bedrock has no word for it.
        if protocol == Protocol::BedrockConverse {
            continue;
        }
        let (with, without) = (body(protocol, &request(long())), body(protocol, &last));
        assert_eq!(with["tools"], without["tools"]);
        let (choice, none) = match protocol {
            Protocol::AnthropicMessages => (&without["tool_choice"], json!({"type": "none"})),
            Protocol::Gemini => (
                &without["toolConfig"]["functionCallingConfig"],
                json!({"mode": "NONE"}),
            ),
            _ => (&without["tool_choice"], json!("none")),
        };
        assert_eq!(*choice, none);
        assert_eq!(with["contents"], without["contents"]);
        assert_eq!(with["messages"], without["messages"]);
    }
    let summary = Request {
        tools: Vec::new(),
        ..request(long())
    };
    let body = body(Protocol::AnthropicMessages, &summary);
    assert_eq!(
        body["tools"][0]["name"], "bash",
        "a history with calls needs definitions"
    );
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

#[test]
fn chat_shape() {
    let request = Request {
        max_output: Some(50),
        ..request(long())
    };
    let common = body(Protocol::OpenaiChat, &request);
    let roles: Vec<&str> = common["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "assistant",
            "user"
        ]
    );
    assert_eq!(
        common["messages"][0]["content"],
        "You are Tenure.\n\nBe brief."
    );
    assert_eq!(
        common["messages"][2]["tool_calls"][0]["id"],
        common["messages"][3]["tool_call_id"]
    );
    assert_eq!(
        (&common["max_tokens"], common.get("prompt_cache_key")),
        (&json!(50), None)
    );
    assert_eq!(common["stream_options"]["include_usage"], true);
    let own = encode(
        Protocol::OpenaiChat,
        Dialect::of_host("api.openai.com"),
        &NO_LIMITS,
        &request,
    )
    .unwrap();
    let own: Value = serde_json::from_slice(&own.body).unwrap();
    assert_eq!(
        (&own["max_completion_tokens"], own.get("max_tokens")),
        (&json!(50), None)
    );
    assert_eq!(
        own["messages"][5],
        json!({"role": "system", "content": "Instructions changed."})
    );
    assert_eq!(own["prompt_cache_key"], "ses_1");
    let mistral = encode(
        Protocol::OpenaiChat,
        Dialect::of_host("api.mistral.ai"),
        &NO_LIMITS,
        &request,
    )
    .unwrap();
    let mistral: Value = serde_json::from_slice(&mistral.body).unwrap();
    assert!(mistral.get("stream_options").is_none());
    assert_eq!(Dialect::of_host("notopenai.com"), Dialect::Common);
}

#[test]
fn responses_shape() {
    let body = body(Protocol::OpenaiResponses, &request(long()));
    assert_eq!(
        (&body["store"], &body["include"][0]),
        (&json!(false), &json!("reasoning.encrypted_content"))
    );
    assert_eq!(body["instructions"], "You are Tenure.\n\nBe brief.");
    assert_eq!(body["prompt_cache_key"], "ses_1");
    let kinds: Vec<&str> = body["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "message",
            "message",
            "function_call",
            "function_call",
            "function_call_output",
            "function_call_output",
            "message",
            "message",
            "message",
            "message"
        ]
    );
    assert_eq!(body["input"][6]["role"], "developer");
}

#[test]
fn what_a_model_made_goes_back_byte_for_byte() {
    for protocol in [Protocol::AnthropicMessages, Protocol::OpenaiResponses] {
        let got = read(protocol, sample(protocol));
        let mut blocks = Vec::new();
        for (text, native) in got.reasonings {
            blocks.push(AssistantBlock::Reasoning { text, native });
        }
        for (text, native) in got.texts {
            blocks.push(AssistantBlock::Text { text, native });
        }
        let call = got.calls[0].clone();
        blocks.push(AssistantBlock::ToolCall {
            id: call.id,
            name: call.name,
            input: call.input.unwrap(),
            native: call.native.clone(),
        });
        let natives: Vec<String> = blocks
            .iter()
            .filter_map(|b| match b {
                AssistantBlock::Reasoning { native, .. } | AssistantBlock::Text { native, .. } => {
                    native.clone()
                }
                AssistantBlock::ToolCall { native, .. } => native.clone(),
                _ => None,
            })
            .collect();
        assert!(!natives.is_empty());
        let encoded = bytes(
            protocol,
            &request(vec![
                user("go"),
                assistant(blocks),
                results(vec![result("call_1", "ok")]),
            ]),
        );
        let sent = String::from_utf8(encoded.body.to_vec()).unwrap();
        for native in natives {
            assert!(sent.contains(&native), "{protocol:?} lost {native}\n{sent}");
        }
    }
}

#[test]
fn bc_s_063_blank_texts_are_never_sent() {
    for blank in ["", " ", "\n\n"] {
        let messages = vec![
            user("a"),
            assistant(vec![text(blank)]),
            user("b"),
            assistant(vec![text(blank), call("c1"), text(blank)]),
            results(vec![result("c1", "x")]),
            assistant(vec![text(blank)]),
        ];
        for protocol in Protocol::ALL {
            let body = body(protocol, &request(messages.clone()));
            let list = ["messages", "input", "contents"]
                .iter()
                .find_map(|key| body.get(key))
                .unwrap()
                .as_array()
                .unwrap();
            let sent = serde_json::to_string(list).unwrap();
            assert!(
                !sent.contains(&format!("\"text\":{}", json!(blank)))
                    && !sent.contains("\"content\":\"\""),
                "{protocol:?} {sent}"
            );
            assert!(
                ["call_id", "tool_use_id", "toolUseId", "functionResponse"]
                    .iter()
                    .any(|id| sent.contains(id)),
                "{sent}"
            );
            let roles =
                || -> Vec<&str> { list.iter().map(|m| m["role"].as_str().unwrap()).collect() };
            match protocol {
                Protocol::AnthropicMessages => {
                    assert_eq!(roles(), ["user", "assistant", "user"], "{sent}")
                }
                Protocol::Gemini => assert_eq!(roles(), ["user", "model", "user"], "{sent}"),
                _ => {}
            }
        }
    }
}

#[test]
fn bc_s_064_a_reply_of_reasoning_only_is_left_out() {
    let signed = r#"{"type":"thinking","thinking":"t","signature":"S"}"#;
    let item = r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E=="}"#;
    let field = r#"{"field":"reasoning_content"}"#;
    for (protocol, native) in [
        (Protocol::AnthropicMessages, signed),
        (Protocol::OpenaiResponses, item),
        (Protocol::OpenaiChat, field),
    ] {
        let only = assistant(vec![AssistantBlock::Reasoning {
            text: "t".into(),
            native: Some(native.into()),
        }]);
        let messages = vec![
            user("a"),
            assistant(vec![call("c1")]),
            results(vec![result("c1", " ")]),
            only,
        ];
        let sent = String::from_utf8(bytes(protocol, &request(messages)).body.to_vec()).unwrap();
        assert!(
            !sent.contains("signature")
                && !sent.contains("rs_1")
                && !sent.contains("reasoning_content\":\"t"),
            "{sent}"
        );
        assert!(sent.contains("(no output)"), "{sent}");
    }
}

#[test]
fn bc_s_065_ids_are_made_legal_together_with_their_results() {
    let odd = "resp_yqqp3b5eoaaatwfitarja6yi42umok5glfymrqxbh4wwznmisz2q:call_0 é";
    let nearly = "resp_yqqp3b5eoaaatwfitarja6yi42umok5glfymrqxbh4wwznmisz2q:call_1 é";
    let messages = vec![
        user("a"),
        assistant(vec![call(odd), call(nearly), call("fine-1")]),
        results(vec![
            result(odd, "1"),
            result(nearly, "2"),
            result("fine-1", "3"),
        ]),
    ];
    for (protocol, limit) in [
        (Protocol::OpenaiChat, 40),
        (Protocol::OpenaiResponses, 64),
        (Protocol::AnthropicMessages, 64),
    ] {
        let body = body(protocol, &request(messages.clone()));
        let mut ids = Vec::new();
        collect_ids(&body, &mut ids);
        let (calls, answers): (Vec<_>, Vec<_>) = ids.into_iter().partition(|(answer, _)| !answer);
        assert_eq!(
            calls.iter().map(|c| &c.1).collect::<Vec<_>>(),
            answers.iter().map(|c| &c.1).collect::<Vec<_>>(),
            "{protocol:?}"
        );
        let distinct: HashSet<&String> = calls.iter().map(|c| &c.1).collect();
        assert_eq!(distinct.len(), 3);
        for (_, id) in &calls {
            assert!(
                id.len() <= limit
                    && id
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
                "{protocol:?} {id}"
            );
        }
        assert!(calls.iter().any(|c| c.1 == "fine-1"));
    }
}

/// (is it a result, id) in order.
fn collect_ids(value: &Value, ids: &mut Vec<(bool, String)>) {
    match value {
        Value::Array(list) => list.iter().for_each(|v| collect_ids(v, ids)),
        Value::Object(fields) => {
            let kind = fields
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let id = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
            match kind {
                "function" | "tool_use" => ids.extend(id("id").map(|id| (false, id))),
                "function_call" => ids.extend(id("call_id").map(|id| (false, id))),
                "function_call_output" => ids.extend(id("call_id").map(|id| (true, id))),
                "tool_result" => ids.extend(id("tool_use_id").map(|id| (true, id))),
                _ => ids.extend(id("tool_call_id").map(|id| (true, id))),
            }
            fields.values().for_each(|v| collect_ids(v, ids));
        }
        _ => {}
    }
}

#[test]
fn responses_calls_keep_or_change_their_id_with_the_result() {
    let item = |call_id: &str| {
        format!(
            r#"{{"type":"function_call","id":"fc_1","call_id":"{call_id}","name":"bash","arguments":"{{}}"}}"#
        )
    };
    let own = |id: &str, native: String| AssistantBlock::ToolCall {
        id: id.into(),
        name: "bash".into(),
        input: "{}".into(),
        native: Some(native),
    };
    let long_id = format!("resp_{}:call_0", "x".repeat(60));
    let messages = vec![
        user("a"),
        assistant(vec![own(&long_id, item(&long_id)), own("b_2", item("b"))]),
        results(vec![result(&long_id, "1"), result("b_2", "2")]),
    ];
    let input = body(Protocol::OpenaiResponses, &request(messages))["input"].clone();
    assert_eq!(
        input[1]["call_id"],
        long_id.as_str(),
        "the provider's own id is legal there"
    );
    assert_eq!(input[3]["call_id"], long_id.as_str());
    assert_eq!(
        (&input[2]["call_id"], &input[4]["call_id"]),
        (&json!("b_2"), &json!("b_2"))
    );
    assert!(input[2].get("id").is_none());
}

#[test]
fn responses_ids_of_another_server_are_cut_to_what_openai_takes() {
    let long = format!("ig_{}", "0".repeat(83));
    let picture = format!(
        "{{\"type\":\"image_generation_call\",\"id\":\"{long}\",\"result\":\"AA==\",\"odd\":1.50}}"
    );
    let thought = format!(
        "{{\"type\":\"reasoning\",\"id\":\"{long}r\",\"summary\":[],\"encrypted_content\":\"s+/=\"}}"
    );
    let called = format!("call_{}", "1".repeat(70));
    let own = json!({"type": "function_call", "id": "fc_1", "call_id": called, "name": "bash", "arguments": "{}"});
    let AssistantBlock::ToolCall {
        id: _, name, input, ..
    } = call("")
    else {
        unreachable!()
    };
    let request = request(vec![
        user("paint"),
        assistant(vec![
            AssistantBlock::Reasoning {
                text: String::new(),
                native: Some(thought.clone()),
            },
            AssistantBlock::Hosted {
                id: long.clone(),
                name: "image_generation_call".into(),
                input: "{}".into(),
                call: Some(picture.clone()),
                result: None,
                text: "painted".into(),
            },
            AssistantBlock::ToolCall {
                id: called.clone(),
                name,
                input,
                native: Some(own.to_string()),
            },
        ]),
        results(vec![result(&called, "ok")]),
    ]);
    let sent = |dialect| {
        let encoded = encode(Protocol::OpenaiResponses, dialect, &NO_LIMITS, &request).unwrap();
        String::from_utf8(encoded.body.to_vec()).unwrap()
    };
    let own_server = sent(Dialect::Xai);
    assert!(
        own_server.contains(&picture) && own_server.contains(&thought),
        "{own_server}"
    );
    assert!(own_server.contains(&own.to_string()));
    let elsewhere = sent(Dialect::Openai);
    let body: Value = serde_json::from_str(&elsewhere).unwrap();
    let items = body["input"].as_array().unwrap();
    let ids: HashSet<&str> = items
        .iter()
        .filter_map(|item| item["id"].as_str())
        .collect();
    assert_eq!(ids.len(), 2, "each its own: {ids:?}");
    assert!(ids.iter().all(|id| id.len() <= 64), "{ids:?}");
    assert!(
        elsewhere.contains("\"encrypted_content\":\"s+/=\"") && elsewhere.contains("\"odd\":1.50")
    );
    assert_eq!(
        items[3]["call_id"], items[4]["call_id"],
        "the result goes with its call"
    );
    assert!(items[3]["call_id"].as_str().unwrap().len() <= 64);
    let judge = tenure_scripted::validate::openai_responses_server;
    let openai = tenure_scripted::validate::ResponsesServer::Openai;
    assert_eq!(judge(&body, openai), Ok(()));
}

#[test]
fn responses_reasoning_that_cannot_go_back_takes_no_names_with_it() {
    let open = r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"t"}]}"#;
    let item = r#"{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x"}]}"#;
    let blocks = vec![
        AssistantBlock::Reasoning {
            text: "t".into(),
            native: Some(open.into()),
        },
        AssistantBlock::Text {
            text: "x".into(),
            native: Some(item.into()),
        },
    ];
    let input = body(
        Protocol::OpenaiResponses,
        &request(vec![user("a"), assistant(blocks), user("b")]),
    )["input"]
        .clone();
    assert_eq!(input.as_array().unwrap().len(), 3);
    assert!(input[1].get("id").is_none(), "{input}");
}

#[test]
fn hosted_calls_go_back_whole_or_in_words() {
    let hosted = |call: Option<&str>, result: Option<&str>| AssistantBlock::Hosted {
        id: "h1".into(),
        name: "web_search".into(),
        input: "{}".into(),
        call: call.map(str::to_owned),
        result: result.map(str::to_owned),
        text: "found".into(),
    };
    let use_ = r#"{"type":"server_tool_use","id":"h1","name":"web_search","input":{}}"#;
    let got = r#"{"type":"web_search_tool_result","tool_use_id":"h1","content":[]}"#;
    let content = |blocks| {
        body(
            Protocol::AnthropicMessages,
            &request(vec![user("a"), assistant(blocks), user("b")]),
        )["messages"][1]["content"]
            .clone()
    };
    let whole = content(vec![hosted(Some(use_), Some(got)), text("so")]);
    assert_eq!(
        (whole[0]["type"].as_str(), whole[1]["type"].as_str()),
        (Some("server_tool_use"), Some("web_search_tool_result"))
    );
    let half = content(vec![hosted(Some(use_), None), text("so")]);
    assert_eq!(
        half[0]["text"],
        "[web_search was run by the provider and gave:]\nfound"
    );
    let paused = body(
        Protocol::AnthropicMessages,
        &request(vec![
            user("a"),
            assistant(vec![text("wait"), hosted(Some(use_), None)]),
        ]),
    );
    let last = paused["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(
        (last["role"].as_str(), last["content"][1]["id"].as_str()),
        (Some("assistant"), Some("h1")),
        "a paused turn is sent back as it is"
    );
    let item = r#"{"type":"web_search_call","id":"ws_1","status":"completed"}"#;
    let input = body(
        Protocol::OpenaiResponses,
        &request(vec![
            user("a"),
            assistant(vec![hosted(Some(item), None)]),
            user("b"),
        ]),
    )["input"]
        .clone();
    assert_eq!(input[1]["id"], "ws_1");
    let chat_body = body(
        Protocol::OpenaiChat,
        &request(vec![
            user("a"),
            assistant(vec![hosted(None, None), text("so")]),
            user("b"),
        ]),
    );
    assert!(
        chat_body["messages"][2]["content"]
            .as_str()
            .unwrap()
            .contains("found")
    );
}

#[test]
fn chat_reasoning_goes_back_in_its_own_field() {
    let with = |native: &str| {
        let blocks = vec![
            AssistantBlock::Reasoning {
                text: "t".into(),
                native: Some(native.into()),
            },
            text("x"),
        ];
        body(
            Protocol::OpenaiChat,
            &request(vec![user("a"), assistant(blocks), user("b")]),
        )["messages"][2]
            .clone()
    };
    assert_eq!(
        with(r#"{"field":"reasoning_content"}"#)["reasoning_content"],
        "t"
    );
    assert_eq!(with(r#"{"field":"reasoning"}"#)["reasoning"], "t");
    let details = with(r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"D"}]}"#);
    assert_eq!(
        (
            &details["reasoning_details"][0]["data"],
            details.get("reasoning")
        ),
        (&json!("D"), None)
    );
    assert_eq!(
        with(r#"{"field":"thinking"}"#)["content"],
        json!([{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "x"}])
    );
}

#[test]
fn the_last_word_is_never_the_model_s_where_that_is_refused() {
    for protocol in [Protocol::AnthropicMessages, Protocol::OpenaiChat] {
        let body = body(
            protocol,
            &request(vec![user("a"), assistant(vec![text("half an ")])]),
        );
        let last = body["messages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["role"], "user", "{body}");
        assert!(last.to_string().contains("Continue."));
    }
    let first = body(
        Protocol::AnthropicMessages,
        &request(vec![assistant(vec![text("hi")]), user("b")]),
    );
    assert_eq!(first["messages"][0]["role"], "user");
}

#[test]
fn results_stand_after_their_calls_even_with_a_note_between() {
    let messages = vec![
        user("a"),
        assistant(vec![call("c1")]),
        RequestMessage::System {
            text: "note".into(),
        },
        results(vec![result("c1", "x")]),
    ];
    let chat_body = body(Protocol::OpenaiChat, &request(messages.clone()));
    assert_eq!(chat_body["messages"][3]["role"], "tool");
    let anthropic = body(Protocol::AnthropicMessages, &request(messages));
    assert_eq!(
        anthropic["messages"][2]["content"][0]["type"],
        "tool_result"
    );
}

#[test]
fn input_that_is_no_object_cannot_break_a_request() {
    for input in ["", "[1]", "{\"a\":", "null", "\"x\""] {
        let block = AssistantBlock::ToolCall {
            id: "c1".into(),
            name: "bash".into(),
            input: input.into(),
            native: None,
        };
        let messages = vec![
            user("a"),
            assistant(vec![block]),
            results(vec![result("c1", "x")]),
        ];
        let anthropic = body(Protocol::AnthropicMessages, &request(messages.clone()));
        assert!(
            anthropic["messages"][1]["content"][0]["input"].is_object(),
            "{input}"
        );
        let chat = body(Protocol::OpenaiChat, &request(messages));
        let arguments = chat["messages"][2]["tool_calls"][0]["function"]["arguments"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            serde_json::from_str::<Value>(&arguments)
                .unwrap()
                .is_object(),
            "{input}"
        );
    }
}

#[test]
fn a_request_without_any_text_is_refused() {
    for protocol in Protocol::ALL {
        let refused = encode(
            protocol,
            Dialect::Common,
            &NO_LIMITS,
            &request(vec![user(" ")]),
        )
        .unwrap_err();
        assert_eq!(refused.class, ErrorClass::InvalidRequest);
    }
}

#[test]
fn how_long_an_answer_may_be_is_read_from_the_body_in_every_protocol() {
    for protocol in [
        Protocol::OpenaiChat,
        Protocol::OpenaiResponses,
        Protocol::AnthropicMessages,
        Protocol::Gemini,
        Protocol::BedrockConverse,
    ] {
        let mut request = plain(
            "m",
            &[],
            vec![user("Say that max_tokens is 5.")],
            Vec::new(),
        );
        request.max_output = Some(777);
        let allowed = bytes(protocol, &request).output_allowed();
        assert_eq!(allowed, Some(777), "{protocol:?}");
        request.max_output = None;
        let allowed = bytes(protocol, &request).output_allowed();
        // Messages wants a number, and gets one.
        let told = protocol == Protocol::AnthropicMessages;
        assert_eq!(allowed.is_some(), told, "{protocol:?}: {allowed:?}");
    }
}
