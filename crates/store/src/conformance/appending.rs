//! Appends: seqs, ids, fences, verdicts, unknown commits.

use super::dropping::poll_and_drop;
use super::world::*;
use crate::api::*;
use crate::sqlite::Fault;
use futures::FutureExt;
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::*;

pub async fn seqs_are_dense_and_events_come_back_as_written(w: World) {
    let session = w.create().await;
    let mut written = Vec::new();
    for batch in 0..5 {
        let events: Vec<_> = (0..=batch)
            .map(|n| w.renamed(&format!("{batch}/{n} \u{1f980} \"x\\")))
            .collect();
        written.extend(events.iter().map(|event| event.body.clone()));
        let committed = w
            .store
            .append(Append::unfenced(session.clone(), events))
            .await
            .unwrap();
        assert_eq!(committed.head, written.len() as u64);
        assert!(!committed.duplicate);
    }
    let log = w.log(&session).await;
    assert!(
        log.iter()
            .enumerate()
            .all(|(n, event)| event.seq == n as u64 && event.epoch.is_none())
    );
    assert_eq!(
        log[1..]
            .iter()
            .map(|event| event.body.clone())
            .collect::<Vec<_>>(),
        written
    );
    assert!(
        log.iter()
            .all(|event| event.session == session && event.created_ms == 1_000)
    );
}

pub async fn a_known_id_returns_what_is_stored(w: World) {
    let session = w.create().await;
    let events = vec![w.renamed("one"), w.renamed("two")];
    let again = || Append::unfenced(session.clone(), events.clone());
    let first = w.store.append(again()).await.unwrap();
    w.write(&session, w.renamed("three")).await;
    let second = w.store.append(again()).await.unwrap();
    assert!(second.duplicate);
    assert_eq!(second.events, first.events);
    assert_eq!((second.head, w.log(&session).await.len()), (3, 4));
    let title = w.store.session(&session).await.unwrap().unwrap().title;
    assert_eq!(
        title.as_deref(),
        Some("three"),
        "a duplicate projects nothing"
    );
}

pub async fn a_known_id_with_another_content_is_a_conflict(w: World) {
    let (session, other) = (w.create().await, w.create().await);
    let event = w.renamed("one");
    w.write(&session, event.clone()).await;
    let changed = NewEvent {
        id: event.id.clone(),
        ..w.renamed("another")
    };
    for (place, events) in [
        (&session, vec![changed]),
        (&other, vec![event.clone()]),
        (&session, vec![event.clone(), w.renamed("new company")]),
    ] {
        let refused = w
            .store
            .append(Append::unfenced(place.clone(), events))
            .await
            .unwrap_err();
        let expected = AppendError::Conflict {
            session: place.clone(),
            event: event.id.clone(),
        };
        assert_eq!(refused, expected);
    }
    assert_eq!(w.log(&session).await.len(), 2);
}

pub async fn an_unknown_session_and_a_second_creation_are_refused(w: World) {
    let missing = SessionId::from_bits(77);
    let refused = w
        .store
        .append(Append::unfenced(missing.clone(), vec![w.renamed("x")]))
        .await;
    assert_eq!(
        refused.unwrap_err(),
        AppendError::UnknownSession(missing.clone())
    );
    assert_eq!(w.store.session(&missing).await, Ok(None));
    let session = w.create().await;
    let refused = w
        .store
        .append(Append::unfenced(session.clone(), vec![w.created()]))
        .await;
    assert_eq!(refused.unwrap_err(), AppendError::SessionExists(session));
}

pub async fn each_part_of_the_fence_is_compared(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    let good = owner.fence.clone();
    let stale = AppendError::StaleClaim {
        session: session.clone(),
    };
    // Beyond what the row ever was.
    let ahead = AppendError::Rewound {
        session: session.clone(),
    };
    for (fence, why) in [
        (
            Fence {
                epoch: good.epoch + 1,
                ..good.clone()
            },
            &ahead,
        ),
        (
            Fence {
                owner: Incarnation::from_bits(999),
                ..good.clone()
            },
            &stale,
        ),
        (
            Fence {
                claim: ClaimId::from_bits(999),
                ..good.clone()
            },
            &stale,
        ),
        (
            Fence {
                write_no: good.write_no + 1,
                ..good.clone()
            },
            &ahead,
        ),
        (
            Fence {
                write_no: good.write_no - 1,
                ..good.clone()
            },
            &stale,
        ),
    ] {
        let mut append = owner.fenced(Guard::Settling, vec![w.renamed("stolen")], Vec::new());
        append.fence = Some(fence);
        let refused = w.store.append(append).await.unwrap_err();
        assert_eq!(&refused, why);
    }
    assert_eq!(w.log(&session).await.len(), 1);
    let committed = owner
        .append(Guard::Settling, vec![w.renamed("mine")], Vec::new())
        .await
        .unwrap();
    assert_eq!(committed.write_no, good.write_no + 1);
    assert_eq!(committed.events[0].epoch, Some(good.epoch));
}

