//! The store's integration tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod boots;
mod cases;
mod conformance;
mod damaged;
mod large;
mod leftovers;
mod memory_backend;
mod mutants;
mod opening;
mod places;
mod postgres_backend;
mod postgres_conformance;
mod postgres_failover;
mod postgres_faults;
mod postgres_mutants;
mod postgres_nodes;
mod postgres_places;
mod postgres_pooled;
mod postgres_scale;
mod postgres_settings;
mod processes;
mod sqlite_backend;
