//! A store with bad weather: away for a while, its hints lost, its renewals slow, a takeover's predecessor still
//! leased. Counts what is asked of it.

use crate::stores::Hurtable;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tenure_core::event::{EventRecord, NewEvent};
use tenure_core::id::{EventId, Incarnation, SessionId};
use tenure_core::inbox::PendingInput;
use tenure_store::*;
use tokio::sync::watch;

#[derive(Default)]
pub struct Sky {
    /// Every call fails.
    pub away: AtomicBool,
    /// No append is taken: there is no room for one.
    pub full: AtomicBool,
    /// The owner cannot look at what it holds.
    pub blind: AtomicBool,
    /// A newer program has changed what is under it.
    pub newer: AtomicBool,
    /// Nobody looks for what calls left but who takes their session.
    pub unswept: AtomicBool,
    /// Nothing is hinted.
    pub deaf: AtomicBool,
    /// What a takeover says of its predecessor, in milliseconds; 0 to let it be.
    pub quiet_ms: AtomicU64,
    /// Called after each renewal, before its answer.
    pub renewed: Mutex<Option<Box<dyn Fn() + Send>>>,
    asked: Mutex<BTreeMap<&'static str, u64>>,
}

impl Sky {
    /// Counts the question; false when it is not answered.
    fn is_fair(&self, what: &'static str) -> bool {
        *self.asked.lock().unwrap().entry(what).or_default() += 1;
        let blind = self.blind.load(Ordering::SeqCst) && matches!(what, "held" | "claim_phase");
        let full = self.full.load(Ordering::SeqCst) && what == "append";
        let unswept = self.unswept.load(Ordering::SeqCst) && what == "leftovers";
        !(blind || full || unswept || self.away.load(Ordering::SeqCst))
    }

    /// How often each method was called since the last time.
    pub fn take_asked(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// A store under a sky.
pub struct Weather {
    store: Arc<dyn Hurtable>,
    sky: Arc<Sky>,
}

impl Weather {
    pub fn over(store: &Arc<dyn Hurtable>) -> (Arc<Self>, Arc<Sky>) {
        let sky = Arc::new(Sky::default());
        let weather = Self {
            store: store.clone(),
            sky: sky.clone(),
        };
        (Arc::new(weather), sky)
    }
}

trait Away {
    fn away() -> Self;
}

macro_rules! away {
    ($($error:ident),*) => {$(
        impl Away for $error {
            fn away() -> Self {
                Self::Unavailable { reason: "a storm".to_owned() }
            }
        }
    )*};
}
away!(AppendError, ReadError, NodeError, DeleteError, ReplayError);

/// Methods that only pass on.
macro_rules! weather {
    (
        { $($own:tt)* }
        $(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*
    ) => {
        #[async_trait]
        impl Store for Weather {
            $($own)*
            $(async fn $name(&self, $($arg: $type),*) -> $result {
                if !self.sky.is_fair(stringify!($name)) {
                    return Err(Away::away());
                }
                self.store.$name($($arg),*).await
            })*
        }
    };
}

weather! {
    {
        fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
            if self.sky.deaf.load(Ordering::SeqCst) {
                return silent();
            }
            self.store.watch(session)
        }

        fn watch_all(&self) -> watch::Receiver<u64> {
            if self.sky.deaf.load(Ordering::SeqCst) {
                return silent();
            }
            self.store.watch_all()
        }

        async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError> {
            if !self.sky.is_fair("renew") {
                return Err(Away::away());
            }
            if self.sky.newer.load(Ordering::SeqCst) {
                let reason = "the store has schema 99".to_owned();
                return Err(NodeError::Outdated { reason });
            }
            let renewal = self.store.renew(incarnation).await;
            if let Some(renewed) = &*self.sky.renewed.lock().unwrap() {
                renewed();
            }
            renewal
        }

        async fn acquire(
            &self,
            session: &SessionId,
            incarnation: &Incarnation,
            even_if_idle: bool,
        ) -> Result<Acquire, AppendError> {
            if !self.sky.is_fair("acquire") {
                return Err(Away::away());
            }
            let mut acquired = self.store.acquire(session, incarnation, even_if_idle).await?;
            let quiet = self.sky.quiet_ms.load(Ordering::SeqCst);
            if let Acquire::Acquired(tenure) = &mut acquired
                && (tenure.taken_from.is_some() || !tenure.left.is_empty())
                && quiet > 0
            {
                tenure.quiet_ms = quiet;
            }
            Ok(acquired)
        }
    }
    fn append(append: Append) -> Result<Committed, AppendError>;
    fn resolve(session: &SessionId, fence: &Fence, ids: &[EventId]) -> Result<Option<Committed>, AppendError>;
    fn read(session: &SessionId, after: Option<u64>, limit: usize) -> Result<Page, ReadError>;
    fn fork(parent: &SessionId, through: u64, child: &SessionId, event: NewEvent) -> Result<Committed, AppendError>;
    fn delete(session: &SessionId) -> Result<(), DeleteError>;
    fn replay(session: &SessionId, events: Vec<EventRecord>) -> Result<Replayed, ReplayError>;
    fn session(session: &SessionId) -> Result<Option<SessionRow>, ReadError>;
    fn sessions(query: SessionQuery) -> Result<Vec<SessionRow>, ReadError>;
    fn claimable(limit: usize) -> Result<Vec<SessionRow>, ReadError>;
    fn inbox(session: &SessionId) -> Result<Vec<PendingInput>, ReadError>;
    fn effects(session: &SessionId) -> Result<Vec<EffectRow>, ReadError>;
    fn leftovers(limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError>;
    fn interrupt(interrupt: Interrupt) -> Result<Interrupted, AppendError>;
    fn join(node: NodeInfo) -> Result<(), NodeError>;
    fn drain(incarnation: &Incarnation) -> Result<(), NodeError>;
    fn leave(incarnation: &Incarnation) -> Result<(), NodeError>;
    fn resign(incarnation: &Incarnation) -> Result<(), NodeError>;
    fn reap(observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError>;
    fn nodes() -> Result<Vec<NodeRow>, NodeError>;
    fn adopt(session: &SessionId, incarnation: &Incarnation) -> Result<Acquire, AppendError>;
    fn claim_phase(session: &SessionId, fence: &Fence) -> Result<Option<ClaimView>, ReadError>;
    fn held(incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError>;
    fn claims() -> Result<Vec<ClaimRow>, ReadError>;
    fn put_checkpoint(session: &SessionId, checkpoint: Checkpoint) -> Result<(), ReadError>;
    fn checkpoints(session: &SessionId, version: u32) -> Result<Vec<Checkpoint>, ReadError>;
    fn gc() -> Result<GcReport, ReadError>;
    fn health() -> Result<StoreHealth, ReadError>;
}

/// A hint that never comes.
fn silent() -> watch::Receiver<u64> {
    static NEVER: std::sync::OnceLock<watch::Sender<u64>> = std::sync::OnceLock::new();
    NEVER.get_or_init(|| watch::Sender::new(0)).subscribe()
}