pub async fn what_a_runner_writes_needs_a_fence(w: World) {
    let session = w.create().await;
    let execution = ExecutionId::from_bits(5);
    for body in [
        EventBody::from(ExecutionStarted { execution }),
        EventBody::from(step_started(&w.message())),
    ] {
        let refused = w
            .store
            .append(Append::unfenced(session.clone(), vec![w.event(body)]))
            .await;
        assert!(
            matches!(refused, Err(AppendError::Rejected { .. })),
            "{refused:?}"
        );
    }
    let mut append = Append::unfenced(session, Vec::new());
    append.ops = vec![HookOp::Leave];
    let refused = w.store.append(append).await;
    assert!(
        matches!(refused, Err(AppendError::Rejected { .. })),
        "{refused:?}"
    );
}

pub async fn bodies_that_cannot_be_stored_are_refused_before_queueing(w: World) {
    let session = w.create().await;
    for title in ["nul \0 inside".to_owned(), "x".repeat(17 << 20)] {
        let refused = w
            .store
            .append(Append::unfenced(session.clone(), vec![w.renamed(&title)]))
            .await;
        assert!(matches!(refused, Err(AppendError::Rejected { .. })));
    }
    let mut deep = serde_json::Value::Null;
    for _ in 0..200 {
        deep = serde_json::Value::Array(vec![deep]);
    }
    let event = w.event(PermissionsChanged { permissions: deep });
    let refused = w
        .store
        .append(Append::unfenced(session.clone(), vec![event]))
        .await;
    assert!(matches!(refused, Err(AppendError::Rejected { .. })));
    let large = "y".repeat(4 << 20);
    w.write(&session, w.renamed(&large)).await;
    assert_eq!(w.log(&session).await.len(), 2);
}

/// Each id is given to two sessions at the same moment: one of them has it, the other is told so.
pub async fn an_id_is_in_one_log_however_many_ask_at_once(w: World) {
    const PAIRS: usize = 32;
    for _ in 0..4 {
        let mut sessions = Vec::new();
        for _ in 0..2 * PAIRS {
            sessions.push(w.create().await);
        }
        let events: Vec<_> = (0..PAIRS).map(|_| w.renamed("whose?")).collect();
        let hold = w.backend.hold_writer();
        let appends = sessions.iter().enumerate().map(|(n, session)| {
            let event = events[n % PAIRS].clone();
            w.store
                .append(Append::unfenced(session.clone(), vec![event]))
        });
        let mut all = futures::future::join_all(appends);
        // Their first poll queues them: however many writers there are, all of them begin at once.
        assert!((&mut all).now_or_never().is_none());
        drop(hold);
        let answers = all.await;
        for (n, event) in events.iter().enumerate() {
            let mut both = [n, n + PAIRS];
            both.sort_by_key(|n| answers[*n].is_err());
            let [has, lacks] = both;
            assert_eq!(answers[has].as_ref().map(|done| done.head), Ok(1));
            let conflict = AppendError::Conflict {
                session: sessions[lacks].clone(),
                event: event.id.clone(),
            };
            assert_eq!(answers[lacks].as_ref().err(), Some(&conflict));
            assert_eq!(w.log(&sessions[has]).await.len(), 2);
            assert_eq!(w.log(&sessions[lacks]).await.len(), 1);
        }
    }
}

