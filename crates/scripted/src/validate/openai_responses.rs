//! The rules of OpenAI Responses requests: input items, function calls, their outputs, reasoning items.

use std::collections::HashMap;
use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::media;
use super::openai_responses_params;
use super::shape::{given, holds_object, is_blank, is_name, kind, text_of};

/// Whose endpoint it is: one that imitates the protocol takes its own ids again, which may be of another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResponsesServer {
    /// No server in particular. Imitations make ids of calls a little longer than OpenAI's.
    Any,
    /// OpenAI's own.
    Openai,
    /// xAI's. It names an item by the response and the call together, which is longer than OpenAI takes.
    Xai,
}

/// The most characters of ids.
#[derive(Debug, Clone, Copy)]
struct Longest {
    item: usize,
    call: usize,
}

impl ResponsesServer {
    fn longest(self) -> Longest {
        let (item, call) = match self {
            Self::Any => (64, 80),
            Self::Openai => (64, 64),
            Self::Xai => (usize::MAX, usize::MAX),
        };
        Longest { item, call }
    }
}

pub(super) const RULES: &[&str] = &[
    "responses.body_object",
    "responses.model",
    "responses.input",
    "responses.item_type",
    "responses.role",
    "responses.content",
    "responses.part_type",
    "responses.part_shape",
    "responses.image",
    "responses.file",
    "responses.text_empty",
    "responses.item_id",
    "responses.item_id_unique",
    "responses.item_reference",
    "responses.call_id",
    "responses.call_id_unique",
    "responses.tool_name",
    "responses.arguments",
    "responses.unanswered_call",
    "responses.orphan_output",
    "responses.duplicate_output",
    "responses.output",
    "responses.reasoning",
    "responses.reasoning_alone",
    "responses.reasoning_not_stored",
    "responses.include",
    "responses.include_encrypted",
    "responses.instructions",
    "responses.store",
    "responses.tools",
    "responses.tool_schema",
    "responses.duplicate_tool",
    "responses.hosted_tool",
    "responses.tool_choice",
    "responses.tool_choice_without_tools",
    "responses.parallel_tool_calls",
    "responses.stream",
    "responses.max_output_tokens",
    "responses.temperature",
    "responses.top_p",
    "responses.text_format",
    "responses.strict_schema",
    "responses.reasoning_effort",
    "responses.reasoning_summary",
    "responses.truncation",
];

/// Items the model makes, of which a reasoning item needs one behind it.
const OUTPUT_ITEMS: &[&str] = &[
    "function_call",
    "custom_tool_call",
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "computer_call",
    "image_generation_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
    "mcp_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "tool_search_call",
];

/// Items the client sends beside messages, function calls, outputs and reasoning.
const CLIENT_ITEMS: &[&str] = &[
    "message",
    "reasoning",
    "function_call_output",
    "custom_tool_call_output",
    "computer_call_output",
    "local_shell_call_output",
    "shell_call_output",
    "apply_patch_call_output",
    "mcp_approval_response",
    "tool_search_output",
    "compaction",
    "item_reference",
];

pub(super) fn check(body: &Value, server: ResponsesServer, report: &mut Report) {
    if !report.check(body.is_object(), "responses.body_object", "", || {
        format!("the body must be a JSON object, got {}", kind(body))
    }) {
        return;
    }
    openai_responses_params::check(body, report);
    match body.get("input").unwrap_or(&Value::Null) {
        Value::String(text) => {
            report.check(!is_blank(text), "responses.text_empty", "input", || {
                "input must not be empty".into()
            });
        }
        Value::Array(items) if !items.is_empty() => {
            let stored = body.get("store") != Some(&Value::Bool(false));
            check_items(items, stored, server.longest(), report);
            check_pairing(items, given(body, "previous_response_id").is_some(), report);
            check_reasoning_followed(items, report);
            check_include_encrypted(body, items, stored, report);
        }
        other => report.add(
            "responses.input",
            "input",
            format!(
                "input must be a string or an array with at least one item, got {}",
                kind(other)
            ),
        ),
    }
}

fn item_type(item: &Value) -> &str {
    match item.get("type").and_then(Value::as_str) {
        Some(name) => name,
        // A message may leave its type out.
        None if item.get("role").is_some() => "message",
        None => "",
    }
}

fn check_items(items: &[Value], stored: bool, longest: Longest, report: &mut Report) {
    let mut ids = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let at = format!("input[{index}]");
        let name = item_type(item);
        let known = OUTPUT_ITEMS.contains(&name) || CLIENT_ITEMS.contains(&name);
        if !report.check(known, "responses.item_type", &at, || {
            format!("unknown item type {name:?}")
        }) {
            continue;
        }
        if name != "item_reference" {
            check_item_id(item, name, longest.item, &at, &mut ids, report);
        }
        match name {
            "message" => check_message(item, &at, report),
            "function_call" => check_call(item, longest.call, &at, report),
            "function_call_output" => check_output(item, longest.call, &at, report),
            "reasoning" => check_reasoning(item, stored, &at, report),
            "item_reference" => {
                report.check(stored, "responses.item_reference", &at, || {
                    "items are not kept when store is false; send the item itself".into()
                });
            }
            _ => {}
        }
    }
}

