//! The fold of a whole session: settings, inbox, conversation, what is open.
//!
//! [`SessionState::apply`] is total and idempotent by seq. A runner brings it up to the head at each safe
//! boundary; readers fold pages of the log with the same code.

pub mod checkpoint;
mod conversation;
mod withheld;

pub use withheld::Withheld;

use crate::budget::Ledger;
use crate::compaction::{UNUSABLE_SUMMARY, rough};
use crate::error::{ErrorClass, SessionError};
use crate::event::body::*;
use crate::event::{Event, EventBody};
use crate::history::input_parts;
use crate::id::{ExecutionId, MessageId};
use crate::message::{Entry, Part, PartKind};
use crate::model::ModelRef;
use crate::provider::Finish;
use crate::turn::TurnState;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The format of [`SessionState`] in checkpoints; raise it whenever a field changes meaning.
pub const FOLD_VERSION: u32 = 5;

/// Did a step fail because its request was too large?
fn does_not_fit(error: &SessionError) -> bool {
    let classes = [ErrorClass::ContextOverflow, ErrorClass::RequestTooLarge];
    classes.iter().any(|class| class.as_str() == error.kind)
}

/// Everything the log says about a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SessionState {
    /// The last seq applied.
    pub cursor: Option<u64>,
    /// Settings in force; none before `session.created`.
    pub settings: Option<Settings>,
    /// Title.
    pub title: Option<String>,
    /// Instructions of the current epoch.
    pub instructions: Option<Instructions>,
    /// Inputs admitted and neither promoted nor cancelled, in admission order.
    pub inbox: Vec<AdmittedInput>,
    /// The summary in force.
    pub summary: Option<Summary>,
    /// The conversation from the summary's `kept_from` on.
    #[serde(skip)]
    pub entries: Vec<Arc<Entry>>,
    /// The last step's number since input was promoted; 0 right after a promotion.
    pub step: u32,
    /// The input promoted last, or the recovery that asks for a step, has not been answered yet.
    pub wants_step: bool,
    /// The last allowed step asked for another one: the turn is not done, and may not go on by itself.
    #[serde(default)]
    pub limit_reached: bool,
    /// Tokens in the context after the last finished attempt whose usage says so, and the seq of that attempt's end.
    pub context_tokens: Option<(u64, u64)>,
    /// Sums over the session.
    pub totals: Totals,
    /// What the sums leave out, for budgets.
    #[serde(default)]
    pub ledger: Ledger,
    /// How the last execution ended.
    pub last_end: Option<ExecutionEnd>,
    /// The interrupt last requested: its seq and its execution.
    pub interrupt: Option<(u64, Option<ExecutionId>)>,
    /// The task list, as the last tool that keeps one recorded it in its metadata (`todos`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todos: Option<serde_json::Value>,
    /// Why the session is set aside, if it is.
    pub quarantine: Option<String>,
    /// Compactions in a row that failed by themselves; reset by a finished step or compaction.
    pub failed_compactions: u32,
    /// The last step did not fit the model's window: a compaction comes before the next one.
    pub overflowed: bool,
    /// Compactions because of an overflow since a step last ended well: at most one (design §7).
    pub overflow_compactions: u32,
    /// Prompt tokens of the first request after the last compaction, as the provider counted them, without the
    /// input that came since.
    pub after_compaction: Option<u64>,
    /// What requests leave out since a provider refused it.
    #[serde(default)]
    pub withheld: Withheld,
    /// Summaries in a row that could not be used; reset by a compaction that ended and by another model.
    #[serde(default)]
    pub unusable_summaries: u32,
    /// The last step was refused, and what was wrong with its request is mended: the next one uses its number again.
    #[serde(default)]
    pub step_again: bool,
    /// What is open.
    #[serde(skip)]
    pub turn: TurnState,
}

/// Settings of a session: whoever takes over runs under these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where tools run.
    pub location: Location,
    /// The attachment's generation.
    pub generation: u64,
    /// The model.
    pub model: ModelRef,
    /// Limits.
    pub limits: Limits,
    /// Permission rules, in the permission crate's form.
    pub permissions: serde_json::Value,
    /// Wall-clock milliseconds of creation.
    pub created_ms: i64,
}

/// Privileged text at the start of every request of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instructions {
    /// The parts.
    pub parts: Vec<String>,
    /// Digest of the newest instruction files the model was told of.
    pub digest: String,
}

