//! Google Gemini: each event is a whole response with the next parts of its content.
//!
//! A server that does not heed `alt=sse` sends the same responses as the elements of one JSON list.

mod arguments;
mod call;
mod part;

use super::over_sse::{Wire, malformed};
use super::raw::{self, Raw};
use super::sink::Sink;
use crate::classify::classify_event;
use crate::sse::SseEvent;
use part::Parts;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow, default)]
    candidates: Option<Vec<Candidate<'a>>>,
    #[serde(borrow, default)]
    usage_metadata: Option<Counts<'a>>,
    #[serde(borrow, default)]
    prompt_feedback: Raw<'a>,
    #[serde(borrow, default)]
    model_version: Raw<'a>,
    #[serde(borrow, default)]
    response_id: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    finish_reason: Raw<'a>,
    #[serde(borrow, default)]
    finish_message: Raw<'a>,
    #[serde(borrow, default)]
    grounding_metadata: Raw<'a>,
    #[serde(borrow, default)]
    url_context_metadata: Raw<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default)]
    parts: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts<'a> {
    #[serde(borrow, default)]
    prompt_token_count: Raw<'a>,
    #[serde(borrow, default)]
    cached_content_token_count: Raw<'a>,
    #[serde(borrow, default)]
    candidates_token_count: Raw<'a>,
    #[serde(borrow, default)]
    thoughts_token_count: Raw<'a>,
    #[serde(borrow, default)]
    tool_use_prompt_token_count: Raw<'a>,
    #[serde(borrow, default)]
    total_token_count: Raw<'a>,
}

/// Token counts as far as any event told them; a later one wins, field by field.
#[derive(Default)]
struct Tokens {
    prompt: Option<u64>,
    cached: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    tool_prompt: Option<u64>,
    total: Option<u64>,
}

/// The machine.
#[derive(Default)]
pub(super) struct Gemini {
    parts: Parts,
    tokens: Tokens,
    /// The last finish reason: a turn with hosted tools may name one between its steps, too.
    finish: Option<String>,
    finish_message: Option<String>,
    /// What a search found, in the provider's JSON; the last telling of it is the whole.
    grounding: Option<String>,
    url_context: Option<String>,
}

impl Wire for Gemini {
    fn event(&mut self, event: &SseEvent<'_>, sink: &mut Sink) {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return;
        }
        if let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(data) {
            return self.chunk(&chunk, data, sink);
        }
        // A key told twice, or a field of another type than the protocol's.
        match serde_json::from_str::<Value>(data) {
            Ok(value @ Value::Object(_)) => {
                let normal = value.to_string();
                match serde_json::from_str::<Chunk<'_>>(&normal) {
                    Ok(chunk) => self.chunk(&chunk, &normal, sink),
                    Err(_) if has_error(&value) => self.fail(classify_event(&value), sink),
                    Err(_) => {}
                }
            }
            // The form of an error in an answer that was meant to be a list.
            Ok(Value::Array(list)) if list.iter().any(has_error) => {
                let error = list.iter().find(|item| has_error(item));
                self.fail(classify_event(error.unwrap_or(&Value::Null)), sink);
            }
            _ => self.fail(malformed(event), sink),
        }
    }

    fn close(&mut self, sink: &mut Sink) {
        self.settle_usage(sink);
        let Some(reason) = self.finish.take() else {
            return;
        };
        let cut = reason == "MAX_TOKENS";
        self.parts.close(cut, sink);
        if let Some(error) = self.failed(&reason) {
            return sink.fail(error);
        }
        part::grounding(self.grounding.take(), self.url_context.take(), sink);
        let finish = match finish_of(&reason) {
            Finish::Stop if self.parts.any_call() => Finish::ToolCalls,
            finish => finish,
        };
        sink.finish(finish, Some(reason));
    }

    fn finish_seen(&self) -> bool {
        self.finish.is_some()
    }
}

impl Gemini {
    fn chunk(&mut self, chunk: &Chunk<'_>, data: &str, sink: &mut Sink) {
        if !sink.is_started() {
            let filled = |raw| raw::word(raw).filter(|word| !word.is_empty());
            let (id, model) = (filled(chunk.response_id), filled(chunk.model_version));
            if id.is_some() || model.is_some() || chunk.candidates.is_some() {
                sink.start(id, model);
            }
        }
        if let Some(counts) = &chunk.usage_metadata {
            self.tokens.merge(counts);
        }
        if chunk.error.is_some_and(|error| error.get() != "null") {
            let value = serde_json::from_str(data).unwrap_or(Value::Null);
            return self.fail(classify_event(&value), sink);
        }
        for candidate in chunk.candidates.iter().flatten() {
            // More than one answer is never asked for.
            if raw::number(candidate.index).unwrap_or(0) == 0 {
                self.candidate(candidate, sink);
            }
        }
        if let Some(feedback) = chunk.prompt_feedback {
            self.prompt_feedback(feedback, sink);
        }
    }

