//! One content block of a Converse stream, from its start to the JSON that is sent back.

use super::super::raw::{self, Raw};
use super::super::sink::Sink;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use tenure_core::provider::ProviderEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start<'a> {
    #[serde(borrow, default)]
    tool_use: Raw<'a>,
    #[serde(borrow, default)]
    tool_result: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Delta<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    citation: Raw<'a>,
    #[serde(borrow, default)]
    tool_use: Raw<'a>,
    #[serde(borrow, default)]
    tool_result: Raw<'a>,
    #[serde(borrow, default)]
    reasoning_content: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReasoningDelta<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    signature: Raw<'a>,
    #[serde(borrow, default)]
    redacted_content: Raw<'a>,
}

#[derive(Deserialize)]
struct ToolDelta<'a> {
    #[serde(borrow, default)]
    input: Raw<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Call,
    Hosted,
    /// The result of a hosted call.
    Result,
    /// Anything else, such as a generated image.
    Other,
}

/// A block while it streams.
pub(super) struct Block {
    kind: Kind,
    /// Fragment or call id.
    id: String,
    name: String,
    /// What the start said: the fields of the tool use or result, else of the whole block.
    fields: Map<String, Value>,
    /// Text, reasoning or partial JSON so far.
    body: String,
    signature: String,
    /// Encrypted reasoning, decoded: pieces in base64 cannot simply be joined.
    redacted: Vec<u8>,
    citations: Vec<Box<RawValue>>,
    /// The content of a result.
    content: Vec<Value>,
    /// Its first delta opened it.
    implied: bool,
}

impl Block {
    fn new(kind: Kind, id: String, fields: Map<String, Value>) -> Self {
        let name = string(&fields, "name");
        Self {
            kind,
            id,
            name,
            fields,
            body: String::new(),
            signature: String::new(),
            redacted: Vec::new(),
            citations: Vec::new(),
            content: Vec::new(),
            implied: false,
        }
    }

    /// A block as `contentBlockStart` tells it; `None` when only a delta can say what it is.
    pub fn start(json: &str, sink: &mut Sink) -> Option<Self> {
        let start: Start<'_> = serde_json::from_str(json).ok()?;
        let fields = |raw: &RawValue| serde_json::from_str::<Map<String, Value>>(raw.get()).ok();
        if let Some(fields) = start.tool_use.and_then(fields) {
            let id = sink.call_id(&string(&fields, "toolUseId"));
            if string(&fields, "type") == "server_tool_use" {
                sink.touch();
                return Some(Self::new(Kind::Hosted, id, fields));
            }
            let block = Self::new(Kind::Call, id, fields);
            sink.push_content(ProviderEvent::ToolInputStart {
                id: block.id.clone(),
                name: block.name.clone(),
            });
            return Some(block);
        }
        sink.touch();
        if let Some(mut fields) = start.tool_result.and_then(fields) {
            let id = string(&fields, "toolUseId");
            let mut block = Self::new(Kind::Result, id, Map::new());
            if let Some(Value::Array(content)) = fields.remove("content") {
                block.content = content;
            }
            block.fields = fields;
            return Some(block);
        }
        let fields: Map<String, Value> = serde_json::from_str(json).ok()?;
        let known = fields.values().any(|value| !value.is_null());
        known.then(|| Self::new(Kind::Other, String::new(), fields))
    }

    /// A block without a start, as text and reasoning come, by its first delta.
    pub fn implied(json: &str, sink: &mut Sink) -> Option<Self> {
        let delta: Delta<'_> = serde_json::from_str(json).ok()?;
        let mut block = if delta.text.is_some() || delta.citation.is_some() {
            let id = sink.fragment("text_");
            sink.push(ProviderEvent::TextStart { id: id.clone() });
            Self::new(Kind::Text, id, Map::new())
        } else if delta.reasoning_content.is_some() {
            let id = sink.fragment("reasoning_");
            sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
            Self::new(Kind::Reasoning, id, Map::new())
        } else if delta.tool_use.is_some() || delta.tool_result.is_some() {
            // Input of a call nobody named: there is nothing to run.
            return None;
        } else {
            sink.touch();
            Self::new(Kind::Other, String::new(), Map::new())
        };
        block.implied = true;
        Some(block)
    }

