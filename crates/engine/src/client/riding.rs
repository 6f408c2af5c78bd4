//! Riding out a store that is away for a moment or loses the answer to a commit: the same write again, under the same
//! id, of which the store keeps one.

use crate::environment::Environment;
use crate::error::EngineError;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_store::AppendError;

/// How long a client tries unless it is told otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The first wait; each is twice the one before, up to sixteen times this.
const FIRST: Duration = Duration::from_millis(25);

/// One request of a client.
pub(super) struct Riding<'a> {
    pub env: &'a dyn Environment,
    /// From the first failure on; no try begins after that.
    pub patience: Duration,
    pub session: &'a SessionId,
    /// What the caller repeats the request with.
    pub again: Option<&'a str>,
}

impl Riding<'_> {
    /// Writes until the store says what became of it, or patience ends. Then the error says whether something may
    /// have been written.
    pub async fn write<T, F: Future<Output = Result<T, AppendError>>>(
        &self,
        mut write: impl FnMut() -> F,
    ) -> Result<T, EngineError> {
        let mut until = None;
        // Once an answer was lost, a later refusal to try says nothing about the first.
        let mut lost = false;
        let mut tries = 0;
        loop {
            let error = match write().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match error {
                AppendError::Unknown { .. } => lost = true,
                AppendError::Unavailable { .. } => {}
                other => return Err(other.into()),
            }
            let now = self.env.boot_ms();
            let patience = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
            let until = *until.get_or_insert_with(|| now.saturating_add(patience));
            if now >= until {
                return Err(self.given_up(error, lost));
            }
            tracing::debug!(session = %self.session, %error, "trying again");
            let wait = FIRST.saturating_mul(1 << tries.min(4));
            tries += 1;
            let left = Duration::from_millis(until - now);
            self.env.sleep(wait.min(left)).await;
        }
    }

    fn given_up(&self, error: AppendError, lost: bool) -> EngineError {
        if !lost {
            return error.into();
        }
        let reason = match error {
            AppendError::Unknown { reason, .. } | AppendError::Unavailable { reason } => reason,
            other => other.to_string(),
        };
        EngineError::Unconfirmed {
            session: self.session.clone(),
            again: self.again.map(ToOwned::to_owned),
            reason,
        }
    }
}
