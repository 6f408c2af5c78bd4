//! OpenAI Chat Completions and its many imitations.

mod calls;
mod details;
mod hosted;
mod sources;
mod usage;

use super::over_sse::{Wire, malformed};
use super::raw::{self, Raw};
use super::sink::Sink;
use crate::classify::classify_event;
use crate::sse::SseEvent;
use calls::Calls;
use details::Details;
use hosted::Hosted;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sources::Sources;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::provider::{Finish, ProviderEvent};

/// A seal is kept until its reasoning ends; no vendor's comes near this.
const SEAL_LIMIT: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    choices: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    #[serde(borrow, default)]
    x_groq: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    object: Raw<'a>,
    #[serde(borrow, default)]
    message: Raw<'a>,
    #[serde(borrow, default)]
    detail: Raw<'a>,
    #[serde(borrow, default)]
    citations: Raw<'a>,
    #[serde(borrow, default)]
    search_results: Raw<'a>,
    #[serde(borrow, default)]
    web_search: Raw<'a>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    message: Raw<'a>,
    #[serde(borrow, default)]
    finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_content: Raw<'a>,
    #[serde(borrow, default)]
    reasoning: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_details: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_text: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_opaque: Raw<'a>,
    #[serde(borrow, default)]
    annotations: Raw<'a>,
    #[serde(borrow, default)]
    executed_tools: Raw<'a>,
    #[serde(borrow, default)]
    refusal: Raw<'a>,
    #[serde(borrow, default)]
    tool_calls: Raw<'a>,
    #[serde(borrow, default)]
    function_call: Raw<'a>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    thinking: Raw<'a>,
}

/// Which field carried reasoning: it goes back in the same one.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Content,
    Reasoning,
    Details,
    Thinking,
    Text,
}

impl Field {
    /// The native state that tells the encoder where the readable text belongs; the text itself is not
    /// stored twice.
    fn native(self) -> Option<String> {
        let field = match self {
            Self::Content => "reasoning_content",
            Self::Reasoning => "reasoning",
            Self::Thinking => "thinking",
            Self::Text => "reasoning_text",
            Self::Details => return None,
        };
        Some(format!("{{\"field\":\"{field}\"}}"))
    }
}

enum Open {
    Text(String),
    Reasoning(String, Field),
}

/// The machine. Calls are complete at the end of the stream, or earlier when their arguments are a whole
/// object and another call begins: fragments of two calls may alternate.
#[derive(Default)]
pub(super) struct Chat {
    open: Option<Open>,
    calls: Calls,
    details: Details,
    /// Sealed reasoning in one string, joined from its pieces.
    opaque: String,
    hosted: Hosted,
    sources: Sources,
    finish: Option<String>,
    done: bool,
    spoke: bool,
}

impl Wire for Chat {
    fn event(&mut self, event: &SseEvent<'_>, sink: &mut Sink) {
        let data = event.data.trim();
        if data.is_empty() {
            return;
        }
        if data == "[DONE]" {
            self.done = true;
            self.close(sink);
            return;
        }
        if let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(data) {
            return self.chunk(&chunk, &event.name, data, sink);
        }
        let normal = raw::normalised(data);
        match normal.as_deref().map(serde_json::from_str::<Chunk<'_>>) {
            Some(Ok(chunk)) => self.chunk(&chunk, &event.name, data, sink),
            _ => sink.fail(malformed(event)),
        }
    }

    fn close(&mut self, sink: &mut Sink) {
        if self.finish.is_none() && !self.done {
            // Open fragments stay open: they are not whole.
            self.calls.announce(sink);
            return;
        }
        self.end_open(sink);
        let cut = self.finish.as_deref().map(finish_of) == Some(Finish::Length);
        self.calls.complete_all(cut, sink);
        self.seal(sink);
        if !self.spoke && self.finish.as_deref() == Some("model_context_window_exceeded") {
            let mut error = ProviderError::new(
                ErrorClass::ContextOverflow,
                "the request does not fit the model's context window",
            );
            error.code.clone_from(&self.finish);
            return sink.fail(error);
        }
        if let Some(error) = self.finish.as_deref().and_then(broken) {
            return sink.fail(error);
        }
        let finish = match self.finish.as_deref().map(finish_of) {
            // Some vendors say `stop`, or nothing at all, after tool calls.
            None | Some(Finish::Stop) if self.calls.any() => Finish::ToolCalls,
            Some(Finish::ToolCalls) if !self.calls.any() => Finish::Stop,
            None => Finish::Stop,
            Some(finish) => finish,
        };
        sink.finish(finish, self.finish.take());
    }

