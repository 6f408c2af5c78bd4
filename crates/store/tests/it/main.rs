//! The store's integration tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod conformance;
mod mutants;
mod sqlite_backend;
