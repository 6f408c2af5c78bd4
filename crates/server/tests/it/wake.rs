//! Wakes across nodes: they arrive at the owner, and correct whoever remembered another.

use crate::hop::*;
use crate::support::*;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_engine::{Peer, Peers, Prompt, Unreached, Woken};
use tenure_server::HttpPeers;
use tenure_store::Interrupted;

#[tokio::test]
async fn an_interrupt_from_another_process_reaches_the_owner_by_a_direct_call() {
    let bed = Bed::new([Play::Hang(half("thinking"))]);
    let server = server().await;
    let engine = node(&bed, &bed.store, &server).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("go")).await;
    engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let owner = peer(bed.store.as_ref(), &engine.incarnation()).await;
    assert_eq!(
        peers().wake(&owner, &session).await,
        Woken::Looking { epoch: Some(1) }
    );
    let receipt = far(&bed).interrupt(&session, None, "afar").await.unwrap();
    assert!(matches!(
        receipt,
        Interrupted::Accepted {
            after_takeover: false,
            ..
        }
    ));
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(
        peers().wake(&owner, &session).await,
        Woken::NotOwner { epoch: None }
    );
}

#[tokio::test]
async fn a_memory_of_an_owner_that_is_gone_is_corrected() {
    let bed = Bed::new([Play::Hang(half("a")), Play::Hang(half("b"))]);
    let (at_a, at_b) = (server().await, server().await);
    let a = node(&bed, &bed.store, &at_a).await;
    let session = bed.session().await;
    let far = far(&bed);
    bed.admit(&session, Prompt::steer("go")).await;
    a.run(&session);
    bed.until(&session, "fragment.started").await;
    assert!(far.wake_owner(&session).await);
    a.shutdown_now().await.unwrap();
    let b = node(&bed, &bed.store, &at_b).await;
    b.run(&session);
    bed.until_nth(&session, "fragment.started", 2).await;
    // The first wake after the change finds the new owner, though the old one was remembered.
    assert!(far.wake_owner(&session).await);
    b.shutdown_now().await.unwrap();
}

#[tokio::test]
async fn whoever_is_not_there_is_told_apart() {
    let bed = Bed::new([]);
    let first = server().await;
    let engine = node(&bed, &bed.store, &first).await;
    let session = SessionId::from_bits(1);
    let there = peer(bed.store.as_ref(), &engine.incarnation()).await;
    let peers = peers();
    eventually("the life", async || peers.probe(&there).await.is_ok()).await;
    // Another life at its address: a node that was restarted.
    let other = Peer {
        incarnation: tenure_core::id::Incarnation::from_bits(9),
        ..there.clone()
    };
    assert_eq!(peers.probe(&other).await, Err(Unreached::OtherLife));
    // A loopback address of another machine is not looked for on this one.
    let elsewhere = HttpPeers::new(secret(), "that-machine").unwrap();
    assert!(matches!(
        elsewhere.probe(&there).await,
        Err(Unreached::Failed { .. })
    ));
    // Another cluster's node does not accept the question.
    let stranger = HttpPeers::new(tenure_server::ClusterSecret::new([8; 32]), MACHINE).unwrap();
    let Woken::Unreached(Unreached::Failed { reason }) = stranger.wake(&there, &session).await
    else {
        panic!("it was let in")
    };
    assert!(reason.contains("signature"), "{reason}");
    // Nothing listens any more.
    first.shutdown(Duration::from_secs(10)).await;
    drop(first);
    eventually("the port's end", async || {
        peers.probe(&there).await == Err(Unreached::Refused)
    })
    .await;
    // Something listens and never answers.
    let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = Peer {
        address: format!("http://{}", mute.local_addr().unwrap()),
        ..there
    };
    assert_eq!(
        peers.wake(&silent, &session).await,
        Woken::Unreached(Unreached::Silent)
    );
    engine.shutdown().await.unwrap();
}

/// A node that comes back as a new incarnation answers for that one alone, at the same port.
#[tokio::test]
async fn a_reborn_node_answers_for_its_new_life_only() {
    let mut bed = Bed::new([]);
    bed.config.renew_every = Duration::from_millis(50);
    let server = server().await;
    let engine = node(&bed, &bed.store, &server).await;
    let first = peer(bed.store.as_ref(), &engine.incarnation()).await;
    let peers = peers();
    eventually("the life", async || peers.probe(&first).await.is_ok()).await;
    bed.store.leave(&first.incarnation).await.unwrap();
    eventually("a new life", async || {
        engine.incarnation() != first.incarnation
    })
    .await;
    eventually("the old life's end", async || {
        peers.probe(&first).await == Err(Unreached::OtherLife)
    })
    .await;
    let second = peer(bed.store.as_ref(), &engine.incarnation()).await;
    assert_eq!(second.address, first.address);
    eventually("the new life", async || peers.probe(&second).await.is_ok()).await;
    engine.shutdown().await.unwrap();
}
