//! The SQLite backend: one file, one writer thread per process, several processes.

mod event;
mod fork;
mod gate;
mod head;
mod locks;
mod node;
mod open;
mod queue;
mod reader;
mod rows;
mod schema;
mod store;
mod tx;
mod upkeep;
mod view;
mod wal;
mod watch;
mod writer;

pub use crate::clock::{StoreClock, SystemClock};

use crate::Switches;
use crate::error::{NodeError, OpenError};
use crate::hooks::{Failure, Hooks};
use crate::job::{Asks, Job, Task};
use crate::machine::lapse::Observations;
use crate::machine::{Failure as Failed, Ran};
use crate::opening::Opening;
use gate::Gate;
use locks::{Held, LockFolder};
use queue::Queue;
use reader::Readers;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
#[cfg(feature = "testing")]
use tenure_core::id::Incarnation;
use tenure_core::id::SessionId;
use tokio::sync::{Semaphore, oneshot};
use tx::{Stop, Tx};
use watch::Watchers;
use writer::Writer;

/// A job as the writer runs it.
type Work = Box<dyn for<'a> Job<Tx<'a>>>;

/// Kibibytes of bodies that may wait for the writer at once; beyond it callers wait.
const QUEUE_KIB: usize = 256 << 10;

/// How a store is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// The clocks leases are judged by.
    pub clock: Arc<dyn StoreClock>,
    /// What opening may change.
    pub opening: Opening,
    /// Switches that break rules on purpose.
    #[cfg(feature = "testing")]
    pub mutations: crate::mutation::Mutations,
    /// What the file system says it is, for tests: a `statfs` magic number and a mount type.
    #[cfg(feature = "testing")]
    pub file_system: Option<(i64, String)>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            opening: Opening::default(),
            #[cfg(feature = "testing")]
            mutations: crate::mutation::Mutations::default(),
            #[cfg(feature = "testing")]
            file_system: None,
        }
    }
}

impl OpenOptions {
    fn switches(&self) -> Switches {
        #[cfg(feature = "testing")]
        {
            self.mutations.clone()
        }
        #[cfg(not(feature = "testing"))]
        Switches
    }

    fn probe(&self, folder: &Path) -> Option<(i64, String)> {
        #[cfg(feature = "testing")]
        if self.file_system.is_some() {
            return self.file_system.clone();
        }
        open::file_system(folder)
    }
}

/// A commit that goes wrong on purpose: a test aid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The transaction is gone, and the caller is not told.
    CommitLost,
    /// The transaction is there, and the caller is not told.
    AnswerLost,
}

/// What the writer, the readers and the handle share.
struct SharedState {
    path: PathBuf,
    clock: Arc<dyn StoreClock>,
    boot_id: String,
    switches: Switches,
    queue: Queue,
    permits: Arc<Semaphore>,
    gate: Gate,
    hooks: Arc<Hooks>,
    readers: Readers,
    watchers: Arc<Watchers>,
    locks: LockFolder,
    nodes: Mutex<HashMap<String, Held>>,
    observations: Mutex<HashMap<String, Observations>>,
    fault: Mutex<Option<Fault>>,
}

