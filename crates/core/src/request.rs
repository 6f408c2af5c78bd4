//! A model request in Tenure's own words; a provider's encoder turns it into the vendor's JSON.

use crate::model::ModelRef;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// Tools the provider runs itself; those it does not have are left out.
    pub hosted_tools: Vec<HostedTool>,
    /// The answer is JSON of this form, as far as the vendor can promise it.
    pub output_schema: Option<OutputSchema>,
    /// How hard the model should think; none leaves it to the vendor.
    pub effort: Option<Effort>,
    /// The vendor refused to tell what the model thinks: it is not asked to.
    pub hide_thoughts: bool,
}

impl Request {
    /// An empty request to `model`: nothing said, no tools, everything else left to the vendor.
    pub fn new(model: ModelRef) -> Self {
        Self {
            model,
            system: Vec::new(),
            messages: Vec::new(),
            tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            max_output: None,
            cache_key: String::new(),
            hosted_tools: Vec::new(),
            output_schema: None,
            effort: None,
            hide_thoughts: false,
        }
    }
}

/// May the model call tools?
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// Not in this step; definitions stay, for the cache.
    None,
    /// It must call one; a vendor or a mode that cannot force it is left to choose.
    Required,
    /// It must call this one, as far as the vendor can force it.
    Tool(String),
}

/// A tool that the provider runs on its own machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedTool {
    /// Searches the web.
    WebSearch,
    /// Runs code in the provider's sandbox.
    CodeExecution,
}

impl HostedTool {
    /// The word used in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WebSearch => "web_search",
            Self::CodeExecution => "code_execution",
        }
    }
}

/// The form an answer must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// A name for it, `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// JSON Schema, an object.
    pub schema: serde_json::Value,
}

/// How hard the model should think, in steps that every vendor maps to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Not at all, where the model can be told so.
    Off,
    /// Briefly.
    Low,
    /// As usual.
    Medium,
    /// Thoroughly.
    High,
}

impl Effort {
    /// The word used in configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// An image or a document as a user attached it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// Its name as the user gave it.
    pub name: String,
    /// Its type, such as `image/png` or `application/pdf`.
    pub media_type: String,
    /// Its bytes in standard base64 with padding.
    pub data: Arc<str>,
}

/// A part of what a user says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserPart {
    /// Words, none empty.
    Text(String),
    /// An image or a document.
    Media(Media),
}

impl UserPart {
    /// The words; none for media.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) => None,
        }
    }
}

impl<T: Into<String>> From<T> for UserPart {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
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
        /// Parts in order, no text among them empty.
        parts: Vec<UserPart>,
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
