//! Peers on one machine: live items and wakes over the Unix socket.

use crate::fakes::*;
use crate::support::*;
use crate::weather::Weather;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::placement::Serves;
use tenure_core::provider::ProviderEvent;
use tenure_engine::*;
use tenure_store::{Acquire, Interrupted, NodeInfo};
use tokio_util::sync::CancellationToken;

fn begun() -> Answer {
    vec![Ok(vec![
        ProviderEvent::TextStart { id: "t".to_owned() },
        ProviderEvent::TextDelta {
            id: "t".to_owned(),
            text: "thinking aloud".to_owned(),
        },
    ])]
}

#[tokio::test]
async fn another_handle_sees_live_text_and_its_interrupt_arrives_by_the_socket() {
    let mut bed = Bed::new([]);
    bed.config.socket_dir = Some(bed.dir.path().to_owned());
    // The poll alone must not be what delivers the interrupt.
    bed.config.poll = Duration::from_secs(3600);
    let engine = bed.engine().await;
    let session = bed.session().await;
    let client = bed.client();
    let mut live = client.follow_live(&session);
    // The reader must be connected before the text comes: hold the model back until it is.
    bed.model.push(Play::Hang(Vec::new()));
    client.admit(&session, Prompt::steer("go")).await.unwrap();
    engine.run(&session);
    bed.until(&session, "attempt.started").await;
    let connected = async {
        while !engine.hub().has_readers(&session) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), connected)
        .await
        .unwrap();
    let receipt = client.interrupt(&session, None, "test").await.unwrap();
    assert!(matches!(
        receipt,
        Interrupted::Accepted {
            after_takeover: false,
            ..
        }
    ));
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    assert_eq!(bed.store.claims().await.unwrap(), []);

    bed.model.push(Play::Hang(begun()));
    let mut second = client.follow_live(&session);
    client
        .admit(&session, Prompt::steer("again"))
        .await
        .unwrap();
    engine.run(&session);
    let text = async {
        loop {
            let item = tokio::select! {
                item = live.recv() => item,
                item = second.recv() => item,
            };
            if let Some(LiveItem::Delta { text, .. }) = item {
                return text;
            }
        }
    };
    // A reader that connects late has the text from the log: the checkpoint comes within 100 ms.
    let chunk = bed.until(&session, "fragment.chunk");
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        tokio::select! {
            text = text => text,
            event = chunk => event.body.encode(),
        }
    });
    assert!(seen.await.unwrap().contains("thinking aloud"));
}

/// A node that takes any session, with a store that hints nothing and a poll that never comes: only peers wake it.
async fn deaf(bed: &Bed) -> Engine {
    let (store, sky) = Weather::over(&bed.store);
    sky.deaf.store(true, Ordering::SeqCst);
    let config = EngineConfig {
        scope: Scope::Any,
        socket_dir: Some(bed.dir.path().to_owned()),
        poll: Duration::from_secs(3600),
        ..bed.config.clone()
    };
    let node = bed.engine_on(store, config).await;
    let peers = UnixPeers::default();
    let rows = bed.store.nodes().await.unwrap();
    let mut rows = rows.into_iter();
    let own = rows
        .find(|row| row.incarnation == node.incarnation())
        .unwrap();
    let peer = Peer {
        incarnation: own.incarnation,
        address: own.address.unwrap(),
    };
    let listens = async || peers.probe(&peer).await.is_ok();
    eventually("a node that listens", listens).await;
    node
}

#[tokio::test]
async fn an_input_wakes_the_node_that_comes_first_for_an_idle_session() {
    let bed = Bed::new((0..8).map(|_| Play::Answer(text("done"))));
    let nodes = [deaf(&bed).await, deaf(&bed).await];
    let mut results: Vec<_> = nodes.iter().map(Engine::results).collect();
    let client = bed.client();
    for _ in 0..4 {
        let session = bed.session().await;
        for turn in 1..=2 {
            client.admit(&session, Prompt::steer("go")).await.unwrap();
            bed.until_nth(&session, "execution.succeeded", turn).await;
            for node in &nodes {
                node.idle().await;
            }
        }
        // Both times it was the same one, and only that one.
        let ran = results.iter_mut().map(|results| results.len());
        let mut ran: Vec<usize> = ran.collect();
        ran.sort_unstable();
        assert_eq!(ran, [0, 2]);
        for results in &mut results {
            while results.try_recv().is_ok() {}
        }
    }
}

