//! OpenAI Responses: stateless, with the model's own items sent back as they were.

use super::shape::{self, Json, Said, Turn, json, legal_id, native, visible};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::HashMap;
use tenure_core::request::{AssistantBlock, Request, ToolChoice, ToolResult};

const ID_LIMIT: usize = 64;

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    prompt_cache_key: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    instructions: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<&'static str>,
    input: Vec<Json>,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: Value,
    strict: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    r#type: &'static str,
    role: &'static str,
    content: [Part<'a>; 1],
}

#[derive(Serialize)]
struct Part<'a> {
    r#type: &'static str,
    text: &'a str,
}

/// How a call went out, so that its result goes out alike.
struct Sent {
    call_id: String,
    output: &'static str,
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, output: Option<u64>) -> Option<Vec<u8>> {
    let mut input = Vec::new();
    let mut sent = HashMap::new();
    for turn in shape::turns(request) {
        match turn {
            Turn::User(said) => input.extend(said.iter().map(|said| match said {
                Said::User(text) => message("user", "input_text", text),
                Said::Media(media) => message("user", "input_text", &shape::media_as_text(media)),
                Said::System(text) => message("developer", "input_text", text),
            })),
            Turn::Assistant(blocks) => assistant(&blocks, &mut sent, &mut input),
            Turn::Results(results) => {
                input.extend(results.iter().map(|result| answer(result, &sent)))
            }
        }
    }
    if input.is_empty() {
        return None;
    }
    let tools: Vec<Tool<'_>> = request
        .tools
        .iter()
        .map(|tool| Tool {
            r#type: "function",
            name: &tool.name,
            description: &tool.description,
            parameters: shape::schema(tool),
            strict: false,
        })
        .collect();
    let body = Body {
        model: &request.model.model,
        stream: true,
        store: false,
        include: if reasons(&request.model.model) {
            &["reasoning.encrypted_content"]
        } else {
            &[]
        },
        max_output_tokens: output.map(|n| n.max(16)),
        prompt_cache_key: &request.cache_key,
        instructions: request
            .system
            .iter()
            .map(String::as_str)
            .filter(|part| visible(part))
            .collect::<Vec<_>>()
            .join("\n\n"),
        tool_choice: (!tools.is_empty()).then_some(match request.tool_choice {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required | ToolChoice::Tool(_) => "required",
        }),
        tools,
        input,
    };
    serde_json::to_vec(&body).ok()
}

/// Models that do not reason refuse to be asked for sealed reasoning.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt-4"]
        .iter()
        .any(|old| name.starts_with(old))
}

fn message(role: &'static str, kind: &'static str, text: &str) -> Json {
    json(&Message {
        r#type: "message",
        role,
        content: [Part { r#type: kind, text }],
    })
}

fn answer(result: &ToolResult, sent: &HashMap<String, Sent>) -> Json {
    #[derive(Serialize)]
    struct Output<'a> {
        r#type: &'static str,
        call_id: &'a str,
        output: &'a str,
    }
    let made = legal_id(&result.id, ID_LIMIT);
    let (call_id, kind) = match sent.get(result.id.as_str()) {
        Some(sent) => (sent.call_id.as_str(), sent.output),
        None => (&*made, "function_call_output"),
    };
    let output = if visible(&result.text) {
        &result.text
    } else {
        "(no output)"
    };
    json(&Output {
        r#type: kind,
        call_id,
        output,
    })
}

fn assistant(blocks: &[&AssistantBlock], sent: &mut HashMap<String, Sent>, input: &mut Vec<Json>) {
    // Reasoning belongs to the item after it; alone it is refused.
    let mut reasoning: Vec<Json> = Vec::new();
    // Items whose reasoning cannot go back must not name themselves: the API would look for it.
    let mut anonymous = false;
    for block in blocks {
        let item = match block {
            AssistantBlock::Text { text, native: own } => match native(own.as_deref()) {
                Some((own, fields)) if word(&fields, "type") == "message" => {
                    Some(named(own, fields, anonymous))
                }
                _ => visible(text).then(|| message("assistant", "output_text", text)),
            },
            AssistantBlock::Reasoning { native: own, .. } => {
                match native(own.as_deref()) {
                    Some((own, fields)) if replayable(&fields) => reasoning.push(own),
                    Some(_) => anonymous = true,
                    None => {}
                }
                continue;
            }
            AssistantBlock::ToolCall {
                id,
                name,
                input,
                native: own,
            } => Some(call(id, name, input, own.as_deref(), anonymous, sent)),
            AssistantBlock::Hosted {
                name,
                call,
                result,
                text,
                ..
            } => {
                if let Some((call, _)) = native(call.as_deref()) {
                    input.append(&mut reasoning);
                    input.push(call);
                    native(result.as_deref()).map(|(result, _)| result)
                } else {
                    shape::hosted_as_text(name, text)
                        .map(|text| message("assistant", "output_text", &text))
                }
            }
            AssistantBlock::Opaque { native: own } => native(Some(own)).map(|(own, _)| own),
        };
        if let Some(item) = item {
            input.append(&mut reasoning);
            input.push(item);
        }
    }
}

/// Without `store`, reasoning can only go back with its content: sealed, or open.
fn replayable(fields: &Map<String, Value>) -> bool {
    word(fields, "type") == "reasoning"
        && (!word(fields, "encrypted_content").is_empty()
            || fields
                .get("content")
                .and_then(Value::as_array)
                .is_some_and(|content| !content.is_empty()))
}

fn named(own: Json, mut fields: Map<String, Value>, anonymous: bool) -> Json {
    if anonymous && fields.remove("id").is_some() {
        json(&fields)
    } else {
        own
    }
}

fn call(
    id: &str,
    name: &str,
    input: &str,
    own: Option<&str>,
    anonymous: bool,
    sent: &mut HashMap<String, Sent>,
) -> Json {
    #[derive(Serialize)]
    struct FunctionCall<'a> {
        r#type: &'static str,
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
    }
    if let Some((own, mut fields)) = native(own) {
        let kind = word(&fields, "type").to_owned();
        let custom = kind == "custom_tool_call";
        let sound = custom
            || serde_json::from_str::<Map<String, Value>>(word(&fields, "arguments")).is_ok();
        if sound && (custom || kind == "function_call") {
            let output = if custom {
                "custom_tool_call_output"
            } else {
                "function_call_output"
            };
            // A renamed call (an id used twice) takes its new id along.
            let same = word(&fields, "call_id") == id;
            let call_id = if same {
                id.to_owned()
            } else {
                legal_id(id, ID_LIMIT).into_owned()
            };
            sent.insert(
                id.to_owned(),
                Sent {
                    call_id: call_id.clone(),
                    output,
                },
            );
            if same {
                return named(own, fields, anonymous);
            }
            fields.insert("call_id".to_owned(), Value::String(call_id));
            fields.remove("id");
            return json(&fields);
        }
    }
    let call_id = legal_id(id, ID_LIMIT);
    sent.insert(
        id.to_owned(),
        Sent {
            call_id: call_id.clone().into_owned(),
            output: "function_call_output",
        },
    );
    json(&FunctionCall {
        r#type: "function_call",
        call_id: &call_id,
        name,
        arguments: &shape::object_text(input),
    })
}

fn word<'a>(fields: &'a Map<String, Value>, key: &str) -> &'a str {
    fields.get(key).and_then(Value::as_str).unwrap_or_default()
}
