//! How the work on one input ended, read from the log alone: the same for whoever ran it.

use tenure_core::error::SessionError;
use tenure_core::event::body::{InputKind, InterruptReason};
use tenure_core::event::{Event, EventBody};
use tenure_core::id::MessageId;

/// How an input ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The execution that delivered it succeeded.
    Succeeded,
    /// The execution failed.
    Failed(SessionError),
    /// The execution was interrupted.
    Interrupted(InterruptReason),
    /// It was stopped before it started; it is still pending, parked.
    StoppedBeforeStart,
    /// It was taken back before it was delivered.
    Cancelled {
        /// By whom.
        by: String,
    },
    /// The session was set aside.
    Quarantined(SessionError),
}

/// Watches the events behind an input's admission for its outcome.
#[derive(Debug, Clone)]
pub struct OutcomeTracker {
    input: MessageId,
    delivered: bool,
    /// An interrupt came after the input: it applies to it (R5).
    interrupted: bool,
    /// A person's input came after that interrupt.
    woken: bool,
}

impl OutcomeTracker {
    /// For an input that is admitted.
    pub fn new(input: MessageId) -> Self {
        Self {
            input,
            delivered: false,
            interrupted: false,
            woken: false,
        }
    }

    /// Has the model been given the input?
    pub fn delivered(&self) -> bool {
        self.delivered
    }

    /// Takes the next event; the outcome when this event decides it.
    pub fn on(&mut self, event: &Event) -> Option<Outcome> {
        match &event.body {
            EventBody::InputPromoted(e) if e.input == self.input => {
                self.delivered = true;
                None
            }
            EventBody::InputCancelled(e) if e.input == self.input => {
                Some(Outcome::Cancelled { by: e.by.clone() })
            }
            EventBody::ExecutionSucceeded(_) if self.delivered => Some(Outcome::Succeeded),
            // `session.quarantined` follows in the same commit and says the same.
            EventBody::ExecutionFailed(e) if e.error.kind == "quarantined" => {
                Some(Outcome::Quarantined(e.error.clone()))
            }
            EventBody::ExecutionFailed(e) if self.delivered => {
                Some(Outcome::Failed(e.error.clone()))
            }
            EventBody::ExecutionFailed(e) if e.error.kind == tenure_core::budget::KIND => {
                Some(Outcome::Failed(SessionError::new(
                    e.error.kind.clone(),
                    format!("The prompt waits. {}", e.error.message),
                )))
            }
            // What waits behind a failed execution is parked with it (R4).
            EventBody::ExecutionFailed(e) => Some(Outcome::Failed(SessionError::new(
                e.error.kind.clone(),
                format!(
                    "The turn before this prompt failed, and the prompt waits: {}",
                    e.error.message
                ),
            ))),
            EventBody::ExecutionInterrupted(e) if self.delivered => {
                Some(Outcome::Interrupted(e.reason))
            }
            EventBody::ExecutionInterrupted(_) if self.interrupted && !self.woken => {
                Some(Outcome::StoppedBeforeStart)
            }
            // A later input wakes what the interrupt would have put to rest (R4).
            EventBody::InputAdmitted(e) if self.interrupted => {
                self.woken |= matches!(e.kind, InputKind::User { .. });
                None
            }
            EventBody::ExecutionInterrupted(_) => {
                (self.interrupted, self.woken) = (false, false);
                None
            }
            EventBody::InterruptRequested(e) if !self.delivered => {
                self.interrupted = true;
                e.execution.is_none().then_some(Outcome::StoppedBeforeStart)
            }
            EventBody::SessionQuarantined(e) => Some(Outcome::Quarantined(e.error.clone())),
            _ => None,
        }
    }
}
