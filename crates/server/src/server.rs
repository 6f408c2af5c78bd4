//! The listening side: a port, a bounded number of connections, and an orderly end.

use crate::address::{Advertise, AdvertiseError, PeerAddress, address};
use crate::auth::ClusterSecret;
use crate::door::{Door, Limits};
use crate::places::{Held, Places, Seat, Watched};
use crate::routes;
use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A request's head is no longer; whoever reaches the port, known or not, makes the node keep this much a connection.
const HEAD_MAX: usize = 16 * 1024;

/// Why a node cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// No address can be told to others.
    #[error(transparent)]
    Advertise(#[from] AdvertiseError),
}

/// A listening port that answers the nodes of one store for the life that [`HttpPeers`](crate::HttpPeers) opens.
/// Dropping it ends everything at once; [`NodeServer::shutdown`] lets answers under way be finished.
#[derive(Debug)]
pub struct NodeServer {
    pub(crate) door: Arc<Door>,
    local: SocketAddr,
    advertised: PeerAddress,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl NodeServer {
    /// Listens. `machine` names this machine, so that others do not take its loopback addresses for theirs.
    ///
    /// # Errors
    /// The port cannot be had, or there is no address that others could use.
    pub async fn bind(
        listen: SocketAddr,
        advertise: &Advertise,
        machine: &str,
        secret: ClusterSecret,
        limits: Limits,
    ) -> Result<Self, BindError> {
        let failed = |source| BindError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        let advertised = address(local, advertise, machine)?;
        let places = Places::new(limits.connections);
        let (patience, unread) = (limits.patience, limits.unread);
        let door = Arc::new(Door::new(secret, limits));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accepting = Accepting {
            listener,
            router: routes::router(door.clone()),
            places,
            patience,
            unread,
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn(accepting.run());
        Ok(Self {
            door,
            local,
            advertised,
            stop,
            tasks,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// What others are told.
    pub fn advertised(&self) -> &PeerAddress {
        &self.advertised
    }

    /// Takes no more connections, ends streams, lets short answers be finished, and returns within `limit`.
    pub async fn shutdown(&self, limit: Duration) {
        self.stop.cancel();
        if let Some(life) = self.door.life() {
            life.stop.cancel();
        }
        self.tasks.close();
        // Who does not read its answer is not waited for.
        let _ = tokio::time::timeout(limit, self.tasks.wait()).await;
    }
}

impl Drop for NodeServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(life) = self.door.life() {
            life.stop.cancel();
        }
    }
}

struct Accepting {
    listener: TcpListener,
    router: Router,
    places: Arc<Places>,
    patience: Duration,
    unread: Duration,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Accepting {
    async fn run(self) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    prepare(&stream, self.unread);
                    // Only for one who is there does another one go.
                    let seat = tokio::select! {
                        () = self.stop.cancelled() => return,
                        seat = self.places.take() => seat,
                    };
                    let (router, stop) = (self.router.clone(), self.stop.clone());
                    self.tasks
                        .spawn(serve(stream, seat, router, self.patience, stop));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Nothing here fails a connection: without it, it only serves less well.
fn prepare(stream: &TcpStream, unread: Duration) {
    // A wake is one small packet: it must not wait for more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small answers may be held back");
    }
    // A reader that is stopped, or whose machine is gone, says nothing of it: its stream would keep its place for ever,
    // or until the system has tried for a quarter of an hour.
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(unread)) {
        tracing::debug!(%error, "a reader that does not read keeps its place");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = unread;
}

/// Its place was given away while its request came.
#[derive(Debug, thiserror::Error)]
#[error("the connection gave its place to another")]
struct GivenAway;

async fn serve(
    stream: TcpStream,
    seat: Arc<Seat>,
    router: Router,
    patience: Duration,
    stop: CancellationToken,
) {
    let routes = TowerToHyperService::new(router);
    let sitting = Arc::clone(&seat);
    let service = service_fn(move |request: Request<Incoming>| {
        let under_way = sitting.answering();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(&sitting));
        let answered = under_way.map(|under_way| (under_way, routes.call(request)));
        async move {
            let (under_way, answered) = answered.ok_or(GivenAway)?;
            let answer = answered.await.unwrap_or_else(|never| match never {});
            Ok::<_, GivenAway>(answer.map(|body| Held {
                body,
                _under_way: under_way,
            }))
        }
    });
    let socket = Watched {
        stream,
        seat: Arc::clone(&seat),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(socket), service);
    tokio::pin!(connection);
    let served = async {
        tokio::select! {
            ended = &mut connection => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    tokio::select! {
        biased;
        // Nothing is under way: what is dropped here has nothing to say any more.
        () = seat.given_away() => tracing::trace!("an idle connection gave its place to another"),
        ended = served => {
            if let Err(error) = ended {
                tracing::trace!(%error, "a connection ended");
            }
        }
    }
}
