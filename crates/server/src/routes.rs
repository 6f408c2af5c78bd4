//! The node-to-node endpoints.

use crate::auth::SIGNATURE;
use crate::door::{Asked, Door};
use crate::wire::{Health, LiveLine, PublicHealth, Refusal, WakeBody};
use axum::body::Body;
use axum::extract::{FromRequest, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::{Request, StatusCode, header};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_engine::{NodeHealth, Relayed, Woken};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// `POST` [`WakeBody`].
pub(crate) const WAKE: &str = "/v1/node/wake";
/// `GET` with `?session=`.
pub(crate) const LIVE: &str = "/v1/node/live";
/// `GET`.
pub(crate) const HEALTH: &str = "/v1/node/health";

/// All of them.
pub(crate) fn router(door: Arc<Door>) -> Router {
    Router::new()
        .route(WAKE, post(wake))
        .route(LIVE, get(live))
        .route(HEALTH, get(health))
        .with_state(door)
}

async fn wake(asked: Asked) -> Result<Json<Woken>, Refusal> {
    let WakeBody { session } =
        serde_json::from_slice(&asked.body).map_err(|e| Refusal::Malformed(e.to_string()))?;
    Ok(Json(asked.service()?.wake(&session)))
}

async fn live(State(door): State<Arc<Door>>, asked: Asked) -> Result<Response, Refusal> {
    let session = asked
        .query
        .strip_prefix("session=")
        .ok_or_else(|| Refusal::Malformed("the query must be session=ID".to_owned()))?;
    let session = SessionId::parse(session).map_err(|e| Refusal::Malformed(e.to_string()))?;
    let permit = door.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Refusal::Busy)?;
    let lines = Lines {
        said: asked.service()?.live(&session),
        stop: asked.life.stop.clone(),
        beat: door.limits.beat,
        _permit: permit,
    };
    let body = stream::unfold(Some(lines), |lines| async move {
        let mut lines = lines?;
        let line = lines.next().await?;
        let last = matches!(line, LiveLine::Said(Relayed::Moved { .. }));
        let mut text = serde_json::to_vec(&line).ok()?;
        text.push(b'\n');
        Some((
            Ok::<Bytes, Infallible>(text.into()),
            (!last).then_some(lines),
        ))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(body)).into_response())
}

/// A live stream under way. What is not read yet stays in the hub, within its bound.
struct Lines {
    said: BoxStream<'static, Relayed>,
    stop: CancellationToken,
    beat: Duration,
    _permit: OwnedSemaphorePermit,
}

impl Lines {
    /// The next line; none when this life ends: what then moves is told by its next owner.
    async fn next(&mut self) -> Option<LiveLine> {
        tokio::select! {
            biased;
            said = self.said.next() => said.map(LiveLine::Said),
            () = self.stop.cancelled() => None,
            () = tokio::time::sleep(self.beat) => Some(LiveLine::Beat { beat: true }),
        }
    }
}

/// Anybody learns whether the node gets on; a node of the cluster learns more. 503 when it does not get on, so
/// that whoever routes by it routes elsewhere.
async fn health(
    State(door): State<Arc<Door>>,
    request: Request<Body>,
) -> Result<Response, Refusal> {
    if request.headers().contains_key(&SIGNATURE) {
        let asked = Asked::from_request(request, &door).await?;
        let health = asked.service()?.health();
        let status = status_word(&health);
        let body = Health {
            status,
            incarnation: health.incarnation,
            running: health.running,
            may_start: health.may_start,
            looked_ms_ago: health.looked_ms_ago,
        };
        return Ok((code(status), Json(body)).into_response());
    }
    let service = door.life().and_then(|life| life.service.clone());
    let status = service.map_or("starting", |service| status_word(&service.health()));
    Ok((code(status), Json(PublicHealth { status })).into_response())
}

fn status_word(health: &NodeHealth) -> &'static str {
    if health.draining {
        "draining"
    } else if health.progresses() {
        "ok"
    } else {
        "stalled"
    }
}

fn code(status: &str) -> StatusCode {
    if status == "ok" {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}
