//! Properties of the wire: cuts, line ends, marks and limits change nothing.

use crate::fold::{decode_cut, fold, read};
use proptest::prelude::*;
use tenure_core::error::ErrorClass;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_provider::{Decoder, Protocol};

/// The protocols over server-sent events.
const SSE: [Protocol; 4] = [
    Protocol::OpenaiChat,
    Protocol::OpenaiResponses,
    Protocol::AnthropicMessages,
    Protocol::Gemini,
];

/// One stream of each protocol with text of one to four bytes a character, reasoning and a call.
pub fn sample(protocol: Protocol) -> String {
    let lines: Vec<(&str, &str)> = match protocol {
        Protocol::OpenaiChat => vec![
            (
                "",
                r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{"reasoning_content":"Думаю 你"}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"Привет, 世界 "}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{"content":"👩‍🚀!"}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"write","arguments":""}}]}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"text\":\"é 漢 👩‍🚀\""}}]}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            ),
            (
                "",
                r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}"#,
            ),
            ("", "[DONE]"),
        ],
        Protocol::AnthropicMessages => vec![
            (
                "message_start",
                r#"{"type":"message_start","message":{"id":"msg_1","model":"m","usage":{"input_tokens":10,"output_tokens":1}}}"#,
            ),
            (
                "content_block_start",
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Думаю 你"}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
            ),
            (
                "content_block_stop",
                r#"{"type":"content_block_stop","index":0}"#,
            ),
            ("ping", r#"{"type":"ping"}"#),
            (
                "content_block_start",
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Привет, 世界 👩‍🚀!"}}"#,
            ),
            (
                "content_block_stop",
                r#"{"type":"content_block_stop","index":1}"#,
            ),
            (
                "content_block_start",
                r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_1","name":"write","input":{}}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"text\":\"é 漢 👩‍🚀\""}}"#,
            ),
            (
                "content_block_delta",
                r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"}"}}"#,
            ),
            (
                "content_block_stop",
                r#"{"type":"content_block_stop","index":2}"#,
            ),
            (
                "message_delta",
                r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":5}}"#,
            ),
            ("message_stop", r#"{"type":"message_stop"}"#),
        ],
        Protocol::OpenaiResponses => vec![
            (
                "response.created",
                r#"{"type":"response.created","response":{"id":"resp_1","model":"m"}}"#,
            ),
            (
                "response.output_item.added",
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}"#,
            ),
            (
                "response.reasoning_summary_text.delta",
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Думаю 你"}"#,
            ),
            (
                "response.output_item.done",
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs_1","encrypted_content":"e30","summary":[{"type":"summary_text","text":"Думаю 你"}]}}"#,
            ),
            (
                "response.output_item.added",
                r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"message","id":"msg_1","content":[]}}"#,
            ),
            (
                "response.output_text.delta",
                r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"Привет, 世界 👩‍🚀!"}"#,
            ),
            (
                "response.output_item.done",
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Привет, 世界 👩‍🚀!"}]}}"#,
            ),
            (
                "response.output_item.added",
                r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"write","arguments":""}}"#,
            ),
            (
                "response.function_call_arguments.delta",
                r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{\"text\":\"é 漢 👩‍🚀\"}"}"#,
            ),
            (
                "response.output_item.done",
                r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc_1","call_id":"call_1","name":"write","arguments":"{\"text\":\"é 漢 👩‍🚀\"}"}}"#,
            ),
            (
                "response.completed",
                r#"{"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":10,"output_tokens":5},"output":[]}}"#,
            ),
        ],
        Protocol::Gemini => vec![
            (
                "",
                r#"{"candidates":[{"content":{"parts":[{"text":"Думаю 你","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":10,"totalTokenCount":10},"modelVersion":"m","responseId":"r1"}"#,
            ),
            (
                "",
                r#"{"candidates":[{"content":{"parts":[{"text":"Привет, 世界"}],"role":"model"},"index":0}],"modelVersion":"m","responseId":"r1"}"#,
            ),
            (
                "",
                r#"{"candidates":[{"content":{"parts":[{"text":" 👩‍🚀!"}],"role":"model"},"index":0}],"modelVersion":"m","responseId":"r1"}"#,
            ),
            (
                "",
                r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"write","args":{"text":"é 漢 👩‍🚀"},"id":"call_1"},"thoughtSignature":"c2ln"}],"role":"model"},"index":0}],"modelVersion":"m","responseId":"r1"}"#,
            ),
            (
                "",
                r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"thoughtsTokenCount":2,"totalTokenCount":15},"modelVersion":"m","responseId":"r1"}"#,
            ),
        ],
        Protocol::BedrockConverse => panic!("its stream is made of frames"),
    };
    let mut text = String::new();
    for (name, data) in lines {
        if !name.is_empty() {
            text.push_str(&format!("event: {name}\n"));
        }
        text.push_str(&format!("data: {data}\n\n"));
    }
    text
}

