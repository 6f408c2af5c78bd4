//! Own streams of Gemini, one for each thing its form can say.

use crate::fold::{Folded, decode_cut, read};
use crate::invariants::any_body;
use serde_json::{Value, json};
use tenure_core::error::ErrorClass;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_provider::{Decoder, Protocol};

/// An event with these parts.
fn parts(parts: Value) -> String {
    let chunk = json!({
        "candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0}],
        "modelVersion": "gemini-x", "responseId": "r1"
    });
    format!("data: {chunk}\r\n\r\n")
}

/// The last event.
fn finish(reason: &str) -> String {
    let chunk = json!({
        "candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": reason, "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
        "modelVersion": "gemini-x", "responseId": "r1"
    });
    format!("data: {chunk}\r\n\r\n")
}

/// A finished response of these parts, each in an event of its own.
fn said(list: &[Value]) -> Folded {
    let body: String = list.iter().map(|part| parts(json!([part]))).collect();
    read(Protocol::Gemini, body + &finish("STOP"))
}

fn native(text: &Option<String>) -> Value {
    serde_json::from_str(text.as_ref().expect("native state")).unwrap()
}

#[test]
fn text_and_thoughts_are_blocks_in_their_order() {
    let got = said(&[
        json!({"text": "Let me ", "thought": true}),
        json!({"text": "think.", "thought": true}),
        json!({"text": "It "}),
        json!({"text": "is.", "thought": false}),
        json!({"text": "More.", "thought": true}),
    ]);
    assert_eq!(
        got.started,
        Some((Some("r1".into()), Some("gemini-x".into())))
    );
    let plain = |text: &str| (text.to_owned(), None);
    assert_eq!(got.reasonings, [plain("Let me think."), plain("More.")]);
    assert_eq!(got.texts, [plain("It is.")], "unsigned parts are joined");
    assert_eq!(got.finish.unwrap().0, Finish::Stop);
}

#[test]
fn a_signature_stays_on_the_part_it_came_with() {
    let signature = "CiMB+/=\\u003d";
    let first = json!({"text": "Hello", "thoughtSignature": signature});
    let thought = json!({"text": "hm", "thought": true, "thoughtSignature": "t=="});
    let last = json!({"text": "", "thoughtSignature": "end=="});
    let got = said(&[
        json!({"text": "a"}),
        first.clone(),
        json!({"text": " world"}),
        thought.clone(),
        json!({"text": "b"}),
        last.clone(),
    ]);
    let texts: Vec<&str> = got.texts.iter().map(|t| t.0.as_str()).collect();
    assert_eq!(texts, ["aHello world", "b"], "a signature parts no words");
    let run = format!("{{\"parts\":[{{\"text\":\"a\"}},{first},{{\"text\":\" world\"}}]}}");
    assert_eq!(got.texts[0].1, Some(run), "byte for byte");
    let run = format!("{{\"parts\":[{{\"text\":\"b\"}},{last}]}}");
    assert_eq!(
        got.texts[1].1,
        Some(run),
        "also a part of a signature alone"
    );
    assert_eq!(
        got.reasonings,
        [("hm".to_owned(), Some(thought.to_string()))]
    );
    let got = said(std::slice::from_ref(&first));
    assert_eq!(got.texts, [("Hello".to_owned(), Some(first.to_string()))]);
}

#[test]
fn a_thought_before_a_signed_one_stays_a_thought() {
    let signed = json!({"text": "so", "thought": true, "thoughtSignature": "t=="});
    let got = said(&[
        json!({"text": "hm, ", "thought": true}),
        signed.clone(),
        json!({"text": "yes"}),
    ]);
    let plain = json!({"text": "hm, ", "thought": true});
    assert_eq!(got.reasonings.len(), 1);
    assert_eq!(
        native(&got.reasonings[0].1),
        json!({"parts": [plain, signed]}),
        "without the mark it would go back as if it had been said"
    );
}

