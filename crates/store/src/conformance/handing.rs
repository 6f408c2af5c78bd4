//! Handing over to a named successor (R11), and who serves which location and which model.

use super::world::*;
use crate::api::*;
use std::time::Duration;
use tenure_core::event::body::{
    Delivery, InputAdmitted, InputCancelled, InputKind, Location, ModelSelected, Phase,
};
use tenure_core::id::Incarnation;
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;

const ACCEPT_MS: u64 = 2_000;

fn to(node: &Incarnation) -> HookOp {
    HookOp::HandOver {
        to: Some(node.clone()),
        accept_ms: ACCEPT_MS,
    }
}

async fn adopted(w: &World, owner: &Owner, node: &Incarnation) -> Tenure {
    match w.store.adopt(&owner.session, node).await.unwrap() {
        Acquire::Acquired(tenure) => tenure,
        other => panic!("{} was not accepted: {other:?}", owner.session),
    }
}

pub async fn a_named_successor_goes_on_at_the_next_epoch(w: World) {
    let (session, node, mut owner, _, message) = w.running().await;
    owner.end_step(&w, &message).await;
    let (heir, other) = (w.join().await, w.join().await);
    let epoch = owner.fence.epoch;
    let before = owner.fence.clone();
    owner.ops(vec![to(&heir)]).await.unwrap();
    // Nobody else may take it meanwhile, and the one who gave it away writes nothing more.
    assert_eq!(
        w.store.acquire(&session, &other, false).await.unwrap(),
        Acquire::Held {
            owner: heir.clone(),
            epoch: epoch + 1
        }
    );
    for fence in [before, owner.fence.clone()] {
        owner.fence = fence;
        let late = owner.append(Guard::Settling, vec![w.renamed("late")], Vec::new());
        assert!(matches!(late.await, Err(AppendError::StaleClaim { .. })));
    }
    let tenure = adopted(&w, &owner, &heir).await;
    assert_eq!(tenure.fence.epoch, epoch + 1);
    assert_eq!(tenure.fence.owner, heir);
    assert!(tenure.handed_over && !tenure.charged && tenure.attempts == 0);
    assert_eq!(tenure.taken_from, None);
    let mut heir_owner = Owner::new(&w.store, &session, tenure);
    heir_owner.start_step(&w, &w.message()).await.unwrap();
    let claims = w.store.claims().await.unwrap();
    assert_eq!(claims.len(), 1);
    assert_eq!(
        (claims[0].owner.clone(), claims[0].phase),
        (heir, Phase::Active)
    );
    w.store.leave(&node).await.unwrap();
    assert!(matches!(
        w.state(&session).await,
        SessionState::Owned { .. }
    ));
}

pub async fn the_poll_reads_all_that_a_node_holds(w: World) {
    let (session, node, mut owner, _, message) = w.running().await;
    let (other, heir) = (w.running().await, w.join().await);
    assert_eq!(w.store.held(&heir).await.unwrap(), []);
    let one = async |node: &Incarnation| {
        let held = w.store.held(node).await.unwrap();
        assert_eq!(held.len(), 1, "{held:?}");
        held[0].clone()
    };
    let held = one(&node).await;
    let head = w.store.read(&session, None, 1).await.unwrap().head;
    assert_eq!(
        (held.session.clone(), Some(held.head)),
        (session.clone(), head)
    );
    assert_eq!(held.claim, owner.fence.claim);
    assert_eq!((held.epoch, held.phase), (owner.fence.epoch, Phase::Active));
    assert!(!held.handed);
    w.admit(&session).await;
    assert_eq!(one(&node).await.head, held.head + 1);
    w.store
        .interrupt(w.interrupt(&other.0, None))
        .await
        .unwrap();
    assert_eq!(one(&other.1).await.phase, Phase::Cancelling);
    owner.end_step(&w, &message).await;
    owner.ops(vec![to(&heir)]).await.unwrap();
    assert_eq!(w.store.held(&node).await.unwrap(), []);
    let given = one(&heir).await;
    assert_eq!((given.epoch, given.handed), (held.epoch + 1, true));
    let tenure = adopted(&w, &owner, &heir).await;
    let kept = one(&heir).await;
    assert_eq!((kept.claim, kept.handed), (tenure.fence.claim, false));
}