#[test]
fn all_protocols_say_the_same() {
    for protocol in SSE {
        let got = read(protocol, sample(protocol));
        assert_eq!(got.text, "Привет, 世界 👩‍🚀!", "{protocol:?}");
        assert_eq!(got.reasoning, "Думаю 你", "{protocol:?}");
        assert_eq!(got.calls.len(), 1);
        assert_eq!(got.calls[0].id, "call_1");
        assert_eq!(
            got.calls[0].input.as_deref(),
            Some(r#"{"text":"é 漢 👩‍🚀"}"#),
            "{protocol:?}"
        );
        assert_eq!(got.calls[0].streamed, got.calls[0].input.clone().unwrap());
        let (finish, _, usage) = got.finish.unwrap();
        assert_eq!(finish, Finish::ToolCalls);
        assert_eq!((usage.prompt(), usage.output), (10, 5), "{protocol:?}");
    }
}

#[test]
fn bc_s_047_a_cut_at_any_byte_changes_nothing() {
    for protocol in SSE {
        let body = sample(protocol);
        let whole = decode_cut(protocol, body.as_bytes(), &[]);
        for cut in 0..body.len() {
            assert_eq!(
                decode_cut(protocol, body.as_bytes(), &[cut]),
                whole,
                "{protocol:?} at {cut}"
            );
        }
        let every: Vec<usize> = (0..body.len()).collect();
        assert_eq!(
            decode_cut(protocol, body.as_bytes(), &every),
            whole,
            "{protocol:?} byte by byte"
        );
    }
}

/// `PROPTEST_CASES` asks for more of them.
fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]
    #[test]
    fn any_chunking_gives_the_same_events(mut cuts in proptest::collection::vec(0usize..2500, 0..40), which in 0usize..SSE.len()) {
        let protocol = SSE[which];
        cuts.sort_unstable();
        let body = sample(protocol);
        prop_assert_eq!(decode_cut(protocol, body.as_bytes(), &cuts), decode_cut(protocol, body.as_bytes(), &[]));
    }

    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..400), which in 0usize..SSE.len()) {
        fold(&decode_cut(SSE[which], &body, &[]));
    }

    #[test]
    fn no_cut_stream_makes_it_panic_or_end_twice(at in 0usize..2500, junk in "[ -~]{0,12}", which in 0usize..SSE.len()) {
        let protocol = SSE[which];
        let mut body = sample(protocol).into_bytes();
        let at = at.min(body.len());
        body.splice(at..at, junk.bytes());
        fold(&decode_cut(protocol, &body, &[]));
        fold(&decode_cut(protocol, &body[..at], &[]));
    }
}

#[test]
fn bc_s_048_framing_variants_are_equal() {
    for protocol in SSE {
        let body = sample(protocol);
        let want = decode_cut(protocol, body.as_bytes(), &[]);
        let variants = [
            body.replace('\n', "\r\n"),
            body.replace('\n', "\r"),
            body.replace("data: ", "data:"),
            body.replace("event: ", "event:"),
            format!("\u{feff}{body}"),
            body.replace(
                "\n\n",
                "\nid: 4\nretry: 10\nunknown: x\nbare\n\n: keep-alive\n\n",
            ),
            // A value over three data lines is joined by line feeds, which JSON does not mind.
            body.replace("\"type\"", "\ndata: \"type\"\ndata: "),
            // Some gateways drop the event lines.
            body.lines()
                .filter(|l| !l.starts_with("event:"))
                .map(|l| format!("{l}\n"))
                .collect(),
            body.trim_end().to_owned(),
        ];
        for (n, variant) in variants.iter().enumerate() {
            let got = decode_cut(protocol, variant.as_bytes(), &[]);
            if n == 6 {
                // Native state holds the line feeds as they came.
                assert_eq!(got.len(), want.len(), "{protocol:?} variant {n}");
            } else {
                assert_eq!(got, want, "{protocol:?} variant {n}");
            }
            // CR and LF in different reads.
            let cuts: Vec<usize> = variant.match_indices('\n').map(|(at, _)| at).collect();
            assert_eq!(
                decode_cut(protocol, variant.as_bytes(), &cuts),
                got,
                "{protocol:?} variant {n} cut"
            );
        }
    }
}