    fn finish_seen(&self) -> bool {
        self.finish.is_some()
    }
}

impl Chat {
    fn chunk(&mut self, chunk: &Chunk<'_>, name: &str, data: &str, sink: &mut Sink) {
        if !sink.is_started() && (chunk.choices.is_some() || chunk.id.is_some()) {
            sink.start(
                raw::word(chunk.id).filter(|id| !id.is_empty()),
                raw::word(chunk.model).filter(|model| !model.is_empty()),
            );
        }
        for usage in [chunk.x_groq, chunk.usage].into_iter().flatten() {
            usage::read(usage, sink);
        }
        self.sources
            .lists([chunk.citations, chunk.search_results, chunk.web_search]);
        let choices: Vec<Choice<'_>> = chunk
            .choices
            .and_then(|c| serde_json::from_str(c.get()).ok())
            .unwrap_or_default();
        let mut error = chunk.error.filter(|e| is_error(e));
        for choice in &choices {
            if raw::number(choice.index).unwrap_or(0) == 0 {
                self.choice(choice, sink);
                error = error.or(choice.error.filter(|e| is_error(e)));
            }
        }
        // An error beside a finish reason explains that reason and does not undo it.
        let finished = self
            .finish
            .as_deref()
            .is_some_and(|f| !f.eq_ignore_ascii_case("error"));
        if let Some(error) = error
            && !finished
        {
            return self.stream_error(error.get(), sink);
        }
        if chunk.error.is_none() && choices.is_empty() && (name == "error" || is_complaint(chunk)) {
            self.stream_error(data, sink);
        }
    }

    fn stream_error(&mut self, json: &str, sink: &mut Sink) {
        self.calls.announce(sink);
        let value = serde_json::from_str(json).unwrap_or(Value::Null);
        sink.fail(classify_event(&value));
    }

    fn choice(&mut self, choice: &Choice<'_>, sink: &mut Sink) {
        let delta = choice.delta.or(choice.message);
        if let Some(delta) = delta.and_then(|d| serde_json::from_str::<Delta<'_>>(d.get()).ok()) {
            self.delta(&delta, sink);
        }
        if let Some(reason) = raw::filled(choice.finish_reason) {
            self.finish = Some(reason.into_owned());
            sink.touch();
        }
    }

    fn delta(&mut self, delta: &Delta<'_>, sink: &mut Sink) {
        let details = delta
            .reasoning_details
            .map(|d| self.details.add(d.get()))
            .unwrap_or_default();
        if let Some(text) = raw::filled(delta.reasoning_content) {
            self.reasoning(Field::Content, &text, sink);
        } else if let Some(text) = raw::filled(delta.reasoning) {
            self.reasoning(Field::Reasoning, &text, sink);
        } else if !details.is_empty() {
            self.reasoning(Field::Details, &details, sink);
        } else if let Some(text) = raw::filled(delta.reasoning_text) {
            self.reasoning(Field::Text, &text, sink);
        }
        if let Some(sealed) = raw::filled(delta.reasoning_opaque)
            && self.opaque.len() + sealed.len() <= SEAL_LIMIT
        {
            self.opaque.push_str(&sealed);
        }
        self.sources.annotate(delta.annotations);
        if let Some(json) = delta.executed_tools.filter(|j| j.get().starts_with("[{")) {
            self.spoke = true;
            self.end_open(sink);
            self.calls.announce(sink);
            self.hosted.delta(json, sink);
        }
        if let Some(content) = delta.content {
            self.content(content, sink);
        }
        // A refusal is what the model says to the user.
        if let Some(refusal) = raw::filled(delta.refusal) {
            self.text(&refusal, sink);
        }
        for (json, legacy) in [(delta.tool_calls, false), (delta.function_call, true)] {
            if let Some(json) = json.filter(|j| j.get() != "null") {
                self.end_open(sink);
                self.calls.delta(json.get(), legacy, sink);
                self.spoke |= self.calls.any();
            }
        }
    }

    fn content(&mut self, content: &RawValue, sink: &mut Sink) {
        if let Some(text) = raw::filled(Some(content)) {
            return self.text(&text, sink);
        }
        // Mistral sends a list of typed parts.
        let parts: Vec<Part<'_>> = serde_json::from_str(content.get()).unwrap_or_default();
        for part in &parts {
            if let Some(thinking) = part.thinking {
                if let Some(text) = raw::filled(Some(thinking)) {
                    self.reasoning(Field::Thinking, &text, sink);
                }
                let inner: Vec<Part<'_>> = serde_json::from_str(thinking.get()).unwrap_or_default();
                for text in inner.iter().filter_map(|p| raw::filled(p.text)) {
                    self.reasoning(Field::Thinking, &text, sink);
                }
            } else if let Some(text) = raw::filled(part.text) {
                self.text(&text, sink);
            }
        }
    }

