//! Integration tests of the tools: real files, real processes, real signals.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod bash;
mod edit;
mod ending;
mod guardian;
mod output;
mod paths;
mod permission;
mod read;
mod search;
mod set;
mod support;
mod write;
