//! What of a node could still do something: runs of sessions, and calls, also those that were given up because they
//! block their thread, or whose processes are still being ended. Only when nothing is left may a node say that it has
//! stopped.

use crate::environment::Environment;
use std::time::Duration;
use tokio::sync::watch;

/// Counts what lives. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Living(watch::Sender<usize>);

impl Living {
    /// Something begins; it lives until the guard is dropped.
    pub fn begin(&self) -> Alive {
        self.0.send_modify(|count| *count += 1);
        Alive(self.0.clone())
    }

    /// Does something live?
    pub fn some(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until nothing lives.
    pub async fn over(&self) {
        let mut count = self.0.subscribe();
        // The sender lives in self.
        let _ = count.wait_for(|count| *count == 0).await;
    }

    /// Waits so long until nothing lives; false when something still does.
    pub async fn gone(&self, env: &dyn Environment, within: Duration) -> bool {
        let mut count = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender lives in self.
            gone = count.wait_for(|count| *count == 0) => gone.is_ok(),
            () = env.sleep(within) => false,
        }
    }
}

/// Counts one out however it ends.
#[derive(Debug)]
pub(crate) struct Alive(watch::Sender<usize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
