//! What the model said before, as Converse's content blocks: reasoning as it was signed, calls, hosted calls.

use super::ID_LIMIT;
use super::model::Model;
use crate::encode::shape::{self, Answer, Json, json, legal_id, native, visible};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use tenure_core::request::AssistantBlock;

/// A block of an assistant message, told apart where some models want them apart.
pub(super) enum Block {
    /// Text, and what goes with it.
    Said(Json),
    /// Reasoning.
    Thought(Json),
    /// A call of a local tool.
    Call(Json),
}

impl Block {
    /// The block as it goes out.
    pub fn into_json(self) -> Json {
        match self {
            Self::Said(json) | Self::Thought(json) | Self::Call(json) => json,
        }
    }
}

/// How the model's own state goes back.
pub(super) struct Replay<'a> {
    pub model: &'a Model,
    /// Thinking is turned off: none of it goes back.
    pub no_thinking: bool,
    /// This request offers the provider's own tools, so that their calls may stand in it.
    pub hosted: bool,
}

/// The content of one turn; empty when nothing of it can go back. `ids` learns under which id a call went out.
pub(super) fn assistant(
    blocks: &[&AssistantBlock],
    replay: &Replay<'_>,
    ids: &mut HashMap<String, String>,
) -> Vec<Block> {
    let mut content = Answer::new();
    for block in blocks {
        match block {
            // Citations are for people; what was cited is in the conversation already.
            AssistantBlock::Text { text, .. } => content.say(plain(text).map(Block::Said)),
            AssistantBlock::Reasoning { text, native: own } => {
                content.think(reasoning(text, own.as_deref(), replay).map(Block::Thought));
            }
            AssistantBlock::ToolCall {
                id, name, input, ..
            } => content.say([Block::Call(tool_use(id, name, input, ids))]),
            AssistantBlock::Hosted {
                name,
                call,
                result,
                text,
                ..
            } => match (native(call.as_deref()), native(result.as_deref())) {
                (Some((call, _)), Some((result, _))) if replay.hosted => {
                    content.say([Block::Said(call), Block::Said(result)]);
                }
                _ => content.say(
                    shape::hosted_as_text(name, text)
                        .and_then(|text| plain(&text))
                        .map(Block::Said),
                ),
            },
            // Pictures a model made are refused when they come back from it, and results need their calls.
            AssistantBlock::Opaque { .. } => {}
        }
    }
    content.into_blocks()
}

/// A text block. Trimmed everywhere, so that a message has the same bytes whether or not it is the last.
pub(super) fn plain(text: &str) -> Option<Json> {
    visible(text).then(|| {
        json(&super::Text {
            text: text.trim_end(),
        })
    })
}

/// Reasoning goes back only as it was signed: text and signature have to belong together.
fn reasoning(text: &str, own: Option<&str>, replay: &Replay<'_>) -> Option<Json> {
    let (own, fields) = native(own).filter(|_| !replay.no_thinking)?;
    let content = fields.get("reasoningContent")?;
    let string = |at: &str| {
        content
            .pointer(at)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if !string("/redactedContent").is_empty() {
        return Some(own);
    }
    let (said, signature) = (
        string("/reasoningText/text"),
        string("/reasoningText/signature"),
    );
    let sealed = replay.model.claude.omits_thinking();
    shape::is_whole(said, signature, text, sealed).then_some(own)
}

fn tool_use(id: &str, name: &str, input: &str, ids: &mut HashMap<String, String>) -> Json {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Block<'a> {
        tool_use: ToolUse<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ToolUse<'a> {
        tool_use_id: &'a str,
        name: &'a str,
        input: &'a RawValue,
    }
    let legal = legal_id(id, ID_LIMIT);
    ids.insert(id.to_owned(), legal.clone().into_owned());
    json(&Block {
        tool_use: ToolUse {
            tool_use_id: &legal,
            name: &legal_id(name, ID_LIMIT),
            input: &shape::object(input),
        },
    })
}
