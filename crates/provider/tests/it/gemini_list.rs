//! Gemini's answer as one JSON list, as servers send it that do not heed `alt=sse`.

use crate::corpus::{VENDORS, cases};
use crate::fold::{decode_cut, fold, read};
use crate::http::{PATIENCE, request, server};
use futures::StreamExt;
use serde_json::json;
use tenure_core::error::ErrorClass;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_provider::{AttemptKey, Decoder, HttpProvider, Protocol, Provider, ProviderSettings};
use tokio::io::AsyncWriteExt;

const GEMINI: Protocol = Protocol::Gemini;

fn chunks() -> [String; 3] {
    let said = |part| {
        json!({"candidates": [{"content": {"parts": [part]}}], "responseId": "r1", "modelVersion": "m"})
            .to_string()
    };
    [
        said(json!({"text": "It is \"[1, 2}\\"})),
        said(
            json!({"functionCall": {"name": "é", "args": {"k": ["漢", {}]}}, "thoughtSignature": "S=="}),
        ),
        json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 5}})
            .to_string(),
    ]
}

fn list() -> String {
    format!("[{}\r\n]\r\n", chunks().join("\r\n,\r\n"))
}

fn events() -> String {
    chunks().map(|chunk| format!("data: {chunk}\n\n")).concat()
}

#[test]
fn a_list_says_what_the_events_would_say_wherever_it_is_cut() {
    let whole = decode_cut(GEMINI, events().as_bytes(), &[]);
    assert!(matches!(
        whole.last(),
        Some(ProviderEvent::Finish {
            finish: Finish::ToolCalls,
            ..
        })
    ));
    for body in [
        list(),
        format!("\u{feff} {}", list()),
        list().replace("\r\n", ""),
        list() + "[{\"candidates\":[]}]",
    ] {
        for at in 0..=body.len() {
            assert_eq!(decode_cut(GEMINI, body.as_bytes(), &[at]), whole, "at {at}");
        }
        let each: Vec<usize> = (0..body.len()).collect();
        assert_eq!(decode_cut(GEMINI, body.as_bytes(), &each), whole);
    }
}

#[test]
fn an_element_counts_as_soon_as_it_is_there_and_not_before() {
    let mut decoder = Decoder::new(GEMINI);
    let first = format!("[{}", chunks()[0]);
    let (but_one, last) = first.split_at(first.len() - 1);
    assert_eq!(decoder.feed(but_one.as_bytes()), []);
    assert!(!decoder.take_content());
    assert!(!decoder.feed(last.as_bytes()).is_empty());
    assert!(decoder.take_content() && !decoder.finish_seen());
    let cut = read(GEMINI, &first[..first.len() - 1]);
    assert_eq!(
        (cut.text.as_str(), cut.error.unwrap().class),
        ("", ErrorClass::Cut)
    );
    let cut = read(GEMINI, &first);
    assert_eq!(cut.text, "It is \"[1, 2}\\");
    assert_eq!(cut.error.unwrap().class, ErrorClass::Cut);
    // All but the list's end.
    let got = read(GEMINI, list().trim_end().trim_end_matches(']'));
    assert_eq!(got.finish.unwrap().0, Finish::ToolCalls);
}

#[test]
fn errors_and_what_is_no_answer_are_told_apart() {
    let error = json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": "The model is overloaded."}});
    for body in [
        format!("[{},{error}]", chunks()[0]),
        format!("[{error}]"),
        error.to_string(),
    ] {
        let got = read(GEMINI, &body);
        assert_eq!(got.error.unwrap().class, ErrorClass::Overloaded, "{body}");
    }
    let one = read(
        GEMINI,
        json!({"candidates": [{"content": {"parts": [{"text": "all"}]}, "finishReason": "STOP"}]})
            .to_string(),
    );
    assert_eq!(
        (one.text.as_str(), one.finish.unwrap().0),
        ("all", Finish::Stop)
    );
    let other = read(GEMINI, "{\"hello\": \"world\"}").error.unwrap();
    assert_eq!(other.class, ErrorClass::InvalidRequest);
    assert!(other.message.contains("base_url"), "{other}");
    for (body, class) in [
        ("[]", ErrorClass::Cut),
        ("[1, 2]", ErrorClass::Protocol),
        ("[{\"candidates\": nonsense}]", ErrorClass::Protocol),
        ("  ", ErrorClass::Cut),
    ] {
        assert_eq!(read(GEMINI, body).error.unwrap().class, class, "{body}");
    }
}

#[test]
fn an_element_beyond_the_limit_ends_the_stream() {
    let mut decoder = Decoder::with_limit(GEMINI, 300);
    let mut events = decoder.feed(list().as_bytes());
    events.extend(decoder.end());
    assert!(fold(&events).finish.is_some(), "each element is within it");
    let mut decoder = Decoder::with_limit(GEMINI, 300);
    let mut events = decoder.feed(b"[{\"a\":\"");
    for _ in 0..30 {
        events.extend(decoder.feed(b"0123456789"));
    }
    let error = fold(&events).error.unwrap();
    assert_eq!(error.class, ErrorClass::Protocol);
    assert!(error.message.contains("300 bytes"), "{error}");
}

/// The elements of a recorded stream's events.
fn as_list(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let data: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .collect();
    let whole = data
        .iter()
        .all(|data| serde_json::from_str::<serde_json::Value>(data).is_ok());
    whole.then(|| format!("[{}]", data.join(",\n")))
}

#[test]
fn recorded_streams_say_the_same_as_lists() {
    let vendor = VENDORS.iter().find(|v| v.protocol == GEMINI).unwrap();
    let mut seen = 0;
    let cases = cases(vendor);
    for case in &cases {
        if let Some(list) = as_list(&case.body) {
            let events = decode_cut(GEMINI, &case.body, &[]);
            assert_eq!(
                decode_cut(GEMINI, list.as_bytes(), &[]),
                events,
                "{}",
                case.name
            );
            seen += 1;
        }
    }
    println!("recorded streams as lists: {seen} of {}", cases.len());
    assert!(cases.is_empty() || seen >= 30, "only {seen}");
}

#[tokio::test]
async fn a_list_is_read_from_the_socket_as_it_comes() {
    let url = server(|mut socket| async move {
        crate::http::read_request(&mut socket).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=UTF-8\r\nconnection: close\r\n\r\n";
        let _ = socket.write_all(head.as_bytes()).await;
        for piece in list().as_bytes().chunks(100) {
            let _ = socket.write_all(piece).await;
            let _ = socket.flush().await;
        }
        let _ = socket.shutdown().await;
    })
    .await;
    let mut settings = ProviderSettings::new("local", GEMINI, url);
    settings.first_byte_timeout = PATIENCE;
    let provider = HttpProvider::new(settings).unwrap();
    let encoded = provider.encode(&request()).unwrap();
    let stream = provider
        .send(encoded, &AttemptKey("att_1".into()))
        .await
        .unwrap();
    let batches: Vec<_> = stream.map(Result::unwrap).collect().await;
    assert_eq!(
        fold(&batches.concat()),
        fold(&decode_cut(GEMINI, events().as_bytes(), &[]))
    );
}
