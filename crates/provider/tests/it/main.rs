// Integration tests of the provider crate: recorded streams, own streams, errors, requests, real sockets.
#![allow(missing_docs)]

mod cases;
mod corpus;
mod encode;
mod errors;
mod fold;
mod http;
mod settings;
mod streams;
mod wire;
