//! The queue before writers: two lanes in one line, waited for without a thread, a session with one writer at a time.

use super::QUEUE_KIB;
use crate::api::Lane;
use crate::job::Job;
use crate::lanes::{Waits, pick};
use crate::machine::loaded::Loaded;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::id::SessionId;
use tokio::sync::{Notify, Semaphore};

/// Jobs one batch takes at most.
const BATCH: usize = 1024;
/// How long a session whose lock somebody held is written apart from the others.
const APART: Duration = Duration::from_secs(10);

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
    /// The sessions each writer is at work on: their later jobs wait for it, so that each keeps its order.
    busy: HashMap<usize, HashSet<SessionId>>,
    closed: bool,
}

impl Line {
    /// May `writer` take this job now?
    fn is_free(&self, job: &Work, writer: usize) -> bool {
        let session = job.session();
        session.is_none_or(|session| !self.is_busy(session, |of| of != writer))
    }

    fn is_busy(&self, session: &SessionId, of: impl Fn(usize) -> bool) -> bool {
        let mut sets = self.busy.iter().filter(|(writer, _)| of(**writer));
        sets.any(|(_, sessions)| sessions.contains(session))
    }
}

/// The queue. Its length is bounded by the callers' permits: each queue has its own, so that one that is full keeps
/// nobody out of another.
pub(super) struct Queue {
    line: Mutex<Line>,
    came: Notify,
    pub(super) permits: Arc<Semaphore>,
    /// Sessions whose rows somebody held and did not let go, and since when that is known.
    stuck: Mutex<HashMap<SessionId, Instant>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            line: Mutex::default(),
            came: Notify::new(),
            permits: Arc::new(Semaphore::new(QUEUE_KIB)),
            stuck: Mutex::default(),
        }
    }
}

impl Queue {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job; gives it back when the store is closed.
    pub(super) fn push(&self, job: Work) -> Result<(), Work> {
        let mut line = self.line();
        if line.closed {
            return Err(job);
        }
        // Whoever is at work on its session looks again by itself when it is done.
        let session = job.session();
        let awaited = session.is_some_and(|session| line.is_busy(session, |_| true));
        line.jobs.push_back(job);
        drop(line);
        if !awaited {
            self.came.notify_one();
        }
        Ok(())
    }

