//! The owner's pen: fenced appends of one session, and the turn's memory that only commits change.
//!
//! The write slot (fence and `write_no`) travels *with* the append into the store's after-commit hook, so
//! a caller that is dropped at any await leaves it consistent: the hook applies the committed events to
//! [`TurnState`], moves `write_no` on, and only then gives the slot back.

use crate::environment::{Environment, facts};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::{EventId, SessionId};
use tenure_core::turn::TurnState;
use tenure_store::{Append, AppendError, Committed, Fence, Guard, HookOp, Lane, Store};

/// What only the holder of the slot may use.
#[derive(Debug)]
struct Slot {
    fence: Fence,
    /// Event ids of an append whose answer has not been seen (R3).
    unresolved: Vec<EventId>,
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
    session: SessionId,
    slot: Arc<tokio::sync::Mutex<Slot>>,
    turn: Arc<Mutex<TurnState>>,
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
            slot: Arc::new(tokio::sync::Mutex::new(Slot {
                fence,
                unresolved: Vec::new(),
            })),
            turn: Arc::default(),
        }
    }

    /// Sets the memory to the fold of the log, before this owner has written anything that matters to it.
    pub fn load(&self, fold: TurnState) {
        *self.turn() = fold;
    }

    /// The turn's memory as of the last commit.
    pub fn turn(&self) -> MutexGuard<'_, TurnState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fence as of now; waits for an append in flight.
    pub async fn fence(&self) -> Fence {
        self.slot.lock().await.fence.clone()
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
        let mut slot = self.slot.clone().lock_owned().await;
        if !slot.unresolved.is_empty() {
            self.resolve(&mut slot).await?;
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
        let ids: Vec<EventId> = events.iter().map(|event| event.id.clone()).collect();
        let fence = slot.fence.clone();
        // Until the answer is known the append counts as open; the hook or the refusal closes it.
        slot.unresolved.clone_from(&ids);
        let turn = self.turn.clone();
        let append = Append {
            session: self.session.clone(),
            fence: Some(fence),
            guard: batch.guard,
            events,
            ops: batch.ops,
            lane: batch.lane,
            after_commit: Some(Box::new(move |committed| {
                apply(&turn, committed);
                slot.fence.write_no = committed.write_no;
                slot.unresolved.clear();
            })),
        };
        let result = self.store.append(append).await;
        match &result {
            Err(AppendError::Unknown { .. }) => {
                let mut slot = self.slot.clone().lock_owned().await;
                if slot.unresolved == ids {
                    return match self.resolve(&mut slot).await? {
                        Some(committed) => Ok(Some(committed)),
                        None => result.map(Some),
                    };
                }
            }
            Err(_) => {
                let mut slot = self.slot.lock().await;
                if slot.unresolved == ids {
                    slot.unresolved.clear();
                }
            }
            Ok(_) => {}
        }
        result.map(Some)
    }

    /// Learns whether the open append is in the log (R3), before anything else is written.
    async fn resolve(
        &self,
        slot: &mut tokio::sync::OwnedMutexGuard<Slot>,
    ) -> Result<Option<Committed>, AppendError> {
        let fence = slot.fence.clone();
        let ids = slot.unresolved.clone();
        let found = self.store.resolve(&self.session, &fence, &ids).await?;
        match &found {
            Some(committed) => {
                apply(&self.turn, committed);
                slot.fence.write_no = committed.write_no;
            }
            // The store raised `write_no` so that a late ghost fails its fence.
            None => slot.fence.write_no += 1,
        }
        slot.unresolved.clear();
        Ok(found)
    }
}

fn apply(turn: &Mutex<TurnState>, committed: &Committed) {
    let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    for event in &committed.events {
        turn.apply(event);
    }
}