pub async fn a_step_that_waits_is_handed_over_as_it_is(w: World) {
    let (session, _, mut owner, _, message) = w.running().await;
    let heir = w.join().await;
    owner.ops(vec![to(&heir)]).await.unwrap();
    let tenure = adopted(&w, &owner, &heir).await;
    assert_eq!((tenure.phase, tenure.charged), (Phase::Active, false));
    let mut heir_owner = Owner::new(&w.store, &session, tenure);
    heir_owner.end_step(&w, &message).await;
}

pub async fn who_cannot_take_it_leaves_it_claimable(w: World) {
    let (gone, draining, silent) = (w.join().await, w.join().await, w.join().await);
    w.store.leave(&gone).await.unwrap();
    w.store.drain(&draining).await.unwrap();
    w.backend.advance(Duration::from_secs(7));
    let elsewhere = w
        .join_serving(Serves {
            labels: Vec::new(),
            roots: vec!["/elsewhere".to_owned()],
        })
        .await;
    for heir in [
        Some(gone),
        Some(draining),
        Some(silent),
        Some(elsewhere),
        None,
    ] {
        let (session, _, mut owner, _, message) = w.running().await;
        owner.end_step(&w, &message).await;
        let epoch = owner.fence.epoch;
        let accept_ms = ACCEPT_MS;
        let op = HookOp::HandOver {
            to: heir.clone(),
            accept_ms,
        };
        owner.ops(vec![op]).await.unwrap();
        let state = w.state(&session).await;
        assert!(matches!(state, SessionState::Claimable { .. }), "{state:?}");
        let row = w.store.session(&session).await.unwrap().unwrap();
        assert_eq!(row.epoch, epoch + 1, "to {heir:?}");
        let taker = w.join().await;
        let taken = w.acquire(&session, &taker).await.tenure;
        assert_eq!((taken.fence.epoch, taken.charged), (epoch + 2, false));
    }
}

pub async fn what_is_not_accepted_in_time_is_for_anybody(w: World) {
    let (session, _, mut owner, _, message) = w.running().await;
    owner.end_step(&w, &message).await;
    let (heir, other) = (w.join().await, w.join().await);
    owner.ops(vec![to(&heir)]).await.unwrap();
    w.backend.advance(Duration::from_millis(ACCEPT_MS - 1));
    w.store.renew(&heir).await.unwrap();
    w.store.renew(&other).await.unwrap();
    assert!(matches!(
        w.store.acquire(&session, &other, false).await.unwrap(),
        Acquire::Held { .. }
    ));
    w.backend.advance(Duration::from_millis(2));
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert_eq!(w.store.claimable(9).await.unwrap().len(), 1);
    let taken = w.acquire(&session, &other).await.tenure;
    assert!(!taken.charged);
    // Too late now: it is another's.
    assert!(matches!(
        w.store.adopt(&session, &heir).await.unwrap(),
        Acquire::Held { .. }
    ));
}

/// A successor that lives and does not accept keeps the session from others for its time, not for as long as the store's
/// clock was set back.
pub async fn a_clock_that_is_set_back_strands_no_hand_over(w: World) {
    let (session, _, mut owner, _, message) = w.running().await;
    owner.end_step(&w, &message).await;
    let (heir, other) = (w.join().await, w.join().await);
    owner.ops(vec![to(&heir)]).await.unwrap();
    w.backend.set_clock(-3_600_000);
    w.backend.advance(Duration::from_millis(ACCEPT_MS + 1));
    w.store.renew(&heir).await.unwrap();
    w.store.renew(&other).await.unwrap();
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert_eq!(w.store.claimable(9).await.unwrap().len(), 1);
    assert!(!w.acquire(&session, &other).await.tenure.charged);
}

