//! Tells whoever follows a session, once for each reason, that it waits for a node that can run it.

use std::time::Duration;
use tenure_store::{SessionRow, SessionState};
use tokio::time::{Interval, MissedTickBehavior};

/// How often a session is looked at while nothing of it is seen.
const LOOK: Duration = Duration::from_secs(2);

/// What was told so far.
pub(super) struct Unserved {
    looks: Interval,
    told: Option<String>,
}

impl Unserved {
    /// Nothing told yet; the first look is due at once.
    pub(super) fn new() -> Self {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { looks, told: None }
    }

    /// Resolves when it is time to look. Cancellation safe.
    pub(super) async fn due(&mut self) {
        self.looks.tick().await;
    }

    /// Something happened in the session: somebody runs it.
    pub(super) fn moved(&mut self) {
        self.looks.reset();
    }

    /// Why the session waits, by its row, when that was not told yet.
    pub(super) fn news(&mut self, row: Option<SessionRow>) -> Option<String> {
        let reason = row.and_then(|row| match row.state {
            SessionState::Unplaceable { reason } => Some(reason),
            _ => None,
        });
        let news = reason.clone().filter(|_| reason != self.told);
        self.told = reason;
        news
    }
}
