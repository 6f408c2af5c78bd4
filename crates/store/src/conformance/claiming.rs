//! Taking tenure (R1, R7, R8).

use super::world::*;
use crate::api::*;
use std::sync::Arc;
use tenure_core::event::body::*;
use tenure_core::id::*;

pub async fn one_of_many_takers_wins(w: World) {
    for _ in 0..5 {
        let session = w.create().await;
        w.admit(&session).await;
        let mut takers = Vec::new();
        for _ in 0..8 {
            let (store, session, node) = (Arc::clone(&w.store), session.clone(), w.join().await);
            takers.push(tokio::spawn(async move {
                store.acquire(&session, &node, false).await.unwrap()
            }));
        }
        let mut won = 0;
        for taker in takers {
            match taker.await.unwrap() {
                Acquire::Acquired(_) => won += 1,
                Acquire::Held { epoch, .. } => assert_eq!(epoch, 1),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(won, 1);
    }
}

pub async fn a_held_session_is_refused_and_marked(w: World) {
    let (session, node, other) = (w.create().await, w.join().await, w.join().await);
    let owner = w.acquire(&session, &node).await;
    for _ in 0..2 {
        let held = w.store.acquire(&session, &other, true).await.unwrap();
        assert_eq!(
            held,
            Acquire::Held {
                owner: node.clone(),
                epoch: owner.fence.epoch
            }
        );
    }
    let view = w
        .store
        .claim_phase(&session, &owner.fence)
        .await
        .unwrap()
        .unwrap();
    assert!(view.wake_pending);
    assert!(matches!(w.state(&session).await, SessionState::Owned { owner, .. } if owner == node));
    assert_eq!(w.store.claimable(9).await.unwrap(), []);
}

pub async fn an_idle_session_is_not_taken_unless_asked(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    assert_eq!(
        w.store.acquire(&session, &node, false).await.unwrap(),
        Acquire::Idle
    );
    assert_eq!(w.store.claims().await.unwrap(), []);
    let taken = w.acquire(&session, &node).await.tenure;
    assert_eq!(
        (taken.phase, taken.taken_from, taken.attempts),
        (Phase::Safe, None, 0)
    );
    assert!(!taken.charged);
    let missing = SessionId::from_bits(404);
    let refused = w.store.acquire(&missing, &node, true).await.unwrap_err();
    assert_eq!(refused, AppendError::UnknownSession(missing));
}

pub async fn a_draining_or_dead_node_takes_nothing(w: World) {
    let session = w.create().await;
    w.admit(&session).await;
    let (draining, dead, unknown) = (w.join().await, w.join().await, Incarnation::from_bits(404));
    w.store.drain(&draining).await.unwrap();
    w.store.leave(&dead).await.unwrap();
    for node in [&draining, &dead, &unknown] {
        assert_eq!(
            w.store.acquire(&session, node, true).await.unwrap(),
            Acquire::NotAllowed
        );
    }
    assert!(
        w.store
            .nodes()
            .await
            .unwrap()
            .iter()
            .any(|n| n.incarnation == draining && n.draining)
    );
    assert_eq!(w.store.renew(&draining).await.unwrap(), Renewal::Renewed);
    assert!(matches!(
        w.store.drain(&dead).await,
        Err(NodeError::NotLive(_))
    ));
}

pub async fn a_takeover_keeps_the_phase_and_raises_the_epoch(w: World) {
    let (session, node, owner, _, message) = w.running().await;
    w.store.leave(&node).await.unwrap();
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert_eq!(w.store.claimable(9).await.unwrap().len(), 1);
    let heir = w.join().await;
    let tenure = w.acquire(&session, &heir).await.tenure;
    assert_eq!(tenure.phase, Phase::Active);
    assert_eq!(tenure.taken_from, Some(node));
    assert_eq!(tenure.fence.epoch, owner.fence.epoch + 1);
    assert_eq!(tenure.head, w.log(&session).await.len() as u64 - 1);
    let claim = w.store.claims().await.unwrap().remove(0);
    assert_eq!(claim.assistant_message_id, Some(message));
    assert_eq!(claim.owner, heir);
}

pub async fn a_deposed_owner_changes_nothing(w: World) {
    let (session, node, mut owner, execution, message) = w.running().await;
    w.store.leave(&node).await.unwrap();
    let heir = w.join().await;
    w.acquire(&session, &heir).await;
    let before = (w.log(&session).await, w.store.claims().await.unwrap());
    let stale = AppendError::StaleClaim {
        session: session.clone(),
    };
    let end = vec![
        w.event(step_ended(&message)),
        w.event(ExecutionSucceeded { execution }),
    ];
    for write_no in 0..8 {
        owner.fence.write_no = write_no;
        let refused = owner
            .append(Guard::Settling, end.clone(), vec![HookOp::Leave])
            .await;
        assert_eq!(refused.unwrap_err(), stale);
        assert_eq!(owner.ops(vec![RELEASE]).await.unwrap_err(), stale);
    }
    assert_eq!(
        (w.log(&session).await, w.store.claims().await.unwrap()),
        before
    );
    assert_eq!(
        w.store.claim_phase(&session, &owner.fence).await.unwrap(),
        None
    );
}

pub async fn only_sessions_at_work_are_charged(w: World) {
    let (busy, node, _, _, _) = w.running().await;
    let idle = w.create().await;
    let mut owner = w.acquire(&idle, &node).await;
    // A compaction entered and left: loading is over, nothing is open.
    owner
        .ops(vec![HookOp::Enter { message: None }])
        .await
        .unwrap();
    owner.ops(vec![HookOp::Leave]).await.unwrap();
    let compacting = w.create().await;
    let mut third = w.acquire(&compacting, &node).await;
    let started = w.event(CompactionStarted {
        compaction: CompactionId::from_bits(w.bits()),
        reason: CompactionReason::Manual,
        input: None,
        model: model(),
        request_hash: "h".to_owned(),
        at_most: None,
    });
    third
        .append(
            Guard::Running,
            vec![started],
            vec![HookOp::Enter { message: None }],
        )
        .await
        .unwrap();
    w.store.leave(&node).await.unwrap();
    let heir = w.join().await;
    for (session, charged) in [(&busy, true), (&idle, false), (&compacting, true)] {
        let tenure = w.acquire(session, &heir).await.tenure;
        assert_eq!(
            (tenure.charged, tenure.attempts),
            (charged, u32::from(charged)),
            "{session}"
        );
    }
}

pub async fn loading_is_charged_until_a_step_begins(w: World) {
    let (session, mut node) = (w.create().await, w.join().await);
    w.admit(&session).await;
    w.acquire(&session, &node).await;
    for attempts in 1..=3 {
        w.backend.crash(&node);
        let heir = w.join().await;
        assert_eq!(w.store.reap(&heir).await.unwrap(), [node]);
        let tenure = w.acquire(&session, &heir).await.tenure;
        assert!(tenure.charged);
        assert_eq!(tenure.attempts, attempts);
        node = heir;
    }
}

pub async fn progress_clears_the_charge(w: World) {
    let (session, node, _, _, message) = w.running().await;
    w.store.leave(&node).await.unwrap();
    let heir = w.join().await;
    let mut owner = w.acquire(&session, &heir).await;
    assert_eq!(owner.tenure.attempts, 1);
    let ops = vec![HookOp::Leave, HookOp::Progress];
    owner
        .append(Guard::Settling, vec![w.event(step_ended(&message))], ops)
        .await
        .unwrap();
    assert_eq!(
        w.store.session(&session).await.unwrap().unwrap().attempts,
        0
    );
}

pub async fn an_own_claim_is_adopted_uncharged_and_the_lost_task_refused(w: World) {
    let (session, node, mut lost, execution, message) = w.running().await;
    w.store
        .interrupt(Interrupt {
            session: session.clone(),
            interrupt: InterruptId::from_bits(w.bits()),
            execution: None,
            by: "test".to_owned(),
            now_ms: 1,
        })
        .await
        .unwrap();
    let Acquire::Acquired(tenure) = w.store.adopt(&session, &node).await.unwrap() else {
        panic!("an own claim was not adopted")
    };
    assert_eq!(tenure.fence.epoch, lost.fence.epoch + 1);
    assert_eq!(
        (tenure.phase, tenure.taken_from.clone()),
        (Phase::Cancelling, Some(node))
    );
    assert_eq!((tenure.charged, tenure.attempts), (false, 0));
    let late = lost
        .append(Guard::Settling, vec![w.renamed("late")], Vec::new())
        .await;
    assert_eq!(
        late.unwrap_err(),
        AppendError::StaleClaim {
            session: session.clone()
        }
    );
    let mut heir = Owner::new(&w.store, &session, tenure);
    heir.end_step(&w, &message).await;
    heir.interrupted(&w, &execution).await;
    assert_eq!(w.store.claims().await.unwrap(), []);
}

pub async fn only_an_own_claim_is_adopted(w: World) {
    let (session, node, owner, _, _) = w.running().await;
    let other = w.join().await;
    let held = Acquire::Held {
        owner: node.clone(),
        epoch: owner.fence.epoch,
    };
    assert_eq!(w.store.adopt(&session, &other).await.unwrap(), held);
    w.store.drain(&node).await.unwrap();
    assert_eq!(
        w.store.adopt(&session, &node).await.unwrap(),
        Acquire::NotAllowed
    );
    let idle = w.create().await;
    assert_eq!(w.store.adopt(&idle, &other).await.unwrap(), Acquire::Idle);
    w.store.leave(&node).await.unwrap();
    let taken = w.store.adopt(&session, &other).await.unwrap();
    assert!(
        matches!(&taken, Acquire::Acquired(t) if t.charged && t.taken_from == Some(node)),
        "{taken:?}"
    );
}
