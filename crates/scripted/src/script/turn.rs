//! One turn of a script: when it applies, what it says, and how it ends.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::Value;

use super::{Fault, Input, Part, ScriptError, WireShape};

/// How often a turn may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// At most so often while this server runs.
    Count(u64),
    /// Without end.
    Forever,
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(word) if word == "forever" => Ok(Self::Forever),
            Value::Number(n) if n.as_u64().is_some_and(|n| n > 0) => {
                Ok(Self::Count(n.as_u64().unwrap_or(1)))
            }
            other => Err(D::Error::custom(format!(
                "times is a number from 1 or \"forever\", got {other}"
            ))),
        }
    }
}

/// Token counts of a turn. `input` and `output` are totals: they include the cached and the reasoning tokens, and each
/// wire form splits them as its vendor does.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Usage {
    /// All input tokens; left out, about a quarter of the request's bytes.
    pub input: Option<u64>,
    /// All output tokens; left out, about a quarter of the answer's bytes.
    pub output: Option<u64>,
    /// Output tokens spent on reasoning.
    pub reasoning: u64,
    /// Input tokens read from the prompt cache.
    pub cache_read: u64,
    /// Input tokens written to the prompt cache.
    pub cache_write: u64,
    /// Reports no usage at all, as some endpoints do.
    pub omit: bool,
}

/// How a turn says it ended. A word the list does not know is sent as it is: an unknown finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The answer is complete.
    Stop,
    /// Tools are to be run.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The vendor's filter stopped the answer.
    ContentFilter,
    /// The turn is paused and is to be continued.
    Pause,
    /// No finish is sent, though the stream's terminator is.
    Missing,
    /// This word, verbatim.
    Other(String),
}

impl<'de> Deserialize<'de> for Finish {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Ok(match word.as_str() {
            "stop" => Self::Stop,
            "tool_calls" => Self::ToolCalls,
            "length" => Self::Length,
            "content_filter" => Self::ContentFilter,
            "pause" => Self::Pause,
            "missing" => Self::Missing,
            _ => Self::Other(word),
        })
    }
}

/// One answer of the model.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    /// A name for people, shown in the records and the log.
    pub name: Option<String>,
    /// Applies only when the newest input (what stands behind the model's last output) contains this.
    pub when: Option<String>,
    /// Applies only when the request's text, tools' definitions excluded, contains this anywhere.
    pub when_request: Option<String>,
    /// Is passed over when the request's text, tools' definitions excluded, contains this anywhere.
    pub skip_if_contains: Option<String>,
    /// How often it may be used; left out: once in `sequence`, without end in `history` and as the fallback.
    pub times: Option<Times>,
    /// What is said, in order.
    #[serde(alias = "part")]
    pub parts: Vec<Part>,
    /// How it ends; left out: `tool_calls` when there are calls, else `stop`.
    pub finish: Option<Finish>,
    /// Token counts.
    pub usage: Usage,
    /// Wait before the first byte of the answer, in milliseconds.
    pub delay_ms: u64,
    /// Wait before each piece of text, reasoning or tool input, in milliseconds.
    pub chunk_delay_ms: u64,
    /// Characters in a piece; left out: words of text, 12 characters of tool input.
    pub chunk_size: Option<usize>,
    /// How the bytes are laid on the wire.
    pub wire: WireShape,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

impl Turn {
    /// A turn that says one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::default().and(Part::text(text))
    }

    /// A turn that calls one tool with the given input.
    pub fn call(name: impl Into<String>, input: Value) -> Self {
        Self::default().and(Part::call(name, input))
    }

    /// A turn that only goes wrong.
    pub fn fault(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::default()
        }
    }

    /// Adds a part.
    #[must_use]
    pub fn and(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Sets what goes wrong.
    #[must_use]
    pub fn failing(mut self, fault: Fault) -> Self {
        self.fault = Some(fault);
        self
    }

    /// Sets the text the newest input must contain.
    #[must_use]
    pub fn when(mut self, text: impl Into<String>) -> Self {
        self.when = Some(text.into());
        self
    }

    /// Sets the text whose presence passes the turn over.
    #[must_use]
    pub fn skip_if_contains(mut self, text: impl Into<String>) -> Self {
        self.skip_if_contains = Some(text.into());
        self
    }

    /// Sets how often it may be used.
    #[must_use]
    pub fn times(mut self, times: Times) -> Self {
        self.times = Some(times);
        self
    }

    /// True when the model asks for tools to be run by the client.
    pub(crate) fn has_calls(&self) -> bool {
        self.parts
            .iter()
            .any(|part| matches!(part, Part::Call { .. }))
    }

    pub(super) fn check(&self, index: &str) -> Result<(), ScriptError> {
        let turn = self
            .name
            .as_ref()
            .map_or_else(|| index.to_owned(), |name| format!("{index} ({name})"));
        let refuse = |what: &str| {
            Err(ScriptError::Turn {
                turn: turn.clone(),
                what: what.into(),
            })
        };
        if self.parts.is_empty() && self.fault.is_none() {
            return refuse("it has neither parts nor a fault; give one of them");
        }
        if self.chunk_size == Some(0) || self.wire.write_bytes == Some(0) {
            return refuse("chunk_size and write_bytes count from 1");
        }
        for part in &self.parts {
            if let Part::Call {
                name,
                input: Input::Value(value),
                ..
            } = part
                && !value.is_object()
            {
                return refuse(&format!(
                    "the input of call {name} is a table, or a string to be sent raw"
                ));
            }
        }
        if let Some(Fault::Status { status, .. }) = &self.fault
            && !(100..=599).contains(status)
        {
            return refuse("a status is a number from 100 to 599");
        }
        Ok(())
    }
}
