//! Node to node over real HTTP: who is let in, what is relayed, and what happens when a node goes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../../../engine/tests/it/checks.rs"]
mod checks;
#[allow(dead_code, reason = "the engine's tests use the rest")]
#[path = "../../../engine/tests/it/stores.rs"]
mod stores;
#[allow(dead_code, reason = "the engine's tests use the rest")]
#[path = "../../../engine/tests/it/support.rs"]
mod support;

mod crowd;
mod door;
mod hop;
mod relay;
mod wake;
