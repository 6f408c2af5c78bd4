//! Two engines on one store: one owns, the other follows, and takes over.

use crate::fakes::*;
use crate::support::*;
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_engine::*;
use tenure_store::{Interrupted, SessionState};

#[tokio::test]
async fn bc_s_014_two_told_to_run_one_session_make_one_set_of_requests() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    let other = bed.reopen();
    let a = bed.engine().await;
    let b = bed.engine_with(&other, bed.config.clone()).await;
    let session = bed.session().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    a.run(&session);
    b.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    let row = other.session(&session).await.unwrap().unwrap();
    let SessionState::Owned { owner, .. } = row.state else {
        panic!("{:?}", row.state)
    };
    assert!(owner == a.incarnation() || owner == b.incarnation());
    hold.release();
    assert_eq!(outcome(&a, &session, &admission).await, Outcome::Succeeded);
    assert_eq!(outcome(&b, &session, &admission).await, Outcome::Succeeded);
    a.idle().await;
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.model.sent(), 2);
    assert_eq!(bed.count(&session, "execution.started").await, 1);
    assert_eq!(hold.begun(), 1);
}

#[tokio::test]
async fn an_input_and_an_interrupt_through_another_handle_reach_the_owner() {
    let gate = Gate::shut();
    let bed = Bed::new([
        Play::Gated(half("think"), gate.clone(), vec![text("ing").remove(1)]),
        Play::Hang(half("more")),
    ]);
    let a = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    a.run(&session);
    bed.until(&session, "fragment.started").await;
    let far = Client::new(bed.reopen(), bed.config.env.clone());
    let steer = far
        .admit(&session, Prompt::steer("from afar"))
        .await
        .unwrap();
    gate.open();
    bed.until_event(
        &session,
        "the promotion",
        |e| matches!(&e.body, EventBody::InputPromoted(p) if p.input == steer.input),
    )
    .await;
    bed.until_nth(&session, "fragment.started", 2).await;
    let receipt = far.interrupt(&session, None, "afar").await.unwrap();
    assert!(matches!(
        receipt,
        Interrupted::Accepted {
            after_takeover: false,
            ..
        }
    ));
    bed.until(&session, "execution.interrupted").await;
    a.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test]
async fn when_the_owner_dies_the_one_that_was_asked_too_goes_on() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let other = bed.reopen();
    let session = bed.session().await;
    let a = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    a.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    let b = bed.engine_with(&other, bed.config.clone()).await;
    b.run(&session);
    let mut results = b.results();
    // It looks, finds a living owner, and waits.
    b.wake(&session);
    let held = results.recv().await.unwrap().1;
    assert_eq!(
        held,
        Owned::Held {
            owner: a.engine.incarnation()
        }
    );
    assert_eq!(bed.model.sent(), 1);
    a.kill().await;
    assert_eq!(outcome(&b, &session, &admission).await, Outcome::Succeeded);
    b.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "recovery.started").await, 1);
}

#[tokio::test]
async fn one_that_was_not_asked_leaves_it_and_one_that_takes_any_finds_it() {
    let bed = Bed::new([Play::Hang(half("x"))]);
    let session = bed.session().await;
    let a = bed.victim().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    a.engine.run(&session);
    bed.until(&session, "fragment.started").await;
    a.kill().await;
    let bystander = bed.engine().await;
    eventually("the dead node's burial", async || {
        bed.store.nodes().await.unwrap().len() == 1
    })
    .await;
    bystander.idle().await;
    assert_eq!(bed.count(&session, "recovery.started").await, 0);
    let any = EngineConfig {
        scope: Scope::Any,
        ..bed.config.clone()
    };
    let c = bed.engine_with(&bed.store, any).await;
    bed.until(&session, "execution.succeeded").await;
    c.idle().await;
    bed.assert_at_rest(&session).await;
    let ended = c
        .outcome(&session, &admission.input, Some(admission.seq))
        .await;
    assert_eq!(ended.unwrap(), Outcome::Succeeded);
}

/// A node that is declared dead while it works (a closed lid, a paused machine): what it does then changes
/// nothing, and it comes back as a new incarnation.
#[tokio::test]
async fn bc_s_012_a_deposed_owner_writes_nothing_and_comes_back() {
    let gate = Gate::shut();
    let mut bed = Bed::new([Play::Gated(
        half("old"),
        gate.clone(),
        vec![text("x").remove(1)],
    )]);
    bed.config.renew_every = Duration::from_millis(50);
    let session = bed.session().await;
    let a = bed.engine().await;
    let admission = bed.admit(&session, Prompt::steer("hi")).await;
    a.run(&session);
    bed.until(&session, "fragment.chunk").await;
    a.forget(&session);
    let first = a.incarnation();
    bed.store.leave(&first).await.unwrap();
    let b = bed.engine().await;
    assert_eq!(outcome(&b, &session, &admission).await, Outcome::Succeeded);
    gate.open();
    eventually("a new life", async || a.incarnation() != first).await;
    a.idle().await;
    b.idle().await;
    bed.assert_at_rest(&session).await;
    let log = bed.log(&session).await;
    let epochs: Vec<u64> = log.iter().filter_map(|e| e.epoch).collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
    // It is a node like any other again.
    b.shutdown().await.unwrap();
    assert_eq!(ask(&a, &session, "and you?").await.1, Outcome::Succeeded);
}
