//! Reading a session whose live items come from another node, however they come.

use crate::support::*;
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_core::event::body::FragmentKind;
use tenure_core::id::{Incarnation, MessageId, SessionId};
use tenure_core::provider::ProviderEvent;
use tenure_engine::*;
use tenure_store::FollowItem;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Ways to other nodes on which the test itself says what the owner relays: once, to whoever asks first.
#[derive(Default)]
struct Wire(Mutex<Option<mpsc::UnboundedReceiver<Relayed>>>);

impl Wire {
    fn new() -> (Arc<Self>, mpsc::UnboundedSender<Relayed>) {
        let (says, hears) = mpsc::unbounded_channel();
        (Arc::new(Self(Mutex::new(Some(hears)))), says)
    }
}

struct Over(Arc<Wire>);

impl Peers for Over {
    fn wake(&self, _: &Peer, _: &SessionId) -> BoxFuture<'static, Woken> {
        ready(Woken::Unreached(Unreached::Silent)).boxed()
    }

    fn live(
        &self,
        _: &Peer,
        _: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>> {
        let hears = self.0.0.lock().unwrap().take();
        let said = hears.map(|hears| {
            stream::unfold(hears, |mut hears| async move {
                let said = hears.recv().await?;
                Some((said, hears))
            })
            .boxed()
        });
        ready(said.ok_or(Unreached::Silent)).boxed()
    }

    fn probe(&self, _: &Peer) -> BoxFuture<'static, Result<(), Unreached>> {
        ready(Ok(())).boxed()
    }

    fn address(&self, incarnation: &Incarnation) -> Option<String> {
        Some(incarnation.to_string())
    }

    fn serve(
        &self,
        _: &Incarnation,
        _: NodeService,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        async move { stop.cancelled().await }.boxed()
    }
}

fn delta(message: &MessageId, offset: u64, text: &str) -> LiveItem {
    LiveItem::Delta {
        message: message.clone(),
        attempt: 1,
        part: 0,
        kind: FragmentKind::Text,
        offset,
        text: text.to_owned(),
    }
}

fn said(item: LiveItem) -> Relayed {
    Relayed::Item { item }
}

type Reader = BoxStream<'static, Result<Shown, tenure_store::ReadError>>;

/// What is shown until `last` is, ends included.
async fn until(reader: &mut Reader, last: impl Fn(&Shown) -> bool) -> Vec<Shown> {
    let reading = async {
        let mut shown = Vec::new();
        loop {
            shown.push(reader.next().await.unwrap().unwrap());
            if shown.last().is_some_and(&last) {
                return shown;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading)
        .await
        .expect("it was shown")
}

fn is(shown: &Shown, name: &str) -> bool {
    matches!(shown, Shown::Log(FollowItem::Event(event)) if event.body.type_name() == name)
}

fn live(shown: &[Shown]) -> Vec<LiveItem> {
    let live = shown.iter().filter_map(|shown| match shown {
        Shown::Live(item) => Some(item.clone()),
        Shown::Log(_) => None,
    });
    live.collect()
}

/// A session whose owner streams and says nothing of it by itself: a reader behind it, and the step's message.
async fn streaming(bed: &mut Bed) -> (Engine, Reader, mpsc::UnboundedSender<Relayed>, MessageId) {
    let (wire, says) = Wire::new();
    let peers: Arc<dyn Peers> = Arc::new(Over(wire));
    bed.config.peers = Some(peers.clone());
    bed.model
        .push(Play::Hang(vec![Ok(vec![ProviderEvent::TextStart {
            id: "t".to_owned(),
        }])]));
    let engine = bed.engine().await;
    let session = bed.session().await;
    let client = Client::with_peers(bed.store.clone(), bed.config.env.clone(), peers);
    let mut reader = client.read(&session, None);
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    let shown = until(&mut reader, |shown| is(shown, "fragment.started")).await;
    let message = shown.iter().find_map(|shown| match shown {
        Shown::Log(FollowItem::Event(event)) => match &event.body {
            EventBody::AttemptStarted(start) => Some(start.message.clone()),
            _ => None,
        },
        Shown::Live(_) | Shown::Log(_) => None,
    });
    (engine, reader, says, message.unwrap())
}

#[tokio::test]
async fn live_text_is_shown_once_and_in_place() {
    let mut bed = Bed::new([]);
    let (engine, mut reader, says, message) = streaming(&mut bed).await;
    for (offset, text) in [(0, "one "), (0, "one "), (9, "gap"), (2, "e two"), (7, ".")] {
        says.send(said(delta(&message, offset, text))).unwrap();
    }
    let shown = until(&mut reader, |shown| {
        *shown == Shown::Live(delta(&message, 7, "."))
    })
    .await;
    let whole = [(0, "one "), (4, "two"), (7, ".")];
    let whole = whole.map(|(offset, text)| delta(&message, offset, text));
    assert_eq!(live(&shown), whole);
    engine.shutdown_now().await.unwrap();
}

/// The next owner's node is faster than the log.
#[tokio::test]
async fn what_a_lost_owner_showed_is_taken_back_before_anything_of_the_next() {
    let mut bed = Bed::new([]);
    let (engine, mut reader, says, message) = streaming(&mut bed).await;
    let next = MessageId::from_bits(77);
    says.send(said(delta(&message, 0, "and lost"))).unwrap();
    says.send(said(delta(&next, 0, "of the next"))).unwrap();
    says.send(said(LiveItem::Lagged)).unwrap();
    let shown = until(&mut reader, |shown| *shown == Shown::Live(LiveItem::Lagged)).await;
    assert_eq!(
        live(&shown),
        [delta(&message, 0, "and lost"), LiveItem::Lagged],
        "the log has not told of another owner"
    );
    // It stops in the middle: what the log does not have is taken back before the event that shows it.
    engine.shutdown_now().await.unwrap();
    let shown = until(&mut reader, |shown| is(shown, "step.failed")).await;
    let taken_back = LiveItem::Superseded {
        message,
        attempt: 1,
        part: 0,
        from: 0,
    };
    assert_eq!(live(&shown), [taken_back]);
}
