//! Deterministic simulation: the production engine and store rules on many nodes, under one seeded scheduler.
//!
//! ```text
//!   plan (from the seed) ─▶ world: machines ─▶ processes: Engine, RemoteStore ─▶ network ─▶ Database
//!        │                    clients, model, tools                               │
//!        └─ faults ───────────▶ crash, pause, cut, lost answers, drains           ▼
//!                                                            exported logs, ledger, answers ─▶ judge
//! ```
//!
//! Time, ids, order of tasks, network and model all come from the seed: the same seed gives the same log, byte for
//! byte. The judge reads what an export holds, what clients were told, and what the world saw happen; it shares
//! nothing with the engine.

pub mod clients;
pub mod environment;
pub mod executor;
pub mod judge;
pub mod ledger;
pub mod mutants;
pub mod network;
pub mod peers;
pub mod plan;
pub mod provider;
pub mod registry;
pub mod remote;
pub mod run;
pub mod screen;
pub mod shrink;
pub mod stranded;
pub mod takings;
pub mod tools;
pub mod world;

pub use plan::{Plan, Scenario};
pub use run::{Outcome, run};
