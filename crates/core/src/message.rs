//! The conversation as the fold of the log: what people read and what requests are built from.

use crate::error::SessionError;
use crate::event::body::{InputKind, ToolFailure};
use crate::id::{CallId, MessageId};
use crate::model::ModelRef;
use crate::provider::{Finish, NativeState};
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// One item of the conversation, in log order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// An input that was promoted.
    Input {
        /// The input's id.
        id: MessageId,
        /// The seq of its promotion.
        seq: u64,
        /// What it says; never a control input.
        input: InputKind,
    },
    /// What the model said in one step.
    Assistant(AssistantMessage),
    /// A durable mark by Tenure that the model reads in its place: changed instructions, an interrupt.
    Note {
        /// The seq of the event that made it.
        seq: u64,
        /// The text.
        text: String,
    },
}

impl Entry {
    /// The seq of the event that began it.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Input { seq, .. } | Self::Note { seq, .. } => *seq,
            Self::Assistant(message) => message.seq,
        }
    }
}

/// The one message of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantMessage {
    /// Its id.
    pub id: MessageId,
    /// The seq of `step.started`.
    pub seq: u64,
    /// The model.
    pub model: ModelRef,
    /// Its blocks in the order they began.
    pub parts: Vec<Part>,
    /// How it ended; `None` while the step is open.
    pub end: Option<StepEnd>,
}

/// The terminal of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnd {
    /// Why it ended; `error` for a failed step.
    pub finish: Finish,
    /// The failure, for a failed step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
    /// Tokens of all its attempts.
    pub usage: Usage,
}

/// A block of an assistant message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The attempt that made it.
    pub attempt: u32,
    /// Its attempt was given up: kept in the log, in no request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
    /// What it is.
    #[serde(flatten)]
    pub kind: PartKind,
}

impl Part {
    /// Is it a call of a tool that the vendor runs itself?
    pub fn is_hosted(&self) -> bool {
        matches!(&self.kind, PartKind::Tool(tool) if tool.executed)
    }
}

/// What a block is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum PartKind {
    /// Text for the user.
    Text(TextPart),
    /// The model's reasoning.
    Reasoning(TextPart),
    /// A tool call.
    Tool(ToolPart),
    /// A block of the provider's that is only kept.
    Opaque {
        /// Its JSON.
        native: NativeState,
    },
}

/// Text or reasoning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TextPart {
    /// The text as far as it is durable.
    pub text: String,
    /// Complete, as the provider meant it.
    pub complete: bool,
    /// The provider's own JSON of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeState>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolPart {
    /// The call.
    pub call: CallId,
    /// The tool.
    pub name: String,
    /// Raw input; `None` until the call is complete.
    pub input: Option<String>,
    /// Run by the provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executed: bool,
    /// A local spawn was recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
    /// The call's own JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeState>,
    /// Its settlement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ToolOutcome>,
}

/// The settlement of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// How it failed; `None` for success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ToolFailure>,
    /// What the model reads.
    pub text: String,
    /// One line for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// A hosted result's own JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeState>,
}
