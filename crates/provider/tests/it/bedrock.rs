//! Bedrock: own hand-made frames, requests of every kind of model, signatures, and a whole conversation over HTTP.

mod encode;
mod network;

use crate::fold::{Folded, decode_cut, fold};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_core::error::ErrorClass;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_provider::{Decoder, Protocol};

const BEDROCK: Protocol = Protocol::BedrockConverse;

/// One frame, made from the format's description.
fn frame(headers: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let word = |n: usize| u32::try_from(n).unwrap().to_be_bytes();
    bytes.extend(word(16 + headers.len() + payload.len()));
    bytes.extend(word(headers.len()));
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes.extend(headers);
    bytes.extend(payload);
    bytes.extend(crc32fast::hash(&bytes).to_be_bytes());
    bytes
}

fn named(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in pairs {
        headers.push(u8::try_from(name.len()).unwrap());
        headers.extend(name.bytes());
        headers.push(7);
        headers.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        headers.extend(value.bytes());
    }
    headers
}

fn event(kind: &str, payload: &Value) -> Vec<u8> {
    let headers = named(&[
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ]);
    frame(&headers, payload.to_string().as_bytes())
}

fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = named(&[(":exception-type", kind), (":message-type", "exception")]);
    frame(&headers, json!({"message": message}).to_string().as_bytes())
}

fn start(index: u64, start: &Value) -> Vec<u8> {
    event(
        "contentBlockStart",
        &json!({"contentBlockIndex": index, "start": start, "p": "abc"}),
    )
}

fn delta(index: u64, delta: &Value) -> Vec<u8> {
    event(
        "contentBlockDelta",
        &json!({"contentBlockIndex": index, "delta": delta, "p": "abcdef"}),
    )
}

fn stop(index: u64) -> Vec<u8> {
    event("contentBlockStop", &json!({"contentBlockIndex": index}))
}

fn finish(reason: &str) -> Vec<u8> {
    event(
        "messageStop",
        &json!({"stopReason": reason, "additionalModelResponseFields": {"delta": {"stop_sequence": null}}}),
    )
}

fn metadata() -> Vec<u8> {
    event(
        "metadata",
        &json!({"usage": {"inputTokens": 10, "outputTokens": 5, "totalTokens": 22,
            "cacheReadInputTokens": 4, "cacheWriteInputTokens": 3, "serverToolUsage": {}},
            "metrics": {"latencyMs": 7}}),
    )
}

fn read(frames: &[Vec<u8>]) -> Folded {
    fold(&decode_cut(BEDROCK, &frames.concat(), &[]))
}

