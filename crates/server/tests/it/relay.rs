//! Reading from another node: live text over a real hop, across a change of owner, by readers fast and slow.

use crate::hop::*;
use crate::support::*;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::collections::HashMap;
use std::time::Duration;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{MessageId, SessionId};
use tenure_core::provider::ProviderEvent;
use tenure_engine::*;
use tenure_server::Limits;
use tenure_store::{FollowItem, ReadError};

type Reader = BoxStream<'static, Result<Shown, ReadError>>;

/// A part as it is drawn: its text, and how much of it the log holds.
#[derive(Default)]
struct Drawn {
    text: String,
    durable: usize,
}

/// What a person sees who draws what is shown, takes back what is superseded, and lets the log decide.
#[derive(Default)]
struct Screen {
    parts: HashMap<(MessageId, u32), Drawn>,
    /// The part that was last drawn on.
    last: Option<(MessageId, u32)>,
    seqs: Vec<u64>,
    superseded: Vec<u64>,
    lagged: usize,
}

impl Screen {
    fn part(&mut self, message: &MessageId, part: u32) -> &mut Drawn {
        let key = (message.clone(), part);
        self.last = Some(key.clone());
        self.parts.entry(key).or_default()
    }

    fn text(&self) -> &str {
        let last = self.last.as_ref().and_then(|key| self.parts.get(key));
        last.map_or("", |drawn| drawn.text.as_str())
    }

    fn show(&mut self, shown: &Shown) {
        match shown {
            Shown::Live(LiveItem::Delta {
                message,
                part,
                offset,
                text,
                ..
            }) => {
                let drawn = self.part(message, *part);
                assert_eq!(
                    *offset as usize,
                    drawn.text.len(),
                    "once, and without a gap"
                );
                drawn.text += text;
            }
            Shown::Live(LiveItem::Superseded {
                message,
                part,
                from,
                ..
            }) => {
                self.superseded.push(*from);
                let drawn = self.part(message, *part);
                assert_eq!(
                    *from as usize, drawn.durable,
                    "from the end of what is durable"
                );
                drawn.text.truncate(*from as usize);
            }
            Shown::Live(LiveItem::Lagged) => self.lagged += 1,
            Shown::Live(LiveItem::ToolOutput { .. }) | Shown::Log(FollowItem::Synced { .. }) => {}
            Shown::Log(FollowItem::Event(event)) => self.logged(event),
        }
    }

    fn logged(&mut self, event: &Event) {
        self.seqs.push(event.seq);
        match &event.body {
            EventBody::FragmentChunk(chunk) => {
                let drawn = self.part(&chunk.message, chunk.part);
                let end = drawn.durable + chunk.text.len();
                if end > drawn.text.len() {
                    drawn.text.truncate(drawn.durable);
                    drawn.text += &chunk.text;
                }
                drawn.durable = end;
            }
            EventBody::FragmentEnded(end) => {
                let drawn = self.part(&end.message, end.part);
                assert_eq!(drawn.text.len() as u64, end.bytes, "{:?}", drawn.text);
            }
            _ => {}
        }
    }

    fn saw_each_event_once(&self) -> bool {
        self.seqs.iter().copied().eq(0..self.seqs.len() as u64)
    }

