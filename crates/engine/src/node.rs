//! This process as a node: joining, renewing, fencing itself before its lease can end (R7, R13).

use crate::complaint::Complaint;
use crate::config::{EngineConfig, Scope};
use crate::engine::living::Living;
use crate::engine::rank::ASKED_ONLY;
use crate::error::EngineError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::id::Incarnation;
use tenure_store::{NodeError, NodeInfo, Renewal, Store};
use tenure_tools::guardian::LeaseDeadline;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How long what was told to stop may take before the node goes on without saying that it has.
const STOPPED_WITHIN: Duration = Duration::from_secs(2);

/// One life of this node: from a join to its end. A fenced node comes back as a new life.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub incarnation: Incarnation,
    /// Cancelled when this incarnation may no longer write or run anything.
    pub fenced: CancellationToken,
    /// Children die by themselves when this passes.
    pub lease: LeaseDeadline,
}

/// The node's current life and its deadline.
pub(crate) struct Node {
    store: Arc<dyn Store>,
    config: EngineConfig,
    life: Mutex<Life>,
    /// Boot-clock milliseconds after which this node must not act (0: fenced).
    deadline_ms: AtomicU64,
    /// Back from a pause and not yet renewed: nothing starts.
    frozen: AtomicBool,
    /// Renewals that fail.
    away: Complaint,
    /// Why it never will again: the store is a newer program's.
    outdated: watch::Sender<Option<String>>,
}

impl Node {
    /// Joins the store under a new incarnation.
    pub async fn join(store: Arc<dyn Store>, config: EngineConfig) -> Result<Self, EngineError> {
        let before = config.env.boot_ms();
        let life = new_life(store.as_ref(), &config, before).await?;
        let node = Self {
            store,
            life: Mutex::new(life),
            deadline_ms: AtomicU64::new(0),
            frozen: AtomicBool::new(false),
            away: Complaint::default(),
            outdated: watch::Sender::new(None),
            config,
        };
        node.extend_from(before);
        Ok(node)
    }

    pub fn life(&self) -> Life {
        self.life
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// May something new be started? False once the lease could have ended, seen on the boot-time clock.
    pub fn may_start(&self) -> bool {
        !self.frozen.load(Ordering::Acquire) && !self.is_over()
    }

    /// Could the lease have ended, seen on the boot-time clock?
    fn is_over(&self) -> bool {
        self.config.env.boot_ms() >= self.deadline_ms.load(Ordering::Acquire)
    }

    /// Waits until something may be started again: after a pause of this process, that is the next renewal
    /// (R13). False when `life` was fenced instead.
    pub async fn may_go_on(&self, life: &Life) -> bool {
        while !self.may_start() {
            tokio::select! {
                biased;
                () = life.fenced.cancelled() => return false,
                () = self.config.env.sleep(Duration::from_millis(20)) => {}
            }
        }
        !life.fenced.is_cancelled()
    }

    /// Resolves with the reason when this node has stopped for good, because the store is a newer program's. Cancellation
    /// safe.
    pub async fn outdated(&self) -> String {
        let mut told = self.outdated.subscribe();
        let why = told.wait_for(Option::is_some).await;
        why.ok().and_then(|why| why.clone()).unwrap_or_default()
    }

    /// The lease counts from the reading taken *before* the renewal was sent.
    fn extend_from(&self, before_ms: u64) {
        let good_for = self.config.lease - self.config.margin;
        let deadline = before_ms + good_for.as_millis() as u64;
        self.deadline_ms.store(deadline, Ordering::Release);
        self.frozen.store(false, Ordering::Release);
        self.life().lease.set(Duration::from_millis(deadline));
    }

    /// Renews for ever; returns when `stop` is cancelled, or when the store has become a newer program's. After a fence
    /// it waits until nothing of the old life is `living`, joins again as a new incarnation and calls `reborn`.
    pub async fn keep(
        &self,
        stop: CancellationToken,
        living: Living,
        reborn: impl Fn() + Send + Sync,
    ) {
        let env = self.config.env.clone();
        loop {
            let (asleep, rest) = (env.boot_ms(), self.next_tick());
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = env.sleep(rest) => {}
            }
            // Only what the sleep took too long: a renewal that was slow is the store's doing, and says nothing of
            // this process.
            let late = env
                .boot_ms()
                .saturating_sub(asleep + rest.as_millis() as u64);
            if late > self.config.renew_every.as_millis() as u64 {
                // R13: freeze starts first, renew, then see whether we are still alive.
                tracing::warn!("this process was paused; renewing before anything else");
                self.frozen.store(true, Ordering::Release);
            }
            self.tick(&living, &reborn).await;
            if self.outdated.borrow().is_some() {
                return;
            }
        }
    }

    /// The next renewal, or the end of the lease when that comes first: work stops then, not a renewal later.
    fn next_tick(&self) -> Duration {
        let now = self.config.env.boot_ms();
        match self.deadline_ms.load(Ordering::Acquire).saturating_sub(now) {
            0 => self.config.renew_every,
            left => self.config.renew_every.min(Duration::from_millis(left)),
        }
    }