impl SharedState {
    fn take_fault(&self) -> Option<Fault> {
        self.fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Is a node's process gone, by its lock? Nodes of this process are asked here.
    fn is_gone(&self, incarnation: &str) -> bool {
        let own = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        !own.contains_key(incarnation)
            && self.locks.node_is_gone(incarnation)
            && !broken!(self.switches, LockNotAsked)
    }
}

/// A store in one SQLite file. Cheap to share; dropping the last handle finishes what is queued and closes.
pub struct SqliteStore {
    shared: Arc<SharedState>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store at `path`, or makes a fresh one when there is no file, as far as `options.opening` allows.
    /// Blocking, a few milliseconds.
    ///
    /// Errors say what is wrong with the place or the file; nothing existing is ever overwritten.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Arc<Self>, OpenError> {
        let (opening, now_ms) = (options.opening, options.clock.wall_ms());
        let conn = open::prepare(path, opening, now_ms, |folder| options.probe(folder))?;
        let watchers = Arc::new(Watchers::new(options.switches()));
        let shared = Arc::new(SharedState {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            boot_id: options.clock.boot_id(),
            switches: options.switches(),
            clock: options.clock,
            queue: Queue::default(),
            permits: Arc::new(Semaphore::new(QUEUE_KIB)),
            gate: Gate::default(),
            hooks: Arc::default(),
            readers: Readers::default(),
            watchers,
            locks: LockFolder::beside(path),
            nodes: Mutex::default(),
            observations: Mutex::default(),
            fault: Mutex::default(),
        });
        let writer = Writer::new(Arc::clone(&shared), conn);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| OpenError::Other {
                path: path.display().to_string(),
                detail: format!("the writer's thread cannot be started: {error}"),
            })?;
        Ok(Arc::new(Self {
            shared,
            writer: Mutex::new(Some(thread)),
        }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Test aid: this process's node dies as if its process had been killed: its lock is free, its row says
    /// nothing.
    #[cfg(feature = "testing")]
    pub fn crash_node(&self, incarnation: &Incarnation) {
        drop(self.nodes().remove(incarnation.as_str()));
    }

    /// Test aid: the next commit goes wrong.
    #[cfg(feature = "testing")]
    pub fn fail_next_commit(&self, fault: Fault) {
        *self
            .shared
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    fn nodes(&self) -> std::sync::MutexGuard<'_, HashMap<String, Held>> {
        self.shared
            .nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job within the bound on what may wait. Dropping the future before that leaves nothing done;
    /// after it the job runs whatever happens to the caller.
    async fn queue(&self, job: Work, bytes: usize) {
        let kib = u32::try_from((bytes >> 10) + 1)
            .unwrap_or(u32::MAX)
            .min(QUEUE_KIB as u32);
        // Unconstrained: the runtime's own budget must not put a first poll off, since it orders appends.
        let permits = Arc::clone(&self.shared.permits);
        let permit = tokio::task::unconstrained(permits.acquire_many_owned(kib)).await;
        let job: Work = match permit {
            Ok(permit) => Box::new(Permitted {
                job,
                _permit: permit,
            }),
            Err(_) => job,
        };
        if let Err(mut job) = self.shared.queue.push(job) {
            job.fail(&Failure {
                unknown: false,
                reason: CLOSED.to_owned(),
            });
        }
    }

    /// Runs a closure in the writer's transaction.
    async fn submit<T, E, F>(
        &self,
        session: Option<&SessionId>,
        wakes: Vec<SessionId>,
        failed: fn(&Failure) -> E,
        work: F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: for<'a> FnMut(&Tx<'a>) -> Result<(T, Ran), Stop<E>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task = Task {
            after: None,
            asks: Asks::default(),
            session: session.cloned(),
            wakes,
            work,
            verdict: None,
            failed,
            reply: Some(reply),
        };
        self.finish(task, answer).await
    }

    /// Queues a task and waits for its answer.
    async fn finish<T, E, F>(
        &self,
        task: Task<T, E, F>,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: for<'a> FnMut(&Tx<'a>) -> Result<(T, Ran), Stop<E>> + Send + 'static,
    {
        let failed = task.failed;
        self.queue(Box::new(task), 0).await;
        answer.await.unwrap_or_else(|_| {
            Err(failed(&Failure {
                unknown: false,
                reason: CLOSED.to_owned(),
            }))
        })
    }
}

const CLOSED: &str = "it is closed";

fn node_failed(failure: &Failure) -> NodeError {
    NodeError::Unavailable {
        reason: failure.reason.clone(),
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.shared.watchers.close();
        self.shared.queue.close();
        let thread = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A hook that owns the last handle drops it on the writer's own thread.
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A job that gives its place in the queue back when it is done.
struct Permitted {
    job: Work,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl<'a> Job<Tx<'a>> for Permitted {
    fn session(&self) -> Option<&SessionId> {
        self.job.session()
    }
    fn lane(&self) -> crate::api::Lane {
        self.job.lane()
    }
    fn asks(&self) -> Asks {
        self.job.asks()
    }
    fn run(&mut self, tx: &Tx<'a>) -> Result<Ran, Failed> {
        self.job.run(tx)
    }
    fn committed(&mut self) {
        self.job.committed();
    }
    fn reply(&mut self) {
        self.job.reply();
    }
    fn fail(&mut self, failure: &Failure) {
        self.job.fail(failure);
    }
    fn wakes(&self) -> &[SessionId] {
        self.job.wakes()
    }
}
