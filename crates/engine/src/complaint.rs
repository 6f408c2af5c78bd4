//! A trouble that goes on is said when it begins, now and then while it lasts, and when it is over.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Milliseconds between two lines about the same trouble.
const EVERY_MS: u64 = 10_000;

/// Whether a trouble is to be said, by the boot-time clock.
#[derive(Debug, Default)]
pub(crate) struct Complaint(Mutex<Option<Going>>);

#[derive(Debug, Clone, Copy)]
struct Going {
    since_ms: u64,
    said_ms: u64,
}

impl Complaint {
    fn going(&self) -> MutexGuard<'_, Option<Going>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is there: is it to be said now?
    pub fn again(&self, now_ms: u64) -> bool {
        let mut going = self.going();
        match going.as_mut() {
            Some(going) if now_ms.saturating_sub(going.said_ms) < EVERY_MS => false,
            Some(going) => {
                going.said_ms = now_ms;
                true
            }
            None => {
                *going = Some(Going {
                    since_ms: now_ms,
                    said_ms: now_ms,
                });
                true
            }
        }
    }

    /// It is not there, or no more: how many milliseconds it lasted, told once.
    pub fn over(&self, now_ms: u64) -> Option<u64> {
        let going = self.going().take()?;
        Some(now_ms.saturating_sub(going.since_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_said_at_first_then_every_ten_seconds_and_its_end_once() {
        let complaint = Complaint::default();
        assert_eq!(complaint.over(0), None, "there was none");
        let said: Vec<u64> = (0..=25_000)
            .step_by(500)
            .filter(|now| complaint.again(*now))
            .collect();
        assert_eq!(said, [0, 10_000, 20_000]);
        assert_eq!(complaint.over(25_500), Some(25_500));
        assert_eq!(complaint.over(26_000), None);
        assert!(complaint.again(26_000), "another one");
    }
}
