//! Own Chat streams, one for each server's habit.

use crate::fold::{Folded, read};
use crate::streams::{chat, events};
use serde_json::{Value, json};
use tenure_core::error::ErrorClass;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

fn body(list: &[Value]) -> Folded {
    read(Protocol::OpenaiChat, events(list) + "data: [DONE]\n\n")
}

fn delta(delta: Value) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]})
}

fn stop(reason: &str) -> Value {
    json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn native(text: &Option<String>) -> Value {
    serde_json::from_str(text.as_ref().expect("native state")).unwrap()
}

#[test]
fn azure_filters_first_and_filter_results_beside_the_text() {
    let got = body(&[
        json!({"choices": [], "created": 0, "id": "", "model": "", "object": "",
               "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {"hate": {"filtered": false}}}]}),
        json!({"id": "c1", "model": "gpt", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""},
               "content_filter_results": {}, "finish_reason": null}]}),
        json!({"id": "c1", "choices": [{"index": 0, "delta": {"content": "Hi"}, "content_filter_results": {"hate": {"filtered": false}}}]}),
        json!({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter",
               "content_filter_results": {"hate": {"filtered": true, "severity": "high"}}}]}),
        json!({"id": "c1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}),
    ]);
    assert_eq!(got.text, "Hi");
    let finish = got.finish.unwrap();
    assert_eq!(finish.0, Finish::ContentFilter);
    assert_eq!(finish.2, Usage::from_gross(3, 0, 0, 1, 0));
}

#[test]
fn groq_tools_that_ran_there_are_calls_with_results() {
    let search = r#"{"index":0,"type":"search","arguments":"{\"query\":\"rust\"}","output":"","search_results":{"results":[{"title":"Rust","url":"https://r.example","content":"…","score":0.50}]}}"#;
    let list = format!(
        "data: {}\n\ndata: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"executed_tools\":[{search}]}}}}]}}\n\ndata: {}\n\ndata: {}\n\ndata: {}\n\ndata: [DONE]\n\n",
        delta(
            json!({"reasoning": "I look.", "executed_tools": [{"index": 0, "type": "search", "arguments": "{\"query\":\"rust\"}"}]})
        ),
        delta(
            json!({"executed_tools": [{"index": 1, "type": "python", "arguments": "{\"code\":\"print(1)\"}", "output": "1\n"}]})
        ),
        delta(json!({"content": "Found."})),
        json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
               "x_groq": {"id": "req", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}}),
    );
    let got = read(Protocol::OpenaiChat, list);
    assert_eq!(got.calls.len(), 2);
    assert!(got.calls.iter().all(|call| call.executed));
    assert_eq!(
        (got.calls[0].name.as_str(), got.calls[0].input.as_deref()),
        ("search", Some("{\"query\":\"rust\"}"))
    );
    assert_ne!(got.calls[0].id, got.calls[1].id);
    assert_eq!(got.results[0].1, "Rust\nhttps://r.example");
    assert_eq!(got.results[0].3.as_deref(), Some(search), "byte for byte");
    assert_eq!(got.results[1].1, "1\n");
    let finish = got.finish.unwrap();
    assert_eq!(finish.0, Finish::Stop, "nothing is left to be called");
    assert_eq!(finish.2, Usage::from_gross(5, 0, 0, 2, 0));
}

#[test]
fn sources_are_kept_beside_their_text_once() {
    let annotation = json!({"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0, "end_index": 3}});
    let got = body(&[
        delta(json!({"content": "It is."})),
        delta(json!({"content": "", "annotations": [annotation]})),
        stop("stop"),
    ]);
    assert_eq!(
        native(&got.texts[0].1),
        json!({"annotations": [annotation]})
    );

    let chunk = |text: &str| {
        json!({"id": "c", "citations": ["https://p.example"],
               "search_results": [{"title": "P", "url": "https://p.example", "date": null}],
               "usage": {"prompt_tokens": 1, "completion_tokens": 1},
               "choices": [{"index": 0, "delta": {"content": text}, "message": {"role": "assistant", "content": "all of it"}}]})
    };
    let mut last = chunk("");
    last["choices"][0]["finish_reason"] = json!("stop");
    let got = body(&[chunk("One "), chunk("two."), last]);
    assert_eq!(got.text, "One two.");
    assert_eq!(
        native(&got.texts[0].1),
        json!({"citations": ["https://p.example"],
               "search_results": [{"title": "P", "url": "https://p.example", "date": null}]})
    );
    assert_eq!(got.opaque, Vec::<String>::new(), "said once");

    let late = body(&[
        delta(json!({"content": "x"})),
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}),
        ),
        delta(json!({"annotations": [annotation]})),
        stop("tool_calls"),
    ]);
    assert_eq!(late.texts[0].1, None);
    assert!(late.opaque[0].contains("url_citation"), "kept, not lost");

    let glm = body(&[
        json!({"id": "c", "web_search": [{"title": "G", "link": "https://g.example"}], "choices": [{"index": 0, "delta": {"content": "so"}}]}),
        stop("stop"),
    ]);
    assert!(native(&glm.texts[0].1).get("web_search").is_some());
}

