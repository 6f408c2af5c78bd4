//! What the model said before, as content blocks: thinking as it was signed, calls, hosted calls.

use super::Text;
use crate::encode::shape::{self, Answer, Json, json, legal_id, native, visible};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use tenure_core::request::AssistantBlock;

/// The longest id of a call.
pub(super) const ID_LIMIT: usize = 64;

/// How much of the model's thinking goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replay {
    /// Where text and signature belong together.
    Whole,
    /// Also where only the signature came.
    Sealed,
    /// None: thinking is turned off.
    Nothing,
}

/// Does the turn end with a hosted call that the vendor still works on?
pub(super) fn is_paused(blocks: &[&AssistantBlock]) -> bool {
    matches!(
        blocks.last(),
        Some(AssistantBlock::Hosted {
            call: Some(_),
            result: None,
            ..
        })
    )
}

/// The content of one turn; empty when nothing of it can go back. `ids` learns under which id a call went out.
pub(super) fn assistant(
    blocks: &[&AssistantBlock],
    last: bool,
    replay: Replay,
    ids: &mut HashMap<String, String>,
) -> Vec<Json> {
    let mut content = Answer::new();
    for (at, block) in blocks.iter().enumerate() {
        match block {
            AssistantBlock::Text { text, native: own } => match native(own.as_deref()) {
                Some((own, _)) => content.say([own]),
                None => content.say(plain(text)),
            },
            AssistantBlock::Reasoning { text, native: own } => {
                content.think(thinking(text, own.as_deref(), replay));
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => {
                content.say([tool_use(id, name, input, own.as_deref(), ids)]);
            }
            AssistantBlock::Hosted {
                name,
                call,
                result,
                text,
                ..
            } => {
                let paused = last && at + 1 == blocks.len();
                match (native(call.as_deref()), native(result.as_deref())) {
                    (Some((call, _)), Some((result, _))) => content.say([call, result]),
                    (Some((call, _)), None) if paused && result.is_none() => content.say([call]),
                    _ => {
                        content.say(shape::hosted_as_text(name, text).and_then(|text| plain(&text)))
                    }
                }
            }
            AssistantBlock::Opaque { native: own } => {
                if container(own).is_none() {
                    content.say(native(Some(own)).map(|(own, _)| own));
                }
            }
        }
    }
    content.into_blocks()
}

/// Text without trailing white space, which the API refuses at the end of a message. Trimmed everywhere,
/// so that a message has the same bytes whether or not it is the last.
fn plain(text: &str) -> Option<Json> {
    visible(text).then(|| json(&Text::plain(text.trim_end())))
}

/// Thinking goes back only as it was signed: text and signature have to belong together.
fn thinking(text: &str, own: Option<&str>, replay: Replay) -> Option<Json> {
    let (own, fields) = native(own).filter(|_| replay != Replay::Nothing)?;
    let string = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    match string("type") {
        "redacted_thinking" => (!string("data").is_empty()).then_some(own),
        "thinking" => {
            let sealed = replay == Replay::Sealed;
            let whole = shape::is_whole(string("thinking"), string("signature"), text, sealed);
            whole.then_some(own)
        }
        _ => None,
    }
}

/// The id of the sandbox that a turn's code ran in: the decoder keeps it as a block of its own.
pub(super) fn container(own: &str) -> Option<String> {
    let (_, fields) = native(Some(own))?;
    let word = |key: &str| fields.get(key).and_then(Value::as_str);
    (word("type") == Some("container")).then(|| word("id").unwrap_or_default().to_owned())
}

fn tool_use(
    id: &str,
    name: &str,
    input: &str,
    own: Option<&str>,
    ids: &mut HashMap<String, String>,
) -> Json {
    #[derive(Serialize)]
    struct ToolUse<'a> {
        r#type: &'static str,
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
        #[serde(flatten)]
        extra: Map<String, Value>,
    }
    let legal = legal_id(id, ID_LIMIT);
    ids.insert(id.to_owned(), legal.clone().into_owned());
    let extra = native(own)
        .map(|(_, fields)| {
            fields
                .into_iter()
                .filter(|(key, _)| key == "caller")
                .collect()
        })
        .unwrap_or_default();
    json(&ToolUse {
        r#type: "tool_use",
        id: &legal,
        name,
        input: &shape::object(input),
        extra,
    })
}