    /// No more jobs from here on; the writers do what is queued and end.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.came.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.line().jobs.len()
    }

    /// Waits until there is a job for `writer`; false once the store is closed and everything is done, or is another
    /// writer's to do. Cancellation-safe.
    pub(super) async fn wait(&self, writer: usize) -> bool {
        loop {
            {
                let line = self.line();
                if line.jobs.iter().any(|job| line.is_free(job, writer)) {
                    return true;
                }
                if line.closed {
                    // The next one wants to know it, too.
                    self.came.notify_one();
                    return false;
                }
            }
            self.came.notified().await;
        }
    }

    /// What goes into the next batch of `writer`: nothing when another one was quicker. Their sessions are its own
    /// until it says [`Queue::done`].
    pub(super) fn take(&self, writer: usize) -> Vec<Work> {
        let mut line = self.line();
        let alone = line
            .busy
            .iter()
            .all(|(other, sessions)| *other == writer || sessions.is_empty());
        let taken = if alone {
            pick(&mut line.jobs, BATCH)
        } else {
            let jobs = std::mem::take(&mut line.jobs);
            let (mut free, held): (VecDeque<_>, VecDeque<_>) =
                jobs.into_iter().partition(|job| line.is_free(job, writer));
            let taken = pick(&mut free, BATCH);
            line.jobs = held;
            line.jobs.append(&mut free);
            taken
        };
        let sessions = taken.iter().filter_map(|job| job.session().cloned());
        line.busy.entry(writer).or_default().extend(sessions);
        taken
    }

    /// The batch of `writer` is over.
    pub(super) fn done(&self, writer: usize) {
        if let Some(sessions) = self.line().busy.get_mut(&writer) {
            sessions.clear();
        }
    }

    fn stuck(&self) -> MutexGuard<'_, HashMap<SessionId, Instant>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those whose rows somebody holds, as far as that is known and recent.
    pub(super) fn held(&self) -> HashSet<SessionId> {
        let mut stuck = self.stuck();
        stuck.retain(|_, since| since.elapsed() < APART);
        stuck.keys().cloned().collect()
    }

    /// Somebody holds the row of one of these.
    pub(super) fn stick(&self, sessions: impl Iterator<Item = SessionId>) {
        let now = Instant::now();
        self.stuck().extend(sessions.map(|session| (session, now)));
    }

    /// It was written.
    pub(super) fn unstick(&self, session: &SessionId) {
        let mut stuck = self.stuck();
        if !stuck.is_empty() {
            stuck.remove(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::Failure;
    use crate::job::Asks;
    use crate::machine::{Failure as Failed, Ran};
    use futures::FutureExt;

    struct Probe(SessionId);

    impl<'a> Job<Loaded<'a>> for Probe {
        fn session(&self) -> Option<&SessionId> {
            Some(&self.0)
        }
        fn lane(&self) -> Lane {
            Lane::Text
        }
        fn asks(&self) -> Asks {
            Asks::default()
        }
        fn run(&mut self, _: &Loaded<'a>) -> Result<Ran, Failed> {
            Ok(Ran::Nothing)
        }
        fn reply(&mut self) {}
        fn fail(&mut self, _: &Failure) {}
        fn wakes(&self) -> &[SessionId] {
            &[]
        }
    }

    fn id(n: u128) -> SessionId {
        SessionId::from_bits(n)
    }

    fn put(queue: &Queue, n: u128) {
        assert!(queue.push(Box::new(Probe(id(n)))).is_ok());
    }

    fn taken(queue: &Queue, writer: usize) -> Vec<SessionId> {
        let jobs = queue.take(writer);
        jobs.iter()
            .filter_map(|job| job.session().cloned())
            .collect()
    }

    #[test]
    fn a_session_is_with_one_writer_at_a_time_and_keeps_its_order() {
        let queue = Queue::default();
        put(&queue, 1);
        put(&queue, 2);
        assert_eq!(taken(&queue, 0), [id(1), id(2)]);
        put(&queue, 1);
        assert!(
            queue.wait(1).now_or_never().is_none(),
            "it is the first writer's"
        );
        put(&queue, 3);
        put(&queue, 1);
        assert_eq!(queue.wait(1).now_or_never(), Some(true));
        assert_eq!(taken(&queue, 1), [id(3)]);
        assert_eq!(taken(&queue, 1), [], "nothing is left that it may take");
        queue.done(0);
        assert_eq!(queue.wait(0).now_or_never(), Some(true));
        assert_eq!(taken(&queue, 0), [id(1), id(1)]);
    }

    #[test]
    fn a_closed_queue_ends_each_writer_once_nothing_is_left_for_it() {
        let queue = Queue::default();
        put(&queue, 1);
        assert_eq!(taken(&queue, 0).len(), 1);
        put(&queue, 1);
        let mut other = Box::pin(queue.wait(1));
        assert!((&mut other).now_or_never().is_none());
        queue.close();
        assert_eq!(
            other.now_or_never(),
            Some(false),
            "what is left is the first one's"
        );
        assert!(queue.push(Box::new(Probe(id(9)))).is_err());
        queue.done(0);
        assert_eq!(queue.wait(0).now_or_never(), Some(true));
        assert_eq!(taken(&queue, 0), [id(1)]);
        queue.done(0);
        assert_eq!(queue.wait(0).now_or_never(), Some(false));
    }

    #[test]
    fn who_is_stuck_is_known_until_it_was_written() {
        let queue = Queue::default();
        queue.stick([id(1), id(2)].into_iter());
        queue.unstick(&id(1));
        queue.unstick(&id(3));
        assert_eq!(queue.held(), HashSet::from([id(2)]));
    }
}
