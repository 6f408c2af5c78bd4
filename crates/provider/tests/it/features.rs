//! What the two first vendors are asked for beside words: media, hosted tools, answer forms, effort, forced
//! calls, times in the cache.

use crate::fold::read;
use crate::streams::events;
use serde_json::{Value, json};
use tenure_core::model::{ModelLimits, ModelRef};
use tenure_core::provider::Finish;
use tenure_core::request::{
    AssistantBlock, Effort, HostedTool, Media, OutputSchema, Request, RequestMessage, ToolChoice,
    ToolDef, ToolResult, UserPart,
};
use tenure_provider::{CacheTime, Dialect, Protocol, encode_cached};

/// A grey PNG of one pixel, and one that says it is 9000 pixels wide.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
const WIDE_PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAIygAAADICAAAAACgrxXlAAAAH0lEQVR4nO3BAQEAAACCIP+vbkhAAQAAAAAAAADAgQEjKQABNueTHwAAAABJRU5ErkJggg==";
const PDF: &str = "JVBERi0xLjQKJSVFT0YK";

fn request(model: &str, messages: Vec<RequestMessage>) -> Request {
    Request {
        messages,
        system: vec!["Be brief.".into()],
        cache_key: "ses_1".into(),
        ..Request::new(ModelRef {
            provider: "p".into(),
            model: model.into(),
        })
    }
}

fn sent(protocol: Protocol, request: &Request, cache: CacheTime) -> Value {
    let limits = ModelLimits {
        context: None,
        output: None,
    };
    let encoded = encode_cached(protocol, Dialect::Common, &limits, request, cache).unwrap();
    serde_json::from_slice(&encoded.body).unwrap()
}

fn claude(request: &Request) -> Value {
    sent(Protocol::AnthropicMessages, request, CacheTime::Usual)
}

fn openai(request: &Request) -> Value {
    sent(Protocol::OpenaiResponses, request, CacheTime::Usual)
}

fn user(text: &str) -> RequestMessage {
    RequestMessage::User {
        parts: vec![text.into()],
    }
}

fn media(name: &str, media_type: &str, data: &str) -> UserPart {
    UserPart::Media(Media {
        name: name.into(),
        media_type: media_type.into(),
        data: data.into(),
    })
}

fn with_media(parts: Vec<UserPart>) -> Vec<RequestMessage> {
    let mut parts = parts;
    parts.push("what is it?".into());
    vec![RequestMessage::User { parts }]
}

fn tool(name: &str) -> ToolDef {
    ToolDef {
        name: name.into(),
        description: "A tool.".into(),
        input_schema: json!({}),
    }
}

#[test]
fn images_and_documents_go_out_in_each_vendor_s_form() {
    let messages = with_media(vec![
        media("a.png", "image/png", PNG),
        media("b.pdf", "application/pdf", PDF),
    ]);
    let content =
        claude(&request("claude-sonnet-4-6", messages.clone()))["messages"][0]["content"].clone();
    assert_eq!(
        content,
        json!([
            {"type": "text", "text": "a.png:"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
            {"type": "document", "title": "b.pdf",
             "source": {"type": "base64", "media_type": "application/pdf", "data": PDF}},
            {"type": "text", "text": "what is it?", "cache_control": {"type": "ephemeral"}}
        ])
    );
    let input = openai(&request("gpt-5.4", messages))["input"].clone();
    let parts: Vec<&Value> = (0..4).map(|n| &input[n]["content"][0]).collect();
    assert_eq!(
        json!(parts),
        json!([
            {"type": "input_text", "text": "a.png:"},
            {"type": "input_image", "detail": "auto", "image_url": format!("data:image/png;base64,{PNG}")},
            {"type": "input_file", "filename": "b.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")},
            {"type": "input_text", "text": "what is it?"}
        ])
    );
}

#[test]
fn bc_s_066_what_a_vendor_would_refuse_is_told_in_words() {
    let long = "A".repeat(28 * 1024 * 1024);
    let cases = [
        ("wide.png", "image/png", WIDE_PNG, "8000"),
        ("long.png", "image/png", &long, "3.7 MiB"),
        ("song.mp3", "audio/mpeg", "AAAA", "not taken"),
        ("fake.png", "image/png", PDF, "does not look like"),
        ("none.png", "image/png", "", "not kept"),
        ("odd.png", "image/png", "%%%", "does not look like"),
    ];
    for (name, media_type, data, why) in cases {
        let messages = with_media(vec![media(name, media_type, data)]);
        let content = &claude(&request("claude-sonnet-4-6", messages))["messages"][0]["content"];
        assert_eq!(content[0]["type"], "text", "{name}");
        let said = content[0]["text"].as_str().unwrap();
        assert!(said.contains(name) && said.contains(why), "{said}");
        assert_eq!(content.as_array().unwrap().len(), 2);
    }
    // What one vendor refuses another may take.
    let messages = with_media(vec![media("wide.png", "image/png", WIDE_PNG)]);
    let input = openai(&request("gpt-5.4", messages))["input"].clone();
    assert_eq!(input[1]["content"][0]["type"], "input_image");
    // A model that does not read PDFs is told of them.
    let messages = with_media(vec![media("b.pdf", "application/pdf", PDF)]);
    let old = claude(&request("claude-3-haiku-20240307", messages));
    assert_eq!(old["messages"][0]["content"][0]["type"], "text");
}

