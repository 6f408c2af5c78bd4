//! The commit hook's operations (R2, R8, R14).

use super::world::*;
use crate::api::*;
use tenure_core::event::NewEvent;
use tenure_core::event::body::*;
use tenure_core::id::*;

pub async fn enter_and_leave_move_the_phase(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    let message = w.message();
    let execution = ExecutionId::from_bits(w.bits());
    owner.start_execution(&w, &execution).await;
    let started = owner.start_step(&w, &message).await.unwrap();
    let claim = w.store.claims().await.unwrap().remove(0);
    assert_eq!(
        (claim.phase, claim.epoch),
        (Phase::Active, owner.fence.epoch)
    );
    assert_eq!(claim.assistant_message_id, Some(message.clone()));
    assert_eq!(claim.assistant_seq, Some(started.head));
    let refused = owner
        .ops(vec![HookOp::Enter { message: None }])
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        AppendError::StaleClaim {
            session: session.clone()
        }
    );
    owner.end_step(&w, &message).await;
    let view = w
        .store
        .claim_phase(&session, &owner.fence)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((view.phase, view.wake_pending), (Phase::Safe, false));
    let claim = w.store.claims().await.unwrap().remove(0);
    assert_eq!(
        (claim.assistant_message_id, claim.assistant_seq),
        (None, None)
    );
}

pub async fn what_was_decided_on_an_older_log_is_refused(w: World) {
    let session = w.create().await;
    let renamed = |title: &str| {
        w.event(SessionRenamed {
            title: title.to_owned(),
            automatic: false,
        })
    };
    let append = async |event: &NewEvent, seq: Option<u64>| {
        let mut append = Append::unfenced(session.clone(), vec![event.clone()]);
        append.ops = vec![HookOp::HeadAt { seq }];
        w.store.append(append).await
    };
    let moved = AppendError::HeadMoved {
        session: session.clone(),
    };
    let seen = w.store.session(&session).await.unwrap().unwrap().head;
    let (one, two) = (renamed("one"), renamed("two"));
    let first = append(&one, Some(seen)).await.unwrap();
    assert_eq!((first.head, first.duplicate), (seen + 1, false));
    for wrong in [Some(seen), Some(seen + 2), None] {
        assert_eq!(append(&two, wrong).await.unwrap_err(), moved, "{wrong:?}");
    }
    let row = w.store.session(&session).await.unwrap().unwrap();
    assert_eq!((row.head, row.title.as_deref()), (seen + 1, Some("one")));
    // What is in the log already is the same wherever its head is by now.
    for any in [Some(seen), None] {
        let again = append(&one, any).await.unwrap();
        assert_eq!((again.events[0].seq, again.duplicate), (seen + 1, true));
    }
    append(&two, Some(seen + 1)).await.unwrap();
}

pub async fn promotion_takes_each_input_once(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    let (one, two) = (w.admit(&session).await, w.admit(&session).await);
    let changed = AppendError::InboxChanged {
        session: session.clone(),
    };
    owner.promote(&w, &one).await.unwrap();
    assert_eq!(owner.promote(&w, &one).await.unwrap_err(), changed);
    let cancel = w.event(InputCancelled {
        input: two.clone(),
        by: "user".to_owned(),
    });
    w.write(&session, cancel).await;
    assert_eq!(owner.promote(&w, &two).await.unwrap_err(), changed);
    let again = w.event(InputCancelled {
        input: two,
        by: "user".to_owned(),
    });
    let refused = w
        .store
        .append(Append::unfenced(session.clone(), vec![again]))
        .await;
    assert_eq!(refused.unwrap_err(), changed);
    let third = w.admit(&session).await;
    let alone = HookOp::Promote {
        input: third.clone(),
    };
    assert!(matches!(
        owner.ops(vec![alone]).await,
        Err(AppendError::Rejected { .. })
    ));
    let twice = w.event(admitted(&third, Delivery::Queue));
    let refused = w
        .store
        .append(Append::unfenced(session.clone(), vec![twice]))
        .await;
    assert!(
        matches!(refused, Err(AppendError::Rejected { .. })),
        "one input, one admission"
    );
    assert_eq!(w.store.inbox(&session).await.unwrap().len(), 1);
}

