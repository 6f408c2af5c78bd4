//! The simulation's tests: properties of whole sessions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod checker;
mod cluster;
mod long;
mod p3;
mod real;
mod simulation;
mod switching;