/// Reasoning, hidden reasoning, cited text, two calls, a hosted call with its result, a picture.
fn everything() -> Vec<Vec<u8>> {
    let tool = |id: &str, name: &str| json!({"toolUse": {"toolUseId": id, "name": name}});
    let input = |text: &str| json!({"toolUse": {"input": text}});
    vec![
        event("messageStart", &json!({"role": "assistant", "p": "abcd"})),
        delta(0, &json!({"reasoningContent": {"text": "Думаю "}})),
        delta(0, &json!({"reasoningContent": {"text": "你"}})),
        delta(0, &json!({"reasoningContent": {"signature": "c2ln"}})),
        delta(0, &json!({"reasoningContent": {"signature": "bmVk"}})),
        stop(0),
        delta(
            1,
            &json!({"reasoningContent": {"redactedContent": STANDARD.encode(b"hidden ")}}),
        ),
        delta(
            1,
            &json!({"reasoningContent": {"redactedContent": STANDARD.encode(b"words")}}),
        ),
        stop(1),
        delta(2, &json!({"text": "Привет, "})),
        event("aNewKindOfEvent", &json!({"p": "x"})),
        delta(
            2,
            &json!({"citation": {"title": "doc", "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 2}}}}),
        ),
        delta(2, &json!({"text": "世界 👩‍🚀!"})),
        stop(2),
        start(3, &tool("call_1", "write")),
        delta(3, &input("")),
        delta(3, &input("{\"text\":\"é 漢")),
        start(4, &tool("call_2", "list")),
        delta(3, &input(" 👩‍🚀\"}")),
        stop(4),
        stop(3),
        start(
            5,
            &json!({"toolUse": {"toolUseId": "h1", "name": "nova_code_interpreter", "type": "server_tool_use"}}),
        ),
        delta(5, &input("{\"snippet\":\"6*7\"}")),
        stop(5),
        start(
            6,
            &json!({"toolResult": {"toolUseId": "h1", "type": "nova_code_interpreter_result", "status": "success"}}),
        ),
        delta(
            6,
            &json!({"toolResult": [{"json": {"stdOut": "42", "stdErr": "", "exitCode": 0, "isError": false}}]}),
        ),
        stop(6),
        start(7, &json!({"image": {"format": "png"}})),
        delta(7, &json!({"image": {"source": {"bytes": "AAAA"}}})),
        stop(7),
        finish("tool_use"),
        metadata(),
    ]
}

#[test]
fn every_kind_of_block_is_read() {
    let got = read(&everything());
    assert_eq!(got.error, None);
    assert_eq!(got.reasoning, "Думаю 你");
    assert_eq!(
        got.reasonings[0].1.as_deref(),
        Some(
            r#"{"reasoningContent":{"reasoningText":{"signature":"c2lnbmVk","text":"Думаю 你"}}}"#
        )
    );
    let hidden = json!({"reasoningContent": {"redactedContent": STANDARD.encode("hidden words")}});
    assert_eq!(got.reasonings[1].1, Some(hidden.to_string()));
    assert_eq!(got.text, "Привет, 世界 👩‍🚀!");
    let cited: Value = serde_json::from_str(got.texts[0].1.as_ref().unwrap()).unwrap();
    assert_eq!(cited["citationsContent"]["content"][0]["text"], got.text);
    assert_eq!(cited["citationsContent"]["citations"][0]["title"], "doc");
    let calls: Vec<_> = got
        .calls
        .iter()
        .map(|c| {
            (
                c.id.as_str(),
                c.name.as_str(),
                c.input.as_deref(),
                c.executed,
            )
        })
        .collect();
    assert_eq!(
        calls,
        [
            ("call_1", "write", Some("{\"text\":\"é 漢 👩‍🚀\"}"), false),
            ("call_2", "list", Some(""), false),
            (
                "h1",
                "nova_code_interpreter",
                Some("{\"snippet\":\"6*7\"}"),
                true
            ),
        ]
    );
    let (id, text, failed, native) = &got.results[0];
    assert_eq!((id.as_str(), text.as_str(), *failed), ("h1", "42", false));
    let native: Value = serde_json::from_str(native.as_ref().unwrap()).unwrap();
    assert_eq!(native["toolResult"]["type"], "nova_code_interpreter_result");
    assert_eq!(native["toolResult"]["content"][0]["json"]["stdOut"], "42");
    assert!(
        got.opaque[0].contains("\"bytes\":\"AAAA\""),
        "{:?}",
        got.opaque
    );
    let (finish, raw, usage) = got.finish.unwrap();
    assert_eq!(
        (finish, raw.as_deref()),
        (Finish::ToolCalls, Some("tool_use"))
    );
    assert_eq!(
        (
            usage.input,
            usage.output,
            usage.cache_read,
            usage.cache_write
        ),
        (10, 5, 4, 3)
    );
}

#[test]
fn bc_s_047_a_cut_at_any_byte_of_a_frame_changes_nothing() {
    let body = everything().concat();
    let whole = decode_cut(BEDROCK, &body, &[]);
    for cut in 0..body.len() {
        assert_eq!(decode_cut(BEDROCK, &body, &[cut]), whole, "at {cut}");
    }
    let every: Vec<usize> = (0..body.len()).collect();
    assert_eq!(decode_cut(BEDROCK, &body, &every), whole, "byte by byte");
}

#[test]
fn bc_s_048_half_a_frame_is_never_content() {
    let body = everything().concat();
    let text = |events: &[ProviderEvent]| fold(events).text;
    let whole = text(&decode_cut(BEDROCK, &body, &[]));
    for at in (0..body.len()).step_by(3) {
        let got = decode_cut(BEDROCK, &body[..at], &[]);
        match got.last() {
            Some(ProviderEvent::Error(error)) => assert_eq!(error.class, ErrorClass::Cut, "{at}"),
            // Only the token counts are missing.
            Some(ProviderEvent::Finish { .. }) => {}
            other => panic!("{at}: {other:?}"),
        }
        assert!(whole.starts_with(&text(&got)), "{at}");
    }
}

#[test]
fn a_damaged_byte_is_noticed_wherever_it_is() {
    let frames = [
        delta(0, &json!({"text": "kept"})),
        delta(0, &json!({"text": "damaged"})),
        stop(0),
        finish("end_turn"),
        metadata(),
    ];
    let second = frames[0].len()..frames[0].len() + frames[1].len();
    let body = frames.concat();
    for at in second {
        let mut body = body.clone();
        body[at] ^= 0x10;
        let got = fold(&decode_cut(BEDROCK, &body, &[]));
        assert_eq!(got.text, "kept", "at {at}");
        let error = got.error.unwrap();
        assert_eq!(error.class, ErrorClass::Protocol, "at {at}: {error:?}");
        assert!(error.message.contains("damaged"), "{}", error.message);
    }
}

#[test]
fn a_frame_beyond_the_limit_is_refused_by_its_length_alone() {
    let large = event(
        "contentBlockDelta",
        &json!({"delta": {"text": "x".repeat(5000)}}),
    );
    let mut decoder = Decoder::with_limit(BEDROCK, 1000);
    let events = decoder.feed(&large[..12]);
    let Some(ProviderEvent::Error(error)) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(error.class, ErrorClass::Protocol);
    assert!(
        error.message.contains("more than 1000 bytes"),
        "{}",
        error.message
    );
    assert!(decoder.feed(&large[12..]).is_empty());
}

#[test]
fn bc_s_045_an_exception_ends_the_attempt_with_its_class() {
    let cases = [
        (
            "throttlingException",
            "Too many tokens, please wait before trying again.",
            ErrorClass::RateLimit,
        ),
        (
            "modelStreamErrorException",
            "The model failed.",
            ErrorClass::Server,
        ),
        ("internalServerException", "Sorry.", ErrorClass::Server),
        (
            "serviceUnavailableException",
            "Not now.",
            ErrorClass::Overloaded,
        ),
        (
            "modelTimeoutException",
            "Took too long.",
            ErrorClass::Timeout,
        ),
        (
            "validationException",
            "The format is wrong.",
            ErrorClass::InvalidRequest,
        ),
        (
            "validationException",
            "Input is too long for requested model.",
            ErrorClass::ContextOverflow,
        ),
        (
            "accessDeniedException",
            "Not yours.",
            ErrorClass::Permission,
        ),
    ];
    for (kind, message, class) in cases {
        let got = read(&[
            delta(0, &json!({"text": "so far"})),
            exception(kind, message),
            finish("end_turn"),
        ]);
        assert_eq!(got.text, "so far");
        let error = got.error.unwrap();
        assert_eq!(
            (error.class, error.message.as_str()),
            (class, message),
            "{kind}"
        );
        assert_eq!(error.code.as_deref(), Some(kind));
    }
    let headers = named(&[
        (":message-type", "error"),
        (":error-code", "InternalError"),
        (":error-message", "An internal server error occurred"),
    ]);
    let error = read(&[frame(&headers, b"")]).error.unwrap();
    assert_eq!(error.class, ErrorClass::Server, "{error:?}");
}

#[test]
fn a_response_without_end_is_given_up() {
    for what in [
        json!({"text": "xxxxxxxxxx"}),
        json!({"reasoningContent": {"text": "xxxxxxxxxx"}}),
        json!({"reasoningContent": {"signature": "xxxxxxxxxx"}}),
    ] {
        let mut decoder = Decoder::with_limits(BEDROCK, 4_096, 1_000);
        let mut events = Vec::new();
        for _ in 0..=100 {
            events.extend(decoder.feed(&delta(0, &what)));
        }
        let Some(ProviderEvent::Error(error)) = events.last() else {
            panic!("{what}: no end")
        };
        assert_eq!(error.class, ErrorClass::Protocol, "{what}");
        assert_eq!(
            error.code.as_deref(),
            Some(tenure_core::error::RESPONSE_TOO_LONG)
        );
    }
}

#[test]
fn what_is_written_for_an_hour_is_told_apart() {
    let counts = |details: Value| {
        let usage = json!({"inputTokens": 10, "outputTokens": 5, "cacheWriteInputTokens": 30,
            "cacheDetails": details});
        let frames = [
            delta(0, &json!({"text": "hi"})),
            finish("end_turn"),
            event("metadata", &json!({ "usage": usage })),
        ];
        let (_, _, usage) = read(&frames).finish.unwrap();
        (usage.cache_write, usage.cache_write_long)
    };
    let both = json!([{"ttl": "1h", "inputTokens": 20}, {"ttl": "5m", "inputTokens": 10}]);
    assert_eq!(counts(both), (30, 20));
    assert_eq!(counts(json!([{"ttl": "5m", "inputTokens": 30}])), (30, 0));
    assert_eq!(counts(json!([{"ttl": "1h", "inputTokens": 99}])), (30, 30));
    assert_eq!(counts(json!("none")), (30, 0));
}

#[test]
fn token_counts_may_come_first_last_or_never() {
    let text = delta(0, &json!({"text": "hi"}));
    let prompt = |frames: &[Vec<u8>]| {
        let got = read(frames);
        assert_eq!(got.text, "hi");
        let (finish, _, usage) = got.finish.unwrap();
        assert_eq!(finish, Finish::Stop);
        usage.prompt()
    };
    assert_eq!(prompt(&[text.clone(), metadata(), finish("end_turn")]), 17);
    assert_eq!(prompt(&[text.clone(), finish("end_turn"), metadata()]), 17);
    assert_eq!(prompt(&[text, finish("end_turn")]), 0);
    let mut decoder = Decoder::new(BEDROCK);
    decoder.feed(&finish("end_turn"));
    assert!(decoder.finish_seen() && !decoder.is_ended());
    decoder.feed(&metadata());
    assert!(
        decoder.is_ended(),
        "nothing is waited for behind the counts"
    );
}

#[test]
fn text_may_lack_its_start_and_its_stop() {
    let call = json!({"toolUse": {"toolUseId": "c", "name": "list"}});
    let got = read(&[
        delta(0, &json!({"text": "one "})),
        start(1, &call),
        stop(1),
        delta(2, &json!({"text": "two"})),
        finish("end_turn"),
    ]);
    assert_eq!(got.text, "one two");
    assert_eq!(got.texts.len(), 2);
    assert_eq!(got.calls[0].input.as_deref(), Some(""));
    assert_eq!(
        got.finish.unwrap().0,
        Finish::ToolCalls,
        "it wants an answer"
    );
}

#[test]
fn a_call_whose_arguments_the_limit_ate_is_none() {
    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "list"}});
    let got = read(&[
        start(0, &call("a")),
        stop(0),
        start(1, &call("b")),
        finish("max_tokens"),
    ]);
    assert_eq!(
        got.calls[0].input.as_deref(),
        Some(""),
        "the first is whole"
    );
    assert_eq!(got.calls[1].input, None);
    assert_eq!(got.finish.unwrap().0, Finish::Length);
}

