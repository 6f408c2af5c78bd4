//! OpenAI Chat Completions in the dialects of its servers: what differs stands in the table of dialects.

mod assistant;
mod content;
mod ids;
mod limits;
mod messages;
mod options;

use super::Dialect;
use super::shape::{self, Json, json, visible};
use crate::dialect::{Cache, Facts, Limit};
use content::Marks;
use serde::Serialize;
use serde_json::{Map, Value};
use tenure_core::request::Request;

/// A JSON object whose keys stand in the order they were put: the cache of a vendor sees bytes.
struct Body(String);

impl Body {
    fn new() -> Self {
        Self("{".to_owned())
    }

    fn put<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(key);
        self.0.push_str("\":");
        self.0.push_str(json(&value).get());
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push('}');
        self.0.into_bytes()
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: Value,
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, dialect: Dialect, output: Option<u64>) -> Option<Vec<u8>> {
    let facts = dialect.facts();
    let hosted = options::hosted_tools(request, facts);
    let tools = tools(request, facts, hosted.len());
    let form = options::form(request, facts, !(tools.is_empty() && hosted.is_empty()));
    let settings = messages::Settings {
        facts,
        marks: marks(request, facts),
        tools: facts.tools,
        reasoning: facts.reasoning_required
            && !tools.is_empty()
            && request.effort != Some(tenure_core::request::Effort::Off),
    };
    let mut messages = messages::of(request, &settings)?;
    let system = system(request, form.words.as_deref());
    if !system.is_empty() {
        messages.insert(0, content::system(&system, settings.marks));
    }

    let mut body = Body::new();
    body.put("model", &request.model.model);
    body.put("stream", &true);
    if facts.stream_options {
        body.put("stream_options", &object("include_usage", true.into()));
    }
    if let Some(output) = output {
        let field = match facts.limit {
            Limit::MaxTokens => "max_tokens",
            Limit::MaxCompletionTokens => "max_completion_tokens",
        };
        body.put(field, &output);
    }
    if facts.cache == Cache::Key && !request.cache_key.is_empty() {
        body.put("prompt_cache_key", &request.cache_key);
    }
    options::effort(request, facts, &mut body);
    options::hosted(request, facts, &mut body);
    if let Some(format) = form.field {
        body.put("response_format", &format);
    }
    let choice = options::choice(request, facts, tools.len());
    // A server that cannot be told to leave tools alone must not see any.
    let shown = choice != options::Chosen::Hide;
    if shown && (!tools.is_empty() || !hosted.is_empty()) {
        let own = tools.iter().map(json);
        body.put("tools", &own.chain(hosted).collect::<Vec<Json>>());
    }
    if let options::Chosen::Say(choice) = choice {
        body.put("tool_choice", &choice);
    }
    body.put("messages", &messages);
    Some(body.finish())
}

/// The definitions the server takes beside `others`, in their order. More would make every request invalid.
fn tools<'a>(request: &'a Request, facts: &Facts, others: usize) -> Vec<Tool<'a>> {
    let most = if facts.tools {
        facts.max_tools.saturating_sub(others)
    } else {
        0
    };
    request
        .tools
        .iter()
        .take(most)
        .map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: &tool.name,
                description: &tool.description,
                parameters: shape::schema(tool),
            },
        })
        .collect()
}

fn system(request: &Request, form: Option<&str>) -> String {
    request
        .system
        .iter()
        .map(String::as_str)
        .chain(form)
        .filter(|part| visible(part))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Cache marks are for gateways that lead to vendors who cache only what is marked.
fn marks(request: &Request, facts: &Facts) -> Marks {
    let model = request.model.model.as_str();
    let marked = ["anthropic/", "~anthropic/", "qwen/"];
    if facts.cache == Cache::Marks && marked.iter().any(|maker| model.starts_with(maker)) {
        Marks::Parts
    } else {
        Marks::None
    }
}

/// An object of one field.
fn object(key: &str, value: Value) -> Value {
    let mut fields = Map::new();
    fields.insert(key.to_owned(), value);
    Value::Object(fields)
}
