//! What one response may make us keep or repeat, whoever sends it.

use crate::fold::{decode_cut, fold, read};
use std::fmt::Write;
use tenure_core::error::{ErrorClass, RESPONSE_TOO_LONG};
use tenure_core::provider::ProviderEvent;
use tenure_provider::{Decoder, Protocol};

/// A Messages stream that asks for `count` calls, each under `id`.
fn calls(count: usize, id: &str) -> String {
    let mut body = String::from(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\"}}\n\n",
    );
    for index in 0..count {
        write!(
            body,
            "data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"f\",\"input\":{{}}}}}}\n\ndata: {{\"type\":\"content_block_stop\",\"index\":{index}}}\n\n"
        )
        .unwrap();
    }
    body + "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
}

#[test]
fn four_thousand_calls_of_one_id_get_ids_of_their_own() {
    let got = read(Protocol::AnthropicMessages, calls(4000, "same"));
    assert!(got.finish.is_some(), "{:?}", got.error);
    assert_eq!(got.calls.len(), 4000);
    assert_eq!(got.calls[0].id, "same");
    assert_eq!(got.calls[3999].id, "same_4000");
}

#[test]
fn more_calls_than_any_model_makes_end_the_stream() {
    let body = calls(10_000, "c");
    let whole = decode_cut(Protocol::AnthropicMessages, body.as_bytes(), &[]);
    let got = fold(&whole);
    let error = got.error.unwrap();
    assert_eq!(error.class, ErrorClass::Protocol);
    assert!(error.message.contains("4096 calls"), "{error}");
    assert!(got.calls.len() <= 4096);
    let cuts: Vec<usize> = (0..body.len()).step_by(777).collect();
    assert_eq!(
        decode_cut(Protocol::AnthropicMessages, body.as_bytes(), &cuts),
        whole
    );
}

#[test]
fn an_id_too_long_to_be_repeated_is_replaced_by_a_short_one() {
    let long = "x".repeat(100_000);
    let got = read(Protocol::AnthropicMessages, calls(2, &long));
    assert_eq!(got.calls.len(), 2);
    assert!(got.calls.iter().all(|call| call.id.len() < 40));
    // What gateways keep in an id, a sealed thought, stays.
    let sealed = format!("call_1__thought__{}", "y".repeat(20_000));
    let got = read(Protocol::AnthropicMessages, calls(1, &sealed));
    assert_eq!(got.calls[0].id, sealed);
}

#[test]
fn arguments_in_thirty_thousand_pieces_are_read_in_time() {
    let mut body = String::from(
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":\\\"\"}}]}}]}\n\n",
    );
    for _ in 0..30_000 {
        body.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}}}}}}}}\"}}]}}]}\n\n");
    }
    body.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"\\\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n");
    let got = read(Protocol::OpenaiChat, body);
    // Judging what came so far at every piece would take hours.
    assert_eq!(got.calls[0].input.as_ref().unwrap().len(), 240_008);
}

#[test]
fn half_a_character_costs_one_character_and_not_the_text() {
    let body = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"before \\ud83d after\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    assert_eq!(
        read(Protocol::OpenaiChat, body).text,
        "before \u{fffd} after"
    );
}

#[test]
fn a_code_is_a_word_and_not_a_page() {
    let body = format!(
        r#"{{"error":{{"type":"{}","message":"m"}}}}"#,
        "t".repeat(5000)
    );
    let got = tenure_provider::classify(
        400,
        &http::HeaderMap::new(),
        body.as_bytes(),
        std::time::SystemTime::UNIX_EPOCH,
    );
    assert_eq!(got.code.unwrap().chars().count(), 200);
}

/// Streams that never end: what is being said, how it begins, and a piece of ten bytes that is repeated.
const ENDLESS: [(Protocol, &str, &str, &str); 11] = [
    (
        Protocol::OpenaiChat,
        "text",
        "",
        r#"{"choices":[{"index":0,"delta":{"content":"xxxxxxxxxx"}}]}"#,
    ),
    (
        Protocol::OpenaiChat,
        "reasoning",
        "",
        r#"{"choices":[{"index":0,"delta":{"reasoning_content":"xxxxxxxxxx"}}]}"#,
    ),
    (
        Protocol::OpenaiChat,
        "arguments",
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"xxxxxxxxxx"}}]}}]}"#,
    ),
    (
        Protocol::OpenaiResponses,
        "text",
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}"#,
        r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"xxxxxxxxxx"}"#,
    ),
    (
        Protocol::OpenaiResponses,
        "arguments",
        r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f","call_id":"c","name":"f","arguments":""}}"#,
        r#"{"type":"response.function_call_arguments.delta","output_index":0,"delta":"xxxxxxxxxx"}"#,
    ),
    (
        Protocol::AnthropicMessages,
        "text",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"xxxxxxxxxx"}}"#,
    ),
    (
        Protocol::AnthropicMessages,
        "thinking",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"xxxxxxxxxx"}}"#,
    ),
    (
        Protocol::AnthropicMessages,
        "signature",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xxxxxxxxxx"}}"#,
    ),
    (
        Protocol::AnthropicMessages,
        "arguments",
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c","name":"f","input":{}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"xxxxxxxxxx"}}"#,
    ),
    (
        Protocol::Gemini,
        "text",
        "",
        r#"{"candidates":[{"content":{"parts":[{"text":"xxxxxxxxxx"}],"role":"model"},"index":0}]}"#,
    ),
    (
        Protocol::Gemini,
        "thoughts",
        "",
        r#"{"candidates":[{"content":{"parts":[{"text":"xxxxxxxxxx","thought":true}],"role":"model"},"index":0}]}"#,
    ),
];

#[test]
fn a_response_without_end_is_given_up_whatever_it_says() {
    for (protocol, what, begin, piece) in ENDLESS {
        let mut decoder = Decoder::with_limits(protocol, 4_096, 1_000);
        let line = |json: &str| format!("data: {json}\n\n").into_bytes();
        let mut events = Vec::new();
        if !begin.is_empty() {
            events.extend(decoder.feed(&line(begin)));
        }
        let mut fed = 0;
        while !decoder.is_ended() && fed < 1_000 {
            events.extend(decoder.feed(&line(piece)));
            fed += 1;
        }
        let Some(ProviderEvent::Error(error)) = events.last() else {
            panic!("{protocol:?} {what}: {fed} pieces, and no end")
        };
        assert_eq!(error.class, ErrorClass::Protocol, "{protocol:?} {what}");
        assert_eq!(error.code.as_deref(), Some(RESPONSE_TOO_LONG));
        assert!(fed <= 101, "{protocol:?} {what}: {fed}");
        let said: usize = events
            .iter()
            .map(|event| match event {
                ProviderEvent::TextDelta { text, .. }
                | ProviderEvent::ReasoningDelta { text, .. }
                | ProviderEvent::ToolInputDelta { text, .. } => text.len(),
                _ => 0,
            })
            .sum();
        assert!(said <= 1_000, "{protocol:?} {what}: {said}");
        assert!(decoder.feed(&line(piece)).is_empty() && decoder.end().is_empty());
    }
}
