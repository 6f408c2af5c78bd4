//! From a provider's stream to durable events: persists one provider turn, runs no tool, starts no other
//! turn.
//!
//! The publisher lives as long as one attempt. It knows which fragments and calls the stream has open and
//! holds the text that has not been checkpointed; everything it decides becomes true only by the commit of
//! the events it returns. What the stream may not do is a [`Violation`] that names the ids.

use super::{OpenPartKind, OpenStep, Violation};
use crate::budget::refused;
use crate::event::EventBody;
use crate::event::body::*;
use crate::fragment::Draft;
use crate::id::{CallId, MessageId};
use crate::provider::{Finish, NativeState, ProviderEvent};
use crate::request::input_error;
use crate::usage::Usage;
use crate::{ModelRef, ProviderError};
use std::collections::{HashMap, HashSet};

/// Text as it streams, ahead of its checkpoint. Never durable; tagged with its attempt so that a reader
/// can drop it when the attempt is superseded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveDelta {
    /// The step's message.
    pub message: MessageId,
    /// The attempt.
    pub attempt: u32,
    /// The part.
    pub part: u32,
    /// What it belongs to.
    pub kind: FragmentKind,
    /// The offset in bytes at which `text` begins.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// How the stream ended, once it has.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamEnd {
    /// As the protocol wants.
    Finished,
    /// With an error: in the stream, by the connection, or by a limit.
    Failed(ProviderError),
}

/// What one batch of provider events leads to.
#[derive(Debug, Default)]
pub struct Output {
    /// To be appended, in order.
    pub durable: Vec<EventBody>,
    /// To be shown at once.
    pub live: Vec<LiveDelta>,
    /// Set when the stream ended; nothing may follow.
    pub end: Option<StreamEnd>,
}

/// The hosted tool whose runs a provider may count in its usage.
const WEB_SEARCH: &str = "web_search";

#[derive(Debug, Clone, Copy)]
enum Slot {
    Open { part: u32 },
    Closed,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum CallSlot {
    Streaming,
    InputEnded,
    Called,
    Settled,
}

#[derive(Debug)]
struct StreamCall {
    part: u32,
    /// The id in the log: the stream's, unless an abandoned attempt of the step has it already.
    durable: CallId,
    name: String,
    executed: bool,
    slot: CallSlot,
    input_bytes: usize,
}

/// Where the attempt's events are stamped.
#[derive(Debug, Clone)]
pub struct AttemptRef {
    /// The step's message.
    pub message: MessageId,
    /// The attempt.
    pub attempt: u32,
    /// The model asked.
    pub model: ModelRef,
    /// The protocol spoken.
    pub protocol: String,
}

/// The state of one attempt's stream.
#[derive(Debug)]
pub struct Publisher {
    at: AttemptRef,
    next_part: u32,
    /// Fragments by kind and id: a vendor may number text and reasoning each from zero.
    fragments: HashMap<(FragmentKind, String), Slot>,
    drafts: Vec<Draft>,
    calls: HashMap<String, StreamCall>,
    order: Vec<String>,
    taken: HashSet<CallId>,
    usage: Option<Usage>,
    raw_finish: Option<String>,
    finish: Option<Finish>,
    content: bool,
}

impl Publisher {
    /// For the open attempt of `step`.
    pub fn new(step: &OpenStep, at: AttemptRef) -> Self {
        Self {
            next_part: step.parts.len() as u32,
            taken: step.calls().map(|call| call.call.clone()).collect(),
            at,
            fragments: HashMap::new(),
            drafts: Vec::new(),
            calls: HashMap::new(),
            order: Vec::new(),
            usage: None,
            raw_finish: None,
            finish: None,
            content: false,
        }
    }

    /// Did the stream bring any text, reasoning or call?
    pub fn has_content(&self) -> bool {
        self.content
    }

    /// Is there text that is not yet on its way to the log?
    pub fn has_draft(&self) -> bool {
        self.drafts.iter().any(|draft| !draft.is_empty())
    }

