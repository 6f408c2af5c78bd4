//! Integration tests of the engine over a real store and a model in this process.

mod checks;
mod drain;
mod fakes;
mod peer;
mod support;
