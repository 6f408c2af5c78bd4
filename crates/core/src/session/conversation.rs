//! The conversation's part of the fold: assistant messages and their blocks, compaction.

use super::{SessionState, Summary};
use crate::error::SessionError;
use crate::event::body::*;
use crate::event::{Event, EventBody};
use crate::id::{CallId, MessageId};
use crate::message::*;
use crate::provider::Finish;
use crate::usage::Usage;
use std::sync::Arc;

impl SessionState {
    pub(super) fn apply_conversation(&mut self, event: &Event) {
        match &event.body {
            EventBody::StepStarted(e) => {
                self.step = e.step;
                self.step_again = false;
                self.wants_step = false;
                self.totals.steps += 1;
                self.entries
                    .push(Arc::new(Entry::Assistant(AssistantMessage {
                        id: e.message.clone(),
                        seq: event.seq,
                        model: e.model.clone(),
                        parts: Vec::new(),
                        end: None,
                    })));
            }
            EventBody::StepEnded(e) => {
                self.end_message(&e.message, e.finish, None, e.usage);
            }
            EventBody::StepFailed(e) => {
                self.end_message(&e.message, Finish::Error, Some(e.error.clone()), e.usage);
            }
            EventBody::RetryScheduled(e) => self.with_message(&e.message, |message| {
                for part in &mut message.parts {
                    part.superseded = true;
                }
            }),
            _ => self.apply_part(&event.body),
        }
    }

    fn apply_part(&mut self, body: &EventBody) {
        match body {
            EventBody::FragmentStarted(e) => self.push_part(
                &e.message,
                e.attempt,
                match e.kind {
                    FragmentKind::Text => PartKind::Text(TextPart::default()),
                    FragmentKind::Reasoning => PartKind::Reasoning(TextPart::default()),
                },
            ),
            EventBody::FragmentChunk(e) => {
                self.with_text(&e.message, e.part, |text| text.text.push_str(&e.text));
            }
            EventBody::FragmentEnded(e) => self.with_text(&e.message, e.part, |text| {
                text.complete = !e.partial;
                text.native.clone_from(&e.native);
            }),
            EventBody::BlockRecorded(e) => self.push_part(
                &e.message,
                e.attempt,
                PartKind::Opaque {
                    native: e.native.clone(),
                },
            ),
            EventBody::ToolInputStarted(e) => self.push_part(
                &e.message,
                e.attempt,
                PartKind::Tool(ToolPart {
                    call: e.call.clone(),
                    name: e.name.clone(),
                    input: None,
                    executed: false,
                    started: false,
                    native: None,
                    outcome: None,
                }),
            ),
            EventBody::ToolCalled(e) => self.apply_called(e),
            EventBody::ToolStarted(e) => {
                self.with_tool(&e.message, &e.call, |tool| tool.started = true);
            }
            EventBody::ToolSucceeded(e) => self.with_tool(&e.message, &e.call, |tool| {
                tool.outcome.get_or_insert_with(|| ToolOutcome {
                    failure: None,
                    text: e.text.clone(),
                    title: e.title.clone(),
                    native: e.native.clone(),
                });
            }),
            EventBody::ToolFailed(e) => self.with_tool(&e.message, &e.call, |tool| {
                tool.outcome.get_or_insert_with(|| ToolOutcome {
                    failure: Some(e.failure),
                    text: e.text.clone(),
                    title: String::new(),
                    native: e.native.clone(),
                });
            }),
            _ => {}
        }
    }

    fn apply_called(&mut self, e: &ToolCalled) {
        let called = ToolPart {
            call: e.call.clone(),
            name: e.name.clone(),
            input: Some(e.input.clone()),
            executed: e.executed,
            started: false,
            native: e.native.clone(),
            outcome: None,
        };
        self.with_message(&e.message, |message| {
            match message.parts.get_mut(e.part as usize).map(|p| &mut p.kind) {
                Some(PartKind::Tool(tool)) => *tool = called,
                _ => message.parts.push(Part {
                    attempt: e.attempt,
                    superseded: false,
                    kind: PartKind::Tool(called),
                }),
            }
        });
    }

