//! The queue before writers: two lanes in one line, waited for without a thread, a session with one writer at a time.

use super::QUEUE_KIB;
use crate::api::Lane;
use crate::job::Job;
use crate::lanes::{Most, Waits, pick};
use crate::machine::loaded::Loaded;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::id::SessionId;
use tokio::sync::{Notify, Semaphore};

/// Jobs one batch takes at most.
const BATCH: usize = 1024;
/// Bytes of bodies one batch takes at most, unless a single job has more: a statement of many times as much may not be
/// done within its time limit, and those who try again would only meet again.
const HEAVY: usize = 8 << 20;
/// With so many at work at once, two writers share them.
const MANY: usize = 32;
/// The writer that is there first; every other one helps while it is busy.
const FIRST: usize = 0;
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
    fn weight(&self) -> usize {
        (**self).bytes()
    }
}

#[derive(Default)]
struct Line {
    jobs: VecDeque<Work>,
    /// The sessions each writer is at work on: their later jobs wait for it, so that each keeps its order.
    busy: HashMap<usize, HashSet<SessionId>>,
    /// How many jobs each writer's last batch had.
    last: HashMap<usize, usize>,
    /// It has more writers than the first.
    shared: bool,
    /// The first one was helped since it took its last batch.
    helped: bool,
    closed: bool,
}

impl Line {
    /// May `writer` take this job now?
    fn is_free(&self, job: &Work, writer: usize) -> bool {
        let session = job.session();
        session.is_none_or(|session| !self.is_busy(session, |of| of != writer))
    }

    /// Is there something for `writer`? Others than the first only help: what it can do at once is its own.
    fn has(&self, writer: usize) -> bool {
        let may = writer == FIRST || self.closed || self.first_works();
        may && self.jobs.iter().any(|job| self.is_free(job, writer))
    }

    /// Is no other writer at work?
    fn is_alone(&self, writer: usize) -> bool {
        let mut others = self.busy.iter().filter(|(of, _)| **of != writer);
        others.all(|(_, sessions)| sessions.is_empty())
    }

    fn first_works(&self) -> bool {
        self.busy.get(&FIRST).is_some_and(|set| !set.is_empty())
    }

    /// How many jobs a batch should have: half of those at work when they are many, so that one half is decided while
    /// the server works on the other.
    fn share(&self) -> usize {
        let at_work = self.last.values().sum::<usize>().max(self.jobs.len());
        match at_work {
            many if self.shared && many >= MANY => many.div_ceil(2),
            few => few,
        }
    }

    fn is_busy(&self, session: &SessionId, of: impl Fn(usize) -> bool) -> bool {
        let mut sets = self.busy.iter().filter(|(writer, _)| of(**writer));
        sets.any(|(_, sessions)| sessions.contains(session))
    }
}

/// The queue. One writer takes from it, and others while that one is busy. Its length is bounded by the callers' permits: each queue has its own, so that one that is full keeps
/// nobody out of another.
pub(super) struct Queue {
    line: Mutex<Line>,
    /// For the first writer, and for those that help it.
    came: Notify,
    helped: Notify,
    pub(super) permits: Arc<Semaphore>,
    /// Sessions whose rows somebody held and did not let go, and since when that is known.
    stuck: Mutex<HashMap<SessionId, Instant>>,
}

