//! Floor 2: Tenure as a library. Runs sessions of a [store](tenure_store) durably, under a fenced lease.
//!
//! ```text
//!   Client (anybody)                     Engine (a node)
//!     create, admit, interrupt,            reconciler ──▶ own(session): acquire ─▶ recover ─▶ drain
//!     answer, follow                                                              │
//!          │                                   hub ◀── live deltas ──────────── runner: promote, step,
//!          ▼                                                                    attempt, tools, compact
//!        store: one log per session, claims, inbox  ◀──── fenced appends (Writer) ─┘
//! ```
//!
//! No HTTP and no terminal here. To embed Tenure: open a store, build [`Models`] and a
//! [`ToolSet`](tenure_tools::ToolSet), [`Engine::start`], [`Client::admit`], [`Engine::run`],
//! [`Client::follow`]. A program whose tools start processes calls
//! [`tenure_tools::guardian::maybe_run`] first in `main`.

/// Is the rule broken on purpose? Always no outside test builds.
#[cfg(feature = "testing")]
macro_rules! broken {
    ($config:expr, $rule:ident) => {
        $config
            .mutations
            .on(tenure_store::mutation::Mutation::$rule)
    };
}
#[cfg(not(feature = "testing"))]
macro_rules! broken {
    ($config:expr, $rule:ident) => {{
        let _ = &$config;
        false
    }};
}

#[cfg(test)]
extern crate self as tenure_engine;

#[cfg(test)]
#[path = "../tests/it/checks.rs"]
mod checks;
#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../tests/it/fakes.rs"]
mod fakes;
#[cfg(test)]
#[path = "../tests/it/stepping.rs"]
mod stepping;
#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../tests/it/stores.rs"]
mod stores;
#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../tests/it/support.rs"]
mod support;
#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../tests/it/weather.rs"]
mod weather;

mod client;
mod complaint;
mod config;
mod engine;
pub mod environment;
mod error;
mod hub;
pub mod load;
pub mod media;
mod models;
mod node;
mod outcome;
mod owner;
mod peer;
pub mod prompt;
mod recover;
mod runner;
mod writer;

pub use client::{Admission, Client, Followed, NewSession, Prompt, Shown};
pub use config::{Approvals, ConfigError, EngineConfig, Isolate, Scope};
pub use engine::Engine;
pub use engine::rank::{has_taker, takes};
pub use environment::{Environment, SystemEnvironment};
pub use error::EngineError;
pub use hub::tracker::LiveTracker;
pub use hub::{Hub, LiveItem};
pub use models::{Model, Models};
pub use outcome::{Outcome, OutcomeTracker};
pub use owner::Owned;
pub use peer::{
    LiveFeed, NodeHealth, NodeService, Peer, Peers, Relayed, UnixPeers, Unreached, Woken,
};

/// The front page's example, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