#[test]
fn equal_and_missing_ids_of_calls_become_different_ones() {
    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "list"}});
    let got = read(&[
        start(0, &call("same")),
        stop(0),
        start(1, &call("same")),
        stop(1),
        start(2, &call("")),
        stop(2),
        finish("tool_use"),
    ]);
    let ids: std::collections::HashSet<_> = got.calls.iter().map(|c| &c.id).collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[test]
fn finish_words_have_their_meaning() {
    for (word, meaning) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("tool_use", Finish::ToolCalls),
        ("max_tokens", Finish::Length),
        ("model_context_window_exceeded", Finish::Length),
        ("guardrail_intervened", Finish::ContentFilter),
        ("content_filtered", Finish::ContentFilter),
        ("malformed_tool_use", Finish::Other),
        ("something_new", Finish::Other),
    ] {
        let (finish, raw, _) = read(&[finish(word)]).finish.unwrap();
        assert_eq!((finish, raw.as_deref()), (meaning, Some(word)));
    }
}

#[test]
fn a_models_own_stream_inside_of_frames_is_read() {
    let chunk = |event: &Value| event_of_bytes(&STANDARD.encode(event.to_string()));
    let got = read(&[
        chunk(
            &json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 7}}}),
        ),
        chunk(
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        chunk(
            &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
        ),
        event_of_bytes("no base64!"),
        chunk(&json!({"outputText": "of another maker's model"})),
        chunk(
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
        ),
        chunk(&json!({"type": "message_stop"})),
    ]);
    assert_eq!(got.text, "hello");
    let (finish, _, usage) = got.finish.unwrap();
    assert_eq!((finish, usage.input, usage.output), (Finish::Stop, 7, 2));
}