    fn candidate(&mut self, candidate: &Candidate<'_>, sink: &mut Sink) {
        let parts = candidate.content.as_ref().and_then(|c| c.parts.as_ref());
        for json in parts.into_iter().flatten() {
            self.parts.part(json.get(), sink);
        }
        keep(&mut self.grounding, candidate.grounding_metadata);
        keep(&mut self.url_context, candidate.url_context_metadata);
        if let Some(reason) = raw::filled(candidate.finish_reason)
            && reason != "FINISH_REASON_UNSPECIFIED"
        {
            self.finish = Some(reason.into_owned());
            self.finish_message = raw::filled(candidate.finish_message).map(|m| m.into_owned());
            sink.touch();
        }
    }

    /// The prompt itself was refused: there will be no answer.
    fn prompt_feedback(&mut self, feedback: &RawValue, sink: &mut Sink) {
        let Ok(Value::Object(fields)) = serde_json::from_str(feedback.get()) else {
            return;
        };
        let word = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let reason = word("blockReason");
        if reason.is_empty() || reason == "BLOCK_REASON_UNSPECIFIED" {
            return;
        }
        let said = match word("blockReasonMessage") {
            "" => String::new(),
            message => format!(": {message}"),
        };
        let mut error = ProviderError::new(
            ErrorClass::ContentFilter,
            format!("the provider's content policy refused the prompt ({reason}){said}"),
        );
        error.code = Some(reason.to_owned());
        self.fail(error, sink);
    }

    /// A finish that means that the output cannot be used: the model wrote a call that is none. Asking again
    /// usually helps.
    fn failed(&self, reason: &str) -> Option<ProviderError> {
        let what = match reason {
            "MALFORMED_FUNCTION_CALL" => "the model wrote a tool call that cannot be read",
            "UNEXPECTED_TOOL_CALL" => "the model called a tool although none may be called",
            "TOO_MANY_TOOL_CALLS" => "the model called tools too often in one response",
            "MALFORMED_RESPONSE" => "the model wrote a response that cannot be read",
            _ => return None,
        };
        let said = match self.finish_message.as_deref() {
            None => String::new(),
            Some(message) => format!(": {}", message.chars().take(500).collect::<String>()),
        };
        let mut error = ProviderError::new(ErrorClass::Protocol, format!("{what}{said}"));
        error.code = Some(reason.to_owned());
        Some(error)
    }

    fn fail(&mut self, error: ProviderError, sink: &mut Sink) {
        self.settle_usage(sink);
        sink.fail(error);
    }

    fn settle_usage(&mut self, sink: &mut Sink) {
        sink.set_usage(self.tokens.usage());
    }
}

impl Tokens {
    fn merge(&mut self, counts: &Counts<'_>) {
        let fields = [
            (&mut self.prompt, counts.prompt_token_count),
            (&mut self.cached, counts.cached_content_token_count),
            (&mut self.candidates, counts.candidates_token_count),
            (&mut self.thoughts, counts.thoughts_token_count),
            (&mut self.tool_prompt, counts.tool_use_prompt_token_count),
            (&mut self.total, counts.total_token_count),
        ];
        for (field, said) in fields {
            if let Some(count) = said.and_then(count) {
                *field = Some(count);
            }
        }
    }

    /// The prompt count includes what was read from the cache; tool prompts and thoughts stand beside prompt
    /// and answer, unless the total says that the answer's count holds the thoughts already.
    fn usage(&self) -> Usage {
        let prompt = self
            .prompt
            .unwrap_or(0)
            .saturating_add(self.tool_prompt.unwrap_or(0));
        let (answer, thoughts) = (self.candidates.unwrap_or(0), self.thoughts.unwrap_or(0));
        let within = thoughts <= answer && self.total == Some(prompt.saturating_add(answer));
        let output = if within {
            answer
        } else {
            answer.saturating_add(thoughts)
        };
        Usage::from_gross(prompt, self.cached.unwrap_or(0), 0, output, thoughts)
    }
}

fn count(raw: &RawValue) -> Option<u64> {
    let json = raw.get();
    json.parse()
        .ok()
        .or_else(|| raw::tokens(&serde_json::from_str(json).ok()?))
}

/// Keeps candidate-level metadata that says anything.
fn keep(place: &mut Option<String>, raw: Raw<'_>) {
    if let Some(json) = raw.map(RawValue::get)
        && json.starts_with('{')
        && json.len() > 2
    {
        *place = Some(json.to_owned());
    }
}

fn has_error(value: &Value) -> bool {
    value.get("error").is_some_and(|error| !error.is_null())
}

fn finish_of(reason: &str) -> Finish {
    match reason {
        "STOP" => Finish::Stop,
        "MAX_TOKENS" => Finish::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Finish::ContentFilter,
        _ => Finish::Other,
    }
}
