//! The rules of OpenAI Chat Completions requests: messages, tool calls and their results.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::chat_habits::{Habits, Ids};
use super::media;
use super::openai_chat_params;
use super::shape::{given, holds_object, is_blank, is_name, kind, text_of};

pub(super) const RULES: &[&str] = &[
    "chat.body_object",
    "chat.model",
    "chat.messages",
    "chat.role",
    "chat.content",
    "chat.part_type",
    "chat.part_shape",
    "chat.image_data",
    "chat.file_data",
    "chat.text_empty",
    "chat.message_name",
    "chat.tool_calls",
    "chat.tool_calls_role",
    "chat.tool_call_id",
    "chat.tool_call_id_unique",
    "chat.tool_name",
    "chat.arguments",
    "chat.unanswered_call",
    "chat.tool_call_id_missing",
    "chat.orphan_result",
    "chat.duplicate_result",
    "chat.tools",
    "chat.tool_schema",
    "chat.duplicate_tool",
    "chat.tool_choice",
    "chat.tool_choice_without_tools",
    "chat.parallel_without_tools",
    "chat.stream",
    "chat.stream_options",
    "chat.max_tokens",
    "chat.max_tokens_twice",
    "chat.temperature",
    "chat.top_p",
    "chat.n",
    "chat.stop",
    "chat.response_format",
    "chat.reasoning_effort",
];

pub(super) fn check(body: &Value, habits: &Habits, report: &mut Report) {
    if !report.check(body.is_object(), "chat.body_object", "", || {
        format!("the body must be a JSON object, got {}", kind(body))
    }) {
        return;
    }
    openai_chat_params::check(body, habits, report);
    let messages = body.get("messages").and_then(Value::as_array);
    let Some(messages) = messages.filter(|m| !m.is_empty()) else {
        report.add(
            "chat.messages",
            "messages",
            "messages must be an array with at least one message",
        );
        return;
    };
    for (index, message) in messages.iter().enumerate() {
        check_message(message, &format!("messages[{index}]"), habits, report);
    }
    check_pairing(messages, report);
}

fn check_message(message: &Value, at: &str, habits: &Habits, report: &mut Report) {
    let role = text_of(message, "role");
    let known = ["system", "developer", "user", "assistant", "tool"];
    if !report.check(known.contains(&role), "chat.role", at, || {
        format!(
            "role must be one of {known:?}, got {}",
            message.get("role").unwrap_or(&Value::Null)
        )
    }) {
        return;
    }
    if let Some(name) = given(message, "name") {
        report.check(
            name.as_str().is_some_and(|n| is_name(n, 64)),
            "chat.message_name",
            &format!("{at}.name"),
            || "name must match ^[a-zA-Z0-9_-]{1,64}$".into(),
        );
    }
    let calls = given(message, "tool_calls");
    if calls.is_some() && role != "assistant" {
        report.add(
            "chat.tool_calls_role",
            at,
            format!("a {role} message cannot carry tool_calls"),
        );
    }
    check_content(message, role, calls.is_some(), at, habits, report);
    if role == "assistant"
        && let Some(calls) = calls
    {
        check_calls(calls, &format!("{at}.tool_calls"), habits, report);
    }
    if role == "tool" {
        report.check(
            !is_blank(text_of(message, "tool_call_id")),
            "chat.tool_call_id_missing",
            at,
            || "a tool message needs a tool_call_id".into(),
        );
    }
}

fn check_content(
    message: &Value,
    role: &str,
    has_calls: bool,
    at: &str,
    habits: &Habits,
    report: &mut Report,
) {
    let at = format!("{at}.content");
    match message.get("content").unwrap_or(&Value::Null) {
        Value::Null => {
            let refused = role == "assistant" && given(message, "refusal").is_some();
            report.check(
                (role == "assistant" && has_calls) || refused,
                "chat.content",
                &at,
                || format!("a {role} message needs content"),
            );
        }
        Value::String(text) => {
            // An empty tool result or an empty text beside calls is legal; a message that says nothing is not.
            let needed = role == "user" || (role == "assistant" && !has_calls);
            report.check(!needed || !is_blank(text), "chat.text_empty", &at, || {
                format!("a {role} message must not be empty or only whitespace")
            });
        }
        Value::Array(parts) => {
            report.check(!parts.is_empty(), "chat.content", &at, || {
                "an array of content parts must not be empty".into()
            });
            for (index, part) in parts.iter().enumerate() {
                check_part(part, role, &format!("{at}[{index}]"), habits, report);
            }
        }
        other => report.add(
            "chat.content",
            at,
            format!(
                "content must be a string or an array of parts, got {}",
                kind(other)
            ),
        ),
    }
}

fn check_part(part: &Value, role: &str, at: &str, habits: &Habits, report: &mut Report) {
    let legal: &[&str] = match role {
        "user" => habits.user_parts,
        "assistant" => habits.assistant_parts,
        _ => &["text"],
    };
    let part_type = text_of(part, "type");
    if !report.check(legal.contains(&part_type), "chat.part_type", at, || {
        format!(
            "a {role} message takes parts of type {legal:?}, got {:?}",
            part_type
        )
    }) {
        return;
    }
    let shaped = match part_type {
        "text" => part.get("text").is_some_and(Value::is_string),
        "image_url" => part.pointer("/image_url/url").is_some_and(Value::is_string),
        "refusal" => part.get("refusal").is_some_and(Value::is_string),
        "document_url" => part.get("document_url").is_some_and(Value::is_string),
        "thinking" => part
            .get("thinking")
            .and_then(Value::as_array)
            .is_some_and(|list| {
                list.iter()
                    .all(|t| t.get("text").is_some_and(Value::is_string))
            }),
        other => part.get(other).is_some_and(Value::is_object),
    };
    report.check(shaped, "chat.part_shape", at, || {
        format!("a {part_type} part lacks its {part_type}")
    });
    if shaped {
        check_media(part, part_type, at, report);
    }
    if part_type == "text" && shaped {
        report.check(
            !is_blank(text_of(part, "text")),
            "chat.text_empty",
            at,
            || "a text part must not be empty or only whitespace".into(),
        );
    }
}

