//! Own streams, one for each feature of each protocol.

use crate::fold::{Folded, read};
use serde_json::{Value, json};
use tenure_core::error::ErrorClass;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub fn events(list: &[Value]) -> String {
    list.iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect()
}

pub fn chat(deltas: &[Value], finish: &str) -> Folded {
    let mut list: Vec<Value> = deltas
        .iter()
        .map(|delta| json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta}]}))
        .collect();
    list.push(json!({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    read(Protocol::OpenaiChat, events(&list) + "data: [DONE]\n\n")
}

/// Blocks as (start, deltas); every block is stopped.
pub fn anthropic(blocks: &[(Value, &[Value])], stop: &str) -> Folded {
    let mut list = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 3}}}),
    ];
    for (index, (start, deltas)) in blocks.iter().enumerate() {
        list.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in *deltas {
            list.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        list.push(json!({"type": "content_block_stop", "index": index}));
    }
    list.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}}));
    list.push(json!({"type": "message_stop"}));
    read(Protocol::AnthropicMessages, events(&list))
}

pub fn responses(items: &[Value], last: Value) -> Folded {
    let mut list =
        vec![json!({"type": "response.created", "response": {"id": "resp_1", "model": "m"}})];
    for (index, item) in items.iter().enumerate() {
        list.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": item}),
        );
        list.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    list.push(last);
    read(Protocol::OpenaiResponses, events(&list))
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}})
}

fn native(text: &Option<String>) -> Value {
    serde_json::from_str(text.as_ref().expect("native state")).unwrap()
}

#[test]
fn anthropic_signature_in_pieces_and_redacted_thinking() {
    let got = anthropic(
        &[
            (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                &[
                    json!({"type": "thinking_delta", "thinking": "a "}),
                    json!({"type": "thinking_delta", "thinking": "b"}),
                    json!({"type": "signature_delta", "signature": "AB"}),
                    json!({"type": "signature_delta", "signature": "CD=="}),
                ],
            ),
            (
                json!({"type": "redacted_thinking", "data": "sealed/+=="}),
                &[],
            ),
            (
                json!({"type": "thinking", "thinking": ""}),
                &[json!({"type": "thinking_delta", "thinking": "unsigned"})],
            ),
        ],
        "end_turn",
    );
    assert_eq!(
        native(&got.reasonings[0].1),
        json!({"type": "thinking", "thinking": "a b", "signature": "ABCD=="})
    );
    assert_eq!(
        native(&got.reasonings[1].1),
        json!({"type": "redacted_thinking", "data": "sealed/+=="})
    );
    assert_eq!(
        got.reasonings[2],
        ("unsigned".to_owned(), None),
        "bc-s-060: without a signature it is for display only"
    );
}

#[test]
fn anthropic_hosted_tool_with_result_and_citations() {
    let result = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "title": "T", "url": "https://e.example", "encrypted_content": "x=="}]});
    let got = anthropic(
        &[
            (
                json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
                &[
                    json!({"type": "input_json_delta", "partial_json": "{\"query\":"}),
                    json!({"type": "input_json_delta", "partial_json": "\"q\"}"}),
                ],
            ),
            (result.clone(), &[]),
            (
                json!({"type": "text", "text": ""}),
                &[
                    json!({"type": "text_delta", "text": "so"}),
                    json!({"type": "citations_delta", "citation": {"type": "web_search_result_location", "encrypted_index": "E=="}}),
                ],
            ),
        ],
        "end_turn",
    );
    let call = &got.calls[0];
    assert!(call.executed);
    assert_eq!(call.input.as_deref(), Some("{\"query\":\"q\"}"));
    assert_eq!(
        native(&call.native),
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}})
    );
    assert_eq!(got.results[0].1, "T\nhttps://e.example");
    assert_eq!(
        got.results[0].3.as_deref(),
        Some(result.to_string().as_str()),
        "byte for byte"
    );
    assert_eq!(
        native(&got.texts[0].1)["citations"][0]["encrypted_index"],
        "E=="
    );
    assert_eq!(got.finish.unwrap().0, Finish::Stop);
}

