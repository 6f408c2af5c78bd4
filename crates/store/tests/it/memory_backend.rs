//! The conformance suite over the store in memory.

use crate::sqlite_backend::HandClock;
use futures::stream::BoxStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::id::*;
use tenure_store::conformance::Backend;
use tenure_store::memory::{Copied, MemoryStore};
use tenure_store::mutation::{Mutation, Mutations};
use tenure_store::sqlite::Fault;
use tenure_store::*;

pub struct MemoryBackend {
    store: MemoryStore,
    other: MemoryStore,
    clock: Arc<HandClock>,
    databases: Arc<HandClock>,
    copied: Mutex<Option<Copied>>,
    mutations: Mutations,
}

pub fn fresh() -> Box<dyn Backend> {
    mutated(Mutations::default())
}

pub fn mutated(mutations: Mutations) -> Box<dyn Backend> {
    let clock = || Arc::new(HandClock::at(1_000_000));
    let (clock, databases) = (clock(), clock());
    let store = || MemoryStore::apart(clock.clone(), databases.clone(), mutations.clone());
    Box::new(MemoryBackend {
        store: store(),
        other: store(),
        mutations,
        clock,
        databases,
        copied: Mutex::default(),
    })
}

impl Backend for MemoryBackend {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }
    fn other_store(&self) -> Arc<dyn Store> {
        Arc::new(self.other.clone())
    }
    fn crash(&self, node: &Incarnation) {
        self.store.crash_node(node);
    }
    fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap();
        self.clock.0.fetch_add(by, Ordering::SeqCst);
        self.set_clock(by);
    }
    fn set_clock(&self, by_ms: i64) {
        self.databases.0.fetch_add(by_ms, Ordering::SeqCst);
    }
    fn copy(&self) {
        *self.copied.lock().unwrap() = Some(self.store.database().copy());
    }
    fn set_back(&self) {
        let copied = self.copied.lock().unwrap().take();
        self.store.database().set_back(copied.unwrap());
    }
    fn fail_next_commit(&self, fault: Fault) {
        self.store.fail_next_commit(fault);
    }
    fn hold_writer(&self) -> Box<dyn Send> {
        self.store.hold_writer()
    }
    fn bytes(&self) -> u64 {
        self.store.bytes()
    }
    fn follow(
        &self,
        session: SessionId,
        after: Option<u64>,
    ) -> BoxStream<'static, Result<FollowItem, ReadError>> {
        if self.mutations.on(Mutation::FollowSubscribesLate) {
            tenure_store::follow::follow_subscribing_late(self.store(), session, after)
        } else {
            tenure_store::follow(self.store(), session, after)
        }
    }
}

tenure_store::conformance_tests!(fresh);
