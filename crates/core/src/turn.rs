//! The turn machine: the facts of one open provider turn, and how it is settled.
//!
//! [`TurnState`] is changed by [`TurnState::apply`] of committed events and by nothing else; a runner
//! calls it from the store's after-commit hook. [`publisher`] turns a provider's stream into events,
//! [`settle`] closes whatever is open, [`TurnState::pending`] says what is to be done now. Recovery is
//! the same fold and the same `pending`.

pub mod publisher;
mod ran;
pub mod settle;

use crate::event::body::*;
use crate::event::{Event, EventBody};
use crate::id::{CallId, CompactionId, ExecutionId, MessageId};
use crate::model::ModelRef;
use crate::provider::Finish;
use crate::usage::Usage;
pub use ran::Ran;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A provider or a tool did what no turn allows. It ends the step as failed; it never ends the process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// What is open in a session: the fold of its fenced events.
#[derive(Debug, Clone, Default)]
pub struct TurnState {
    /// The last seq applied; events at or below it are ignored.
    pub cursor: Option<u64>,
    /// The open execution.
    pub execution: Option<ExecutionId>,
    /// How long it has run.
    pub ran: Option<Ran>,
    /// The open compaction.
    pub compaction: Option<CompactionId>,
    /// The open step.
    pub step: Option<OpenStep>,
}

/// A step without its terminal.
#[derive(Debug, Clone)]
pub struct OpenStep {
    /// Its message.
    pub message: MessageId,
    /// Its number within the turn.
    pub number: u32,
    /// Its model.
    pub model: ModelRef,
    /// Tools may not be called.
    pub last: bool,
    /// Attempts begun so far.
    pub attempts: u32,
    /// The open attempt's number.
    pub attempt: Option<u32>,
    /// How the last attempt ended.
    pub ended: Option<AttemptEnd>,
    /// A further attempt is planned.
    pub retry: Option<PlannedRetry>,
    /// Usage of the ended attempts.
    pub usage: Usage,
    /// Cost of the ended attempts; `None` once a part of it is unknown.
    pub cost: Option<u64>,
    /// The message's parts.
    pub parts: Vec<OpenPart>,
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptEnd {
    /// Why.
    pub finish: Finish,
    /// It ended as its protocol wants.
    pub clean: bool,
}

/// A planned retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRetry {
    /// The attempt's number.
    pub attempt: u32,
    /// When it is due.
    pub at_ms: i64,
}

/// A part of the open step's message.
#[derive(Debug, Clone)]
pub struct OpenPart {
    /// The attempt that made it.
    pub attempt: u32,
    /// Given up together with its attempt.
    pub superseded: bool,
    /// What it is.
    pub kind: OpenPartKind,
}

/// What a part of the open step is.
#[derive(Debug, Clone)]
pub enum OpenPartKind {
    /// Text or reasoning.
    Fragment {
        /// Which.
        kind: FragmentKind,
        /// No end yet.
        open: bool,
        /// Durable bytes.
        bytes: u64,
        /// Digest of the durable bytes.
        hash: Sha256,
    },
    /// A tool call.
    Tool(OpenCall),
    /// A kept block.
    Block,
}

/// A tool call of the open step.
#[derive(Debug, Clone)]
pub struct OpenCall {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub name: String,
    /// Run by the provider.
    pub executed: bool,
    /// The call was complete and durable at some point, refused as malformed or not.
    pub called: bool,
    /// Where it stands.
    pub status: CallStatus,
    /// A permission question is durable.
    pub asked: bool,
    /// Its answer is durable.
    pub answer: Option<PermissionAnswer>,
}

/// Where a tool call stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallStatus {
    /// The input streams; nothing to run yet.
    Streaming,
    /// Durable and not begun.
    Called {
        /// The raw input.
        input: Arc<str>,
    },
    /// A spawn is recorded under this attachment generation.
    Started {
        /// The generation.
        generation: u64,
    },
    /// Settled.
    Settled,
}

/// What a turn wants done now.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run this local call (or ask for permission first).
    RunTool {
        /// The step's message.
        message: MessageId,
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// The raw input.
        input: Arc<str>,
    },
    /// A started call has no settlement yet: wait for it, or, after a takeover, settle it as unknown.
    AwaitTool {
        /// The call.
        call: CallId,
    },
    /// Send a further attempt of the open step.
    SendAttempt {
        /// Its number.
        attempt: u32,
        /// Not before this wall-clock time, in milliseconds.
        not_before_ms: Option<i64>,
    },
    /// The stream of the open attempt is being read.
    AwaitStream {
        /// The attempt.
        attempt: u32,
    },
    /// Everything of the step is settled: write its terminal.
    EndStep,
}

impl TurnState {
    /// Is nothing ambiguous outstanding: no open step, no open compaction (R9)?
    pub fn at_boundary(&self) -> bool {
        self.step.is_none() && self.compaction.is_none()
    }