#[test]
fn bc_s_048_half_an_event_is_never_content() {
    for protocol in SSE {
        let body = sample(protocol);
        let whole = decode_cut(protocol, body.as_bytes(), &[]);
        for at in 0..body.len() {
            let got = decode_cut(protocol, &body.as_bytes()[..at], &[]);
            let Some(ProviderEvent::Error(error)) = got.last() else {
                assert!(matches!(got.last(), Some(ProviderEvent::Finish { .. })));
                continue;
            };
            assert_eq!(
                error.class,
                ErrorClass::Cut,
                "{protocol:?} at {at}: {error:?}"
            );
            let text = |events: &[ProviderEvent]| -> String {
                events
                    .iter()
                    .filter_map(|e| {
                        if let ProviderEvent::TextDelta { text, .. } = e {
                            Some(text.as_str())
                        } else {
                            None
                        }
                    })
                    .collect()
            };
            assert!(
                text(&whole).starts_with(&text(&got)),
                "{protocol:?} at {at}"
            );
        }
    }
}

#[test]
fn bc_s_044_a_stream_that_just_ends_is_cut() {
    let body: String = (0..30).map(|n| format!("data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"t{n} \"}}}}]}}\n\n")).collect();
    let got = read(Protocol::OpenaiChat, body);
    assert_eq!(
        got.text.split_whitespace().count(),
        30,
        "the partial text is kept"
    );
    let error = got.error.unwrap();
    assert_eq!(error.class, ErrorClass::Cut);
    assert!(error.class.retryable());
}

#[test]
fn a_lost_farewell_is_no_error() {
    let chat = sample(Protocol::OpenaiChat).replace("data: [DONE]\n\n", "");
    assert!(read(Protocol::OpenaiChat, chat).finish.is_some());
    let anthropic = sample(Protocol::AnthropicMessages).replace(
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "",
    );
    assert!(
        read(Protocol::AnthropicMessages, anthropic)
            .finish
            .is_some()
    );
    let responses = sample(Protocol::OpenaiResponses);
    let cut = &responses[..responses.find("event: response.completed").unwrap()];
    assert_eq!(
        read(Protocol::OpenaiResponses, cut).error.unwrap().class,
        ErrorClass::Cut
    );
}

#[test]
fn bc_s_045_an_error_event_ends_the_attempt_at_once() {
    let body = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    for protocol in SSE {
        let mut decoder = Decoder::new(protocol);
        let events = decoder.feed(body.as_bytes());
        assert!(decoder.is_ended(), "{protocol:?}");
        let Some(ProviderEvent::Error(error)) = events.last() else {
            panic!("{protocol:?}: {events:?}")
        };
        assert_eq!(
            (error.class, error.class.retryable()),
            (ErrorClass::Overloaded, true),
            "{protocol:?}"
        );
        assert!(decoder.feed(sample(protocol).as_bytes()).is_empty());
        assert!(decoder.end().is_empty());
    }
}

#[test]
fn bc_s_046_only_content_moves_the_clock() {
    for protocol in SSE {
        let mut decoder = Decoder::new(protocol);
        let quiet = [
            ": keep-alive\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}]}\n\n",
            "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{}}]}\n\n",
            "data: {\"id\":\"c\",\"choices\":[]}\n\n",
        ];
        for line in quiet {
            decoder.feed(line.as_bytes());
            assert!(!decoder.take_content(), "{protocol:?} {line}");
        }
    }
    let mut decoder = Decoder::new(Protocol::OpenaiChat);
    decoder
        .feed(b"data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n");
    assert!(decoder.take_content(), "slow reasoning is content");
    let mut decoder = Decoder::new(Protocol::AnthropicMessages);
    for line in sample(Protocol::AnthropicMessages)
        .split_inclusive("\n\n")
        .take(2)
    {
        decoder.feed(line.as_bytes());
    }
    assert!(
        !decoder.take_content(),
        "a started block has said nothing yet"
    );
}

#[test]
fn an_event_beyond_the_limit_is_a_clear_error() {
    let mut decoder = Decoder::with_limit(Protocol::OpenaiChat, 100);
    let events = decoder.feed(format!("data: {}", "x".repeat(200)).as_bytes());
    let Some(ProviderEvent::Error(error)) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(error.class, ErrorClass::Protocol);
    assert!(
        error.message.contains("more than 100 bytes"),
        "{}",
        error.message
    );
}

#[test]
fn a_whole_event_that_is_not_json_is_a_protocol_error() {
    for protocol in SSE {
        let got = read(protocol, "data: <html>oops</html>\n\n");
        let error = got.error.unwrap();
        assert_eq!(error.class, ErrorClass::Protocol, "{protocol:?}");
        assert!(error.message.contains("<html>oops"), "{}", error.message);
    }
}
