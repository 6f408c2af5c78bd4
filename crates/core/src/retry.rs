//! Whether and when a failed attempt is made again.

use crate::error::{ErrorClass, ProviderError, RESPONSE_TOO_LONG};

/// Limits of retrying. The defaults are design §7's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts after the first.
    pub max_retries: u32,
    /// The first wait, in milliseconds; doubles each time.
    pub base_ms: u64,
    /// The longest wait of our own, in milliseconds.
    pub cap_ms: u64,
    /// The longest wait a provider may ask for; beyond it we give up and say when to come back.
    pub max_retry_after_ms: u64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 4,
            base_ms: 2_000,
            cap_ms: 30_000,
            max_retry_after_ms: 120_000,
        }
    }
}

/// The verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retry {
    /// Wait so many milliseconds, then try again.
    After(u64),
    /// Do not; the text says why when there is something to add to the error.
    GiveUp(Option<String>),
}

impl RetryPolicy {
    /// Decides after the `failed`-th attempt in a row (from 1). `random` supplies the jitter of ±20 %.
    pub fn decide(&self, error: &ProviderError, failed: u32, random: u64) -> Retry {
        let asked = error.retry_after_ms;
        if error.class == ErrorClass::Quota {
            return Retry::GiveUp(asked.map(available_again));
        }
        if !error.class.retryable() || error.code.as_deref() == Some(RESPONSE_TOO_LONG) {
            return Retry::GiveUp(None);
        }
        if failed > self.max_retries {
            return Retry::GiveUp(Some(format!("gave up after {failed} attempts")));
        }
        if let Some(ms) = asked {
            return if ms > self.max_retry_after_ms {
                Retry::GiveUp(Some(available_again(ms)))
            } else {
                Retry::After(ms)
            };
        }
        let exponent = failed.saturating_sub(1).min(20);
        let wait = self.base_ms.saturating_mul(1 << exponent).min(self.cap_ms);
        let jittered = wait - wait / 5 + random % (wait / 5 * 2 + 1);
        Retry::After(jittered.min(self.cap_ms))
    }
}

fn available_again(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("available again in {s} s"),
        (0, m, s) => format!("available again in {m} min {s} s"),
        (h, m, _) => format!("available again in {h} h {m} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(class: ErrorClass, retry_after_ms: Option<u64>) -> ProviderError {
        ProviderError {
            retry_after_ms,
            ..ProviderError::new(class, "x")
        }
    }

    #[test]
    fn bc_s_041_waits_are_capped_and_bounded() {
        let policy = RetryPolicy::default();
        let e = error(ErrorClass::Server, None);
        let mut waits = 0;
        for failed in 1..=20 {
            match policy.decide(&e, failed, u64::MAX / u64::from(failed)) {
                Retry::After(ms) => {
                    assert!(ms <= policy.cap_ms);
                    waits += 1;
                }
                Retry::GiveUp(_) => assert!(failed > 4),
            }
        }
        assert_eq!(waits, 4);
    }

    #[test]
    fn the_first_wait_is_within_a_fifth_of_the_base() {
        let policy = RetryPolicy::default();
        for random in [0, 1, 799, 800, u64::MAX] {
            let Retry::After(ms) = policy.decide(&error(ErrorClass::Overloaded, None), 1, random)
            else {
                panic!("retryable")
            };
            assert!((1_600..=2_400).contains(&ms), "{ms}");
        }
    }

    #[test]
    fn an_endless_response_is_not_asked_for_again() {
        let mut endless = error(ErrorClass::Protocol, None);
        let policy = RetryPolicy::default();
        assert!(matches!(policy.decide(&endless, 1, 7), Retry::After(_)));
        endless.code = Some(RESPONSE_TOO_LONG.to_owned());
        assert_eq!(policy.decide(&endless, 1, 7), Retry::GiveUp(None));
    }

    #[test]
    fn bc_s_042_the_providers_wait_is_honoured_unless_unreasonable() {
        let policy = RetryPolicy::default();
        let limited = |ms| policy.decide(&error(ErrorClass::RateLimit, Some(ms)), 1, 7);
        assert_eq!(limited(1_500), Retry::After(1_500));
        assert_eq!(
            limited(999_999_000),
            Retry::GiveUp(Some("available again in 277 h 46 min".to_owned()))
        );
    }

    #[test]
    fn bc_s_043_a_used_up_quota_is_not_retried_and_says_when() {
        let policy = RetryPolicy::default();
        assert_eq!(
            policy.decide(&error(ErrorClass::Quota, Some(3_600_000)), 1, 0),
            Retry::GiveUp(Some("available again in 1 h 0 min".to_owned()))
        );
        assert_eq!(
            policy.decide(&error(ErrorClass::Auth, None), 1, 0),
            Retry::GiveUp(None)
        );
    }
}
