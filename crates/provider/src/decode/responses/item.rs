//! One output item of a Responses stream, from `added` to the JSON that is sent back.

use super::super::sink::Sink;
use serde_json::{Map, Value};
use std::collections::HashMap;
use tenure_core::provider::ProviderEvent;

/// Which part of an item a delta belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragment {
    Text,
    /// A part of a reasoning summary.
    Summary(u64),
    /// A part of raw reasoning.
    Thought(u64),
    Arguments,
}

/// What is known of all calls of the stream.
#[derive(Default)]
pub(super) struct Calls {
    local: bool,
    /// Hosted calls whose result comes as an item of its own: vendor's call id to id in events.
    waiting: HashMap<String, String>,
}

impl Calls {
    /// Was there a call that Tenure has to run?
    pub fn any_local(&self) -> bool {
        self.local
    }
}

enum Kind {
    Message,
    Reasoning,
    /// A call Tenure has to run, with its id in events and its name.
    Call {
        id: String,
        name: String,
    },
    /// Everything else; judged when it is done.
    Other,
}

/// An item while it streams.
pub(super) struct Item {
    kind: Kind,
    /// The part that streams, and its fragment. A part that is spoken to again after another one began gets a new
    /// fragment: the old one has ended.
    open: Option<(Fragment, String)>,
    /// Bytes of text so far, of all parts.
    streamed: usize,
    arguments: String,
}

impl Item {
    /// An item as `output_item.added` tells it.
    pub fn added(json: &str, calls: &mut Calls, sink: &mut Sink) -> Self {
        let fields = object(json);
        let kind = match word(&fields, "type") {
            "message" => Kind::Message,
            "reasoning" => Kind::Reasoning,
            "function_call" | "custom_tool_call" => {
                calls.local = true;
                let id = sink.call_id(call_id(&fields));
                let name = word(&fields, "name").to_owned();
                sink.push_content(ProviderEvent::ToolInputStart {
                    id: id.clone(),
                    name: name.clone(),
                });
                Kind::Call { id, name }
            }
            _ => Kind::Other,
        };
        Self {
            kind,
            open: None,
            streamed: 0,
            arguments: String::new(),
        }
    }

    /// An item whose `added` a gateway left out. A call cannot be told without its name.
    pub fn implied(fragment: &Fragment) -> Option<Self> {
        let kind = match fragment {
            Fragment::Text => Kind::Message,
            Fragment::Summary(_) | Fragment::Thought(_) => Kind::Reasoning,
            Fragment::Arguments => return None,
        };
        Some(Self {
            kind,
            open: None,
            streamed: 0,
            arguments: String::new(),
        })
    }

    /// Takes one delta.
    pub fn delta(&mut self, fragment: &Fragment, text: &str, sink: &mut Sink) {
        match (&self.kind, fragment) {
            (Kind::Call { id, .. }, Fragment::Arguments) => {
                self.arguments.push_str(text);
                sink.push_content(ProviderEvent::ToolInputDelta {
                    id: id.clone(),
                    name: None,
                    text: text.to_owned(),
                });
            }
            (Kind::Message, Fragment::Text) => {
                let id = self.part(fragment, text, sink);
                sink.push_content(ProviderEvent::TextDelta {
                    id,
                    text: text.to_owned(),
                });
            }
            (Kind::Reasoning, Fragment::Summary(_) | Fragment::Thought(_)) => {
                let id = self.part(fragment, text, sink);
                sink.push_content(ProviderEvent::ReasoningDelta {
                    id,
                    text: text.to_owned(),
                });
            }
            _ => sink.touch(),
        }
    }

    /// The fragment id of a part. Another part of reasoning ends the one before it, so that a reader sees
    /// the parts apart.
    fn part(&mut self, fragment: &Fragment, text: &str, sink: &mut Sink) -> String {
        self.streamed += text.len();
        if let Some((open, id)) = &self.open
            && open == fragment
        {
            return id.clone();
        }
        let id = if matches!(self.kind, Kind::Message) {
            let id = sink.fragment("text_");
            sink.push(ProviderEvent::TextStart { id: id.clone() });
            id
        } else {
            if let Some((_, before)) = self.open.take() {
                sink.push(ProviderEvent::ReasoningEnd {
                    id: before,
                    native: None,
                });
            }
            let id = sink.fragment("reasoning_");
            sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
            id
        };
        self.open = Some((*fragment, id.clone()));
        id
    }

