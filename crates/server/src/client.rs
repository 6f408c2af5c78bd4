//! The asking side: signed requests to other nodes, over connections that are kept.

mod lines;

use crate::address::PeerAddress;
use crate::auth::{ClusterSecret, Nonce, Signed, sign};
use crate::door::Door;
use crate::routes;
use crate::server::NodeServer;
use crate::wire::{RefusalBody, WakeBody};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{Method, StatusCode};
use reqwest::{Client, Response};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};
use tenure_engine::{NodeService, Peer, Peers, Relayed, Unreached, Woken};
use tokio_util::sync::CancellationToken;

/// How long another node may take to accept a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// How long it may take to begin its answer.
const ANSWER: Duration = Duration::from_secs(1);
/// A connection is given up before the other side closes it for being idle.
const IDLE: Duration = Duration::from_secs(20);
/// More of an answer that is no stream is not read.
const ANSWER_MAX: usize = 16 * 1024;
/// A node that is asked by many new callers at once may begin a generation between two tries.
const TRIES: u32 = 4;
/// Nodes whose generation is remembered; beyond them the memory begins anew.
const REMEMBERED: usize = 4096;

/// Reaches other nodes of the store over HTTP, and is reached through a [`NodeServer`] if it has one.
#[derive(Debug, Clone)]
pub struct HttpPeers {
    inner: Arc<Inner>,
    served: Option<(Arc<Door>, String)>,
}

#[derive(Debug)]
struct Inner {
    http: Client,
    secret: ClusterSecret,
    machine: String,
    /// This process as a caller: a name that no other start ever has.
    from: Incarnation,
    counter: AtomicU64,
    /// Each receiver's generation of numbers used once.
    generations: Mutex<HashMap<Incarnation, u64>>,
}

/// The HTTP client cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for other nodes cannot be made: {0}")]
pub struct ClientError(reqwest::Error);

impl HttpPeers {
    /// Peers of a process that asks and is not asked. `machine` is this machine's name in addresses.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn new(secret: ClusterSecret, machine: &str) -> Result<Self, ClientError> {
        static CRYPTO: Once = Once::new();
        // Another part of the program may have chosen already: as good.
        CRYPTO.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let http = Client::builder()
            // Other nodes are never behind the proxy that leads to the internet.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .pool_idle_timeout(IDLE)
            .http1_only()
            .build()
            .map_err(ClientError)?;
        Ok(Self {
            inner: Arc::new(Inner {
                http,
                secret,
                machine: machine.to_owned(),
                from: Incarnation::from_bits(uuid::Uuid::now_v7().as_u128()),
                counter: AtomicU64::new(0),
                generations: Mutex::default(),
            }),
            served: None,
        })
    }

    /// As these, and answering through `server`.
    #[must_use]
    pub fn served_by(self, server: &NodeServer) -> Self {
        let advertised = server.advertised().to_string();
        Self {
            served: Some((server.door.clone(), advertised)),
            ..self
        }
    }
}

/// One question to a node.
struct Question {
    method: Method,
    path: String,
    body: Bytes,
}

impl Inner {
    /// Asks, and again under the right generation when the node does not remember ours.
    async fn ask(&self, peer: &Peer, question: &Question) -> Result<Response, Unreached> {
        let address: PeerAddress = peer.address.parse().map_err(|e| failed(&e))?;
        if !address.reachable_from(&self.machine) {
            return Err(Unreached::Failed {
                reason: "it listens on a loopback address of another machine".to_owned(),
            });
        }
        let mut tries = 1;
        loop {
            let generation = self.generation(&peer.incarnation);
            let answer = self.send(&address, peer, question, generation).await?;
            if answer.status() != StatusCode::CONFLICT {
                return Ok(answer);
            }
            let refusal: Option<RefusalBody> = serde_json::from_slice(&whole(answer).await?).ok();
            match refusal.and_then(|refusal| refusal.generation) {
                Some(now) if tries < TRIES => self.learn(&peer.incarnation, now),
                _ => {
                    return Err(Unreached::Failed {
                        reason: "it has seen this request before".to_owned(),
                    });
                }
            }
            tries += 1;
        }
    }

    async fn send(
        &self,
        address: &PeerAddress,
        peer: &Peer,
        question: &Question,
        generation: u64,
    ) -> Result<Response, Unreached> {
        let url = format!("{}{}", address.url(), question.path);
        let headers = sign(
            &self.secret,
            &Signed {
                method: &question.method,
                path: &question.path,
                body: &question.body,
                to: &peer.incarnation,
                from: &self.from,
                nonce: Nonce {
                    generation,
                    counter: self.counter.fetch_add(1, Ordering::Relaxed),
                },
            },
        );
        let sending = self
            .http
            .request(question.method.clone(), url)
            .headers(headers)
            .body(question.body.clone())
            .send();
        match tokio::time::timeout(ANSWER, sending).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unreached(&error)),
            Err(_) => Err(Unreached::Silent),
        }
    }

    fn generation(&self, peer: &Incarnation) -> u64 {
        let known = self
            .generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known.get(peer).copied().unwrap_or(0)
    }

    fn learn(&self, peer: &Incarnation, generation: u64) {
        let mut known = self
            .generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(peer.clone(), generation);
    }
}