    /// Takes one delta; false when it is of another kind than the block.
    pub fn delta(&mut self, json: &str, sink: &mut Sink) -> bool {
        let Ok(delta) = serde_json::from_str::<Delta<'_>>(json) else {
            return true;
        };
        match self.kind {
            Kind::Text if delta.text.is_some() || delta.citation.is_some() => {
                self.citations.extend(delta.citation.map(ToOwned::to_owned));
                if let Some(text) = raw::filled(delta.text) {
                    self.body.push_str(&text);
                    sink.more_text(&self.id, text);
                }
            }
            Kind::Reasoning if delta.reasoning_content.is_some() => {
                self.reason(delta.reasoning_content, sink);
            }
            Kind::Call | Kind::Hosted if delta.tool_use.is_some() => {
                self.input_delta(delta.tool_use, sink);
            }
            Kind::Result if delta.tool_result.is_some() => {
                let content = delta
                    .tool_result
                    .and_then(|raw| serde_json::from_str::<Vec<Value>>(raw.get()).ok());
                self.content.extend(content.unwrap_or_default());
                sink.touch();
            }
            Kind::Other if delta.is_unknown() => self.join(json, sink),
            _ => return delta.is_unknown(),
        }
        true
    }

    fn reason(&mut self, delta: Raw<'_>, sink: &mut Sink) {
        let Some(Ok(delta)) = delta.map(|d| serde_json::from_str::<ReasoningDelta<'_>>(d.get()))
        else {
            return;
        };
        if let Some(text) = raw::filled(delta.text) {
            self.body.push_str(&text);
            sink.more_reasoning(&self.id, text);
        }
        if let Some(signature) = raw::filled(delta.signature) {
            self.signature.push_str(&signature);
            sink.touch();
        }
        if let Some(data) = raw::filled(delta.redacted_content)
            && let Ok(data) = STANDARD.decode(&*data)
        {
            self.redacted.extend(data);
            sink.touch();
        }
    }

    fn input_delta(&mut self, delta: Raw<'_>, sink: &mut Sink) {
        let Some(Ok(delta)) = delta.map(|d| serde_json::from_str::<ToolDelta<'_>>(d.get())) else {
            return;
        };
        // The protocol sends text; an object is what a gateway made of it.
        let Some(text) = raw::arguments(delta.input).filter(|text| !text.is_empty()) else {
            return;
        };
        self.body.push_str(&text);
        if self.kind == Kind::Hosted {
            return sink.touch();
        }
        sink.more_input(&self.id, text);
    }

    /// Joins an unknown delta into the fields of the same name.
    fn join(&mut self, json: &str, sink: &mut Sink) {
        let Ok(delta) = serde_json::from_str::<Map<String, Value>>(json) else {
            return;
        };
        for (key, value) in delta {
            sink.touch();
            match (self.fields.get_mut(&key), value) {
                (Some(Value::String(have)), Value::String(more)) => have.push_str(&more),
                (Some(Value::Array(have)), Value::Array(more)) => have.extend(more),
                (Some(Value::Object(have)), Value::Object(more)) => have.extend(more),
                (_, value) => {
                    self.fields.insert(key, value);
                }
            }
        }
    }

    /// Was it opened by its first delta?
    pub fn is_implied(&self) -> bool {
        self.implied
    }

    fn end_hosted(mut self, hosted: &mut HashSet<String>, sink: &mut Sink) {
        // The input is an object here; a broken one is sent back as an empty one.
        let input = serde_json::from_str::<Map<String, Value>>(&self.body).unwrap_or_default();
        self.fields.insert("input".to_owned(), input.into());
        hosted.insert(self.id.clone());
        sink.push_content(ProviderEvent::ToolCall {
            id: self.id,
            name: self.name,
            input: self.body,
            executed: true,
            native: Some(json!({"toolUse": self.fields}).to_string()),
        });
    }

    fn end_result(mut self, hosted: &mut HashSet<String>, sink: &mut Sink) {
        let text = readable(&self.content);
        let failed = string(&self.fields, "status") == "error"
            || self
                .content
                .iter()
                .any(|part| part.pointer("/json/isError") == Some(&Value::Bool(true)));
        self.fields
            .insert("content".to_owned(), Value::Array(self.content));
        let native = json!({"toolResult": self.fields}).to_string();
        if hosted.remove(&self.id) {
            sink.push_content(ProviderEvent::ToolResult {
                id: self.id,
                text,
                is_error: failed,
                native: Some(native),
            });
        } else {
            sink.push_content(ProviderEvent::Opaque { native });
        }
    }

    /// Plain text needs no native state; citations are kept beside it.
    fn native_text(&self) -> Option<String> {
        #[derive(Serialize)]
        struct Cited<'a> {
            content: [Piece<'a>; 1],
            citations: &'a [Box<RawValue>],
        }
        #[derive(Serialize)]
        struct Piece<'a> {
            text: &'a str,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Native<'a> {
            citations_content: Cited<'a>,
        }
        if self.citations.is_empty() {
            return None;
        }
        let citations_content = Cited {
            content: [Piece { text: &self.body }],
            citations: &self.citations,
        };
        serde_json::to_string(&Native { citations_content }).ok()
    }

    /// Reasoning without a signature is for display only.
    fn native_reasoning(&self) -> Option<String> {
        let content = if !self.signature.is_empty() {
            json!({"reasoningText": {"text": self.body, "signature": self.signature}})
        } else if !self.redacted.is_empty() {
            json!({"redactedContent": STANDARD.encode(&self.redacted)})
        } else {
            return None;
        };
        Some(json!({"reasoningContent": content}).to_string())
    }
}

impl super::super::blocks::Block for Block {
    fn is_bare_call(&self) -> bool {
        self.kind == Kind::Call && self.body.trim().is_empty()
    }

    fn is_local_call(&self) -> bool {
        self.kind == Kind::Call
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
            Kind::Reasoning => {
                let native = self.native_reasoning();
                sink.end_reasoning(self.id, native);
            }
            Kind::Call => sink.call(self.id, self.name, self.body, None),
            Kind::Hosted => self.end_hosted(hosted, sink),
            Kind::Result => self.end_result(hosted, sink),
            Kind::Other => sink.push_content(ProviderEvent::Opaque {
                native: Value::Object(self.fields).to_string(),
            }),
        }
    }
}

impl Delta<'_> {
    fn is_unknown(&self) -> bool {
        self.text.is_none()
            && self.citation.is_none()
            && self.tool_use.is_none()
            && self.tool_result.is_none()
            && self.reasoning_content.is_none()
    }
}

fn string(fields: &Map<String, Value>, key: &str) -> String {
    fields
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// What a result says, as far as it is text: its texts, and the output of a program.
fn readable(content: &[Value]) -> String {
    let mut lines = Vec::new();
    for part in content {
        let places = ["/text", "/json/stdOut", "/json/stdErr"];
        let before = lines.len();
        for text in places.iter().filter_map(|at| part.pointer(at)?.as_str()) {
            if !text.is_empty() {
                lines.push(text.to_owned());
            }
        }
        if lines.len() == before {
            lines.push(part.get("json").unwrap_or(part).to_string());
        }
    }
    lines.join("\n")
}
