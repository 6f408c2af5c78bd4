//! Anthropic Messages: alternating roles, results first, cache marks, signed thinking as it was.

use super::shape::{self, Json, Said, Turn, json, legal_id, native, visible};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use tenure_core::request::{AssistantBlock, Request, ToolChoice, ToolResult};

const DEFAULT_OUTPUT: u64 = 8192;
const ID_LIMIT: usize = 64;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Kind>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Text<'a>>,
    messages: Vec<Message>,
}

#[derive(Serialize, Clone, Copy)]
struct Kind {
    r#type: &'static str,
}

const CACHED: Option<Kind> = Some(Kind {
    r#type: "ephemeral",
});

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Kind>,
}

#[derive(Serialize)]
struct Message {
    role: &'static str,
    content: Vec<Json>,
}

#[derive(Serialize)]
struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Kind>,
}

#[derive(Serialize)]
struct Result<'a> {
    r#type: &'static str,
    tool_use_id: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Kind>,
}

/// A block of a user message, before it is known whether it carries a cache mark.
enum UserBlock<'a> {
    Result { id: String, result: &'a ToolResult },
    Text(String),
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, output: Option<u64>) -> Option<Vec<u8>> {
    let mut ids = HashMap::new();
    let mut messages: Vec<(bool, Vec<UserBlock<'_>>, Vec<Json>)> = Vec::new();
    let turns = shape::turns(request);
    let count = turns.len();
    for (at, turn) in turns.iter().enumerate() {
        match turn {
            Turn::Assistant(blocks) => {
                let content = assistant(blocks, at + 1 == count, &mut ids);
                if content.is_empty() {
                    continue;
                }
                if messages.is_empty() {
                    messages.push((
                        true,
                        vec![UserBlock::Text("Continue.".to_owned())],
                        Vec::new(),
                    ));
                }
                match messages.last_mut() {
                    Some((false, _, before)) => before.extend(content),
                    _ => messages.push((false, Vec::new(), content)),
                }
            }
            Turn::User(said) => user(
                &mut messages,
                said.iter().map(|said| match said {
                    Said::User(text) => UserBlock::Text((*text).to_owned()),
                    Said::Media(media) => UserBlock::Text(shape::media_as_text(media)),
                    Said::System(text) => UserBlock::Text(shape::note(text)),
                }),
            ),
            Turn::Results(results) => user(
                &mut messages,
                results.iter().map(|result| UserBlock::Result {
                    id: ids
                        .get(result.id.as_str())
                        .cloned()
                        .unwrap_or_else(|| legal_id(&result.id, ID_LIMIT).into_owned()),
                    result,
                }),
            ),
        }
    }
    // A paused turn is continued by sending it back as it is; anything else must end with the user.
    let paused = matches!(turns.last(), Some(Turn::Assistant(blocks)) if is_paused(blocks));
    if messages.last().is_some_and(|last| !last.0) && !paused {
        user(
            &mut messages,
            std::iter::once(UserBlock::Text("Continue.".to_owned())),
        );
    }
    if messages.is_empty() {
        return None;
    }
    let tools = tools(request);
    let body = Body {
        model: &request.model.model,
        max_tokens: output.unwrap_or(DEFAULT_OUTPUT).max(1),
        stream: true,
        tool_choice: (!tools.is_empty()).then(|| Kind {
            r#type: if request.tools.is_empty() || request.tool_choice == ToolChoice::None {
                "none"
            } else {
                "auto"
            },
        }),
        tools,
        system: system(&request.system),
        messages: marked(messages),
    };
    serde_json::to_vec(&body).ok()
}

fn user<'a>(
    messages: &mut Vec<(bool, Vec<UserBlock<'a>>, Vec<Json>)>,
    blocks: impl Iterator<Item = UserBlock<'a>>,
) {
    match messages.last_mut() {
        Some((true, before, _)) => before.extend(blocks),
        _ => messages.push((true, blocks.collect(), Vec::new())),
    }
}

/// The definitions. A history with calls needs them even when this request offers none (a summary).
fn tools(request: &Request) -> Vec<Tool<'_>> {
    let mut tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: &tool.name,
            description: &tool.description,
            input_schema: shape::schema(tool),
            cache_control: None,
        })
        .collect();
    if tools.is_empty() {
        let mut names = BTreeSet::new();
        for turn in shape::turns(request) {
            if let Turn::Assistant(blocks) = turn {
                names.extend(blocks.into_iter().filter_map(|block| match block {
                    AssistantBlock::ToolCall { name, .. } => Some(name.as_str()),
                    _ => None,
                }));
            }
        }
        let empty = || serde_json::json!({"type": "object", "properties": {}});
        tools.extend(names.into_iter().map(|name| Tool {
            name,
            description: "Was available earlier in this conversation.",
            input_schema: empty(),
            cache_control: None,
        }));
    }
    if let Some(last) = tools.last_mut() {
        last.cache_control = CACHED;
    }
    tools
}

