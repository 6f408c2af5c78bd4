//! The writer's queue: two lanes in one line, each session's own order kept.

use super::Work;
use crate::lanes::{Most, Waits, pick};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Jobs one transaction takes at most.
const BATCH: Most = Most {
    jobs: 1024,
    weight: usize::MAX,
};

/// What the writer finds.
pub(super) enum Next {
    Jobs(Vec<Work>),
    /// Nothing came for a while.
    Idle,
    /// The store is closed and everything is done.
    Closed,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Work>,
    closed: bool,
}

/// The queue. Its length is bounded by the callers' permits.
#[derive(Default)]
pub(super) struct Queue {
    line: Mutex<Line>,
    came: Condvar,
}

impl Queue {
    fn line(&self) -> std::sync::MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; gives it back when the store is closed.
    pub(super) fn push(&self, job: Work) -> Result<(), Work> {
        let mut line = self.line();
        if line.closed {
            return Err(job);
        }
        line.jobs.push_back(job);
        drop(line);
        self.came.notify_one();
        Ok(())
    }

    /// No more jobs from here on; the writer does what is queued and ends.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.came.notify_all();
    }

    pub(super) fn len(&self) -> usize {
        self.line().jobs.len()
    }

    /// Everything that waits, waiting for the first at most `idle`.
    pub(super) fn next(&self, idle: Option<Duration>) -> Next {
        let deadline = idle.map(|idle| Instant::now() + idle);
        let mut line = self.line();
        loop {
            if !line.jobs.is_empty() {
                return Next::Jobs(pick(&mut line.jobs, BATCH));
            }
            if line.closed {
                return Next::Closed;
            }
            line = match deadline {
                None => self.came.wait(line).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Next::Idle;
                    }
                    let waited = self.came.wait_timeout(line, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Waits for Work {
    fn session(&self) -> Option<&tenure_core::id::SessionId> {
        (**self).session()
    }
    fn lane(&self) -> crate::api::Lane {
        (**self).lane()
    }
}
