//! Floor 1: the event log and the claims, over SQLite and PostgreSQL.
//!
//! This crate knows events, seqs, fences and claims; it knows nothing of providers or tools. Read
//! [`api`] first: it is the contract. [`sqlite`] is the backend, [`follow`](mod@follow) the gapless reader
//! built on the contract alone, `conformance` (feature `testing`) the suite every backend must pass.

/// Is the rule broken on purpose? Always no outside test builds.
#[cfg(feature = "testing")]
macro_rules! broken {
    ($switches:expr, $rule:ident) => {
        $switches.on(crate::mutation::Mutation::$rule)
    };
}
#[cfg(not(feature = "testing"))]
macro_rules! broken {
    ($switches:expr, $rule:ident) => {{
        let _ = &$switches;
        false
    }};
}

pub mod api;
pub mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod error;
pub mod follow;
mod hooks;
mod job;
mod lanes;
mod machine;
#[cfg(feature = "testing")]
pub mod memory;
#[cfg(feature = "testing")]
pub mod mutation;
mod opening;
pub mod postgres;
pub mod sqlite;
pub mod status;

pub use api::*;
pub use follow::{FollowItem, follow};
pub use opening::Opening;
pub use sqlite::{OpenOptions, SqliteStore, StoreClock, SystemClock};

#[cfg(feature = "testing")]
pub(crate) type Switches = mutation::Mutations;
/// No rule can be broken here.
#[cfg(not(feature = "testing"))]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Switches;