#[test]
fn router_details_with_signature_encrypted_and_comments() {
    let text = ": OPENROUTER PROCESSING\n\n".to_owned()
        + &events(&[
            delta(
                json!({"reasoning": "Two ", "reasoning_details": [{"type": "reasoning.text", "text": "Two ", "index": 0, "format": "f"}]}),
            ),
            delta(
                json!({"reasoning": "words", "reasoning_details": [{"type": "reasoning.text", "text": "words", "index": 0, "format": "f"}]}),
            ),
            delta(
                json!({"reasoning_details": [{"type": "reasoning.text", "signature": "S+/=", "index": 0, "format": "f"}]}),
            ),
            delta(
                json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "E==", "id": "rs_1", "index": 1}]}),
            ),
        ])
        + ": OPENROUTER PROCESSING\n\n"
        + &events(&[delta(json!({"content": "ok"})), stop("stop")]);
    let got = read(Protocol::OpenaiChat, text + "data: [DONE]\n\n");
    assert_eq!(got.reasoning, "Two words");
    assert_eq!(
        native(&got.reasonings[0].1)["reasoning_details"],
        json!([
            {"type": "reasoning.text", "text": "Two words", "signature": "S+/=", "index": 0, "format": "f"},
            {"type": "reasoning.encrypted", "data": "E==", "id": "rs_1", "index": 1}
        ])
    );
}

#[test]
fn copilots_sealed_reasoning_is_kept_and_mistrals_parts_are_read() {
    let got = body(&[
        delta(json!({"reasoning_text": "Hm"})),
        delta(json!({"reasoning_text": ".", "reasoning_opaque": "seal=="})),
        delta(json!({"content": "ok"})),
        stop("stop"),
    ]);
    assert_eq!(got.reasoning, "Hm.");
    assert_eq!(
        native(&got.reasonings[0].1),
        json!({"field": "reasoning_text", "reasoning_opaque": "seal=="})
    );
    let got = chat(
        &[
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Let "}]}]}),
            json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "me."}], "closed": true}, {"type": "text", "text": "Yes"}]}),
        ],
        "stop",
    );
    assert_eq!(
        (got.reasoning.as_str(), got.text.as_str()),
        ("Let me.", "Yes")
    );
}

#[test]
fn thinking_left_in_the_text_stays_there() {
    let got = chat(
        &[
            json!({"content": "<think>\nhm\n</think>\n"}),
            json!({"content": "Yes"}),
        ],
        "stop",
    );
    assert_eq!(got.text, "<think>\nhm\n</think>\nYes");
    assert_eq!(
        got.reasoning, "",
        "some models must read it where they wrote it"
    );
}

