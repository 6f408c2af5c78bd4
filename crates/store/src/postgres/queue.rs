//! A writer's queue: two lanes in one line, waited for without a thread.

use super::QUEUE_KIB;
use crate::api::Lane;
use crate::job::Job;
use crate::lanes::{Waits, pick};
use crate::machine::loaded::Loaded;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tenure_core::id::SessionId;
use tokio::sync::{Notify, Semaphore};

/// Jobs one batch takes at most.
const BATCH: usize = 1024;

/// A job as the writer runs it.
pub(super) type Work = Box<dyn for<'a> Job<Loaded<'a>>>;

impl Waits for Work {
    fn session(&self) -> Option<&SessionId> {
        (**self).session()
    }
    fn lane(&self) -> Lane {
        (**self).lane()
    }
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Work>,
    closed: bool,
}

/// The queue. Its length is bounded by the callers' permits: each queue has its own, so that one that is full keeps
/// nobody out of another.
pub(super) struct Queue {
    line: Mutex<Line>,
    came: Notify,
    pub(super) permits: Arc<Semaphore>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            line: Mutex::default(),
            came: Notify::new(),
            permits: Arc::new(Semaphore::new(QUEUE_KIB)),
        }
    }
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
        self.came.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.line().jobs.len()
    }

    /// Waits until there is a job; false once the store is closed and everything is done.
    pub(super) async fn wait(&self) -> bool {
        loop {
            {
                let line = self.line();
                if !line.jobs.is_empty() {
                    return true;
                }
                if line.closed {
                    return false;
                }
            }
            self.came.notified().await;
        }
    }

    /// What goes into the next batch.
    pub(super) fn take(&self) -> Vec<Work> {
        pick(&mut self.line().jobs, BATCH)
    }
}
