//! Integration tests of the engine over a real store and a model in this process.

mod checks;
mod drain;
mod fakes;
mod interrupts;
mod peer;
mod recovery;
mod support;
