//! Who is let in: each refusal, its status and what it says.

use crate::hop::*;
use crate::support::*;
use http::{HeaderMap, Method};
use serde_json::{Value, json};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};
use tenure_engine::Engine;
use tenure_server::auth::{NONCE, Nonce, SIGNATURE, Signed, sign};
use tenure_server::{Limits, NodeServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const WAKE: &str = "/v1/node/wake";

/// A node, and a caller that signs by hand.
struct Door {
    server: NodeServer,
    engine: Engine,
    http: reqwest::Client,
    me: Incarnation,
    _bed: Bed,
}

impl Door {
    async fn with(limits: Limits) -> Self {
        let bed = Bed::new([]);
        let server = server_with(limits).await;
        let engine = node(&bed, &bed.store, &server).await;
        let door = Self {
            engine,
            me: Incarnation::from_bits(77),
            // Made behind a client of ours, which chose the cryptography.
            http: {
                let _ = peers();
                reqwest::Client::builder().no_proxy().build().unwrap()
            },
            server,
            _bed: bed,
        };
        eventually("the life", async || {
            door.get("/v1/node/health").await.0 == 200
        })
        .await;
        door
    }

    async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    fn signed(&self, to: &Incarnation, nonce: Nonce, body: &str) -> HeaderMap {
        sign(
            &secret(),
            &Signed {
                method: &Method::POST,
                path: WAKE,
                body: body.as_bytes(),
                to,
                from: &self.me,
                nonce,
            },
        )
    }

    async fn post(&self, headers: HeaderMap, body: &str) -> (u16, Value) {
        let url = format!("http://{}{WAKE}", self.server.local_addr());
        let sent = self.http.post(url).headers(headers).body(body.to_owned());
        answer(sent).await
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let url = format!("http://{}{path}", self.server.local_addr());
        answer(self.http.get(url)).await
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.bytes().await.unwrap();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn nonce(generation: u64, counter: u64) -> Nonce {
    Nonce {
        generation,
        counter,
    }
}

fn body() -> String {
    json!({ "session": SessionId::from_bits(5) }).to_string()
}

#[tokio::test]
async fn a_signed_request_is_answered_once() {
    let door = Door::new().await;
    let headers = door.signed(&door.engine.incarnation(), nonce(0, 1), &body());
    let (status, said) = door.post(headers.clone(), &body()).await;
    assert_eq!(
        (status, said),
        (200, json!({"woken": "not_owner", "epoch": null}))
    );
    let (status, said) = door.post(headers, &body()).await;
    assert_eq!((status, &said["error"]), (409, &json!("replayed")));
}

#[tokio::test]
async fn who_does_not_know_the_secret_is_told_nothing() {
    let door = Door::new().await;
    let (status, said) = door.post(HeaderMap::new(), &body()).await;
    assert_eq!((status, &said["error"]), (401, &json!("unsigned")));
    let mine = door.engine.incarnation();
    let good = door.signed(&mine, nonce(0, 1), &body());
    // Of another life, another body, another number: not signed so.
    let other = Incarnation::from_bits(9);
    for (name, value) in [("x-tenure-to", other.as_str()), ("x-tenure-nonce", "0.2")] {
        let mut changed = good.clone();
        changed.insert(name, value.parse().unwrap());
        let (status, said) = door.post(changed, &body()).await;
        assert_eq!(
            (status, &said["error"]),
            (401, &json!("bad_signature")),
            "{name}"
        );
        assert!(!said.to_string().contains(mine.as_str()), "{said}");
    }
    let (status, _) = door.post(good.clone(), "{}").await;
    assert_eq!(status, 401);
    let mut short = good.clone();
    short.insert(SIGNATURE, "00".parse().unwrap());
    assert_eq!(door.post(short, &body()).await.0, 401);
    let mut garbled = good;
    garbled.insert(NONCE, "soon".parse().unwrap());
    assert_eq!(door.post(garbled, &body()).await.1["error"], "unsigned");
}

#[tokio::test]
async fn another_life_is_misdirected_and_keeps_its_number() {
    let door = Door::new().await;
    let other = Incarnation::from_bits(9);
    let (status, said) = door
        .post(door.signed(&other, nonce(0, 1), &body()), &body())
        .await;
    assert_eq!((status, &said["error"]), (421, &json!("other_life")));
    let again = door.signed(&door.engine.incarnation(), nonce(0, 1), &body());
    assert_eq!(door.post(again, &body()).await.0, 200);
}

#[tokio::test]
async fn a_generation_that_is_over_names_the_one_that_is_not() {
    let door = Door::with(Limits {
        callers: 1,
        ..Limits::default()
    })
    .await;
    let to = door.engine.incarnation();
    assert_eq!(
        door.post(door.signed(&to, nonce(0, 1), &body()), &body())
            .await
            .0,
        200
    );
    let mut second = Door {
        me: Incarnation::from_bits(78),
        ..door
    };
    let (status, said) = second
        .post(second.signed(&to, nonce(0, 1), &body()), &body())
        .await;
    assert_eq!(
        (status, &said["error"], &said["generation"]),
        (409, &json!("generation"), &json!(1))
    );
    assert_eq!(
        second
            .post(second.signed(&to, nonce(1, 1), &body()), &body())
            .await
            .0,
        200
    );
    // The first caller's request, recorded and sent again, is of no use in any generation.
    second.me = Incarnation::from_bits(77);
    assert_eq!(
        second
            .post(second.signed(&to, nonce(0, 1), &body()), &body())
            .await
            .0,
        409
    );
}

/// Many commands, each a caller of its own, at a node that remembers few: none notices.
#[tokio::test]
async fn callers_that_come_and_go_are_all_answered() {
    let door = Door::with(Limits {
        callers: 3,
        ..Limits::default()
    })
    .await;
    let peer = peer(door._bed.store.as_ref(), &door.engine.incarnation()).await;
    for _ in 0..20 {
        use tenure_engine::Peers;
        let caller = peers();
        for _ in 0..2 {
            assert_eq!(caller.probe(&peer).await, Ok(()));
        }
    }
}

#[tokio::test]
async fn bodies_and_questions_that_make_no_sense_are_refused() {
    let door = Door::new().await;
    let to = door.engine.incarnation();
    let large = "x".repeat(20 * 1024);
    assert_eq!(
        door.post(door.signed(&to, nonce(0, 1), &large), &large)
            .await
            .0,
        413
    );
    let (status, said) = door.post(door.signed(&to, nonce(0, 2), "{}"), "{}").await;
    assert_eq!((status, &said["error"]), (400, &json!("malformed")));
    assert!(
        said["message"].as_str().unwrap().contains("session"),
        "{said}"
    );
    assert_eq!(door.get("/v1/node/nowhere").await.0, 404);
    assert_eq!(door.get("/v1/node/live?session=x").await.0, 401);
}

#[tokio::test]
async fn health_tells_anybody_a_word_and_ends_with_the_life() {
    let door = Door::new().await;
    assert_eq!(
        door.get("/v1/node/health").await,
        (200, json!({"status": "ok"}))
    );
    door.engine.shutdown().await.unwrap();
    eventually("the end of the life", async || {
        door.get("/v1/node/health").await.0 == 503
    })
    .await;
    // Signed questions are refused, not answered for a life that is over.
    let headers = door.signed(&door.engine.incarnation(), nonce(0, 1), &body());
    let (status, said) = door.post(headers, &body()).await;
    assert_eq!((status, &said["error"]), (503, &json!("not_now")));
}

#[tokio::test]
async fn connections_are_bounded_and_one_that_says_nothing_is_closed() {
    let door = Door::with(Limits {
        connections: 2,
        patience: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    let address = door.server.local_addr();
    let mut mute = Vec::new();
    for _ in 0..4 {
        mute.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    // They are all closed in the end, without a request, and the node answers again.
    for mut stream in mute {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut [0; 64])).await;
        assert!(matches!(read.unwrap(), Ok(0) | Err(_)));
    }
    assert_eq!(door.get("/v1/node/health").await.0, 200);
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut() {
    let door = Door::with(Limits {
        patience: Duration::from_millis(200),
        ..Limits::default()
    })
    .await;
    let mut stream = tokio::net::TcpStream::connect(door.server.local_addr())
        .await
        .unwrap();
    stream
        .write_all(b"POST /v1/node/wake HTTP/1.1\r\nx-a: ")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "it was not cut");
}

/// Whoever reaches the port can send a head: no more of it is kept than a question of ours needs.
#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let door = Door::new().await;
    let mut stream = tokio::net::TcpStream::connect(door.server.local_addr())
        .await
        .unwrap();
    let head = format!(
        "GET /v1/node/health HTTP/1.1\r\nhost: x\r\nx-a: {}\r\n\r\n",
        "a".repeat(64 * 1024)
    );
    // It may hang up before all of it is sent.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut said = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut said)).await;
    match read.expect("an end") {
        Ok(0) | Err(_) => {}
        Ok(n) => assert_eq!(std::str::from_utf8(&said[..n]).unwrap(), "HTTP/1.1 431"),
    }
    assert_eq!(door.get("/v1/node/health").await.0, 200);
}
