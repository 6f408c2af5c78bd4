//! Interrupts (R5).

use super::world::*;
use crate::api::*;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::*;

pub async fn a_running_session_is_cancelled_once_per_key(w: World) {
    let (session, node, owner, execution, _) = w.running().await;
    let head = w.log(&session).await.len() as u64;
    let asked = w.interrupt(&session, Some(&execution));
    let first = w.store.interrupt(asked.clone()).await.unwrap();
    let expected = Interrupted::Accepted {
        seq: head,
        execution: Some(execution),
        owner: Some(node),
        after_takeover: false,
    };
    assert_eq!(first, expected);
    for _ in 0..2 {
        assert_eq!(w.store.interrupt(asked.clone()).await.unwrap(), expected);
    }
    let log = w.log(&session).await;
    assert_eq!(log.len() as u64, head + 1);
    assert!(
        matches!(&log.last().unwrap().body, EventBody::InterruptRequested(data) if data.by == "test")
    );
    assert_eq!(log.last().unwrap().epoch, None);
    let view = w
        .store
        .claim_phase(&session, &owner.fence)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(view.phase, Phase::Cancelling);
    let missing = SessionId::from_bits(404);
    let refused = w
        .store
        .interrupt(w.interrupt(&missing, None))
        .await
        .unwrap_err();
    assert_eq!(refused, AppendError::UnknownSession(missing));
}

pub async fn nothing_starts_while_it_is_settled(w: World) {
    let (session, _, mut owner, execution, message) = w.running().await;
    let input = w.admit(&session).await;
    w.store
        .interrupt(w.interrupt(&session, None))
        .await
        .unwrap();
    let cancelling = AppendError::Cancelling {
        session: session.clone(),
    };
    let start = HookOp::EffectStart {
        message: message.clone(),
        call: CallId::new("c"),
        generation: 0,
    };
    let refused = owner.append(Guard::Running, Vec::new(), vec![start]).await;
    assert_eq!(refused.unwrap_err(), cancelling);
    assert_eq!(owner.promote(&w, &input).await.unwrap_err(), cancelling);
    owner.end_step(&w, &message).await;
    let view = w
        .store
        .claim_phase(&session, &owner.fence)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        view.phase,
        Phase::Cancelling,
        "leaving a step does not end the interrupt"
    );
    assert_eq!(
        owner.start_step(&w, &w.message()).await.unwrap_err(),
        cancelling
    );
    let entered = owner.ops(vec![HookOp::Enter { message: None }]).await;
    assert_eq!(entered.unwrap_err(), cancelling);
    owner.interrupted(&w, &execution).await;
    assert_eq!(w.store.claims().await.unwrap(), []);
    assert_eq!(w.state(&session).await, SessionState::Parked { inputs: 1 });
}

pub async fn waiting_input_is_stopped_before_it_starts(w: World) {
    let session = w.create().await;
    w.admit(&session).await;
    let asked = w.interrupt(&session, None);
    let first = w.store.interrupt(asked.clone()).await.unwrap();
    assert_eq!(first, Interrupted::StoppedBeforeStart { seq: 2 });
    assert_eq!(w.store.interrupt(asked).await.unwrap(), first);
    assert_eq!(w.log(&session).await.len(), 3);
    assert_eq!(w.state(&session).await, SessionState::Parked { inputs: 1 });
    let node = w.join().await;
    assert_eq!(
        w.store.acquire(&session, &node, false).await.unwrap(),
        Acquire::Idle
    );
}

pub async fn idle_and_finished_say_so(w: World) {
    let session = w.create().await;
    assert_eq!(
        w.store
            .interrupt(w.interrupt(&session, None))
            .await
            .unwrap(),
        Interrupted::Idle
    );
    let (running, _, mut owner, execution, message) = w.running().await;
    let other = ExecutionId::from_bits(404);
    let answer = w
        .store
        .interrupt(w.interrupt(&running, Some(&other)))
        .await
        .unwrap();
    assert_eq!(answer, Interrupted::AlreadyFinished);
    owner.end_step(&w, &message).await;
    let over = w.event(ExecutionSucceeded {
        execution: execution.clone(),
    });
    owner
        .append(Guard::Settling, vec![over], vec![RELEASE_IDLE])
        .await
        .unwrap();
    let answer = w
        .store
        .interrupt(w.interrupt(&running, Some(&execution)))
        .await
        .unwrap();
    assert_eq!(answer, Interrupted::AlreadyFinished);
    assert_eq!(w.log(&session).await.len(), 1, "nothing was written");
}

pub async fn a_dead_owners_interrupt_waits_for_the_takeover(w: World) {
    let (session, node, mut owner, execution, _) = w.running().await;
    w.store.leave(&node).await.unwrap();
    let answer = w
        .store
        .interrupt(w.interrupt(&session, None))
        .await
        .unwrap();
    assert!(
        matches!(
            answer,
            Interrupted::Accepted {
                after_takeover: true,
                ..
            }
        ),
        "{answer:?}"
    );
    let heir = w.join().await;
    let mut next = w.acquire(&session, &heir).await;
    assert_eq!(next.tenure.phase, Phase::Cancelling);
    assert!(owner.ops(vec![RELEASE]).await.is_err());
    // Given up unsettled: whoever comes next still finds the interrupt.
    next.ops(vec![RELEASE]).await.unwrap();
    let mut last = w.acquire(&session, &heir).await;
    assert_eq!(last.tenure.phase, Phase::Cancelling);
    last.interrupted(&w, &execution).await;
    assert_eq!(w.acquire(&session, &heir).await.tenure.phase, Phase::Safe);
}

pub async fn it_never_applies_to_later_input(w: World) {
    let (session, _, mut owner, execution, message) = w.running().await;
    w.admit(&session).await;
    w.store
        .interrupt(w.interrupt(&session, None))
        .await
        .unwrap();
    w.admit(&session).await;
    owner.end_step(&w, &message).await;
    owner.interrupted(&w, &execution).await;
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert!(
        w.store
            .inbox(&session)
            .await
            .unwrap()
            .iter()
            .all(|input| input.eligible)
    );
}
