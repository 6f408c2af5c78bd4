//! One life of a session over the SQLite store.

use std::time::Duration;
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_store::*;

fn event(body: impl Into<EventBody>) -> NewEvent {
    use std::sync::atomic::{AtomicU64, Ordering};
    static N: AtomicU64 = AtomicU64::new(1);
    NewEvent {
        id: EventId::from_bits(u128::from(N.fetch_add(1, Ordering::Relaxed))),
        created_ms: 5,
        body: body.into(),
    }
}

#[tokio::test]
async fn a_session_is_created_prompted_run_and_released() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("a/t.db"), OpenOptions::default()).unwrap();
    let id = SessionId::from_bits(1);
    let created = SessionCreated {
        title: None,
        location: Location {
            directory: "/w".into(),
        },
        model: ModelRef {
            provider: "p".into(),
            model: "m".into(),
        },
        limits: Limits { max_steps: 0 },
        permissions: serde_json::Value::Null,
    };
    store
        .append(Append::unfenced(id.clone(), vec![event(created)]))
        .await
        .unwrap();
    let input = MessageId::from_bits(9);
    let admitted = InputAdmitted {
        input: input.clone(),
        kind: InputKind::User {
            text: "hi".into(),
            files: vec![],
        },
        delivery: Delivery::Steer,
    };
    store
        .append(Append::unfenced(id.clone(), vec![event(admitted)]))
        .await
        .unwrap();
    let me = Incarnation::from_bits(1);
    let info = NodeInfo {
        incarnation: me.clone(),
        name: "t".into(),
        address: None,
        lease: Duration::from_secs(6),
    };
    store.join(info).await.unwrap();
    let Acquire::Acquired(tenure) = store.acquire(&id, &me, false).await.unwrap() else {
        panic!()
    };
    let mut run = Append::unfenced(
        id.clone(),
        vec![
            event(ExecutionStarted {
                execution: ExecutionId::from_bits(3),
            }),
            event(InputPromoted {
                input: input.clone(),
            }),
        ],
    );
    run.fence = Some(tenure.fence.clone());
    run.guard = Guard::Running;
    run.ops = vec![HookOp::Promote { input }];
    let done = store.append(run).await.unwrap();
    assert_eq!(done.head, 3);
    let mut end = Append::unfenced(
        id.clone(),
        vec![event(ExecutionSucceeded {
            execution: ExecutionId::from_bits(3),
        })],
    );
    end.fence = Some(Fence {
        write_no: done.write_no,
        ..tenure.fence
    });
    end.ops = vec![HookOp::Release {
        only_when_idle: true,
        park: false,
    }];
    store.append(end).await.unwrap();
    assert!(store.claims().await.unwrap().is_empty());
    assert_eq!(
        store.session(&id).await.unwrap().unwrap().state,
        SessionState::Idle
    );
    assert_eq!(store.read(&id, None, 100).await.unwrap().events.len(), 5);
    assert!(store.health().await.unwrap().problems.is_empty());
}