    /// Takes a batch of provider events. After an error the attempt is over: close it with
    /// [`Publisher::close`].
    pub fn on(&mut self, events: Vec<ProviderEvent>, out: &mut Output) -> Result<(), Violation> {
        for event in events {
            if out.end.is_some() {
                break;
            }
            self.one(event.without_nul(), out)?;
        }
        self.checkpoint_full(out);
        Ok(())
    }

    /// Checkpoints all text that waits: called when the checkpoint interval ends.
    pub fn checkpoint(&mut self, out: &mut Output) {
        for draft in &mut self.drafts {
            if let Some(text) = draft.take() {
                out.durable
                    .push(chunk(&self.at.message, draft.part(), text));
            }
        }
    }

    fn checkpoint_full(&mut self, out: &mut Output) {
        for draft in &mut self.drafts {
            if draft.is_full()
                && let Some(text) = draft.take()
            {
                out.durable
                    .push(chunk(&self.at.message, draft.part(), text));
            }
        }
    }

    fn one(&mut self, event: ProviderEvent, out: &mut Output) -> Result<(), Violation> {
        use ProviderEvent as P;
        match event {
            P::Started { .. } => Ok(()),
            P::TextStart { id } => self.start(id, FragmentKind::Text, out),
            P::ReasoningStart { id } => self.start(id, FragmentKind::Reasoning, out),
            P::TextDelta { id, text } => self.delta(id, text, FragmentKind::Text, out),
            P::ReasoningDelta { id, text } => self.delta(id, text, FragmentKind::Reasoning, out),
            P::TextEnd { id, native } => self.end(id, native, FragmentKind::Text, out),
            P::ReasoningEnd { id, native } => self.end(id, native, FragmentKind::Reasoning, out),
            P::ToolInputStart { id, name } => self.input_start(id, name, out),
            P::ToolInputDelta { id, name, text } => self.input_delta(&id, name, &text),
            P::ToolInputEnd { id, name } => self.input_end(&id, name),
            P::ToolCall {
                id,
                name,
                input,
                executed,
                native,
            } => self.call(id, name, input, executed, native, out),
            P::ToolResult {
                id,
                text,
                is_error,
                native,
            } => self.result(&id, text, is_error, native, out),
            P::Opaque { native } => {
                let part = self.take_part();
                self.content = true;
                out.durable.push(
                    BlockRecorded {
                        message: self.at.message.clone(),
                        part,
                        attempt: self.at.attempt,
                        native: self.native(native),
                    }
                    .into(),
                );
                Ok(())
            }
            P::Usage(usage) => {
                self.usage = Some(usage);
                Ok(())
            }
            P::Finish { finish, raw, usage } => {
                // A vendor that reports nothing, or not all, is not a vendor that charges nothing, or only that.
                self.usage = Some(usage).filter(|usage| *usage != Usage::default());
                self.raw_finish = raw;
                self.finish = Some(finish);
                out.end = Some(StreamEnd::Finished);
                Ok(())
            }
            P::Error(error) => {
                out.end = Some(StreamEnd::Failed(error));
                Ok(())
            }
        }
    }

    fn take_part(&mut self) -> u32 {
        let part = self.next_part;
        self.next_part += 1;
        part
    }

    fn native(&self, native: String) -> NativeState {
        NativeState {
            protocol: self.at.protocol.clone(),
            provider: self.at.model.provider.clone(),
            model: self.at.model.model.clone(),
            native,
        }
    }

    fn start(&mut self, id: String, kind: FragmentKind, out: &mut Output) -> Result<(), Violation> {
        let key = (kind, id);
        if self.fragments.contains_key(&key) {
            let id = key.1;
            return Err(Violation(format!("Duplicate {} start: {id}", word(kind))));
        }
        self.content = true;
        let part = self.take_part();
        self.drafts.push(Draft::new(part));
        self.fragments.insert(key, Slot::Open { part });
        out.durable.push(
            FragmentStarted {
                message: self.at.message.clone(),
                part,
                attempt: self.at.attempt,
                kind,
            }
            .into(),
        );
        Ok(())
    }

