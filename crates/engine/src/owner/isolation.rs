//! When a session was last given a process of its own: one that dies at its start is not followed by another at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_core::id::SessionId;

/// Milliseconds until a second process is started for a session that the first one has not taken.
const FIRST_MS: u64 = 10_000;
/// Each wait is twice the one before, up to this.
const MOST_MS: u64 = 300_000;

/// The last start for each session, on the boot-time clock.
#[derive(Debug, Default)]
pub(crate) struct Isolations(Mutex<HashMap<SessionId, Start>>);

#[derive(Debug, Clone, Copy)]
struct Start {
    at_ms: u64,
    wait_ms: u64,
}

impl Start {
    /// So long ago that it says nothing about now.
    fn is_stale(self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.at_ms) >= 2 * MOST_MS
    }
}

impl Isolations {
    fn starts(&self) -> MutexGuard<'_, HashMap<SessionId, Start>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// May a process be started for the session now? If so, this counts as the start.
    pub fn due(&self, session: &SessionId, now_ms: u64) -> bool {
        let mut starts = self.starts();
        starts.retain(|_, start| !start.is_stale(now_ms));
        let wait_ms = match starts.get(session) {
            Some(last) if now_ms.saturating_sub(last.at_ms) < last.wait_ms => return false,
            Some(last) => (last.wait_ms * 2).min(MOST_MS),
            None => FIRST_MS,
        };
        let start = Start {
            at_ms: now_ms,
            wait_ms,
        };
        starts.insert(session.clone(), start);
        true
    }

    /// The session needs no process of its own any more.
    pub fn forget(&self, session: &SessionId) {
        self.starts().remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_five_minutes_and_is_each_sessions_own() {
        let isolations = Isolations::default();
        let (one, two) = (SessionId::from_bits(1), SessionId::from_bits(2));
        let mut now = 5_000;
        assert!(isolations.due(&one, now));
        for wait in [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
            assert!(!isolations.due(&one, now + wait - 1), "{wait}");
            now += wait;
            assert!(isolations.due(&one, now), "{wait}");
        }
        assert!(isolations.due(&two, now) && !isolations.due(&two, now));
        isolations.forget(&one);
        assert!(isolations.due(&one, now));
        assert!(!isolations.due(&one, now + FIRST_MS - 1));
        // Much later it is a new story.
        now += 2 * MOST_MS;
        assert!(isolations.due(&two, now) && isolations.due(&two, now + FIRST_MS));
    }
}