/// An input that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmittedInput {
    /// The input.
    pub input: MessageId,
    /// The seq of its admission.
    pub seq: u64,
    /// When it was admitted, wall-clock milliseconds.
    pub admitted_ms: i64,
    /// When it may enter.
    pub delivery: Delivery,
    /// What it asks for.
    pub kind: InputKind,
}

/// A summary that stands for old history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The text.
    pub text: String,
    /// Entries from this seq on are kept as they are.
    pub kept_from: u64,
    /// The last words of the user before `kept_from`, kept verbatim when nothing of the user's is after it.
    pub pinned: Option<InputKind>,
    /// The seq at which those words were promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_seq: Option<u64>,
    /// The seq of `compaction.ended`.
    pub seq: u64,
}

impl Summary {
    /// The pinned words and the seq at which they were promoted.
    pub fn pinned(&self) -> Option<(&InputKind, u64)> {
        let seq = self.pinned_seq.unwrap_or(self.seq);
        self.pinned.as_ref().map(|pinned| (pinned, seq))
    }

    fn into_pinned(self) -> Option<(InputKind, u64)> {
        let seq = self.pinned_seq.unwrap_or(self.seq);
        self.pinned.map(|pinned| (pinned, seq))
    }
}

/// Sums over the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Tokens.
    pub usage: Usage,
    /// Millionths of a US dollar.
    pub cost: u64,
    /// Some attempt's price or usage is unknown: `cost` is a lower bound.
    pub incomplete: bool,
    /// Physical requests.
    pub attempts: u64,
    /// Steps.
    pub steps: u64,
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum ExecutionEnd {
    /// Well.
    Succeeded {
        /// Which.
        execution: ExecutionId,
    },
    /// In a failure.
    Failed {
        /// Which.
        execution: ExecutionId,
        /// Why.
        error: crate::error::SessionError,
    },
    /// By an interrupt.
    Interrupted {
        /// Which.
        execution: ExecutionId,
        /// Why.
        reason: InterruptReason,
    },
}

