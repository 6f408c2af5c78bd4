//! An empty reply: a model that ends its turn behind its tools without a word is asked once, visibly, to go on.
//!
//! Everything is read from the fold: the nudge's id is derived from the message it answers, so however often the
//! process is lost in between there is one nudge between two inputs of a person's.

use super::Runner;
use super::step::settle_and_end;
use crate::writer::Batch;
use std::collections::HashSet;
use tenure_core::claim::continuation_id;
use tenure_core::error::SessionError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::MessageId;
use tenure_core::message::{AssistantMessage, Entry, PartKind};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::turn::TurnState;
use tenure_store::HookOp;

/// Words for the model behind its empty reply.
const NUDGE: &str = "Your last reply was empty: no text and no tool call. Go on with the task; if it is done, \
say so and what came of it.";

/// What an attempt's stream has said so far, beside what the publisher makes of it.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// Words for the user, or a call. Reasoning alone is neither.
    said: bool,
    finish: Option<Finish>,
}

impl Heard {
    /// Notes a batch of the stream.
    pub fn listen(&mut self, events: &[ProviderEvent]) {
        for event in events {
            match event {
                ProviderEvent::TextDelta { text, .. } => self.said |= !text.trim().is_empty(),
                ProviderEvent::ToolInputStart { .. }
                | ProviderEvent::ToolCall { .. }
                | ProviderEvent::ToolResult { .. } => self.said = true,
                ProviderEvent::Finish { finish, .. } => self.finish = Some(*finish),
                _ => {}
            }
        }
    }

    /// The provider's content policy ended it.
    pub fn filtered(&self) -> bool {
        self.finish == Some(Finish::ContentFilter)
    }

    /// It ended properly, is not to be called again by itself, and said nothing.
    pub fn silent(&self) -> bool {
        !self.said
            && self
                .finish
                .is_some_and(|finish| !matches!(finish, Finish::Pause | Finish::ContentFilter))
    }
}

/// What follows from a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is one.
    Fine,
    /// It is empty: this input asks the model to go on.
    Nudge(MessageId),
    /// It is empty, and asking again would not help.
    Empty(SessionError),
}

impl Runner {
    /// Judges a reply by the conversation before its step.
    pub(super) fn judge_reply(&self, silent: bool) -> Reply {
        let (message, last) = match &self.writer.turn().step {
            Some(step) if silent => (step.message.clone(), step.last),
            _ => return Reply::Fine,
        };
        let nudged = self.nudged();
        if !nudged && !self.after_tools() {
            return Reply::Fine;
        }
        if nudged || last {
            let why = if last {
                "in the last step allowed for this turn"
            } else {
                "twice, the second time although it was asked to go on"
            };
            return Reply::Empty(SessionError::new(
                "empty_reply",
                format!(
                    "Empty reply: behind its tool calls the model answered with no text and no call, {why}. \
                     What was done so far is kept; send another prompt to go on"
                ),
            ));
        }
        Reply::Nudge(continuation_id(&self.session, message.as_str()))
    }

    /// Was the step before this one one of tools? Steps that failed without a call say nothing about it.
    fn after_tools(&self) -> bool {
        let messages = self.state.entries.iter().rev().filter_map(assistant);
        let mut telling = messages.filter(|m| called(m) || ended_well(m));
        telling.next().is_some_and(called)
    }

    /// Was the model nudged since a person's last words?
    fn nudged(&self) -> bool {
        let since = || {
            self.state.entries.iter().rev().take_while(|entry| {
                let input = match entry.as_ref() {
                    Entry::Input { input, .. } => Some(input),
                    _ => None,
                };
                !matches!(input, Some(InputKind::User { .. }))
            })
        };
        let inputs: HashSet<&MessageId> = since()
            .filter_map(|entry| match entry.as_ref() {
                Entry::Input { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        // A continuation behind a failed step is recovery's, not a nudge.
        since()
            .filter_map(assistant)
            .filter(|m| ended_well(m))
            .any(|m| inputs.contains(&continuation_id(&self.session, m.id.as_str())))
    }
}

/// Records the end of an attempt that ended well, and what follows from its reply, in one commit.
pub(super) fn close_reply(turn: &TurnState, events: Vec<EventBody>, reply: Reply) -> Batch {
    let mut batch = settle_and_end(turn, events, Vec::new());
    let over = batch
        .events
        .iter()
        .any(|event| matches!(event, EventBody::StepEnded(_)));
    match reply {
        Reply::Nudge(input) if over => {
            let kind = InputKind::Synthetic {
                text: NUDGE.to_owned(),
            };
            let nudge = InputAdmitted {
                input,
                kind,
                delivery: Delivery::Steer,
            };
            batch.events.push(nudge.into());
            batch
        }
        Reply::Empty(error) if over => {
            let failed = turn.execution.clone().map(|execution| {
                ExecutionFailed {
                    execution,
                    error: error.clone(),
                }
                .into()
            });
            batch.events.extend(failed);
            batch.ops.push(HookOp::Release {
                only_when_idle: false,
                // The terminal itself parks what waits (R4).
                park: turn.execution.is_none(),
            });
            // Under an interrupt the terminal is *interrupted* (R2): then this is refused.
            Batch::start(batch.events, batch.ops)
        }
        _ => batch,
    }
}

fn assistant(entry: &std::sync::Arc<Entry>) -> Option<&AssistantMessage> {
    match entry.as_ref() {
        Entry::Assistant(message) => Some(message),
        _ => None,
    }
}

fn called(message: &AssistantMessage) -> bool {
    message.parts.iter().any(
        |part| matches!(&part.kind, PartKind::Tool(tool) if !tool.executed && !part.superseded),
    )
}

fn ended_well(message: &AssistantMessage) -> bool {
    message.end.as_ref().is_some_and(|end| end.error.is_none())
}
