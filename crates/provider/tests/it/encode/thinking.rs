//! Thinking in requests: signed blocks where they were, unsigned ones at home, none where it would be refused.

use super::*;

#[test]
fn bc_s_060_unsigned_thinking_stays_at_home() {
    for protocol in Protocol::ALL {
        let blocks = vec![
            AssistantBlock::Reasoning {
                text: "secret plan".into(),
                native: None,
            },
            text("hi"),
        ];
        let sent = String::from_utf8(
            bytes(
                protocol,
                &request(vec![user("a"), assistant(blocks), user("b")]),
            )
            .body
            .to_vec(),
        )
        .unwrap();
        assert!(!sent.contains("secret plan"), "{sent}");
    }
}

#[test]
fn thinking_neither_comes_nor_goes_within_a_tool_loop() {
    let thought = |native: &str| AssistantBlock::Reasoning {
        text: "t".into(),
        native: Some(native.into()),
    };
    let signed = [
        (
            Protocol::AnthropicMessages,
            "claude-sonnet-4-5",
            r#"{"type":"thinking","thinking":"t","signature":"S"}"#,
            "/thinking/type",
        ),
        #[cfg(feature = "bedrock")]
        (
            Protocol::BedrockConverse,
            "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
            r#"{"reasoningContent":{"reasoningText":{"text":"t","signature":"S"}}}"#,
            "/additionalModelRequestFields/thinking/type",
        ),
    ];
    for (protocol, model, native, at) in signed {
        let thinks = |messages: Vec<RequestMessage>| {
            let mut request = request(messages);
            request.model.model = model.into();
            request.effort = Some(Effort::High);
            request.max_output = Some(20_000);
            body(protocol, &request).pointer(at).cloned()
        };
        let enabled = Some(json!("enabled"));
        let mut messages = vec![
            user("old"),
            assistant(vec![call("c0")]),
            results(vec![result("c0", "ok")]),
            assistant(vec![text("done")]),
            user("go"),
        ];
        assert_eq!(thinks(messages.clone()), enabled, "{protocol:?}");
        // The model thinks once, and calls three times.
        messages.push(assistant(vec![thought(native), call("c1")]));
        messages.push(results(vec![result("c1", "ok")]));
        for id in ["c2", "c3"] {
            assert_eq!(
                thinks(messages.clone()),
                enabled,
                "{protocol:?} before {id}"
            );
            messages.push(assistant(vec![call(id)]));
            messages.push(results(vec![result(id, "ok")]));
        }
        assert_eq!(thinks(messages.clone()), enabled, "{protocol:?}");
        // A loop that began without goes on without, whatever came later.
        messages.push(assistant(vec![text("done")]));
        messages.push(user("and now"));
        messages.push(assistant(vec![call("c4")]));
        messages.push(results(vec![result("c4", "ok")]));
        assert_eq!(thinks(messages.clone()), None, "{protocol:?}");
        messages.push(assistant(vec![thought(native), call("c5")]));
        messages.push(results(vec![result("c5", "ok")]));
        assert_eq!(thinks(messages), None, "{protocol:?}");
    }
}

#[test]
fn bc_s_061_text_and_signature_that_do_not_belong_together_are_dropped() {
    let thinking = |text: &str, native: &str| AssistantBlock::Reasoning {
        text: text.into(),
        native: Some(native.into()),
    };
    let blocks = vec![
        thinking("", r#"{"type":"thinking","thinking":"","signature":"S1"}"#),
        thinking(
            "",
            r#"{"type":"thinking","thinking":"was here","signature":"S2"}"#,
        ),
        thinking("x", r#"{"type":"thinking","thinking":"x","signature":""}"#),
        thinking("x", "damaged"),
        thinking(
            "kept",
            r#"{"type":"thinking","thinking":"kept","signature":"S3"}"#,
        ),
        thinking("", r#"{"type":"redacted_thinking","data":"R=="}"#),
        text("hi"),
    ];
    let body = body(
        Protocol::AnthropicMessages,
        &request(vec![user("a"), assistant(blocks), user("b")]),
    );
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "kept", "signature": "S3"},
            {"type": "redacted_thinking", "data": "R=="},
            {"type": "text", "text": "hi"},
        ])
    );
}

#[test]
fn bc_s_062_a_signature_on_the_first_of_three_calls_goes_back_there() {
    let signed = json!({"google": {"thought_signature": "S=="}});
    let delta = |index: u64, extra: Option<&Value>| {
        let mut call = json!({"index": index, "id": format!("c{index}"), "function": {"name": "bash", "arguments": "{}"}});
        if let Some(extra) = extra {
            call["extra_content"] = extra.clone();
        }
        json!({"tool_calls": [call]})
    };
    let got = chat(
        &[delta(0, Some(&signed)), delta(1, None), delta(2, None)],
        "tool_calls",
    );
    let blocks = got.calls.iter().map(|call| AssistantBlock::ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        input: call.input.clone().unwrap(),
        native: call.native.clone(),
    });
    let answers = got
        .calls
        .iter()
        .map(|call| result(&call.id, "ok"))
        .collect();
    let body = body(
        Protocol::OpenaiChat,
        &request(vec![
            user("a"),
            assistant(blocks.collect()),
            results(answers),
        ]),
    );
    let calls = body["messages"][2]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 3);
    assert_eq!(calls[0]["extra_content"], signed);
    assert!(calls[1].get("extra_content").is_none());
    let tools: Vec<&Value> = body["messages"].as_array().unwrap()[3..]
        .iter()
        .map(|m| &m["tool_call_id"])
        .collect();
    assert_eq!(tools, ["c0", "c1", "c2"]);
}

#[test]
fn a_message_never_ends_with_thinking() {
    let signed = r#"{"type":"thinking","thinking":"t","signature":"S"}"#;
    let thought = || AssistantBlock::Reasoning {
        text: "t".into(),
        native: Some(signed.into()),
    };
    let messages = vec![
        user("a"),
        assistant(vec![thought(), text("x"), thought()]),
        user("b"),
    ];
    let content =
        body(Protocol::AnthropicMessages, &request(messages))["messages"][1]["content"].clone();
    let kinds: Vec<&Value> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|b| &b["type"])
        .collect();
    assert_eq!(kinds, ["thinking", "text"]);
}

#[test]
fn sealed_reasoning_is_only_asked_of_models_that_reason() {
    for (model, asked) in [
        ("gpt-4.1", false),
        ("openai/gpt-4o-mini", false),
        ("gpt-5.2", true),
        ("o4-mini", true),
    ] {
        let mut request = request(long());
        request.model.model = model.into();
        let body = body(Protocol::OpenaiResponses, &request);
        assert_eq!(body.get("include").is_some(), asked, "{model}");
    }
}