pub async fn one_refused_append_harms_no_neighbour(w: World) {
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(w.create().await);
    }
    let hold = w.backend.hold_writer();
    let mut waiting = Vec::new();
    for (n, session) in sessions.iter().enumerate() {
        let mut append = Append::unfenced(session.clone(), vec![w.renamed("new")]);
        if n % 2 == 1 {
            append.fence = Some(Fence {
                claim: ClaimId::from_bits(1),
                epoch: 0,
                owner: Incarnation::from_bits(1),
                write_no: 0,
            });
        }
        let mut future = Box::pin(w.store.append(append));
        // The writer is held, so all of them wait in one line before it looks again.
        assert!((&mut future).now_or_never().is_none());
        waiting.push(future);
    }
    drop(hold);
    let answers = futures::future::join_all(waiting).await;
    for (n, (answer, session)) in answers.into_iter().zip(&sessions).enumerate() {
        if n % 2 == 1 {
            assert_eq!(
                answer.unwrap_err(),
                AppendError::StaleClaim {
                    session: session.clone()
                }
            );
        } else {
            assert_eq!(answer.unwrap().head, 1);
        }
        assert_eq!(w.log(session).await.len(), if n % 2 == 1 { 1 } else { 2 });
    }
}

pub async fn appends_of_one_session_keep_their_order(w: World) {
    let session = w.create().await;
    let mut waiting = Vec::new();
    for n in 0..200 {
        let mut append = Append::unfenced(session.clone(), vec![w.renamed(&n.to_string())]);
        append.lane = if n % 3 == 0 {
            Lane::Control
        } else {
            Lane::Text
        };
        let mut future = Box::pin(w.store.append(append));
        // The first poll is what orders them.
        assert!((&mut future).now_or_never().is_none_or(|done| done.is_ok()));
        waiting.push(future);
    }
    drop(waiting);
    w.write(&session, w.renamed("last")).await;
    let titles: Vec<_> = w
        .log(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.body {
            EventBody::SessionRenamed(data) => Some(data.title),
            _ => None,
        })
        .collect();
    let expected: Vec<_> = (0..200)
        .map(|n| n.to_string())
        .chain(["last".to_owned()])
        .collect();
    assert_eq!(titles, expected);
}

pub async fn an_unknown_commit_is_resolved_either_way(w: World) {
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        let (session, node) = (w.create().await, w.join().await);
        let mut owner = w.acquire(&session, &node).await;
        let event = w.renamed("perhaps");
        let id = event.id.clone();
        let (ran, seen) = std::sync::mpsc::channel();
        let mut append = owner.fenced(Guard::Settling, vec![event], Vec::new());
        append.after_commit = Some(Box::new(move |committed| {
            let _ = ran.send(committed.head);
        }));
        w.backend.fail_next_commit(fault);
        let unknown = w.store.append(append).await.unwrap_err();
        assert!(
            matches!(unknown, AppendError::Unknown { .. }),
            "{unknown:?}"
        );
        assert!(seen.try_recv().is_err(), "nobody knows yet");
        let found = w
            .store
            .resolve(&session, &owner.fence, &[id])
            .await
            .unwrap();
        let there = fault == Fault::AnswerLost;
        assert_eq!(found.is_some(), there);
        assert_eq!(w.log(&session).await.len(), if there { 2 } else { 1 });
        assert_eq!(
            seen.try_iter().collect::<Vec<_>>(),
            if there { vec![1] } else { vec![] }
        );
        owner.resolved(found.as_ref());
        owner
            .append(Guard::Settling, vec![w.renamed("on")], Vec::new())
            .await
            .unwrap();
    }
}

pub async fn resolution_runs_the_hook_wherever_its_caller_is_dropped(w: World) {
    for times in 1_u32.. {
        let (session, node) = (w.create().await, w.join().await);
        let owner = w.acquire(&session, &node).await;
        let event = w.renamed("perhaps");
        let id = event.id.clone();
        let (ran, seen) = std::sync::mpsc::channel();
        let mut append = owner.fenced(Guard::Settling, vec![event], Vec::new());
        append.after_commit = Some(Box::new(move |committed| {
            let _ = ran.send(committed.head);
        }));
        w.backend.fail_next_commit(Fault::AnswerLost);
        assert!(w.store.append(append).await.is_err());
        let resolve = w
            .store
            .resolve(&session, &owner.fence, std::slice::from_ref(&id));
        let finished = poll_and_drop(resolve, times).await;
        // The same session's next append waits behind the resolution.
        w.write(&session, w.renamed("behind")).await;
        assert_eq!(
            seen.try_iter().collect::<Vec<_>>(),
            [1],
            "dropped at poll {times}"
        );
        if finished {
            return;
        }
    }
}

