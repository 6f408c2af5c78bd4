//! One content block of an Anthropic stream, from its start to the JSON that is sent back.

use super::super::raw::{self, Raw};
use super::super::sink::Sink;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashSet;
use tenure_core::provider::ProviderEvent;

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    thinking: Raw<'a>,
    #[serde(borrow, default)]
    signature: Raw<'a>,
    #[serde(borrow, default)]
    partial_json: Raw<'a>,
    #[serde(borrow, default)]
    citation: Raw<'a>,
}

#[derive(Deserialize)]
struct Citations {
    #[serde(default)]
    citations: Option<Vec<Box<RawValue>>>,
}

enum Kind {
    Text,
    Thinking,
    Redacted,
    Call,
    Hosted,
    /// The result of a hosted call, or a block of an unknown type.
    Other,
}

/// A block while it streams.
pub(super) struct Block {
    kind: Kind,
    /// Fragment or call id.
    id: String,
    name: String,
    /// The block as it started, as text and as fields.
    start: String,
    fields: Map<String, Value>,
    /// Text, thinking or partial JSON so far.
    body: String,
    signature: String,
    citations: Vec<Box<RawValue>>,
    /// A delta changed `fields`, so that `start` is no longer the whole block.
    changed: bool,
}

impl Block {
    /// A block as `content_block_start` tells it; `None` when that is no object.
    pub fn start(json: &str, sink: &mut Sink) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(json).ok()?;
        let kind_word = fields
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let string = |key: &str| {
            fields
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (kind, id, body) = match kind_word.as_str() {
            "text" => (Kind::Text, sink.fragment("text_"), string("text")),
            "thinking" => (
                Kind::Thinking,
                sink.fragment("reasoning_"),
                string("thinking"),
            ),
            "redacted_thinking" => (Kind::Redacted, sink.fragment("reasoning_"), String::new()),
            "tool_use" => (Kind::Call, sink.call_id(&string("id")), String::new()),
            "server_tool_use" | "mcp_tool_use" => {
                (Kind::Hosted, sink.call_id(&string("id")), String::new())
            }
            _ => (Kind::Other, string("tool_use_id"), String::new()),
        };
        let block = Self {
            kind,
            id,
            name: string("name"),
            start: json.to_owned(),
            body,
            signature: string("signature"),
            citations: serde_json::from_str::<Citations>(json)
                .ok()
                .and_then(|c| c.citations)
                .unwrap_or_default(),
            changed: false,
            fields,
        };
        block.announce(sink);
        Some(block)
    }

    /// A block whose start a gateway left out, as far as its first delta tells what it is.
    pub fn implied(delta: &str, sink: &mut Sink) -> Option<Self> {
        let delta: Delta<'_> = serde_json::from_str(delta).ok()?;
        let start = if delta.text.is_some() {
            r#"{"type":"text","text":""}"#
        } else if delta.thinking.is_some() {
            r#"{"type":"thinking","thinking":""}"#
        } else {
            return None;
        };
        Self::start(start, sink)
    }

    fn announce(&self, sink: &mut Sink) {
        let id = self.id.clone();
        match self.kind {
            Kind::Text => {
                sink.push(ProviderEvent::TextStart { id: id.clone() });
                if !self.body.is_empty() {
                    sink.push_content(ProviderEvent::TextDelta {
                        id,
                        text: self.body.clone(),
                    });
                }
            }
            Kind::Thinking => {
                sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
                if !self.body.is_empty() {
                    sink.push_content(ProviderEvent::ReasoningDelta {
                        id,
                        text: self.body.clone(),
                    });
                }
            }
            Kind::Redacted => sink.push_content(ProviderEvent::ReasoningStart { id }),
            Kind::Call => sink.push_content(ProviderEvent::ToolInputStart {
                id,
                name: self.name.clone(),
            }),
            Kind::Hosted | Kind::Other => sink.touch(),
        }
    }

