// Integration tests of the provider crate: recorded streams, own streams, errors, requests, real sockets.
// Helpers outside of `#[test]` functions may panic too: that is how a test fails.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[cfg(feature = "bedrock")]
mod bedrock;
mod cases;
mod chat_streams;
mod corpus;
mod dialects;
mod encode;
mod errors;
mod features;
mod fold;
mod found;
mod gemini;
mod gemini_list;
mod gemini_requests;
mod http;
mod invariants;
mod limits;
mod network;
mod requests;
mod roundtrip;
mod session;
mod settings;
mod streams;
mod wire;
