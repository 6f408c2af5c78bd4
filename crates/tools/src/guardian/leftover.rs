//! Finds and ends what a crash left behind, by identity and never by id alone.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::identity::{all_pids, boot_id, stat};
use super::kill::{Found, descendants, signal};

/// The environment variable that marks everything a guardian started.
pub(super) const MARKER_ENV: &str = "TENURE_GUARDIAN";
/// How long a living guardian may take to end its command by itself.
const GUARDIAN_TIME: Duration = Duration::from_secs(1);
/// How long killed processes may take to disappear.
const KILL_TIME: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(5);

/// Unique for all time: boot, process id and start time.
pub(super) fn marker(boot: &str, pid: u32, start: u64) -> String {
    format!("{boot}:{pid}:{start}")
}

/// What became of a recorded guardian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leftover {
    /// It belongs to an earlier boot: nothing of it can be left.
    OtherBoot,
    /// Nothing was left.
    Gone,
    /// Something was left and has been ended.
    Ended {
        /// How many processes were ended, the guardian not counted; those it ended itself are not counted either.
        swept: usize,
    },
}

/// Why it is not certain that nothing is left.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// Who is who cannot be told.
    #[error("cannot tell processes apart: {0}")]
    Identity(#[from] io::Error),
    /// These did not die: they belong to another user or are stuck in the kernel.
    #[error(
        "processes {pids:?} of an earlier call do not end; end them by hand before running more there"
    )]
    StillAlive {
        /// Their ids.
        pids: Vec<u32>,
    },
}

/// Ends what a guardian of an earlier process left running, and the guardian itself.
///
/// A guardian is the process with this id *and* start time in this boot; another process that was given the same id
/// is never touched. What the guardian started is found below it or, when it was killed itself, by the mark in its
/// environment. Blocks for up to three seconds: call it off the async threads.
///
/// # Errors
/// When processes cannot be identified or do not die.
pub fn kill_leftover(pid: u32, pid_start: u64, boot: &str) -> Result<Leftover, LeftoverError> {
    if boot_id()? != boot {
        return Ok(Leftover::OtherBoot);
    }
    let guardian = Found {
        pid,
        start: pid_start,
    };
    let was_alive = is_alive(guardian);
    let mut swept = 0;
    if was_alive {
        signal(guardian, Signal::SIGTERM);
        signal(guardian, Signal::SIGCONT);
        let until = Instant::now() + GUARDIAN_TIME;
        while is_alive(guardian) && Instant::now() < until {
            std::thread::sleep(STEP);
        }
        if is_alive(guardian) {
            // It does not answer. Its descendants first: they would lose the parent by which they are found.
            for found in descendants(pid) {
                swept += 1;
                signal(found, Signal::SIGKILL);
            }
            signal(guardian, Signal::SIGKILL);
        }
    }
    swept += sweep(&marker(boot, pid, pid_start))?;
    Ok(if was_alive || swept > 0 {
        Leftover::Ended { swept }
    } else {
        Leftover::Gone
    })
}

fn is_alive(found: Found) -> bool {
    stat(found.pid).is_some_and(|s| s.start == found.start && s.state != b'Z' && s.state != b'X')
}

/// Kills all processes that carry a mark; gives how many there were.
fn sweep(mark: &str) -> Result<usize, LeftoverError> {
    let wanted = format!("{MARKER_ENV}={mark}");
    let until = Instant::now() + KILL_TIME;
    let mut seen = std::collections::HashSet::new();
    loop {
        let found: Vec<Found> = marked(wanted.as_bytes());
        if found.is_empty() {
            return Ok(seen.len());
        }
        if Instant::now() > until {
            return Err(LeftoverError::StillAlive {
                pids: found.iter().map(|f| f.pid).collect(),
            });
        }
        for process in found {
            seen.insert((process.pid, process.start));
            signal(process, Signal::SIGKILL);
        }
        std::thread::sleep(STEP);
    }
}

/// A process whose environment cannot be read belongs to another user, or has ended: neither is ours to end.
fn marked(wanted: &[u8]) -> Vec<Found> {
    let mut found = Vec::new();
    for pid in all_pids() {
        let Some(before) = stat(pid).filter(|s| s.state != b'Z' && s.state != b'X') else {
            continue;
        };
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        if environment.split(|b| *b == 0).any(|entry| entry == wanted) {
            found.push(Found {
                pid,
                start: before.start,
            });
        }
    }
    found
}
