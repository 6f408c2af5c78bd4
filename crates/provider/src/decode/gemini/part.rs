//! The parts of a Gemini response: text, thoughts, calls, and what is only kept.
//!
//! A signature belongs to the part it came with, and a part may end in the middle of a word. So a run of text stays
//! one block, and when any of its parts is signed the block keeps its parts: the signed ones as they came, the
//! others joined.

use super::super::raw::{self, Raw};
use super::super::sink::Sink;
use super::call::Call;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tenure_core::provider::ProviderEvent;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Raw<'a>,
    #[serde(borrow, default)]
    thought: Raw<'a>,
    #[serde(borrow, default)]
    thought_signature: Raw<'a>,
    #[serde(borrow, default)]
    function_call: Raw<'a>,
    #[serde(borrow, default)]
    executable_code: Raw<'a>,
    #[serde(borrow, default)]
    code_execution_result: Raw<'a>,
    #[serde(borrow, default)]
    tool_call: Raw<'a>,
    #[serde(borrow, default)]
    tool_response: Raw<'a>,
    #[serde(borrow, default)]
    inline_data: Raw<'a>,
    #[serde(borrow, default)]
    file_data: Raw<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thought,
}

/// A run of text or thoughts.
struct Run {
    kind: Kind,
    id: String,
    /// The parts before `plain`, in their own JSON; empty while none was signed.
    parts: Vec<String>,
    /// Text without a signature, behind `parts`.
    plain: String,
}

impl Run {
    /// Closes the plain text so far as a part.
    fn close_plain(&mut self) {
        if !self.plain.is_empty() {
            let text = std::mem::take(&mut self.plain);
            let part = match self.kind {
                Kind::Text => serde_json::json!({ "text": text }),
                // Without the mark it would go back as said aloud.
                Kind::Thought => serde_json::json!({ "text": text, "thought": true }),
            };
            self.parts.push(part.to_string());
        }
    }

    /// What goes back in place of the run; nothing when it is only text.
    fn native(mut self) -> Option<String> {
        if self.parts.is_empty() {
            return None;
        }
        self.close_plain();
        if self.parts.len() == 1 {
            return self.parts.pop();
        }
        Some(format!("{{\"parts\":[{}]}}", self.parts.join(",")))
    }
}

/// A hosted call without its result so far.
struct Waiting {
    /// The vendor's id; empty when it gave none.
    vendor: String,
    id: String,
}

/// Reads parts in the order they come.
#[derive(Default)]
pub(super) struct Parts {
    open: Option<Run>,
    call: Option<Call>,
    called: bool,
    waiting: Vec<Waiting>,
}

impl Parts {
    /// Was there a call that Tenure has to run?
    pub fn any_call(&self) -> bool {
        self.called
    }

