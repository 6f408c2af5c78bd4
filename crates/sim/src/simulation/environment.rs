//! The world as one simulated process sees it: virtual time through a clock that may be wrong, seeded ids.

use super::executor::{Executor, Proc};
use super::ledger::Ledger;
use crate::chance::Chance;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::facts::IdSource;
use tenure_engine::Environment;
use tenure_store::ProcessId;

/// The wall clock at the beginning of every run, in milliseconds.
const EPOCH_MS: i64 = 1_750_000_000_000;

/// A machine: the clocks that all processes started on it read.
#[derive(Debug)]
pub struct Machine {
    /// What identifies its boot.
    pub boot_id: String,
    /// How far its wall clock is off, in milliseconds.
    wall_offset_ms: AtomicI64,
    /// What its boot-time clock showed at the beginning, in milliseconds.
    boot_base_ms: u64,
    /// How much too fast its clocks run, in millionths.
    drift_ppm: i64,
}

impl Machine {
    /// Machine `number` of the run.
    pub fn new(number: usize, chance: &mut Chance) -> Self {
        Self {
            boot_id: format!("boot-{number}"),
            wall_offset_ms: AtomicI64::new(0),
            boot_base_ms: 1_000 + chance.below(1 << 32),
            drift_ppm: chance.below(1_001) as i64 - 500,
        }
    }

    /// Sets the wall clock off by so much.
    pub fn jump(&self, by_ms: i64) {
        self.wall_offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn elapsed_micros(&self, executor: &Executor) -> u64 {
        let now = executor.now() as i64;
        (now + now / 1_000_000 * self.drift_ppm).max(0) as u64
    }

    /// Its boot-time clock, in milliseconds.
    pub fn boot_ms(&self, executor: &Executor) -> u64 {
        self.boot_base_ms + self.elapsed_micros(executor) / 1_000
    }

    /// Its wall clock, in milliseconds.
    pub fn wall_ms(&self, executor: &Executor) -> i64 {
        true_wall_ms(executor) + self.wall_offset_ms.load(Ordering::Relaxed)
    }
}

/// The right wall clock, in milliseconds.
pub fn true_wall_ms(executor: &Executor) -> i64 {
    EPOCH_MS + (executor.now() / 1_000) as i64
}

/// What the engine of one process takes from outside.
pub struct SimEnvironment {
    executor: Executor,
    proc: Proc,
    machine: Arc<Machine>,
    ledger: Arc<Ledger>,
    chance: Mutex<Chance>,
}

impl SimEnvironment {
    /// For a process that has just been started on `machine`.
    pub fn new(
        executor: Executor,
        proc: Proc,
        machine: Arc<Machine>,
        ledger: Arc<Ledger>,
        seed: u64,
    ) -> Self {
        Self {
            executor,
            proc,
            machine,
            ledger,
            chance: Mutex::new(Chance::of(seed, 0x1d_0000 + u64::from(proc.0))),
        }
    }

    fn draw(&self) -> u64 {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        chance.next()
    }
}

impl IdSource for SimEnvironment {
    fn next_bits(&self) -> u128 {
        u128::from(self.draw()) << 64 | u128::from(self.draw())
    }
}

impl Environment for SimEnvironment {
    fn now_ms(&self) -> i64 {
        self.machine.wall_ms(&self.executor)
    }

    fn boot_ms(&self) -> u64 {
        self.machine.boot_ms(&self.executor)
    }

    fn random(&self) -> u64 {
        self.draw()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.executor.sleep(duration))
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.executor.spawn_boxed(self.proc, future);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        Box::pin(async move { work() })
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        let (ledger, here) = (self.ledger.clone(), self.machine.boot_id.clone());
        let executor = self.executor.clone();
        Box::pin(async move {
            // Looking and killing takes a moment.
            executor.sleep_micros(2_000).await;
            // As the real one: what belongs to another boot is not on this machine.
            if process.boot_id == here {
                ledger.end_process(process.pid);
            }
            Ok(())
        })
    }

    fn is_local(&self, process: &ProcessId) -> bool {
        process.boot_id == self.machine.boot_id
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}
