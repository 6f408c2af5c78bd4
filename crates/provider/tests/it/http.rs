//! The whole provider against small servers of its own: faults, limits, keys, dropped connections.

use futures::StreamExt;
use std::time::Duration;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::model::ModelRef;
use tenure_core::provider::ProviderEvent;
use tenure_core::request::{Request, RequestMessage};
use tenure_provider::{
    AttemptKey, EventStream, Finding, HttpProvider, Protocol, Provider, ProviderSettings, Secret,
    probe,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

pub const KEY: &str = "sk-live-0123456789abcdef";
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Accepts connections one after the other and runs `serve` on each.
pub async fn server<F, R>(mut serve: F) -> String
where
    F: FnMut(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    format!("http://{address}/v1")
}

/// Reads one request: head and body.
pub async fn read_request(socket: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let n = socket.read(&mut chunk).await.unwrap();
        if n == 0 {
            return (String::from_utf8_lossy(&bytes).into_owned(), Vec::new());
        }
        bytes.extend_from_slice(&chunk[..n]);
        let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
        let length: usize = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "))
            .map_or(0, |l| l.trim().parse().unwrap());
        if bytes.len() >= end + 4 + length {
            return (head, bytes[end + 4..].to_vec());
        }
    }
}

pub const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

pub fn text(text: &str) -> String {
    let chunk =
        serde_json::json!({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]});
    format!("data: {chunk}\n\n")
}

pub fn finish() -> &'static str {
    "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
}

/// A server that answers every request with `answer` and closes.
pub async fn answering(answer: String) -> String {
    server(move |mut socket| {
        let answer = answer.clone();
        async move {
            read_request(&mut socket).await;
            let _ = socket.write_all(answer.as_bytes()).await;
            let _ = socket.shutdown().await;
        }
    })
    .await
}

pub fn settings(url: &str) -> ProviderSettings {
    let mut settings = ProviderSettings::new("local", Protocol::OpenaiChat, url);
    settings.api_key = Some(Secret::new(KEY));
    settings.first_byte_timeout = PATIENCE;
    settings.idle_timeout = PATIENCE;
    settings
}

pub fn provider(url: &str) -> HttpProvider {
    HttpProvider::new(settings(url)).unwrap()
}

pub fn request() -> Request {
    Request {
        system: vec!["s".into()],
        messages: vec![RequestMessage::User {
            parts: vec!["hi".into()],
        }],
        cache_key: "ses_1".into(),
        ..Request::new(ModelRef {
            provider: "local".into(),
            model: "m1".into(),
        })
    }
}

pub async fn send(provider: &HttpProvider) -> Result<EventStream, ProviderError> {
    let encoded = provider.encode(&request()).unwrap();
    tokio::time::timeout(
        PATIENCE,
        provider.send(encoded, &AttemptKey("att_1".into())),
    )
    .await
    .expect("an answer in time")
}

/// Everything a stream gives: text, finished?, error.
pub async fn drain(mut stream: EventStream) -> (String, bool, Option<ProviderError>) {
    let (mut said, mut finished, mut error) = (String::new(), false, None);
    while let Some(item) = tokio::time::timeout(PATIENCE, stream.next())
        .await
        .expect("a stream that goes on")
    {
        assert!(error.is_none() && !finished, "an item after the end");
        match item {
            Ok(events) => {
                assert!(!events.is_empty(), "an empty item");
                for event in events {
                    match event {
                        ProviderEvent::TextDelta { text, .. } => said.push_str(&text),
                        ProviderEvent::Finish { .. } => finished = true,
                        ProviderEvent::Error(error) => panic!("errors come as Err: {error}"),
                        _ => {}
                    }
                }
            }
            Err(e) => error = Some(e),
        }
    }
    (said, finished, error)
}

async fn run(url: &str) -> (String, bool, Option<ProviderError>) {
    drain(send(&provider(url)).await.unwrap()).await
}

#[tokio::test]
async fn a_request_goes_out_once_with_its_key_and_attempt() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let url = server(move |mut socket| {
        let saw = saw.clone();
        async move {
            let request = read_request(&mut socket).await;
            saw.send(request).unwrap();
            let body = format!("{HEAD}{}{}data: [DONE]\n\n", text("hello"), finish());
            socket.write_all(body.as_bytes()).await.unwrap();
        }
    })
    .await;
    assert_eq!(run(&url).await, ("hello".to_owned(), true, None));
    let (head, body) = seen.recv().await.unwrap();
    assert!(
        head.starts_with("post /v1/chat/completions http/1.1"),
        "{head}"
    );
    for line in [
        &format!("authorization: bearer {KEY}"),
        "x-tenure-attempt: att_1",
        "idempotency-key: att_1",
        "accept: text/event-stream",
    ] {
        assert!(head.contains(line), "{line} in\n{head}");
    }
    assert_eq!(body, provider(&url).encode(&request()).unwrap().body);
    assert!(seen.try_recv().is_err(), "sent once");
}

