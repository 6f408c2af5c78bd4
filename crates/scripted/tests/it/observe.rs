//! What the server records: verdicts, order, overlaps, the log, keys.

use std::path::Path;

use serde_json::{Value, json};
use tenure_scripted::{Ended, Fault, Script, ScriptedModel, Times, Turn, Verdict};
use tokio::time::timeout;

use crate::client::{
    CHAT, Client, LIMIT, MESSAGES, PATHS, RESPONSES, ask, fold, loopback, post, serve,
};

fn stalling() -> Turn {
    Turn::fault(Fault::Stall {
        after_events: Some(0),
        after_parts: None,
        before_headers: false,
        keepalive_ms: None,
        for_ms: None,
    })
    .times(Times::Forever)
}

fn log_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'));
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn an_invalid_request_is_refused_in_each_vendors_form() {
    for path in PATHS {
        let handle = serve(Script::new([Turn::text("x")])).await;
        let mut body = ask(path, "x");
        body["temperature"] = json!(9);
        let refused = post(&handle, path, &body).await;
        assert_eq!(refused.status, 400);
        let rule = match path {
            CHAT => "chat.temperature",
            RESPONSES => "responses.temperature",
            _ => "anthropic.temperature",
        };
        assert_eq!(refused.rules(), [rule]);
        assert_eq!(refused.json()["error"]["type"], "invalid_request_error");
        assert_eq!(refused.json().get("type").is_some(), path == MESSAGES);
        assert!(
            matches!(&handle.requests()[0].verdict, Verdict::Invalid(broken) if broken[0].rule == rule)
        );
    }
}

