//! The two clocks of a store: one for durations that also runs while the machine sleeps, one for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// The clocks, so that tests can hold them.
pub trait StoreClock: Send + Sync + 'static {
    /// Milliseconds since boot, suspended time included: the only clock leases are judged by (R13).
    fn boottime_ms(&self) -> i64;
    /// Wall-clock milliseconds since 1970 UTC, for people.
    fn wall_ms(&self) -> i64;
    /// Which boot `boottime_ms` counts from.
    fn boot_id(&self) -> String;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

#[cfg(any(target_os = "linux", target_os = "android"))]
const DURATION_CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const DURATION_CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_MONOTONIC;

impl StoreClock for SystemClock {
    fn boottime_ms(&self) -> i64 {
        nix::time::clock_gettime(DURATION_CLOCK)
            .map(|t| t.tv_sec().saturating_mul(1000) + t.tv_nsec() / 1_000_000)
            .unwrap_or(0)
    }

    fn wall_ms(&self) -> i64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(|d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
            .unwrap_or(0)
    }

    fn boot_id(&self) -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| text.trim().to_owned())
            .unwrap_or_else(|_| "unknown-boot".to_owned())
    }
}
