//! The writer's queue: two lanes in one line, each session's own order kept.

use super::job::Job;
use crate::api::Lane;
use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Jobs one transaction takes at most.
const BATCH: usize = 1024;

/// What the writer finds.
pub(super) enum Next {
    Jobs(Vec<Box<dyn Job>>),
    /// Nothing came for a while.
    Idle,
    /// The store is closed and everything is done.
    Closed,
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Box<dyn Job>>,
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
    pub(super) fn push(&self, job: Box<dyn Job>) -> Result<(), Box<dyn Job>> {
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

/// Takes up to `most` jobs. When not all fit, control goes first, and with it whatever the same sessions
/// queued before: lanes reorder across sessions only (R12).
fn pick(jobs: &mut VecDeque<Box<dyn Job>>, most: usize) -> Vec<Box<dyn Job>> {
    if jobs.len() <= most {
        return jobs.drain(..).collect();
    }
    let mut urgent = HashSet::new();
    let mut first: Vec<bool> = jobs
        .iter()
        .rev()
        .map(|job| {
            let control = job.lane() == Lane::Control;
            match job.session() {
                Some(session) if control => {
                    urgent.insert(session.clone());
                    true
                }
                Some(session) => urgent.contains(session),
                None => control,
            }
        })
        .collect();
    first.reverse();
    let (mut taken, mut rest) = (Vec::with_capacity(most), VecDeque::new());
    let mut late = VecDeque::new();
    for (job, urgent) in jobs.drain(..).zip(first) {
        if urgent && taken.len() < most {
            taken.push(job);
        } else {
            late.push_back(job);
        }
    }
    // A session with a job left behind may not overtake it with a later one.
    let mut held = HashSet::new();
    for job in late {
        let session = job.session().cloned();
        let behind = session
            .as_ref()
            .is_some_and(|session| held.contains(session));
        if taken.len() < most && !behind {
            taken.push(job);
        } else {
            held.extend(session);
            rest.push_back(job);
        }
    }
    *jobs = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::super::job::{Failure, Ran};
    use super::super::tx::Tx;
    use super::*;
    use tenure_core::id::SessionId;

    struct Probe(SessionId, Lane, u32, Vec<SessionId>);

    impl Job for Probe {
        fn session(&self) -> Option<&SessionId> {
            Some(&self.0)
        }
        fn lane(&self) -> Lane {
            self.1
        }
        fn run(&mut self, _: &Tx<'_>) -> rusqlite::Result<Ran> {
            Ok(Ran::Nothing)
        }
        fn reply(&mut self) {}
        fn fail(&mut self, _: &Failure) {}
        fn wakes(&self) -> &[SessionId] {
            // The number rides here, so that the test can see which job it is.
            &self.3[..self.2 as usize]
        }
    }

    #[test]
    fn control_overtakes_other_sessions_text_but_never_its_own() {
        let id = |n: u128| SessionId::from_bits(n);
        let pad = vec![id(9); 8];
        let mut jobs: VecDeque<Box<dyn Job>> = VecDeque::new();
        for (session, lane, number) in [
            (1, Lane::Text, 1),
            (2, Lane::Text, 2),
            (1, Lane::Text, 3),
            (2, Lane::Control, 4),
            (1, Lane::Text, 5),
        ] {
            jobs.push_back(Box::new(Probe(id(session), lane, number, pad.clone())));
        }
        let order =
            |jobs: &[Box<dyn Job>]| jobs.iter().map(|j| j.wakes().len()).collect::<Vec<_>>();
        let taken = pick(&mut jobs, 3);
        assert_eq!(order(&taken), [2, 4, 1]);
        let rest = pick(&mut jobs, 9);
        assert_eq!(order(&rest), [3, 5]);
    }
}