fn check_item_id<'a>(
    item: &'a Value,
    name: &str,
    longest: usize,
    at: &str,
    ids: &mut HashSet<&'a str>,
    report: &mut Report,
) {
    let Some(id) = given(item, "id") else { return };
    let id = id.as_str().unwrap_or("");
    let prefix = match name {
        "function_call" => "fc",
        "message" => "msg",
        _ => "",
    };
    let ok = !id.is_empty() && id.len() <= longest && id.starts_with(prefix);
    report.check(ok, "responses.item_id", &format!("{at}.id"), || {
        format!("the id of a {name} item has 1 to {longest} characters and begins with {prefix:?}, got {id:?}")
    });
    report.check(ids.insert(id), "responses.item_id_unique", at, || {
        format!("item id {id:?} occurs twice")
    });
}

fn check_message(item: &Value, at: &str, report: &mut Report) {
    let role = text_of(item, "role");
    let known = ["user", "assistant", "system", "developer"];
    if !report.check(known.contains(&role), "responses.role", at, || {
        format!("role must be one of {known:?}, got {role:?}")
    }) {
        return;
    }
    let at = format!("{at}.content");
    match item.get("content").unwrap_or(&Value::Null) {
        Value::String(text) => {
            report.check(!is_blank(text), "responses.text_empty", &at, || {
                format!("a {role} message must not be empty or only whitespace")
            });
        }
        Value::Array(parts) if !parts.is_empty() => {
            for (index, part) in parts.iter().enumerate() {
                check_part(part, role, &format!("{at}[{index}]"), report);
            }
        }
        other => report.add(
            "responses.content",
            at,
            format!(
                "content must be a string or an array with at least one part, got {}",
                kind(other)
            ),
        ),
    }
}

fn check_part(part: &Value, role: &str, at: &str, report: &mut Report) {
    let legal: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        _ => &["input_text", "input_image", "input_file", "input_audio"],
    };
    let part_type = text_of(part, "type");
    if !report.check(
        legal.contains(&part_type),
        "responses.part_type",
        at,
        || format!("a {role} message takes parts of type {legal:?}, got {part_type:?}"),
    ) {
        return;
    }
    let shaped = match part_type {
        "input_text" | "output_text" => part.get("text").is_some_and(Value::is_string),
        "refusal" => part.get("refusal").is_some_and(Value::is_string),
        "input_image" => given(part, "image_url")
            .or(given(part, "file_id"))
            .is_some_and(Value::is_string),
        _ => part.as_object().is_some_and(|o| o.len() > 1),
    };
    report.check(shaped, "responses.part_shape", at, || {
        format!("a {part_type} part lacks its content")
    });
    if shaped && part_type == "input_image" {
        let fault = image_fault(text_of(part, "image_url"));
        report.check(fault.is_none(), "responses.image", at, || {
            fault.unwrap_or_default()
        });
    }
    if shaped && part_type == "input_file" {
        let fault = file_fault(part);
        report.check(fault.is_none(), "responses.file", at, || {
            fault.unwrap_or_default()
        });
    }
    if shaped && part.get("text").is_some() {
        report.check(
            !is_blank(text_of(part, "text")),
            "responses.text_empty",
            at,
            || "a text part must not be empty or only whitespace".into(),
        );
    }
}

/// An image is an address on the web, a data URL, or a file that was uploaded.
fn image_fault(url: &str) -> Option<String> {
    if url.is_empty() || url.starts_with("https://") || url.starts_with("http://") {
        return None;
    }
    match media::data_url(url) {
        Some((media_type, data)) => media::image_fault(media_type, data),
        None => Some("image_url is neither a web address nor a base64 data URL".to_owned()),
    }
}

/// A file is named and carried in a data URL, or lies elsewhere.
fn file_fault(part: &Value) -> Option<String> {
    if given(part, "file_id").is_some() || given(part, "file_url").is_some() {
        return None;
    }
    if text_of(part, "filename").is_empty() {
        return Some("input_file with file_data needs a filename".to_owned());
    }
    match media::data_url(text_of(part, "file_data")) {
        Some(("application/pdf", data)) => media::pdf_fault(data),
        Some((other, _)) => Some(format!("the file type {other:?} is not supported")),
        None => Some("file_data is not a base64 data URL".to_owned()),
    }
}

fn check_call_id(item: &Value, longest: usize, at: &str, report: &mut Report) {
    let id = text_of(item, "call_id");
    report.check(
        !is_blank(id) && id.len() <= longest,
        "responses.call_id",
        at,
        || {
            format!(
                "call_id has 1 to {longest} characters, got {}: {id:?}",
                id.len()
            )
        },
    );
}