    /// One part.
    pub fn part(&mut self, json: &str, sink: &mut Sink) {
        if let Ok(part) = serde_json::from_str::<Part<'_>>(json) {
            return self.read(&part, json, sink);
        }
        // A key told twice.
        if let Some(normal) = raw::normalised(json)
            && let Ok(part) = serde_json::from_str::<Part<'_>>(&normal)
        {
            self.read(&part, &normal, sink);
        }
    }

    fn read(&mut self, part: &Part<'_>, json: &str, sink: &mut Sink) {
        if let Some(call) = part.function_call {
            self.end(sink);
            return self.function_call(json, call, part.thought_signature, sink);
        }
        let signed = raw::filled(part.thought_signature).is_some();
        if let Some(text) = raw::text(part.text) {
            let thought = part.thought.is_some_and(|t| t.get() == "true");
            let kind = if thought { Kind::Thought } else { Kind::Text };
            if !signed && text.is_empty() {
                return;
            }
            self.end_call(false, sink);
            if signed {
                self.signed(kind, text.into_owned(), json, sink);
            } else {
                self.text(kind, text.into_owned(), sink);
            }
        } else {
            self.other(part, signed, json, sink);
        }
    }

    /// The response is over. `length`: the output limit cut it off.
    pub fn close(&mut self, length: bool, sink: &mut Sink) {
        self.end_call(length, sink);
        self.end(sink);
    }

    fn text(&mut self, kind: Kind, text: String, sink: &mut Sink) {
        let run = self.run(kind, sink);
        run.plain.push_str(&text);
        let id = run.id.clone();
        delta(kind, id, text, sink);
    }

    /// A part with a signature, which goes back as it is. The text may be empty.
    fn signed(&mut self, kind: Kind, text: String, json: &str, sink: &mut Sink) {
        let run = self.run(kind, sink);
        run.close_plain();
        run.parts.push(json.to_owned());
        let id = run.id.clone();
        sink.touch();
        if !text.is_empty() {
            delta(kind, id, text, sink);
        }
    }

    /// The open run of this kind.
    fn run(&mut self, kind: Kind, sink: &mut Sink) -> &mut Run {
        if self.open.as_ref().is_some_and(|run| run.kind != kind) {
            self.end(sink);
        }
        self.open.get_or_insert_with(|| Run {
            kind,
            id: start(kind, sink),
            parts: Vec::new(),
            plain: String::new(),
        })
    }

    fn other(&mut self, part: &Part<'_>, signed: bool, json: &str, sink: &mut Sink) {
        let native = json.to_owned();
        self.end(sink);
        self.end_call(false, sink);
        if let Some(code) = part.executable_code {
            self.hosted("code_execution", code, native, sink);
        } else if let Some(result) = part.code_execution_result {
            self.result(result, native, sink);
        } else if let Some(call) = part.tool_call {
            self.hosted("", call, native, sink);
        } else if let Some(response) = part.tool_response {
            self.result(response, native, sink);
        } else if part.inline_data.is_some() || part.file_data.is_some() {
            // A picture the model made belongs into its message, also at its end.
            let id = start(Kind::Text, sink);
            sink.touch();
            end(Kind::Text, id, Some(native), sink);
        } else if signed || json.len() > 2 {
            sink.push_content(ProviderEvent::Opaque { native });
        }
    }

    fn function_call(&mut self, json: &str, call: &RawValue, signature: Raw<'_>, sink: &mut Sink) {
        let open = self.call.take();
        match Call::read(open, json, call, signature, sink) {
            Some(call) if call.goes_on() => self.call = Some(call),
            Some(call) => {
                self.called = true;
                call.end(sink);
            }
            None => {}
        }
    }

    /// Ends a call whose arguments streamed and whose end was not told. `length`: they may be cut off, so
    /// that no call is made of it.
    fn end_call(&mut self, length: bool, sink: &mut Sink) {
        if let Some(call) = self.call.take() {
            if length {
                call.abandon(sink);
            } else {
                self.called = true;
                call.end(sink);
            }
        }
    }

    fn end(&mut self, sink: &mut Sink) {
        if let Some(run) = self.open.take() {
            let (kind, id) = (run.kind, run.id.clone());
            end(kind, id, run.native(), sink);
        }
    }

    /// A call the provider runs itself.
    fn hosted(&mut self, name: &str, call: &RawValue, native: String, sink: &mut Sink) {
        let fields = object(call);
        let word = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let vendor = word("id").to_owned();
        let id = sink.call_id(&vendor);
        let (name, input) = if name.is_empty() {
            let args = fields.get("args").filter(|args| args.is_object());
            (
                word("toolType"),
                args.map_or_else(|| "{}".to_owned(), Value::to_string),
            )
        } else {
            let shown: Map<String, Value> = ["code", "language"]
                .into_iter()
                .filter_map(|key| Some((key.to_owned(), fields.get(key)?.clone())))
                .collect();
            (name, Value::Object(shown).to_string())
        };
        sink.push_content(ProviderEvent::ToolCall {
            id: id.clone(),
            name: if name.is_empty() { "tool" } else { name }.to_owned(),
            input,
            executed: true,
            native: Some(native),
        });
        self.waiting.push(Waiting { vendor, id });
    }

    /// A result belongs to the call of its id, else to the oldest without one.
    fn result(&mut self, result: &RawValue, native: String, sink: &mut Sink) {
        let fields = object(result);
        let word = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let vendor = word("id");
        let at = self.waiting.iter().position(|w| w.vendor == vendor);
        let Some(at) = at.or((vendor.is_empty() && !self.waiting.is_empty()).then_some(0)) else {
            return sink.push_content(ProviderEvent::Opaque { native });
        };
        let outcome = word("outcome");
        let is_error = !outcome.is_empty() && outcome != "OUTCOME_OK";
        let text = match word("output") {
            "" if is_error => outcome.to_owned(),
            "" => fields
                .get("response")
                .filter(|response| !response.is_null())
                .map_or_else(String::new, Value::to_string),
            output => output.to_owned(),
        };
        sink.push_content(ProviderEvent::ToolResult {
            id: self.waiting.remove(at).id,
            text,
            is_error,
            native: Some(native),
        });
    }
}