    fn open_part(
        &self,
        key: &(FragmentKind, String),
        what: &'static str,
    ) -> Result<u32, Violation> {
        let (kind, id) = (word(key.0), &key.1);
        match (self.fragments.get(key), what) {
            (Some(Slot::Open { part }), _) => Ok(*part),
            (None, _) => Err(Violation(format!("{kind} {what} before start: {id}"))),
            (Some(Slot::Closed), "end") => Err(Violation(format!("Duplicate {kind} end: {id}"))),
            (Some(Slot::Closed), _) => Err(Violation(format!("{kind} {what} after end: {id}"))),
        }
    }

    fn delta(
        &mut self,
        id: String,
        text: String,
        kind: FragmentKind,
        out: &mut Output,
    ) -> Result<(), Violation> {
        let part = self.open_part(&(kind, id), "delta")?;
        if text.is_empty() {
            return Ok(());
        }
        if let Some(draft) = self.drafts.iter_mut().rev().find(|d| d.part() == part) {
            let offset = draft.push(&text);
            match out.live.last_mut() {
                // One network chunk often holds many deltas of one part: show them as one.
                Some(live) if live.part == part => live.text.push_str(&text),
                _ => out.live.push(LiveDelta {
                    message: self.at.message.clone(),
                    attempt: self.at.attempt,
                    part,
                    kind,
                    offset,
                    text,
                }),
            }
        }
        Ok(())
    }

    fn end(
        &mut self,
        id: String,
        native: Option<String>,
        kind: FragmentKind,
        out: &mut Output,
    ) -> Result<(), Violation> {
        let key = (kind, id);
        let part = self.open_part(&key, "end")?;
        self.fragments.insert(key, Slot::Closed);
        let native = native.map(|n| self.native(n));
        self.end_part(part, native, false, false, out);
        Ok(())
    }

    fn end_part(
        &mut self,
        part: u32,
        native: Option<NativeState>,
        partial: bool,
        superseded: bool,
        out: &mut Output,
    ) {
        let Some(index) = self.drafts.iter().position(|draft| draft.part() == part) else {
            return;
        };
        let mut draft = self.drafts.remove(index);
        if let Some(text) = draft.take() {
            out.durable.push(chunk(&self.at.message, part, text));
        }
        let (bytes, hash) = draft.digest();
        out.durable.push(
            FragmentEnded {
                message: self.at.message.clone(),
                part,
                bytes,
                hash,
                native,
                partial,
                superseded,
            }
            .into(),
        );
    }

    fn input_start(&mut self, id: String, name: String, out: &mut Output) -> Result<(), Violation> {
        if self.calls.contains_key(&id) {
            return Err(Violation(format!("Duplicate tool input start: {id}")));
        }
        self.content = true;
        let part = self.take_part();
        let call = self.note_call(id, part, name.clone(), false, CallSlot::Streaming);
        out.durable.push(
            ToolInputStarted {
                message: self.at.message.clone(),
                part,
                attempt: self.at.attempt,
                call,
                name,
            }
            .into(),
        );
        Ok(())
    }

    /// The durable id of a stream's call. An abandoned attempt of the same step may have used it: then
    /// this one is renamed, so that a settlement can never meet the wrong call.
    fn fresh_call(&mut self, id: &str) -> CallId {
        let mut call = CallId::new(id);
        let mut n = self.at.attempt;
        while !self.taken.insert(call.clone()) {
            call = CallId::new(format!("{id}_a{n}"));
            n += 1;
        }
        call
    }

    fn note_call(
        &mut self,
        id: String,
        part: u32,
        name: String,
        executed: bool,
        slot: CallSlot,
    ) -> CallId {
        let durable = self.fresh_call(&id);
        self.order.push(id.clone());
        self.calls.insert(
            id,
            StreamCall {
                part,
                durable: durable.clone(),
                name,
                executed,
                slot,
                input_bytes: 0,
            },
        );
        durable
    }

    fn input_delta(&mut self, id: &str, name: Option<String>, text: &str) -> Result<(), Violation> {
        let Some(call) = self.calls.get_mut(id) else {
            return Err(Violation(format!("tool input delta before start: {id}")));
        };
        same_name("input", id, &call.name, name.as_deref())?;
        if call.slot != CallSlot::Streaming {
            return Err(Violation(format!("tool input delta after end: {id}")));
        }
        call.input_bytes += text.len();
        Ok(())
    }

