//! Reading and following (P6).

use super::world::*;
use crate::api::*;
use crate::follow::FollowItem;
use futures::StreamExt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tenure_core::id::*;

/// Longer than any machine is slow; a follower that misses an event waits for ever.
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn pages_follow_the_cursor_and_refuse_what_is_beyond(w: World) {
    let session = w.create().await;
    for n in 0..9 {
        w.write(&session, w.renamed(&n.to_string())).await;
    }
    let mut cursor = None;
    let mut seen = Vec::new();
    loop {
        let page = w.store.read(&session, cursor, 4).await.unwrap();
        assert_eq!(page.head, Some(9));
        assert!(page.events.len() <= 4);
        let Some(last) = page.events.last() else {
            break;
        };
        cursor = Some(last.seq);
        seen.extend(page.events.iter().map(|event| event.seq));
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert!(
        w.store
            .read(&session, Some(9), 4)
            .await
            .unwrap()
            .events
            .is_empty()
    );
    let beyond = w.store.read(&session, Some(10), 4).await.unwrap_err();
    let expected = ReadError::CursorBeyondHead {
        session: session.clone(),
        after: 10,
        head: 9,
    };
    assert_eq!(beyond, expected);
    let mut stream = w.backend.follow(session, Some(10));
    assert_eq!(stream.next().await.unwrap().unwrap_err(), expected);
    assert!(stream.next().await.is_none());
    let missing = SessionId::from_bits(404);
    let refused = w.store.read(&missing, None, 4).await.unwrap_err();
    assert_eq!(refused, ReadError::UnknownSession(missing));
}

/// Follows until `seq`; the seqs seen and how many markers.
async fn follow_until(
    w: &World,
    session: &SessionId,
    after: Option<u64>,
    seq: u64,
) -> (Vec<u64>, usize) {
    let mut stream = w.backend.follow(session.clone(), after);
    let (mut seen, mut markers) = (Vec::new(), 0);
    while seen.last() != Some(&seq) {
        let item = tokio::time::timeout(PATIENCE, stream.next()).await;
        match item
            .expect("the follower waits for an event that is there")
            .unwrap()
            .unwrap()
        {
            FollowItem::Event(event) => seen.push(event.seq),
            FollowItem::Synced { .. } => markers += 1,
        }
    }
    (seen, markers)
}

pub async fn follow_has_no_gap_and_no_repeat_under_writers(w: World) {
    const EACH: u64 = 60;
    let session = w.create().await;
    let w = Arc::new(w);
    let mut writers = Vec::new();
    for _ in 0..3 {
        let (w, session) = (Arc::clone(&w), session.clone());
        writers.push(tokio::spawn(async move {
            for _ in 0..EACH {
                w.write(&session, w.renamed("x")).await;
            }
        }));
    }
    let mut readers = Vec::new();
    for after in [None, None, Some(0)] {
        let (w, session) = (Arc::clone(&w), session.clone());
        readers.push(tokio::spawn(async move {
            (after, follow_until(&w, &session, after, 3 * EACH).await)
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    for reader in readers {
        let (after, (seen, _)) = reader.await.unwrap();
        let from = after.map_or(0, |after: u64| after + 1);
        assert_eq!(seen, (from..=3 * EACH).collect::<Vec<_>>());
    }
}

pub async fn follow_misses_nothing_between_replay_and_tail(w: World) {
    // A follower falls into the gap at its beginning or never, and not where its read was quick: so there are several.
    for _ in 0..5 {
        follow_from_the_beginning(&w).await;
    }
}

async fn follow_from_the_beginning(w: &World) {
    let session = w.create().await;
    let mut stream = w.backend.follow(session.clone(), None);
    assert!(matches!(stream.next().await, Some(Ok(FollowItem::Event(event))) if event.seq == 0));
    assert_eq!(
        stream.next().await,
        Some(Ok(FollowItem::Synced { head: Some(0) }))
    );
    for seq in 1..=20 {
        let mut future = Box::pin(stream.next());
        // Written to before the read, after the read's snapshot but before its answer is looked at, and
        // while the follower rests.
        for _ in 0..seq % 3 {
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let waker = Waker::from(Arc::clone(&flag));
            let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
            // A read that was quick enough was answered in that poll: then the follower rests already.
            for _ in 0..if seq % 3 == 1 { 50 } else { 1 } {
                if seq % 3 == 1 && flag.0.load(Ordering::SeqCst) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        w.write(&session, w.renamed("x")).await;
        let next = tokio::time::timeout(PATIENCE, future).await;
        match next.expect("the follower waits for an event that is there") {
            Some(Ok(FollowItem::Event(event))) => assert_eq!(event.seq, seq),
            other => panic!("{other:?}"),
        }
    }
}

pub async fn follow_says_once_where_the_replay_ends(w: World) {
    let session = w.create().await;
    for _ in 0..600 {
        w.write(&session, w.renamed("x")).await;
    }
    let mut stream = w.backend.follow(session.clone(), Some(9));
    let first = stream.next().await.unwrap().unwrap();
    assert!(matches!(&first, FollowItem::Event(event) if event.seq == 10));
    // The watermark was taken by now: what comes later is not part of the replay.
    let last = w.write(&session, w.renamed("late")).await.head;
    let mut items = vec![first];
    while !matches!(items.last(), Some(FollowItem::Event(event)) if event.seq == last) {
        items.push(stream.next().await.unwrap().unwrap());
    }
    let marks: Vec<_> = (0..items.len())
        .filter(|n| matches!(items[*n], FollowItem::Synced { .. }))
        .collect();
    assert_eq!(marks, [591]);
    assert_eq!(items[591], FollowItem::Synced { head: Some(600) });
}

pub async fn follow_ends_when_the_session_is_deleted(w: World) {
    let session = w.create().await;
    let mut stream = w.backend.follow(session.clone(), Some(0));
    assert_eq!(
        stream.next().await,
        Some(Ok(FollowItem::Synced { head: Some(0) }))
    );
    let waiting = tokio::spawn(async move { (stream.next().await, stream.next().await) });
    w.store.delete(&session).await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, waiting)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended, (Some(Err(ReadError::UnknownSession(session))), None));
}

pub async fn checkpoints_come_back_in_order(w: World) {
    let session = w.create().await;
    for _ in 0..9 {
        w.write(&session, w.renamed("x")).await;
    }
    let piece = |through, version, byte| Checkpoint {
        through,
        version,
        bytes: vec![byte; 3],
    };
    for checkpoint in [piece(8, 1, 1), piece(3, 1, 2), piece(8, 1, 3)] {
        w.store.put_checkpoint(&session, checkpoint).await.unwrap();
    }
    let found = w.store.checkpoints(&session, 1).await.unwrap();
    assert_eq!(found, [piece(3, 1, 2), piece(8, 1, 3)]);
    assert_eq!(w.store.checkpoints(&session, 2).await.unwrap(), []);
    w.store
        .put_checkpoint(&session, piece(5, 2, 4))
        .await
        .unwrap();
    assert_eq!(
        w.store.checkpoints(&session, 1).await.unwrap(),
        [],
        "another version's are thrown away"
    );
    assert_eq!(w.log(&session).await.len(), 10);
}
