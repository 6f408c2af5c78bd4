//! Several real `tenure node` processes on one store, a scripted model before them, and a checker behind them.
//!
//! A [`Fleet`] starts the nodes, each with its own configuration and, before PostgreSQL, its own fault proxy. The test
//! creates sessions, admits prompts, kills, stops, cuts off and restarts nodes, and then asks [`Fleet::judge`] whether
//! any promise was broken. Clients of the harness go straight to the store, past the proxies.

mod fleet;
mod gaps;
mod ground;
mod judge;
mod node;
mod watch;
pub mod work;

pub use fleet::{Fleet, Lease, Setup};
pub use gaps::Gaps;
pub use ground::Ground;
pub use judge::Overlaps;
pub use node::Node;
pub use watch::Watch;
