//! Which life a process answers for, and which requests it lets in.

use crate::auth::{ClusterSecret, SIGNATURE, verify};
use crate::places::Seat;
use crate::replay::Replays;
use crate::wire::Refusal;
use axum::body::Body;
use axum::extract::FromRequest;
use bytes::Bytes;
use http::Request;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::id::Incarnation;
use tenure_engine::NodeService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Bounds on what others may ask of a node.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections open at the same time. For one more, that which has been idle the longest is closed; where none is idle,
    /// it waits.
    pub connections: usize,
    /// Live streams at the same time; more are refused.
    pub streams: usize,
    /// Bytes of a request's body.
    pub body: usize,
    /// How long a request's head, then its body, may take; an idle connection is closed after it.
    pub patience: Duration,
    /// How long what was sent may stay unread: then the connection is cut, and frees its place.
    pub unread: Duration,
    /// Between two signs of life on a quiet stream.
    pub beat: Duration,
    /// Callers in one generation of numbers used once.
    pub callers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            streams: 512,
            body: 16 * 1024,
            patience: Duration::from_secs(30),
            unread: Duration::from_secs(15),
            beat: Duration::from_secs(1),
            callers: 4096,
        }
    }
}

impl Limits {
    /// The usual ones for a process that may have so many files open: at most a quarter of them is for others' connections,
    /// half of those for streams. The rest is what sessions run with.
    pub fn within(open_files: u64) -> Self {
        let usual = Self::default();
        let quarter = usize::try_from(open_files / 4).unwrap_or(usize::MAX);
        let connections = quarter.clamp(FEWEST, usual.connections);
        Self {
            connections,
            streams: usual.streams.min(connections / 2),
            ..usual
        }
    }
}

/// Connections that a node takes however few files it may open.
const FEWEST: usize = 16;

/// One life of the node in this process.
#[derive(Debug)]
pub(crate) struct Life {
    pub incarnation: Incarnation,
    /// None while the node is still joining.
    pub service: Option<NodeService>,
    /// Ends its streams.
    pub stop: CancellationToken,
    replays: Mutex<Replays>,
}

/// Where requests come in.
#[derive(Debug)]
pub(crate) struct Door {
    secret: ClusterSecret,
    pub limits: Limits,
    pub streams: Arc<Semaphore>,
    life: Mutex<Option<Arc<Life>>>,
}

impl Door {
    pub fn new(secret: ClusterSecret, limits: Limits) -> Self {
        Self {
            secret,
            streams: Arc::new(Semaphore::new(limits.streams)),
            limits,
            life: Mutex::new(None),
        }
    }

    /// From now on this process answers for this life and no other.
    pub fn open(
        &self,
        incarnation: &Incarnation,
        service: Option<NodeService>,
        stop: CancellationToken,
    ) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        // A life that was announced keeps what it has accepted meanwhile.
        let same = life
            .take()
            .filter(|known| &known.incarnation == incarnation);
        let replays = same.map_or_else(
            || Replays::new(self.limits.callers),
            |known| {
                let mut kept = known.replays.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::replace(&mut *kept, Replays::closed())
            },
        );
        *life = Some(Arc::new(Life {
            incarnation: incarnation.clone(),
            service,
            stop,
            replays: Mutex::new(replays),
        }));
    }

    /// This life is over.
    pub fn close(&self, incarnation: &Incarnation) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if life.as_ref().is_some_and(|l| &l.incarnation == incarnation) {
            *life = None;
        }
    }

    pub fn life(&self) -> Option<Arc<Life>> {
        self.life
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A request that a node of this cluster sent to this very life, for the first time.
#[derive(Debug)]
pub(crate) struct Asked {
    pub life: Arc<Life>,
    pub query: String,
    pub body: Bytes,
}

impl Asked {
    /// The node that answers.
    pub fn service(&self) -> Result<&NodeService, Refusal> {
        self.life.service.as_ref().ok_or(Refusal::NotNow)
    }
}

impl FromRequest<Arc<Door>> for Asked {
    type Rejection = Refusal;

    async fn from_request(request: Request<Body>, door: &Arc<Door>) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let uri = parts.uri;
        // Who does not even claim to be a node has nothing read.
        if !parts.headers.contains_key(&SIGNATURE) {
            return Err(Refusal::Unsigned(crate::auth::Unsigned::Header(
                "x-tenure-signature",
            )));
        }
        let limit = door.limits.body;
        // Until it is known who asks, it is nobody's request: a stranger who sends half of one may be asked to go.
        let seat = parts.extensions.get::<Arc<Seat>>().cloned();
        let unproven = seat.as_ref().map(Seat::unproven);
        let reading = axum::body::to_bytes(body, limit);
        let body = match tokio::time::timeout(door.limits.patience, reading).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return Err(Refusal::TooLarge(limit)),
            Err(_) => return Err(Refusal::TooSlow),
        };
        if unproven.is_some_and(|unproven| !unproven.over()) {
            return Err(Refusal::Busy);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let caller = verify(&door.secret, &parts.method, path, &parts.headers, &body)?;
        let life = door.life().ok_or(Refusal::NotNow)?;
        if caller.to != life.incarnation {
            return Err(Refusal::OtherLife);
        }
        life.replays
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(&caller.from, caller.nonce)?;
        Ok(Self {
            life,
            query: uri.query().unwrap_or_default().to_owned(),
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_others_leave_three_quarters_of_the_open_files_to_sessions() {
        let within = |files| {
            let limits = Limits::within(files);
            (limits.connections, limits.streams)
        };
        assert_eq!(within(65_536), (1024, 512));
        assert_eq!(within(u64::MAX), (1024, 512));
        assert_eq!(within(1024), (256, 128));
        assert_eq!(within(0), (16, 8));
    }
}
