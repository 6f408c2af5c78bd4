//! The owner's pen: fenced appends of one session, and the turn's memory that only commits change.
//!
//! The write slot (fence and `write_no`) travels *with* the append into the store's after-commit hook, so
//! a caller that is dropped at any await leaves it consistent: the hook applies the committed events to
//! [`TurnState`], moves `write_no` on, and only then gives the slot back. When there is no commit, whoever
//! is there takes the slot back: the caller, or, if it was dropped, the next one that wants to write.

use crate::complaint::Complaint;
use crate::environment::{Environment, facts};
use crate::load;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::{EventId, SessionId};
use tenure_core::turn::TurnState;
use tenure_store::{Append, AppendError, Committed, Fence, Guard, HookOp, Lane, ReadError, Store};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio_util::sync::CancellationToken;

/// What only the holder of the slot may use.
#[derive(Debug)]
struct Slot {
    fence: Fence,
    /// Event ids of an append whose answer has not been seen (R3); it may have none.
    unresolved: Option<Vec<EventId>>,
}

/// The slot while an append has it: taken out by the hook, or by who learns that there is no commit.
type Cell = Arc<Mutex<Option<OwnedMutexGuard<Slot>>>>;

/// Says, once dropped before its time, that nobody waits for the append's answer any more.
struct Flight {
    cell: Cell,
    abandoned: Arc<watch::Sender<Option<Cell>>>,
    answered: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.answered {
            self.abandoned.send_replace(Some(self.cell.clone()));
        }
    }
}

fn take_back(cell: &Cell) -> Option<OwnedMutexGuard<Slot>> {
    cell.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// What the turn's memory is kept in. A hook that panics half-way leaves the lock poisoned: that says that the
/// memory is not to be trusted until it is folded from the log again.
#[derive(Default)]
struct Memory {
    turn: Mutex<TurnState>,
    /// The next application panics.
    #[cfg(test)]
    trip: std::sync::atomic::AtomicBool,
}

impl Memory {
    fn turn(&self) -> MutexGuard<'_, TurnState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, committed: &Committed) {
        let mut turn = self.turn();
        #[cfg(test)]
        if self.trip.swap(false, std::sync::atomic::Ordering::SeqCst) {
            panic!("on purpose");
        }
        for event in &committed.events {
            turn.apply(event);
        }
    }

    fn is_broken(&self) -> bool {
        self.turn.is_poisoned()
    }

    fn load(&self, fold: TurnState) {
        *self.turn() = fold;
        self.turn.clear_poison();
    }
}

/// The first wait for a store that is away; each wait is twice the one before, up to sixteen times this.
const RETRY_FIRST: Duration = Duration::from_millis(25);
/// From this try on, most of a second behind the first, people are told.
const TOLD_FROM: u32 = 5;

/// A batch with its ids, to be tried until the store says what became of it.
struct Write {
    guard: Guard,
    lane: Lane,
    events: Vec<NewEvent>,
    ops: Vec<HookOp>,
}

/// The store could not do it, and may do it later.
fn is_away(error: &AppendError) -> bool {
    matches!(
        error,
        AppendError::Unavailable { .. } | AppendError::Unknown { .. }
    )
}

/// A batch to be appended.
#[derive(Debug)]
pub(crate) struct Batch {
    pub guard: Guard,
    pub lane: Lane,
    pub events: Vec<EventBody>,
    pub ops: Vec<HookOp>,
}

impl Batch {
    /// Starts something: refused under `cancelling`.
    pub fn start(events: Vec<EventBody>, ops: Vec<HookOp>) -> Self {
        Self {
            guard: Guard::Running,
            lane: Lane::Control,
            events,
            ops,
        }
    }

    /// Records or settles what happened.
    pub fn settle(events: Vec<EventBody>, ops: Vec<HookOp>) -> Self {
        Self {
            guard: Guard::Settling,
            ..Self::start(events, ops)
        }
    }

    /// A text checkpoint.
    pub fn text(events: Vec<EventBody>) -> Self {
        Self {
            lane: Lane::Text,
            ..Self::settle(events, Vec::new())
        }
    }
}

/// The owner's pen. Clones write to the same session under the same fence, one after the other.
#[derive(Clone)]
pub(crate) struct Writer {
    store: Arc<dyn Store>,
    env: Arc<dyn Environment>,
    pub(crate) session: SessionId,
    /// As it was at the acquisition.
    fence: Fence,
    slot: Arc<tokio::sync::Mutex<Slot>>,
    /// The last append whose caller was dropped.
    abandoned: Arc<watch::Sender<Option<Cell>>>,
    memory: Arc<Memory>,
    patience: Option<Patience>,
}

