//! Tests of the pure machines from outside: whole turns, properties, and the public fault cases they answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod cases;
mod checkpoint;
mod compaction;
mod history;
mod journal;
mod publisher;
mod settle;
mod turns;
mod violations;
