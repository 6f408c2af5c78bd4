//! This process as a node: joining, renewing, fencing itself before its lease can end (R7, R13).

use crate::config::EngineConfig;
use crate::error::EngineError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::id::Incarnation;
use tenure_store::{NodeInfo, Renewal, Store};
use tenure_tools::guardian::LeaseDeadline;
use tokio_util::sync::CancellationToken;

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
        self.config.env.boot_ms() < self.deadline_ms.load(Ordering::Acquire)
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

    /// The lease counts from the reading taken *before* the renewal was sent.
    fn extend_from(&self, before_ms: u64) {
        let good_for = self.config.lease - self.config.margin;
        let deadline = before_ms + good_for.as_millis() as u64;
        self.deadline_ms.store(deadline, Ordering::Release);
        self.life().lease.set(Duration::from_millis(deadline));
    }

    /// Renews for ever; returns when `stop` is cancelled. After a fence it joins again as a new
    /// incarnation and calls `reborn`.
    pub async fn keep(&self, stop: CancellationToken, reborn: impl Fn() + Send + Sync) {
        let env = self.config.env.clone();
        let mut last_tick = env.boot_ms();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = env.sleep(self.config.renew_every) => {}
            }
            let now = env.boot_ms();
            let paused =
                now.saturating_sub(last_tick) > self.config.renew_every.as_millis() as u64 * 2;
            last_tick = now;
            if paused {
                // R13: freeze starts first, renew, then see whether we are still alive.
                tracing::warn!("this process was paused; renewing before anything else");
                self.deadline_ms.store(0, Ordering::Release);
            }
            self.tick(&reborn).await;
        }
    }

    async fn tick(&self, reborn: &(impl Fn() + Send + Sync)) {
        let env = &self.config.env;
        let before = env.boot_ms();
        let life = self.life();
        // After a pause nothing starts until the answer is here, so it may take its time (R13); otherwise work
        // stops before the lease can end, answer or not.
        let patience = match self.deadline_ms.load(Ordering::Acquire) {
            0 => self.config.lease,
            deadline => Duration::from_millis(deadline.saturating_sub(before)),
        };
        let answer = tokio::select! {
            biased;
            answer = self.store.renew(&life.incarnation) => Some(answer),
            () = env.sleep(patience) => None,
        };
        match answer {
            Some(Ok(Renewal::Renewed)) if !life.fenced.is_cancelled() => self.extend_from(before),
            // It stopped its work while the store was away: what it held is for whoever comes first, and it
            // begins anew.
            Some(Ok(Renewal::Renewed)) => {
                if let Err(error) = self.store.leave(&life.incarnation).await {
                    tracing::warn!(%error, "cannot leave yet");
                    return;
                }
                self.be_reborn(&life, reborn).await;
            }
            Some(Ok(Renewal::Dead)) => self.be_reborn(&life, reborn).await,
            Some(Err(error)) => {
                tracing::warn!(%error, "lease not renewed");
                if !self.may_start() {
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
        if !life.fenced.is_cancelled() {
            tracing::error!(incarnation = %life.incarnation, "the lease cannot be renewed in time; stopping all work");
            life.fenced.cancel();
        }
    }

    async fn be_reborn(&self, old: &Life, reborn: &(impl Fn() + Send + Sync)) {
        tracing::warn!(incarnation = %old.incarnation, "declared dead; coming back as a new incarnation");
        self.deadline_ms.store(0, Ordering::Release);
        old.fenced.cancel();
        let before = self.config.env.boot_ms();
        match new_life(self.store.as_ref(), &self.config, before).await {
            Ok(life) => {
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
    store
        .join(NodeInfo {
            incarnation: incarnation.clone(),
            name: config.name.clone(),
            address,
            serves: config.serves.clone(),
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
