//! What a provider's stream says, in one vocabulary for all vendors, and the opaque state it leaves.

use crate::error::ProviderError;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// A provider's own JSON for a block (signature, encrypted content, item ids), kept byte for byte and
/// shown only to the protocol, provider and model that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeState {
    /// The protocol that can read it, by its word in the configuration, such as `openai-chat`.
    pub protocol: String,
    /// The configured provider that made it.
    pub provider: String,
    /// The model that made it.
    pub model: String,
    /// JSON text, exactly as the decoder produced it.
    pub native: String,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// The model wants its tool calls answered.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The provider's content policy ended it.
    ContentFilter,
    /// The provider paused a long turn and asks to be called again with what it sent.
    Pause,
    /// The stream ended properly with a reason this version does not know.
    Other,
    /// The attempt ended without a finish: error, cut or interrupt.
    Error,
}

/// One event of a provider's stream. Fragment ids are the stream's own and live as long as the attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum ProviderEvent {
    /// The response began.
    Started {
        /// The provider's id of the response.
        response_id: Option<String>,
        /// The model the provider says it is.
        model: Option<String>,
    },
    /// A text block begins.
    TextStart {
        /// Fragment id.
        id: String,
    },
    /// More text.
    TextDelta {
        /// Fragment id.
        id: String,
        /// The text.
        text: String,
    },
    /// The text block is complete.
    TextEnd {
        /// Fragment id.
        id: String,
        /// The provider's own JSON of the block, if it must be sent back as it was.
        native: Option<String>,
    },
    /// A reasoning block begins.
    ReasoningStart {
        /// Fragment id.
        id: String,
    },
    /// More reasoning.
    ReasoningDelta {
        /// Fragment id.
        id: String,
        /// The text.
        text: String,
    },
    /// The reasoning block is complete.
    ReasoningEnd {
        /// Fragment id.
        id: String,
        /// The provider's own JSON of the block (signature, encrypted content), byte for byte.
        native: Option<String>,
    },
    /// A tool call's input begins to stream.
    ToolInputStart {
        /// Call id, unique in this stream.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// More of a tool call's input.
    ToolInputDelta {
        /// Call id.
        id: String,
        /// The tool's name as far as the stream repeats it.
        name: Option<String>,
        /// Raw JSON text.
        text: String,
    },
    /// A tool call's input is complete.
    ToolInputEnd {
        /// Call id.
        id: String,
        /// The tool's name as far as the stream repeats it.
        name: Option<String>,
    },
    /// A complete tool call.
    ToolCall {
        /// Call id.
        id: String,
        /// The tool's name.
        name: String,
        /// The input as raw text; not necessarily valid JSON. Empty means `{}`.
        input: String,
        /// Run by the provider itself (hosted), never by us.
        executed: bool,
        /// The provider's own JSON of the block.
        native: Option<String>,
    },
    /// The result of a hosted call.
    ToolResult {
        /// The hosted call's id.
        id: String,
        /// What it returned, readable as far as the protocol makes it so.
        text: String,
        /// The provider says that the call failed.
        is_error: bool,
        /// The provider's own JSON of the result block.
        native: Option<String>,
    },
    /// A block this version does not understand, kept to be sent back in its place.
    Opaque {
        /// The provider's own JSON.
        native: String,
    },
    /// The response ended as its protocol wants it to.
    Finish {
        /// Why.
        finish: Finish,
        /// The provider's own word for it.
        raw: Option<String>,
        /// Tokens of this attempt. All zero when the provider did not tell them, or not all of them: then also what was
        /// known so far is no count of the whole.
        usage: Usage,
    },
    /// Tokens known so far; replaces what was known of this attempt.
    Usage(Usage),
    /// The provider reported an error in the stream.
    Error(ProviderError),
}

impl ProviderEvent {
    /// The event with the replacement character for every NUL, wherever it stands ([`replace_nul`]).
    #[must_use]
    pub fn without_nul(mut self) -> Self {
        for text in self.texts().into_iter().flatten() {
            replace_nul(text);
        }
        self
    }

    fn texts(&mut self) -> [Option<&mut String>; 4] {
        match self {
            Self::Started { response_id, model } => {
                [response_id.as_mut(), model.as_mut(), None, None]
            }
            Self::TextStart { id } | Self::ReasoningStart { id } => [Some(id), None, None, None],
            Self::TextDelta { id, text } | Self::ReasoningDelta { id, text } => {
                [Some(id), Some(text), None, None]
            }
            Self::TextEnd { id, native } | Self::ReasoningEnd { id, native } => {
                [Some(id), native.as_mut(), None, None]
            }
            Self::ToolInputStart { id, name } => [Some(id), Some(name), None, None],
            Self::ToolInputDelta { id, name, text } => [Some(id), name.as_mut(), Some(text), None],
            Self::ToolInputEnd { id, name } => [Some(id), name.as_mut(), None, None],
            Self::ToolCall {
                id,
                name,
                input,
                native,
                ..
            } => [Some(id), Some(name), Some(input), native.as_mut()],
            Self::ToolResult {
                id, text, native, ..
            } => [Some(id), Some(text), native.as_mut(), None],
            Self::Opaque { native } => [Some(native), None, None, None],
            Self::Finish { raw, .. } => [raw.as_mut(), None, None, None],
            Self::Usage(_) | Self::Error(_) => [None, None, None, None],
        }
    }
}

/// Puts the replacement character where a NUL stands: no store and no vendor takes one.
pub fn replace_nul(text: &mut String) {
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}