/// What the provider's own search found, told once the response is over: a hosted call if it was one of the
/// web, else a block that is kept.
pub(super) fn grounding(found: Option<String>, urls: Option<String>, sink: &mut Sink) {
    if let Some(json) = urls {
        sink.push_content(ProviderEvent::Opaque {
            native: format!("{{\"urlContextMetadata\":{json}}}"),
        });
    }
    let Some(json) = found else { return };
    let native = format!("{{\"groundingMetadata\":{json}}}");
    let fields: Map<String, Value> = serde_json::from_str(&json).unwrap_or_default();
    let queries = fields.get("webSearchQueries").and_then(Value::as_array);
    let Some(queries) = queries.filter(|queries| !queries.is_empty()) else {
        return sink.push_content(ProviderEvent::Opaque { native });
    };
    let id = sink.call_id("");
    sink.push_content(ProviderEvent::ToolCall {
        id: id.clone(),
        name: "google_search".to_owned(),
        input: serde_json::json!({ "queries": queries }).to_string(),
        executed: true,
        native: Some(native),
    });
    // Call and result are one JSON here: it is kept once, with the call.
    sink.push_content(ProviderEvent::ToolResult {
        id,
        text: sources(&fields),
        is_error: false,
        native: None,
    });
}

/// The pages found, one a line.
fn sources(fields: &Map<String, Value>) -> String {
    let chunks = fields.get("groundingChunks").and_then(Value::as_array);
    let lines: Vec<String> = chunks
        .into_iter()
        .flatten()
        .filter_map(|chunk| chunk.get("web"))
        .map(|web| {
            let word = |key: &str| web.get(key).and_then(Value::as_str).unwrap_or_default();
            format!("{} {}", word("title"), word("uri"))
                .trim()
                .to_owned()
        })
        .collect();
    if lines.is_empty() {
        "searched".to_owned()
    } else {
        lines.join("\n")
    }
}

fn start(kind: Kind, sink: &mut Sink) -> String {
    match kind {
        Kind::Text => {
            let id = sink.fragment("text_");
            sink.push(ProviderEvent::TextStart { id: id.clone() });
            id
        }
        Kind::Thought => {
            let id = sink.fragment("reasoning_");
            sink.push(ProviderEvent::ReasoningStart { id: id.clone() });
            id
        }
    }
}

fn delta(kind: Kind, id: String, text: String, sink: &mut Sink) {
    sink.push_content(match kind {
        Kind::Text => ProviderEvent::TextDelta { id, text },
        Kind::Thought => ProviderEvent::ReasoningDelta { id, text },
    });
}

fn end(kind: Kind, id: String, native: Option<String>, sink: &mut Sink) {
    sink.push(match kind {
        Kind::Text => ProviderEvent::TextEnd { id, native },
        Kind::Thought => ProviderEvent::ReasoningEnd { id, native },
    });
}

fn object(raw: &RawValue) -> Map<String, Value> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}
