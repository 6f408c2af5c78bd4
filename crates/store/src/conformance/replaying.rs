//! Export and replay.

use super::world::*;
use crate::api::*;
use tenure_core::event::EventRecord;
use tenure_core::event::body::*;
use tenure_core::id::*;

async fn export(store: &std::sync::Arc<dyn Store>, session: &SessionId) -> Vec<EventRecord> {
    let mut records = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.read(session, cursor, 7).await.unwrap();
        let Some(last) = page.events.last() else {
            return records;
        };
        cursor = Some(last.seq);
        records.extend(page.events.iter().map(EventRecord::from));
    }
}

fn bytes(records: &[EventRecord]) -> Vec<String> {
    records
        .iter()
        .map(|record| serde_json::to_string(record).unwrap())
        .collect()
}

/// A session with a whole turn in it, at rest.
async fn finished(w: &World) -> SessionId {
    let (session, _, mut owner, execution, message) = w.running().await;
    let input = w.admit(&session).await;
    owner.promote(w, &input).await.unwrap();
    let attempt = w.event(AttemptStarted {
        message: message.clone(),
        attempt: 1,
        model: model(),
        request_hash: String::new(),
        at_most: None,
    });
    owner
        .append(Guard::Running, vec![attempt], Vec::new())
        .await
        .unwrap();
    owner.end_step(w, &message).await;
    let over = w.event(ExecutionSucceeded { execution });
    let replaced = w.event(AttachmentReplaced {
        location: Location::at("/else".to_owned()),
        generation: 1,
        reason: "moved".to_owned(),
    });
    owner
        .append(Guard::Settling, vec![over, replaced], vec![RELEASE_IDLE])
        .await
        .unwrap();
    session
}

pub async fn an_export_rebuilds_the_same_session(w: World) {
    let session = finished(&w).await;
    let records = export(&w.store, &session).await;
    let other = w.backend.other_store();
    let (one, two) = records.split_at(4);
    for part in [one, two] {
        let done = other.replay(&session, part.to_vec()).await.unwrap();
        assert_eq!((done.inserted, done.equal), (part.len() as u64, 0));
    }
    assert_eq!(bytes(&export(&other, &session).await), bytes(&records));
    let row = |store: std::sync::Arc<dyn Store>| {
        let session = session.clone();
        async move { store.session(&session).await.unwrap().unwrap() }
    };
    assert_eq!(row(other.clone()).await, row(w.store.clone()).await);
    assert_eq!(other.claims().await.unwrap(), []);
    let again = other.replay(&session, records.clone()).await.unwrap();
    assert_eq!((again.inserted, again.equal), (0, records.len() as u64));
}

pub async fn a_gap_is_refused(w: World) {
    let session = finished(&w).await;
    let records = export(&w.store, &session).await;
    let other = w.backend.other_store();
    let mut holed = records.clone();
    holed.remove(3);
    let refused = other.replay(&session, holed).await.unwrap_err();
    assert_eq!(
        refused,
        ReplayError::Gap {
            line: 4,
            expected: 3,
            found: 4
        }
    );
    let refused = other
        .replay(&session, records[2..].to_vec())
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        ReplayError::Gap {
            line: 1,
            expected: 0,
            found: 2
        }
    );
    assert_eq!(
        other.session(&session).await.unwrap(),
        None,
        "nothing was changed"
    );
    other.replay(&session, records[..3].to_vec()).await.unwrap();
    let refused = other
        .replay(&session, records[5..].to_vec())
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        ReplayError::Gap {
            line: 1,
            expected: 3,
            found: 5
        }
    );
}

pub async fn divergence_unknown_types_and_foreign_ids_are_refused(w: World) {
    let session = finished(&w).await;
    let records = export(&w.store, &session).await;
    let mut changed = records.clone();
    changed[2].created_ms += 1;
    let refused = w.store.replay(&session, changed).await.unwrap_err();
    assert_eq!(refused, ReplayError::Divergent { seq: 2 });
    let other = w.backend.other_store();
    let mut strange = records.clone();
    strange[5].type_name = "later.thing".to_owned();
    let refused = other.replay(&session, strange).await.unwrap_err();
    assert!(
        matches!(refused, ReplayError::UnknownType { line: 6, .. }),
        "{refused}"
    );
    let foreign = SessionId::from_bits(404);
    let refused = other.replay(&foreign, records.clone()).await.unwrap_err();
    assert!(
        matches!(refused, ReplayError::BadEvent { line: 1, .. }),
        "{refused}"
    );
    let mut moved = records.clone();
    moved
        .iter_mut()
        .for_each(|record| record.session = foreign.clone());
    let refused = w.store.replay(&foreign, moved).await.unwrap_err();
    assert!(
        matches!(refused, ReplayError::BadEvent { line: 1, .. }),
        "ids in use elsewhere: {refused}"
    );
    assert_eq!(w.store.session(&foreign).await.unwrap(), None);
}