#[test]
fn calls_without_index_that_come_whole_alternate_or_name_themselves_late() {
    let call = |id: Value, name: Value, arguments: &str| json!({"tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}}]});
    let whole = chat(
        &[json!({"tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"n\":1}"}},
            {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{\"n\":2}"}}]})],
        "tool_calls",
    );
    let inputs: Vec<_> = whole.calls.iter().map(|c| c.input.as_deref()).collect();
    assert_eq!(inputs, [Some("{\"n\":1}"), Some("{\"n\":2}")]);

    let turns = chat(
        &[
            call(json!("a"), json!("f"), "{\"n\""),
            call(json!("b"), json!("g"), "{\"m\""),
            call(json!("a"), Value::Null, ":1}"),
            call(json!("b"), Value::Null, ":2}"),
        ],
        "tool_calls",
    );
    let inputs: Vec<_> = turns.calls.iter().map(|c| c.input.as_deref()).collect();
    assert_eq!(inputs, [Some("{\"n\":1}"), Some("{\"m\":2}")]);

    let late = chat(
        &[
            json!({"tool_calls": [{"index": 0, "id": null, "function": {"name": null, "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "id": "z", "function": {"name": "f"}}]}),
            json!({"tool_calls": [{"index": 0, "id": null, "function": {"name": null, "arguments": "{}"}}]}),
        ],
        "tool_calls",
    );
    assert_eq!((late.calls.len(), late.calls[0].name.as_str()), (1, "f"));
    let new = chat(
        &[
            call(json!("a"), json!("f"), "{}"),
            json!({"tool_calls": [{"id": "b", "function": {"arguments": ""}}]}),
            json!({"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}}]}),
        ],
        "tool_calls",
    );
    let names: Vec<_> = new.calls.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["f", "g"], "nothing follows a whole object");
}

#[test]
fn legacy_function_calls_and_what_nobody_reads() {
    let got = chat(
        &[
            json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": ""}}),
            json!({"function_call": {"arguments": "{\"a\":"}}),
            json!({"function_call": {"arguments": "1}"}, "audio": {"data": "AAAA"}}),
        ],
        "function_call",
    );
    assert_eq!(got.calls[0].input.as_deref(), Some("{\"a\":1}"));
    assert_eq!(got.finish.unwrap().0, Finish::ToolCalls);
    let got = body(&[
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"token": "x", "logprob": -0.1}]}}],
               "obfuscation": "abc", "service_tier": "default", "timings": {"prompt_n": 1}}),
        stop("eos"),
    ]);
    assert_eq!(
        (got.text.as_str(), got.finish.unwrap().0),
        ("x", Finish::Stop)
    );
}

#[test]
fn odd_finishes_mean_what_they_say() {
    for (reason, finish) in [
        ("eos_token", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("tool_use", Finish::Stop),
        ("model_length", Finish::Length),
        ("sensitive", Finish::ContentFilter),
        ("something_new", Finish::Other),
    ] {
        let got = chat(&[json!({"content": "x"})], reason);
        assert_eq!(got.finish.unwrap().0, finish, "{reason}");
    }
    for (reason, class) in [
        ("network_error", ErrorClass::Server),
        ("error", ErrorClass::Server),
        ("insufficient_system_resource", ErrorClass::Overloaded),
        ("abort", ErrorClass::Cut),
    ] {
        let got = chat(&[json!({"content": "x"})], reason);
        assert_eq!(got.finish, None, "{reason}");
        assert_eq!(got.error.unwrap().class, class, "{reason}");
    }
    let none = body(&[
        delta(
            json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}),
        ),
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": ""}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    ]);
    assert_eq!(
        none.finish.unwrap().0,
        Finish::ToolCalls,
        "no reason at all"
    );
}

#[test]
fn errors_in_each_servers_shape() {
    let first = delta(json!({"content": "par"}));
    for (shape, class) in [
        (
            json!({"object": "error", "message": "Rate limit exceeded", "type": "rate_limited", "param": null, "code": "1300"}),
            ErrorClass::RateLimit,
        ),
        (
            json!({"object": "error", "message": "EngineCore encountered an issue.", "type": "InternalServerError", "param": null, "code": 500}),
            ErrorClass::Server,
        ),
        (
            json!({"code": "DataInspectionFailed", "message": "Output data may contain inappropriate content.", "request_id": "r"}),
            ErrorClass::ContentFilter,
        ),
        (
            json!({"detail": "Internal Server Error"}),
            ErrorClass::Server,
        ),
        (
            json!({"id": "gen", "error": {"code": 429, "message": "Rate limit exceeded", "metadata": {"provider_name": "X"}},
                   "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error", "native_finish_reason": null}]}),
            ErrorClass::RateLimit,
        ),
    ] {
        let got = body(&[first.clone(), shape.clone()]);
        assert_eq!(got.text, "par");
        let error = got.error.unwrap_or_else(|| panic!("no error for {shape}"));
        assert_eq!(error.class, class, "{shape}: {error:?}");
    }
    let chunk = json!({"object": "chat.completion.chunk", "message": null, "choices": []});
    assert_eq!(body(&[first, chunk, stop("stop")]).error, None);
}