/// How an owner waits for a store that is away.
#[derive(Clone)]
struct Patience {
    /// Until this.
    fenced: CancellationToken,
    /// What is said of it, one for all sessions of a process.
    unwritten: Arc<Complaint>,
}

impl Writer {
    pub fn new(
        store: Arc<dyn Store>,
        env: Arc<dyn Environment>,
        session: SessionId,
        fence: Fence,
    ) -> Self {
        Self {
            store,
            env,
            session,
            fence: fence.clone(),
            slot: Arc::new(tokio::sync::Mutex::new(Slot {
                fence,
                unresolved: None,
            })),
            abandoned: Arc::new(watch::Sender::new(None)),
            memory: Arc::default(),
            patience: None,
        }
    }

    /// Waits for a store that cannot be written until `fenced`: an outage shorter than the lease is only a delay.
    #[must_use]
    pub fn patient_until(mut self, fenced: CancellationToken, unwritten: Arc<Complaint>) -> Self {
        self.patience = Some(Patience { fenced, unwritten });
        self
    }

    /// Before another try at a store that was away with `error`, the `n`-th: false when this owner's time is up.
    async fn may_try_again(&self, n: u32, error: &AppendError) -> bool {
        let Some(patience) = &self.patience else {
            return false;
        };
        if n >= TOLD_FROM && patience.unwritten.again(self.env.boot_ms()) {
            tracing::warn!(session = %self.session, %error, "the store refuses writes; what runs waits for it");
        }
        let wait = RETRY_FIRST.saturating_mul(1 << n.min(4));
        tokio::select! {
            biased;
            () = patience.fenced.cancelled() => false,
            () = self.env.sleep(wait) => true,
        }
    }

    /// The store took a write, at the `n`-th try.
    fn written(&self, n: u32) {
        if n >= TOLD_FROM
            && let Some(patience) = &self.patience
            && let Some(away_ms) = patience.unwritten.over(self.env.boot_ms())
        {
            tracing::warn!(away_ms, "the store takes writes again");
        }
    }

    /// Sets the memory to the fold of the log, before this owner has written anything that matters to it.
    pub fn load(&self, fold: TurnState) {
        self.memory.load(fold);
    }

