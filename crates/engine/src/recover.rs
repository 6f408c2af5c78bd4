//! What a new owner does first: the fold says what is open, the phase is only its index (R9).

pub(crate) mod quiet;

use crate::config::EngineConfig;
use crate::error::DrainError;
use crate::writer::{Batch, Writer};
use tenure_core::claim::{
    CONTINUATION_AFTER_CRASH, CONTINUATION_AFTER_SHUTDOWN, continuation_id, recover,
};
use tenure_core::error::SessionError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_core::turn::settle::{Cause, settle};
use tenure_core::turn::{CallStatus, TurnState};
use tenure_store::{HookOp, Tenure};

/// What is left to do after recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Recovered {
    /// Normal life, from a safe boundary.
    GoOn,
    /// One step with nothing promoted but this input.
    Continue(MessageId),
    /// Nothing: the claim is gone.
    Over,
}

/// What a takeover is judged by.
pub(crate) struct Takeover<'a> {
    pub config: &'a EngineConfig,
    pub session: &'a SessionId,
    pub tenure: &'a Tenure,
    /// The waiting inputs that Tenure itself wrote.
    pub pending: &'a [MessageId],
    /// May something of the call be at work yet?
    pub left: Left<'a>,
    /// Is the input in the conversation?
    pub done: &'a (dyn Fn(&MessageId) -> bool + Sync),
}

/// Whether something of a call may be at work yet.
pub(crate) type Left<'a> = &'a (dyn Fn(&MessageId, &CallId) -> bool + Sync);

/// Settles what the log says is open and decides what follows. One commit.
pub(crate) async fn settle_takeover(
    writer: &Writer,
    takeover: &Takeover<'_>,
) -> Result<Recovered, DrainError> {
    let mut recovered = Recovered::GoOn;
    // Decided with the write slot held: an append whose fate was unknown is resolved before.
    let decide = |turn: &TurnState| {
        let (batch, what) = takeover_batch(turn, takeover);
        recovered = what;
        Some(batch)
    };
    writer.append_with(decide).await?;
    Ok(recovered)
}

fn takeover_batch(turn: &TurnState, takeover: &Takeover<'_>) -> (Batch, Recovered) {
    let Takeover {
        config,
        session,
        tenure,
        pending,
        left,
        done,
    } = takeover;
    let decision = recover(tenure.phase, turn, tenure.attempts, tenure.charged);
    let cause = match decision {
        RecoveryDecision::SettleOnly => Cause::InterruptedAndLost,
        _ => Cause::Crashed,
    };
    let mut events: Vec<EventBody> = vec![
        RecoveryStarted {
            execution: turn.execution.clone(),
            phase: tenure.phase,
            attempts: tenure.attempts,
            decision,
        }
        .into(),
    ];
    events.extend(settle(turn, &cause));
    if broken!(config, RecoveryForgetsTools) {
        events.retain(|event| !matches!(event, EventBody::ToolFailed(_)));
    }
    let mut ops = end_effects(turn, *left);
    if !turn.at_boundary() {
        ops.push(HookOp::Leave);
    }
    let recovered = match decision {
        RecoveryDecision::GoOn => match &tenure.continuation {
            Some(input) if pending.contains(input) => Recovered::Continue(input.clone()),
            _ => Recovered::GoOn,
        },
        RecoveryDecision::Continue => match &turn.step {
            Some(step) => {
                let input = if broken!(config, ContinuationNotDerived) {
                    MessageId::from_bits(config.env.next_bits())
                } else {
                    continuation_id(session, step.message.as_str())
                };
                if !pending.contains(&input) && !done(&input) {
                    events.push(synthetic(&input, CONTINUATION_AFTER_CRASH));
                }
                ops.push(HookOp::Continuation {
                    input: input.clone(),
                });
                Recovered::Continue(input)
            }
            None => Recovered::GoOn,
        },
        RecoveryDecision::SettleOnly => {
            events.extend(pending.iter().map(cancelled));
            events.extend(interrupted(turn, InterruptReason::User));
            ops.push(RELEASE);
            Recovered::Over
        }
        RecoveryDecision::Quarantine => {
            let error = quarantine_error(session, tenure.attempts);
            events.extend(pending.iter().map(cancelled));
            if let Some(execution) = &turn.execution {
                events.push(
                    ExecutionFailed {
                        execution: execution.clone(),
                        error: error.clone(),
                    }
                    .into(),
                );
            }
            ops.push(HookOp::Quarantine {
                reason: error.message.clone(),
            });
            events.push(
                SessionQuarantined {
                    error,
                    attempts: tenure.attempts,
                }
                .into(),
            );
            Recovered::Over
        }
    };
    let batch = match decision {
        RecoveryDecision::SettleOnly => Batch::settle(events, ops),
        // An interrupt that came since the takeover changes the decision: then this is refused.
        _ => Batch::start(events, ops),
    };
    (batch, recovered)
}