#[test]
fn too_many_images_leave_the_newest_and_a_stable_beginning() {
    let of = |n: usize| {
        let parts = (0..n)
            .map(|n| media(&format!("{n}.png"), "image/png", PNG))
            .collect();
        let content = claude(&request("claude-sonnet-4-6", with_media(parts)));
        content["messages"][0]["content"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|block| block["type"] == "image")
            .count()
    };
    assert_eq!([of(100), of(101), of(125)], [100, 76, 100]);
}

#[test]
fn behind_converse_a_turn_that_goes_on_keeps_its_bytes_whatever_it_shows() {
    let model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
    let of = |messages: Vec<RequestMessage>| {
        let request = request(model, messages);
        let sent = sent(Protocol::BedrockConverse, &request, CacheTime::Usual);
        let verdict = tenure_scripted::validate::bedrock_converse_model(model, &sent);
        assert_eq!(verdict, Ok(()), "{sent:#}");
        let content = sent["messages"][0]["content"].as_array().unwrap();
        let said = content.iter().filter(|b| b.get("cachePoint").is_none());
        (said.cloned().collect::<Vec<_>>(), content.clone())
    };
    let first = with_media(vec![media("a.pdf", "application/pdf", PDF)]);
    let mut second = first.clone();
    second.extend(with_media(vec![media("b.pdf", "application/pdf", PDF)]));
    let (before, _) = of(first.clone());
    let (after, _) = of(second);
    assert_eq!(after[..before.len()], before, "the turn went on");
    // Nothing may stand directly behind a document but what was said.
    let alone = RequestMessage::User {
        parts: vec![media("a.pdf", "application/pdf", PDF)],
    };
    let (said, content) = of(vec![alone]);
    assert_eq!(said, content, "no cache point");
}