/// Data URLs must hold what they say; other addresses are fetched by the vendor.
fn check_media(part: &Value, part_type: &str, at: &str, report: &mut Report) {
    let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
    match part_type {
        "image_url" => {
            let url = text("/image_url/url").unwrap_or_default();
            if let Some((kind, data)) = media::data_url(url)
                && let Some(fault) = media::image_fault(kind, data)
            {
                report.add(
                    "chat.image_data",
                    at,
                    format!("You uploaded an unsupported image: {fault}"),
                );
            }
        }
        "file" | "document_url" | "file_url" => {
            let url = text("/file/file_data").or_else(|| text("/document_url"));
            let bare = text("/file_url/url").filter(|url| !url.starts_with("http"));
            let data = match (url.map(|url| (url, media::data_url(url))), bare) {
                (Some((_, Some((_, data)))), _) => Some(data),
                (Some((url, None)), _) if !url.starts_with("http") => Some(""),
                (_, Some(data)) => Some(data),
                _ => None,
            };
            if let Some(fault) = data.and_then(media::pdf_fault) {
                report.add(
                    "chat.file_data",
                    at,
                    format!("the file cannot be read: {fault}"),
                );
            }
        }
        _ => {}
    }
}

fn check_calls(calls: &Value, at: &str, habits: &Habits, report: &mut Report) {
    let most = match habits.ids {
        Ids::UpTo(most) => most,
        Ids::Nine => 40,
    };
    let Some(calls) = calls.as_array().filter(|c| !c.is_empty()) else {
        report.add(
            "chat.tool_calls",
            at,
            "tool_calls must be an array with at least one call",
        );
        return;
    };
    let mut seen = HashSet::new();
    for (index, call) in calls.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let function = call.get("function").filter(|f| f.is_object());
        if !report.check(
            text_of(call, "type") == "function" && function.is_some(),
            "chat.tool_calls",
            &at,
            || "a tool call has type \"function\" and a function object".into(),
        ) {
            continue;
        }
        let id = text_of(call, "id");
        report.check(
            !is_blank(id) && id.len() <= most,
            "chat.tool_call_id",
            &at,
            || {
                format!(
                    "a tool call id has 1 to {most} characters, got {}: {id:?}",
                    id.len()
                )
            },
        );
        report.check(seen.insert(id), "chat.tool_call_id_unique", &at, || {
            format!("tool call id {id:?} is used twice in one message")
        });
        let function = function.unwrap_or(&Value::Null);
        let name = text_of(function, "name");
        report.check(
            is_name(name, 64),
            "chat.tool_name",
            &format!("{at}.function.name"),
            || format!("a function name must match ^[a-zA-Z0-9_-]{{1,64}}$, got {name:?}"),
        );
        let arguments = function.get("arguments");
        report.check(
            arguments.and_then(Value::as_str).is_some_and(holds_object),
            "chat.arguments",
            &format!("{at}.function.arguments"),
            || format!("the arguments of {id} must be a string that holds a JSON object"),
        );
    }
}

/// Every call is answered by tool messages directly behind it, once each, and no tool message stands elsewhere.
fn check_pairing(messages: &[Value], report: &mut Report) {
    let mut index = 0;
    while index < messages.len() {
        let at = format!("messages[{index}]");
        let role = text_of(&messages[index], "role");
        if role == "tool" {
            let id = text_of(&messages[index], "tool_call_id");
            report.add(
                "chat.orphan_result",
                at.clone(),
                format!("the tool message for {id:?} does not follow an assistant message with that tool call"),
            );
        }
        index += 1;
        if role != "assistant" {
            continue;
        }
        let wanted = call_ids(&messages[index - 1]);
        if wanted.is_empty() {
            continue;
        }
        let mut answered = HashSet::new();
        while index < messages.len() && text_of(&messages[index], "role") == "tool" {
            let id = text_of(&messages[index], "tool_call_id");
            let here = format!("messages[{index}]");
            if !wanted.contains(&id) {
                report.add(
                    "chat.orphan_result",
                    here,
                    format!("no tool call {id:?} precedes this tool message"),
                );
            } else if !answered.insert(id) {
                report.add(
                    "chat.duplicate_result",
                    here,
                    format!("tool call {id:?} is answered twice"),
                );
            }
            index += 1;
        }
        for id in wanted.iter().filter(|id| !answered.contains(*id)) {
            report.add(
                "chat.unanswered_call",
                at.clone(),
                format!("tool call {id:?} is not followed by a tool message that answers it"),
            );
        }
    }
}

fn call_ids(message: &Value) -> Vec<&str> {
    let calls = message.get("tool_calls").and_then(Value::as_array);
    calls
        .into_iter()
        .flatten()
        .map(|call| text_of(call, "id"))
        .collect()
}
