//! Nodes that reach each other directly: what they say to each other is late, lost, or said twice.

use super::executor::{Executor, Proc, WORLD};
use super::network::{Network, Wire};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::id::{Incarnation, SessionId};
use tenure_engine::{NodeService, Peer, Peers, Relayed, Unreached, Woken};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// How long an answer is waited for, in microseconds.
const PATIENCE: u64 = 2_000_000;
/// Items a stream holds on each side of the wire.
const WIRE: usize = 32;
/// Who has nothing to say for so long says that, in microseconds.
const BEAT: u64 = 1_000_000;
/// Who says nothing at all for so long is cut off, in microseconds.
const SILENCE: u64 = 3_500_000;

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

/// What a life of a node says, as it arrives elsewhere. It speaks for as long as its process runs and the reader stays.
fn stream(
    network: Network,
    line: &Line,
    said: BoxStream<'static, Relayed>,
) -> BoxStream<'static, Relayed> {
    let executor = network.executor().clone();
    let (speaks, wire) = mpsc::channel(WIRE);
    let (arrives, hears) = mpsc::channel(WIRE);
    executor.spawn(line.proc, speak(executor.clone(), said, speaks));
    let carrier = Carrier {
        network,
        from: line.node,
        wire,
        arrives,
    };
    executor.spawn(WORLD, carrier.carry());
    futures::stream::unfold(hears, |mut hears| async move {
        let item = hears.recv().await?;
        Some((item, hears))
    })
    .boxed()
}

/// The speaking side: what there is to say, and a beat in between.
async fn speak(
    executor: Executor,
    mut said: BoxStream<'static, Relayed>,
    speaks: mpsc::Sender<Option<Relayed>>,
) {
    loop {
        let next = tokio::select! {
            biased;
            () = speaks.closed() => return,
            next = said.next() => match next {
                Some(next) => Some(next),
                None => return,
            },
            () = executor.sleep_micros(BEAT) => None,
        };
        if speaks.send(next).await.is_err() {
            return;
        }
    }
}

/// What lies between: in order mostly, bounded, and given up when nothing comes for too long.
struct Carrier {
    network: Network,
    from: usize,
    wire: mpsc::Receiver<Option<Relayed>>,
    arrives: mpsc::Sender<Relayed>,
}

impl Carrier {
    async fn carry(mut self) {
        let executor = self.network.executor().clone();
        loop {
            let item = tokio::select! {
                biased;
                () = self.arrives.closed() => return,
                item = self.wire.recv() => item,
                () = executor.sleep_micros(SILENCE) => return,
            };
            let item = match item {
                Some(Some(item)) => item,
                Some(None) => continue,
                None => return,
            };
            let (after, times) = match self.network.wire(self.from) {
                Wire::Breaks => return,
                Wire::Lost => continue,
                Wire::Next { after } => (after, 1),
                Wire::Twice { after } => (after, 2),
                Wire::Alone { after } => {
                    let (executor, arrives) = (executor.clone(), self.arrives.clone());
                    self.network.executor().spawn(WORLD, async move {
                        executor.sleep_micros(after).await;
                        // Whoever reads may have gone, or be slow: then it is lost.
                        let _ = arrives.try_send(item);
                    });
                    continue;
                }
            };
            executor.sleep_micros(after).await;
            for _ in 0..times {
                if self.arrives.send(item.clone()).await.is_err() {
                    return;
                }
            }
        }
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
        peer: &Peer,
        session: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>> {
        let line = self.board.lines().get(&peer.incarnation).cloned();
        let session = session.clone();
        let asked = self.ask(&peer.incarnation, move |service| service.live(&session));
        let network = self.network.clone();
        Box::pin(async move {
            let said = asked.await?;
            // It was there when it was asked.
            let line = line.ok_or(Unreached::Refused)?;
            Ok(stream(network, &line, said))
        })
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
