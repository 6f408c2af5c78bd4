//! Runs a child to its end and reads what the kernel counted for it and for every process it waited for.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The hidden argument that makes the benchmark program measure the command behind it.
pub const MEASURE: &str = "--measure";

/// What one process tree cost.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Measured {
    /// From before the start to after the end.
    pub wall: Duration,
    /// User and system time of the child and of all it waited for.
    pub cpu: Duration,
    /// The largest resident set of any one of them, in bytes.
    pub peak: u64,
    /// When it was started, on the monotonic clock, in nanoseconds.
    pub started_ns: u64,
    code: i32,
}

/// Runs the command with its output thrown away; it must succeed, else what it said is the error.
///
/// A small process in between starts it: the kernel counts what the parent had in memory as its child's peak.
pub(super) fn measure(command: &Command) -> Result<Measured> {
    let mut between = Command::new(std::env::current_exe()?);
    between
        .arg(MEASURE)
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            between.env(name, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        between.current_dir(folder);
    }
    let output = between.stdin(Stdio::null()).output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let measured: Measured = serde_json::from_slice(&output.stdout).with_context(said)?;
    if measured.code != 0 {
        let program = command.get_program().display();
        bail!("`{program}` ended with {}: {}", measured.code, said());
    }
    Ok(measured)
}

/// The process in between: runs the command and writes what it cost to standard output.
///
/// # Errors
/// The command cannot be started.
pub fn measure_here(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let program = arguments.next().context("which program?")?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let started_ns = now_ns()?;
    let began = Instant::now();
    let child = command
        .spawn()
        .context("the measured program cannot be started")?;
    let (code, usage) = wait(&child)?;
    let wall = began.elapsed();
    let time = |value: libc::timeval| {
        Duration::from_secs(value.tv_sec.unsigned_abs())
            + Duration::from_micros(value.tv_usec.unsigned_abs())
    };
    let measured = Measured {
        wall,
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        peak: usage.ru_maxrss.unsigned_abs() * 1024,
        started_ns,
        code,
    };
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// Waits for the child; its exit status as the shell would say it, and its usage.
#[allow(
    unsafe_code,
    reason = "neither std nor nix gives the usage of one child"
)]
fn wait(child: &Child) -> Result<(i32, libc::rusage)> {
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
