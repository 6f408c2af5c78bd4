//! Integration tests of the testbed: each service is started for real, and each fault is seen from outside.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is a failed test"
)]

mod clock;
mod cluster;
mod commits;
mod pooler;
mod processes;
mod proxy;
mod sessions;
mod standby;
mod whole_run;