#[test]
fn anthropic_hosted_failure_unknown_block_and_stray_result() {
    let unknown = json!({"type": "hologram", "beam": [1.50, 2]});
    let stray = json!({"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_0", "content": {"type": "code_execution_result"}});
    let got = anthropic(
        &[
            (
                json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": "u"}}),
                &[],
            ),
            (
                json!({"type": "web_fetch_tool_result", "tool_use_id": "srvtoolu_1", "content": {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}}),
                &[],
            ),
            (unknown.clone(), &[]),
            (stray.clone(), &[]),
            (
                json!({"type": "compaction", "content": null}),
                &[json!({"type": "compaction_delta", "content": "sum"})],
            ),
        ],
        "pause_turn",
    );
    assert_eq!(
        got.calls[0].input.as_deref(),
        Some("{\"url\":\"u\"}"),
        "input that came whole"
    );
    assert!(got.results[0].2);
    assert_eq!(got.results[0].1, "url_not_accessible");
    assert_eq!(got.opaque[..2], [unknown.to_string(), stray.to_string()]);
    assert_eq!(
        serde_json::from_str::<Value>(&got.opaque[2]).unwrap(),
        json!({"type": "compaction", "content": "sum"})
    );
    assert_eq!(got.finish.unwrap().0, Finish::Pause);
}

#[test]
fn anthropic_stop_reasons() {
    for (reason, finish) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("tool_use", Finish::ToolCalls),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("refusal", Finish::ContentFilter),
        ("pause_turn", Finish::Pause),
        ("something_new", Finish::Other),
    ] {
        let got = anthropic(&[(json!({"type": "text", "text": "x"}), &[])], reason)
            .finish
            .unwrap();
        assert_eq!((got.0, got.1.as_deref()), (finish, Some(reason)));
    }
}

#[test]
fn anthropic_usage_is_net_and_later_wins() {
    let list = [
        json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 1}}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 500, "cache_read_input_tokens": null, "output_tokens_details": {"thinking_tokens": 300}}}),
        json!({"type": "message_stop"}),
    ];
    let got = read(Protocol::AnthropicMessages, events(&list));
    assert_eq!(
        got.finish.unwrap().2,
        Usage::from_gross(1000, 800, 0, 500, 300)
    );
    let cut = read(Protocol::AnthropicMessages, events(&list[..1]));
    assert_eq!(
        cut.usage.unwrap().prompt(),
        1000,
        "a cut attempt keeps what it cost"
    );
}

#[test]
fn anthropic_tokens_that_were_not_told_whole_are_unknown() {
    let start = json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 200, "output_tokens": 1}}});
    let end = |usage: Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let stop = json!({"type": "message_stop"});
    for list in [
        vec![start.clone(), end(json!(null)), stop.clone()],
        vec![
            start.clone(),
            end(json!({"input_tokens": 200})),
            stop.clone(),
        ],
        vec![
            start.clone(),
            end(json!({"output_tokens": null})),
            stop.clone(),
        ],
        vec![start.clone(), stop.clone()],
    ] {
        let got = read(Protocol::AnthropicMessages, events(&list));
        assert_eq!(
            got.finish.unwrap().2,
            Usage::default(),
            "the start's count is a placeholder"
        );
    }
    let list = [start, end(json!({"output_tokens": 0})), stop];
    let got = read(Protocol::AnthropicMessages, events(&list));
    assert_eq!(got.finish.unwrap().2, Usage::from_net(200, 0, 0, 0, 0));
}

#[test]
fn anthropic_parallel_blocks_without_starts() {
    let list = [
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
    ];
    assert_eq!(read(Protocol::AnthropicMessages, events(&list)).text, "hi");
}

