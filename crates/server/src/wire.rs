//! What goes over the wire: bodies of requests, lines of a live stream, refusals.

use crate::auth::Unsigned;
use crate::replay::Refused;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure_core::id::{Incarnation, SessionId};
use tenure_engine::Relayed;

/// The body of `POST /v1/node/wake`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WakeBody {
    pub session: SessionId,
}

/// A line of `GET /v1/node/live`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum LiveLine {
    /// Something is said of the session.
    Said(Relayed),
    /// The node is there; nothing else is to be told.
    Beat {
        /// Always true.
        beat: bool,
    },
}

/// Why a request was refused. The caller is told what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Not signed by this cluster.
    #[error(transparent)]
    Unsigned(#[from] Unsigned),
    /// Meant for another life.
    #[error("this node is another process start than the one the request is meant for")]
    OtherLife,
    /// The number was used.
    #[error("this request was answered before, or is too old to know; send it with a new number")]
    Replayed,
    /// The number's generation is over.
    #[error("numbers of that generation are not remembered here; sign again under generation {0}")]
    Generation(u64),
    /// The body is too large.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// The body did not come.
    #[error("the body did not come in time")]
    TooSlow,
    /// The request cannot be read.
    #[error("{0}")]
    Malformed(String),
    /// Nobody answers here yet, or no longer.
    #[error("this node does not answer now: it begins, or it ends")]
    NotNow,
    /// Too many live streams.
    #[error("this node relays as many live streams as it may; try another way or later")]
    Busy,
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Used => Self::Replayed,
            Refused::Generation(now) => Self::Generation(now),
        }
    }
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unsigned(_) => StatusCode::UNAUTHORIZED,
            Self::OtherLife => StatusCode::MISDIRECTED_REQUEST,
            Self::Replayed | Self::Generation(_) => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::NotNow | Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Unsigned(Unsigned::Header(_)) => "unsigned",
            Self::Unsigned(Unsigned::Signature) => "bad_signature",
            Self::OtherLife => "other_life",
            Self::Replayed => "replayed",
            Self::Generation(_) => "generation",
            Self::TooLarge(_) => "too_large",
            Self::TooSlow => "too_slow",
            Self::Malformed(_) => "malformed",
            Self::NotNow => "not_now",
            Self::Busy => "busy",
        }
    }
}

/// A refusal's body.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RefusalBody {
    /// A stable word.
    pub error: String,
    /// For people.
    pub message: String,
    /// The generation to sign under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let generation = match &self {
            Self::Generation(now) => Some(*now),
            _ => None,
        };
        let body = RefusalBody {
            error: self.code().to_owned(),
            message: self.to_string(),
            generation,
        };
        (self.status(), Json(body)).into_response()
    }
}

/// What `GET /v1/node/health` tells anybody.
#[derive(Debug, Serialize)]
pub(crate) struct PublicHealth {
    /// `ok`, `draining`, `stalled` or `starting`.
    pub status: &'static str,
}

/// What it tells a node of the cluster.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    pub status: &'static str,
    pub incarnation: Incarnation,
    pub running: usize,
    pub may_start: bool,
    pub looked_ms_ago: u64,
}