impl SessionState {
    /// The fold of `events` from nothing.
    pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut state = Self::default();
        for event in events {
            state.apply(event);
        }
        state
    }

    /// Applies a committed event. Total, and idempotent by seq.
    pub fn apply(&mut self, event: &Event) {
        if self.cursor.is_some_and(|cursor| event.seq <= cursor) {
            return;
        }
        self.cursor = Some(event.seq);
        let last_step = self.turn.step.as_ref().is_some_and(|step| step.last);
        self.turn.apply(event);
        self.ledger.apply(&event.body);
        match &event.body {
            EventBody::StepEnded(e) => {
                self.apply_conversation(event);
                self.failed_compactions = 0;
                self.overflow_compactions = 0;
                let more = self.asks_for_more(&e.message, e.finish);
                self.wants_step = more && !last_step;
                self.limit_reached = more && last_step;
            }
            EventBody::StepFailed(e) => {
                // What is left out from now on may be what made it too large: that is tried first.
                let repaired = self.withhold(&e.error, event.seq);
                self.overflowed = !repaired && does_not_fit(&e.error);
                self.wants_step = self.overflowed || repaired;
                self.step_again = repaired;
                self.apply_conversation(event);
            }
            EventBody::InputAdmitted(_)
            | EventBody::InputPromoted(_)
            | EventBody::InputCancelled(_)
            | EventBody::InputDeliveryChanged(_) => self.apply_input(event),
            EventBody::ExecutionStarted(_)
            | EventBody::ExecutionSucceeded(_)
            | EventBody::ExecutionFailed(_)
            | EventBody::ExecutionInterrupted(_)
            | EventBody::InterruptRequested(_)
            | EventBody::SessionQuarantined(_)
            | EventBody::SessionReleased(_) => self.apply_execution(event),
            EventBody::AttemptEnded(e) => {
                self.totals.attempts += 1;
                self.add(e.usage.as_ref(), e.cost);
                self.measure(e, event.seq);
                self.apply_conversation(event);
            }
            EventBody::MediaWithheld(e) => self.note_unseen(e, event.seq),
            EventBody::CompactionEnded(e) => {
                self.add(e.usage.as_ref(), e.cost);
                self.apply_compaction(event.seq, e);
            }
            EventBody::CompactionFailed(e) => {
                self.add(e.usage.as_ref(), e.cost);
                // What was stopped from outside says nothing of the next try.
                if !e.error.was_stopped() {
                    self.failed_compactions += 1;
                }
                if e.error.kind == UNUSABLE_SUMMARY {
                    self.unusable_summaries += 1;
                }
            }
            EventBody::SessionCreated(_)
            | EventBody::SessionForked(_)
            | EventBody::SessionRenamed(_)
            | EventBody::ModelSelected(_)
            | EventBody::LimitsChanged(_)
            | EventBody::PermissionsChanged(_)
            | EventBody::AttachmentReplaced(_)
            | EventBody::InstructionsSet(_)
            | EventBody::InstructionsChanged(_) => self.apply_settings(event),
            body => {
                if let EventBody::ToolSucceeded(e) = body
                    && let Some(todos) = e.metadata.get("todos")
                {
                    self.todos = Some(todos.clone());
                }
                self.apply_conversation(event);
            }
        }
    }

    /// Does an ended step ask for another: by local calls, or because the provider paused it?
    fn asks_for_more(&self, id: &MessageId, finish: Finish) -> bool {
        let message = self
            .entries
            .iter()
            .rev()
            .find_map(|entry| match entry.as_ref() {
                Entry::Assistant(message) if &message.id == id => Some(message),
                _ => None,
            });
        let called = |part: &Part| matches!(&part.kind, PartKind::Tool(t) if !t.executed && !part.superseded);
        finish == Finish::Pause || message.is_some_and(|m| m.parts.iter().any(called))
    }

    /// Takes the size of the context from an attempt's usage. Where the vendor ran tools of its own, that is what is
    /// billed: the sum over all the times it asked its model, which may be many windows. Then the measurement before
    /// it stays, and the message is estimated with what else is newer.
    fn measure(&mut self, e: &AttemptEnded, seq: u64) {
        let Some(usage) = e.usage.filter(|usage| usage.context() > 0) else {
            return;
        };
        let asked = self
            .entries
            .iter()
            .rev()
            .find_map(|entry| match entry.as_ref() {
                Entry::Assistant(message) if message.id == e.message => Some(message),
                _ => None,
            });
        let hosted = |part: &Part| part.attempt == e.attempt && part.is_hosted();
        if let Some(message) = asked.filter(|message| message.parts.iter().any(hosted)) {
            // A failed attempt of the same step did not count this message's parts.
            self.context_tokens = self.context_tokens.filter(|(_, at)| *at < message.seq);
            return;
        }
        self.context_tokens = Some((usage.context(), seq));
        self.measure_compaction(usage.prompt());
    }

    /// The first count after a compaction says whether it helped; what came in since is not its doing.
    fn measure_compaction(&mut self, prompt: u64) {
        let Some(summary) = &self.summary else {
            return;
        };
        if self.after_compaction.is_some() {
            return;
        }
        let new = self.entries.iter().rev().map_while(|entry| {
            (entry.seq() > summary.seq).then_some(match entry.as_ref() {
                Entry::Input { input, .. } => input_parts(input).iter().map(|p| rough(p)).sum(),
                _ => 0,
            })
        });
        self.after_compaction = Some(prompt.saturating_sub(new.sum()));
    }

    fn add(&mut self, usage: Option<&Usage>, cost: Option<u64>) {
        match usage {
            Some(usage) => self.totals.usage.add(usage),
            None => self.totals.incomplete = true,
        }
        match cost {
            Some(cost) => self.totals.cost = self.totals.cost.saturating_add(cost),
            None => self.totals.incomplete = true,
        }
    }

    fn apply_settings(&mut self, event: &Event) {
        match &event.body {
            EventBody::SessionCreated(e) => {
                self.settings = Some(Settings {
                    location: e.location.clone(),
                    generation: 0,
                    model: e.model.clone(),
                    limits: e.limits.clone(),
                    permissions: e.permissions.clone(),
                    created_ms: event.created_ms,
                });
                self.title.clone_from(&e.title);
            }
            EventBody::SessionForked(_) => self.apply_fork(event.seq),
            EventBody::SessionRenamed(e) => self.title = Some(e.title.clone()),
            EventBody::InstructionsSet(e) => {
                self.instructions = Some(Instructions {
                    parts: e.parts.clone(),
                    digest: e.digest.clone(),
                });
            }
            EventBody::InstructionsChanged(e) => {
                if let Some(instructions) = &mut self.instructions {
                    instructions.digest.clone_from(&e.digest);
                }
                self.note(event.seq, e.text.clone());
            }
            body => {
                let Some(settings) = &mut self.settings else {
                    return;
                };
                match body {
                    EventBody::ModelSelected(e) if settings.model == e.model => {}
                    EventBody::ModelSelected(e) => {
                        settings.model = e.model.clone();
                        // Another model counts otherwise, and summarises otherwise.
                        self.context_tokens = None;
                        self.after_compaction = None;
                        self.failed_compactions = 0;
                        self.unusable_summaries = 0;
                    }
                    EventBody::LimitsChanged(e) => settings.limits = e.limits.clone(),
                    EventBody::PermissionsChanged(e) => {
                        settings.permissions = e.permissions.clone();
                    }
                    EventBody::AttachmentReplaced(e) => {
                        settings.location = e.location.clone();
                        settings.generation = e.generation;
                    }
                    _ => {}
                }
            }
        }
    }

    /// A fork begins at rest: what was open in the parent is not carried over, and waiting inputs stay the
    /// parent's.
    fn apply_fork(&mut self, seq: u64) {
        self.inbox.clear();
        self.wants_step = false;
        self.limit_reached = false;
        self.overflowed = false;
        self.step_again = false;
        self.last_end = None;
        self.interrupt = None;
        self.quarantine = None;
        self.close_open_message(seq);
    }

    fn apply_input(&mut self, event: &Event) {
        match &event.body {
            EventBody::InputAdmitted(e) => self.inbox.push(AdmittedInput {
                input: e.input.clone(),
                seq: event.seq,
                admitted_ms: event.created_ms,
                delivery: e.delivery,
                kind: e.kind.clone(),
            }),
            EventBody::InputPromoted(e) => {
                if let Some(index) = self.inbox.iter().position(|i| i.input == e.input) {
                    let admitted = self.inbox.remove(index);
                    if !admitted.kind.is_control() {
                        self.step = 0;
                        self.step_again = false;
                        self.wants_step = true;
                        self.limit_reached = false;
                        self.entries.push(Arc::new(Entry::Input {
                            id: admitted.input,
                            seq: event.seq,
                            input: admitted.kind,
                        }));
                    }
                }
            }
            EventBody::InputCancelled(e) => self.inbox.retain(|i| i.input != e.input),
            EventBody::InputDeliveryChanged(e) => {
                if let Some(input) = self.inbox.iter_mut().find(|i| i.input == e.input) {
                    input.delivery = e.delivery;
                }
            }
            _ => {}
        }
    }

    fn apply_execution(&mut self, event: &Event) {
        if matches!(
            event.body,
            EventBody::ExecutionSucceeded(_)
                | EventBody::ExecutionFailed(_)
                | EventBody::ExecutionInterrupted(_)
        ) {
            // An overflow is its execution's: the next one, perhaps with another model, tries anew.
            self.overflowed = false;
            self.overflow_compactions = 0;
            self.step_again = false;
        }
        match &event.body {
            EventBody::InterruptRequested(e) => {
                self.interrupt = Some((event.seq, e.execution.clone()));
            }
            EventBody::ExecutionSucceeded(e) => {
                self.wants_step = false;
                self.last_end = Some(ExecutionEnd::Succeeded {
                    execution: e.execution.clone(),
                });
            }
            EventBody::ExecutionFailed(e) => {
                self.wants_step = false;
                self.last_end = Some(ExecutionEnd::Failed {
                    execution: e.execution.clone(),
                    error: e.error.clone(),
                });
            }
            EventBody::ExecutionInterrupted(e) => {
                self.wants_step = false;
                self.last_end = Some(ExecutionEnd::Interrupted {
                    execution: e.execution.clone(),
                    reason: e.reason,
                });
                if e.reason == InterruptReason::User {
                    self.note(
                        event.seq,
                        "The user stopped the turn here. Do not go on with it unless asked."
                            .to_owned(),
                    );
                }
            }
            EventBody::SessionQuarantined(e) => {
                self.quarantine = Some(e.error.message.clone());
            }
            EventBody::SessionReleased(_) => self.quarantine = None,
            _ => {}
        }
    }

    fn note(&mut self, seq: u64, text: String) {
        self.entries.push(Arc::new(Entry::Note { seq, text }));
    }
}

#[cfg(test)]
mod tests;
