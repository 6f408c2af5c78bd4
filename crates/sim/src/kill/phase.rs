//! What a killed process was in the middle of, as the log tells when the next owner begins.

use std::fmt;
use tenure_core::Event;
use tenure_core::event::EventBody;
use tenure_core::turn::{CallStatus, TurnState};

/// Where a kill hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// There was no session yet.
    NoSession,
    /// Nothing of it had begun to run.
    NotStarted,
    /// Between two steps.
    Boundary,
    /// A request was open.
    Response,
    /// Calls were durable, and a spawn of one of them was recorded.
    Tools,
    /// A step was open with no request and no call of it.
    BetweenCalls,
    /// The execution was over.
    Over,
}

impl Phase {
    /// All, in the order of a session's life.
    pub const ALL: [Self; 7] = [
        Self::NoSession,
        Self::NotStarted,
        Self::Boundary,
        Self::Response,
        Self::Tools,
        Self::BetweenCalls,
        Self::Over,
    ];

    /// Where the log stood when it ended.
    pub fn of(events: &[Event]) -> Self {
        let mut turn = TurnState::default();
        let mut ran = false;
        for event in events {
            turn.apply(event);
            ran |= matches!(event.body, EventBody::ExecutionStarted(_));
        }
        let Some(step) = &turn.step else {
            return match (&turn.execution, ran) {
                (Some(_), _) => Self::Boundary,
                (None, true) => Self::Over,
                (None, false) => Self::NotStarted,
            };
        };
        let started = |status: &CallStatus| matches!(status, CallStatus::Started { .. });
        if step.calls().any(|call| started(&call.status)) {
            Self::Tools
        } else if step.attempt.is_some() {
            Self::Response
        } else {
            Self::BetweenCalls
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSession => "before the session",
            Self::NotStarted => "admitted, not started",
            Self::Boundary => "between two steps",
            Self::Response => "request open",
            Self::Tools => "tools running",
            Self::BetweenCalls => "step open, nothing running",
            Self::Over => "after the end",
        })
    }
}
