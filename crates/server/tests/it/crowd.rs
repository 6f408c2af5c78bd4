//! A door that is full: who has nothing under way gives way to who comes, and who is being answered stays.

use crate::hop::*;
use crate::relay::asked_live;
use crate::support::*;
use std::net::SocketAddr;
use std::time::Duration;
use tenure_core::id::CallId;
use tenure_engine::{LiveItem, Prompt};
use tenure_server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longer than any of these tests: no connection is closed for being idle.
const FOR_EVER: Duration = Duration::from_secs(3_600);
const HEALTH: &str = "GET /v1/node/health HTTP/1.1\r\nhost: x\r\n\r\n";
/// Of a request that says it is a node's, all but the body.
const BODILESS: &str =
    "POST /v1/node/wake HTTP/1.1\r\nhost: x\r\nx-tenure-signature: 0\r\ncontent-length: 9\r\n\r\n";

/// A connection that has said this much.
async fn said(address: SocketAddr, words: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(words.as_bytes()).await.unwrap();
    stream
}

/// Something that has to come.
async fn comes<T>(what: &str, coming: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(Duration::from_secs(30), coming).await;
    came.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Reads the whole answer to [`HEALTH`] and gives its status.
async fn status(stream: &mut TcpStream) -> u16 {
    let mut text = Vec::new();
    while !text.ends_with(b"}") {
        let read = comes("an answer", stream.read_buf(&mut text)).await;
        assert!(read.unwrap() > 0, "{}", String::from_utf8_lossy(&text));
    }
    let text = String::from_utf8(text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

async fn is_closed(stream: &mut TcpStream) {
    let read = comes("its end", stream.read(&mut [0; 64])).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn strangers_who_say_nothing_or_half_of_it_keep_nobody_out() {
    let server = server_with(Limits {
        connections: 60,
        patience: FOR_EVER,
        ..Limits::default()
    })
    .await;
    let address = server.local_addr();
    for half in ["", "GET /v1/node/health HTTP/1.1\r\nx-a: ", BODILESS] {
        let mut strangers = Vec::new();
        for _ in 0..60 {
            strangers.push(said(address, half).await);
        }
        let mut asks = said(address, HEALTH).await;
        // It has joined no store: that is an answer, too.
        assert_eq!(status(&mut asks).await, 503);
        // The one that came first went; the others may still say the rest.
        is_closed(&mut strangers[0]).await;
        if half.is_empty() {
            let last = strangers.last_mut().unwrap();
            last.write_all(HEALTH.as_bytes()).await.unwrap();
            assert_eq!(status(last).await, 503);
        }
        // An idle connection that was answered is one of them.
        asks.write_all(HEALTH.as_bytes()).await.unwrap();
        assert_eq!(status(&mut asks).await, 503);
    }
}

#[tokio::test]
async fn a_stream_under_way_is_cut_for_nobody() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let server = server_with(Limits {
        connections: 2,
        patience: FOR_EVER,
        ..Limits::default()
    })
    .await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let owner = peer(bed.store.as_ref(), &engine.incarnation()).await;
    let mut stream = asked_live(&server, &owner, &session).await;
    eventually("a reader", async || engine.hub().has_readers(&session)).await;
    let mut before: Option<TcpStream> = None;
    for _ in 0..20 {
        let mut asks = said(server.local_addr(), HEALTH).await;
        assert_eq!(status(&mut asks).await, 200);
        // It was answered, and is idle now.
        if let Some(mut before) = before.replace(asks) {
            is_closed(&mut before).await;
        }
    }
    // What its reader is shown only now still comes.
    let item = LiveItem::ToolOutput {
        call: CallId::new("c"),
        text: "still here".to_owned(),
        total_bytes: 10,
    };
    engine.hub().send(&session, item);
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("still here") {
        let read = comes("the rest of the stream", stream.read_buf(&mut text)).await;
        assert!(read.unwrap() > 0, "the stream was cut");
    }
    engine.shutdown_now().await.unwrap();
}