fn event_of_bytes(bytes: &str) -> Vec<u8> {
    event("chunk", &json!({"bytes": bytes, "p": "ab"}))
}

#[test]
fn bc_s_046_only_content_of_frames_moves_the_clock() {
    let mut decoder = Decoder::new(BEDROCK);
    for quiet in [
        event("initial-response", &json!({})),
        event("messageStart", &json!({"role": "assistant"})),
        event("unknown", &json!({"text": "x"})),
        delta(0, &json!({"text": ""})),
    ] {
        decoder.feed(&quiet);
        assert!(!decoder.take_content());
    }
    decoder.feed(&delta(0, &json!({"reasoningContent": {"text": "hm"}})));
    assert!(decoder.take_content(), "slow reasoning is content");
}

#[test]
fn a_frame_that_is_not_json_is_a_protocol_error() {
    let headers = named(&[
        (":event-type", "contentBlockDelta"),
        (":message-type", "event"),
    ]);
    let error = read(&[frame(&headers, b"<html>oops")]).error.unwrap();
    assert_eq!(error.class, ErrorClass::Protocol);
    assert!(error.message.contains("<html>oops"), "{}", error.message);
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..400), junk in 0usize..3000) {
        fold(&decode_cut(BEDROCK, &body, &[]));
        let mut stream = everything().concat();
        let at = junk.min(stream.len());
        stream.splice(at..at, body);
        fold(&decode_cut(BEDROCK, &stream, &[]));
    }

    /// Checksums that fit, around anything.
    #[test]
    fn no_headers_and_no_payload_make_it_panic(
        headers in proptest::collection::vec(any::<u8>(), 0..60),
        payload in proptest::collection::vec(any::<u8>(), 0..60),
        text in "\\{\"contentBlockIndex\":[0-9]{1,3},\"(delta|start)\":\\{\"(text|toolUse|reasoningContent|toolResult|citation)\":[\\{\\}\\[\\]\"a-z:,0-9]{0,12}\\}\\}",
        kind in "(contentBlockStart|contentBlockDelta|contentBlockStop|messageStop|metadata|chunk)",
    ) {
        fold(&decode_cut(BEDROCK, &frame(&headers, &payload), &[]));
        let known = named(&[(":event-type", &kind), (":message-type", "event")]);
        fold(&decode_cut(BEDROCK, &frame(&known, &payload), &[]));
        let stream = [frame(&known, text.as_bytes()), finish("end_turn")].concat();
        fold(&decode_cut(BEDROCK, &stream, &[]));
    }

    #[test]
    fn any_cut_gives_the_same_events(mut cuts in proptest::collection::vec(0usize..5000, 0..40)) {
        cuts.sort_unstable();
        let body = everything().concat();
        prop_assert_eq!(decode_cut(BEDROCK, &body, &cuts), decode_cut(BEDROCK, &body, &[]));
    }
}
