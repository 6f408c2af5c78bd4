//! Claims without anybody behind them, and what a session opens from.

use super::*;
use crate::load;
use crate::support::*;
use std::time::Duration;
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::{EventId, MessageId};
use tenure_store::{Acquire, Append, Fence, Guard};

/// A claim of this node that no task holds is adopted; the node's other sessions go on as they were.
#[tokio::test]
async fn an_orphaned_claim_is_adopted_and_harms_no_other_session() {
    let gate = Gate::shut();
    let mut bed = Bed::new([
        Play::Gated(half("al"), gate.clone(), vec![text("one").remove(1)]),
        Play::Answer(text("done")),
    ]);
    bed.config.poll = Duration::from_millis(20);
    let engine = bed.engine().await;
    let (busy, orphan) = (bed.session().await, bed.session().await);
    let first = bed.admit(&busy, crate::Prompt::steer("hi")).await;
    engine.run(&busy);
    bed.until(&busy, "fragment.started").await;
    let second = bed.admit(&orphan, crate::Prompt::steer("hello")).await;
    // As an acquisition whose answer was lost leaves it: nobody asked for this session here.
    let taken = bed
        .store
        .acquire(&orphan, &engine.incarnation(), false)
        .await;
    assert!(matches!(taken, Ok(Acquire::Acquired(_))), "{taken:?}");
    let life = engine.incarnation();
    // Nobody asks for it here either.
    let ended = engine.outcome(&orphan, &second.input, Some(second.seq));
    let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
    assert_eq!(ended.expect("an end").unwrap(), Outcome::Succeeded);
    gate.open();
    assert_eq!(outcome(&engine, &busy, &first).await, Outcome::Succeeded);
    engine.idle().await;
    assert_eq!(engine.incarnation(), life, "no new life for it");
    assert_eq!(bed.count(&busy, "recovery.started").await, 0);
    let row = bed.store.session(&orphan).await.unwrap().unwrap();
    assert_eq!((row.attempts, bed.model.sent()), (0, 2));
    bed.assert_at_rest(&busy).await;
    bed.assert_at_rest(&orphan).await;
}

/// A session with `n` inputs in its conversation.
async fn long(bed: &Bed, n: u128) -> SessionId {
    let session = bed.session().await;
    let node = bed.raw_node().await;
    let Ok(Acquire::Acquired(tenure)) = bed.store.acquire(&session, &node, true).await else {
        panic!("not acquired")
    };
    write_inputs(bed, &session, tenure.fence, n).await;
    bed.store.leave(&node).await.unwrap();
    session
}

async fn write_inputs(bed: &Bed, session: &SessionId, fence: Fence, n: u128) {
    let mut events = Vec::new();
    let event = |body: EventBody| NewEvent {
        id: EventId::from_bits(bed.config.env.next_bits()),
        created_ms: 1,
        body,
    };
    for _ in 0..n {
        let input = MessageId::from_bits(bed.config.env.next_bits());
        let admitted = InputAdmitted {
            input: input.clone(),
            kind: InputKind::user("words".to_owned()),
            delivery: Delivery::Steer,
        };
        events.push(event(admitted.into()));
        events.push(event(InputPromoted { input }.into()));
    }
    let append = Append {
        fence: Some(fence),
        guard: Guard::Settling,
        ..Append::unfenced(session.clone(), events)
    };
    bed.store.append(append).await.unwrap();
}

/// Opens the session and stores what is worth it; how far its checkpoints reached before.
async fn open(bed: &Bed, session: &SessionId) -> Option<u64> {
    let store = bed.store.as_ref();
    let load::Loaded { state, mut sealed } = load::load(store, session).await.unwrap();
    let found = sealed;
    let whole = bed.log(session).await;
    let mut folded = tenure_core::session::SessionState::default();
    whole.iter().for_each(|event| folded.apply(event));
    assert_eq!(state.entries, folded.entries);
    assert_eq!(state.cursor, folded.cursor);
    load::seal(store, session, &state, &mut sealed).await;
    found
}

/// A fork opens from its parent's checkpoints and adds its own, and goes on doing so when the parent is gone.
#[tokio::test]
async fn a_fork_of_a_sealed_session_opens_quickly_when_its_parent_is_gone() {
    let bed = Bed::new([]);
    let parent = long(&bed, 600).await;
    assert_eq!(open(&bed, &parent).await, None);
    let through = open(&bed, &parent).await.expect("a checkpoint");
    let child = bed.client().fork(&parent, Some(through)).await.unwrap();
    assert_eq!(open(&bed, &child).await, Some(through));
    let grow = async || {
        let node = bed.raw_node().await;
        let Ok(Acquire::Acquired(tenure)) = bed.store.acquire(&child, &node, true).await else {
            panic!("not acquired")
        };
        write_inputs(&bed, &child, tenure.fence, 600).await;
        bed.store.leave(&node).await.unwrap();
    };
    grow().await;
    assert_eq!(open(&bed, &child).await, Some(through));
    let own = open(&bed, &child).await;
    assert!(own > Some(through), "{own:?}");
    bed.store.delete(&parent).await.unwrap();
    bed.store.gc().await.unwrap();
    assert_eq!(open(&bed, &child).await, own);
    grow().await;
    assert_eq!(open(&bed, &child).await, own);
    assert!(open(&bed, &child).await > own);
}
