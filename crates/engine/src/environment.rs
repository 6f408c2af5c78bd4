//! Everything the engine takes from outside: time, ids, randomness, waiting, spawning. One trait, so that
//! a simulation can run the production engine under its own.

use futures::future::BoxFuture;
use std::time::Duration;
use tenure_core::facts::{Facts, IdSource};

/// The world as the engine sees it.
pub trait Environment: IdSource + Send + Sync + 'static {
    /// Wall-clock milliseconds since 1970 UTC; for people, never for order or leases.
    fn now_ms(&self) -> i64;

    /// Boot-time clock in milliseconds: goes on during suspend. Only durations of it mean something.
    fn boot_ms(&self) -> u64;

    /// A random number, for jitter.
    fn random(&self) -> u64;

    /// Waits. Dropping the future stops waiting.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Runs a future to its end in the background.
    fn spawn(&self, future: BoxFuture<'static, ()>);

    /// This environment as the id source of [`Facts`].
    fn as_ids(&self) -> &dyn IdSource;
}

/// Time and ids for one decision.
pub(crate) fn facts(env: &dyn Environment) -> Facts<'_> {
    Facts {
        now_ms: env.now_ms(),
        ids: env.as_ids(),
    }
}

/// The operating system's clock and randomness on a tokio runtime.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEnvironment;

impl IdSource for SystemEnvironment {
    fn next_bits(&self) -> u128 {
        uuid::Uuid::now_v7().as_u128()
    }
}

impl Environment for SystemEnvironment {
    fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    fn boot_ms(&self) -> u64 {
        tenure_tools::guardian::since_boot().as_millis() as u64
    }

    fn random(&self) -> u64 {
        uuid::Uuid::new_v4().as_u64_pair().0
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        tokio::spawn(future);
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}
