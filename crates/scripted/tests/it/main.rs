//! Integration tests of the scripted model: validators against rules and corpus, the server over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed expectation is a failed test"
)]

mod arbitrary;
mod bedrock;
mod chat_dialects;
mod client;
mod corpus;
mod faults;
mod format;
mod gemini;
mod good;
mod observe;
mod program;
mod rules;
mod selection;
mod streams;
