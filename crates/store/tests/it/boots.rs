//! A machine that was started again: nothing of before lives, whatever its boot-time clock had come to (R13).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tenure_core::event::NewEvent;
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;
use tenure_store::*;

/// The clock of one boot.
struct Boot(&'static str, AtomicI64);

impl StoreClock for Boot {
    fn boottime_ms(&self) -> i64 {
        self.1.load(Ordering::SeqCst)
    }
    fn wall_ms(&self) -> i64 {
        1_700_000_000_000
    }
    fn boot_id(&self) -> String {
        self.0.to_owned()
    }
}

fn open(dir: &Path, boot: &Arc<Boot>) -> Arc<SqliteStore> {
    let options = OpenOptions {
        clock: Arc::<Boot>::clone(boot),
        ..OpenOptions::default()
    };
    SqliteStore::open(&dir.join("t.db"), options).unwrap()
}

async fn join(store: &SqliteStore, number: u128) -> Incarnation {
    let incarnation = Incarnation::from_bits(number);
    let node = NodeInfo {
        incarnation: incarnation.clone(),
        name: "n".to_owned(),
        address: None,
        serves: Serves::everywhere(),
        lease: Duration::from_secs(6),
    };
    store.join(node).await.unwrap();
    incarnation
}

async fn acquired(store: &SqliteStore, session: &SessionId, node: &Incarnation) -> Tenure {
    match store.acquire(session, node, true).await.unwrap() {
        Acquire::Acquired(tenure) => tenure,
        other => panic!("{other:?}"),
    }
}

/// A session, with a call that left something, of a node of a machine that has been up for a hundred days. Its owner
/// lets go and says so, or is `silent`, and buried by one that watched it for a lease.
async fn before(store: &SqliteStore, boot: &Boot, silent: bool) -> SessionId {
    let session = SessionId::from_bits(7);
    let created = SessionCreated {
        title: None,
        location: Location::at("/w".to_owned()),
        model: ModelRef {
            provider: "p".to_owned(),
            model: "m".to_owned(),
        },
        limits: Limits::default(),
        permissions: serde_json::json!({}),
    };
    let created = NewEvent {
        id: EventId::from_bits(8),
        created_ms: 0,
        body: created.into(),
    };
    let append = Append::unfenced(session.clone(), vec![created]);
    store.append(append).await.unwrap();
    let node = join(store, 1).await;
    let tenure = acquired(store, &session, &node).await;
    let (message, call) = (MessageId::from_bits(9), CallId::new("c"));
    let mut ops = vec![
        HookOp::EffectStart {
            message: message.clone(),
            call: call.clone(),
            generation: 0,
        },
        HookOp::EffectProcess {
            message: message.clone(),
            call: call.clone(),
            process: ProcessId {
                pid: 1,
                pid_start: 2,
                boot_id: "before".to_owned(),
            },
        },
    ];
    if !silent {
        ops.extend([
            HookOp::EffectEnd {
                message,
                call,
                generation: None,
                left: true,
            },
            HookOp::Quiet { ms: 7_000 },
            HookOp::Release {
                only_when_idle: false,
                park: false,
            },
        ]);
    }
    let mut append = Append::unfenced(session.clone(), Vec::new());
    append.fence = Some(tenure.fence);
    append.ops = ops;
    store.append(append).await.unwrap();
    if silent {
        let observer = join(store, 2).await;
        while store.nodes().await.unwrap().len() > 1 {
            store.reap(&observer).await.unwrap();
            boot.1.fetch_add(1_000, Ordering::SeqCst);
            store.renew(&observer).await.unwrap();
        }
    }
    session
}

#[tokio::test]
async fn nothing_of_an_earlier_boot_is_waited_for() {
    for silent in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let boot = Arc::new(Boot("before", AtomicI64::new(100 * 86_400_000)));
        let store = open(dir.path(), &boot);
        let session = before(&store, &boot, silent).await;
        assert_eq!(store.effects(&session).await.unwrap().len(), 1);
        drop(store);
        let now = Arc::new(Boot("now", AtomicI64::new(5_000)));
        let store = open(dir.path(), &now);
        let node = join(&store, 3).await;
        let taken = acquired(&store, &session, &node).await;
        assert_eq!(
            (taken.quiet_ms, taken.left),
            (0, Vec::new()),
            "silent: {silent}"
        );
        assert_eq!(store.effects(&session).await.unwrap(), []);
    }
}

/// What was said since the machine was started counts, whoever joins.
#[tokio::test]
async fn what_is_of_this_boot_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let boot = Arc::new(Boot("before", AtomicI64::new(5_000)));
    let store = open(dir.path(), &boot);
    let session = before(&store, &boot, false).await;
    let node = join(&store, 3).await;
    let taken = acquired(&store, &session, &node).await;
    assert_eq!((taken.quiet_ms, taken.left.len()), (7_000, 1));
}
