//! The after-commit hook: once, before anybody can tell, whatever becomes of the caller.

use super::world::*;
use crate::api::*;
use crate::sqlite::Fault;
use futures::task::noop_waker;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

fn counting(count: &Arc<AtomicU32>) -> Option<AfterCommit> {
    let count = Arc::clone(count);
    Some(Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }))
}

/// Polls at most `times`, waiting to be woken between polls; whether it finished. Then drops it.
pub(super) async fn poll_and_drop<F: Future>(future: F, times: u32) -> bool {
    let mut future = pin!(future);
    for n in 0..times {
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&flag));
        if future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
        {
            return true;
        }
        if n + 1 < times {
            eventually("a wake", || flag.0.load(Ordering::SeqCst)).await;
        }
    }
    false
}

pub async fn the_hook_runs_wherever_the_caller_is_dropped(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    for times in 0_u32.. {
        assert!(times < 50, "an append takes a bounded number of polls");
        let before = w.log(&session).await.len();
        let count = Arc::default();
        let mut append = owner.fenced(Guard::Settling, vec![w.renamed("x")], Vec::new());
        append.after_commit = counting(&count);
        let finished = poll_and_drop(w.store.append(append), times).await;
        if times > 0 {
            owner.fence.write_no += 1;
        }
        // Same session, so it waits behind the one that was dropped.
        owner
            .append(Guard::Settling, vec![w.renamed("behind")], Vec::new())
            .await
            .unwrap();
        let written = w.log(&session).await.len() - before - 1;
        assert_eq!(written, usize::from(times > 0), "dropped at poll {times}");
        assert_eq!(
            count.load(Ordering::SeqCst) as usize,
            written,
            "dropped at poll {times}"
        );
        if finished {
            return;
        }
    }
}

pub async fn no_observer_sees_a_commit_before_its_hook(w: World) {
    let session = w.create().await;
    for round in 0..20 {
        let head = w.log(&session).await.len();
        let mut wake = w.store.watch(&session);
        let mut everything = w.store.watch_all();
        let count = Arc::default();
        let mut append = Append::unfenced(session.clone(), vec![w.renamed("x")]);
        append.after_commit = counting(&count);
        let mut future = pin!(w.store.append(append));
        // Polled once and then left alone: whatever is seen now is seen without the caller.
        let first = future
            .as_mut()
            .poll(&mut Context::from_waker(&noop_waker()));
        if round % 2 == 0 {
            wake.changed().await.unwrap();
        } else {
            everything.changed().await.unwrap();
        }
        while w.log(&session).await.len() == head {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            count.load(Ordering::SeqCst),
            1,
            "the commit was seen before its hook ran"
        );
        let done = match first {
            Poll::Ready(done) => done,
            Poll::Pending => future.await,
        };
        assert_eq!(done.unwrap().head as usize, head);
    }
}

pub async fn the_hook_runs_once_and_not_for_a_duplicate(w: World) {
    let session = w.create().await;
    let event = w.renamed("x");
    let count = Arc::default();
    for duplicate in [false, true, true] {
        let mut append = Append::unfenced(session.clone(), vec![event.clone()]);
        append.after_commit = counting(&count);
        assert_eq!(w.store.append(append).await.unwrap().duplicate, duplicate);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}

pub async fn a_panicking_hook_harms_nobody_and_is_told(w: World) {
    let (session, node) = (w.create().await, w.join().await);
    let mut owner = w.acquire(&session, &node).await;
    let event = w.renamed("x");
    let mut append = owner.fenced(Guard::Settling, vec![event.clone()], Vec::new());
    append.after_commit = Some(Box::new(|_| panic!("on purpose")));
    let told = w.store.append(append).await.unwrap_err();
    assert!(matches!(told, AppendError::Unknown { .. }), "{told:?}");
    let ids = std::slice::from_ref(&event.id);
    let found = w.store.resolve(&session, &owner.fence, ids).await.unwrap();
    assert_eq!(found.as_ref().map(|found| found.head), Some(1));
    owner.resolved(found.as_ref());
    let count = Arc::default();
    let mut append = owner.fenced(Guard::Settling, vec![w.renamed("y")], Vec::new());
    append.after_commit = counting(&count);
    assert_eq!(w.store.append(append).await.unwrap().head, 2);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    // At the resolution of a lost answer it is told as well.
    owner.fence.write_no += 1;
    let event = w.renamed("z");
    let mut append = owner.fenced(Guard::Settling, vec![event.clone()], Vec::new());
    append.after_commit = Some(Box::new(|_| panic!("on purpose")));
    w.backend.fail_next_commit(Fault::AnswerLost);
    assert!(w.store.append(append).await.is_err());
    let ids = std::slice::from_ref(&event.id);
    let told = w.store.resolve(&session, &owner.fence, ids).await;
    assert!(matches!(told, Err(AppendError::Unknown { .. })), "{told:?}");
    let found = w.store.resolve(&session, &owner.fence, ids).await.unwrap();
    assert_eq!(found.map(|found| found.head), Some(3));
}

pub async fn a_refused_append_drops_its_hook_unrun(w: World) {
    let session = w.create().await;
    let count = Arc::default();
    let mut append = Append::unfenced(session.clone(), vec![w.created()]);
    append.after_commit = counting(&count);
    assert!(w.store.append(append).await.is_err());
    assert_eq!(count.load(Ordering::SeqCst), 0);
    assert_eq!(Arc::strong_count(&count), 1, "what the hook owned is gone");
}
