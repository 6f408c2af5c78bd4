//! The lease on a clock under the test's hand: what counts from when, and what a pause does.

use super::*;
use crate::environment::{Environment, SystemEnvironment};
use crate::support::Bed;
use crate::weather::{Sky, Weather};
use futures::future::BoxFuture;
use tenure_core::facts::IdSource;
use tenure_store::ProcessId;

/// The system's world with a boot-time clock that stands until it is moved.
#[derive(Default)]
struct Stepped {
    clock: Arc<AtomicU64>,
    /// How much later than asked the next sleep ends.
    pause: Arc<AtomicU64>,
}

impl IdSource for Stepped {
    fn next_bits(&self) -> u128 {
        SystemEnvironment.next_bits()
    }
}

impl Environment for Stepped {
    fn now_ms(&self) -> i64 {
        SystemEnvironment.now_ms()
    }

    fn boot_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    fn random(&self) -> u64 {
        SystemEnvironment.random()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (clock, pause) = (Arc::clone(&self.clock), Arc::clone(&self.pause));
        Box::pin(async move {
            SystemEnvironment.sleep(duration).await;
            clock.fetch_add(pause.swap(0, Ordering::SeqCst), Ordering::SeqCst);
        })
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        SystemEnvironment.spawn(future);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        SystemEnvironment.blocking(work)
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        SystemEnvironment.end_leftover(process)
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}

struct Clockwork {
    bed: Bed,
    env: Arc<Stepped>,
    sky: Arc<Sky>,
    node: Node,
    living: Living,
}

impl Clockwork {
    /// A node that joined at 1000 ms, with a lease of 6 s and a margin of 1.5 s.
    async fn new() -> Self {
        let bed = Bed::new([]);
        let env = Arc::new(Stepped::default());
        env.clock.store(1_000, Ordering::SeqCst);
        let (store, sky) = Weather::over(&bed.store);
        let config = EngineConfig {
            env: env.clone(),
            ..bed.config.clone()
        };
        Self {
            node: Node::join(store, config).await.unwrap(),
            living: Living::default(),
            bed,
            env,
            sky,
        }
    }

    fn at(&self, ms: u64) {
        self.env.clock.store(ms, Ordering::SeqCst);
    }

    async fn tick(&self) {
        self.node.tick(&self.living, &|| {}).await;
    }

