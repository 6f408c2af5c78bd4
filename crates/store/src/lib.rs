//! Floor 1: the event log and the claims, over SQLite.
//!
//! This crate knows events, seqs, fences and claims; it knows nothing of providers or tools. Read
//! [`api`] first: it is the contract. `sqlite` is the backend, `follow` the gapless reader built on the
//! contract alone, `conformance` (feature `testing`) the suite every backend must pass.

pub mod api;
pub mod error;
pub mod status;

pub use api::*;
