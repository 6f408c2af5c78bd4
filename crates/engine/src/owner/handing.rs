//! Letting a session go to another node (R11), and going on with one that was given to this one.

use crate::error::DrainError;
use crate::runner::{DrainEnd, Runner};
use crate::writer::Batch;
use tenure_core::event::body::InputKind;
use tenure_core::id::{Incarnation, MessageId};
use tenure_core::message::Entry;
use tenure_core::turn::{CallStatus, TurnState};
use tenure_store::{HookOp, Tenure};

/// Does the open step wait for nothing but answers and calls that have not begun? Then whoever holds the session
/// can go on with it: its stream ended well, and nothing ambiguous is outstanding.
pub(crate) fn can_go_on(turn: &TurnState) -> bool {
    let Some(step) = &turn.step else {
        return false;
    };
    let waits =
        |status: &CallStatus| matches!(status, CallStatus::Called { .. } | CallStatus::Settled);
    turn.compaction.is_none()
        && step.attempt.is_none()
        && step.retry.is_none()
        && step.ended.as_ref().is_some_and(|end| end.clean)
        && step.calls().all(|call| {
            waits(&call.status) && (!call.executed || call.status == CallStatus::Settled)
        })
}

impl Runner {
    /// At a safe boundary: epoch + 1 to a named successor, or to nobody.
    pub(crate) async fn hand_over(&mut self) -> Result<DrainEnd, DrainError> {
        let (op, to) = self.hand_over_op().await;
        self.writer
            .append(Batch::start(Vec::new(), vec![op]))
            .await?;
        self.tell_successor(to).await;
        Ok(DrainEnd::HandedOver)
    }

    /// As [`Runner::hand_over`], in the middle of a step whose calls wait and are not launched any more.
    pub(crate) async fn hand_over_waiting(&mut self) -> Result<DrainEnd, DrainError> {
        let (op, to) = self.hand_over_op().await;
        let handed = self
            .writer
            .append_with(|turn| can_go_on(turn).then(|| Batch::start(Vec::new(), vec![op])))
            .await?;
        if handed.is_none() {
            // Nothing may have begun since the calls were held: whoever looks at the step next settles it.
            return Err(DrainError::LookAgain);
        }
        self.tell_successor(to).await;
        Ok(DrainEnd::HandedOver)
    }

    /// The operation that gives the session away, and to whom.
    pub(crate) async fn hand_over_op(&self) -> (HookOp, Option<Incarnation>) {
        let to = match &self.state.settings {
            Some(settings) => {
                let needs = (&settings.location, &settings.model);
                self.shared.successor(&self.session, needs).await
            }
            // Its log does not begin with its creation: whoever takes it says so.
            None => None,
        };
        let accept_ms = self.shared.config.accept_within.as_millis() as u64;
        let op = HookOp::HandOver {
            to: to.clone(),
            accept_ms,
        };
        (op, to)
    }

    /// Makes the successor look at once: its poll finds it anyway.
    pub(crate) async fn tell_successor(&self, to: Option<Incarnation>) {
        tracing::info!(session = %self.session, to = ?to, "handed over");
        if let Some(to) = to {
            self.shared.reach.hint(&self.session, Some(&to)).await;
        }
    }

    /// Takes up what was let go in good order: nothing to settle, nothing to recover. What an unfinished recovery
    /// of the owner before had still to do comes first.
    pub(crate) fn go_on(&mut self, tenure: &Tenure) {
        self.waiting = !self.state.turn.at_boundary();
        let Some(own) = &tenure.continuation else {
            return;
        };
        if self.synthetic().contains(own) {
            self.resume = Some(own.clone());
        } else {
            self.alone = self.is_next_alone(own);
        }
    }

    /// Inputs that Tenure itself wrote and that still wait.
    pub(crate) fn synthetic(&self) -> Vec<MessageId> {
        let written = |kind: &InputKind| matches!(kind, InputKind::Synthetic { .. });
        let inbox = self.state.inbox.iter();
        inbox
            .filter(|input| written(&input.kind))
            .map(|input| input.input.clone())
            .collect()
    }

    /// Was recovery's own input promoted by an owner that was lost before its step began? That step is still to
    /// come, and it runs alone.
    pub(crate) fn is_next_alone(&self, own: &MessageId) -> bool {
        let last = self.state.entries.last().map(AsRef::as_ref);
        self.state.wants_step && matches!(last, Some(Entry::Input { id, .. }) if id == own)
    }
}
