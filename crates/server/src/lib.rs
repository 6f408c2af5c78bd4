//! Floor 3: Tenure over HTTP. Now: what the nodes of one store say to each other.
//!
//! ```text
//!   HttpPeers (one per process) ── signed requests ──▶ NodeServer of another process ──▶ NodeService (engine)
//!     wake, live, probe                                  POST /v1/node/wake
//!                                                        GET  /v1/node/live?session=…
//!                                                        GET  /v1/node/health
//! ```
//!
//! Read [`auth`] for who may ask, and what that protects against. Everything asked here is a hint: a node that
//! cannot be reached loses milliseconds, never work.

mod address;
pub mod auth;
mod client;
mod door;
mod places;
mod replay;
mod routes;
mod server;
mod wire;

pub use address::{Advertise, AdvertiseError, PeerAddress};
pub use auth::ClusterSecret;
pub use client::{ClientError, HttpPeers};
pub use door::Limits;
pub use server::{BindError, NodeServer};
