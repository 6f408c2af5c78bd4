//! Runs a child to its end and reads what the kernel counted for it and for every process it waited for.

use anyhow::{Context, Result, bail};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What one process tree cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// From before the start to after the end.
    pub wall: Duration,
    /// User and system time of the child and of all it waited for.
    pub cpu: Duration,
    /// The largest resident set of any one of them, in bytes.
    pub peak: u64,
    /// When it was started, on the monotonic clock, in nanoseconds.
    pub started_ns: u64,
}

/// Runs the command with its output thrown away; it must succeed.
pub(super) fn measure(command: &mut Command) -> Result<Measured> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started_ns = now_ns()?;
    let began = Instant::now();
    let child = command
        .spawn()
        .context("the measured program cannot be started")?;
    let (code, usage) = wait(child)?;
    let wall = began.elapsed();
    if code != 0 {
        bail!("the measured program ended with {code}: {command:?}");
    }
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.unsigned_abs())
            + Duration::from_micros(value.tv_usec.unsigned_abs())
    };
    Ok(Measured {
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak: usage.ru_maxrss.unsigned_abs() * 1024,
        started_ns,
    })
}

/// Waits for the child; its exit status as the shell would say it, and its usage.
#[allow(
    unsafe_code,
    reason = "neither std nor nix gives the usage of one child"
)]
fn wait(child: Child) -> Result<(i32, libc::rusage)> {
    let pid = i32::try_from(child.id()).context("a process id fits")?;
    let mut status = 0;
    // SAFETY: all-zero bytes are a valid rusage, which has integer fields only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals of the right types, and nobody else waits for this child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    if waited != pid {
        return Err(std::io::Error::last_os_error()).context("waiting for the measured program");
    }
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    Ok((code, usage))
}

/// The monotonic clock, the same in every process.
pub(super) fn now_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec().unsigned_abs() * 1_000_000_000 + now.tv_nsec().unsigned_abs())
}
