//! The pen against lost commits, lost answers, dropped callers and a broken memory.

use super::*;
use crate::support::*;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;
use tenure_core::event::body::*;
use tenure_core::id::{ExecutionId, Incarnation};
use tenure_store::Acquire;
use tenure_store::sqlite::Fault;

/// One owned session and its writer.
struct Desk {
    bed: Bed,
    node: Incarnation,
    session: SessionId,
    writer: Writer,
}

/// Polls at most `n` times, then drops; true when it was over by then.
async fn poll_times<F: Future>(future: F, n: usize) -> bool {
    let mut future = pin!(future);
    let mut left = n;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl Desk {
    async fn new() -> Self {
        let bed = Bed::new([]);
        let node = bed.raw_node().await;
        let session = bed.session().await;
        let writer = Self::take(&bed, &session, &node).await;
        Self {
            bed,
            node,
            session,
            writer,
        }
    }

    async fn take(bed: &Bed, session: &SessionId, node: &Incarnation) -> Writer {
        let taken = bed.store.acquire(session, node, true).await.unwrap();
        let Acquire::Acquired(tenure) = taken else {
            panic!("{taken:?}")
        };
        let writer = Writer::new(
            bed.store.clone(),
            bed.config.env.clone(),
            session.clone(),
            tenure.fence,
        );
        let loaded = load::load(bed.store.as_ref(), session).await.unwrap();
        writer.load(loaded.state.turn);
        writer
    }

    fn start(&self, n: u128) -> Batch {
        let execution = ExecutionId::from_bits(n);
        Batch::settle(vec![ExecutionStarted { execution }.into()], Vec::new())
    }

    fn end(&self, n: u128) -> Batch {
        let execution = ExecutionId::from_bits(n);
        Batch::settle(vec![ExecutionSucceeded { execution }.into()], Vec::new())
    }

    /// The memory is what the log says.
    async fn assert_true_to_the_log(&self) {
        let loaded = load::load(self.bed.store.as_ref(), &self.session)
            .await
            .unwrap();
        let (own, mut log) = (self.writer.turn().clone(), loaded.state.turn);
        // Events of others are in the log alone.
        log.cursor = own.cursor;
        assert_eq!(format!("{own:?}"), format!("{log:?}"));
    }

    /// The fault the lost append did not meet must not meet another.
    async fn disarm(&self) {
        let nothing = Append::unfenced(self.session.clone(), Vec::new());
        let _ = self.bed.store.append(nothing).await;
    }
}

/// Whatever became of an append and of its caller, at whichever poll it was dropped, within the append or within
/// its resolution: the next one is written, the memory is the log's, and the claim can be given up.
#[tokio::test]
async fn the_next_append_works_wherever_the_caller_of_a_lost_one_is_dropped() {
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        for n in 0.. {
            assert!(n < 60, "an append takes a bounded number of polls");
            let desk = Desk::new().await;
            desk.bed.store.fail_next_commit(fault);
            let over = poll_times(desk.writer.append(desk.start(1)), n).await;
            desk.disarm().await;
            // A second one is dropped too, where it resolves what the first one left.
            poll_times(desk.writer.append_with(|_| None), n / 2).await;
            let open = desk
                .writer
                .append_with(|turn| {
                    Some(match &turn.execution {
                        Some(_) => desk.end(1),
                        None => desk.start(2),
                    })
                })
                .await;
            assert!(open.is_ok(), "{fault:?}, dropped at poll {n}: {open:?}");
            desk.assert_true_to_the_log().await;
            let release = HookOp::Release {
                only_when_idle: false,
                park: false,
            };
            let batch = Batch::settle(Vec::new(), vec![release]);
            desk.writer.append(batch).await.unwrap();
            assert_eq!(desk.bed.store.claims().await.unwrap(), []);
            if over {
                break;
            }
        }
    }
}

/// A release leaves no event. Lost, it is done again; done, it is not, though its answer was lost.
#[tokio::test]
async fn a_lost_release_is_done_once_wherever_its_caller_is_dropped() {
    let release = || {
        let op = HookOp::Release {
            only_when_idle: true,
            park: false,
        };
        Batch::settle(Vec::new(), vec![op])
    };
    for fault in [Fault::CommitLost, Fault::AnswerLost] {
        for n in 0.. {
            assert!(n < 60, "a release takes a bounded number of polls");
            let desk = Desk::new().await;
            desk.bed.store.fail_next_commit(fault);
            let over = poll_times(desk.writer.append(release()), n).await;
            desk.disarm().await;
            poll_times(desk.writer.append_with(|_| None), n / 2).await;
            let claimed = desk.bed.store.claims().await.unwrap().len();
            let again = desk.writer.append(release()).await;
            match (claimed, &again) {
                (0, Err(AppendError::StaleClaim { .. })) | (1, Ok(_)) => {}
                // Resolved only by this very call: the lost answer was that of a release that happened.
                other => panic!("{fault:?}, dropped at poll {n}: {other:?}"),
            }
            assert_eq!(desk.bed.store.claims().await.unwrap(), []);
            // Whoever owns it next is not disturbed by it.
            let heir = Desk::take(&desk.bed, &desk.session, &desk.node).await;
            heir.append(desk.start(3)).await.unwrap();
            if over {
                break;
            }
        }
    }
}

/// R3: a panicking hook drops the memory, and it is folded from the log again, whether or not somebody waits.
#[tokio::test]
async fn a_memory_that_a_hook_broke_is_folded_again() {
    for n in 1.. {
        assert!(n < 60, "an append takes a bounded number of polls");
        let desk = Desk::new().await;
        desk.writer.append(desk.start(1)).await.unwrap();
        desk.writer.memory.trip.store(true, Ordering::SeqCst);
        let over = poll_times(desk.writer.append(desk.end(1)), n).await;
        if over {
            assert!(
                !desk.writer.memory.is_broken(),
                "the caller was told in vain"
            );
            desk.assert_true_to_the_log().await;
        }
        // Decided by the memory: with the old one the execution would still be open.
        desk.writer
            .append_with(|turn| turn.execution.is_none().then(|| desk.start(2)))
            .await
            .unwrap()
            .expect("the execution is over");
        assert!(!desk.writer.memory.is_broken());
        desk.assert_true_to_the_log().await;
        if over {
            break;
        }
    }
}

/// The hook of a lost answer runs at the resolution; there it may panic as well.
#[tokio::test]
async fn a_hook_that_panics_at_the_resolution_is_noticed() {
    let desk = Desk::new().await;
    desk.bed.store.fail_next_commit(Fault::AnswerLost);
    desk.writer.memory.trip.store(true, Ordering::SeqCst);
    desk.writer.append(desk.start(1)).await.unwrap();
    assert!(!desk.writer.memory.is_broken());
    desk.assert_true_to_the_log().await;
    desk.writer.append(desk.end(1)).await.unwrap();
    desk.assert_true_to_the_log().await;
}
