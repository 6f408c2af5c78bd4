//! A real PostgreSQL for tests: one server per run, one database per test, and servers of one's own to be mistreated.
//!
//! Most tests want [`postgres_or_skip!`](crate::postgres_or_skip) and [`Server::database`]. A test that stops, pauses,
//! kills or fails over a server starts its own [`Cluster`].

mod binaries;
mod cluster;
mod database;
mod link;
mod shared;
mod spare;
mod standby;
mod tls;

pub use binaries::{Binaries, INSTALL};
pub use cluster::{Cluster, Options, Stop, Tls};
pub use database::{Database, Server};
pub(crate) use shared::or_skip;
pub use shared::{SERVER, shared, shared_or_skip};
pub use standby::Standby;

/// The shared server, or the end of the test where there is none.
///
/// Without PostgreSQL's programs the test says how to install them and passes; where `CI` is set it fails. Takes what
/// the test is to return when it is skipped, `()` if absent.
#[macro_export]
macro_rules! postgres_or_skip {
    () => {
        $crate::postgres_or_skip!(())
    };
    ($skipped:expr) => {
        match $crate::postgres::shared_or_skip() {
            Some(server) => server,
            None => return $skipped,
        }
    };
}
