//! The parts of a turn: reasoning, text, tool calls, tools run by the provider.

use serde::Deserialize;
use serde_json::Value;

/// A tool call's input.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Sent as JSON.
    Value(Value),
    /// Sent exactly so, for malformed JSON.
    Raw(String),
}

impl Input {
    /// The characters that go over the wire.
    pub(crate) fn wire_text(&self) -> String {
        match self {
            Self::Value(value) => value.to_string(),
            Self::Raw(raw) => raw.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for Input {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::String(raw) => Self::Raw(raw),
            value => Self::Value(value),
        })
    }
}

/// The opaque state that seals a reasoning part: Anthropic's signature, the Responses form's encrypted content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Seal {
    /// Issued by the server, which knows it again.
    #[default]
    Issued,
    /// None is sent.
    Absent,
    /// These characters, verbatim.
    Literal(String),
}

impl<'de> Deserialize<'de> for Seal {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(true) => Ok(Self::Issued),
            Value::Bool(false) => Ok(Self::Absent),
            Value::String(text) => Ok(Self::Literal(text)),
            other => Err(serde::de::Error::custom(format!(
                "signature is true, false or a string, got {other}"
            ))),
        }
    }
}

/// One part of what the model says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawPart")]
pub enum Part {
    /// Text for the user.
    Text {
        /// The text; with `deltas`, its pieces are repeated until there are so many.
        text: String,
        /// How many deltas to send.
        deltas: Option<usize>,
        /// What it cites, in the vendor's own JSON: sent by the Anthropic and the Responses form.
        citations: Vec<Value>,
    },
    /// Reasoning.
    Reasoning {
        /// The visible text.
        text: String,
        /// How many deltas to send.
        deltas: Option<usize>,
        /// The opaque state that seals it.
        seal: Seal,
        /// Sends only opaque state and no text.
        redacted: bool,
    },
    /// A call of a tool the client runs.
    Call {
        /// The tool.
        name: String,
        /// Its input.
        input: Input,
        /// The call's id; left out, the server issues one it never repeats.
        id: Option<String>,
    },
    /// A call of a tool the provider runs itself.
    Hosted {
        /// The tool, for example `web_search`.
        name: String,
        /// Its input.
        input: Value,
        /// Its result; left out, none arrives in the stream.
        result: Option<Value>,
        /// Marks the result as failed.
        failed: bool,
        /// The call's id; left out, the server issues one.
        id: Option<String>,
    },
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            deltas: None,
            citations: Vec::new(),
        }
    }

    /// A reasoning part whose seal the server issues.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning {
            text: text.into(),
            deltas: None,
            seal: Seal::Issued,
            redacted: false,
        }
    }

    /// A call whose id the server issues.
    pub fn call(name: impl Into<String>, input: Value) -> Self {
        Self::Call {
            name: name.into(),
            input: Input::Value(input),
            id: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    name: String,
    #[serde(default = "empty_input")]
    input: Input,
    id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHosted {
    name: String,
    #[serde(default = "empty_object")]
    input: Value,
    result: Option<Value>,
    #[serde(default)]
    failed: bool,
    id: Option<String>,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

fn empty_input() -> Input {
    Input::Value(empty_object())
}

/// A part as written: exactly one of the first four keys, and what goes with it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPart {
    text: Option<String>,
    reasoning: Option<String>,
    call: Option<RawCall>,
    hosted: Option<RawHosted>,
    deltas: Option<usize>,
    #[serde(default)]
    citations: Vec<Value>,
    signature: Option<Seal>,
    redacted: Option<bool>,
}

impl TryFrom<RawPart> for Part {
    type Error = String;

    fn try_from(raw: RawPart) -> Result<Self, String> {
        let RawPart {
            text,
            reasoning,
            call,
            hosted,
            deltas,
            citations,
            signature,
            redacted,
        } = raw;
        let sealed = signature.is_some() || redacted.is_some();
        match (text, reasoning, call, hosted) {
            (Some(text), None, None, None) if !sealed => Ok(Self::Text {
                text,
                deltas,
                citations,
            }),
            _ if !citations.is_empty() => Err("`citations` go with text".into()),
            (None, Some(text), None, None) => Ok(Self::Reasoning {
                text,
                deltas,
                seal: signature.unwrap_or_default(),
                redacted: redacted.unwrap_or(false),
            }),
            (None, None, Some(RawCall { name, input, id }), None) if !sealed && deltas.is_none() => {
                Ok(Self::Call { name, input, id })
            }
            (None, None, None, Some(hosted)) if !sealed && deltas.is_none() => {
                let RawHosted { name, input, result, failed, id } = hosted;
                Ok(Self::Hosted { name, input, result, failed, id })
            }
            _ => Err("a part has exactly one of text, reasoning, call, hosted; `deltas` goes with text and \
                      reasoning, `signature` and `redacted` with reasoning"
                .into()),
        }
    }
}