/// The log goes back to where a copy of it was: before the last writes of this tenure, and before the tenure itself. An
/// owner's memory is ahead of it then, and nothing of that memory is written, whichever way it asks.
pub async fn a_log_that_was_set_back_is_not_written_over_from_memory(w: World) {
    let (session, node, mut owner, _, message) = w.running().await;
    let had = w.log(&session).await;
    let rewound = AppendError::Rewound {
        session: session.clone(),
    };
    for before_it in [false, true] {
        w.backend.copy();
        if before_it {
            let Acquire::Acquired(tenure) = w.store.adopt(&session, &node).await.unwrap() else {
                panic!("not adopted");
            };
            owner = Owner::new(&w.store, &session, tenure);
        }
        owner.end_step(&w, &message).await;
        w.backend.set_back();
        // What others write moves the log, and tells the owner nothing.
        w.admit(&session).await;
        let next = vec![w.renamed("from a memory of what is lost")];
        let ids = [next[0].id.clone()];
        let refused = owner.append(Guard::Settling, next.clone(), vec![]).await;
        assert_eq!(refused.unwrap_err(), rewound);
        // Neither does it where the answer to the write was lost, nor where that is asked twice.
        for ids in [&ids[..], &ids[..], &[]] {
            let found = w.store.resolve(&session, &owner.fence, ids).await;
            assert_eq!(found.unwrap_err(), rewound);
        }
        owner.resolved(None);
        let refused = owner.append(Guard::Settling, next, vec![]).await;
        assert_eq!(refused.unwrap_err(), rewound);
    }
    let log = w.log(&session).await;
    assert_eq!(log[..had.len()], had);
    assert!(
        log[had.len()..]
            .iter()
            .all(|event| matches!(event.body, EventBody::InputAdmitted(_))),
        "{log:?}"
    );
    // It is taken up again from what there is: its step is open.
    let Acquire::Acquired(tenure) = w.store.adopt(&session, &node).await.unwrap() else {
        panic!("not adopted");
    };
    assert_eq!((tenure.phase, tenure.charged), (Phase::Active, false));
    Owner::new(&w.store, &session, tenure)
        .end_step(&w, &message)
        .await;
}

pub async fn a_ghost_fails_after_resolution(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let owner = w.acquire(&session, &node).await;
    let event = w.renamed("ghost");
    let found = w
        .store
        .resolve(&session, &owner.fence, std::slice::from_ref(&event.id))
        .await;
    assert!(found.unwrap().is_none());
    let ghost = owner.fenced(Guard::Settling, vec![event], Vec::new());
    let refused = w.store.append(ghost).await.unwrap_err();
    assert_eq!(
        refused,
        AppendError::StaleClaim {
            session: session.clone()
        }
    );
    assert_eq!(w.log(&session).await.len(), 1);
}

/// What an owner may do next after a write that came to nothing: the number is the same however often, and by
/// whomever, it was asked.
pub async fn resolving_again_says_the_same(w: World) {
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        for times in 1..4 {
            let (session, node) = (w.create().await, w.join().await);
            let mut owner = w.acquire(&session, &node).await;
            let event = w.renamed("perhaps");
            let ids = [event.id.clone()];
            w.backend.fail_next_commit(fault);
            let lost = owner.fenced(Guard::Settling, vec![event], Vec::new());
            assert!(w.store.append(lost).await.is_err());
            // Dropped once it is on its way: it is carried out all the same.
            poll_and_drop(w.store.resolve(&session, &owner.fence, &ids), times).await;
            let found = w.store.resolve(&session, &owner.fence, &ids).await.unwrap();
            assert_eq!(found.is_some(), fault == Fault::AnswerLost);
            owner.resolved(found.as_ref());
            let on = vec![w.renamed("on")];
            owner.append(Guard::Settling, on, Vec::new()).await.unwrap();
        }
    }
}

pub async fn a_write_without_events_is_resolved_either_way(w: World) {
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        let there = fault == Fault::AnswerLost;
        let (session, _, mut owner, _, message) = w.running().await;
        let start = HookOp::EffectStart {
            message: message.clone(),
            call: CallId::new("c"),
            generation: 0,
        };
        let (ran, seen) = std::sync::mpsc::channel();
        let mut append = owner.fenced(Guard::Settling, Vec::new(), vec![start]);
        append.after_commit = Some(Box::new(move |_| {
            let _ = ran.send(());
        }));
        w.backend.fail_next_commit(fault);
        assert!(w.store.append(append).await.is_err());
        for _ in 0..3 {
            let found = w.store.resolve(&session, &owner.fence, &[]).await.unwrap();
            assert_eq!(found.is_some(), there);
        }
        assert_eq!(seen.try_iter().count(), usize::from(there));
        let rows = w.store.effects(&session).await.unwrap().len();
        assert_eq!(rows, usize::from(there));
        let found = w.store.resolve(&session, &owner.fence, &[]).await.unwrap();
        owner.resolved(found.as_ref());
        owner.end_step(&w, &message).await;
    }
}