pub async fn a_successor_that_dies_first_is_not_charged_to_the_session(w: World) {
    let (session, _, mut owner, _, _) = w.running().await;
    let (heir, other) = (w.join().await, w.join().await);
    owner.ops(vec![to(&heir)]).await.unwrap();
    w.store.leave(&heir).await.unwrap();
    let taken = w.acquire(&session, &other).await.tenure;
    assert_eq!((taken.charged, taken.attempts), (false, 0));
    assert_eq!(taken.phase, Phase::Active);
}

pub async fn an_interrupt_comes_before_a_hand_over(w: World) {
    let (session, _, mut owner, _, _) = w.running().await;
    let heir = w.join().await;
    let asked = w.interrupt(&session, None);
    assert!(matches!(
        w.store.interrupt(asked).await.unwrap(),
        Interrupted::Accepted { .. }
    ));
    assert!(matches!(
        owner.ops(vec![to(&heir)]).await,
        Err(AppendError::Cancelling { .. })
    ));
    // And one that comes between the hand-over and its acceptance is found by the successor.
    let (session, _, mut owner, _, message) = w.running().await;
    owner.end_step(&w, &message).await;
    owner.ops(vec![to(&heir)]).await.unwrap();
    let asked = w.interrupt(&session, None);
    w.store.interrupt(asked).await.unwrap();
    let tenure = adopted(&w, &owner, &heir).await;
    assert_eq!(tenure.phase, Phase::Cancelling);
}

pub async fn a_location_is_for_nodes_that_serve_it(w: World) {
    let session = w.create().await;
    let moved = w.event(tenure_core::event::body::AttachmentReplaced {
        generation: 1,
        location: Location {
            directory: "/srv/a".to_owned(),
            requires: vec!["gpu".to_owned()],
        },
        reason: "moved".to_owned(),
    });
    w.write(&session, moved).await;
    w.admit(&session).await;
    let label = |label: &str, root: &str| Serves {
        labels: vec![label.to_owned()],
        roots: vec![root.to_owned()],
    };
    // Nobody is there to ask: whoever comes may find out.
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    for serves in [label("cpu", "/srv"), label("gpu", "/home")] {
        let node = w.join_serving(serves).await;
        let refused = w.store.acquire(&session, &node, false).await.unwrap();
        assert!(
            matches!(refused, Acquire::Unplaceable { .. }),
            "{refused:?}"
        );
        let state = w.state(&session).await;
        let SessionState::Unplaceable { reason } = state else {
            panic!("{state:?}");
        };
        assert!(reason.contains("no node serves this location"), "{reason}");
        assert_eq!(w.store.claimable(9).await.unwrap(), []);
    }
    let node = w.join_serving(label("gpu", "/srv")).await;
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    let mut owner = w.acquire(&session, &node).await;
    let (execution, message) = (
        tenure_core::id::ExecutionId::from_bits(w.bits()),
        w.message(),
    );
    owner.start_execution(&w, &execution).await;
    owner.start_step(&w, &message).await.unwrap();
    // What was interrupted may be settled by any node (R9).
    w.store
        .interrupt(w.interrupt(&session, None))
        .await
        .unwrap();
    w.store.leave(&node).await.unwrap();
    let stranger = w.join().await;
    let taken = w.acquire(&session, &stranger).await.tenure;
    assert_eq!(taken.phase, Phase::Cancelling);
}

