//! Real services for tests: PostgreSQL with standbys, a pooler, a fault proxy, a shifted clock, signals.
//!
//! Everything here blocks and may be called from synchronous and asynchronous tests alike. Nothing it starts survives
//! the test process, not even when that process is killed: see [`leash`].
//!
//! ```no_run
//! # fn main() -> Result<(), tenure_testbed::Error> {
//! let server = tenure_testbed::postgres_or_skip!(Ok(()));
//! let database = server.database()?;
//! let proxy = tenure_testbed::proxy::Proxy::before_postgres(server.address()?)?;
//! println!("connect to {}", proxy.url(database.url()));
//! # Ok(())
//! # }
//! ```
#![cfg(unix)]

pub mod account;
pub mod error;
pub mod faketime;
pub mod leash;
pub mod pgbouncer;
pub mod postgres;
pub mod proxy;
pub mod signals;
pub mod wait;

pub use error::Error;