fn check_call(item: &Value, longest: usize, at: &str, report: &mut Report) {
    check_call_id(item, longest, at, report);
    let name = text_of(item, "name");
    report.check(
        is_name(name, 64),
        "responses.tool_name",
        &format!("{at}.name"),
        || format!("a function name must match ^[a-zA-Z0-9_-]{{1,64}}$, got {name:?}"),
    );
    report.check(
        item.get("arguments")
            .and_then(Value::as_str)
            .is_some_and(holds_object),
        "responses.arguments",
        &format!("{at}.arguments"),
        || {
            format!(
                "the arguments of {} must be a string that holds a JSON object",
                text_of(item, "call_id")
            )
        },
    );
}

fn check_output(item: &Value, longest: usize, at: &str, report: &mut Report) {
    check_call_id(item, longest, at, report);
    let legal = ["input_text", "input_image", "input_file"];
    let ok = match item.get("output") {
        Some(Value::String(_)) => true,
        Some(Value::Array(parts)) => {
            !parts.is_empty() && parts.iter().all(|p| legal.contains(&text_of(p, "type")))
        }
        _ => false,
    };
    report.check(ok, "responses.output", &format!("{at}.output"), || {
        format!("output must be a string or an array of parts of type {legal:?}")
    });
}

fn check_reasoning(item: &Value, stored: bool, at: &str, report: &mut Report) {
    let summary = item.get("summary").and_then(Value::as_array);
    let shaped = summary.is_some_and(|parts| {
        parts.iter().all(|p| {
            text_of(p, "type") == "summary_text" && p.get("text").is_some_and(Value::is_string)
        })
    });
    let content = given(item, "content").is_none_or(|c| {
        c.as_array()
            .is_some_and(|parts| parts.iter().all(|p| text_of(p, "type") == "reasoning_text"))
    });
    let encrypted = given(item, "encrypted_content");
    let opaque = encrypted.is_none_or(|e| e.as_str().is_some_and(|e| !e.is_empty()));
    report.check(shaped && content && opaque, "responses.reasoning", at, || {
        "a reasoning item has a summary array of summary_text parts, optional reasoning_text content, and \
         encrypted_content as a non-empty string or null"
            .into()
    });
    // Servers of open models give reasoning as it is, and take it back so; the vendor's own never shows any.
    let open = given(item, "content").is_some_and(|c| c.as_array().is_some_and(|c| !c.is_empty()));
    let whole = stored || encrypted.is_some() || open;
    report.check(whole, "responses.reasoning_not_stored", at, || {
        format!(
            "item {:?} is not kept when store is false: a reasoning item must then carry its encrypted_content, or its content where that is open",
            text_of(item, "id")
        )
    });
}

/// Every function call has exactly one output behind it, and no output stands without its call.
fn check_pairing(items: &[Value], continues: bool, report: &mut Report) {
    let mut calls: HashMap<&str, bool> = HashMap::new();
    let mut order = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let at = format!("input[{index}]");
        let id = text_of(item, "call_id");
        match item_type(item) {
            "function_call" | "custom_tool_call" => {
                let fresh = calls.insert(id, false).is_none();
                report.check(fresh, "responses.call_id_unique", &at, || {
                    format!("call_id {id:?} belongs to two function calls")
                });
                order.push((id, at));
            }
            "function_call_output" | "custom_tool_call_output" => match calls.get_mut(id) {
                Some(true) => {
                    report.add(
                        "responses.duplicate_output",
                        at,
                        format!("function call {id:?} has two outputs"),
                    );
                }
                Some(answered) => *answered = true,
                // The call may lie in the response this one continues.
                None if continues => {}
                None => report.add(
                    "responses.orphan_output",
                    at,
                    format!("No tool call found for function call output with call_id {id}."),
                ),
            },
            _ => {}
        }
    }
    for (id, at) in order {
        if calls.get(id) == Some(&false) {
            report.add(
                "responses.unanswered_call",
                at,
                format!("No tool output found for function call {id}."),
            );
        }
    }
}

fn check_reasoning_followed(items: &[Value], report: &mut Report) {
    for (index, item) in items.iter().enumerate() {
        if item_type(item) != "reasoning" {
            continue;
        }
        let next = items[index + 1..]
            .iter()
            .find(|next| item_type(next) != "reasoning");
        let ok = next.is_some_and(|next| {
            OUTPUT_ITEMS.contains(&item_type(next))
                || item_type(next) == "item_reference"
                || (item_type(next) == "message" && text_of(next, "role") == "assistant")
        });
        report.check(ok, "responses.reasoning_alone", &format!("input[{index}]"), || {
            format!(
                "Item '{}' of type 'reasoning' was provided without its required following item.",
                text_of(item, "id")
            )
        });
    }
}

fn check_include_encrypted(body: &Value, items: &[Value], stored: bool, report: &mut Report) {
    let replays = items
        .iter()
        .any(|item| given(item, "encrypted_content").is_some());
    let included = given(body, "include")
        .and_then(Value::as_array)
        .is_some_and(|list| list.iter().any(|v| v == "reasoning.encrypted_content"));
    report.check(stored || !replays || included, "responses.include_encrypted", "include", || {
        "with store false and encrypted reasoning in the input, include must ask for reasoning.encrypted_content, \
         or the new reasoning is lost"
            .into()
    });
}