impl Queue {
    /// A queue with so many writers.
    pub(super) fn of(writers: usize) -> Self {
        Self {
            line: Mutex::new(Line {
                shared: writers > 1,
                ..Line::default()
            }),
            came: Notify::new(),
            helped: Notify::new(),
            permits: Arc::new(Semaphore::new(QUEUE_KIB)),
            stuck: Mutex::default(),
        }
    }

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
        let help = line.first_works();
        drop(line);
        if !awaited {
            self.came.notify_one();
            if help {
                self.helped.notify_one();
            }
        }
        Ok(())
    }

    /// No more jobs from here on; the writers do what is queued and end.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.came.notify_one();
        self.helped.notify_one();
    }

    /// How many jobs wait, and how many a batch should have.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let line = self.line();
        (line.jobs.len(), line.share())
    }

    /// Waits until there is a job for `writer`; false once the store is closed and everything is done, or is another
    /// writer's to do. Cancellation-safe.
    pub(super) async fn wait(&self, writer: usize) -> bool {
        loop {
            {
                let line = self.line();
                if line.has(writer) {
                    return true;
                }
                if line.closed {
                    return false;
                }
            }
            match writer {
                FIRST => self.came.notified().await,
                _ => self.helped.notified().await,
            }
        }
    }

    /// What goes into the next batch of `writer`: nothing when another one was quicker. Their sessions are its own
    /// until it says [`Queue::done`].
    pub(super) fn take(&self, writer: usize) -> Vec<Work> {
        let mut line = self.line();
        if writer == FIRST && !std::mem::take(&mut line.helped) && line.is_alone(FIRST) {
            // Whoever helped is not at work any more: those it told have not come back to it.
            line.last.retain(|of, _| *of == FIRST);
        }
        let most = Most {
            jobs: line.share().clamp(1, BATCH),
            weight: HEAVY,
        };
        let taken = if line.is_alone(writer) {
            pick(&mut line.jobs, most)
        } else {
            let jobs = std::mem::take(&mut line.jobs);
            let (mut free, held): (VecDeque<_>, VecDeque<_>) =
                jobs.into_iter().partition(|job| line.is_free(job, writer));
            let taken = pick(&mut free, most);
            line.jobs = held;
            line.jobs.append(&mut free);
            taken
        };
        let sessions = taken.iter().filter_map(|job| job.session().cloned());
        line.busy.entry(writer).or_default().extend(sessions);
        if !taken.is_empty() {
            line.last.insert(writer, taken.len());
            line.helped |= writer != FIRST;
        }
        if writer == FIRST && !line.jobs.is_empty() {
            self.helped.notify_one();
        }
        taken
    }

    /// The batch of `writer` is over.
    pub(super) fn done(&self, writer: usize) {
        if let Some(sessions) = self.line().busy.get_mut(&writer) {
            sessions.clear();
        }
        if writer != FIRST {
            // What waited for it may be the first one's now.
            self.came.notify_one();
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
        let queue = Queue::of(2);
        put(&queue, 1);
        put(&queue, 2);
        assert!(
            queue.wait(1).now_or_never().is_none(),
            "the first writer has nothing else to do"
        );
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
    fn what_waited_for_the_second_writer_is_the_first_ones_again() {
        let queue = Queue::of(2);
        put(&queue, 1);
        assert_eq!(taken(&queue, 0), [id(1)]);
        put(&queue, 2);
        assert_eq!(taken(&queue, 1), [id(2)]);
        put(&queue, 2);
        queue.done(0);
        let mut first = Box::pin(queue.wait(0));
        assert!((&mut first).now_or_never().is_none());
        queue.done(1);
        assert_eq!(first.now_or_never(), Some(true));
        assert_eq!(taken(&queue, 0), [id(2)]);
    }

    #[test]
    fn many_are_shared_by_two_writers_and_few_are_not() {
        let queue = Queue::of(2);
        (0..20).for_each(|n| put(&queue, n));
        assert_eq!(taken(&queue, 0).len(), 20);
        queue.done(0);
        (0..100).for_each(|n| put(&queue, n));
        assert_eq!(taken(&queue, 0).len(), 50);
        assert_eq!(queue.wait(1).now_or_never(), Some(true));
        assert_eq!(queue.waiting(), (50, 25));
        queue.done(0);
        assert_eq!(queue.wait(1).now_or_never(), None);
    }

    #[test]
    fn a_closed_queue_ends_each_writer_once_nothing_is_left_for_it() {
        let queue = Queue::of(2);
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
        let queue = Queue::of(2);
        queue.stick([id(1), id(2)].into_iter());
        queue.unstick(&id(1));
        queue.unstick(&id(3));
        assert_eq!(queue.held(), HashSet::from([id(2)]));
    }
}
