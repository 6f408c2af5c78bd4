//! Waiting for a condition that nobody announces: looked at often, with a limit that only a broken test reaches.

use std::time::{Duration, Instant};

use crate::Error;

/// Long enough for a slow machine under load; a test that passes never waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// Looks until `seen` gives something, and hands it over. Blocks the thread.
///
/// # Errors
/// [`Error::Late`] after `limit`; whatever `seen` itself fails with, at once.
pub fn until<T>(
    what: &str,
    limit: Duration,
    mut seen: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let started = Instant::now();
    loop {
        if let Some(value) = seen()? {
            return Ok(value);
        }
        if started.elapsed() >= limit {
            return Err(Error::Late {
                what: what.to_owned(),
                waited: limit,
                detail: String::new(),
            });
        }
        std::thread::sleep(LOOK);
    }
}

/// Like [`until`], for a plain condition.
///
/// # Errors
/// [`Error::Late`] after `limit`.
pub fn until_true(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> bool,
) -> Result<(), Error> {
    until(what, limit, || Ok(holds().then_some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_comes_true_is_named() {
        let error = until_true("the moon", Duration::from_millis(5), || false).unwrap_err();
        assert_eq!(error.to_string(), "waited 5ms for the moon, in vain");
    }

    #[test]
    fn the_value_seen_is_handed_over_and_failures_end_the_wait() {
        let mut looks = 0;
        let value = until("three", PATIENCE, || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(value.unwrap(), 3);
        let failed: Result<(), Error> =
            until("nothing", PATIENCE, || Err(Error::Wrong("broken".into())));
        assert_eq!(failed.unwrap_err().to_string(), "broken");
    }
}
