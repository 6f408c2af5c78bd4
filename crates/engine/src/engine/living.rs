//! What of a node could still do something: runs of sessions, and calls, also those that were given up because they
//! block their thread. Only when nothing is left may a node say that it has stopped.

use crate::environment::Environment;
use std::time::Duration;
use tokio::sync::watch;

/// How long what was told to stop may take before the node goes on without saying that it has.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);

/// Counts what lives. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Living(watch::Sender<usize>);

impl Living {
    /// Something begins; it lives until the guard is dropped.
    pub fn begin(&self) -> Alive {
        self.0.send_modify(|count| *count += 1);
        Alive(self.0.clone())
    }

    /// Waits for a while until nothing lives; false when something still does.
    pub async fn gone(&self, env: &dyn Environment) -> bool {
        let mut count = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender lives in self.
            gone = count.wait_for(|count| *count == 0) => gone.is_ok(),
            () = env.sleep(STOPPED_WITHIN) => false,
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