#[test]
fn responses_reasoning_parts_are_apart_and_native_is_exact() {
    let item = r#"{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"one"},{"type":"summary_text","text":"two"}],"encrypted_content":"gAAA=="}"#;
    let body = format!(
        "data: {{\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{{\"type\":\"reasoning\",\"id\":\"rs_0\"}}}}\n\n\
         data: {{\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\"summary_index\":0,\"delta\":\"one\"}}\n\n\
         data: {{\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\"summary_index\":1,\"delta\":\"two\"}}\n\n\
         data: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{item}}}\n\n{}",
        events(&[completed()])
    );
    let got = read(Protocol::OpenaiResponses, body);
    assert_eq!(
        got.reasonings,
        vec![
            ("one".to_owned(), None),
            ("two".to_owned(), Some(item.to_owned()))
        ]
    );
}

#[test]
fn responses_items_that_were_never_streamed() {
    let output = json!([
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "late"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"},
    ]);
    let got = read(
        Protocol::OpenaiResponses,
        events(&[
            json!({"type": "response.completed", "response": {"id": "r", "model": "m", "output": output}}),
        ]),
    );
    assert_eq!(got.text, "late");
    assert_eq!(got.calls[0].input.as_deref(), Some("{}"));
    assert_eq!(got.finish.unwrap().0, Finish::ToolCalls);
    assert_eq!(
        got.started,
        Some((Some("r".to_owned()), Some("m".to_owned())))
    );
}

#[test]
fn responses_hosted_items() {
    let got = responses(
        &[
            json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}),
            json!({"type": "mcp_call", "id": "mcp_1", "name": "ask", "arguments": "{\"a\":1}", "output": "yes", "server_label": "s"}),
            json!({"type": "mcp_call", "id": "mcp_2", "name": "ask", "arguments": "{}", "error": "no"}),
            json!({"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}], "status": "completed"}),
            json!({"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}, "environment": {"type": "container_auto"}}),
            json!({"type": "shell_call_output", "id": "sho_1", "call_id": "c1", "output": [{"stdout": "x"}]}),
            json!({"type": "mcp_list_tools", "id": "mcpl_1"}),
        ],
        completed(),
    );
    let names: Vec<&str> = got.calls.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "web_search_call",
            "ask",
            "ask",
            "code_interpreter_call",
            "shell_call"
        ]
    );
    assert!(got.calls.iter().all(|c| c.executed && c.native.is_some()));
    assert_eq!(got.results.len(), 5);
    assert_eq!(
        (got.results[1].1.as_str(), got.results[1].2),
        ("yes", false)
    );
    assert_eq!((got.results[2].1.as_str(), got.results[2].2), ("no", true));
    assert!(got.results[0].3.is_none(), "call and result are one item");
    assert!(got.results[4].3.is_some());
    assert_eq!(got.opaque.len(), 1);
    assert_eq!(got.finish.unwrap().0, Finish::Stop);
}

#[test]
fn responses_ends() {
    let incomplete = |reason: &str| json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": reason}, "usage": {"input_tokens": 7, "output_tokens": 3}}});
    assert_eq!(
        responses(&[], incomplete("max_output_tokens"))
            .finish
            .unwrap()
            .0,
        Finish::Length
    );
    assert_eq!(
        responses(&[], incomplete("content_filter"))
            .finish
            .unwrap()
            .0,
        Finish::ContentFilter
    );
    let failed = responses(
        &[],
        json!({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "Please try again in 2s."}, "usage": {"input_tokens": 7, "output_tokens": 0}}}),
    );
    let error = failed.error.unwrap();
    assert_eq!(
        (error.class, error.retry_after_ms),
        (ErrorClass::RateLimit, Some(2000))
    );
    assert_eq!(failed.usage.unwrap().input, 7);
    let flat = responses(
        &[],
        json!({"type": "error", "code": "server_error", "message": "x", "sequence_number": 3}),
    );
    assert_eq!(flat.error.unwrap().class, ErrorClass::Server);
}

