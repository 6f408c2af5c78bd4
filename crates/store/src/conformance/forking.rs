//! Forks by reference, deleting, giving space back.

use super::world::*;
use crate::api::*;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::*;

async fn fork(w: &World, parent: &SessionId, through: u64) -> SessionId {
    let child = SessionId::from_bits(w.bits());
    let event = w.event(SessionForked {
        parent: parent.clone(),
        through,
    });
    let committed = w
        .store
        .fork(parent, through, &child, event.clone())
        .await
        .unwrap();
    assert_eq!(committed.head, through + 1);
    let again = w.store.fork(parent, through, &child, event).await.unwrap();
    assert!(again.duplicate);
    child
}

pub async fn a_fork_reads_its_parents_prefix(w: World) {
    let parent = w.create().await;
    for n in 1..=5 {
        w.write(&parent, w.renamed(&format!("t{n}"))).await;
    }
    let child = fork(&w, &parent, 3).await;
    let grandchild = fork(&w, &child, 2).await;
    w.write(&parent, w.renamed("parent goes on")).await;
    w.write(&child, w.renamed("child goes on")).await;
    let last = fork(&w, &child, 5).await;
    let log = w.log(&child).await;
    assert_eq!(log.len(), 6);
    assert!(
        log.iter()
            .enumerate()
            .all(|(n, event)| event.seq == n as u64 && event.session == child)
    );
    for (own, parents) in log[..4].iter().zip(w.log(&parent).await) {
        assert_eq!((&own.id, &own.body), (&parents.id, &parents.body));
    }
    assert!(matches!(log[4].body, EventBody::SessionForked(_)));
    let row = w.store.session(&child).await.unwrap().unwrap();
    assert_eq!(row.forked_from, Some((parent.clone(), 3)));
    assert_eq!(
        (row.title.as_deref(), row.model),
        (Some("child goes on"), model())
    );
    assert_eq!(w.log(&grandchild).await.len(), 4);
    let grown = w.store.session(&grandchild).await.unwrap().unwrap();
    assert_eq!(grown.title.as_deref(), Some("t2"));
    assert_eq!(w.log(&last).await.len(), 7);
    let page = w.store.read(&last, Some(2), 3).await.unwrap();
    assert_eq!(
        page.events.iter().map(|e| e.seq).collect::<Vec<_>>(),
        [3, 4, 5]
    );
    let beyond = w.event(SessionForked {
        parent: parent.clone(),
        through: 99,
    });
    let refused = w
        .store
        .fork(&parent, 99, &SessionId::from_bits(404), beyond)
        .await;
    assert!(
        matches!(refused, Err(AppendError::Rejected { .. })),
        "{refused:?}"
    );
}

pub async fn deleting_the_parent_keeps_what_forks_need(w: World) {
    let parent = w.create().await;
    for n in 1..=9 {
        w.write(&parent, w.renamed(&format!("t{n}"))).await;
    }
    let child = fork(&w, &parent, 4).await;
    let grandchild = fork(&w, &child, 5).await;
    let before = (w.log(&child).await, w.log(&grandchild).await);
    w.store.delete(&parent).await.unwrap();
    while w.store.gc().await.unwrap().more {}
    assert_eq!(w.store.session(&parent).await.unwrap(), None);
    assert_eq!(
        w.store
            .sessions(SessionQuery::default())
            .await
            .unwrap()
            .len(),
        2
    );
    w.store.delete(&child).await.unwrap();
    assert_eq!(w.log(&grandchild).await, before.1);
    w.store.delete(&grandchild).await.unwrap();
    while w.store.gc().await.unwrap().more {}
    // Nothing is left of any of them: the ids are free again.
    for event in before.0.iter().chain(&before.1) {
        assert_eq!(event.created_ms, 1_000);
    }
    let records: Vec<_> = before
        .1
        .iter()
        .map(tenure_core::event::EventRecord::from)
        .collect();
    let done = w.store.replay(&grandchild, records).await.unwrap();
    assert_eq!(done.inserted, before.1.len() as u64);
    assert_eq!(w.log(&grandchild).await, before.1);
    let refused = w.store.delete(&parent).await.unwrap_err();
    assert_eq!(refused, DeleteError::UnknownSession(parent));
}

pub async fn a_hundred_forks_add_little(w: World) {
    let parent = w.create().await;
    let text = "z".repeat(100_000);
    for _ in 0..40 {
        w.write(&parent, w.renamed(&text)).await;
    }
    w.write(&parent, w.renamed("short")).await;
    w.store.gc().await.unwrap();
    let before = w.backend.bytes();
    assert!(before > 4_000_000);
    for _ in 0..100 {
        fork(&w, &parent, 41).await;
    }
    w.store.gc().await.unwrap();
    let each = w.backend.bytes().saturating_sub(before) / 100;
    assert!(each < 4_096, "a fork takes {each} bytes");
}

pub async fn an_owned_session_is_not_deleted(w: World) {
    let (session, node, _, _, _) = w.running().await;
    let refused = w.store.delete(&session).await.unwrap_err();
    assert_eq!(
        refused,
        DeleteError::Owned {
            session: session.clone(),
            owner: node.clone()
        }
    );
    w.store.leave(&node).await.unwrap();
    w.store.delete(&session).await.unwrap();
    assert_eq!(w.store.session(&session).await.unwrap(), None);
    assert_eq!(w.store.claims().await.unwrap(), []);
}

pub async fn checkpoints_outlive_a_parent_as_long_as_forks_open_from_them(w: World) {
    let parent = w.create().await;
    for n in 0..20 {
        w.write(&parent, w.renamed(&n.to_string())).await;
    }
    let piece = |through: u64| Checkpoint {
        through,
        version: 1,
        bytes: through.to_be_bytes().to_vec(),
    };
    for through in [4, 9, 15] {
        w.store
            .put_checkpoint(&parent, piece(through))
            .await
            .unwrap();
    }
    let children = [fork(&w, &parent, 10).await, fork(&w, &parent, 5).await];
    let own = piece(11);
    w.store.put_checkpoint(&children[0], own).await.unwrap();
    w.store.delete(&parent).await.unwrap();
    for _ in 0..2 {
        w.store.gc().await.unwrap();
        for (child, expected) in children.iter().zip([vec![4, 9, 11], vec![4]]) {
            let found = w.store.checkpoints(child, 1).await.unwrap();
            let through: Vec<u64> = found.iter().map(|piece| piece.through).collect();
            assert_eq!(through, expected);
        }
    }
}
