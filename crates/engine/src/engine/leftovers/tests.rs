//! One look at what is left: what is ended, what is kept, and for how long.

use super::*;
use crate::environment::SystemEnvironment;
use crate::support::Bed;
use futures::future::BoxFuture;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tenure_core::facts::IdSource;
use tenure_store::{Acquire, Guard, Lane, ProcessId};

/// A machine of which the test says what ends there, and when it is.
#[derive(Default)]
struct Machine {
    clock: AtomicU64,
    stuck: AtomicBool,
    ended: Mutex<Vec<u32>>,
}

impl IdSource for Machine {
    fn next_bits(&self) -> u128 {
        SystemEnvironment.next_bits()
    }
}

impl Environment for Machine {
    fn now_ms(&self) -> i64 {
        SystemEnvironment.now_ms()
    }

    fn boot_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    fn random(&self) -> u64 {
        SystemEnvironment.random()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemEnvironment.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        SystemEnvironment.spawn(future);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        SystemEnvironment.blocking(work)
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        self.ended.lock().unwrap().push(process.pid);
        let stuck = self.stuck.load(Ordering::SeqCst);
        Box::pin(async move {
            match stuck {
                true => Err("it does not die".to_owned()),
                false => Ok(()),
            }
        })
    }

    fn is_local(&self, process: &ProcessId) -> bool {
        process.boot_id == "here"
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}

/// A session with one settled call that left something; of none is known where it is.
async fn left(bed: &Bed, boot_id: Option<&str>) -> SessionId {
    let session = bed.session().await;
    let node = bed.raw_node().await;
    let taken = bed.store.acquire(&session, &node, true).await.unwrap();
    let Acquire::Acquired(tenure) = taken else {
        panic!("{taken:?}")
    };
    let message = MessageId::from_bits(SystemEnvironment.next_bits());
    let call = CallId::new("c");
    let start = HookOp::EffectStart {
        message: message.clone(),
        call: call.clone(),
        generation: 0,
    };
    let process = boot_id.map(|boot_id| HookOp::EffectProcess {
        message: message.clone(),
        call: call.clone(),
        process: ProcessId {
            pid: 7,
            pid_start: 8,
            boot_id: boot_id.to_owned(),
        },
    });
    let end = HookOp::EffectEnd {
        message,
        call,
        generation: None,
        left: true,
    };
    let mut append = Append::unfenced(session.clone(), Vec::new());
    append.fence = Some(tenure.fence);
    append.guard = Guard::Settling;
    append.lane = Lane::Control;
    append.ops = [start].into_iter().chain(process).chain([end]).collect();
    bed.store.append(append).await.unwrap();
    session
}

async fn rows(bed: &Bed, session: &SessionId) -> usize {
    bed.store.effects(session).await.unwrap().len()
}

#[tokio::test]
async fn what_is_on_this_machine_is_ended_and_its_row_goes() {
    let bed = Bed::new([]);
    let (env, mut kept) = (Machine::default(), Kept::new());
    let session = left(&bed, Some("here")).await;
    env.stuck.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        env.clock.fetch_add(KEPT_MS, Ordering::SeqCst);
        look(bed.store.as_ref(), &env, &mut kept).await.unwrap();
        assert_eq!(rows(&bed, &session).await, 1, "it is not gone");
    }
    env.stuck.store(false, Ordering::SeqCst);
    look(bed.store.as_ref(), &env, &mut kept).await.unwrap();
    assert_eq!(rows(&bed, &session).await, 0);
    assert_eq!(*env.ended.lock().unwrap(), [7; 4]);
}

/// A machine may come back, and find by the row what it is to end; one that never does leaves no row for ever.
#[tokio::test]
async fn what_is_elsewhere_or_nowhere_to_be_found_is_kept_for_ten_minutes() {
    for boot_id in [Some("elsewhere"), None] {
        let bed = Bed::new([]);
        let (env, mut kept) = (Machine::default(), Kept::new());
        env.clock.store(5_000, Ordering::SeqCst);
        let session = left(&bed, boot_id).await;
        for ms in [5_000, 604_999] {
            env.clock.store(ms, Ordering::SeqCst);
            look(bed.store.as_ref(), &env, &mut kept).await.unwrap();
            assert_eq!(rows(&bed, &session).await, 1, "{boot_id:?} at {ms} ms");
        }
        env.clock.store(605_000, Ordering::SeqCst);
        look(bed.store.as_ref(), &env, &mut kept).await.unwrap();
        assert_eq!(rows(&bed, &session).await, 0, "{boot_id:?}");
        assert!(env.ended.lock().unwrap().is_empty());
        look(bed.store.as_ref(), &env, &mut kept).await.unwrap();
        assert!(kept.is_empty(), "nothing is remembered of what is gone");
    }
}
