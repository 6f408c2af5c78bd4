//! Ends every descendant of the guardian: the gentle signal, a short grace, then the hard one until none is left.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

use super::identity::{command_line, stat};
use super::wire::Killed;

/// Between the gentle and the hard signal. The whole must be over within 300 ms of an interrupt.
const GRACE: Duration = Duration::from_millis(150);
/// After this long with the hard signal the parent is told what does not die.
const STUCK_AFTER: Duration = Duration::from_secs(1);
const REPORTED: usize = 20;

/// What was ended so far, by process identity.
pub(super) struct Record {
    shell: Pid,
    seen: HashMap<(u32, u64), usize>,
    killed: Vec<Killed>,
    more: u64,
}

impl Record {
    pub(super) fn new(shell: Pid) -> Self {
        Self {
            shell,
            seen: HashMap::new(),
            killed: Vec::new(),
            more: 0,
        }
    }

    /// The list for the result, and how many it leaves out.
    pub(super) fn into_report(self) -> (Vec<Killed>, u64) {
        (self.killed, self.more)
    }

    fn note(&mut self, found: Found, hard: bool) {
        // The shell is the command itself, and its end is reported as such.
        if i32::try_from(found.pid) == Ok(self.shell.as_raw()) {
            return;
        }
        if let Some(&at) = self.seen.get(&(found.pid, found.start)) {
            if let Some(killed) = self.killed.get_mut(at) {
                killed.hard |= hard;
            }
            return;
        }
        self.seen
            .insert((found.pid, found.start), self.killed.len());
        if self.killed.len() < REPORTED {
            self.killed.push(Killed {
                pid: found.pid,
                command: command_line(found.pid),
                hard,
            });
        } else {
            self.more += 1;
        }
    }
}

/// One living process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) pid: u32,
    pub(super) start: u64,
}

/// Returns when `reap` says that nothing is left. `stuck` is told, once, of what does not die.
pub(super) fn end_all(
    record: &mut Record,
    signals: &SignalFd,
    mut reap: impl FnMut() -> bool,
    mut stuck: impl FnMut(Vec<Killed>),
) {
    for found in descendants(std::process::id()) {
        record.note(found, false);
        signal(found, Signal::SIGTERM);
        // A stopped process acts on the gentle signal only when it goes on.
        signal(found, Signal::SIGCONT);
    }
    let gentle_until = Instant::now() + GRACE;
    while reap() {
        match gentle_until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => wait(signals, left),
            _ => break,
        }
    }
    let hard_since = Instant::now();
    let mut told = false;
    while reap() {
        let left = descendants(std::process::id());
        for found in &left {
            record.note(*found, true);
            signal(*found, Signal::SIGKILL);
        }
        if !told && hard_since.elapsed() > STUCK_AFTER {
            told = true;
            let list = left.iter().take(REPORTED);
            stuck(
                list.map(|f| Killed {
                    pid: f.pid,
                    command: command_line(f.pid),
                    hard: true,
                })
                .collect(),
            );
        }
        wait(
            signals,
            if told {
                Duration::from_millis(500)
            } else {
                Duration::from_millis(5)
            },
        );
    }
}

fn wait(signals: &SignalFd, at_most: Duration) {
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    let timeout =
        PollTimeout::try_from(at_most.max(Duration::from_millis(1))).unwrap_or(PollTimeout::ZERO);
    let _ = poll(&mut fds, timeout);
    while let Ok(Some(_)) = signals.read_signal() {}
}

/// Signals a process if it is still the one that was found.
pub(super) fn signal(found: Found, signal: Signal) {
    let same = stat(found.pid).is_some_and(|s| s.start == found.start);
    if let (true, Ok(pid)) = (same, i32::try_from(found.pid)) {
        // It may end in this very moment, or belong to another user; both show in the next round.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// All living descendants of a process, parents before children.
pub(super) fn descendants(root: u32) -> Vec<Found> {
    let by_task = std::fs::exists(format!("/proc/{root}/task/{root}/children")).unwrap_or(false);
    let table = if by_task {
        HashMap::new()
    } else {
        parent_table()
    };
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        let children = if by_task {
            children_of(parent)
        } else {
            table.get(&parent).cloned().unwrap_or_default()
        };
        for pid in children {
            let Some(stat) = stat(pid).filter(|s| s.parent == parent) else {
                continue;
            };
            next.push(pid);
            if stat.state != b'Z' && stat.state != b'X' {
                found.push(Found {
                    pid,
                    start: stat.start,
                });
            }
        }
    }
    found
}

/// The kernel keeps a list for each thread that forked.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_ascii_whitespace()
                .filter_map(|p| p.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

fn parent_table() -> HashMap<u32, Vec<u32>> {
    let mut table: HashMap<u32, Vec<u32>> = HashMap::new();
    for pid in super::identity::all_pids() {
        if let Some(stat) = stat(pid) {
            table.entry(stat.parent).or_default().push(pid);
        }
    }
    table
}
