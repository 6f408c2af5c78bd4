//! A model request in Tenure's own words; a provider's encoder turns it into the vendor's JSON.

use crate::model::ModelRef;
use serde::{Deserialize, Serialize};

/// Everything one attempt sends. Two equal requests encode to the same bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Which model.
    pub model: ModelRef,
    /// System prompt, in parts; byte-stable between compactions.
    pub system: Vec<String>,
    /// The conversation.
    pub messages: Vec<RequestMessage>,
    /// Tool definitions, in stable order.
    pub tools: Vec<ToolDef>,
    /// Whether tools may be called.
    pub tool_choice: ToolChoice,
    /// Limit on generated tokens.
    pub max_output: Option<u64>,
    /// A stable key for the provider's prompt cache: the session's id.
    pub cache_key: String,
}

/// May the model call tools?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// Not in this step; definitions stay, for the cache.
    None,
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDef {
    /// Name, `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its input, an object.
    pub input_schema: serde_json::Value,
}

/// One message of a request. Roles need not alternate; encoders merge where the vendor wants it.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestMessage {
    /// What the user said.
    User {
        /// Text parts, none empty.
        parts: Vec<String>,
    },
    /// Privileged text in mid-conversation: changed instructions, notes by Tenure.
    System {
        /// The text.
        text: String,
    },
    /// What the model said.
    Assistant {
        /// Blocks in the order the model made them.
        blocks: Vec<AssistantBlock>,
    },
    /// Results of the local calls of the assistant message before it, in the order of the calls.
    ToolResults {
        /// One for each call.
        results: Vec<ToolResult>,
    },
}

/// A block of an assistant message. `native` is the provider's own JSON, present only when it was made
/// by the protocol, provider and model this request goes to.
#[derive(Debug, Clone, PartialEq)]
pub enum AssistantBlock {
    /// Text, never only white space unless `native` is present.
    Text {
        /// The text.
        text: String,
        /// Own JSON.
        native: Option<String>,
    },
    /// Reasoning that may be replayed; `native` carries the signature or encrypted content.
    Reasoning {
        /// The readable part.
        text: String,
        /// Own JSON.
        native: Option<String>,
    },
    /// A call of a local tool; its result is in the following [`RequestMessage::ToolResults`].
    ToolCall {
        /// Call id, unique in the request.
        id: String,
        /// Tool name.
        name: String,
        /// A JSON object, as text.
        input: String,
        /// Own JSON.
        native: Option<String>,
    },
    /// A hosted call with its result, both in the provider's own JSON.
    Hosted {
        /// Call id.
        id: String,
        /// Tool name.
        name: String,
        /// Input text.
        input: String,
        /// The call's own JSON.
        call: Option<String>,
        /// The result's own JSON.
        result: Option<String>,
        /// The result, readable.
        text: String,
    },
    /// A block kept verbatim.
    Opaque {
        /// Own JSON.
        native: String,
    },
}

/// The result of one local tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The call's id, as in [`AssistantBlock::ToolCall`].
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// What the model reads; never empty.
    pub text: String,
    /// The call did not succeed.
    pub is_error: bool,
}

/// Why a call's `input` is not a JSON object that every vendor reads; white space counts as `{}`. One
/// judge for the stream and for requests, so that they cannot differ. Nothing of the input is kept.
pub fn input_error(input: &str) -> Option<String> {
    if input.trim().is_empty() {
        return None;
    }
    match serde_json::from_str::<Checked>(input) {
        Ok(Checked { object: true }) => None,
        Ok(Checked { object: false }) => Some("it is another JSON value".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Any JSON value, read in full (escapes, numbers, depth) and not built.
struct Checked {
    object: bool,
}

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CheckedVisitor)
    }
}

struct CheckedVisitor;

impl CheckedVisitor {
    fn plain<E>() -> Result<Checked, E> {
        Ok(Checked { object: false })
    }
}

impl<'de> serde::de::Visitor<'de> for CheckedVisitor {
    type Value = Checked;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Checked, E> {
        Self::plain()
    }
    fn visit_i64<E>(self, _: i64) -> Result<Checked, E> {
        Self::plain()
    }
    fn visit_u64<E>(self, _: u64) -> Result<Checked, E> {
        Self::plain()
    }
    fn visit_f64<E>(self, _: f64) -> Result<Checked, E> {
        Self::plain()
    }
    fn visit_str<E>(self, _: &str) -> Result<Checked, E> {
        Self::plain()
    }
    fn visit_unit<E>(self) -> Result<Checked, E> {
        Self::plain()
    }
    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while items.next_element::<Checked>()?.is_some() {}
        Self::plain()
    }
    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut items: A) -> Result<Checked, A::Error> {
        while items.next_entry::<Checked, Checked>()?.is_some() {}
        Ok(Checked { object: true })
    }
}