    /// May something start at this time?
    fn may_start_at(&self, ms: u64) -> bool {
        self.at(ms);
        self.node.may_start()
    }
}

#[tokio::test]
async fn the_lease_counts_from_before_the_renewal_was_sent() {
    let works = Clockwork::new().await;
    assert!(works.may_start_at(5_499) && !works.may_start_at(5_500));
    works.at(2_000);
    // The answer takes two seconds.
    let env = works.env.clone();
    let late = move || env.clock.store(4_000, Ordering::SeqCst);
    *works.sky.renewed.lock().unwrap() = Some(Box::new(late));
    works.tick().await;
    assert!(works.may_start_at(6_499));
    assert!(
        !works.may_start_at(6_500),
        "the store may have counted from 2000"
    );
}

#[tokio::test]
async fn a_renewal_that_fails_fences_only_when_the_lease_could_end() {
    let works = Clockwork::new().await;
    let life = works.node.life();
    works.sky.away.store(true, Ordering::SeqCst);
    works.at(5_499);
    works.tick().await;
    assert!(!life.fenced.is_cancelled());
    // Back from a pause within its lease: nothing starts, and nothing is given up for one failure.
    works.node.frozen.store(true, Ordering::SeqCst);
    works.tick().await;
    assert!(!works.node.may_start() && !life.fenced.is_cancelled());
    // With time for an answer, which takes real time.
    works.at(2_000);
    works.sky.away.store(false, Ordering::SeqCst);
    works.tick().await;
    assert!(works.node.may_start());
    works.sky.away.store(true, Ordering::SeqCst);
    works.at(2_000 + 4_500);
    works.tick().await;
    assert!(life.fenced.is_cancelled());
}

#[tokio::test]
async fn a_long_sleep_is_survived_by_who_was_not_declared_dead() {
    let works = Clockwork::new().await;
    let life = works.node.life();
    // A closed lid, far beyond the lease: nobody was there to judge.
    works.at(3_600_000);
    works.node.frozen.store(true, Ordering::SeqCst);
    assert!(!works.node.may_start());
    works.tick().await;
    assert!(works.node.may_start() && !life.fenced.is_cancelled());
    assert_eq!(works.node.life().incarnation, life.incarnation);
    // Declared dead meanwhile: a new life, and what it held is not charged.
    works.bed.store.leave(&life.incarnation).await.unwrap();
    works.tick().await;
    assert!(life.fenced.is_cancelled());
    assert_ne!(works.node.life().incarnation, life.incarnation);
    assert!(works.node.may_start());
}

#[tokio::test]
async fn a_new_life_begins_when_the_old_one_has_stopped() {
    let works = Clockwork::new().await;
    let life = works.node.life();
    let alive = works.living.begin();
    works.bed.store.leave(&life.incarnation).await.unwrap();
    let tick = works.node.tick(&works.living, &|| {});
    tokio::pin!(tick);
    tokio::select! {
        biased;
        () = &mut tick => panic!("something is still running"),
        () = life.fenced.cancelled() => {}
    }
    assert_eq!(works.node.life().incarnation, life.incarnation);
    drop(alive);
    tick.await;
    assert_ne!(works.node.life().incarnation, life.incarnation);
}

/// Whether something could be started at each of the renewals that `keep` makes, with `at_renewal` run after each.
async fn renewals_of_keep(
    works: Clockwork,
    many: usize,
    at_renewal: impl Fn(&Clockwork, usize) + Send + 'static,
) -> Vec<bool> {
    let works = Arc::new(works);
    let (told, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (looking, count) = (Arc::clone(&works), AtomicU64::new(0));
    let look = move || {
        let _ = told.send(looking.node.may_start());
        let nth = count.fetch_add(1, Ordering::SeqCst) as usize;
        at_renewal(&looking, nth);
    };
    *works.sky.renewed.lock().unwrap() = Some(Box::new(look));
    let stop = CancellationToken::new();
    let mut could_start = Vec::new();
    let seeing = async {
        while could_start.len() < many {
            could_start.push(seen.recv().await.unwrap());
        }
        stop.cancel();
    };
    tokio::join!(
        works.node.keep(stop.clone(), works.living.clone(), || {}),
        seeing
    );
    *works.sky.renewed.lock().unwrap() = None;
    could_start
}

#[tokio::test]
async fn a_slow_renewal_is_no_pause_and_an_overslept_one_is() {
    // The first answer takes all but 100 ms of what is left: the store is slow, and this process is awake.
    let slow = renewals_of_keep(Clockwork::new().await, 2, |works, nth| {
        if nth == 0 {
            works.at(1_000 + 4_400);
        }
    });
    assert_eq!(slow.await, [true, true]);
    // The sleep before the second takes three seconds longer than asked: nothing starts until it is answered.
    let paused = renewals_of_keep(Clockwork::new().await, 3, |works, nth| {
        if nth == 0 {
            works.env.pause.store(3_000, Ordering::SeqCst);
        }
    });
    assert_eq!(paused.await, [true, false, true]);
}

/// It does not wait for the end of its lease, says why, and does not come back, not even once the store is the old one.
#[tokio::test]
async fn a_node_whose_store_a_newer_program_changed_stops_for_good() {
    let works = Clockwork::new().await;
    let life = works.node.life();
    works.sky.newer.store(true, Ordering::SeqCst);
    let keep = works
        .node
        .keep(CancellationToken::new(), works.living.clone(), || {});
    keep.await;
    assert!(life.fenced.is_cancelled() && !works.node.may_start());
    assert_eq!(works.node.outdated().await, "the store has schema 99");
    assert_eq!(works.node.life().incarnation, life.incarnation);
    let rows = works.bed.store.nodes().await.unwrap();
    assert_eq!(rows.len(), 1, "its lease is left to end");
}
