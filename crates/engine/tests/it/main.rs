//! Integration tests of the engine over a real store and a model in this process.

mod checks;
mod drain;
mod failures;
mod fakes;
mod inbox;
mod interrupts;
mod peer;
mod recovery;
mod support;