pub async fn release_looks_at_the_inbox(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    let input = w.admit(&session).await;
    let busy = AppendError::NotIdle {
        session: session.clone(),
    };
    assert_eq!(owner.ops(vec![RELEASE_IDLE]).await.unwrap_err(), busy);
    owner.promote(&w, &input).await.unwrap();
    let execution = ExecutionId::from_bits(w.bits());
    owner.start_execution(&w, &execution).await;
    assert_eq!(owner.ops(vec![RELEASE_IDLE]).await.unwrap_err(), busy);
    let over = w.event(ExecutionSucceeded { execution });
    owner
        .append(Guard::Settling, vec![over], vec![RELEASE_IDLE])
        .await
        .unwrap();
    assert_eq!(w.store.claims().await.unwrap(), []);
    assert_eq!(w.state(&session).await, SessionState::Idle);
    let mut second = w.acquire(&session, &node).await;
    assert!(
        second.fence.epoch > owner.fence.epoch,
        "the epoch outlives the claim"
    );
    w.admit(&session).await;
    let park = HookOp::Release {
        only_when_idle: true,
        park: true,
    };
    second.ops(vec![park]).await.unwrap();
    assert_eq!(w.state(&session).await, SessionState::Parked { inputs: 1 });
}

pub async fn effects_are_recorded_once_and_end(w: World) {
    let (session, _, mut owner, _, message) = w.running().await;
    let call = CallId::new("call 1");
    let start = HookOp::EffectStart {
        message: message.clone(),
        call: call.clone(),
        generation: 0,
    };
    owner.ops(vec![start.clone()]).await.unwrap();
    let refused = owner.ops(vec![start]).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::Conflict { .. }),
        "{refused:?}"
    );
    let process = ProcessId {
        pid: 12,
        pid_start: 34,
        boot_id: "b".to_owned(),
    };
    let note = HookOp::EffectProcess {
        message: message.clone(),
        call: call.clone(),
        process: process.clone(),
    };
    owner.ops(vec![note]).await.unwrap();
    let row = EffectRow {
        message: message.clone(),
        call: call.clone(),
        epoch: owner.fence.epoch,
        generation: 0,
        process: Some(process),
    };
    assert_eq!(w.store.effects(&session).await.unwrap(), [row]);
    let end = HookOp::EffectEnd {
        message,
        call,
        generation: Some(0),
        left: false,
    };
    owner.ops(vec![end.clone()]).await.unwrap();
    owner.ops(vec![end]).await.unwrap();
    assert_eq!(w.store.effects(&session).await.unwrap(), []);
}

/// The three operations of one call.
fn call_of(message: &tenure_core::id::MessageId, name: &str, left: bool) -> [HookOp; 2] {
    let call = CallId::new(name);
    let start = HookOp::EffectStart {
        message: message.clone(),
        call: call.clone(),
        generation: 0,
    };
    let end = HookOp::EffectEnd {
        message: message.clone(),
        call,
        generation: None,
        left,
    };
    [start, end]
}

fn process(pid: u32) -> ProcessId {
    ProcessId {
        pid,
        pid_start: 34,
        boot_id: "b".to_owned(),
    }
}

