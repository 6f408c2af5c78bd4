//! The boot-time clock: it goes on while the machine sleeps and is the same for all processes of one boot.

use std::time::Duration;

#[cfg(target_os = "linux")]
use nix::time::{ClockId, clock_gettime};

/// Time since boot, including time asleep.
#[must_use]
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    {
        clock_gettime(ClockId::CLOCK_BOOTTIME)
            .map(Duration::from)
            .unwrap_or_default()
    }
    #[cfg(not(target_os = "linux"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// Time spent asleep since boot: how far the boot-time clock is ahead of the monotonic one.
#[cfg(target_os = "linux")]
pub(super) fn asleep() -> Duration {
    let awake = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(Duration::from)
        .unwrap_or_default();
    since_boot().saturating_sub(awake)
}
