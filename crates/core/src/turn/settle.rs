//! Closing what is open: the terminal facts of fragments, calls, attempts, steps and compactions, in the
//! order the log wants them (calls before their step, the step before its execution).

use super::{CallStatus, OpenCall, OpenPartKind, OpenStep, TurnState, short_hash};
use crate::error::SessionError;
use crate::event::EventBody;
use crate::event::body::*;
use crate::id::CallId;
use crate::provider::Finish;

/// Why everything open is closed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// An interrupt by a person.
    Interrupted,
    /// The same, but the owner was lost before it settled that; this is recovery.
    InterruptedAndLost,
    /// The drain budget of a shutdown ended.
    Shutdown,
    /// The owner was lost; this is recovery.
    Crashed,
    /// The location was replaced.
    Replaced,
    /// The step failed for this reason.
    Failed(SessionError),
}

impl Cause {
    fn step_error(&self) -> SessionError {
        match self {
            Self::Interrupted | Self::InterruptedAndLost => {
                SessionError::new("interrupted", "Interrupted by the user")
            }
            Self::Shutdown => SessionError::new("shutdown", "Stopped by a shutdown of the node"),
            Self::Crashed => SessionError::new(
                "crashed",
                "The process that ran this step was lost; what was open is settled here",
            ),
            Self::Replaced => {
                SessionError::new("stale_attachment", "The session's location was replaced")
            }
            Self::Failed(error) => error.clone(),
        }
    }

    /// The settlement of a call that is still open. The words go to the model.
    fn call(&self, call: &OpenCall) -> (ToolFailure, String) {
        let started = matches!(call.status, CallStatus::Started { .. });
        let not_executed = |why: &str| (ToolFailure::NotExecuted, format!("Not executed: {why}"));
        if call.executed {
            let why = "The provider returned no result for this call".to_owned();
            return (ToolFailure::Failed, why);
        }
        match self {
            _ if call.status == CallStatus::Streaming => {
                not_executed("the call's input never arrived whole")
            }
            Self::Interrupted if started => {
                (ToolFailure::Interrupted, "Tool execution interrupted".to_owned())
            }
            Self::Shutdown if started => (
                ToolFailure::Interrupted,
                "Tool execution interrupted by a shutdown; it may have had an effect".to_owned(),
            ),
            Self::Shutdown => not_executed("the node shut down before it began"),
            // It may have run to its end before anybody could stop it (P5).
            Self::InterruptedAndLost | Self::Crashed if started => (
                ToolFailure::OutcomeUnknown,
                "Outcome unknown: the process that ran this tool was lost after it had begun. It was \
                 not run again. Check what it did before you repeat it."
                    .to_owned(),
            ),
            Self::Interrupted | Self::InterruptedAndLost => {
                not_executed("Tool execution interrupted before it began")
            }
            Self::Crashed => not_executed("the process was lost before it began"),
            Self::Replaced => (
                ToolFailure::Stale,
                "The session's location was replaced while this call was open; its result is not used"
                    .to_owned(),
            ),
            Self::Failed(_) if started => (
                ToolFailure::OutcomeUnknown,
                "Outcome unknown: the step failed while this tool ran".to_owned(),
            ),
            Self::Failed(error) => not_executed(&error.message),
        }
    }
}

/// Ends every open fragment of the step.
fn end_fragments(step: &OpenStep) -> Vec<EventBody> {
    let mut out = Vec::new();
    for (index, part) in step.parts.iter().enumerate() {
        if let OpenPartKind::Fragment {
            open: true,
            bytes,
            hash,
            ..
        } = &part.kind
        {
            out.push(
                FragmentEnded {
                    message: step.message.clone(),
                    part: index as u32,
                    bytes: *bytes,
                    hash: short_hash(hash.clone()),
                    native: None,
                    partial: true,
                    superseded: false,
                }
                .into(),
            );
        }
    }
    out
}

fn open_calls(step: &OpenStep) -> impl Iterator<Item = &OpenCall> {
    step.calls()
        .filter(|call| call.status != CallStatus::Settled)
}

fn failed(step: &OpenStep, call: &CallId, failure: ToolFailure, text: String) -> EventBody {
    ToolFailed {
        message: step.message.clone(),
        call: call.clone(),
        failure,
        text,
        cut: None,
        native: None,
    }
    .into()
}

/// Settles every call that is still open, because of `cause`.
pub fn fail_unsettled_tools(step: &OpenStep, cause: &Cause) -> Vec<EventBody> {
    open_calls(step)
        .map(|call| {
            let (failure, text) = cause.call(call);
            failed(step, &call.call, failure, text)
        })
        .collect()
}

/// The end of an attempt nobody saw the end of: its usage and cost are unknown, and said to be.
fn end_attempt(step: &OpenStep) -> Option<EventBody> {
    step.attempt.map(|attempt| {
        AttemptEnded {
            message: step.message.clone(),
            attempt,
            finish: Finish::Error,
            raw_finish: None,
            usage: None,
            cost: None,
            error: None,
        }
        .into()
    })
}

/// Closes the open step: fragments, attempt, calls, terminal.
pub fn fail_step(step: &OpenStep, cause: &Cause) -> Vec<EventBody> {
    let mut out = end_fragments(step);
    let cost_unknown = step.attempt.is_some();
    out.extend(end_attempt(step));
    out.extend(fail_unsettled_tools(step, cause));
    out.push(
        StepFailed {
            message: step.message.clone(),
            error: cause.step_error(),
            usage: step.usage,
            cost: if cost_unknown { None } else { step.cost },
        }
        .into(),
    );
    out
}

/// Closes everything that is open, the execution excepted. Empty at a boundary.
pub fn settle(turn: &TurnState, cause: &Cause) -> Vec<EventBody> {
    let mut out = Vec::new();
    if let Some(compaction) = &turn.compaction {
        out.push(
            CompactionFailed {
                compaction: compaction.clone(),
                error: cause.step_error(),
                usage: None,
                cost: None,
            }
            .into(),
        );
    }
    if let Some(step) = &turn.step {
        out.extend(fail_step(step, cause));
    }
    out
}

/// The terminal of a step whose attempt ended and whose calls are settled.
pub fn end_step(step: &OpenStep) -> EventBody {
    let finish = step.ended.as_ref().map_or(Finish::Other, |end| end.finish);
    StepEnded {
        message: step.message.clone(),
        finish,
        usage: step.usage,
        cost: step.cost,
    }
    .into()
}