#[test]
fn chat_reasoning_comes_from_one_field_only() {
    let got = chat(
        &[
            json!({"reasoning": "a", "reasoning_content": "a"}),
            json!({"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0}]}),
            json!({"content": "<think>x</think> done"}),
        ],
        "stop",
    );
    assert_eq!(got.reasoning, "ab");
    assert_eq!(got.text, "<think>x</think> done");
    assert_eq!(
        native(&got.reasonings[0].1),
        json!({"field": "reasoning_content"})
    );
    assert_eq!(native(&got.reasonings[1].1), json!({"field": "reasoning"}));
}

#[test]
fn chat_reasoning_details_are_joined_and_sealed() {
    let got = chat(
        &[
            json!({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0, "format": "f"}]}),
            json!({"reasoning": "b", "reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "format": "f"}]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "signature": "S==", "index": 0, "format": "f"}]}),
            json!({"content": "x"}),
            json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "D==", "index": 1, "id": "rs"}]}),
        ],
        "stop",
    );
    assert_eq!(
        native(&got.reasonings[0].1),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "ab", "signature": "S==", "index": 0, "format": "f"}]})
    );
    assert_eq!(
        native(&got.reasonings[1].1)["reasoning_details"][0]["data"],
        "D=="
    );
    assert_eq!(got.reasoning, "ab");
}

#[test]
fn chat_content_may_be_a_list() {
    let got = chat(
        &[
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
            json!({"content": [{"type": "text", "text": "ok"}, {"type": "reference", "reference_ids": [1]}]}),
        ],
        "stop",
    );
    assert_eq!((got.reasoning.as_str(), got.text.as_str()), ("hm", "ok"));
    assert_eq!(native(&got.reasonings[0].1), json!({"field": "thinking"}));
}

#[test]
fn chat_finish_reasons() {
    let text = [json!({"content": "x"})];
    for (reason, finish) in [
        ("stop", Finish::Stop),
        ("length", Finish::Length),
        ("content_filter", Finish::ContentFilter),
        ("sensitive", Finish::ContentFilter),
        ("model_context_window_exceeded", Finish::Length),
        ("tool_calls", Finish::Stop),
        ("novel", Finish::Other),
    ] {
        assert_eq!(chat(&text, reason).finish.unwrap().0, finish, "{reason}");
    }
    let call = [
        json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}),
    ];
    assert_eq!(chat(&call, "stop").finish.unwrap().0, Finish::ToolCalls);
    assert_eq!(
        chat(&[], "model_context_window_exceeded")
            .error
            .unwrap()
            .class,
        ErrorClass::ContextOverflow
    );
}

#[test]
fn chat_without_any_finish_reason_ends_at_done() {
    let list = [
        json!({"model": "m", "choices": [{"index": 0, "delta": {"content": "4"}}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 22, "completion_tokens": 5}}),
    ];
    let got = read(Protocol::OpenaiChat, events(&list) + "data: [DONE]\n\n");
    let (finish, raw, usage) = got.finish.unwrap();
    assert_eq!((finish, raw, usage.output), (Finish::Stop, None, 5));
}