fn system(parts: &[String]) -> Vec<Text<'_>> {
    let mut system: Vec<Text<'_>> = parts
        .iter()
        .filter(|part| visible(part))
        .map(|part| Text {
            r#type: "text",
            text: part,
            cache_control: None,
        })
        .collect();
    if let Some(last) = system.last_mut() {
        last.cache_control = CACHED;
    }
    system
}

/// Writes the messages, with a cache mark at the end of the last two user messages: the older one is where
/// the request before this one ended.
fn marked(messages: Vec<(bool, Vec<UserBlock<'_>>, Vec<Json>)>) -> Vec<Message> {
    let users: Vec<usize> = messages
        .iter()
        .enumerate()
        .filter(|(_, m)| m.0)
        .map(|(at, _)| at)
        .collect();
    let marks = &users[users.len().saturating_sub(2)..];
    messages
        .into_iter()
        .enumerate()
        .map(|(at, (is_user, mut blocks, content))| {
            if !is_user {
                return Message {
                    role: "assistant",
                    content,
                };
            }
            // Stable: results keep their order and come first.
            blocks.sort_by_key(|block| matches!(block, UserBlock::Text(_)));
            let last = blocks.len().wrapping_sub(1);
            let content = blocks
                .iter()
                .enumerate()
                .map(|(n, block)| {
                    let cache_control = if n == last && marks.contains(&at) {
                        CACHED
                    } else {
                        None
                    };
                    match block {
                        UserBlock::Text(text) => json(&Text {
                            r#type: "text",
                            text,
                            cache_control,
                        }),
                        UserBlock::Result { id, result } => json(&Result {
                            r#type: "tool_result",
                            tool_use_id: id,
                            content: if visible(&result.text) {
                                &result.text
                            } else {
                                "(no output)"
                            },
                            is_error: result.is_error,
                            cache_control,
                        }),
                    }
                })
                .collect();
            Message {
                role: "user",
                content,
            }
        })
        .collect()
}

fn is_paused(blocks: &[&AssistantBlock]) -> bool {
    matches!(
        blocks.last(),
        Some(AssistantBlock::Hosted {
            call: Some(_),
            result: None,
            ..
        })
    )
}

fn assistant(
    blocks: &[&AssistantBlock],
    last: bool,
    ids: &mut HashMap<String, String>,
) -> Vec<Json> {
    let mut content = Vec::new();
    // Where the last block that is no thinking ends.
    let mut answered = 0;
    for (at, block) in blocks.iter().enumerate() {
        let before = content.len();
        match block {
            AssistantBlock::Text { text, native: own } => match native(own.as_deref()) {
                Some((own, _)) => content.push(own),
                None => content.extend(plain(text)),
            },
            AssistantBlock::Reasoning { text, native: own } => {
                content.extend(thinking(text, own.as_deref()));
                continue;
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => {
                content.push(tool_use(id, name, input, own.as_deref(), ids));
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
                    (Some((call, _)), Some((result, _))) => content.extend([call, result]),
                    (Some((call, _)), None) if paused && result.is_none() => content.push(call),
                    _ => content
                        .extend(shape::hosted_as_text(name, text).and_then(|text| plain(&text))),
                }
            }
            AssistantBlock::Opaque { native: own } => {
                content.extend(native(Some(own)).map(|(own, _)| own))
            }
        }
        if content.len() > before {
            answered = content.len();
        }
    }
    // Thinking alone is no answer, and the API refuses a message that ends with it.
    content.truncate(answered);
    content
}

/// Text without trailing white space, which the API refuses at the end of a message. Trimmed everywhere,
/// so that a message has the same bytes whether or not it is the last.
fn plain(text: &str) -> Option<Json> {
    visible(text).then(|| {
        json(&Text {
            r#type: "text",
            text: text.trim_end(),
            cache_control: None,
        })
    })
}

/// Thinking goes back only as it was signed: text and signature have to belong together.
fn thinking(text: &str, own: Option<&str>) -> Option<Json> {
    let (own, fields) = native(own)?;
    let string = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    match string("type") {
        "redacted_thinking" => (!string("data").is_empty()).then_some(own),
        "thinking" => {
            let whole = visible(string("thinking"))
                && !string("signature").is_empty()
                && string("thinking") == text;
            whole.then_some(own)
        }
        _ => None,
    }
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
    let input = RawValue::from_string(shape::object_text(input).into_owned())
        .unwrap_or_else(|_| json(&Map::new()));
    json(&ToolUse {
        r#type: "tool_use",
        id: &legal,
        name,
        input: &input,
        extra,
    })
}