    /// The open call with this id.
    pub fn call(&self, call: &CallId) -> Option<&OpenCall> {
        self.step.as_ref()?.calls().find(|c| &c.call == call)
    }

    /// Applies a committed event. Total, and idempotent by seq.
    pub fn apply(&mut self, event: &Event) {
        if self.cursor.is_some_and(|cursor| event.seq <= cursor) {
            return;
        }
        self.cursor = Some(event.seq);
        self.apply_body(&event.body);
        self.ran = Ran::on(self.ran.take(), event).filter(|_| self.execution.is_some());
    }

    /// What the state would be after `events`, which are not committed: for deciding what else belongs into
    /// the same batch. Call it on a clone; the cursor stays.
    pub fn preview(&mut self, events: &[EventBody]) {
        for body in events {
            self.apply_body(body);
        }
    }

    fn apply_body(&mut self, body: &EventBody) {
        match body {
            EventBody::ExecutionStarted(e) => self.execution = Some(e.execution.clone()),
            EventBody::ExecutionSucceeded(_)
            | EventBody::ExecutionFailed(_)
            | EventBody::ExecutionInterrupted(_) => self.execution = None,
            EventBody::SessionForked(_) => {
                self.execution = None;
                self.compaction = None;
                self.step = None;
            }
            EventBody::CompactionStarted(e) => self.compaction = Some(e.compaction.clone()),
            EventBody::CompactionEnded(_) | EventBody::CompactionFailed(_) => {
                self.compaction = None;
            }
            EventBody::StepStarted(e) => self.step = Some(OpenStep::new(e)),
            EventBody::StepEnded(_) | EventBody::StepFailed(_) => self.step = None,
            body => {
                // Call ids and part numbers mean something only within their message; an answer to an
                // old question may name a call that the open step has too.
                if let Some(step) = &mut self.step
                    && body.message() == Some(&step.message)
                {
                    step.apply(body);
                }
            }
        }
    }

    /// What is now to be done.
    pub fn pending(&self) -> Vec<Effect> {
        let Some(step) = &self.step else {
            return Vec::new();
        };
        let mut effects: Vec<Effect> = step
            .calls()
            .filter(|call| !call.executed)
            .filter_map(|call| match &call.status {
                CallStatus::Called { input } => Some(Effect::RunTool {
                    message: step.message.clone(),
                    call: call.call.clone(),
                    name: call.name.clone(),
                    input: input.clone(),
                }),
                CallStatus::Started { .. } => Some(Effect::AwaitTool {
                    call: call.call.clone(),
                }),
                CallStatus::Streaming | CallStatus::Settled => None,
            })
            .collect();
        match (&step.attempt, &step.ended, &step.retry) {
            (Some(attempt), _, _) => effects.push(Effect::AwaitStream { attempt: *attempt }),
            (None, _, Some(retry)) => effects.push(Effect::SendAttempt {
                attempt: retry.attempt,
                not_before_ms: Some(retry.at_ms),
            }),
            (None, None, None) => effects.push(Effect::SendAttempt {
                attempt: 1,
                not_before_ms: None,
            }),
            (None, Some(_), None) if effects.is_empty() => effects.push(Effect::EndStep),
            (None, Some(_), None) => {}
        }
        effects
    }
}

impl OpenStep {
    fn new(e: &StepStarted) -> Self {
        Self {
            message: e.message.clone(),
            number: e.step,
            model: e.model.clone(),
            last: e.last,
            attempts: 0,
            attempt: None,
            ended: None,
            retry: None,
            usage: Usage::default(),
            cost: Some(0),
            parts: Vec::new(),
        }
    }

    /// The calls of the step, those of abandoned attempts included.
    pub fn calls(&self) -> impl Iterator<Item = &OpenCall> {
        self.parts.iter().filter_map(|part| match &part.kind {
            OpenPartKind::Tool(call) => Some(call),
            _ => None,
        })
    }

    /// Does this call wait for the answer to its permission question?
    pub fn asks(&self, call: &CallId) -> bool {
        self.calls().any(|open| {
            open.call == *call
                && open.asked
                && open.answer.is_none()
                && open.status != CallStatus::Settled
        })
    }

    /// Has this attempt a durable, complete local call? Then its partial output stays (design §7): the
    /// tool may have begun. A hosted call does not count: the provider ran it and nothing of ours refers to it.
    pub fn attempt_called(&self, attempt: u32) -> bool {
        self.parts.iter().any(|part| {
            part.attempt == attempt
                && matches!(&part.kind, OpenPartKind::Tool(call)
                    if call.called && !call.executed)
        })
    }

    /// Has anything of this attempt reached the log?
    pub fn attempt_produced(&self, attempt: u32) -> bool {
        self.parts.iter().any(|part| part.attempt == attempt)
    }

