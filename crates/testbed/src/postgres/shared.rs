//! The one server that all tests of a run share.

use std::sync::OnceLock;

use super::cluster::{Cluster, Options};
use super::database::Server;
use crate::Error;

/// The environment variable that holds the URL of a running server, whose user may create databases.
///
/// `cargo xtask test` starts one server for the whole run and sets it.
pub const SERVER: &str = "TENURE_TEST_PG";

struct Shared {
    server: Server,
    /// Ours, if nobody lends one. Never dropped, as statics are not; its leash ends it with the process.
    _cluster: Option<Cluster>,
}

static SHARED: OnceLock<Result<Shared, Error>> = OnceLock::new();

/// The server named by [`SERVER`], else one of this process, started at the first call.
///
/// # Errors
/// [`Error::Missing`] with Debian's install line where there is neither; others when starting failed.
pub fn shared() -> Result<&'static Server, &'static Error> {
    let shared = SHARED.get_or_init(|| {
        if let Some(url) = std::env::var(SERVER).ok().filter(|url| !url.is_empty()) {
            return Ok(Shared {
                server: Server::at(&url)?,
                _cluster: None,
            });
        }
        let cluster = Cluster::start(&Options::disposable())?.lasting();
        Ok(Shared {
            server: cluster.server().clone(),
            _cluster: Some(cluster),
        })
    });
    shared.as_ref().map(|shared| &shared.server)
}

/// The shared server; nothing, and a line that says why, where PostgreSQL is not installed.
///
/// # Panics
/// PostgreSQL is there and does not start, or is not there and `CI` is set.
pub fn shared_or_skip() -> Option<&'static Server> {
    or_skip(shared())
}

/// What a test needs, or nothing and a line that says why the test is skipped.
///
/// # Panics
/// For any error but [`Error::Missing`]; for that too where `CI` is set: there everything is to be tested.
#[allow(
    clippy::panic,
    reason = "a test that cannot run where it must is a failed test"
)]
pub(crate) fn or_skip<T, E: std::borrow::Borrow<Error>>(needed: Result<T, E>) -> Option<T> {
    let error = match needed {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let error = error.borrow();
    if !error.is_missing() || std::env::var_os("CI").is_some() {
        panic!("{error}");
    }
    eprintln!("skipped: {error}");
    None
}
