//! The PostgreSQL backend: many processes on one database, group commit of what each one writes.
//!
//! A batch is read (or remembered), decided in memory by the rules every backend shares, and written in one flush
//! that changes only sessions which are still as they were read. See `writer` for the way of an append.

mod cache;
mod conn;
mod failover;
mod flight;
mod flush;
mod gate;
mod load;
mod migrate;
mod node;
mod place;
mod pool;
mod pooler;
mod presence;
mod probe;
mod queue;
mod rows;
mod session;
mod sql;
mod store;
mod tls;
mod trouble;
mod upkeep;
mod wakes;
mod watch;
mod writer;

pub use place::{is_url, without_password};

use crate::Switches;
use crate::api::Acquire;
use crate::clock::{StoreClock, SystemClock};
use crate::error::OpenError;
use crate::hooks::Hooks;
use crate::machine::lapse::Observations;
use crate::opening::Opening;
use crate::sqlite::Fault;
use cache::Cache;
use conn::{Conn, Maker, Use};
use failover::Owned;
use flight::Flight;
use gate::Gate;
use place::Place;
use pool::{Pool, Slot};
use presence::Presence;
use queue::Queue;
use sql::Dialect;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tenure_core::id::Incarnation;
use tls::Tls;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use wakes::{Hearing, Tell};
use watch::Watchers;
use writer::{APPENDERS, APPENDS, INTERRUPTERS, INTERRUPTS, Writer};

/// Kibibytes of bodies that may wait for a writer at once; beyond it callers wait.
const QUEUE_KIB: usize = 256 << 10;

const CLOSED: &str = "it is closed";

/// How a store is opened.
#[derive(Clone)]
pub struct Options {
    /// The clock this process observes others by; leases themselves are judged by the server's.
    pub clock: Arc<dyn StoreClock>,
    /// What opening may change.
    pub opening: Opening,
    /// Switches that break rules on purpose.
    #[cfg(feature = "testing")]
    pub mutations: crate::mutation::Mutations,
    /// A node without an address counts as gone when its presence is: nodes of tests have nothing that listens.
    #[cfg(feature = "testing")]
    pub silent_is_gone: bool,
    /// What is looked at now and then is not: events alone show what happens (the poll, the presence).
    #[cfg(feature = "testing")]
    pub events_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            opening: Opening::default(),
            #[cfg(feature = "testing")]
            mutations: crate::mutation::Mutations::default(),
            #[cfg(feature = "testing")]
            silent_is_gone: false,
            #[cfg(feature = "testing")]
            events_only: false,
        }
    }
}

impl Options {
    fn switches(&self) -> Switches {
        #[cfg(feature = "testing")]
        {
            self.mutations.clone()
        }
        #[cfg(not(feature = "testing"))]
        Switches
    }

    fn silent_is_gone(&self) -> bool {
        #[cfg(feature = "testing")]
        {
            self.silent_is_gone
        }
        #[cfg(not(feature = "testing"))]
        false
    }

    fn events_only(&self) -> bool {
        #[cfg(feature = "testing")]
        {
            self.events_only
        }
        #[cfg(not(feature = "testing"))]
        false
    }
}

/// What the writers, the readers and the handle share.
struct Shared {
    maker: Maker,
    clock: Arc<dyn StoreClock>,
    switches: Switches,
    /// Fast suspicion of nodes without an address; only in tests.
    silent_is_gone: bool,
    /// Nothing is looked at now and then; only in tests.
    events_only: bool,
    /// Who sends this process's notifications.
    origin: String,
    queue: Queue,
    control: Queue,
    gate: Gate,
    hooks: Arc<Hooks>,
    cache: Cache,
    owned: Owned,
    flight: Flight,
    watchers: Watchers,
    hearing: Hearing,
    tell: mpsc::UnboundedSender<Tell>,
    pool: Pool,
    /// Renewals, and nothing that could keep them waiting.
    renewals: Slot,
    /// The poll, and what nodes do now and then.
    upkeep: Slot,
    presences: Mutex<HashMap<String, Option<Presence>>>,
    observations: Mutex<HashMap<String, Observations>>,
    /// The application name of the writers' connections.
    name: Mutex<String>,
    /// Lease clock minus own clock, as any writer last saw it.
    lease_offset: AtomicI64,
    fault: Mutex<Option<Fault>>,
    hold: Arc<tokio::sync::Mutex<()>>,
}

impl Shared {
    /// The clock leases are judged by, as far as this process knows it. What a writer remembers of a session was read
    /// or written before, by it or another, and with it the clock was seen.
    fn lease_ms(&self) -> i64 {
        self.clock.boottime_ms() + self.lease_offset.load(Ordering::Relaxed)
    }