    fn input_end(&mut self, id: &str, name: Option<String>) -> Result<(), Violation> {
        let Some(call) = self.calls.get_mut(id) else {
            return Err(Violation(format!("tool input end before start: {id}")));
        };
        same_name("input", id, &call.name, name.as_deref())?;
        if call.slot != CallSlot::Streaming {
            return Err(Violation(format!("Duplicate tool input end: {id}")));
        }
        call.slot = CallSlot::InputEnded;
        Ok(())
    }

    fn call(
        &mut self,
        id: String,
        name: String,
        input: String,
        executed: bool,
        native: Option<String>,
        out: &mut Output,
    ) -> Result<(), Violation> {
        let (part, call) = match self.calls.get_mut(&id) {
            Some(call) => {
                same_name("call", &id, &call.name, Some(&name))?;
                if matches!(call.slot, CallSlot::Called | CallSlot::Settled) {
                    return Err(Violation(format!("Duplicate tool call: {id} ({name})")));
                }
                call.slot = CallSlot::Called;
                call.executed = executed;
                (call.part, call.durable.clone())
            }
            None => {
                let part = self.take_part();
                let slot = CallSlot::Called;
                let call = self.note_call(id.clone(), part, name.clone(), executed, slot);
                (part, call)
            }
        };
        self.content = true;
        // The provider's own JSON holds the id under which it was made: renamed, it would name another call.
        let native = native.filter(|_| call.as_str() == id);
        let malformed = if executed { None } else { input_error(&input) };
        let bytes = input.len();
        let input = if input.trim().is_empty() {
            "{}".to_owned()
        } else {
            input
        };
        out.durable.push(
            ToolCalled {
                message: self.at.message.clone(),
                part,
                attempt: self.at.attempt,
                call: call.clone(),
                name,
                input,
                executed,
                native: native.map(|n| self.native(n)),
            }
            .into(),
        );
        if let Some(why) = malformed {
            self.settled(&id);
            out.durable.push(self.failure(
                &call,
                ToolFailure::NotExecuted,
                format!(
                    "Not executed: the input is not a JSON object ({why}); {bytes} bytes arrived. \
                     Send it again, whole."
                ),
                None,
            ));
        }
        Ok(())
    }

    fn settled(&mut self, id: &str) {
        if let Some(call) = self.calls.get_mut(id) {
            call.slot = CallSlot::Settled;
        }
    }

    fn failure(
        &self,
        call: &CallId,
        failure: ToolFailure,
        text: String,
        native: Option<NativeState>,
    ) -> EventBody {
        ToolFailed {
            message: self.at.message.clone(),
            call: call.clone(),
            failure,
            text,
            cut: None,
            native,
        }
        .into()
    }

    fn result(
        &mut self,
        id: &str,
        text: String,
        is_error: bool,
        native: Option<String>,
        out: &mut Output,
    ) -> Result<(), Violation> {
        let Some(call) = self.calls.get(id) else {
            return Err(Violation(format!("tool result before its call: {id}")));
        };
        match call.slot {
            CallSlot::Streaming | CallSlot::InputEnded => {
                return Err(Violation(format!(
                    "tool result before its call: {id} ({})",
                    call.name
                )));
            }
            CallSlot::Settled => {
                return Err(Violation(format!(
                    "Duplicate tool result: {id} ({})",
                    call.name
                )));
            }
            CallSlot::Called if !call.executed => {
                return Err(Violation(format!(
                    "tool result from the provider for a local call: {id} ({})",
                    call.name
                )));
            }
            CallSlot::Called => {}
        }
        let durable = call.durable.clone();
        self.settled(id);
        let native = native
            .filter(|_| durable.as_str() == id)
            .map(|n| self.native(n));
        let text = if text.trim().is_empty() {
            "(no output)".to_owned()
        } else {
            text
        };
        out.durable.push(if is_error {
            self.failure(&durable, ToolFailure::Failed, text, native)
        } else {
            ToolSucceeded {
                message: self.at.message.clone(),
                call: durable,
                text,
                title: String::new(),
                metadata: serde_json::Value::Null,
                cut: None,
                native,
            }
            .into()
        });
        Ok(())
    }