    fn with_message(&mut self, id: &MessageId, change: impl FnOnce(&mut AssistantMessage)) {
        let index = self.entries.iter().rposition(
            |entry| matches!(entry.as_ref(), Entry::Assistant(message) if &message.id == id),
        );
        if let Some(index) = index
            && let Entry::Assistant(message) = Arc::make_mut(&mut self.entries[index])
        {
            change(message);
        }
    }

    fn push_part(&mut self, message: &MessageId, attempt: u32, kind: PartKind) {
        self.with_message(message, |message| {
            message.parts.push(Part {
                attempt,
                superseded: false,
                kind,
            });
        });
    }

    fn with_text(&mut self, message: &MessageId, part: u32, change: impl FnOnce(&mut TextPart)) {
        self.with_message(message, |message| {
            if let Some(Part {
                kind: PartKind::Text(text) | PartKind::Reasoning(text),
                ..
            }) = message.parts.get_mut(part as usize)
            {
                change(text);
            }
        });
    }

    fn with_tool(
        &mut self,
        message: &MessageId,
        call: &CallId,
        change: impl FnOnce(&mut ToolPart),
    ) {
        self.with_message(message, |message| {
            let tool = message
                .parts
                .iter_mut()
                .rev()
                .find_map(|part| match &mut part.kind {
                    PartKind::Tool(tool) if &tool.call == call => Some(tool),
                    _ => None,
                });
            if let Some(tool) = tool {
                change(tool);
            }
        });
    }

    fn end_message(
        &mut self,
        id: &MessageId,
        finish: Finish,
        error: Option<SessionError>,
        usage: Usage,
    ) {
        self.with_message(id, |message| {
            message.end = Some(StepEnd {
                finish,
                error,
                usage,
            });
        });
    }

    /// Ends a message that is open where a fork begins; its open calls are settled as not carried over.
    pub(super) fn close_open_message(&mut self, seq: u64) {
        // Notes may stand behind the open message, never another message.
        let open = self.entries.iter_mut().rev().find_map(|entry| {
            let is_message = matches!(entry.as_ref(), Entry::Assistant(_));
            is_message.then(|| Arc::make_mut(entry))
        });
        let Some(Entry::Assistant(message)) = open else {
            return;
        };
        if message.end.is_some() {
            return;
        }
        for part in &mut message.parts {
            if let PartKind::Tool(tool) = &mut part.kind
                && tool.outcome.is_none()
            {
                tool.outcome = Some(ToolOutcome {
                    failure: Some(ToolFailure::Interrupted),
                    text: "The conversation was forked while this call was open; its result stayed with \
                           the other session"
                        .to_owned(),
                    title: String::new(),
                    native: None,
                });
            }
        }
        message.end = Some(StepEnd {
            finish: Finish::Error,
            error: Some(SessionError::new(
                "interrupted",
                format!("The session was forked at {seq}, inside this step"),
            )),
            usage: Usage::default(),
        });
    }

    pub(super) fn apply_compaction(&mut self, seq: u64, e: &CompactionEnded) {
        let last_input = |entries: &[Arc<Entry>]| {
            entries.iter().rev().find_map(|entry| match entry.as_ref() {
                Entry::Input {
                    input: input @ InputKind::User { .. },
                    seq,
                    ..
                } => Some((input.clone(), *seq)),
                _ => None,
            })
        };
        let border = self
            .entries
            .partition_point(|entry| entry.seq() < e.kept_from);
        let kept = self.entries.split_off(border);
        let pinned = match last_input(&kept) {
            Some(_) => None,
            None => last_input(&self.entries)
                .or_else(|| self.summary.take().and_then(Summary::into_pinned)),
        };
        let (pinned, pinned_seq) = pinned.unzip();
        self.entries = kept;
        self.summary = Some(Summary {
            text: e.summary.clone(),
            kept_from: e.kept_from,
            pinned,
            pinned_seq,
            seq,
        });
        self.context_tokens = None;
        self.after_compaction = None;
        self.failed_compactions = 0;
        self.unusable_summaries = 0;
        if self.overflowed {
            self.overflowed = false;
            self.overflow_compactions += 1;
            self.step_again = true;
        }
    }
}