    fn see_lease(&self, offset: i64) {
        self.lease_offset.store(offset, Ordering::Relaxed);
    }

    fn take_fault(&self) -> Option<Fault> {
        self.fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn presences(&self) -> std::sync::MutexGuard<'_, HashMap<String, Option<Presence>>> {
        self.presences
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The quiet time of a claim, by what this process has seen on its own clock, too (R10).
    fn quieted(&self, taker: &Incarnation, taken: Acquire) -> Acquire {
        let observations = self.observations.lock();
        let mut observations = observations.unwrap_or_else(PoisonError::into_inner);
        let seen = observations.entry(taker.as_str().to_owned()).or_default();
        seen.quiet(self.clock.boottime_ms(), taken, &self.switches)
    }

    /// A node of this process is no more.
    fn gone(&self, incarnation: &str, news: bool) {
        self.owned.leave(incarnation);
        drop(self.presences().remove(incarnation));
        let observations = self.observations.lock();
        let mut observations = observations.unwrap_or_else(PoisonError::into_inner);
        observations.remove(incarnation);
        drop(observations);
        if news {
            self.wake_everybody();
        }
    }

    /// The incarnation that others find on the server for this process.
    fn set_name(&self, name: String) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    fn name(&self) -> String {
        self.name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A writer's connection, to a server that writes, with what a failover lost found out.
    async fn connect_writer(
        &self,
        purpose: Use,
        number: usize,
        name: &str,
    ) -> Result<Conn, String> {
        let conn = self.maker.connect(purpose, name).await;
        let conn = conn.map_err(|error| error.to_string())?;
        let rewound = self
            .owned
            .compare(&conn, (purpose, number), &self.cache)
            .await;
        let rewound = rewound.map_err(|trouble| trouble.words())?;
        self.wake(&rewound);
        Ok(conn)
    }
}

/// A thread with a runtime of its own, for as long as the store is open.
struct Engine {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Engine {
    /// Starts the thread; its runtime's handle.
    fn start(name: &str) -> std::io::Result<(Self, Handle)> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
                // Tasks that still wait for something go with it.
                runtime.shutdown_background();
            })?;
        let engine = Self {
            thread: Some(thread),
            stop: Some(stop),
        };
        Ok((engine, handle))
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A store in a PostgreSQL database. Cheap to share; dropping the last handle finishes what is queued and closes.
pub struct PostgresStore {
    shared: Arc<Shared>,
    io: Handle,
    engines: Vec<Engine>,
    /// Ends when the writers of appends have done everything that was queued.
    written: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore")
            .field("place", &self.shared.maker.place)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store that `url` names, making or updating its schema as far as `options.opening` allows. Blocks until the server answered, some
    /// seconds at most when it does not. Works from inside and outside of a runtime: the store has its own threads.
    ///
    /// Errors say what is wrong with the URL, the server or the rights; none holds the password.
    pub fn open(url: &str, options: Options) -> Result<Arc<Self>, OpenError> {
        let place = Arc::new(Place::parse(url)?);
        let no_thread = |error: std::io::Error| OpenError::Other {
            path: place.shown.clone(),
            detail: format!("the store's threads cannot be started: {error}"),
        };
        let (io_engine, io) = Engine::start("store-io").map_err(no_thread)?;
        let mut engines = Vec::new();
        let mut writers = Vec::new();
        for _ in 0..APPENDERS {
            let (engine, writer) = Engine::start("store-writer").map_err(no_thread)?;
            engines.push(engine);
            writers.push(writer);
        }
        engines.push(io_engine);
        let opened = Self::prepare(&place, &options, &io);
        let maker = match opened {
            Ok(maker) => maker,
            Err(error) => {
                engines.iter_mut().for_each(Engine::end);
                return Err(error);
            }
        };
        let (tell, told) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            pool: Pool::new(maker.clone()),
            renewals: Slot::new(maker.clone(), Use::Control),
            upkeep: Slot::new(maker.clone(), Use::Read),
            switches: options.switches(),
            silent_is_gone: options.silent_is_gone(),
            events_only: options.events_only(),
            watchers: Watchers::new(options.switches()),
            clock: options.clock,
            origin: uuid::Uuid::new_v4().simple().to_string(),
            queue: Queue::of(APPENDERS),
            control: Queue::of(INTERRUPTERS),
            gate: Gate::default(),
            hooks: Arc::default(),
            cache: Cache::default(),
            owned: Owned::default(),
            flight: Flight::default(),
            hearing: Hearing::default(),
            tell,
            presences: Mutex::default(),
            observations: Mutex::default(),
            name: Mutex::new("tenure".to_owned()),
            lease_offset: AtomicI64::new(0),
            fault: Mutex::default(),
            hold: Arc::default(),
            maker,
        });
        let (done, written) = std::sync::mpsc::channel();
        for (number, writer) in writers.into_iter().enumerate() {
            let appends = Writer::new(Arc::clone(&shared), APPENDS, number);
            let done = done.clone();
            writer.spawn(async move {
                let _done = done;
                appends.run().await;
            });
        }
        for number in 0..INTERRUPTERS {
            io.spawn(Writer::new(Arc::clone(&shared), INTERRUPTS, number).run());
        }
        io.spawn(wakes::notify(Arc::clone(&shared), told));
        if !shared.maker.pooled {
            io.spawn(wakes::listen(Arc::clone(&shared)));
        }
        if !shared.events_only {
            io.spawn(wakes::poll(Arc::downgrade(&shared)));
        }
        Ok(Arc::new(Self {
            shared,
            io,
            engines,
            written: Mutex::new(Some(written)),
        }))
    }