#[test]
fn parallel_calls_with_and_without_ids() {
    let calls = json!([
        {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": "S=="},
        {"functionCall": {"name": "read", "args": {"path": "b"}}},
        {"functionCall": {"name": "list", "args": {}, "id": "v1"}},
        {"functionCall": {"name": "list", "id": "v1"}},
    ]);
    let body = parts(calls) + &finish("STOP");
    let got = read(Protocol::Gemini, &body);
    assert_eq!(got.calls.len(), 4);
    let ids: Vec<&str> = got.calls.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(
        (ids[2], ids[3]),
        ("v1", "v1_2"),
        "the vendor's where possible, each once"
    );
    assert!(ids[0] != ids[1] && !ids[0].is_empty());
    assert_eq!(got.calls[0].input.as_deref(), Some("{\"path\":\"a\"}"));
    assert_eq!(got.calls[0].streamed, "{\"path\":\"a\"}");
    assert_eq!(got.calls[3].input.as_deref(), Some(""));
    assert_eq!(
        native(&got.calls[0].native),
        json!({"functionCall": {}, "thoughtSignature": "S=="})
    );
    assert_eq!(
        got.calls[1].native, None,
        "nothing that name and arguments do not say"
    );
    assert_eq!(
        native(&got.calls[2].native),
        json!({"functionCall": {"id": "v1"}})
    );
    assert_eq!(got.finish.clone().unwrap().0, Finish::ToolCalls);
    // The same bytes give the same ids, another response gives others.
    assert_eq!(read(Protocol::Gemini, &body), got);
    let other = read(Protocol::Gemini, body.replace("\"r1\"", "\"r2\""));
    assert_ne!(other.calls[0].id, got.calls[0].id);
}

#[test]
fn arguments_in_every_type() {
    for (args, input) in [
        (json!(null), ""),
        (json!({"a": [1.50, "ü"]}), "{\"a\":[1.5,\"ü\"]}"),
        (json!("{\"a\":1}"), "{\"a\":1}"),
        (json!(7), ""),
    ] {
        let got = said(&[json!({"functionCall": {"name": "x", "args": args}})]);
        assert_eq!(got.calls[0].input.as_deref(), Some(input), "{args}");
    }
    // As it came, byte for byte.
    let spaced = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"args\":{ \"n\" : 1.0 },\"name\":\"x\"}}]}}]}\n\n";
    let got = read(Protocol::Gemini, spaced.to_owned() + &finish("STOP"));
    assert_eq!(got.calls[0].input.as_deref(), Some("{ \"n\" : 1.0 }"));
}

#[test]
fn arguments_that_come_path_by_path() {
    let piece = |partial: Value, more: bool| {
        let mut call = json!({"functionCall": {"partialArgs": [partial]}});
        if more {
            call["functionCall"]["willContinue"] = json!(true);
        }
        call
    };
    let open = |name: &str| json!({"functionCall": {"name": name, "willContinue": true}, "thoughtSignature": "S=="});
    let got = said(&[
        open("one"),
        piece(
            json!({"jsonPath": "$.a.b[0]", "stringValue": "Bos", "willContinue": true}),
            true,
        ),
        piece(json!({"jsonPath": "$.a.b[0]", "stringValue": "ton"}), true),
        json!({"functionCall": {}}),
        open("two"),
        piece(json!({"jsonPath": "$.n", "numberValue": 0.5}), true),
        // The next call begins without a word of this one's end, and text ends the last.
        open("three"),
        piece(json!({"jsonPath": "$.yes", "boolValue": true}), true),
        json!({"text": "so"}),
    ]);
    let calls: Vec<(&str, Value)> = got
        .calls
        .iter()
        .map(|c| {
            (
                c.name.as_str(),
                serde_json::from_str(c.input.as_ref().unwrap()).unwrap(),
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("one", json!({"a": {"b": ["Boston"]}})),
            ("two", json!({"n": 0.5})),
            ("three", json!({"yes": true})),
        ]
    );
    assert!(
        got.calls
            .iter()
            .all(|c| native(&c.native)["thoughtSignature"] == "S==")
    );
}

#[test]
fn a_call_that_was_cut_off_is_not_made() {
    let open = parts(json!([{"functionCall": {"name": "write", "willContinue": true}}]))
        + &parts(
            json!([{"functionCall": {"partialArgs": [{"jsonPath": "$.text", "stringValue": "half",
            "willContinue": true}], "willContinue": true}}]),
        );
    let limited = read(Protocol::Gemini, open.clone() + &finish("MAX_TOKENS"));
    assert_eq!((limited.calls.len(), &limited.calls[0].input), (1, &None));
    assert_eq!(limited.finish.unwrap().0, Finish::Length);
    let cut = read(Protocol::Gemini, open.clone());
    assert_eq!((cut.calls.len(), &cut.calls[0].input), (1, &None));
    assert_eq!(cut.error.unwrap().class, ErrorClass::Cut);
    // A stream that ends well has said everything, also without the call's own end.
    let whole = read(Protocol::Gemini, open + &finish("STOP"));
    assert_eq!(whole.calls[0].input.as_deref(), Some("{\"text\":\"half\"}"));
}

#[test]
fn code_run_by_the_provider_has_its_result() {
    let code = json!({"executableCode": {"code": "print(1)\n", "language": "PYTHON", "id": "c1"}, "thoughtSignature": "S=="});
    let result =
        json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n", "id": "c1"}});
    let failed = json!({"codeExecutionResult": {"outcome": "OUTCOME_DEADLINE_EXCEEDED"}});
    let got = said(&[
        code.clone(),
        result.clone(),
        json!({"executableCode": {"code": "x", "language": "PYTHON"}}),
        failed.clone(),
        failed.clone(),
        json!({"executableCode": {"code": "never answered", "language": "PYTHON"}}),
    ]);
    assert!(
        got.calls
            .iter()
            .all(|c| c.executed && c.name == "code_execution")
    );
    assert_eq!(got.calls[0].id, "c1");
    let input: Value = serde_json::from_str(got.calls[0].input.as_ref().unwrap()).unwrap();
    assert_eq!(input, json!({"code": "print(1)\n", "language": "PYTHON"}));
    assert_eq!(got.calls[0].native, Some(code.to_string()));
    assert_eq!(
        got.results,
        [
            (
                "c1".to_owned(),
                "1\n".to_owned(),
                false,
                Some(result.to_string())
            ),
            (
                got.calls[1].id.clone(),
                "OUTCOME_DEADLINE_EXCEEDED".to_owned(),
                true,
                Some(failed.to_string())
            ),
        ]
    );
    assert_eq!(
        got.opaque,
        [failed.to_string()],
        "a result of nothing is only kept"
    );
    assert_eq!(got.finish.unwrap().0, Finish::Stop, "nothing for us to run");
}

#[test]
fn other_tools_of_the_providers_are_told_by_their_type() {
    let got = said(&[
        json!({"toolCall": {"toolType": "FILE_SEARCH", "id": "s1", "args": {"q": "x"}}, "thoughtSignature": "A"}),
        json!({"toolCall": {"toolType": "MAPS", "id": "s2"}}),
        json!({"toolResponse": {"toolType": "MAPS", "id": "s2", "response": {"n": 1}}}),
        json!({"toolResponse": {"toolType": "FILE_SEARCH", "id": "s1"}}),
    ]);
    let calls: Vec<(&str, &str)> = got
        .calls
        .iter()
        .map(|c| (c.name.as_str(), c.input.as_deref().unwrap()))
        .collect();
    assert_eq!(calls, [("FILE_SEARCH", "{\"q\":\"x\"}"), ("MAPS", "{}")]);
    let results: Vec<(&str, &str)> = got
        .results
        .iter()
        .map(|r| (r.0.as_str(), r.1.as_str()))
        .collect();
    assert_eq!(results, [("s2", "{\"n\":1}"), ("s1", "")]);
}

#[test]
fn what_a_search_found_is_a_hosted_call_and_other_grounding_is_kept() {
    let with = |grounding: &Value| {
        let empty = json!({"candidates": [{"content": {"parts": [{"text": "It rains."}]}, "groundingMetadata": {}}]});
        let last = json!({"candidates": [{"finishReason": "STOP", "groundingMetadata": grounding,
            "urlContextMetadata": {"urlMetadata": []}}]});
        read(
            Protocol::Gemini,
            format!("data: {empty}\n\ndata: {last}\n\n"),
        )
    };
    let found = json!({"webSearchQueries": ["weather"], "groundingChunks": [
        {"web": {"uri": "https://e.example", "title": "E"}}, {"web": {"uri": "https://f.example"}}]});
    let got = with(&found);
    assert_eq!(
        (got.calls.len(), got.calls[0].name.as_str()),
        (1, "google_search")
    );
    assert!(got.calls[0].executed);
    assert_eq!(
        got.calls[0].input.as_deref(),
        Some("{\"queries\":[\"weather\"]}")
    );
    assert_eq!(got.results[0].1, "E https://e.example\nhttps://f.example");
    assert_eq!(native(&got.calls[0].native)["groundingMetadata"], found);
    assert_eq!(
        got.opaque,
        ["{\"urlContextMetadata\":{\"urlMetadata\":[]}}"]
    );

    let files = json!({"groundingChunks": [{"retrievedContext": {"text": "x"}}]});
    let got = with(&files);
    assert_eq!(got.calls, []);
    assert!(
        got.opaque[1].starts_with("{\"groundingMetadata\":"),
        "{:?}",
        got.opaque
    );
}

#[test]
fn pictures_and_unknown_parts_are_kept_as_they_came() {
    let picture =
        json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thoughtSignature": "P"});
    let unknown = json!({"newThing": {"x": 1}});
    let got = said(&[
        json!({"text": "Here:"}),
        picture.clone(),
        unknown.clone(),
        json!({}),
    ]);
    assert_eq!(got.texts[1], (String::new(), Some(picture.to_string())));
    assert_eq!(got.opaque, [unknown.to_string()]);
}

#[test]
fn every_finish_reason_has_its_meaning() {
    for (reason, finish_as) in [
        ("STOP", Finish::Stop),
        ("MAX_TOKENS", Finish::Length),
        ("SAFETY", Finish::ContentFilter),
        ("RECITATION", Finish::ContentFilter),
        ("BLOCKLIST", Finish::ContentFilter),
        ("PROHIBITED_CONTENT", Finish::ContentFilter),
        ("SPII", Finish::ContentFilter),
        ("MODEL_ARMOR", Finish::ContentFilter),
        ("IMAGE_SAFETY", Finish::ContentFilter),
        ("LANGUAGE", Finish::Other),
        ("OTHER", Finish::Other),
        ("SOMETHING_NEW", Finish::Other),
    ] {
        let got = read(
            Protocol::Gemini,
            parts(json!([{"text": "x"}])) + &finish(reason),
        );
        let (got, raw, usage) = got.finish.unwrap();
        assert_eq!((got, raw.as_deref()), (finish_as, Some(reason)));
        assert_eq!((usage.prompt(), usage.output), (10, 5));
    }
}

#[test]
fn a_call_the_model_could_not_write_is_worth_another_try() {
    for reason in [
        "MALFORMED_FUNCTION_CALL",
        "UNEXPECTED_TOOL_CALL",
        "TOO_MANY_TOOL_CALLS",
    ] {
        let last = json!({"candidates": [{"content": {}, "finishReason": reason,
            "finishMessage": "Malformed function call: print(read('a'))"}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2}});
        let got = read(
            Protocol::Gemini,
            parts(json!([{"text": "I'll"}])) + &format!("data: {last}\n\n"),
        );
        let error = got.error.unwrap();
        assert!(error.class.retryable(), "{error:?}");
        assert_eq!(error.code.as_deref(), Some(reason));
        assert!(
            error.message.contains("print(read('a'))"),
            "{}",
            error.message
        );
        assert_eq!(got.usage.unwrap().output, 2, "it was paid for");
    }
}

#[test]
fn a_refused_prompt_says_why() {
    let body = "data: {\"promptFeedback\":{\"blockReason\":\"PROHIBITED_CONTENT\",\"blockReasonMessage\":\"no\"},\
                \"usageMetadata\":{\"promptTokenCount\":7},\"modelVersion\":\"m\"}\n\n";
    let got = read(Protocol::Gemini, body);
    let error = got.error.unwrap();
    assert_eq!(
        (error.class, error.class.retryable()),
        (ErrorClass::ContentFilter, false)
    );
    assert!(error.message.contains("PROHIBITED_CONTENT") && error.message.contains("no"));
    assert_eq!(got.usage.unwrap().prompt(), 7);
    // Safety ratings of an accepted prompt are no refusal.
    let rated = "data: {\"promptFeedback\":{\"safetyRatings\":[]}}\n\n".to_owned();
    assert!(
        read(Protocol::Gemini, rated + &finish("STOP"))
            .finish
            .is_some()
    );
}

#[test]
fn errors_in_the_stream_end_it_with_their_class() {
    for (error, class) in [
        (
            json!({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}),
            ErrorClass::Overloaded,
        ),
        (
            json!({"code": 500, "message": "Internal error encountered.", "status": "INTERNAL"}),
            ErrorClass::Server,
        ),
        (
            json!({"code": 429, "message": "Resource has been exhausted (e.g. check quota).", "status": "RESOURCE_EXHAUSTED"}),
            ErrorClass::RateLimit,
        ),
        (
            json!({"code": 400, "message": "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}),
            ErrorClass::ContextOverflow,
        ),
    ] {
        for body in [
            json!({"error": error}).to_string(),
            json!([{"error": error}]).to_string(),
        ] {
            let got = read(
                Protocol::Gemini,
                parts(json!([{"text": "par"}]))
                    + &format!("data: {body}\n\n")
                    + &parts(json!([{"text": "never"}])),
            );
            assert_eq!(got.text, "par");
            assert_eq!(got.error.unwrap().class, class, "{body}");
        }
    }
}

#[test]
fn the_stream_goes_on_behind_a_finish_between_its_steps() {
    let body = parts(json!([{"executableCode": {"code": "1", "language": "PYTHON"}}]))
        + &finish("STOP")
        + &parts(
            json!([{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}, {"text": "One."}]),
        )
        + &finish("MAX_TOKENS");
    let mut decoder = Decoder::new(Protocol::Gemini);
    let half = body.find("codeExecutionResult").unwrap();
    decoder.feed(&body.as_bytes()[..half]);
    assert!(decoder.finish_seen() && !decoder.is_ended());
    let got = read(Protocol::Gemini, &body);
    assert_eq!((got.text.as_str(), got.results.len()), ("One.", 1));
    assert_eq!(
        got.finish.unwrap().1.as_deref(),
        Some("MAX_TOKENS"),
        "the last one"
    );
}

#[test]
fn tokens_are_counted_once() {
    let usage = |counts: Value| {
        let chunk = json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": counts});
        read(Protocol::Gemini, format!("data: {chunk}\n\n"))
            .usage
            .unwrap()
    };
    let got = usage(
        json!({"promptTokenCount": 1000, "cachedContentTokenCount": 800, "candidatesTokenCount": 50,
        "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 20, "totalTokenCount": 1100}),
    );
    assert_eq!(
        (got.input, got.cache_read, got.output, got.reasoning),
        (220, 800, 80, 30)
    );
    // An endpoint that counts thoughts within the answer says so by its total.
    let got = usage(
        json!({"promptTokenCount": 10, "candidatesTokenCount": 50, "thoughtsTokenCount": 30, "totalTokenCount": 60}),
    );
    assert_eq!((got.output, got.reasoning), (50, 30));
    // Nonsense is not believed, and never negative.
    let got = usage(
        json!({"promptTokenCount": 10, "cachedContentTokenCount": 99, "candidatesTokenCount": "5", "thoughtsTokenCount": null}),
    );
    assert_eq!(
        (got.input, got.cache_read, got.output, got.reasoning),
        (0, 10, 5, 0)
    );
    // A later event tells less; what it leaves out is kept.
    let body = "data: {\"usageMetadata\":{\"promptTokenCount\":20,\"candidatesTokenCount\":9,\"thoughtsTokenCount\":4}}\n\n\
                data: {\"usageMetadata\":{\"promptTokenCount\":20,\"trafficType\":\"ON_DEMAND\"}}\n\n";
    let got = read(Protocol::Gemini, body);
    assert_eq!(got.error.unwrap().class, ErrorClass::Cut);
    assert_eq!(got.usage.unwrap().output, 13);
}

#[test]
fn what_a_server_bends_is_read_as_far_as_it_goes() {
    let bodies = [
        "data: {\"candidates\":null,\"usageMetadata\":null,\"modelVersion\":7}\n\n",
        "data: {\"candidates\":[{\"content\":null},{\"content\":{\"parts\":null}},{\"index\":1,\"content\":{\"parts\":[{\"text\":\"other answer\"}]}}]}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[7,\"x\",null,{\"text\":null},{\"functionCall\":null},{\"functionCall\":7},{\"functionCall\":{}}]}}]}\n\n",
        "data: {\"candidates\":{}}\n\ndata: {\"candidates\":[{\"finishReason\":null,\"finishMessage\":[]}]}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"tw\",\"text\":\"twice\"}]}}],\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"once\"}]}}]}\n\n",
    ];
    for body in bodies {
        let got = read(Protocol::Gemini, body.to_owned() + &finish("STOP"));
        assert!(got.finish.is_some(), "{body}");
        assert!(
            ["", "once"].contains(&got.text.as_str()),
            "{body}: {}",
            got.text
        );
        assert_eq!(got.calls, [], "{body}");
    }
    let twice =
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\",\"text\":\"b\"}]}}]}\n\n";
    assert_eq!(
        read(Protocol::Gemini, twice.to_owned() + &finish("STOP")).text,
        "b"
    );
}

#[test]
fn slow_thinking_is_content_and_empty_parts_are_not() {
    let mut decoder = Decoder::new(Protocol::Gemini);
    decoder.feed(parts(json!([{"text": ""}])).as_bytes());
    decoder.feed(b"data: {\"usageMetadata\":{\"promptTokenCount\":1}}\n\n");
    assert!(!decoder.take_content());
    decoder.feed(parts(json!([{"text": "hm", "thought": true}])).as_bytes());
    assert!(decoder.take_content());
    decoder.feed(parts(json!([{"functionCall": {"name": "x", "willContinue": true}}])).as_bytes());
    decoder.take_content();
    let partial = json!([{"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "x"}], "willContinue": true}}]);
    decoder.feed(parts(partial).as_bytes());
    assert!(decoder.take_content(), "arguments that stream are content");
}

#[test]
fn paths_that_only_cost_memory_cost_little() {
    for path in [
        "[8]".repeat(64),
        "[9]".repeat(64),
        ".a[8]".repeat(32),
        "[7]".repeat(5000),
    ] {
        let partials: Vec<Value> = (0..50)
            .map(|n| json!({"jsonPath": format!("${path}"), "numberValue": n}))
            .collect();
        let call =
            json!([{"functionCall": {"name": "x", "willContinue": true, "partialArgs": partials}}]);
        any_body(Protocol::Gemini, (parts(call) + &finish("STOP")).as_bytes());
    }
    let many: String = (0..5000)
        .map(|_| parts(json!([{"functionCall": {"name": "x", "id": "same"}}])))
        .collect();
    let got = read(Protocol::Gemini, many + &finish("STOP"));
    assert_eq!(got.error.unwrap().class, ErrorClass::Protocol);
}

#[test]
fn cuts_inside_calls_and_signatures_change_nothing() {
    let body = parts(
        json!([{"functionCall": {"name": "é", "args": {"k": "漢 👩‍🚀"}}, "thoughtSignature": "S=="}]),
    ) + &parts(json!([{"executableCode": {"code": "п", "language": "PYTHON"}}]))
        + &finish("STOP");
    let whole: Vec<ProviderEvent> = decode_cut(Protocol::Gemini, body.as_bytes(), &[]);
    for at in 0..body.len() {
        assert_eq!(
            decode_cut(Protocol::Gemini, body.as_bytes(), &[at]),
            whole,
            "at {at}"
        );
    }
}