/// What is left is found by whoever comes next, and by anybody who looks, until it is said to be gone: of that very
/// process, whoever says so.
pub async fn an_effect_row_outlives_its_settlement_until_nothing_is_left(w: World) {
    let (session, _, mut owner, execution, message) = w.running().await;
    let [start, end] = call_of(&message, "left", true);
    let [other, over] = call_of(&message, "over", false);
    let note = HookOp::EffectProcess {
        message: message.clone(),
        call: CallId::new("left"),
        process: process(12),
    };
    owner.ops(vec![start, other, note]).await.unwrap();
    assert_eq!(w.store.leftovers(9).await.unwrap(), [], "they are open");
    owner.ops(vec![end, over]).await.unwrap();
    let row = EffectRow {
        message: message.clone(),
        call: CallId::new("left"),
        epoch: owner.fence.epoch,
        generation: 0,
        process: Some(process(12)),
    };
    assert_eq!(
        w.store.effects(&session).await.unwrap(),
        std::slice::from_ref(&row)
    );
    owner.ops(vec![HookOp::Quiet { ms: 5_000 }]).await.unwrap();
    owner.end_step(&w, &message).await;
    owner.interrupted(&w, &execution).await;
    let found = w.store.leftovers(9).await.unwrap();
    assert_eq!(found, [(session.clone(), row.clone())]);
    assert_eq!(w.store.leftovers(0).await.unwrap(), []);
    let next = w.join().await;
    let taken = w.acquire(&session, &next).await.tenure;
    assert_eq!(taken.left, std::slice::from_ref(&row));
    assert!(taken.quiet_ms > 0);
    // A step that is over stays so, whoever owns the session now.
    assert_eq!(w.store.leftovers(9).await.unwrap().len(), 1);
    let gone = async |process| {
        let mut gone = Append::unfenced(session.clone(), Vec::new());
        gone.ops = vec![HookOp::EffectGone {
            message: message.clone(),
            call: CallId::new("left"),
            process,
        }];
        w.store.append(gone).await.unwrap();
    };
    for another in [None, Some(process(13))] {
        gone(another).await;
        assert_eq!(
            w.store.effects(&session).await.unwrap(),
            std::slice::from_ref(&row)
        );
    }
    gone(Some(process(12))).await;
    gone(Some(process(12))).await;
    assert_eq!(w.store.effects(&session).await.unwrap(), []);
    assert_eq!(w.store.leftovers(9).await.unwrap(), []);
    // With the last of it goes what its owner said.
    match w.store.adopt(&session, &next).await.unwrap() {
        Acquire::Acquired(tenure) => assert_eq!((tenure.quiet_ms, tenure.left), (0, Vec::new())),
        other => panic!("{other:?}"),
    }
}

/// An owner's word is told by the store's clock. One that was set ahead makes nobody believe that what is left is over,
/// until somebody has waited and started something.
pub async fn a_clock_that_is_set_ahead_ends_no_word_about_what_is_left(w: World) {
    let (session, _, mut owner, execution, message) = w.running().await;
    let [start, end] = call_of(&message, "left", true);
    owner.ops(vec![start, end]).await.unwrap();
    owner.ops(vec![HookOp::Quiet { ms: 5_000 }]).await.unwrap();
    owner.end_step(&w, &message).await;
    owner.interrupted(&w, &execution).await;
    w.backend.set_clock(3_600_000);
    w.backend.advance(std::time::Duration::from_millis(5_001));
    let next = w.join().await;
    let mut taken = w.acquire(&session, &next).await;
    assert!(taken.tenure.quiet_ms > 0);
    let [start, end] = call_of(&message, "later", false);
    taken.ops(vec![start, end]).await.unwrap();
    match w.store.adopt(&session, &next).await.unwrap() {
        Acquire::Acquired(again) => assert_eq!((again.quiet_ms, again.left.len()), (0, 1)),
        other => panic!("{other:?}"),
    }
}

/// A fork has nothing of what its parent's calls left, nor has an import; and what is deleted leaves no row.
pub async fn what_a_call_left_is_of_its_session_alone(w: World) {
    let (session, _, mut owner, execution, message) = w.running().await;
    let [start, end] = call_of(&message, "left", true);
    owner.ops(vec![start, end]).await.unwrap();
    owner.end_step(&w, &message).await;
    owner.interrupted(&w, &execution).await;
    let log = w.log(&session).await;
    let through = log.last().unwrap().seq;
    let child = SessionId::from_bits(w.bits());
    let forked = w.event(SessionForked {
        parent: session.clone(),
        through,
    });
    w.store
        .fork(&session, through, &child, forked)
        .await
        .unwrap();
    assert_eq!(w.store.effects(&child).await.unwrap(), []);
    assert_eq!(w.store.leftovers(9).await.unwrap().len(), 1);
    w.store.delete(&session).await.unwrap();
    assert_eq!(w.store.leftovers(9).await.unwrap(), []);
}