/// What an answer that is no success means.
async fn refused(answer: Response) -> Unreached {
    let status = answer.status();
    if status == StatusCode::MISDIRECTED_REQUEST {
        return Unreached::OtherLife;
    }
    let said = match whole(answer).await {
        Ok(body) => serde_json::from_slice::<RefusalBody>(&body).ok(),
        Err(_) => None,
    };
    Unreached::Failed {
        reason: match said {
            Some(refusal) => format!("it refused: {}", refusal.message),
            None => format!("something answered with HTTP status {}", status.as_u16()),
        },
    }
}

/// A short answer's body.
async fn whole(mut answer: Response) -> Result<Vec<u8>, Unreached> {
    let mut body = Vec::new();
    let reading = async {
        while let Some(chunk) = answer.chunk().await.map_err(|e| unreached(&e))? {
            body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_MAX - body.len())]);
            if body.len() >= ANSWER_MAX {
                break;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(ANSWER, reading).await {
        Ok(read) => read.map(|()| body),
        Err(_) => Err(Unreached::Silent),
    }
}

fn failed(error: &impl std::fmt::Display) -> Unreached {
    Unreached::Failed {
        reason: error.to_string(),
    }
}

fn unreached(error: &reqwest::Error) -> Unreached {
    if error.is_timeout() {
        return Unreached::Silent;
    }
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return Unreached::Refused;
        }
        source = cause.source();
    }
    failed(error)
}

impl Peers for HttpPeers {
    fn wake(&self, peer: &Peer, session: &SessionId) -> BoxFuture<'static, Woken> {
        let (inner, peer) = (self.inner.clone(), peer.clone());
        let body = serde_json::to_vec(&WakeBody {
            session: session.clone(),
        });
        async move {
            let asking = async {
                let question = Question {
                    method: Method::POST,
                    path: routes::WAKE.to_owned(),
                    body: body.map_err(|e| failed(&e))?.into(),
                };
                let answer = inner.ask(&peer, &question).await?;
                if !answer.status().is_success() {
                    return Err(refused(answer).await);
                }
                serde_json::from_slice(&whole(answer).await?).map_err(|e| failed(&e))
            };
            asking.await.unwrap_or_else(Woken::Unreached)
        }
        .boxed()
    }

    fn live(
        &self,
        peer: &Peer,
        session: &SessionId,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Relayed>, Unreached>> {
        let (inner, peer) = (self.inner.clone(), peer.clone());
        let question = Question {
            method: Method::GET,
            path: format!("{}?session={session}", routes::LIVE),
            body: Bytes::new(),
        };
        async move {
            let answer = inner.ask(&peer, &question).await?;
            if !answer.status().is_success() {
                return Err(refused(answer).await);
            }
            Ok(lines::relayed(answer.bytes_stream().boxed()))
        }
        .boxed()
    }

    fn probe(&self, peer: &Peer) -> BoxFuture<'static, Result<(), Unreached>> {
        let (inner, peer) = (self.inner.clone(), peer.clone());
        async move {
            let question = Question {
                method: Method::GET,
                path: routes::HEALTH.to_owned(),
                body: Bytes::new(),
            };
            let answer = inner.ask(&peer, &question).await?;
            match answer.status() {
                // It lives, whether or not it gets on.
                StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE => Ok(()),
                _ => Err(refused(answer).await),
            }
        }
        .boxed()
    }

    fn address(&self, incarnation: &Incarnation) -> Option<String> {
        let (door, advertised) = self.served.as_ref()?;
        // Whoever reads the address before the node has begun is told that it begins, not that it is another.
        door.open(incarnation, None, CancellationToken::new());
        Some(advertised.clone())
    }

    fn serve(
        &self,
        incarnation: &Incarnation,
        service: NodeService,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        let Some((door, _)) = self.served.clone() else {
            return futures::future::ready(()).boxed();
        };
        let incarnation = incarnation.clone();
        async move {
            let streams = stop.child_token();
            door.open(&incarnation, Some(service), streams.clone());
            let _closed = Closed {
                door,
                incarnation,
                streams,
            };
            stop.cancelled().await;
        }
        .boxed()
    }
}

/// Ends a life's answers, also when serving is dropped.
struct Closed {
    door: Arc<Door>,
    incarnation: Incarnation,
    streams: CancellationToken,
}

impl Drop for Closed {
    fn drop(&mut self) {
        self.streams.cancel();
        self.door.close(&self.incarnation);
    }
}