    /// The turn's memory as of the last commit.
    pub fn turn(&self) -> MutexGuard<'_, TurnState> {
        self.memory.turn()
    }

    /// The fence of the acquisition: its claim, epoch and owner hold as long as tenure does.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Appends one batch. Cancellation safe: once the store has it, it is carried out, hook included,
    /// whether or not this future is still there.
    pub async fn append(&self, batch: Batch) -> Result<Committed, AppendError> {
        match self.append_with(|_| Some(batch)).await? {
            Some(committed) => Ok(committed),
            None => Err(AppendError::StaleClaim {
                session: self.session.clone(),
            }),
        }
    }

    /// Appends what `decide` makes of the turn's memory, with no other append in between; nothing when it
    /// returns `None`.
    pub async fn append_with(
        &self,
        decide: impl FnOnce(&TurnState) -> Option<Batch> + Send,
    ) -> Result<Option<Committed>, AppendError> {
        let mut slot = self.slot().await;
        let mut tries = 0;
        while slot.unresolved.is_some() {
            match self.resolve(&mut slot).await {
                Ok(_) => break,
                Err(error) if is_away(&error) && self.may_try_again(tries, &error).await => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
        let batch = decide(&self.turn());
        let Some(batch) = batch else {
            return Ok(None);
        };
        let events: Vec<NewEvent> = {
            let facts = facts(self.env.as_ref());
            batch
                .events
                .into_iter()
                .map(|body| NewEvent {
                    id: facts.event(),
                    created_ms: facts.now_ms,
                    body,
                })
                .collect()
        };
        let write = Write {
            guard: batch.guard,
            lane: batch.lane,
            events,
            ops: batch.ops,
        };
        let mut tries = 0;
        loop {
            let (result, back) = self.try_once(slot, &write).await;
            let (Err(error), Some(kept)) = (&result, back) else {
                self.written(tries);
                return result.map(Some);
            };
            // Nothing was written, or nobody knows yet: the same events under the same ids, or not at all.
            slot = kept;
            if !is_away(error) || !self.may_try_again(tries, error).await {
                return result.map(Some);
            }
            tries += 1;
            if slot.unresolved.is_some()
                && let Some(committed) = self.resolve_patiently(&mut slot, &mut tries).await?
            {
                return Ok(Some(committed));
            }
        }
    }

    async fn resolve_patiently(
        &self,
        slot: &mut OwnedMutexGuard<Slot>,
        tries: &mut u32,
    ) -> Result<Option<Committed>, AppendError> {
        loop {
            match self.resolve(slot).await {
                Err(error) if is_away(&error) && self.may_try_again(*tries, &error).await => {
                    *tries += 1;
                }
                other => return other,
            }
        }
    }

    /// One try. The slot comes back when no commit took it.
    async fn try_once(
        &self,
        mut slot: OwnedMutexGuard<Slot>,
        write: &Write,
    ) -> (
        Result<Committed, AppendError>,
        Option<OwnedMutexGuard<Slot>>,
    ) {
        let fence = slot.fence.clone();
        // Until the answer is known the append counts as open; the hook or the refusal closes it.
        slot.unresolved = Some(write.events.iter().map(|event| event.id.clone()).collect());
        let cell: Cell = Arc::new(Mutex::new(Some(slot)));
        let mut flight = Flight {
            cell: cell.clone(),
            abandoned: self.abandoned.clone(),
            answered: false,
        };
        let memory = self.memory.clone();
        let append = Append {
            session: self.session.clone(),
            fence: Some(fence),
            guard: write.guard,
            events: write.events.clone(),
            ops: write.ops.clone(),
            lane: write.lane,
            after_commit: Some(Box::new(move |committed| {
                memory.apply(committed);
                if let Some(mut slot) = take_back(&cell) {
                    slot.fence.write_no = committed.write_no;
                    slot.unresolved = None;
                }
            })),
        };
        let result = self.store.append(append).await;
        flight.answered = true;
        // Nothing to take back: the hook ran.
        let Some(mut slot) = take_back(&flight.cell) else {
            return (result, None);
        };
        match result {
            // Durable without its hook, which only a store that breaks its contract does, or of unknown fate.
            Ok(_) | Err(AppendError::Unknown { .. }) => match self.resolve(&mut slot).await {
                Ok(Some(committed)) => (Ok(committed), None),
                Ok(None) => (result, Some(slot)),
                Err(error) => (Err(error), Some(slot)),
            },
            Err(error) => {
                slot.unresolved = None;
                (Err(error), Some(slot))
            }
        }
    }

    /// The slot, once no append has it.
    async fn slot(&self) -> OwnedMutexGuard<Slot> {
        let mut abandoned = self.abandoned.subscribe();
        loop {
            let left = abandoned.borrow_and_update().clone();
            if let Some(cell) = left
                && self.slot.try_lock().is_err()
            {
                // Appends of a session are answered in order: behind this one, the abandoned one is over.
                let behind = Append::unfenced(self.session.clone(), Vec::new());
                if let Err(error) = self.store.append(behind).await {
                    tracing::debug!(session = %self.session, %error, "while waiting for an append");
                }
                self.abandoned.send_if_modified(|left| {
                    left.take_if(|left| Arc::ptr_eq(left, &cell));
                    false
                });
                if let Some(slot) = take_back(&cell) {
                    return slot;
                }
            }
            tokio::select! {
                biased;
                slot = self.slot.clone().lock_owned() => return slot,
                // The sender lives in self.
                _ = abandoned.changed() => {}
            }
        }
    }

    /// Learns whether the open append is in the log (R3), before anything else is written. Whoever is dropped in
    /// here leaves it open for the next one.
    async fn resolve(
        &self,
        slot: &mut OwnedMutexGuard<Slot>,
    ) -> Result<Option<Committed>, AppendError> {
        let fence = slot.fence.clone();
        let ids = slot.unresolved.clone().unwrap_or_default();
        let ask = || self.store.resolve(&self.session, &fence, &ids);
        let found = match ask().await {
            // The hook ran at the resolution, and panicked: asked again, the store just tells.
            Err(AppendError::Unknown { .. }) => ask().await?,
            other => other?,
        };
        match &found {
            Some(committed) => {
                if self.memory.is_broken() {
                    self.reload().await?;
                }
                self.memory.apply(committed);
                slot.fence.write_no = committed.write_no;
            }
            None => slot.fence = fence.given_up(),
        }
        slot.unresolved = None;
        Ok(found)
    }

    /// Folds the memory from the log: a hook panicked over it.
    async fn reload(&self) -> Result<(), AppendError> {
        tracing::error!(session = %self.session, "the turn's memory is broken; folding the log again");
        match load::load(self.store.as_ref(), &self.session).await {
            Ok(loaded) => {
                self.memory.load(loaded.state.turn);
                Ok(())
            }
            Err(ReadError::Unavailable { reason } | ReadError::Outdated { reason }) => {
                Err(AppendError::Unavailable { reason })
            }
            Err(error) => Err(AppendError::Rejected {
                session: self.session.clone(),
                reason: error.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