/// A log is refused that no store of ours can have written, and leaves nothing behind.
pub async fn a_log_that_cannot_have_happened_is_refused(w: World) {
    let session = finished(&w).await;
    let records = export(&w.store, &session).await;
    let at = |name: &str| {
        records
            .iter()
            .position(|record| record.type_name == name)
            .unwrap()
    };
    let twice = |name: &str, near: &str| {
        let mut records = records.clone();
        let copy = EventRecord {
            id: EventId::from_bits(7_777),
            ..records[at(name)].clone()
        };
        records.insert(at(near) + 1, copy);
        for (seq, record) in records.iter_mut().enumerate() {
            record.seq = seq as u64;
        }
        records
    };
    let with = |index: usize, change: fn(&mut EventRecord)| {
        let mut records = records.clone();
        change(&mut records[index]);
        records
    };
    let directory = |body: &str| {
        serde_json::value::RawValue::from_string(body.replace("/else", "else")).unwrap()
    };
    let mut relative = records.clone();
    let moved = at("attachment.replaced");
    relative[moved].data = directory(records[moved].data.get());
    let cases = [
        (twice("input.promoted", "input.promoted"), "not pending"),
        (twice("step.started", "step.started"), "open already"),
        (twice("step.ended", "step.ended"), "not the open one"),
        (
            twice("attempt.started", "attempt.started"),
            "attempt 1 of the same step came before",
        ),
        (
            twice("execution.started", "execution.started"),
            "open already",
        ),
        (
            twice("execution.succeeded", "execution.succeeded"),
            "not the open one",
        ),
        (
            with(at("step.started"), |record| record.epoch = Some(9)),
            "epochs never fall",
        ),
        (
            with(records.len() - 1, |record| record.epoch = Some(u64::MAX)),
            "too large",
        ),
        (
            with(0, |record| record.created_ms = i64::MIN),
            "before 1970",
        ),
        (relative, "not an absolute path"),
    ];
    let other = w.backend.other_store();
    for (records, why) in cases {
        let refused = other.replay(&session, records).await;
        let Err(ReplayError::BadEvent { detail, .. }) = &refused else {
            panic!("{why}: {refused:?}");
        };
        assert!(detail.contains(why), "{why}: {detail}");
        assert_eq!(other.session(&session).await.unwrap(), None);
    }
}

pub async fn a_replayed_session_rests(w: World) {
    let (session, _, _, _, _) = w.running().await;
    w.admit(&session).await;
    let records = export(&w.store, &session).await;
    let other = w.backend.other_store();
    other.replay(&session, records).await.unwrap();
    let row = other.session(&session).await.unwrap().unwrap();
    assert_eq!(row.state, SessionState::Parked { inputs: 1 });
    assert!(row.execution.is_some(), "what is open is shown");
    assert_eq!(other.claimable(9).await.unwrap(), []);
    let mut resume = Append::unfenced(session.clone(), Vec::new());
    resume.ops = vec![HookOp::Unpark];
    other.append(resume).await.unwrap();
    assert_eq!(other.claimable(9).await.unwrap().len(), 1);
}

/// A finished session and a fork of it.
async fn family(w: &World) -> (SessionId, SessionId) {
    let parent = finished(w).await;
    let child = SessionId::from_bits(w.bits());
    let through = 3;
    let event = w.event(SessionForked {
        parent: parent.clone(),
        through,
    });
    w.store.fork(&parent, through, &child, event).await.unwrap();
    (parent, child)
}

/// A fork's export holds what it shares: beside its parent it must not be taken for a forgery, whichever comes first.
pub async fn a_fork_and_its_parent_go_into_one_store(w: World) {
    let other = w.backend.other_store();
    for fork_first in [false, true] {
        let (parent, child) = family(&w).await;
        let mut order = [parent, child];
        if fork_first {
            order.reverse();
        }
        for session in &order {
            let records = export(&w.store, session).await;
            let done = other.replay(session, records.clone()).await.unwrap();
            assert_eq!(done.inserted, records.len() as u64);
            assert_eq!(bytes(&export(&other, session).await), bytes(&records));
        }
    }
}

/// What differs under a used id is refused, and a parent that was deleted comes back beside the fork that kept its
/// events.
pub async fn a_shared_event_is_told_from_a_forged_one(w: World) {
    let (parent, child) = family(&w).await;
    let whole = export(&w.store, &parent).await;
    let branch = export(&w.store, &child).await;
    let other = w.backend.other_store();
    other.replay(&parent, whole.clone()).await.unwrap();
    let mut forged = branch.clone();
    forged[1].created_ms += 1;
    let refused = other.replay(&child, forged).await;
    assert!(
        matches!(refused, Err(ReplayError::BadEvent { line: 2, .. })),
        "{refused:?}"
    );
    w.store.delete(&parent).await.unwrap();
    let back = w.store.replay(&parent, whole.clone()).await.unwrap();
    assert_eq!(back.inserted, whole.len() as u64);
    assert_eq!(bytes(&export(&w.store, &parent).await), bytes(&whole));
    assert_eq!(bytes(&export(&w.store, &child).await), bytes(&branch));
}
