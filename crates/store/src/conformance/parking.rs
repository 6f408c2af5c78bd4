//! What rests, and what wakes it (R4).

use super::world::*;
use crate::api::*;
use tenure_core::SessionError;
use tenure_core::event::body::*;
use tenure_core::id::*;

/// A session whose execution ended as interrupted while an input waited.
async fn parked(w: &World) -> (SessionId, Incarnation, MessageId) {
    let (session, node, mut owner, execution, message) = w.running().await;
    let input = w.admit(&session).await;
    owner.end_step(w, &message).await;
    owner.interrupted(w, &execution).await;
    (session, node, input)
}

pub async fn an_interrupted_execution_parks_what_waits(w: World) {
    let (session, node, input) = parked(&w).await;
    assert_eq!(w.state(&session).await, SessionState::Parked { inputs: 1 });
    let inbox = w.store.inbox(&session).await.unwrap();
    assert_eq!(
        (inbox[0].input.clone(), inbox[0].eligible),
        (input.clone(), false)
    );
    assert!(
        matches!(&inbox[0].kind, InputKind::User { text, .. } if text.contains(input.as_str()))
    );
    assert_eq!(w.store.claimable(9).await.unwrap(), []);
    let mut owner = w.acquire(&session, &node).await;
    let refused = owner.promote(&w, &input).await.unwrap_err();
    assert_eq!(refused, AppendError::InboxChanged { session });
    owner.ops(vec![RELEASE_IDLE]).await.unwrap();
}

pub async fn a_later_input_wakes_the_parked(w: World) {
    let (session, node, first) = parked(&w).await;
    let second = w.admit(&session).await;
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    let mut owner = w.acquire(&session, &node).await;
    owner.promote(&w, &first).await.unwrap();
    owner.promote(&w, &second).await.unwrap();
}

pub async fn resume_wakes_the_parked(w: World) {
    let (session, _, _) = parked(&w).await;
    let mut resume = Append::unfenced(session.clone(), Vec::new());
    resume.ops = vec![HookOp::Unpark];
    w.store.append(resume).await.unwrap();
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert!(w.store.inbox(&session).await.unwrap()[0].eligible);
}

pub async fn a_failed_execution_parks_what_waits(w: World) {
    let (session, _, mut owner, execution, message) = w.running().await;
    w.admit(&session).await;
    owner.end_step(&w, &message).await;
    let failed = w.event(ExecutionFailed {
        execution,
        error: SessionError::new("auth", "no key"),
    });
    owner
        .append(Guard::Settling, vec![failed], vec![RELEASE_IDLE])
        .await
        .unwrap();
    let row = w.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Parked { inputs: 1 });
    assert_eq!(
        (row.last_outcome.as_deref(), row.execution),
        (Some("failed"), None)
    );
}

pub async fn a_continuation_is_eligible_and_wakes_nobody_else(w: World) {
    let (session, node, resting) = parked(&w).await;
    let mut owner = w.acquire(&session, &node).await;
    let input = w.message();
    let continuation = w.event(InputAdmitted {
        input: input.clone(),
        kind: InputKind::Synthetic {
            text: "go on".to_owned(),
        },
        delivery: Delivery::Steer,
    });
    owner
        .append(Guard::Settling, vec![continuation], Vec::new())
        .await
        .unwrap();
    let inbox = w.store.inbox(&session).await.unwrap();
    let seen: Vec<_> = inbox
        .iter()
        .map(|i| (i.input.clone(), i.eligible))
        .collect();
    assert_eq!(seen, [(resting, false), (input.clone(), true)]);
    owner.promote(&w, &input).await.unwrap();
}

/// Two interrupts that end with no execution of their own: one before anything started, one of a claim
/// without an execution.
pub async fn an_earlier_interrupt_is_not_of_a_later_execution(w: World) {
    for claimed in [false, true] {
        let (session, node) = (w.create().await, w.join().await);
        w.admit(&session).await;
        let owner = match claimed {
            true => Some(w.acquire(&session, &node).await),
            false => None,
        };
        let interrupt = Interrupt {
            session: session.clone(),
            interrupt: InterruptId::from_bits(w.bits()),
            execution: None,
            by: "test".to_owned(),
            now_ms: 1,
        };
        w.store.interrupt(interrupt).await.unwrap();
        if let Some(mut owner) = owner {
            owner.ops(vec![RELEASE]).await.unwrap();
        }
        let prompt = w.admit(&session).await;
        let mut owner = w.acquire(&session, &node).await;
        owner.promote(&w, &prompt).await.unwrap();
        let execution = ExecutionId::from_bits(w.bits());
        owner.start_execution(&w, &execution).await;
        w.admit(&session).await;
        let failed = w.event(ExecutionFailed {
            execution,
            error: SessionError::new("model", "it failed"),
        });
        owner
            .append(Guard::Settling, vec![failed], vec![RELEASE])
            .await
            .unwrap();
        assert_eq!(
            w.state(&session).await,
            SessionState::Parked { inputs: 2 },
            "claimed: {claimed}"
        );
    }
}
