//! Node to node: wakes, live items and signs of life. All of it is hints; the log is never sent here, and
//! nothing depends on an answer. The engine speaks no protocol: a [`Peers`] does.

pub(crate) mod owners;
pub(crate) mod relay;
mod service;
pub(crate) mod unix;

use crate::hub::LiveItem;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tenure_core::id::{Incarnation, SessionId};
use tokio_util::sync::CancellationToken;

pub use relay::LiveFeed;
pub use service::{NodeHealth, NodeService};
pub use unix::UnixPeers;

/// A node as another one reaches it. An address outlives a process; the incarnation says which life is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The life that is meant: another one at the same address does not answer for it.
    pub incarnation: Incarnation,
    /// Where it said it listens.
    pub address: String,
}

/// The answer to a wake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "woken", rename_all = "snake_case")]
pub enum Woken {
    /// The node runs the session, and looks at it now.
    Looking {
        /// The epoch it holds; none while it still acquires.
        epoch: Option<u64>,
    },
    /// The node was reached and does not run the session: whoever took it for the owner looks again.
    NotOwner {
        /// The newest epoch it knows of.
        epoch: Option<u64>,
    },
    /// The node was not reached; its poll will notice.
    Unreached(Unreached),
}

/// Why a node did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Unreached {
    /// Nothing listens there: the process is gone, or another machine was asked.
    #[error("nothing listens at its address")]
    Refused,
    /// Another life listens there: the one that was meant is over.
    #[error("another process start listens at its address")]
    OtherLife,
    /// No answer in time.
    #[error("it does not answer")]
    Silent,
    /// It cannot be asked from here, or did not accept the question.
    #[error("{reason}")]
    Failed {
        /// What happened, for people.
        reason: String,
    },
}

/// What a node's relay says of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Relayed {
    /// The next live item.
    Item {
        /// It.
        item: LiveItem,
    },
    /// The node does not run the session, or no longer; the stream ends with this.
    Moved {
        /// The newest epoch it knows of.
        epoch: Option<u64>,
    },
}

/// How a process reaches other nodes and is reached by them. Implementations speak a protocol; a simulation
/// drops, repeats and delays. None may wait without bound, except a live stream, which must end when the
/// other side is gone. All futures are cancellation safe: what was asked is a hint and may be lost.
pub trait Peers: Send + Sync + 'static {
    /// Makes the node look at a session at once.
    fn wake(&self, peer: &Peer, session: &SessionId) -> BoxFuture<'static, Woken>;

    /// Live items of a session that the node runs, from now on. Dropping the stream ends it. A stream that
    /// ends without [`Relayed::Moved`] was cut.
    fn live(
        &self,
        peer: &Peer,
        session: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>>;

    /// Does this life of the node still answer? Never a proof of death by itself.
    fn probe(&self, peer: &Peer) -> BoxFuture<'static, Result<(), Unreached>>;

    /// Where this process will be reached in the life that is about to begin; `None` when it cannot be. Asked
    /// before the node joins, so that the address is in its row from the start.
    fn address(&self, incarnation: &Incarnation) -> Option<String>;

    /// Answers for this life until `stop`.
    fn serve(
        &self,
        incarnation: &Incarnation,
        service: NodeService,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()>;
}