    fn text(&mut self, text: &str, sink: &mut Sink) {
        self.spoke = true;
        self.calls.announce(sink);
        let id = match &self.open {
            Some(Open::Text(id)) => id.clone(),
            _ => {
                self.end_open(sink);
                let id = sink.fragment("text_");
                sink.push(ProviderEvent::TextStart { id: id.clone() });
                self.open = Some(Open::Text(id.clone()));
                id
            }
        };
        sink.push_content(ProviderEvent::TextDelta {
            id,
            text: text.to_owned(),
        });
    }

    fn reasoning(&mut self, field: Field, text: &str, sink: &mut Sink) {
        self.spoke = true;
        self.calls.announce(sink);
        let id = match &self.open {
            Some(Open::Reasoning(id, open)) if *open == field => id.clone(),
            _ => {
                self.end_open(sink);
                let id = sink.fragment("reasoning_");
                sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
                self.open = Some(Open::Reasoning(id.clone(), field));
                id
            }
        };
        sink.push_content(ProviderEvent::ReasoningDelta {
            id,
            text: text.to_owned(),
        });
    }

    fn end_open(&mut self, sink: &mut Sink) {
        match self.open.take() {
            Some(Open::Text(id)) => {
                let native = self.sources.take();
                sink.push(ProviderEvent::TextEnd { id, native });
            }
            Some(Open::Reasoning(id, field)) => {
                let native = self
                    .details
                    .take_sealed()
                    .or_else(|| self.take_opaque())
                    .or_else(|| field.native());
                sink.push(ProviderEvent::ReasoningEnd { id, native });
            }
            None => {}
        }
    }

    fn take_opaque(&mut self) -> Option<String> {
        let sealed = std::mem::take(&mut self.opaque);
        (!sealed.is_empty()).then(|| {
            let sealed = Value::String(sealed);
            format!("{{\"field\":\"reasoning_text\",\"reasoning_opaque\":{sealed}}}")
        })
    }

    /// Sealed reasoning and sources that came after the readable part was closed.
    fn seal(&mut self, sink: &mut Sink) {
        if let Some(native) = self.sources.take() {
            sink.push(ProviderEvent::Opaque { native });
        }
        while let Some(native) = self.details.take_sealed().or_else(|| self.take_opaque()) {
            let id = sink.fragment("reasoning_");
            sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
            sink.push(ProviderEvent::ReasoningEnd {
                id,
                native: Some(native),
            });
        }
    }
}

fn is_error(error: &RawValue) -> bool {
    !matches!(error.get(), "null" | "{}" | "\"\"" | "false")
}

/// An error that stands where a chunk should, without the word `error` around it.
fn is_complaint(chunk: &Chunk<'_>) -> bool {
    let says_so = raw::text(chunk.object).is_some_and(|object| object == "error");
    let told = raw::filled(chunk.message).is_some() || chunk.detail.is_some();
    says_so || (told && chunk.choices.is_none() && chunk.usage.is_none())
}

/// Finish reasons that say that the server failed.
fn broken(reason: &str) -> Option<ProviderError> {
    let (class, what) = match reason.to_ascii_lowercase().as_str() {
        "error" | "network_error" => (ErrorClass::Server, "failed while it answered"),
        "insufficient_system_resource" => (ErrorClass::Overloaded, "ran out of resources"),
        "abort" | "cancelled" => (ErrorClass::Cut, "broke the answer off"),
        _ => return None,
    };
    let mut error = ProviderError::new(class, format!("the server {what} ({reason})"));
    error.code = Some(reason.to_owned());
    Some(error)
}

fn finish_of(reason: &str) -> Finish {
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "end_turn" | "eos" | "eos_token" | "stop_token" | "stop_sequence"
        | "completed" | "complete" => Finish::Stop,
        "tool_calls" | "tool_use" | "function_call" | "tool_call" => Finish::ToolCalls,
        "length"
        | "max_tokens"
        | "model_length"
        | "max_output_tokens"
        | "model_context_window_exceeded" => Finish::Length,
        "content_filter"
        | "sensitive"
        | "safety"
        | "refusal"
        | "blocked"
        | "guardrail_intervened" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}
