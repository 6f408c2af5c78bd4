//! The end of a command nobody follows any more: waits for its guardian to end everything, and does it when that one
//! does not.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Guarded;
use crate::guardian::leftover::kill_leftover;
use crate::guardian::wire::Report;

/// How long the guardian may take before everything is ended without it.
const GUARDIAN_TIME: Duration = Duration::from_secs(2);
/// How long what cannot be ended is waited for.
const LONGEST: Duration = Duration::from_secs(10);
/// Between tries to end what did not die.
const PAUSE: Duration = Duration::from_millis(200);

/// How the guardian's reports ended.
enum Heard {
    /// Nothing is left.
    Done,
    /// It is gone, or does not answer.
    Silence,
    /// It tries to end what does not die.
    Stuck,
}

impl Guarded {
    /// Blocks until nothing is left of the command, at most ten seconds; `false` when something may be. `stuck` says
    /// that the guardian has already reported what does not die.
    pub(crate) fn outlast(mut self, stuck: bool) -> bool {
        let began = Instant::now();
        // The guardian takes the end of this pipe for the order to end everything.
        self.control = None;
        self.wake();
        match self.hear(began, stuck) {
            Heard::Done => return true,
            // It keeps trying, and without it nobody would.
            Heard::Stuck => return false,
            Heard::Silence => {}
        }
        loop {
            let Self { spawned, .. } = &self;
            match kill_leftover(spawned.pid, spawned.pid_start, &spawned.boot_id) {
                Ok(_) => return true,
                Err(error) => tracing::warn!(%error, "a stopped command left processes behind"),
            }
            if began.elapsed() > LONGEST {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Reads reports until the last one, or for as long as that may take.
    fn hear(&mut self, began: Instant, mut stuck: bool) -> Heard {
        let mut heard = self.reports.get_ref().buffer().to_vec();
        loop {
            while let Some(end) = heard.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = heard.drain(..=end).collect();
                match serde_json::from_slice(&line) {
                    Ok(Report::Done { .. } | Report::NotStarted(_)) => return Heard::Done,
                    Ok(Report::Stuck(_)) => stuck = true,
                    Ok(_) | Err(_) => {}
                }
            }
            let patience = if stuck { LONGEST } else { GUARDIAN_TIME };
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                return if stuck { Heard::Stuck } else { Heard::Silence };
            }
            let pipe = self.reports.get_ref().get_ref();
            let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left.max(Duration::from_millis(1)));
            match poll(&mut fds, timeout.unwrap_or(PollTimeout::ZERO)) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(_) => return Heard::Silence,
            }
            let mut piece = [0; 4096];
            match nix::unistd::read(pipe.as_fd(), &mut piece) {
                Ok(0) => return Heard::Silence,
                Ok(n) => heard.extend_from_slice(piece.get(..n).unwrap_or_default()),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => return Heard::Silence,
            }
        }
    }
}
