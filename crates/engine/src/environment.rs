//! Everything the engine takes from outside: time, ids, randomness, waiting, spawning, left-over processes.
//! One trait, so that a simulation can run the production engine under its own.

use futures::future::BoxFuture;
use std::time::Duration;
use tenure_core::facts::{Facts, IdSource};
use tenure_store::ProcessId;
use tenure_tools::guardian;

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

    /// Runs work that blocks its thread where it holds up nobody. Dropping the future does not stop work that
    /// has begun.
    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;

    /// Ends what a lost owner's tool left running on this machine, with its identity verified (R10). The error
    /// says why that could not be proven.
    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>>;

    /// Did the process run on this machine, since it was last started? Of any other nothing can be proven here.
    fn is_local(&self, process: &ProcessId) -> bool {
        let _ = process;
        true
    }

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

/// What `work` gives; `None` when it panicked.
pub(crate) async fn off_thread<T: Send + 'static>(
    env: &dyn Environment,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let work = Box::new(move || {
        // Nobody waits for it any more: then nobody needs it.
        let _ = sender.send(work());
    });
    env.blocking(work).await;
    receiver.await.ok()
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
        guardian::since_boot().as_millis() as u64
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

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Err(error) = tokio::task::spawn_blocking(work).await {
                tracing::error!(%error, "blocking work failed");
            }
        })
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        let env = *self;
        Box::pin(async move {
            let pid = process.pid;
            let look = move || guardian::kill_leftover(pid, process.pid_start, &process.boot_id);
            match off_thread(&env, look).await {
                Some(Ok(found)) => {
                    tracing::info!(pid, ?found, "looked for a leftover tool process");
                    Ok(())
                }
                Some(Err(error)) => Err(error.to_string()),
                None => Err("looking for it failed".to_owned()),
            }
        })
    }

    fn is_local(&self, process: &ProcessId) -> bool {
        guardian::boot_id().is_ok_and(|own| own == process.boot_id)
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}