#[tokio::test]
async fn unreadable_bodies_and_missing_headers_are_refused() {
    let handle = serve(Script::new([Turn::text("x")])).await;
    let mut client = Client::connect(handle.addr()).await;
    client.send(CHAT, &[], b"{\"model\":").await;
    assert_eq!(client.answer().await.unwrap().status, 400);
    assert!(matches!(
        handle.requests()[0].verdict,
        Verdict::Unreadable(_)
    ));
    let body = ask(MESSAGES, "x").to_string();
    let head = format!(
        "POST {MESSAGES} HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.send_raw(head.as_bytes()).await;
    let refused = client.answer().await.unwrap();
    assert_eq!(
        refused.rules(),
        ["scripted.content_type", "scripted.anthropic_version"]
    );
}

#[tokio::test]
async fn one_connection_carries_many_requests_and_chunked_bodies() {
    let handle = serve(Script::new([Turn::text("one"), Turn::text("two")])).await;
    let mut client = Client::connect(handle.addr()).await;
    client
        .send(CHAT, &[], ask(CHAT, "x").to_string().as_bytes())
        .await;
    assert_eq!(
        fold(CHAT, &client.answer().await.unwrap().events()).text,
        "one"
    );
    let body = ask(CHAT, "x").to_string();
    let (a, b) = body.split_at(10);
    let raw = format!(
        "POST {CHAT}?beta=1 HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
         {:x}\r\n{a}\r\n{:X};ext=1\r\n{b}\r\n0\r\n\r\n",
        a.len(),
        b.len()
    );
    client.send_raw(raw.as_bytes()).await;
    assert_eq!(
        fold(CHAT, &client.answer().await.unwrap().events()).text,
        "two"
    );
    assert_eq!(handle.max_concurrent(), 1);
}

#[tokio::test]
async fn overlapping_requests_are_seen() {
    let handle = serve(Script::new([stalling()])).await;
    let body = ask(CHAT, "x").to_string();
    let mut first = Client::connect(handle.addr()).await;
    first.send(CHAT, &[], body.as_bytes()).await;
    first.read_until("200 OK").await;
    let mut second = Client::connect(handle.addr()).await;
    second.send(CHAT, &[], body.as_bytes()).await;
    second.read_until("200 OK").await;
    assert_eq!(
        (handle.max_concurrent(), handle.overlaps()),
        (2, vec![(0, 1)])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_after_one_another_never_overlap() {
    let handle = serve(Script::new([Turn::text("x").times(Times::Forever)])).await;
    for n in 0..200 {
        // The next request leaves on another connection as soon as the stream's end mark is read.
        let path = PATHS[n % 3];
        let mut client = Client::connect(handle.addr()).await;
        client
            .send(path, &[], ask(path, "x").to_string().as_bytes())
            .await;
        let mark = match path {
            CHAT => "[DONE]",
            RESPONSES => "event: response.completed",
            _ => "event: message_stop",
        };
        client.read_until(mark).await;
    }
    assert_eq!((handle.max_concurrent(), handle.overlaps()), (1, vec![]));
}

#[tokio::test]
async fn a_request_is_over_once_its_end_mark_is_sent() {
    // The stall comes behind the end mark, before the HTTP body ends: who has read the mark may go on.
    let stall = Fault::Stall {
        after_events: Some(1_000_000),
        after_parts: None,
        before_headers: false,
        keepalive_ms: None,
        for_ms: None,
    };
    let handle = serve(Script::new([Turn::text("x")
        .failing(stall)
        .times(Times::Forever)]))
    .await;
    let mut open = Vec::new();
    for (path, mark) in [
        (CHAT, "[DONE]"),
        (RESPONSES, "response.completed"),
        (MESSAGES, "message_stop"),
    ] {
        let mut client = Client::connect(handle.addr()).await;
        client
            .send(path, &[], ask(path, "x").to_string().as_bytes())
            .await;
        client.read_until(mark).await;
        open.push(client);
    }
    assert!(handle.requests().iter().all(|r| r.ended.is_none()));
    assert_eq!((handle.max_concurrent(), handle.overlaps()), (1, vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_client_is_gone_does_not_overlap() {
    let handle = serve(Script::new([stalling()])).await;
    for _ in 0..100 {
        let mut client = Client::connect(handle.addr()).await;
        client
            .send(CHAT, &[], ask(CHAT, "x").to_string().as_bytes())
            .await;
        client.read_until("200 OK").await;
        drop(client);
    }
    assert_eq!((handle.max_concurrent(), handle.overlaps()), (1, vec![]));
    let all = timeout(LIMIT, handle.wait_ended(100)).await.unwrap();
    assert!(all.iter().all(|r| r.ended.unwrap().1 == Ended::Aborted));
}

#[tokio::test]
async fn the_log_has_the_request_before_the_first_byte_and_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("requests.jsonl");
    let handle = ScriptedModel::builder(Script::new([stalling()]))
        .log(&log)
        .bind(loopback())
        .await
        .unwrap();
    let mut client = Client::connect(handle.addr()).await;
    let extra = [
        ("X-Tenure-Attempt", "att_1"),
        ("Authorization", "Bearer hush"),
        ("x-api-key", "hush"),
        ("cookie", "hush"),
    ];
    client
        .send(CHAT, &extra, ask(CHAT, "hello").to_string().as_bytes())
        .await;
    client.read_until("200 OK").await;
    let lines = log_lines(&log);
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["kind"], &lines[0]["number"]),
        (&json!("request"), &json!(0))
    );
    assert_eq!(lines[0]["headers"]["x-tenure-attempt"], "att_1");
    assert_eq!(lines[0]["body"]["messages"][0]["content"], "hello");
    assert_eq!(lines[0]["verdict"], "accepted");
    assert_eq!(lines[0]["turn"], json!({"turn": 0}));
    assert!(!lines[0].to_string().contains("hush"));
    assert_eq!(
        handle.requests()[0].header("x-tenure-attempt"),
        Some("att_1")
    );
    handle.shutdown().await;
    let lines = log_lines(&log);
    assert_eq!(
        (&lines[1]["kind"], &lines[1]["how"]),
        (&json!("end"), &json!("aborted"))
    );
}

#[tokio::test]
async fn a_required_key_is_required_in_either_header() {
    let script = Script::new([Turn::text("in").times(Times::Forever)]);
    let handle = ScriptedModel::builder(script)
        .api_key("k1")
        .bind(loopback())
        .await
        .unwrap();
    let body = ask(MESSAGES, "x").to_string();
    let cases: [(&[(&str, &str)], u16); 5] = [
        (&[], 401),
        (&[("x-api-key", "k2")], 401),
        (&[("authorization", "Bearer k12")], 401),
        (&[("x-api-key", "k1")], 200),
        (&[("authorization", "Bearer k1")], 200),
    ];
    for (headers, status) in cases {
        let mut client = Client::connect(handle.addr()).await;
        client.send(MESSAGES, headers, body.as_bytes()).await;
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, status, "{headers:?}");
        if status == 401 {
            assert_eq!(answer.json()["error"]["type"], "authentication_error");
        }
    }
    assert_eq!(handle.requests()[0].verdict, Verdict::Unauthorized);
}

#[tokio::test]
async fn models_are_listed_and_others_unknown() {
    let script =
        Script::parse("version = 1\nmodels = [\"m2\"]\n[[turn]]\npart = [{ text = \"x\" }]")
            .unwrap();
    let handle = serve(script).await;
    assert_eq!(post(&handle, CHAT, &ask(CHAT, "x")).await.status, 404);
    assert_eq!(handle.requests()[0].verdict, Verdict::UnknownModel);
    let mut client = Client::connect(handle.addr()).await;
    client.send_raw(b"GET /v1/models HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().json()["data"][0]["id"], "m2");
    client
        .send_raw(b"POST /v2/chat HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")
        .await;
    assert_eq!(client.answer().await.unwrap().status, 404);
    client.send_raw(b"GET /v1/messages HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.answer().await.unwrap().status, 405);
}

#[tokio::test]
async fn reasoning_issued_elsewhere_passes_unless_the_server_is_strict() {
    let mut body = ask(MESSAGES, "x");
    body["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t", "signature": "elsewhere"}, {"type": "text", "text": "y"}]}),
        json!({"role": "user", "content": "z"}),
    ]);
    for (strict, status) in [(false, 200), (true, 400)] {
        let builder = ScriptedModel::builder(Script::new([Turn::text("x")])).strict_seals(strict);
        let handle = builder.bind(loopback()).await.unwrap();
        assert_eq!(post(&handle, MESSAGES, &body).await.status, status);
    }
}