#[tokio::test]
async fn anthropic_headers() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let url = server(move |mut socket| {
        let saw = saw.clone();
        async move {
            saw.send(read_request(&mut socket).await.0).unwrap();
            let _ = socket
                .write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await;
        }
    })
    .await;
    let mut settings = settings(url.trim_end_matches("/v1"));
    settings.protocol = Protocol::AnthropicMessages;
    settings.headers.insert("anthropic-beta".into(), "x".into());
    let error = send(&HttpProvider::new(settings).unwrap())
        .await
        .err()
        .unwrap();
    assert_eq!((error.class, error.status), (ErrorClass::Server, Some(500)));
    let head = seen.recv().await.unwrap();
    for line in [
        "post /v1/messages ",
        &format!("x-api-key: {KEY}"),
        "anthropic-version: 2023-06-01",
        "anthropic-beta: x",
    ] {
        assert!(head.contains(line), "{line} in\n{head}");
    }
}

#[tokio::test]
async fn events_split_between_packets_arrive_whole() {
    let url = server(|mut socket| async move {
        socket.set_nodelay(true).unwrap();
        read_request(&mut socket).await;
        let body = format!("{HEAD}{}{}data: [DONE]\n\n", text("Привет 👩‍🚀"), finish());
        for byte in body.as_bytes() {
            socket.write_all(&[*byte]).await.unwrap();
        }
    })
    .await;
    assert_eq!(run(&url).await, ("Привет 👩‍🚀".to_owned(), true, None));
}

#[tokio::test]
async fn bc_s_044_a_stream_that_is_closed_is_cut_and_keeps_its_text() {
    let url = answering(format!("{HEAD}{}{}", text("par"), text("tial"))).await;
    let (said, finished, error) = run(&url).await;
    assert_eq!(
        (said.as_str(), finished, error.unwrap().class),
        ("partial", false, ErrorClass::Cut)
    );
    let lost_farewell = answering(format!("{HEAD}{}{}", text("x"), finish())).await;
    assert_eq!(run(&lost_farewell).await, ("x".to_owned(), true, None));
}

#[tokio::test]
async fn a_broken_connection_is_a_transport_error() {
    let url = server(|mut socket| async move {
        read_request(&mut socket).await;
        let part = text("par");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n{part}");
        socket.write_all(head.as_bytes()).await.unwrap();
    })
    .await;
    let (said, _, error) = run(&url).await;
    let error = error.unwrap();
    assert_eq!(
        (said.as_str(), error.class),
        ("par", ErrorClass::Transport),
        "{error}"
    );
}

