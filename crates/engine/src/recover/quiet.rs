//! When a new owner may spawn (R10): once everything its lost predecessor started is over, by proof or by time. The
//! log moves on meanwhile.

use crate::engine::{Shared, leftovers};
use crate::environment::Environment;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_store::{EffectRow, Tenure};
use tokio_util::sync::{CancellationToken, DropGuard};

/// What is waited beyond a lease's end before anything is spawned where a group may still live.
pub(crate) const LOCK_DELAY: Duration = Duration::from_secs(1);

/// May calls be spawned? Dropping it ends the task that finds out.
#[derive(Debug)]
pub(crate) struct Quiet {
    clear: CancellationToken,
    _over: Option<DropGuard>,
}

impl Quiet {
    /// Nothing to wait for.
    pub fn clear() -> Self {
        let clear = CancellationToken::new();
        clear.cancel();
        Self { clear, _over: None }
    }

    /// Resolves when calls may be spawned.
    pub fn token(&self) -> CancellationToken {
        self.clear.clone()
    }

    /// After an owner that started what the tenure says is left: ends what runs on this machine, with its identity
    /// verified, and waits for the rest to be over by itself. With nothing left, for as long as the store says. The
    /// rows of what is known to be over are removed then.
    pub fn after(shared: &Arc<Shared>, session: &SessionId, tenure: &Tenure) -> Self {
        let (env, lease) = (shared.config.env.clone(), shared.config.lease);
        let left = tenure.left.clone();
        // Nothing is left to prove by: then only time does.
        let unsure = left.is_empty();
        let clear = CancellationToken::new();
        let over = CancellationToken::new();
        let now = env.boot_ms();
        let wait = Wait {
            session: session.clone(),
            by_lease_ms: now + tenure.quiet_ms,
            by_guardian_ms: now + tenure.quiet_ms.max((lease + LOCK_DELAY).as_millis() as u64),
            is_gone: tenure.quiet_ms == 0,
            unsure,
        };
        let (told, stop, task) = (clear.clone(), over.clone(), shared.clone());
        env.spawn(Box::pin(async move {
            let gone = tokio::select! {
                biased;
                // Tenure is over, and what it left is not.
                () = stop.cancelled() => return task.left.notify_one(),
                gone = wait.until_quiet(task.config.env.as_ref(), left) => gone,
            };
            told.cancel();
            for row in &gone {
                leftovers::gone(task.store.as_ref(), &wait.session, row).await;
            }
        }));
        Self {
            clear,
            _over: Some(over.drop_guard()),
        }
    }
}

struct Wait {
    session: SessionId,
    /// When a lost owner elsewhere has ended everything itself.
    by_lease_ms: u64,
    /// When the guardian of a group on this machine has.
    by_guardian_ms: u64,
    /// The owner's process is known to be gone: what ran inside it is over.
    is_gone: bool,
    unsure: bool,
}

impl Wait {
    /// Gives the rows of what is over then. What a guardian on another machine watched is over by its lease; its row
    /// stays for a node of that machine, should the guardian have been stopped.
    async fn until_quiet(&self, env: &dyn Environment, mut left: Vec<EffectRow>) -> Vec<EffectRow> {
        let mut gone = Vec::new();
        loop {
            let mut open = Vec::new();
            let mut until = if self.unsure { self.by_lease_ms } else { 0 };
            for row in left {
                match self.unproven(env, &row).await {
                    Some(by) => {
                        until = until.max(by);
                        open.push(row);
                    }
                    None => gone.push(row),
                }
            }
            left = open;
            let now = env.boot_ms();
            if now >= until {
                gone.extend(left.into_iter().filter(|row| row.process.is_none()));
                return gone;
            }
            let rest = Duration::from_millis(until - now);
            env.sleep(rest.min(LOCK_DELAY)).await;
        }
    }

    /// Until when the call's group may live, when its end cannot be proven.
    async fn unproven(&self, env: &dyn Environment, row: &EffectRow) -> Option<u64> {
        let session = &self.session;
        match &row.process {
            None if self.is_gone => None,
            // On another machine, or inside the lost process: its lease ends it.
            _ => match leftovers::end(env, row).await {
                None => Some(self.by_lease_ms),
                Some(Ok(())) => None,
                Some(Err(error)) => {
                    tracing::warn!(%session, call = %row.call, %error, "leftover tool process not ended");
                    Some(self.by_guardian_ms)
                }
            },
        }
    }
}
