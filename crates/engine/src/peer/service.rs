//! What a node does for others: the listening side of every [`Peers`](super::Peers).

use super::{Relayed, Woken};
use crate::engine::Shared;
use crate::hub::LiveItem;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use tenure_core::id::{Incarnation, SessionId};
use tokio::sync::broadcast;

/// A handle on a running engine for whoever answers its peers. Cheap to clone. Whoever asks must be known to be
/// a node of the same store: nothing is checked here.
#[derive(Clone)]
pub struct NodeService {
    shared: Arc<Shared>,
}

impl fmt::Debug for NodeService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeService").finish_non_exhaustive()
    }
}

/// Whether a node gets on with its work, not only whether it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeHealth {
    /// This life.
    pub incarnation: Incarnation,
    /// The lease is good: it may start work.
    pub may_start: bool,
    /// It takes no more sessions.
    pub draining: bool,
    /// Sessions it runs.
    pub running: usize,
    /// Milliseconds since its reconciler last read the store to the end.
    pub looked_ms_ago: u64,
    /// How often the reconciler looks at least, in milliseconds.
    pub poll_ms: u64,
}

impl NodeHealth {
    /// Does the node get on? False when its lease is not good, or its reconciler has missed several turns.
    pub fn progresses(&self) -> bool {
        self.may_start && self.looked_ms_ago <= self.poll_ms.saturating_mul(5).max(5_000)
    }
}

impl NodeService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Makes this node look at the session now: the run that is under way, or the reconciler's part for one
    /// that may be taken.
    pub fn wake(&self, session: &SessionId) -> Woken {
        let running = self.shared.run_of(session);
        self.shared.nudge(session);
        match running {
            Some(run) => Woken::Looking { epoch: run.epoch },
            None => Woken::NotOwner { epoch: None },
        }
    }

    /// Live items of the session for as long as it runs here, then [`Relayed::Moved`]. A reader that is too
    /// slow is told [`LiveItem::Lagged`]; nothing is kept for it beyond the hub's bound.
    pub fn live(&self, session: &SessionId) -> BoxStream<'static, Relayed> {
        let Some(run) = self.shared.run_of(session) else {
            return stream::iter([Relayed::Moved { epoch: None }]).boxed();
        };
        let items = self.shared.hub.subscribe(session);
        stream::unfold(Some((items, run)), |state| async move {
            let (mut items, run) = state?;
            let received = tokio::select! {
                biased;
                received = items.recv() => Some(received),
                () = run.over.cancelled() => None,
            };
            match received {
                Some(Ok(item)) => Some((Relayed::Item { item }, Some((items, run)))),
                Some(Err(broadcast::error::RecvError::Lagged(_))) => {
                    let item = LiveItem::Lagged;
                    Some((Relayed::Item { item }, Some((items, run))))
                }
                Some(Err(broadcast::error::RecvError::Closed)) | None => {
                    Some((Relayed::Moved { epoch: run.epoch }, None))
                }
            }
        })
        .boxed()
    }

    /// How the node is getting on.
    pub fn health(&self) -> NodeHealth {
        self.shared.health()
    }
}
