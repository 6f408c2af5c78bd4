//! Tests of the built program from outside: processes, files, exit codes, and a scripted model over real HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking, in its helpers too"
)]

mod answering;
mod answers;
mod bad_input;
mod bedrock;
mod budgets;
mod claims;
mod compacting;
mod configuration;
mod detach;
mod doctor;
mod endings;
mod export;
mod following;
mod json;
mod looking;
mod looking_on;
mod models;
mod nodes;
mod outages;
mod permissions;
mod placing;
mod real;
mod running;
mod showing;
mod support;
mod terminal;
mod trust;
mod unasked;
mod vendors;
