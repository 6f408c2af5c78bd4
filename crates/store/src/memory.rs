//! A store in memory, for tests and the simulation: the same rules over plain tables, nothing survives it.
//!
//! [`Database`] is the database itself, synchronous: a simulation puts its own network in front of it.
//! [`MemoryStore`] is the [`Store`](crate::Store) of one process over it, without any network between.

mod database;
mod hooks;
mod queries;
mod rows;
mod store;
mod tables;

pub use database::{Copied, Database, Observer, Suspects};
pub use hooks::{BatchKey, HookBook};
pub use store::MemoryStore;