pub async fn a_replaced_attachment_refuses_late_work(w: World) {
    let (session, _, mut owner, _, message) = w.running().await;
    let stale = AppendError::StaleAttachment {
        session: session.clone(),
    };
    let replaced = |generation| {
        w.event(AttachmentReplaced {
            location: Location::at("/elsewhere".to_owned()),
            generation,
            reason: "moved".to_owned(),
        })
    };
    let call = CallId::new("c");
    let start = HookOp::EffectStart {
        message: message.clone(),
        call: call.clone(),
        generation: 0,
    };
    owner.ops(vec![start]).await.unwrap();
    let raise = HookOp::ReplaceAttachment { from: 0 };
    owner
        .append(Guard::Settling, vec![replaced(1)], vec![raise.clone()])
        .await
        .unwrap();
    let row = w.store.session(&session).await.unwrap().unwrap();
    assert_eq!(
        (row.generation, row.location.directory.as_str()),
        (1, "/elsewhere")
    );
    let again = owner
        .append(Guard::Settling, vec![replaced(2)], vec![raise])
        .await;
    assert_eq!(again.unwrap_err(), stale);
    let end = |generation| HookOp::EffectEnd {
        message: message.clone(),
        call: call.clone(),
        generation,
        left: false,
    };
    assert_eq!(owner.ops(vec![end(Some(0))]).await.unwrap_err(), stale);
    let late = HookOp::EffectStart {
        message: message.clone(),
        call: CallId::new("d"),
        generation: 0,
    };
    assert_eq!(owner.ops(vec![late]).await.unwrap_err(), stale);
    let started = w.event(ToolStarted {
        message: message.clone(),
        call: call.clone(),
        generation: 0,
    });
    assert_eq!(
        owner
            .append(Guard::Running, vec![started], Vec::new())
            .await
            .unwrap_err(),
        stale
    );
    owner.ops(vec![end(None)]).await.unwrap();
    assert_eq!(w.store.effects(&session).await.unwrap(), []);
}

pub async fn quarantine_ends_the_claim_until_released(w: World) {
    let (session, node, mut owner, execution, message) = w.running().await;
    let over = w.event(ExecutionFailed {
        execution,
        error: tenure_core::SessionError::new("crashed", "three times"),
    });
    let reason = "it crashed its process".to_owned();
    let ops = vec![
        HookOp::Leave,
        HookOp::Quarantine {
            reason: reason.clone(),
        },
    ];
    let step = w.event(step_ended(&message));
    owner
        .append(Guard::Settling, vec![step, over], ops)
        .await
        .unwrap();
    assert_eq!(w.store.claims().await.unwrap(), []);
    w.admit(&session).await;
    assert_eq!(
        w.state(&session).await,
        SessionState::Quarantined {
            reason: reason.clone()
        }
    );
    assert_eq!(w.store.claimable(9).await.unwrap(), []);
    let refused = w.store.acquire(&session, &node, true).await.unwrap();
    assert_eq!(refused, Acquire::Quarantined { reason });
    let mut release = Append::unfenced(
        session.clone(),
        vec![w.event(SessionReleased {
            by: "me".to_owned(),
        })],
    );
    release.ops = vec![HookOp::Unquarantine];
    w.store.append(release).await.unwrap();
    assert!(matches!(
        w.state(&session).await,
        SessionState::Claimable { .. }
    ));
    assert_eq!(w.acquire(&session, &node).await.tenure.attempts, 0);
}

pub async fn a_failed_operation_undoes_the_events_beside_it(w: World) {
    let (session, _, mut owner, _, message) = w.running().await;
    let before = w.log(&session).await.len();
    let ops = vec![HookOp::Leave, HookOp::ReplaceAttachment { from: 41 }];
    let refused = owner
        .append(Guard::Settling, vec![w.event(step_ended(&message))], ops)
        .await;
    assert!(
        matches!(refused, Err(AppendError::StaleAttachment { .. })),
        "{refused:?}"
    );
    assert_eq!(w.log(&session).await.len(), before);
    let view = w
        .store
        .claim_phase(&session, &owner.fence)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(view.phase, Phase::Active);
    owner.end_step(&w, &message).await;
}

pub async fn continuation_and_recovery_error_are_kept(w: World) {
    let (session, node, mut owner, _, _) = w.running().await;
    let input = w.message();
    let ops = vec![
        HookOp::Continuation {
            input: input.clone(),
        },
        HookOp::RecoveryError {
            message: "words".to_owned(),
        },
    ];
    owner.ops(ops).await.unwrap();
    let claim = w.store.claims().await.unwrap().remove(0);
    assert_eq!(claim.recovery_input_id, Some(input.clone()));
    assert_eq!(claim.recovery_error.as_deref(), Some("words"));
    w.store.leave(&node).await.unwrap();
    let heir = w.join().await;
    assert_eq!(
        w.acquire(&session, &heir).await.tenure.continuation,
        Some(input)
    );
}