#[test]
fn chat_usage_of_every_vendor() {
    let usage = |value: Value| {
        let list = [
            json!({"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}),
            value,
        ];
        read(Protocol::OpenaiChat, events(&list)).finish.unwrap().2
    };
    let want = Usage::from_gross(1000, 800, 0, 500, 300);
    for counts in [
        json!({"prompt_tokens": 1000, "completion_tokens": 500, "prompt_tokens_details": {"cached_tokens": 800}, "completion_tokens_details": {"reasoning_tokens": 300}}),
        json!({"prompt_tokens": 1000, "completion_tokens": 500, "prompt_cache_hit_tokens": 800, "prompt_cache_miss_tokens": 200, "reasoning_tokens": 300}),
        json!({"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1500, "cached_tokens": 800, "completion_tokens_details": {"reasoning_tokens": 300}}),
        json!({"prompt_tokens": 1000.0, "completion_tokens": "500", "cached_tokens": 800, "reasoning_tokens": 300}),
    ] {
        assert_eq!(
            usage(json!({"choices": [], "usage": counts})),
            want,
            "{counts}"
        );
        assert_eq!(
            usage(json!({"choices": [], "x_groq": {"id": "r", "usage": counts}})),
            want,
            "{counts}"
        );
    }
    let odd = usage(
        json!({"usage": {"prompt_tokens": -5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 99}}}),
    );
    assert_eq!((odd.input, odd.cache_read, odd.output), (0, 0, 3));
}

#[test]
fn chat_errors_inside_the_stream() {
    let list = |error: Value| {
        events(&[
            json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "par"}}]}),
            error,
        ])
    };
    let got = read(
        Protocol::OpenaiChat,
        list(json!({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}})),
    );
    assert_eq!(
        (got.text.as_str(), got.error.unwrap().class),
        ("par", ErrorClass::RateLimit)
    );
    let got = read(
        Protocol::OpenaiChat,
        list(json!({"error": "model runner stopped: internal error"})),
    );
    assert_eq!(got.error.unwrap().class, ErrorClass::Server);
    let got = read(
        Protocol::OpenaiChat,
        list(
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 502, "message": "upstream"}}]}),
        ),
    );
    assert_eq!(got.error.unwrap().class, ErrorClass::Server);
    let got = read(
        Protocol::OpenaiChat,
        list(
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "error": {"code": 400, "message": "Token limit reached"}}),
        ),
    );
    assert_eq!(
        got.finish.unwrap().0,
        Finish::Length,
        "the object explains the reason"
    );
    let got = read(
        Protocol::OpenaiChat,
        list(json!({"choices": [], "error": null}))
            + "error: {\"error\":{\"message\":\"failed to decode\"}}\n",
    );
    assert_eq!(got.error.unwrap().class, ErrorClass::Server);
}

#[test]
fn chat_other_choices_are_left_out() {
    let list = [
        json!({"choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}, {"index": 1, "delta": {}, "finish_reason": "length"}]}),
    ];
    let got = read(Protocol::OpenaiChat, events(&list));
    assert_eq!(
        (got.text.as_str(), got.finish.unwrap().0),
        ("yes", Finish::Stop)
    );
}

#[test]
fn chat_refusal_is_said_to_the_user() {
    assert_eq!(
        chat(
            &[json!({"refusal": "I "}), json!({"refusal": "can't"})],
            "stop"
        )
        .text,
        "I can't"
    );
}

#[test]
fn responses_items_that_were_never_done_are_closed() {
    let list = |last: &str| {
        events(&[
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs"}}),
            json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"}),
            json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "id": "m"}}),
            json!({"type": "response.output_text.delta", "output_index": 1, "delta": "x"}),
            json!({"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "call_id": "a", "name": "f"}}),
            json!({"type": "response.function_call_arguments.delta", "output_index": 2, "delta": "{}"}),
            json!({"type": "response.output_item.added", "output_index": 3, "item": {"type": "function_call", "call_id": "b", "name": "f"}}),
            json!({"type": last, "response": {}}),
        ])
    };
    let got = read(Protocol::OpenaiResponses, list("response.completed"));
    assert_eq!((got.text.as_str(), got.reasoning.as_str()), ("x", "hm"));
    assert_eq!(got.calls[0].input.as_deref(), Some("{}"));
    assert_eq!(got.calls[1].input.as_deref(), Some(""));
    let cut = read(Protocol::OpenaiResponses, list("response.incomplete"));
    assert_eq!(cut.calls[1].input, None);
}
