//! Integration tests of the engine over a real store and a model in this process.

mod drain;
mod peer;
mod support;