/// Settles an interrupt this owner was told of: everything open, the execution, the claim. One commit.
/// `own` are the pending inputs that Tenure itself wrote: they go with the execution they belonged to (R9).
/// `left` are the calls that left something behind, and `quiet` says for how long.
pub(crate) async fn settle_interrupt(
    writer: &Writer,
    own: &[MessageId],
    left: Left<'_>,
    quiet: Option<HookOp>,
) -> Result<(), DrainError> {
    writer
        .append_with(|turn| Some(interrupt_batch(turn, own, left, quiet)))
        .await?;
    Ok(())
}

fn interrupt_batch(
    turn: &TurnState,
    own: &[MessageId],
    left: Left<'_>,
    quiet: Option<HookOp>,
) -> Batch {
    let mut events = settle(turn, &Cause::Interrupted);
    events.extend(own.iter().map(cancelled));
    events.extend(interrupted(turn, InterruptReason::User));
    let mut ops = end_effects(turn, left);
    ops.extend(quiet);
    ops.push(RELEASE);
    Batch::settle(events, ops)
}

/// The end of a drain budget: settles an open step as stopped by a shutdown and hands the session over, with words
/// for the model. Uncharged (R11).
pub(crate) async fn settle_shutdown(
    writer: &Writer,
    session: &SessionId,
    left: Left<'_>,
    quiet: Option<HookOp>,
    hand_over: HookOp,
) -> Result<(), DrainError> {
    writer
        .append_with(|turn| Some(shutdown_batch(turn, session, left, quiet, hand_over)))
        .await?;
    Ok(())
}

fn shutdown_batch(
    turn: &TurnState,
    session: &SessionId,
    left: Left<'_>,
    quiet: Option<HookOp>,
    hand_over: HookOp,
) -> Batch {
    let mut events = settle(turn, &Cause::Shutdown);
    let mut ops = end_effects(turn, left);
    if let Some(step) = &turn.step {
        let input = continuation_id(session, step.message.as_str());
        events.push(synthetic(&input, CONTINUATION_AFTER_SHUTDOWN));
    }
    if !turn.at_boundary() {
        ops.push(HookOp::Leave);
    }
    ops.extend(quiet);
    ops.push(hand_over);
    // An interrupt that came meanwhile wins: then this is refused.
    Batch::start(events, ops)
}

/// Parking is left to the execution's terminal and to the interrupt: they know what came before them (R5).
const RELEASE: HookOp = HookOp::Release {
    only_when_idle: false,
    park: false,
};

fn interrupted(turn: &TurnState, reason: InterruptReason) -> Option<EventBody> {
    turn.execution.as_ref().map(|execution| {
        ExecutionInterrupted {
            execution: execution.clone(),
            reason,
        }
        .into()
    })
}

fn synthetic(input: &MessageId, text: &str) -> EventBody {
    InputAdmitted {
        input: input.clone(),
        kind: InputKind::Synthetic {
            text: text.to_owned(),
        },
        delivery: Delivery::Steer,
    }
    .into()
}

/// An input of Tenure's own that nobody needs any more.
pub(crate) fn cancelled(input: &MessageId) -> EventBody {
    InputCancelled {
        input: input.clone(),
        by: "recovery".to_owned(),
    }
    .into()
}

/// Removes the effect rows of the calls the settlement closes, but of those that left something.
pub(crate) fn end_effects(turn: &TurnState, left: Left<'_>) -> Vec<HookOp> {
    let Some(step) = &turn.step else {
        return Vec::new();
    };
    step.calls()
        .filter(|call| matches!(call.status, CallStatus::Started { .. }))
        .map(|call| HookOp::EffectEnd {
            message: step.message.clone(),
            call: call.call.clone(),
            generation: None,
            left: left(&step.message, &call.call),
        })
        .collect()
}

fn quarantine_error(session: &SessionId, attempts: u32) -> SessionError {
    SessionError::new(
        "quarantined",
        format!(
            "The process running this session was lost {attempts} times without progress in between. It is \
             set aside; its inputs are kept. Look at `tenure show {session}`, then `tenure release {session}`."
        ),
    )
}