    /// The item is whole: `json` is what it became, and what is sent back.
    pub fn done(mut self, json: &str, calls: &mut Calls, sink: &mut Sink) {
        let fields = object(json);
        match std::mem::replace(&mut self.kind, Kind::Other) {
            Kind::Message => {
                self.kind = Kind::Message;
                self.done_message(&fields, json, sink);
            }
            Kind::Reasoning => {
                self.kind = Kind::Reasoning;
                self.done_reasoning(&fields, json, sink);
            }
            Kind::Call { id, name } => {
                let whole = ["arguments", "input"]
                    .iter()
                    .find_map(|key| match fields.get(*key) {
                        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
                        Some(object @ Value::Object(_)) => Some(object.to_string()),
                        _ => None,
                    });
                let input = whole.unwrap_or(self.arguments);
                sink.call(id, name, input, Some(json.to_owned()));
            }
            Kind::Other => done_other(&fields, json, calls, sink),
        }
    }

    /// The response is over although the item was never done. With `cut`, it ended before its time.
    pub fn close(self, cut: bool, sink: &mut Sink) {
        let open = self.open.map(|(_, id)| id);
        match (self.kind, open) {
            (Kind::Message, Some(id)) => sink.push(ProviderEvent::TextEnd { id, native: None }),
            (Kind::Reasoning, Some(id)) => {
                sink.push(ProviderEvent::ReasoningEnd { id, native: None });
            }
            // Without any argument nobody can tell whether they were lost.
            (Kind::Call { id, name }, _) if cut && self.arguments.trim().is_empty() => {
                let name = Some(name);
                sink.push(ProviderEvent::ToolInputEnd { id, name });
            }
            (Kind::Call { id, name }, _) => sink.call(id, name, self.arguments, None),
            _ => {}
        }
    }

    fn done_message(mut self, fields: &Map<String, Value>, json: &str, sink: &mut Sink) {
        let whole: String = list(fields, "content")
            .iter()
            .filter_map(|part| {
                part.get("text")
                    .or_else(|| part.get("refusal"))
                    .and_then(Value::as_str)
            })
            .collect();
        // Gateways that buffer send the text only here.
        if let Some(rest) = whole.get(self.streamed..).filter(|rest| !rest.is_empty()) {
            self.delta(&Fragment::Text, rest, sink);
        }
        let Some((_, id)) = self.open.take() else {
            return;
        };
        sink.push(ProviderEvent::TextEnd {
            id,
            native: Some(json.to_owned()),
        });
    }

    fn done_reasoning(mut self, fields: &Map<String, Value>, json: &str, sink: &mut Sink) {
        if self.open.is_none() {
            for (part, at) in list(fields, "summary").iter().zip(0..) {
                self.whole_part(&Fragment::Summary(at), part, sink);
            }
            for (part, at) in list(fields, "content").iter().zip(0..) {
                self.whole_part(&Fragment::Thought(at), part, sink);
            }
        }
        let id = match self.open.take() {
            Some((_, id)) => id,
            None => {
                let id = sink.fragment("reasoning_");
                sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
                id
            }
        };
        sink.push(ProviderEvent::ReasoningEnd {
            id,
            native: Some(json.to_owned()),
        });
    }

    fn whole_part(&mut self, fragment: &Fragment, part: &Value, sink: &mut Sink) {
        if let Some(text) = part
            .get("text")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
        {
            self.delta(fragment, text, sink);
        }
    }
}

/// Calls the provider runs itself, the results of such calls, and what this version does not know.
fn done_other(fields: &Map<String, Value>, json: &str, calls: &mut Calls, sink: &mut Sink) {
    let kind = word(fields, "type");
    let native = Some(json.to_owned());
    match kind {
        "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "image_generation_call"
        | "mcp_call"
        | "computer_call_hosted" => {
            let id = sink.call_id(own_id(fields));
            let name = if kind == "mcp_call" {
                word(fields, "name")
            } else {
                kind
            };
            sink.push_content(ProviderEvent::ToolCall {
                id: id.clone(),
                name: name.to_owned(),
                input: hosted_input(fields),
                executed: true,
                native,
            });
            let failed = word(fields, "status") == "failed"
                || fields.get("error").is_some_and(|e| !e.is_null());
            // The item holds call and result in one: it goes back once, with the call.
            sink.push_content(ProviderEvent::ToolResult {
                id,
                text: hosted_output(fields),
                is_error: failed,
                native: None,
            });
        }
        "shell_call" | "tool_search_call" | "program" if is_hosted(kind, fields) => {
            let id = sink.call_id(call_id(fields));
            calls.waiting.insert(call_id(fields).to_owned(), id.clone());
            sink.push_content(ProviderEvent::ToolCall {
                id,
                name: kind.to_owned(),
                input: hosted_input(fields),
                executed: true,
                native,
            });
        }
        "apply_patch_call" | "local_shell_call" | "shell_call" | "tool_search_call" => {
            client_call(kind, fields, calls, sink)
        }
        "mcp_approval_request" => {
            let id = sink.call_id(own_id(fields));
            sink.push_content(ProviderEvent::ToolCall {
                id: id.clone(),
                name: kind.to_owned(),
                input: hosted_input(fields),
                executed: true,
                native: None,
            });
            // Nobody here can approve, and an open request must not go back.
            sink.push_content(ProviderEvent::ToolResult {
                id,
                text: "not approved: calls of the provider's own MCP client need no approval only where its settings say so"
                    .to_owned(),
                is_error: true,
                native: None,
            });
        }
        "shell_call_output" | "tool_search_output" | "program_output" => {
            match calls.waiting.remove(call_id(fields)) {
                Some(id) => sink.push_content(ProviderEvent::ToolResult {
                    id,
                    text: hosted_output(fields),
                    is_error: false,
                    native,
                }),
                None => sink.push_content(ProviderEvent::Opaque {
                    native: json.to_owned(),
                }),
            }
        }
        _ => sink.push_content(ProviderEvent::Opaque {
            native: json.to_owned(),
        }),
    }
}