    /// Closes the attempt: flushes and ends open fragments, settles half calls and unanswered hosted
    /// calls, writes `attempt.ended`. With `superseded` the attempt is given up for a retry, which the caller
    /// may only do while [`OpenStep::attempt_called`] is false. Complete local calls otherwise stay open:
    /// their tools run.
    pub fn close(
        &mut self,
        end: &StreamEnd,
        superseded: bool,
        price: impl Fn(&Usage) -> Option<u64>,
    ) -> Vec<EventBody> {
        let mut out = Output::default();
        let open: Vec<u32> = self.drafts.iter().map(Draft::part).collect();
        for part in open {
            self.end_part(part, None, true, superseded, &mut out);
        }
        for id in std::mem::take(&mut self.order) {
            let Some(call) = self.calls.get(&id) else {
                continue;
            };
            let (failure, text) = match call.slot {
                CallSlot::Settled => continue,
                CallSlot::Called if !call.executed && !superseded => continue,
                CallSlot::Called if call.executed => (
                    ToolFailure::Failed,
                    "The provider returned no result for this call".to_owned(),
                ),
                CallSlot::Called => (
                    ToolFailure::NotExecuted,
                    "Not executed: its response was given up".to_owned(),
                ),
                CallSlot::Streaming | CallSlot::InputEnded => (
                    ToolFailure::NotExecuted,
                    format!(
                        "Not executed: the call's input never arrived whole; {} bytes of it came",
                        call.input_bytes
                    ),
                ),
            };
            let durable = call.durable.clone();
            self.settled(&id);
            out.durable
                .push(self.failure(&durable, failure, text, None));
        }
        let error = match end {
            StreamEnd::Finished => None,
            StreamEnd::Failed(error) => Some(error.clone()),
        };
        // A request refused before its answer began is known to cost nothing.
        let free = (self.usage.is_none() && !self.has_content())
            .then(|| error.as_ref().and_then(refused))
            .flatten();
        // Without its finish the tokens said so far are a lower bound (some vendors begin with a placeholder), and what
        // the provider's own tools cost beside the tokens is not known, but for searches that it counts itself.
        let searches = self.usage.and_then(|usage| usage.searches).is_some();
        let counted = |call: &StreamCall| searches && call.name == WEB_SEARCH;
        let mut hosted = self.calls.values().filter(|call| call.executed);
        let known = self.finish.is_some() && hosted.all(counted);
        let (usage, cost) = match free {
            Some((usage, cost)) => (Some(usage), Some(cost)),
            None => (
                self.usage,
                self.usage.as_ref().filter(|_| known).and_then(price),
            ),
        };
        out.durable.push(
            AttemptEnded {
                message: self.at.message.clone(),
                attempt: self.at.attempt,
                finish: match end {
                    StreamEnd::Finished => self.finish.unwrap_or(Finish::Other),
                    StreamEnd::Failed(_) => Finish::Error,
                },
                raw_finish: self.raw_finish.take(),
                cost,
                usage,
                error,
            }
            .into(),
        );
        out.durable
    }

    /// Tokens the stream reported so far.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }
}

fn chunk(message: &MessageId, part: u32, text: String) -> EventBody {
    FragmentChunk {
        message: message.clone(),
        part,
        text,
    }
    .into()
}

fn word(kind: FragmentKind) -> &'static str {
    match kind {
        FragmentKind::Text => "text",
        FragmentKind::Reasoning => "reasoning",
    }
}

fn same_name(what: &str, id: &str, started: &str, now: Option<&str>) -> Result<(), Violation> {
    match now {
        Some(now) if now != started => Err(Violation(format!(
            "Tool {what} name changed for {id}: {started} -> {now}"
        ))),
        _ => Ok(()),
    }
}

/// Is a part of the step still open? Used by tests of the fold.
pub fn has_open_fragment(step: &OpenStep) -> bool {
    step.parts
        .iter()
        .any(|part| matches!(part.kind, OpenPartKind::Fragment { open: true, .. }))
}
