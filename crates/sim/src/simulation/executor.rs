//! A single-threaded executor whose every choice is seeded: tasks of many processes, one virtual time.
//!
//! A process is a number that tags its tasks, so that all of them can be dropped at once (a crash) or left
//! unpolled (a pause) while time goes on. Which ready task is polled next is drawn from the seed; the set of
//! ready tasks is kept in order of their numbers, so that the order in which wakers were called says nothing.

use crate::chance::Chance;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A process of the simulated world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proc(pub u32);

/// The world's own process: the network, the database and who watches them. It cannot crash.
pub const WORLD: Proc = Proc(0);

/// Virtual microseconds since the run began.
pub type Micros = u64;

/// The executor. Clones share it.
#[derive(Clone)]
pub struct Executor(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    woken: Arc<Mutex<Vec<usize>>>,
}

struct State {
    now: Micros,
    chance: Chance,
    tasks: Vec<Option<Task>>,
    /// Ready tasks of processes that run, in order.
    ready: Vec<usize>,
    /// Ready tasks of processes that are paused.
    held: Vec<usize>,
    paused: BTreeSet<Proc>,
    dead: BTreeSet<Proc>,
    timers: BTreeMap<(Micros, u64), Waker>,
    next_timer: u64,
    polls: u64,
}

struct Task {
    proc: Proc,
    /// None while it is being polled.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    queued: bool,
}

struct TaskWaker {
    task: usize,
    woken: Arc<Mutex<Vec<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.woken).push(self.task);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one turn of [`Executor::step`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A task was polled.
    Polled,
    /// Nothing was ready: time moved on to the next timer.
    Waited,
    /// Nothing is ready and no timer runs.
    Stuck,
}

impl Executor {
    /// An empty world at time 0.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                now: 0,
                chance: Chance::of(seed, 0xe8ec),
                tasks: Vec::new(),
                ready: Vec::new(),
                held: Vec::new(),
                paused: BTreeSet::new(),
                dead: BTreeSet::new(),
                timers: BTreeMap::new(),
                next_timer: 0,
                polls: 0,
            }),
            woken: Arc::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// The true time.
    pub fn now(&self) -> Micros {
        self.state().now
    }

    /// Tasks polled so far.
    pub fn polls(&self) -> u64 {
        self.state().polls
    }

    /// Adds a task to a process. A dead process takes none.
    pub fn spawn(&self, proc: Proc, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(proc, Box::pin(future));
    }

    /// As [`Executor::spawn`].
    pub fn spawn_boxed(&self, proc: Proc, future: BoxFuture<'static, ()>) {
        let mut state = self.state();
        if state.dead.contains(&proc) {
            // Its destructor may want the executor.
            drop(state);
            drop(future);
            return;
        }
        let task = state.tasks.len();
        let waker = Waker::from(Arc::new(TaskWaker {
            task,
            woken: self.0.woken.clone(),
        }));
        state.tasks.push(Some(Task {
            proc,
            future: Some(future),
            waker,
            queued: false,
        }));
        drop(state);
        lock(&self.0.woken).push(task);
    }

    /// Waits for so long on the true clock.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 4))
    }

    /// As [`Executor::sleep`].
    pub fn sleep_micros(&self, micros: Micros) -> Sleep {
        Sleep {
            deadline: self.now().saturating_add(micros),
            executor: self.clone(),
            timer: None,
        }
    }

    /// Waits until the true clock shows `at`.
    pub fn sleep_until(&self, at: Micros) -> Sleep {
        Sleep {
            deadline: at,
            executor: self.clone(),
            timer: None,
        }
    }

    /// Drops every task of the process, wherever it is, and takes no more of them.
    pub fn kill(&self, proc: Proc) {
        let mut state = self.state();
        state.dead.insert(proc);
        state.paused.remove(&proc);
        let mut gone = Vec::new();
        for slot in &mut state.tasks {
            if slot.as_ref().is_some_and(|task| task.proc == proc) {
                gone.extend(slot.take());
            }
        }
        let State {
            tasks, ready, held, ..
        } = &mut *state;
        ready.retain(|task| tasks[*task].is_some());
        held.retain(|task| tasks[*task].is_some());
        drop(state);
        drop(gone);
    }

    /// Drops every task of every process: the world ends.
    pub fn clear(&self) {
        let mut state = self.state();
        let tasks = std::mem::take(&mut state.tasks);
        state.ready.clear();
        state.held.clear();
        let timers = std::mem::take(&mut state.timers);
        drop(state);
        drop(timers);
        drop(tasks);
        let woken = std::mem::take(&mut *lock(&self.0.woken));
        drop(woken);
    }

    /// Its tasks are not polled from now on; time goes on.
    pub fn pause(&self, proc: Proc) {
        let mut state = self.state();
        if state.dead.contains(&proc) || !state.paused.insert(proc) {
            return;
        }
        let State {
            tasks, ready, held, ..
        } = &mut *state;
        let of = |task: &usize| tasks[*task].as_ref().is_some_and(|task| task.proc == proc);
        held.extend(ready.iter().copied().filter(of));
        ready.retain(|task| !of(task));
    }

    /// It goes on with whatever became ready meanwhile.
    pub fn unpause(&self, proc: Proc) {
        let mut state = self.state();
        if !state.paused.remove(&proc) {
            return;
        }
        let State {
            tasks, ready, held, ..
        } = &mut *state;
        let of = |task: &usize| tasks[*task].as_ref().is_some_and(|task| task.proc == proc);
        for task in held.iter().copied().filter(of) {
            insert(ready, task);
        }
        held.retain(|task| !of(task));
    }

    /// Polls one ready task, or moves the time on.
    pub fn step(&self) -> Step {
        let mut state = self.state();
        self.collect(&mut state);
        if state.ready.is_empty() {
            return self.wait(state);
        }
        let ready = state.ready.len() as u64;
        let at = state.chance.below(ready) as usize;
        let id = state.ready.remove(at);
        state.polls += 1;
        let Some(task) = &mut state.tasks[id] else {
            return Step::Polled;
        };
        task.queued = false;
        let waker = task.waker.clone();
        let Some(mut future) = task.future.take() else {
            return Step::Polled;
        };
        drop(state);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut state = self.state();
        match (&mut state.tasks[id], polled) {
            (Some(task), Poll::Pending) => {
                task.future = Some(future);
            }
            (slot, _) => {
                // Done, or killed by what it did itself.
                let gone = slot.take();
                drop(state);
                drop(future);
                drop(gone);
            }
        }
        Step::Polled
    }

    /// Puts what was woken into the ready tasks.
    fn collect(&self, state: &mut State) {
        let mut woken = lock(&self.0.woken);
        for id in woken.drain(..) {
            let Some(Some(task)) = state.tasks.get_mut(id) else {
                continue;
            };
            if std::mem::replace(&mut task.queued, true) {
                continue;
            }
            if state.paused.contains(&task.proc) {
                state.held.push(id);
            } else {
                insert(&mut state.ready, id);
            }
        }
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) -> Step {
        let Some((&(due, _), _)) = state.timers.first_key_value() else {
            return Step::Stuck;
        };
        state.now = state.now.max(due);
        let mut fired = Vec::new();
        while let Some(entry) = state.timers.first_entry() {
            if entry.key().0 > due {
                break;
            }
            fired.push(entry.remove());
        }
        drop(state);
        fired.into_iter().for_each(Waker::wake);
        Step::Waited
    }
}