/// A call of a built-in tool that the client would have to run. Tenure offers functions only, so a model that asks
/// for one all the same asks for a function of that name, and is told that there is none. The item itself does not
/// go back: the vendor would refuse it without an output of its own kind.
fn client_call(kind: &str, fields: &Map<String, Value>, calls: &mut Calls, sink: &mut Sink) {
    calls.local = true;
    let id = sink.call_id(call_id(fields));
    let input = client_input(fields);
    sink.push_content(ProviderEvent::ToolInputStart {
        id: id.clone(),
        name: kind.to_owned(),
    });
    sink.push_content(ProviderEvent::ToolInputDelta {
        id: id.clone(),
        name: None,
        text: input.clone(),
    });
    sink.call(id, kind.to_owned(), input, None);
}

/// What the client is asked to do, under the vendor's several names for it.
fn client_input(fields: &Map<String, Value>) -> String {
    for key in ["action", "operation"] {
        if let Some(input @ Value::Object(_)) = fields.get(key) {
            return input.to_string();
        }
    }
    hosted_input(fields)
}

/// Does the provider run this call, or does it ask us to?
fn is_hosted(kind: &str, fields: &Map<String, Value>) -> bool {
    match kind {
        "tool_search_call" => word(fields, "execution") == "server",
        "shell_call" => {
            fields
                .get("environment")
                .and_then(|e| e.get("type"))
                .and_then(Value::as_str)
                != Some("local")
                && fields.get("environment").is_some_and(|e| !e.is_null())
        }
        _ => true,
    }
}

fn hosted_input(fields: &Map<String, Value>) -> String {
    if let Some(Value::String(arguments)) = fields.get("arguments")
        && word(fields, "type") == "mcp_call"
    {
        return arguments.clone();
    }
    if let Some(action @ Value::Object(_)) = fields.get("action")
        && word(fields, "type") == "shell_call"
    {
        return action.to_string();
    }
    let keys = ["action", "arguments", "code", "queries", "name"];
    let input: Map<String, Value> = keys
        .iter()
        .filter_map(|key| {
            fields
                .get(*key)
                .filter(|v| !v.is_null())
                .map(|v| ((*key).to_owned(), v.clone()))
        })
        .collect();
    Value::Object(input).to_string()
}

fn hosted_output(fields: &Map<String, Value>) -> String {
    if let Some(error) = fields.get("error").filter(|e| !e.is_null()) {
        return error
            .as_str()
            .map_or_else(|| error.to_string(), str::to_owned);
    }
    for key in ["output", "outputs", "results", "tools"] {
        match fields.get(key) {
            Some(Value::String(text)) if !text.is_empty() => return text.clone(),
            Some(value @ (Value::Array(_) | Value::Object(_))) => return value.to_string(),
            _ => {}
        }
    }
    match word(fields, "type") {
        "image_generation_call" => "an image was generated".to_owned(),
        _ => word(fields, "status").to_owned(),
    }
}

fn object(json: &str) -> Map<String, Value> {
    serde_json::from_str(json).unwrap_or_default()
}

fn word<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn call_id(fields: &Map<String, Value>) -> &str {
    match word(fields, "call_id") {
        "" => own_id(fields),
        id => id,
    }
}

fn own_id(fields: &Map<String, Value>) -> &str {
    word(fields, "id")
}

fn list<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    match fields.get(key) {
        Some(Value::Array(list)) => list,
        _ => &[],
    }
}
