//! A store whose appends give their caller a poll at each place where it could be dropped: before the append is
//! handed over, while it is on its way, and when its answer is there and not yet taken.

use crate::stores::Hurtable;
use async_trait::async_trait;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use tenure_core::event::{EventRecord, NewEvent};
use tenure_core::id::{EventId, Incarnation, SessionId};
use tenure_core::inbox::PendingInput;
use tenure_store::*;
use tokio::sync::watch;

/// Pending once.
async fn once_more() {
    let mut waited = false;
    poll_fn(|cx| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

pub struct Stepping(pub Arc<dyn Hurtable>);

#[async_trait]
impl Store for Stepping {
    async fn append(&self, append: Append) -> Result<Committed, AppendError> {
        once_more().await;
        let mut inner = self.0.append(append);
        // Its first poll hands it over.
        let first = poll_fn(|cx| Poll::Ready(inner.as_mut().poll(cx))).await;
        once_more().await;
        let result = match first {
            Poll::Ready(result) => result,
            Poll::Pending => inner.await,
        };
        once_more().await;
        result
    }

    async fn resolve(
        &self,
        session: &SessionId,
        fence: &Fence,
        ids: &[EventId],
    ) -> Result<Option<Committed>, AppendError> {
        self.0.resolve(session, fence, ids).await
    }

    async fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        self.0.read(session, after, limit).await
    }

    fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        self.0.watch(session)
    }

    fn watch_all(&self) -> watch::Receiver<u64> {
        self.0.watch_all()
    }

    async fn fork(
        &self,
        parent: &SessionId,
        through: u64,
        child: &SessionId,
        event: NewEvent,
    ) -> Result<Committed, AppendError> {
        self.0.fork(parent, through, child, event).await
    }

    async fn delete(&self, session: &SessionId) -> Result<(), DeleteError> {
        self.0.delete(session).await
    }

    async fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError> {
        self.0.replay(session, events).await
    }

    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        self.0.session(session).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        self.0.sessions(query).await
    }

    async fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        self.0.claimable(limit).await
    }

    async fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        self.0.inbox(session).await
    }

    async fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        self.0.effects(session).await
    }

    async fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError> {
        self.0.leftovers(limit).await
    }

    async fn interrupt(&self, interrupt: Interrupt) -> Result<Interrupted, AppendError> {
        self.0.interrupt(interrupt).await
    }

    async fn join(&self, node: NodeInfo) -> Result<(), NodeError> {
        self.0.join(node).await
    }

    async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError> {
        self.0.renew(incarnation).await
    }

    async fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        self.0.drain(incarnation).await
    }

    async fn leave(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        self.0.leave(incarnation).await
    }

    async fn resign(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        self.0.resign(incarnation).await
    }

    async fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        self.0.held(incarnation).await
    }

    async fn reap(&self, observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError> {
        self.0.reap(observer).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, NodeError> {
        self.0.nodes().await
    }

    async fn acquire(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
        even_if_idle: bool,
    ) -> Result<Acquire, AppendError> {
        self.0.acquire(session, incarnation, even_if_idle).await
    }

    async fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError> {
        self.0.adopt(session, incarnation).await
    }

    async fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        self.0.claim_phase(session, fence).await
    }

    async fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        self.0.claims().await
    }

    async fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError> {
        self.0.put_checkpoint(session, checkpoint).await
    }

    async fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        self.0.checkpoints(session, version).await
    }

    async fn gc(&self) -> Result<GcReport, ReadError> {
        self.0.gc().await
    }

    async fn health(&self) -> Result<StoreHealth, ReadError> {
        self.0.health().await
    }
}