    /// Takes one delta. Unknown kinds are joined into the block's fields of the same name.
    pub fn delta(&mut self, json: &str, sink: &mut Sink) {
        let Ok(delta) = serde_json::from_str::<Delta<'_>>(json) else {
            return;
        };
        let kind = raw::text(delta.kind);
        match (kind.as_deref().unwrap_or_default(), &self.kind) {
            ("text_delta", Kind::Text) => {
                if let Some(text) = raw::filled(delta.text) {
                    self.body.push_str(&text);
                    sink.more_text(&self.id, text);
                }
            }
            ("citations_delta", Kind::Text) => {
                self.citations.extend(delta.citation.map(ToOwned::to_owned))
            }
            ("thinking_delta", Kind::Thinking) => {
                if let Some(text) = raw::filled(delta.thinking) {
                    self.body.push_str(&text);
                    sink.more_reasoning(&self.id, text);
                }
            }
            ("signature_delta", Kind::Thinking) => {
                self.signature
                    .push_str(&raw::text(delta.signature).unwrap_or_default());
                sink.touch();
            }
            ("input_json_delta", Kind::Call | Kind::Hosted) => {
                let Some(text) = raw::filled(delta.partial_json) else {
                    return;
                };
                self.body.push_str(&text);
                if matches!(self.kind, Kind::Hosted) {
                    return sink.touch();
                }
                sink.more_input(&self.id, text);
            }
            _ => self.join(json, sink),
        }
    }

    fn join(&mut self, json: &str, sink: &mut Sink) {
        let Ok(delta) = serde_json::from_str::<Map<String, Value>>(json) else {
            return;
        };
        for (key, value) in delta {
            if key == "type" {
                continue;
            }
            self.changed = true;
            sink.touch();
            match (self.fields.get_mut(&key), &value) {
                (Some(Value::String(have)), Value::String(more)) => have.push_str(more),
                (Some(Value::Array(have)), Value::Array(more)) => have.extend(more.iter().cloned()),
                _ => {
                    self.fields.insert(key, value);
                }
            }
        }
    }

    /// The input as text: what streamed, or what the start already held.
    fn input(&self) -> String {
        if !self.body.trim().is_empty() {
            return self.body.clone();
        }
        match self.fields.get("input") {
            Some(Value::Object(input)) if input.is_empty() => String::new(),
            None | Some(Value::Null) => String::new(),
            Some(input) => input.to_string(),
        }
    }

    fn end_hosted(self, hosted: &mut HashSet<String>, sink: &mut Sink) {
        let input = self.input();
        let native = if self.body.trim().is_empty() {
            self.start
        } else {
            // The input is an object here; a broken one is sent back as an empty one, which the API accepts.
            let mut fields = self.fields;
            fields.insert(
                "input".to_owned(),
                serde_json::from_str(&input).unwrap_or_else(|_| Value::Object(Map::new())),
            );
            Value::Object(fields).to_string()
        };
        hosted.insert(self.id.clone());
        sink.push_content(ProviderEvent::ToolCall {
            id: self.id,
            name: self.name,
            input,
            executed: true,
            native: Some(native),
        });
    }

    fn end_other(self, hosted: &mut HashSet<String>, sink: &mut Sink) {
        let native = if self.changed {
            Value::Object(self.fields.clone()).to_string()
        } else {
            self.start
        };
        let kind = self
            .fields
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // A result whose call is not in this stream (a paused turn that went on) is kept as it is.
        if kind.ends_with("tool_result") && hosted.remove(&self.id) {
            let content = self.fields.get("content").unwrap_or(&Value::Null);
            let failed = self.fields.get("is_error") == Some(&Value::Bool(true))
                || content
                    .get("type")
                    .and_then(Value::as_str)
                    .is_some_and(|t| t.ends_with("_error"));
            sink.push_content(ProviderEvent::ToolResult {
                id: self.id,
                text: readable(content),
                is_error: failed,
                native: Some(native),
            });
        } else {
            sink.push_content(ProviderEvent::Opaque { native });
        }
    }

    /// Plain text needs no native state; citations have to go back with it.
    fn native_text(&self) -> Option<String> {
        #[derive(serde::Serialize)]
        struct Cited<'a> {
            r#type: &'a str,
            text: &'a str,
            citations: &'a [Box<RawValue>],
        }
        if self.citations.is_empty() {
            return None;
        }
        serde_json::to_string(&Cited {
            r#type: "text",
            text: &self.body,
            citations: &self.citations,
        })
        .ok()
    }

    /// Thinking without a signature is for display only.
    fn native_thinking(&self) -> Option<String> {
        #[derive(serde::Serialize)]
        struct Signed<'a> {
            r#type: &'a str,
            thinking: &'a str,
            signature: &'a str,
        }
        if self.signature.is_empty() {
            return None;
        }
        serde_json::to_string(&Signed {
            r#type: "thinking",
            thinking: &self.body,
            signature: &self.signature,
        })
        .ok()
    }

    /// Fields of a call beyond id, name and input (such as `caller`), which go back with it.
    fn native_call_extras(&self) -> Option<String> {
        let known = ["type", "id", "name", "input"];
        if self.fields.keys().all(|key| known.contains(&key.as_str())) {
            return None;
        }
        let mut fields = self.fields.clone();
        fields.remove("input");
        Some(Value::Object(fields).to_string())
    }
}

impl super::super::blocks::Block for Block {
    fn is_bare_call(&self) -> bool {
        matches!(self.kind, Kind::Call) && self.input().is_empty()
    }

    fn is_local_call(&self) -> bool {
        matches!(self.kind, Kind::Call)
    }

    fn abandon(self, sink: &mut Sink) {
        sink.no_call(self.id, self.name);
    }

    fn end(self, hosted: &mut HashSet<String>, sink: &mut Sink) {
        match self.kind {
            Kind::Text => {
                let native = self.native_text();
                sink.end_text(self.id, native);
            }
            Kind::Thinking => {
                let native = self.native_thinking();
                sink.end_reasoning(self.id, native);
            }
            Kind::Redacted => sink.end_reasoning(self.id, Some(self.start)),
            Kind::Call => {
                let (input, native) = (self.input(), self.native_call_extras());
                sink.call(self.id, self.name, input, native);
            }
            Kind::Hosted => self.end_hosted(hosted, sink),
            Kind::Other => self.end_other(hosted, sink),
        }
    }
}

/// What a result block says, as far as it is text: all strings of readable keys, else its JSON.
fn readable(content: &Value) -> String {
    let mut lines = Vec::new();
    collect(content, &mut lines);
    if lines.is_empty() {
        content.to_string()
    } else {
        lines.join("\n")
    }
}

fn collect(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::String(text) if !text.is_empty() => lines.push(text.clone()),
        Value::Array(list) => list.iter().for_each(|item| collect(item, lines)),
        // A picture or PDF in base64 reads like nothing.
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("base64") => {}
        Value::Object(fields) => {
            for key in [
                "title",
                "url",
                "text",
                "stdout",
                "stderr",
                "error_code",
                "tool_name",
                "content",
                "data",
            ] {
                if let Some(inner) = fields.get(key) {
                    collect(inner, lines);
                }
            }
        }
        _ => {}
    }
}