#[tokio::test]
async fn bc_s_045_an_error_event_is_not_waited_out() {
    let url = server(|mut socket| async move {
        read_request(&mut socket).await;
        let body = format!("{HEAD}event: error\ndata: {{\"error\":{{\"type\":\"overloaded_error\",\"message\":\"Overloaded, key {KEY}\"}}}}\n\n");
        socket.write_all(body.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let (_, _, error) = run(&url).await;
    let error = error.unwrap();
    assert_eq!(error.class, ErrorClass::Overloaded);
    assert!(!error.message.contains(KEY), "{error}");
}

#[tokio::test]
async fn bc_s_046_keep_alives_do_not_hide_a_stall() {
    let url = server(|mut socket| async move {
        read_request(&mut socket).await;
        socket
            .write_all(format!("{HEAD}{}{}", text("a"), text("b")).as_bytes())
            .await
            .unwrap();
        let empty = text("");
        while socket
            .write_all(format!(": keep-alive\n\n{empty}").as_bytes())
            .await
            .is_ok()
        {
            // tidy: sleep ok because it is the server's keep-alive rhythm, not a wait for anything
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut settings = settings(&url);
    settings.idle_timeout = Duration::from_millis(300);
    let (said, _, error) = drain(send(&HttpProvider::new(settings).unwrap()).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!((said.as_str(), error.class), ("ab", ErrorClass::Timeout));
    assert!(error.message.contains("stalled"), "{error}");
}

#[tokio::test]
async fn slow_content_is_no_stall() {
    let url = server(|mut socket| async move {
        read_request(&mut socket).await;
        socket.write_all(HEAD.as_bytes()).await.unwrap();
        for n in 0..6 {
            // tidy: sleep ok because slow content is what is tested: in sum longer than the limit
            tokio::time::sleep(Duration::from_millis(350)).await;
            socket
                .write_all(text(&n.to_string()).as_bytes())
                .await
                .unwrap();
        }
        socket
            .write_all(format!("{}data: [DONE]\n\n", finish()).as_bytes())
            .await
            .unwrap();
    })
    .await;
    let mut settings = settings(&url);
    settings.idle_timeout = Duration::from_millis(1500);
    let (said, finished, error) =
        drain(send(&HttpProvider::new(settings).unwrap()).await.unwrap()).await;
    assert_eq!((said.as_str(), finished, error), ("012345", true, None));
}

#[tokio::test]
async fn the_first_byte_limit_holds_before_and_after_the_head() {
    let silent = server(|mut socket| async move {
        read_request(&mut socket).await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut limited = settings(&silent);
    limited.first_byte_timeout = Duration::from_millis(200);
    let error = send(&HttpProvider::new(limited).unwrap())
        .await
        .err()
        .unwrap();
    assert_eq!(error.class, ErrorClass::Timeout);
    let pinging = server(|mut socket| async move {
        read_request(&mut socket).await;
        socket.write_all(HEAD.as_bytes()).await.unwrap();
        while socket.write_all(b": ping\n\n").await.is_ok() {
            // tidy: sleep ok because it is the server's keep-alive rhythm, not a wait for anything
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut limited = settings(&pinging);
    limited.first_byte_timeout = Duration::from_millis(300);
    let (_, _, error) = drain(send(&HttpProvider::new(limited).unwrap()).await.unwrap()).await;
    let error = error.unwrap();
    assert_eq!(error.class, ErrorClass::Timeout);
    assert!(error.message.contains("first_byte_timeout_s"), "{error}");
}

#[tokio::test]
async fn dropping_the_stream_or_the_future_closes_the_connection() {
    let (closed, mut seen) = mpsc::unbounded_channel();
    let url = server(move |mut socket| {
        let closed = closed.clone();
        async move {
            let (_, body) = read_request(&mut socket).await;
            closed.send("received").unwrap();
            if String::from_utf8_lossy(&body).contains("\"hi\"") {
                socket
                    .write_all(format!("{HEAD}{}", text("a")).as_bytes())
                    .await
                    .unwrap();
            }
            let mut rest = [0; 16];
            while socket.read(&mut rest).await.is_ok_and(|n| n > 0) {}
            closed.send("closed").unwrap();
        }
    })
    .await;
    let provider = provider(&url);
    let mut stream = send(&provider).await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(seen.recv().await, Some("received"));
    drop(stream);
    let closed = tokio::time::timeout(PATIENCE, seen.recv()).await;
    assert_eq!(closed.expect("dropping the stream closes"), Some("closed"));
    let mut encoded = provider.encode(&request()).unwrap();
    encoded.body = "{}".into();
    let key = AttemptKey("a".into());
    tokio::select! {
        _ = provider.send(encoded, &key) => panic!("the server never answers"),
        received = seen.recv() => assert_eq!(received, Some("received")),
    }
    let closed = tokio::time::timeout(PATIENCE, seen.recv()).await;
    assert_eq!(closed.expect("dropping the future closes"), Some("closed"));
}

#[tokio::test]
async fn refusals_are_classified_with_their_wait_and_without_the_key() {
    let body = format!(
        "{{\"error\":{{\"message\":\"Incorrect API key provided: {KEY}\",\"code\":\"invalid_api_key\"}}}}"
    );
    let url = answering(format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let error = send(&provider(&url)).await.err().unwrap();
    assert_eq!(
        (error.class, error.status, error.code.as_deref()),
        (ErrorClass::Auth, Some(401), Some("invalid_api_key"))
    );
    assert!(
        error.message.contains("[key]") && !format!("{error:?}").contains(KEY),
        "{error:?}"
    );
    let url =
        answering("HTTP/1.1 429 Slow\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n".into()).await;
    let error = send(&provider(&url)).await.err().unwrap();
    assert_eq!(
        (error.class, error.retry_after_ms),
        (ErrorClass::RateLimit, Some(7000))
    );
}

#[tokio::test]
async fn a_key_in_a_header_of_its_own_is_masked_too() {
    let body = "{\"error\":{\"message\":\"wrong key azure-key-0123456789\"}}";
    let url = answering(format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let mut settings = settings(&url);
    settings
        .headers
        .insert("api-key".into(), "azure-key-0123456789".into());
    let error = send(&HttpProvider::new(settings).unwrap())
        .await
        .err()
        .unwrap();
    assert_eq!(error.message, "wrong key [key]");
}

#[tokio::test]
async fn an_endless_error_body_is_bounded() {
    let url = server(|mut socket| async move {
        read_request(&mut socket).await;
        let _ = socket
            .write_all(b"HTTP/1.1 400 Bad\r\nconnection: close\r\n\r\nprompt is too long ")
            .await;
        while socket.write_all(&[b'x'; 8192]).await.is_ok() {}
    })
    .await;
    let error = send(&provider(&url)).await.err().unwrap();
    assert_eq!(error.class, ErrorClass::ContextOverflow);
    assert!(error.message.chars().count() <= 2000);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_names_its_target() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let other = server(move |mut socket| {
        let saw = saw.clone();
        async move { saw.send(read_request(&mut socket).await.0).unwrap() }
    })
    .await;
    let url = answering(format!("HTTP/1.1 307 Elsewhere\r\nlocation: {other}/chat/completions?key=abc\r\ncontent-length: 0\r\n\r\n")).await;
    let error = send(&provider(&url)).await.err().unwrap();
    assert_eq!(
        (error.class, error.class.retryable()),
        (ErrorClass::NotFound, false)
    );
    assert!(
        error.message.contains(&other) && !error.message.contains("key=abc"),
        "{error}"
    );
    assert!(seen.try_recv().is_err(), "no key went to another host");
}

#[tokio::test]
async fn an_answer_that_is_no_stream_says_so() {
    let json = |body: &str| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let url = answering(json(
        "{\"error\":{\"message\":\"The model is overloaded\",\"code\":\"overloaded\"}}",
    ))
    .await;
    assert_eq!(
        send(&provider(&url)).await.err().unwrap().class,
        ErrorClass::Overloaded
    );
    let url = answering(json("{\"id\":\"x\",\"choices\":[]}")).await;
    let error = send(&provider(&url)).await.err().unwrap();
    assert_eq!(error.class, ErrorClass::InvalidRequest);
    assert!(error.message.contains("base_url"), "{error}");
}

#[tokio::test]
async fn nobody_listening_is_a_clear_transport_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = send(&provider(&format!("http://{address}/v1")))
        .await
        .err()
        .unwrap();
    assert_eq!(error.class, ErrorClass::Unsent);
    assert!(
        error.message.contains("refused") && error.message.contains(&address.port().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn connections_are_used_again() {
    let (saw, mut seen) = mpsc::unbounded_channel();
    let url = server(move |mut socket| {
        saw.send(()).unwrap();
        async move {
            loop {
                if read_request(&mut socket).await.0.is_empty() {
                    return;
                }
                let body = format!("{}{}data: [DONE]\n\n", text("x"), finish());
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    let provider = provider(&url);
    for _ in 0..3 {
        assert!(drain(send(&provider).await.unwrap()).await.1);
    }
    seen.recv().await.unwrap();
    assert!(
        seen.try_recv().is_err(),
        "one connection for three requests"
    );
}

#[tokio::test]
async fn probes_name_the_next_step() {
    let check = |url: String, key: bool| async move {
        let mut settings = settings(&url);
        if !key {
            settings.api_key = None;
        }
        let report = probe(&settings, Duration::from_secs(5)).await;
        assert!(!report.message.contains(KEY));
        (report.finding, report.message)
    };
    let status = |line: &str, body: &str| {
        format!(
            "HTTP/1.1 {line}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let (finding, _) = check(
        answering(status(
            "400 Bad",
            "{\"error\":{\"message\":\"messages is required\"}}",
        ))
        .await,
        true,
    )
    .await;
    assert_eq!(finding, Finding::Ok);
    let (finding, message) = check(answering(status("401 No", "{}")).await, false).await;
    assert_eq!(finding, Finding::Auth);
    assert!(message.contains("api_key_env"), "{message}");
    let (finding, message) = check(answering(status("401 No", "{}")).await, true).await;
    assert!(
        finding == Finding::Auth && message.contains("refuses the key"),
        "{message}"
    );
    let (finding, message) = check(answering(status("404 No", "")).await, true).await;
    assert!(
        finding == Finding::NotFound && message.contains("/v1"),
        "{message}"
    );
    let (finding, message) = check(answering("SSH-2.0-OpenSSH_9.9\r\n".into()).await, true).await;
    assert!(
        finding == Finding::Unreachable && message.contains("does not speak HTTP"),
        "{message}"
    );
    let (finding, _) = check(answering(status("503 Busy", "")).await, true).await;
    assert_eq!(finding, Finding::Trouble);
    let plain = server(|mut socket| async move {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad\r\n\r\n").await;
        let _ = socket.read(&mut [0; 1024]).await;
    })
    .await
    .replace("http://", "https://");
    let (finding, message) = check(plain, true).await;
    assert!(
        finding == Finding::Unreachable && message.contains("TLS"),
        "{message}"
    );
    let (finding, _) = check("nonsense".into(), true).await;
    assert_eq!(finding, Finding::Settings);
    let silent = server(|mut socket| async move {
        read_request(&mut socket).await;
        std::future::pending::<()>().await;
    })
    .await;
    let report = probe(&settings(&silent), Duration::from_millis(200)).await;
    assert_eq!(report.finding, Finding::Timeout);
}