pub async fn a_model_is_for_nodes_that_can_ask_it(w: World) {
    let session = w.create().await;
    let model = ModelRef {
        provider: "vendor".to_owned(),
        model: "large".to_owned(),
    };
    let selected = w.event(ModelSelected { model });
    w.write(&session, selected).await;
    w.admit(&session).await;
    let asking = |names: &[&'static str]| Serves::everywhere().asking(names.iter().copied());
    // One that can ask another's models, and one that can ask nobody.
    let others = [asking(&["other"]), asking(&[])];
    let mut lacking = Vec::new();
    for serves in others {
        let node = w.join_serving(serves).await;
        let refused = w.store.acquire(&session, &node, false).await.unwrap();
        assert!(
            matches!(refused, Acquire::Unplaceable { .. }),
            "{refused:?}"
        );
        let SessionState::Unplaceable { reason } = w.state(&session).await else {
            panic!("{:?}", w.state(&session).await);
        };
        assert!(
            reason.contains("no node serves this model (vendor/large)"),
            "{reason}"
        );
        assert_eq!(w.store.claimable(9).await.unwrap(), []);
        lacking.push(node);
    }
    let able = w.join_serving(asking(&["other", "vendor"])).await;
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    let mut owner = w.acquire(&session, &able).await;
    // A node that lacks it succeeds nobody: then the session has no owner.
    owner.ops(vec![to(&lacking[0])]).await.unwrap();
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    let mut owner = w.acquire(&session, &able).await;
    // One that says nothing of models is taken to ask any: a node of an older version, or an embedding program.
    let silent = w.join().await;
    owner.ops(vec![to(&silent)]).await.unwrap();
    adopted(&w, &owner, &silent).await;
}

pub async fn a_session_that_waits_to_be_moved_is_for_the_nodes_of_its_new_place(w: World) {
    let session = w.create().await;
    let at = |directory: &str| Location {
        directory: directory.to_owned(),
        requires: Vec::new(),
    };
    let root = |root: &str| Serves {
        labels: Vec::new(),
        roots: vec![root.to_owned()],
    };
    let replaced = w.event(tenure_core::event::body::AttachmentReplaced {
        generation: 1,
        location: at("/old/a"),
        reason: "moved".to_owned(),
    });
    w.write(&session, replaced).await;
    let old = w.join_serving(root("/old")).await;
    let mut owner = w.acquire(&session, &old).await;
    let (execution, message) = (
        tenure_core::id::ExecutionId::from_bits(w.bits()),
        w.message(),
    );
    owner.start_execution(&w, &execution).await;
    owner.start_step(&w, &message).await.unwrap();
    w.store.leave(&old).await.unwrap();
    let new = w.join_serving(root("/new")).await;
    let refused = w.store.acquire(&session, &new, false).await.unwrap();
    assert!(
        matches!(refused, Acquire::Unplaceable { .. }),
        "{refused:?}"
    );

    // Of several moves the last says where it ends.
    let moves = [w.message(), w.message()];
    for (input, directory) in moves.iter().zip(["/lost", "/new/b"]) {
        let admitted = w.event(InputAdmitted {
            input: input.clone(),
            kind: InputKind::Move {
                location: at(directory),
            },
            delivery: Delivery::Steer,
        });
        w.write(&session, admitted).await;
    }
    let row = w.store.session(&session).await.unwrap().unwrap();
    assert!(matches!(row.state, SessionState::Claimable { .. }));
    assert_eq!(
        (row.location, row.moving),
        (at("/old/a"), Some(at("/new/b")))
    );
    // One that is taken back counts no more.
    let cancelled = w.event(InputCancelled {
        input: moves[1].clone(),
        by: "the test".to_owned(),
    });
    let row = async || w.store.session(&session).await.unwrap().unwrap();
    let tenure = w.acquire(&session, &new).await;
    assert_eq!(tenure.fence.epoch, 2);
    w.store.leave(&new).await.unwrap();
    w.write(&session, cancelled).await;
    assert_eq!(row().await.moving, None);
    let third = w.join_serving(root("/new")).await;
    let refused = w.store.acquire(&session, &third, false).await.unwrap();
    assert!(
        matches!(refused, Acquire::Unplaceable { .. }),
        "{refused:?}"
    );
    let SessionState::Unplaceable { reason } = row().await.state else {
        panic!("it has no place");
    };
    assert!(reason.contains("/old/a"), "{reason}");
}