    /// Makes sure of the server, its schema, and how it is reached.
    fn prepare(place: &Arc<Place>, options: &Options, io: &Handle) -> Result<Maker, OpenError> {
        let mut maker = Maker {
            tls: Tls::new(place)?,
            dialect: Arc::new(Dialect::new(place.quoted_schema())),
            place: Arc::clone(place),
            pooled: false,
        };
        let (wall_ms, shown) = (options.clock.wall_ms(), place.shown.clone());
        let opening = options.opening;
        let (told, answer) = std::sync::mpsc::channel();
        io.spawn(async move {
            let prepared = async {
                maker.pooled = pooler::is_pooled(&maker).await?;
                migrate::prepare(&maker, opening, wall_ms).await?;
                Ok(maker)
            };
            let _ = told.send(prepared.await);
        });
        let maker = answer.recv().unwrap_or_else(|_| {
            Err(OpenError::Other {
                path: shown,
                detail: "an internal error; the log says where".to_owned(),
            })
        })?;
        if maker.pooled {
            tracing::warn!(
                place = maker.place.shown,
                "behind a transaction-mode pooler: reduced mode, without LISTEN, presence or prepared statements; \
                 wakes come by the poll of 1 s. Name the server itself for the full one"
            );
        }
        Ok(maker)
    }

    /// The store's URL without its password.
    pub fn place(&self) -> &str {
        &self.shared.maker.place.shown
    }

    /// A transaction-mode pooler stands before the server: wakes come by the poll alone.
    pub fn is_reduced(&self) -> bool {
        self.shared.maker.pooled
    }

    /// Test aid: this process's node dies as if its process had been killed, for as much as others can see. Blocks
    /// until the server has noticed.
    #[cfg(feature = "testing")]
    pub fn crash_node(&self, incarnation: &Incarnation) {
        let shared = Arc::clone(&self.shared);
        drop(shared.presences().remove(incarnation.as_str()));
        let key = presence::key(&shared.maker.place.schema, incarnation.as_str());
        let (done, noticed) = std::sync::mpsc::channel();
        self.io.spawn(async move {
            loop {
                if let Ok(conn) = shared.pool.get().await
                    && let Ok(Some(row)) = conn
                        .first(
                            "SELECT pg_try_advisory_lock_shared($1) AND pg_advisory_unlock_shared($1)",
                            sql::params![INT8: key],
                        )
                        .await
                    && row.get(0)
                {
                    let _ = done.send(());
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        });
        let _ = noticed.recv();
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

    /// Test aid: the writers take up nothing new until the guard is dropped. Outside of a runtime's threads it
    /// blocks while a batch is under way.
    #[cfg(feature = "testing")]
    pub fn hold_writer(&self) -> Box<dyn Send> {
        loop {
            if let Ok(guard) = Arc::clone(&self.shared.hold).try_lock_owned() {
                return Box::new(guard);
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.control.close();
        let written = self
            .written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A hook that owns the last handle drops it on the writer's own thread, which cannot wait for itself.
        let own = self.engines.iter().any(|engine| {
            let thread = engine.thread.as_ref();
            thread.is_some_and(|thread| thread.thread().id() == std::thread::current().id())
        });
        if !own && let Some(written) = written {
            let _ = written.recv_timeout(std::time::Duration::from_secs(15));
        }
        self.shared.presences().clear();
        self.engines.iter_mut().for_each(Engine::end);
    }
}