    fn call_mut(&mut self, id: &CallId) -> Option<&mut OpenCall> {
        // The newest wins: an abandoned attempt may have used the same id.
        self.parts
            .iter_mut()
            .rev()
            .find_map(|part| match &mut part.kind {
                OpenPartKind::Tool(call) if &call.call == id => Some(call),
                _ => None,
            })
    }

    fn push(&mut self, attempt: u32, kind: OpenPartKind) {
        self.parts.push(OpenPart {
            attempt,
            superseded: false,
            kind,
        });
    }

    fn fragment(&mut self, part: u32) -> Option<(&mut bool, &mut u64, &mut Sha256)> {
        match &mut self.parts.get_mut(part as usize)?.kind {
            OpenPartKind::Fragment {
                open, bytes, hash, ..
            } => Some((open, bytes, hash)),
            _ => None,
        }
    }

    fn apply(&mut self, body: &EventBody) {
        match body {
            EventBody::AttemptStarted(e) => {
                self.attempts = e.attempt;
                self.attempt = Some(e.attempt);
                self.ended = None;
                self.retry = None;
            }
            EventBody::AttemptEnded(e) => {
                self.attempt = None;
                self.ended = Some(AttemptEnd {
                    finish: e.finish,
                    clean: e.error.is_none() && e.finish != Finish::Error,
                });
                if let Some(usage) = &e.usage {
                    self.usage.add(usage);
                }
                self.cost = self.cost.zip(e.cost).map(|(a, b)| a.saturating_add(b));
            }
            EventBody::RetryScheduled(e) => {
                for part in &mut self.parts {
                    part.superseded = true;
                }
                self.retry = Some(PlannedRetry {
                    attempt: e.attempt,
                    at_ms: e.at_ms,
                });
            }
            EventBody::FragmentStarted(e) => self.push(
                e.attempt,
                OpenPartKind::Fragment {
                    kind: e.kind,
                    open: true,
                    bytes: 0,
                    hash: Sha256::new(),
                },
            ),
            EventBody::FragmentChunk(e) => {
                if let Some((_, bytes, hash)) = self.fragment(e.part) {
                    *bytes += e.text.len() as u64;
                    hash.update(e.text.as_bytes());
                }
            }
            EventBody::FragmentEnded(e) => {
                if let Some((open, _, _)) = self.fragment(e.part) {
                    *open = false;
                }
            }
            EventBody::BlockRecorded(e) => self.push(e.attempt, OpenPartKind::Block),
            _ => self.apply_tool(body),
        }
    }

    fn apply_tool(&mut self, body: &EventBody) {
        match body {
            EventBody::ToolInputStarted(e) => self.push(
                e.attempt,
                OpenPartKind::Tool(OpenCall::new(
                    &e.call,
                    &e.name,
                    false,
                    CallStatus::Streaming,
                )),
            ),
            EventBody::ToolCalled(e) => {
                let status = CallStatus::Called {
                    input: e.input.as_str().into(),
                };
                match self.parts.get_mut(e.part as usize).map(|p| &mut p.kind) {
                    Some(OpenPartKind::Tool(call)) => {
                        call.status = status;
                        call.executed = e.executed;
                        call.called = true;
                    }
                    _ => self.push(
                        e.attempt,
                        OpenPartKind::Tool(OpenCall::new(&e.call, &e.name, e.executed, status)),
                    ),
                }
            }
            EventBody::ToolStarted(e) => {
                if let Some(call) = self.call_mut(&e.call) {
                    call.status = CallStatus::Started {
                        generation: e.generation,
                    };
                }
            }
            EventBody::ToolSucceeded(ToolSucceeded { call, .. })
            | EventBody::ToolFailed(ToolFailed { call, .. }) => {
                if let Some(call) = self.call_mut(call) {
                    call.status = CallStatus::Settled;
                }
            }
            EventBody::PermissionAsked(e) => {
                if let Some(call) = self.call_mut(&e.call) {
                    call.asked = true;
                }
            }
            EventBody::PermissionAnswered(e) => {
                if let Some(call) = self.call_mut(&e.call) {
                    // The first answer counts (R11).
                    call.answer.get_or_insert_with(|| e.answer.clone());
                }
            }
            _ => {}
        }
    }
}

impl OpenCall {
    fn new(call: &CallId, name: &str, executed: bool, status: CallStatus) -> Self {
        Self {
            call: call.clone(),
            name: name.to_owned(),
            executed,
            called: matches!(status, CallStatus::Called { .. }),
            status,
            asked: false,
            answer: None,
        }
    }
}

/// The first 16 hexadecimal digits of a digest: what `fragment.ended` records.
pub fn short_hash(hash: Sha256) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(16);
    for byte in &hash.finalize()[..8] {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
