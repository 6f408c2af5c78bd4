//! What the model said, sent back to it: text, calls, and reasoning in the place the server reads it.

use super::super::shape::{self, Json, json, native, visible};
use super::messages::Settings;
use crate::dialect::Replay;
use serde::Serialize;
use serde_json::{Map, Value};
use tenure_core::request::AssistantBlock;

/// Stands for reasoning that another model did, or none: an empty one is refused where it is required.
const NO_REASONING: &str = " ";

/// An assistant message before it is written.
#[derive(Serialize, Default)]
pub(super) struct Assistant<'a> {
    role: &'static str,
    content: Option<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_opaque: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    annotations: Vec<Value>,
    /// Calls with the ids of the history; whoever writes the message makes them legal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Call<'a>>,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    thinking: String,
}

/// A call of a local tool.
#[derive(Serialize)]
pub(super) struct Call<'a> {
    pub id: String,
    r#type: &'static str,
    pub function: Called<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Value>,
}

/// Which tool, and with what.
#[derive(Serialize)]
pub(super) struct Called<'a> {
    pub name: &'a str,
    arguments: String,
}

/// A message of words alone.
pub(super) fn words(text: &str, settings: &Settings) -> Json {
    let message = Assistant {
        role: "assistant",
        text: text.to_owned(),
        ..Assistant::default()
    };
    message.into_json(settings)
}

/// The message for `blocks`; `None` when nothing is left: reasoning alone is no answer.
pub(super) fn of<'a>(blocks: &[&'a AssistantBlock], settings: &Settings) -> Option<Assistant<'a>> {
    let mut message = Assistant {
        role: "assistant",
        ..Assistant::default()
    };
    for block in blocks {
        match block {
            AssistantBlock::Text { text, native: own } => {
                message.say(text);
                message.annotate(own.as_deref(), settings);
            }
            AssistantBlock::Reasoning { text, native: own } => {
                message.reason(text, own.as_deref(), settings);
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => message.tool_calls.push(Call {
                id: id.clone(),
                r#type: "function",
                function: Called {
                    name,
                    arguments: shape::object_text(input).into_owned(),
                },
                extra_content: native(own.as_deref())
                    .and_then(|(_, mut fields)| fields.remove("extra_content")),
            }),
            AssistantBlock::Hosted { name, text, .. } => {
                if let Some(told) = shape::hosted_as_text(name, text) {
                    message.say(&format!("\n\n{told}\n\n"));
                }
            }
            // What this protocol keeps so is for people to read: sources that came after their text.
            AssistantBlock::Opaque { .. } => {}
        }
    }
    let kept = message.text.trim_end().len();
    message.text.truncate(kept);
    (!message.text.is_empty() || !message.tool_calls.is_empty()).then_some(message)
}

impl Assistant<'_> {
    fn say(&mut self, text: &str) {
        if visible(text) {
            self.text.push_str(text);
        }
    }

    /// Parsed documents go back to the gateway that parsed them, so that it need not do so again.
    fn annotate(&mut self, own: Option<&str>, settings: &Settings) {
        if settings.facts.replay != Replay::Details {
            return;
        }
        let kept = native(own).and_then(|(_, mut fields)| fields.remove("annotations"));
        if let Some(Value::Array(list)) = kept {
            let files = list.into_iter().filter(|note| note["type"] == "file");
            self.annotations.extend(files);
        }
    }

    /// Reasoning of this very model; any other came without native state or not at all.
    fn reason(&mut self, text: &str, own: Option<&str>, settings: &Settings) {
        let Some((_, mut fields)) = native(own) else {
            return;
        };
        let field = fields.get("field").and_then(Value::as_str);
        match (settings.facts.replay, field) {
            (Replay::Never, _) => {}
            (Replay::Field("reasoning_content"), _)
            | (Replay::AsCame, Some("reasoning_content")) => {
                self.reasoning_content.push_str(text);
            }
            (Replay::Field(_), _) | (Replay::AsCame | Replay::Details, Some("reasoning")) => {
                self.reasoning.push_str(text);
            }
            (Replay::AsCame, Some("reasoning_text")) => {
                self.reasoning_text.push_str(text);
                if let Some(Value::String(sealed)) = fields.remove("reasoning_opaque") {
                    self.reasoning_opaque = sealed;
                }
            }
            (Replay::AsCame, Some("thinking")) | (Replay::Chunks, _) => {
                self.thinking.push_str(text);
            }
            (Replay::Details, Some(_)) => self.reasoning.push_str(text),
            (Replay::AsCame | Replay::Details, _) => {
                if let Some(Value::Array(details)) = fields.remove("reasoning_details") {
                    self.reasoning_details.extend(details);
                }
            }
        }
    }

    /// The message in the server's JSON.
    pub(super) fn into_json(mut self, settings: &Settings) -> Json {
        if !settings.tools {
            let calls = std::mem::take(&mut self.tool_calls);
            for call in calls {
                if !self.text.is_empty() {
                    self.text.push_str("\n\n");
                }
                let Called { name, arguments } = call.function;
                self.text
                    .push_str(&format!("[Called {name} with {arguments}]"));
            }
        }
        if settings.reasoning && !visible(&self.reasoning_content) {
            NO_REASONING.clone_into(&mut self.reasoning_content);
        }
        self.content = content(&self.text, &self.thinking);
        json(&self)
    }
}

fn content(text: &str, thinking: &str) -> Option<Value> {
    if thinking.is_empty() {
        return (!text.is_empty()).then(|| Value::String(text.to_owned()));
    }
    let part = |kind: &str, body: Value| {
        let mut part = Map::new();
        part.insert("type".to_owned(), Value::String(kind.to_owned()));
        part.insert(kind.to_owned(), body);
        Value::Object(part)
    };
    let mut parts = vec![part(
        "thinking",
        vec![part("text", Value::String(thinking.to_owned()))].into(),
    )];
    if !text.is_empty() {
        parts.push(part("text", Value::String(text.to_owned())));
    }
    Some(Value::Array(parts))
}
