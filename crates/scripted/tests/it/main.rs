//! Integration tests of the scripted model: validators against rules and corpus, the server over real sockets.

mod corpus;
mod rules;