pub async fn a_release_whose_answer_was_lost_is_known_as_one(w: World) {
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        let (session, node) = (w.create().await, w.join().await);
        let mut owner = w.acquire(&session, &node).await;
        w.backend.fail_next_commit(fault);
        assert!(owner.ops(vec![RELEASE]).await.is_err());
        for _ in 0..2 {
            let found = w.store.resolve(&session, &owner.fence, &[]).await.unwrap();
            assert_eq!(found.is_some(), fault == Fault::AnswerLost);
        }
        if fault == Fault::CommitLost {
            owner.resolved(None);
            owner.ops(vec![RELEASE]).await.unwrap();
        }
        assert_eq!(w.store.claims().await.unwrap(), []);
        // Another owner's writes are not taken for it.
        let mut heir = w.acquire(&session, &node).await;
        heir.append(Guard::Settling, vec![w.renamed("x")], Vec::new())
            .await
            .unwrap();
        let late = w.store.resolve(&session, &owner.fence, &[]).await;
        assert!(
            matches!(late, Err(AppendError::StaleClaim { .. })),
            "{late:?}"
        );
        heir.ops(vec![RELEASE]).await.unwrap();
    }
}

pub async fn a_hand_over_whose_answer_was_lost_is_known_as_one(w: World) {
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        let there = fault == Fault::AnswerLost;
        for named in [true, false] {
            let (session, node) = (w.create().await, w.join().await);
            let heir = w.join().await;
            w.admit(&session).await;
            let mut owner = w.acquire(&session, &node).await;
            let give = HookOp::HandOver {
                to: named.then(|| heir.clone()),
                accept_ms: 2_000,
            };
            w.backend.fail_next_commit(fault);
            assert!(owner.ops(vec![give.clone()]).await.is_err());
            for _ in 0..2 {
                let found = w.store.resolve(&session, &owner.fence, &[]).await.unwrap();
                assert_eq!(found.is_some(), there, "{fault:?}, named: {named}");
            }
            if !there {
                // It did not happen, and its ghost fails: the owner gives it away again.
                let ghost = owner.fenced(Guard::Running, Vec::new(), vec![give.clone()]);
                owner.resolved(None);
                let late = w.store.append(ghost).await;
                assert!(matches!(late, Err(AppendError::StaleClaim { .. })));
                owner.ops(vec![give]).await.unwrap();
            }
            let before = owner.fence.clone();
            let taken = match named {
                true => w.store.adopt(&session, &heir).await.unwrap(),
                false => w.store.acquire(&session, &heir, false).await.unwrap(),
            };
            let Acquire::Acquired(tenure) = taken else {
                panic!("not taken: {taken:?}");
            };
            let mut heir = Owner::new(&w.store, &session, tenure);
            heir.append(Guard::Settling, vec![w.renamed("x")], Vec::new())
                .await
                .unwrap();
            // What the next owner did is not taken for it.
            let late = w.store.resolve(&session, &before, &[]).await;
            assert!(
                matches!(late, Err(AppendError::StaleClaim { .. })),
                "{late:?}"
            );
        }
    }
}

/// A write of the lost owner that may have been anything is not taken for one that happened when somebody else has
/// the session at the next epoch.
pub async fn a_takeover_is_not_taken_for_a_hand_over(w: World) {
    for lets_go in [false, true] {
        let (session, node) = (w.create().await, w.join().await);
        w.admit(&session).await;
        let owner = w.acquire(&session, &node).await;
        w.store.leave(&node).await.unwrap();
        let mut taker = w.acquire(&session, &w.join().await).await;
        if lets_go {
            taker.ops(vec![RELEASE]).await.unwrap();
        }
        let found = w.store.resolve(&session, &owner.fence, &[]).await;
        assert!(
            matches!(found, Err(AppendError::StaleClaim { .. })),
            "{found:?}"
        );
    }
}
