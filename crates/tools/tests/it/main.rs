//! Integration tests of the tools: real files, real processes, real signals.

mod bash;
mod edit;
mod guardian;
mod output;
mod paths;
mod permission;
mod read;
mod search;
mod set;
mod support;
mod write;
