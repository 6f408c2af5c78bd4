//! OpenAI Chat Completions, in the subset that its imitations understand.

use super::Dialect;
use super::shape::{self, Json, Said, Turn, json, legal_id, native, visible};
use serde::Serialize;
use serde_json::{Map, Value};
use tenure_core::request::{AssistantBlock, Request, ToolChoice, ToolResult};

/// OpenAI's limit; the strictest that is common.
const ID_LIMIT: usize = 40;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    messages: Vec<Json>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
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

#[derive(Serialize)]
struct Plain<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct Answer<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: &'a str,
}

#[derive(Serialize, Default)]
struct Assistant<'a> {
    role: &'static str,
    content: Option<Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasoning_details: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    id: String,
    r#type: &'static str,
    function: Called<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<Value>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: String,
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, dialect: Dialect, output: Option<u64>) -> Option<Vec<u8>> {
    let mut messages = Vec::new();
    let mut ends_with_assistant = false;
    for turn in shape::turns(request) {
        match turn {
            Turn::User(ref said) => user(said, dialect, &mut messages),
            Turn::Assistant(ref blocks) => match assistant(blocks) {
                Some(message) => messages.push(message),
                None => continue,
            },
            Turn::Results(ref results) => {
                messages.extend(results.iter().map(|result| answer(result)))
            }
        }
        ends_with_assistant = matches!(turn, Turn::Assistant(_));
    }
    if messages.is_empty() {
        return None;
    }
    if ends_with_assistant {
        // Most endpoints either refuse a final assistant message or go on writing inside it.
        messages.push(json(&Plain {
            role: "user",
            content: "Continue.",
        }));
    }
    let system = request
        .system
        .iter()
        .map(String::as_str)
        .filter(|part| visible(part))
        .collect::<Vec<_>>()
        .join("\n\n");
    if !system.is_empty() {
        messages.insert(
            0,
            json(&Plain {
                role: "system",
                content: &system,
            }),
        );
    }
    let tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            r#type: "function",
            function: Function {
                name: &tool.name,
                description: &tool.description,
                parameters: shape::schema(tool),
            },
        })
        .collect();
    let openai = dialect == Dialect::Openai;
    let body = Body {
        model: &request.model.model,
        stream: true,
        stream_options: (dialect != Dialect::Mistral).then_some(StreamOptions {
            include_usage: true,
        }),
        max_tokens: output.filter(|_| !openai),
        max_completion_tokens: output.filter(|_| openai),
        prompt_cache_key: (openai && !request.cache_key.is_empty())
            .then_some(request.cache_key.as_str()),
        tool_choice: (!tools.is_empty()).then_some(match request.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required | ToolChoice::Tool(_) => "required",
        }),
        tools,
        messages,
    };
    serde_json::to_vec(&body).ok()
}

/// One user message for all that was said, since some templates want alternation; only OpenAI itself takes
/// privileged messages in mid-conversation.
fn user(said: &[Said<'_>], dialect: Dialect, messages: &mut Vec<Json>) {
    let mut text = String::new();
    for said in said {
        let piece = match said {
            Said::System(note) if dialect == Dialect::Openai => {
                flush(&mut text, messages);
                messages.push(json(&Plain {
                    role: "system",
                    content: note,
                }));
                continue;
            }
            Said::System(note) => shape::note(note),
            Said::User(part) => (*part).to_owned(),
            Said::Media(media) => shape::media_as_text(media),
        };
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&piece);
    }
    flush(&mut text, messages);
}

fn flush(text: &mut String, messages: &mut Vec<Json>) {
    if !text.is_empty() {
        messages.push(json(&Plain {
            role: "user",
            content: text,
        }));
        text.clear();
    }
}

fn answer(result: &ToolResult) -> Json {
    let content = if visible(&result.text) {
        &result.text
    } else {
        "(no output)"
    };
    json(&Answer {
        role: "tool",
        tool_call_id: &legal_id(&result.id, ID_LIMIT),
        content,
    })
}

fn assistant(blocks: &[&AssistantBlock]) -> Option<Json> {
    let mut message = Assistant {
        role: "assistant",
        ..Assistant::default()
    };
    let mut thinking = String::new();
    let mut text = String::new();
    let mut append = |piece: &str| {
        if visible(piece) {
            text.push_str(piece);
        }
    };
    for block in blocks {
        match block {
            AssistantBlock::Text { text, .. } => append(text),
            AssistantBlock::Reasoning { text, native: own } => {
                let Some((_, mut fields)) = native(own.as_deref()) else {
                    continue;
                };
                match fields.get("field").and_then(Value::as_str) {
                    Some("reasoning_content") => message.reasoning_content.push_str(text),
                    Some("reasoning") => message.reasoning.push_str(text),
                    Some("thinking") => thinking.push_str(text),
                    _ => {
                        if let Some(Value::Array(details)) = fields.remove("reasoning_details") {
                            message.reasoning_details.extend(details);
                        }
                    }
                }
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => message.tool_calls.push(Call {
                id: legal_id(id, ID_LIMIT).into_owned(),
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
                    append(&format!("\n\n{told}\n\n"));
                }
            }
            // No block of this protocol is opaque.
            AssistantBlock::Opaque { .. } => {}
        }
    }
    let text = text.trim_end();
    // Reasoning alone is no answer.
    if text.is_empty() && message.tool_calls.is_empty() {
        return None;
    }
    message.content = content(text, &thinking);
    Some(json(&message))
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