#[tokio::test]
async fn the_heir_of_a_hand_over_is_told_at_once() {
    let gate = Gate::shut();
    let rest = calls([call("a", "echo", r#"{"say":"one"}"#)]);
    let mut bed = Bed::new([
        Play::Gated(half("let me"), gate.clone(), vec![rest[0].clone()]),
        Play::Answer(text("done")),
    ])
    .with_tool(Echo);
    bed.config.socket_dir = Some(bed.dir.path().to_owned());
    let leaver = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    leaver.run(&session);
    bed.until(&session, "fragment.started").await;
    let heir = deaf(&bed).await;
    let leaving = tokio::spawn({
        let leaver = leaver.clone();
        async move { leaver.shutdown().await }
    });
    let draining = async || bed.store.nodes().await.unwrap().iter().any(|n| n.draining);
    eventually("the mark of draining", draining).await;
    gate.open();
    leaving.await.unwrap().unwrap();
    bed.until(&session, "execution.succeeded").await;
    heir.idle().await;
    assert_eq!(bed.count(&session, "attempt.started").await, 2);
}

/// Peers of which one has fallen silent: its machine is gone, and nothing is left there that could refuse.
#[derive(Default)]
struct Hushed {
    silent: Mutex<Option<String>>,
    asked: Mutex<Vec<String>>,
}

impl Peers for Hushed {
    fn wake(&self, peer: &Peer, _: &SessionId) -> BoxFuture<'static, Woken> {
        self.asked.lock().unwrap().push(peer.address.clone());
        let silent = self.silent.lock().unwrap().as_ref() == Some(&peer.address);
        let woken = match silent {
            true => Woken::Unreached(Unreached::Silent),
            false => Woken::Looking { epoch: None },
        };
        futures::future::ready(woken).boxed()
    }

    fn live(
        &self,
        _: &Peer,
        _: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>> {
        futures::future::ready(Err(Unreached::Silent)).boxed()
    }

    fn probe(&self, _: &Peer) -> BoxFuture<'static, Result<(), Unreached>> {
        futures::future::ready(Err(Unreached::Silent)).boxed()
    }

    fn address(&self, _: &Incarnation) -> Option<String> {
        None
    }

    fn serve(
        &self,
        _: &Incarnation,
        _: NodeService,
        _: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        futures::future::ready(()).boxed()
    }
}

#[tokio::test]
async fn an_owner_whose_machine_is_gone_is_not_asked_for_ever() {
    let bed = Bed::new([]);
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    let joined = async |address: &str| {
        let incarnation = Incarnation::from_bits(bed.config.env.next_bits());
        let node = NodeInfo {
            incarnation: incarnation.clone(),
            name: address.to_owned(),
            address: Some(address.to_owned()),
            serves: Serves::everywhere(),
            lease: Duration::from_secs(60),
        };
        bed.store.join(node).await.unwrap();
        let taken = bed.store.acquire(&session, &incarnation, false).await;
        assert!(matches!(taken.unwrap(), Acquire::Acquired(_)));
        incarnation
    };
    let peers = Arc::new(Hushed::default());
    let client = Client::with_peers(
        bed.store.clone(),
        bed.config.env.clone(),
        peers.clone() as Arc<dyn Peers>,
    );
    let first = joined("first").await;
    assert!(client.wake_owner(&session).await);
    *peers.silent.lock().unwrap() = Some("first".to_owned());
    // It may only be slow: it is asked once, and nobody else is.
    assert!(!client.wake_owner(&session).await);
    bed.store.leave(&first).await.unwrap();
    joined("second").await;
    assert!(client.wake_owner(&session).await, "its successor is found");
    assert!(client.wake_owner(&session).await, "and remembered");
    let asked = peers.asked.lock().unwrap().clone();
    assert_eq!(asked, ["first", "first", "first", "second", "second"]);
}