    /// Reads until `done`.
    async fn until(&mut self, reader: &mut Reader, done: impl Fn(&Shown, &Self) -> bool) {
        let reading = async {
            loop {
                let shown = reader.next().await.expect("the log goes on").unwrap();
                self.show(&shown);
                if done(&shown, self) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reading)
            .await
            .expect("it was shown");
    }
}

fn is(shown: &Shown, name: &str) -> bool {
    matches!(shown, Shown::Log(FollowItem::Event(event)) if event.body.type_name() == name)
}

async fn watched(hub: &Hub, session: &SessionId) {
    eventually("a reader", async || hub.has_readers(session)).await;
}

#[tokio::test]
async fn live_text_of_another_node_is_shown_ahead_of_the_log_and_confirmed() {
    let gate = Gate::shut();
    let bed = Bed::new([Play::Gated(
        half("one "),
        gate.clone(),
        vec![
            half("two ").remove(0).map(|mut b| {
                b.remove(0);
                b
            }),
            text("x").remove(1),
        ],
    )]);
    let server = server().await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    let mut reader = far(&bed).read(&session, None);
    let mut screen = Screen::default();
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    watched(engine.hub(), &session).await;
    gate.open();
    screen
        .until(&mut reader, |shown, _| is(shown, "execution.succeeded"))
        .await;
    assert_eq!(screen.text(), "one two ");
    assert!(screen.saw_each_event_once(), "{:?}", screen.seqs);
    assert_eq!(screen.superseded, [] as [u64; 0]);
    engine.idle().await;
}

/// The owner dies with live text that no log has. Another node takes over; the reader, which was connected to the
/// dead one, is told what does not count, reads on, and sees live text of the new owner.
#[tokio::test]
async fn on_a_change_of_owner_what_no_log_confirms_is_superseded() {
    let (gate, second) = (Gate::shut(), Gate::shut());
    let bed = Bed::new([
        Play::Gated(
            half("kept"),
            gate.clone(),
            vec![more("and seen by nobody else"), more("")],
        ),
        Play::Gated(
            half("again"),
            second.clone(),
            vec![more(" live"), text("x").remove(1)],
        ),
    ]);
    let (at_a, at_b) = (server().await, server().await);
    let config = EngineConfig {
        poll: Duration::from_millis(50),
        ..config(&bed, &at_a)
    };
    let world = std::sync::Arc::new(Mortal::default());
    // Text becomes durable only at its end here: nothing it shows is in the log when it dies.
    let a = bed
        .engine_with(
            &bed.store,
            EngineConfig {
                env: world.clone(),
                ..config
            },
        )
        .await;
    let session = bed.session().await;
    let mut reader = far(&bed).read(&session, None);
    let mut screen = Screen::default();
    bed.admit(&session, Prompt::steer("go")).await;
    a.run(&session);
    bed.until(&session, "fragment.started").await;
    watched(a.hub(), &session).await;
    screen
        .until(&mut reader, |_, screen| screen.text() == "kept")
        .await;
    bed.until(&session, "fragment.chunk").await;
    // As the node is killed: an item that only the reader gets, then nothing more.
    let (message, attempt) = open_step(&bed, &session).await;
    a.hub().send(
        &session,
        LiveItem::Delta {
            message,
            attempt,
            part: 0,
            kind: tenure_core::event::body::FragmentKind::Text,
            offset: 4,
            text: " and lost".to_owned(),
        },
    );
    screen
        .until(&mut reader, |_, screen| screen.text() == "kept and lost")
        .await;
    world.kill().await;
    bed.store.crash_node(&a.incarnation());
    drop(at_a);
    let b = node(&bed, &bed.store, &at_b).await;
    b.run(&session);
    screen
        .until(&mut reader, |_, screen| !screen.superseded.is_empty())
        .await;
    assert_eq!(screen.superseded, [4]);
    bed.until_nth(&session, "fragment.started", 2).await;
    watched(b.hub(), &session).await;
    second.open();
    screen
        .until(&mut reader, |shown, _| is(shown, "execution.succeeded"))
        .await;
    assert_eq!(screen.text(), "again live");
    assert!(screen.saw_each_event_once(), "{:?}", screen.seqs);
    b.idle().await;
}

fn more(words: &str) -> Result<Vec<ProviderEvent>, tenure_core::error::ProviderError> {
    Ok(vec![ProviderEvent::TextDelta {
        id: "t".to_owned(),
        text: words.to_owned(),
    }])
}

async fn open_step(bed: &Bed, session: &SessionId) -> (tenure_core::id::MessageId, u32) {
    let log = bed.log(session).await;
    log.iter()
        .find_map(|event| match &event.body {
            EventBody::AttemptStarted(start) => Some((start.message.clone(), start.attempt)),
            _ => None,
        })
        .unwrap()
}

/// The owner is drained: the reader is handed on to the next one without having to ask.
#[tokio::test]
async fn a_reader_goes_with_the_session_when_its_node_is_drained() {
    let second = Gate::shut();
    let bed = Bed::new([
        Play::Hang(half("one")),
        Play::Gated(
            half("two"),
            second.clone(),
            vec![more(" three"), text("x").remove(1)],
        ),
    ]);
    let (at_a, at_b) = (server().await, server().await);
    let a = node(&bed, &bed.store, &at_a).await;
    let session = bed.session().await;
    let mut reader = far(&bed).read(&session, None);
    let mut screen = Screen::default();
    bed.admit(&session, Prompt::steer("go")).await;
    a.run(&session);
    bed.until(&session, "fragment.started").await;
    watched(a.hub(), &session).await;
    a.shutdown_now().await.unwrap();
    let b = node(&bed, &bed.store, &at_b).await;
    b.run(&session);
    bed.until_nth(&session, "fragment.started", 2).await;
    watched(b.hub(), &session).await;
    second.open();
    screen
        .until(&mut reader, |shown, _| is(shown, "execution.succeeded"))
        .await;
    assert_eq!(screen.text(), "two three");
    b.idle().await;
}

/// A reader that does not read: the owner is not held up, nothing grows, and the reader goes on from the log.
#[tokio::test]
async fn a_slow_reader_is_resynchronised_and_holds_nobody_up() {
    let gate = Gate::shut();
    let words = |n: usize| format!("{n} ").repeat(8);
    let mut rest: Answer = (0..4_000).map(|n| more(&words(n))).collect();
    rest.push(text("x").remove(1));
    let whole: String = std::iter::once("begin ".to_owned())
        .chain((0..4_000).map(words))
        .collect();
    let bed = Bed::new([Play::Gated(half("begin "), gate.clone(), rest)]);
    let server = server().await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    let mut reader = far(&bed).read(&session, None);
    let mut screen = Screen::default();
    let admission = bed.admit(&session, Prompt::steer("talk")).await;
    engine.run(&session);
    screen
        .until(&mut reader, |shown, _| is(shown, "fragment.started"))
        .await;
    watched(engine.hub(), &session).await;
    gate.open();
    // It reads nothing until the work is over.
    assert_eq!(
        outcome(&engine, &session, &admission).await,
        Outcome::Succeeded
    );
    engine.idle().await;
    screen
        .until(&mut reader, |shown, _| is(shown, "execution.succeeded"))
        .await;
    assert_eq!(screen.text(), whole);
    assert!(screen.saw_each_event_once(), "{:?}", screen.seqs);
    // It is told that it missed live text, as soon as it reads again.
    if screen.lagged == 0 {
        screen
            .until(&mut reader, |_, screen| screen.lagged > 0)
            .await;
    }
    assert_eq!(screen.text(), whole);
}

/// The same on the wire: whoever asks for the stream and does not read is told that it lagged.
#[tokio::test]
async fn a_stream_that_is_not_read_says_so_when_it_is() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let server = server().await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let owner = peer(bed.store.as_ref(), &engine.incarnation()).await;
    let mut stream = peers().live(&owner, &session).await.unwrap();
    watched(engine.hub(), &session).await;
    let item = |n: u64| LiveItem::ToolOutput {
        call: tenure_core::id::CallId::new("c"),
        text: "y".repeat(16 * 1024),
        total_bytes: n,
    };
    // More than every buffer on the way holds.
    for n in 0..20_000 {
        engine.hub().send(&session, item(n));
        if n % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let lagged = async {
        loop {
            match stream.next().await {
                Some(Relayed::Item {
                    item: LiveItem::Lagged,
                }) => return,
                Some(Relayed::Item { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), lagged)
        .await
        .expect("it was told");
    engine.shutdown_now().await.unwrap();
    // The end of the run ends the stream, with a word.
    let last = async {
        let mut last = None;
        while let Some(said) = stream.next().await {
            last = Some(said);
        }
        last
    };
    let last = tokio::time::timeout(Duration::from_secs(30), last)
        .await
        .unwrap();
    assert!(
        matches!(last, Some(Relayed::Moved { epoch: Some(1) })),
        "{last:?}"
    );
}

/// A reader that is stopped, and not gone: it keeps its connection and takes nothing from it. Its place is for others
/// after a while.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stream_that_nobody_reads_frees_its_place() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let server = server_with(Limits {
        streams: 1,
        unread: Duration::from_millis(300),
        beat: Duration::from_millis(50),
        ..Limits::default()
    })
    .await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let owner = peer(bed.store.as_ref(), &engine.incarnation()).await;
    let stopped = asked_live(&server, &owner, &session).await;
    watched(engine.hub(), &session).await;
    // More than every buffer on the way holds.
    for n in 0..4_000 {
        let item = LiveItem::ToolOutput {
            call: tenure_core::id::CallId::new("c"),
            text: "y".repeat(16 * 1024),
            total_bytes: n,
        };
        engine.hub().send(&session, item);
        tokio::task::yield_now().await;
    }
    let peers = peers();
    eventually("its place", async || {
        peers.live(&owner, &session).await.is_ok()
    })
    .await;
    drop(stopped);
    engine.shutdown_now().await.unwrap();
}

/// A connection that has asked for live items, by hand: nothing of its answer is read.
pub async fn asked_live(
    server: &tenure_server::NodeServer,
    owner: &tenure_engine::Peer,
    session: &SessionId,
) -> tokio::net::TcpStream {
    use tenure_server::auth::{Nonce, Signed, sign};
    use tokio::io::AsyncWriteExt;
    let path = format!("/v1/node/live?session={session}");
    let headers = sign(
        &secret(),
        &Signed {
            method: &http::Method::GET,
            path: &path,
            body: b"",
            to: &owner.incarnation,
            from: &tenure_core::id::Incarnation::from_bits(77),
            nonce: Nonce {
                generation: 0,
                counter: 1,
            },
        },
    );
    let mut head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n");
    for (name, value) in &headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    let mut stream = tokio::net::TcpStream::connect(server.local_addr())
        .await
        .unwrap();
    stream
        .write_all(format!("{head}\r\n").as_bytes())
        .await
        .unwrap();
    stream
}

#[tokio::test]
async fn a_shutdown_ends_streams_that_would_go_on_for_ever() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let server = server_with(Limits {
        streams: 1,
        ..Limits::default()
    })
    .await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let owner = peer(bed.store.as_ref(), &engine.incarnation()).await;
    let peers = peers();
    let mut stream = peers.live(&owner, &session).await.unwrap();
    // One more than it may relay is refused, with the reason.
    let refused = peers.live(&owner, &session).await.map(drop).unwrap_err();
    assert!(
        refused.to_string().contains("as many live streams"),
        "{refused}"
    );
    let began = std::time::Instant::now();
    server.shutdown(Duration::from_secs(20)).await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let rest = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(10), rest)
        .await
        .expect("it ended");
    engine.shutdown_now().await.unwrap();
}
