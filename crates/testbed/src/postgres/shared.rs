//! The one server that all tests of a run share.

use std::borrow::Borrow;
use std::sync::OnceLock;

use super::cluster::Cluster;
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
        let cluster = Cluster::lending()?;
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
pub(crate) fn or_skip<T, E: Borrow<Error>>(needed: Result<T, E>) -> Option<T> {
    match decide(needed, std::env::var_os("CI").is_some()) {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

fn decide<T, E: Borrow<Error>>(needed: Result<T, E>, all: bool) -> Result<Option<T>, String> {
    match needed {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.borrow().is_missing() && !all => {
            eprintln!("skipped: {}", error.borrow());
            Ok(None)
        }
        Err(error) => Err(error.borrow().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_installed_is_skipped_unless_everything_is_to_be_tested() {
        let missing = || {
            Err::<(), _>(Error::Missing {
                program: "PostgreSQL",
                install: "apt-get install postgresql",
            })
        };
        assert_eq!(decide(missing(), false), Ok(None));
        let failure = decide(missing(), true).unwrap_err();
        assert!(failure.contains("apt-get install postgresql"), "{failure}");
        let broken = Err::<(), _>(Error::Wrong("broken".into()));
        assert_eq!(decide(broken, false).unwrap_err(), "broken");
        assert_eq!(decide(Ok::<_, Error>(7), true), Ok(Some(7)));
    }
}
