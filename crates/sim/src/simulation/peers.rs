//! Nodes that reach each other directly: what they say to each other is late, lost, or said twice.

use super::executor::{Proc, WORLD};
use super::network::Network;
use futures::future::{BoxFuture, ready};
use futures::stream::BoxStream;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::id::{Incarnation, SessionId};
use tenure_engine::{NodeService, Peer, Peers, Relayed, Unreached, Woken};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long an answer is waited for, in microseconds.
const PATIENCE: u64 = 2_000_000;

/// Who answers in the name of which life.
#[derive(Clone, Default)]
pub struct Switchboard(Arc<Mutex<BTreeMap<Incarnation, Line>>>);

#[derive(Clone)]
struct Line {
    node: usize,
    proc: Proc,
    service: NodeService,
}

impl Switchboard {
    fn lines(&self) -> MutexGuard<'_, BTreeMap<Incarnation, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line as long as it is open.
struct Open {
    board: Switchboard,
    life: Incarnation,
}

impl Drop for Open {
    fn drop(&mut self) {
        let line = self.board.lines().remove(&self.life);
        // With the board free: what it held may want it.
        drop(line);
    }
}

/// How one process reaches the others.
pub struct SimPeers {
    node: usize,
    proc: Proc,
    network: Network,
    board: Switchboard,
}

impl SimPeers {
    /// For a process of `node`.
    pub fn new(node: usize, proc: Proc, network: Network, board: &Switchboard) -> Self {
        Self {
            node,
            proc,
            network,
            board: board.clone(),
        }
    }

    /// Asks a life of some node, as its own request handler does there.
    fn ask<T: Send + 'static>(
        &self,
        life: &Incarnation,
        question: impl Fn(&NodeService) -> T + Send + Sync + 'static,
    ) -> BoxFuture<'static, Result<T, Unreached>> {
        let line = self.board.lines().get(life).cloned();
        let network = self.network.clone();
        Box::pin(async move {
            let executor = network.executor().clone();
            let Some(Line {
                node,
                proc,
                service,
            }) = line
            else {
                executor.sleep_micros(200).await;
                return Err(Unreached::Refused);
            };
            let Some(way) = network.direct(node) else {
                executor.sleep_micros(PATIENCE).await;
                return Err(Unreached::Silent);
            };
            let (answer, told) = oneshot::channel();
            let mut answer = Some(answer);
            let (question, service) = (Arc::new(question), Arc::new(service));
            let world = executor.clone();
            executor.spawn(WORLD, async move {
                for after in way {
                    world.sleep_micros(after).await;
                    let (question, service) = (question.clone(), service.clone());
                    let answer = answer.take();
                    world.spawn(proc, async move {
                        let said = question(&service);
                        if let Some(answer) = answer {
                            // Whoever asked may have stopped waiting.
                            let _ = answer.send(said);
                        }
                    });
                }
            });
            tokio::select! {
                biased;
                said = told => said.map_err(|_| Unreached::Refused),
                () = executor.sleep_micros(PATIENCE) => Err(Unreached::Silent),
            }
        })
    }
}

impl Peers for SimPeers {
    fn wake(&self, peer: &Peer, session: &SessionId) -> BoxFuture<'static, Woken> {
        let session = session.clone();
        let asked = self.ask(&peer.incarnation, move |service| service.wake(&session));
        Box::pin(async move { asked.await.unwrap_or_else(Woken::Unreached) })
    }

    fn live(
        &self,
        _: &Peer,
        _: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>> {
        let reason = "live items are not relayed here".to_owned();
        Box::pin(ready(Err(Unreached::Failed { reason })))
    }

    fn probe(&self, peer: &Peer) -> BoxFuture<'static, Result<(), Unreached>> {
        self.ask(&peer.incarnation, |_| ())
    }

    fn address(&self, _: &Incarnation) -> Option<String> {
        Some(format!("node-{}", self.node))
    }

    fn serve(
        &self,
        incarnation: &Incarnation,
        service: NodeService,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let (board, life) = (self.board.clone(), incarnation.clone());
        let line = Line {
            node: self.node,
            proc: self.proc,
            service,
        };
        Box::pin(async move {
            board.lines().insert(life.clone(), line);
            let _open = Open { board, life };
            stop.cancelled().await;
        })
    }
}