fn insert(ready: &mut Vec<usize>, task: usize) {
    if let Err(at) = ready.binary_search(&task) {
        ready.insert(at, task);
    }
}

/// A wait on the true clock. Dropping it ends the wait.
pub struct Sleep {
    deadline: Micros,
    executor: Executor,
    timer: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        let mut state = executor.state();
        if state.now >= self.deadline {
            return Poll::Ready(());
        }
        let timer = match self.timer {
            Some(timer) => timer,
            None => {
                state.next_timer += 1;
                self.timer = Some(state.next_timer);
                state.next_timer
            }
        };
        state
            .timers
            .insert((self.deadline, timer), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = self.executor.state().timers.remove(&(self.deadline, timer));
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three processes note in turn who ran when.
    fn trace(seed: u64) -> Vec<(Micros, u32)> {
        let executor = Executor::new(seed);
        let trace = Arc::new(Mutex::new(Vec::new()));
        for proc in 1..=3 {
            let (exec, trace) = (executor.clone(), trace.clone());
            executor.spawn(Proc(proc), async move {
                for _ in 0..5 {
                    exec.sleep_micros(10).await;
                    lock(&trace).push((exec.now(), proc));
                }
            });
        }
        while executor.step() != Step::Stuck {}
        let mut trace = lock(&trace);
        std::mem::take(&mut *trace)
    }

    #[test]
    fn the_seed_decides_the_order_and_nothing_else_does() {
        assert_eq!(trace(1), trace(1));
        assert!((2..40).any(|seed| trace(seed) != trace(1)));
        assert_eq!(trace(7).last().map(|(at, _)| *at), Some(50));
    }

    #[test]
    fn a_paused_process_goes_on_late_and_a_killed_one_never() {
        let executor = Executor::new(1);
        let seen = Arc::new(Mutex::new(Vec::new()));
        for proc in [1, 2] {
            let (exec, seen) = (executor.clone(), seen.clone());
            executor.spawn(Proc(proc), async move {
                exec.sleep_micros(10).await;
                lock(&seen).push((proc, exec.now()));
            });
        }
        executor.pause(Proc(1));
        let world = executor.clone();
        executor.spawn(WORLD, async move {
            world.sleep_micros(5).await;
            world.kill(Proc(2));
            world.sleep_micros(95).await;
            world.unpause(Proc(1));
        });
        while executor.step() != Step::Stuck {}
        // It had not begun to wait when it was paused.
        assert_eq!(*lock(&seen), [(1, 110)]);
    }
}