    async fn tick(&self, living: &Living, reborn: &(impl Fn() + Send + Sync)) {
        let env = &self.config.env;
        let before = env.boot_ms();
        let life = self.life();
        if self.is_over() && !self.frozen.load(Ordering::Acquire) {
            self.fence(&life);
        }
        // Work stops before the lease can end, answer or not. After a pause beyond that nothing starts until the
        // answer is here, so it may take its time: not dead means that it goes on (R13).
        let left = self
            .deadline_ms
            .load(Ordering::Acquire)
            .saturating_sub(before);
        let patience = match left {
            0 => self.config.lease,
            left => Duration::from_millis(left),
        };
        let answer = tokio::select! {
            biased;
            answer = self.store.renew(&life.incarnation) => Some(answer),
            () = env.sleep(patience) => None,
        };
        if let Some(Ok(_)) = &answer
            && let Some(away_ms) = self.away.over(env.boot_ms())
        {
            tracing::warn!(away_ms, "the store takes renewals again");
        }
        match answer {
            Some(Ok(Renewal::Renewed)) if !life.fenced.is_cancelled() => {
                let late = broken!(self.config, RenewalMeasuredLate);
                self.extend_from(if late { env.boot_ms() } else { before });
            }
            // It stopped its work while the store was away: what it held is for whoever comes first, and it
            // begins anew.
            Some(Ok(Renewal::Renewed | Renewal::Dead)) => {
                self.be_reborn(&life, living, reborn).await;
            }
            // Not even a goodbye: what it would write is not known to be right any more. The lease ends by itself.
            Some(Err(NodeError::Outdated { reason })) => {
                tracing::error!(
                    reason,
                    "a newer version has changed the store; stopping for good"
                );
                self.deadline_ms.store(0, Ordering::Release);
                life.fenced.cancel();
                self.outdated.send_replace(Some(reason));
            }
            Some(Err(error)) => {
                if self.away.again(env.boot_ms()) {
                    tracing::warn!(%error, "lease not renewed");
                }
                if self.is_over() {
                    self.fence(&life);
                }
            }
            None => self.fence(&life),
        }
    }

    /// Stops all work of this life: its lease could end before an answer comes. Nothing starts from here on, so the
    /// next renewals may take their time: it must not be called off each time before its answer can come.
    fn fence(&self, life: &Life) {
        self.deadline_ms.store(0, Ordering::Release);
        if !life.fenced.is_cancelled() && !broken!(self.config, NoSelfFence) {
            tracing::error!(incarnation = %life.incarnation, "the lease cannot be renewed in time; stopping all work");
            life.fenced.cancel();
        }
    }

    /// Begins anew. That the old life has stopped by itself is said to the store, so that it is no crash to what it
    /// held (R8); others may have noticed before.
    async fn be_reborn(&self, old: &Life, living: &Living, reborn: &(impl Fn() + Send + Sync)) {
        tracing::warn!(old = %old.incarnation, "stopped or declared dead; coming back as a new incarnation");
        self.deadline_ms.store(0, Ordering::Release);
        old.fenced.cancel();
        let env = self.config.env.as_ref();
        if !living.gone(env, STOPPED_WITHIN).await {
            // Not to be said then: its lease ends by itself, and whoever takes over waits for that.
            tracing::error!(incarnation = %old.incarnation, "something of the old life does not stop");
        } else if let Err(error) = self.store.resign(&old.incarnation).await {
            tracing::warn!(%error, "cannot leave yet");
            return;
        }
        let before = self.config.env.boot_ms();
        match new_life(self.store.as_ref(), &self.config, before).await {
            Ok(life) => {
                tracing::warn!(old = %old.incarnation, incarnation = %life.incarnation, "came back as a new incarnation");
                *self.life.lock().unwrap_or_else(PoisonError::into_inner) = life;
                self.extend_from(before);
                reborn();
            }
            Err(error) => tracing::warn!(%error, "cannot join again yet"),
        }
    }
}

async fn new_life(
    store: &dyn Store,
    config: &EngineConfig,
    before_ms: u64,
) -> Result<Life, EngineError> {
    let incarnation = Incarnation::from_bits(config.env.next_bits());
    let address = config.peers().address(&incarnation);
    let mut serves = config.serves.clone();
    if config.scope == Scope::Asked {
        serves.labels.push(ASKED_ONLY.to_owned());
    }
    store
        .join(NodeInfo {
            incarnation: incarnation.clone(),
            name: config.name.clone(),
            address,
            serves,
            lease: config.lease,
        })
        .await?;
    Ok(Life {
        incarnation,
        fenced: CancellationToken::new(),
        // The environment's clock, as in every later renewal.
        lease: LeaseDeadline::at(Duration::from_millis(before_ms) + config.lease - config.margin),
    })
}

#[cfg(test)]
mod tests;