#[test]
fn the_answer_s_form_is_asked_for_as_each_vendor_knows_it() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]});
    let mut asked = request("claude-sonnet-4-6", vec![user("count")]);
    asked.output_schema = Some(OutputSchema {
        name: "my answer".into(),
        schema: schema.clone(),
    });
    let body = claude(&asked);
    assert_eq!(
        body["output_config"],
        json!({"format": {"type": "json_schema", "schema": {"type": "object",
            "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}}})
    );
    assert_eq!(body["system"].as_array().unwrap().len(), 1);
    let format = openai(&asked)["text"]["format"].clone();
    assert_eq!(
        format,
        json!({"type": "json_schema", "name": "myanswer", "strict": false, "schema": schema})
    );
    // An older model is told in words, behind the rest of the system prompt.
    asked.model.model = "claude-sonnet-4-0".into();
    let old = claude(&asked);
    assert_eq!(old.get("output_config"), None);
    let words = &old["system"][1];
    assert!(words["text"].as_str().unwrap().contains("JSON Schema"));
    assert_eq!(
        (
            old["system"][0].get("cache_control"),
            &words["cache_control"]["type"]
        ),
        (None, &json!("ephemeral"))
    );
    // Where a grammar can hold all of it, it is asked to.
    asked.output_schema = Some(OutputSchema {
        name: String::new(),
        schema: json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
    });
    let format = openai(&asked)["text"]["format"].clone();
    assert_eq!(
        (&format["strict"], &format["name"]),
        (&json!(true), &json!("answer"))
    );
}

#[test]
fn effort_becomes_each_model_s_own_setting() {
    let ask = |model: &str, effort| {
        let mut asked = request(model, vec![user("a")]);
        asked.effort = effort;
        asked
    };
    let high = claude(&ask("claude-sonnet-4-6", Some(Effort::High)));
    assert_eq!(high["thinking"], json!({"type": "adaptive"}));
    assert_eq!(high["output_config"], json!({"effort": "high"}));
    let older = claude(&ask("claude-sonnet-4-5", Some(Effort::High)));
    let budget = older["thinking"]["budget_tokens"].as_u64().unwrap();
    assert!(budget >= 1024 && budget < older["max_tokens"].as_u64().unwrap());
    assert_eq!(older.get("output_config"), None);
    let usual = claude(&ask("claude-sonnet-4-6", None));
    assert_eq!(
        (usual.get("thinking"), usual.get("output_config")),
        (None, None)
    );

    let reasoning = |model: &str, effort| openai(&ask(model, effort)).get("reasoning").cloned();
    assert_eq!(
        reasoning("gpt-5.4", Some(Effort::Medium)),
        Some(json!({"effort": "medium", "summary": "auto"}))
    );
    assert_eq!(
        reasoning("gpt-5.4", Some(Effort::Off)),
        Some(json!({"effort": "none"}))
    );
    assert_eq!(
        reasoning("gpt-5", Some(Effort::Off)),
        Some(json!({"effort": "low", "summary": "auto"}))
    );
    assert_eq!(
        reasoning("my-server", Some(Effort::High)),
        Some(json!({"effort": "high"})),
        "an imitation may not know summaries"
    );
    let mut unverified = ask("gpt-5.4", Some(Effort::High));
    unverified.hide_thoughts = true;
    assert_eq!(openai(&unverified)["reasoning"], json!({"effort": "high"}));
    for fixed in ["gpt-4.1", "gpt-5-pro", "grok-4", "grok-code-fast-1"] {
        assert_eq!(reasoning(fixed, Some(Effort::High)), None, "{fixed}");
    }
    assert_eq!(reasoning("gpt-5.4", None), None);
}

#[test]
fn tools_are_forced_where_that_is_taken() {
    let ask = |model: &str, choice: ToolChoice, effort| {
        let mut asked = request(model, vec![user("a")]);
        asked.tools = vec![tool("read"), tool("bash")];
        asked.tool_choice = choice;
        asked.effort = effort;
        asked
    };
    let named = ToolChoice::Tool("bash".into());
    let choice = |asked: &Request| claude(asked)["tool_choice"].clone();
    let model = "claude-sonnet-4-6";
    assert_eq!(
        choice(&ask(model, ToolChoice::Auto, None)),
        json!({"type": "auto"})
    );
    assert_eq!(
        choice(&ask(model, ToolChoice::None, None)),
        json!({"type": "none"})
    );
    assert_eq!(
        choice(&ask(model, ToolChoice::Required, None)),
        json!({"type": "any"})
    );
    assert_eq!(
        choice(&ask(model, named.clone(), None)),
        json!({"type": "tool", "name": "bash"})
    );
    let unknown = ToolChoice::Tool("write".into());
    assert_eq!(
        choice(&ask(model, unknown.clone(), None)),
        json!({"type": "auto"})
    );
    // With thinking nothing is forced, and by the newest models not either.
    assert_eq!(
        choice(&ask(model, named.clone(), Some(Effort::Low))),
        json!({"type": "auto"})
    );
    assert_eq!(
        choice(&ask("claude-opus-5-5", ToolChoice::Required, None)),
        json!({"type": "auto"})
    );
    let choice = |asked: &Request| openai(asked)["tool_choice"].clone();
    assert_eq!(
        choice(&ask("gpt-5.4", ToolChoice::Required, None)),
        "required"
    );
    assert_eq!(
        choice(&ask("gpt-5.4", named, None)),
        json!({"type": "function", "name": "bash"})
    );
    assert_eq!(choice(&ask("gpt-5.4", unknown, None)), "auto");
    assert_eq!(choice(&ask("gpt-5.4", ToolChoice::None, None)), "none");
}

#[test]
fn hosted_tools_stand_behind_the_local_ones() {
    let mut asked = request("claude-sonnet-4-6", vec![user("a")]);
    asked.tools = vec![tool("read")];
    asked.hosted_tools = vec![
        HostedTool::CodeExecution,
        HostedTool::WebSearch,
        HostedTool::WebSearch,
    ];
    assert_eq!(
        json!(claude(&asked)["tools"].as_array().unwrap()[1..]),
        json!([
            {"type": "web_search_20250305", "name": "web_search"},
            {"type": "code_execution_20250825", "name": "code_execution", "cache_control": {"type": "ephemeral"}}
        ])
    );
    let body = openai(&asked);
    assert_eq!(
        json!(body["tools"].as_array().unwrap()[1..]),
        json!([{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}])
    );
    assert_eq!(
        body["include"],
        json!([
            "reasoning.encrypted_content",
            "code_interpreter_call.outputs"
        ])
    );
    // A local tool of the same name is the one that is meant.
    asked.tools = vec![tool("web_search")];
    let tools = claude(&asked)["tools"].clone();
    assert_eq!(
        (tools.as_array().unwrap().len(), tools[0].get("type")),
        (2, None)
    );
    // Hosted tools alone may be called.
    asked.tools.clear();
    assert_eq!(claude(&asked)["tool_choice"], json!({"type": "auto"}));
}

#[test]
fn the_sandbox_of_a_turn_is_used_while_the_turn_goes_on() {
    let stream = events(&[
        json!({"type": "message_start", "message": {"id": "m", "model": "c", "usage": {"input_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "so"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "pause_turn",
            "container": {"id": "container_1", "expires_at": "2026-01-01T00:00:00Z"}}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]);
    let got = read(Protocol::AnthropicMessages, stream);
    assert_eq!(got.opaque, [r#"{"id":"container_1","type":"container"}"#]);
    assert_eq!(got.finish.unwrap().0, Finish::Pause);

    let blocks = vec![
        AssistantBlock::Text {
            text: "so".into(),
            native: None,
        },
        AssistantBlock::Opaque {
            native: got.opaque[0].clone(),
        },
    ];
    let mut messages = vec![user("a"), RequestMessage::Assistant { blocks }];
    let ask = |messages: &[RequestMessage], hosted: &[HostedTool]| {
        let mut asked = request("claude-sonnet-4-6", messages.to_vec());
        asked.hosted_tools = hosted.to_vec();
        claude(&asked)
    };
    let code = [HostedTool::CodeExecution];
    let body = ask(&messages, &code);
    assert_eq!(body["container"], "container_1");
    assert_eq!(
        body["messages"][1]["content"].as_array().unwrap().len(),
        1,
        "its name is no content"
    );
    assert_eq!(ask(&messages, &[]).get("container"), None);
    messages.push(RequestMessage::System { text: "n".into() });
    assert_eq!(ask(&messages, &code)["container"], "container_1");
    messages.push(user("b"));
    assert_eq!(
        ask(&messages, &code).get("container"),
        None,
        "it may be gone by the next prompt"
    );
}

#[test]
fn thinking_that_came_without_its_text_goes_back_to_models_that_send_it_so() {
    let sealed = r#"{"type":"thinking","thinking":"","signature":"SIG"}"#;
    let ask = |model: &str, effort| {
        let blocks = vec![
            AssistantBlock::Reasoning {
                text: String::new(),
                native: Some(sealed.into()),
            },
            AssistantBlock::Text {
                text: "x".into(),
                native: None,
            },
        ];
        let mut asked = request(
            model,
            vec![user("a"), RequestMessage::Assistant { blocks }, user("b")],
        );
        asked.effort = effort;
        claude(&asked)["messages"][1]["content"][0]["type"].clone()
    };
    assert_eq!(ask("claude-opus-4-8", None), "thinking");
    assert_eq!(ask("claude-opus-5-5", None), "thinking");
    assert_eq!(ask("claude-sonnet-4-5", None), "text");
    assert_eq!(ask("claude-opus-5", Some(Effort::Off)), "text");
}

#[test]
fn a_tool_loop_that_began_without_thinking_goes_on_without_it() {
    let blocks = |first: Option<&str>| {
        let mut blocks: Vec<AssistantBlock> = first
            .into_iter()
            .map(|native| AssistantBlock::Reasoning {
                text: "t".into(),
                native: Some(native.into()),
            })
            .collect();
        blocks.push(AssistantBlock::ToolCall {
            id: "c1".into(),
            name: "read".into(),
            input: "{}".into(),
            native: None,
        });
        blocks
    };
    let ask = |first: Option<&str>, closed: bool| {
        let mut messages = vec![
            user("a"),
            RequestMessage::Assistant {
                blocks: blocks(first),
            },
            RequestMessage::ToolResults {
                results: vec![ToolResult {
                    id: "c1".into(),
                    name: "read".into(),
                    text: "x".into(),
                    is_error: false,
                }],
            },
        ];
        if closed {
            let done = AssistantBlock::Text {
                text: "done".into(),
                native: None,
            };
            messages.push(RequestMessage::Assistant { blocks: vec![done] });
            messages.push(user("b"));
        }
        let mut asked = request("claude-sonnet-4-5", messages);
        asked.tools = vec![tool("read")];
        asked.effort = Some(Effort::Low);
        claude(&asked).get("thinking").is_some()
    };
    assert!(!ask(None, false));
    assert!(ask(None, true));
    assert!(ask(
        Some(r#"{"type":"thinking","thinking":"t","signature":"S"}"#),
        false
    ));
}

#[test]
fn an_hour_in_the_cache_is_asked_for_at_every_mark() {
    let mut asked = request("claude-sonnet-4-6", vec![user("a")]);
    asked.tools = vec![tool("read")];
    let body = sent(Protocol::AnthropicMessages, &asked, CacheTime::Hour);
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    for mark in [
        &body["tools"][0]["cache_control"],
        &body["system"][0]["cache_control"],
        &body["messages"][0]["content"][0]["cache_control"],
    ] {
        assert_eq!(*mark, hour);
    }
    assert_eq!(
        sent(Protocol::OpenaiResponses, &asked, CacheTime::Hour),
        openai(&asked)
    );
}
