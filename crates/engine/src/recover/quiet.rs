//! When a new owner may spawn (R10): once everything its lost predecessor started is over, by proof or by time. The
//! log moves on meanwhile.

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

    /// After the loss of an owner that had started `left`: ends what runs on this machine, with its identity
    /// verified, and waits for the rest to be over by itself. With nothing left, for as long as the store says.
    pub fn after(
        env: Arc<dyn Environment>,
        session: &SessionId,
        tenure: &Tenure,
        lease: Duration,
        left: Vec<EffectRow>,
    ) -> Self {
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
        let (told, stop, task_env) = (clear.clone(), over.clone(), env.clone());
        env.spawn(Box::pin(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = wait.until_quiet(task_env.as_ref(), left) => told.cancel(),
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
    async fn until_quiet(&self, env: &dyn Environment, mut left: Vec<EffectRow>) {
        loop {
            let mut open = Vec::new();
            let mut until = if self.unsure { self.by_lease_ms } else { 0 };
            for row in left {
                if let Some(by) = self.unproven(env, &row).await {
                    until = until.max(by);
                    open.push(row);
                }
            }
            left = open;
            let now = env.boot_ms();
            if now >= until {
                return;
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
            Some(process) if env.is_local(process) => {
                let ended = env.end_leftover(process.clone()).await;
                let error = ended.err()?;
                tracing::warn!(%session, call = %row.call, %error, "leftover tool process not ended");
                Some(self.by_guardian_ms)
            }
            // On another machine, or inside the lost process: its lease ends it.
            _ => Some(self.by_lease_ms),
        }
    }
}
