//! The rules of Anthropic Messages requests: roles, content blocks, thinking.

use serde_json::Value;

use super::Report;
use super::anthropic_hosted;
use super::anthropic_media;
use super::anthropic_pairing;
use super::anthropic_params;
use super::shape::{given, is_blank, is_name, kind, text_of};

pub(super) const RULES: &[&str] = &[
    "anthropic.body_object",
    "anthropic.unknown_field",
    "anthropic.model",
    "anthropic.max_tokens",
    "anthropic.messages",
    "anthropic.role",
    "anthropic.first_user",
    "anthropic.content",
    "anthropic.block_type",
    "anthropic.block_role",
    "anthropic.block_field",
    "anthropic.text",
    "anthropic.text_empty",
    "anthropic.trailing_whitespace",
    "anthropic.source",
    "anthropic.image",
    "anthropic.image_size",
    "anthropic.image_count",
    "anthropic.image_pixels",
    "anthropic.document",
    "anthropic.citations",
    "anthropic.tool_use",
    "anthropic.tool_use_id",
    "anthropic.tool_use_id_unique",
    "anthropic.tool_name",
    "anthropic.tool_result",
    "anthropic.unanswered_tool_use",
    "anthropic.result_first",
    "anthropic.orphan_result",
    "anthropic.duplicate_result",
    "anthropic.hosted_unanswered",
    "anthropic.hosted_orphan",
    "anthropic.hosted_tool",
    "anthropic.hosted_result",
    "anthropic.server_tool_use_id",
    "anthropic.container",
    "anthropic.thinking_signature",
    "anthropic.redacted_data",
    "anthropic.thinking_first",
    "anthropic.thinking_last",
    "anthropic.thinking_config",
    "anthropic.thinking_budget",
    "anthropic.thinking_sampling",
    "anthropic.thinking_forced_tool",
    "anthropic.output_config",
    "anthropic.effort",
    "anthropic.output_format",
    "anthropic.output_schema",
    "anthropic.system",
    "anthropic.cache_control",
    "anthropic.cache_control_count",
    "anthropic.cache_ttl_order",
    "anthropic.tools",
    "anthropic.tool_schema",
    "anthropic.duplicate_tool",
    "anthropic.tool_choice",
    "anthropic.tool_choice_without_tools",
    "anthropic.stream",
    "anthropic.temperature",
    "anthropic.top_p",
    "anthropic.stop_sequences",
];

/// The keys of the blocks a client builds itself; anything else is refused as an extra input.
fn known_keys(block_type: &str) -> Option<&'static [&'static str]> {
    Some(match block_type {
        "text" => &["type", "text", "citations", "cache_control"],
        "thinking" => &["type", "thinking", "signature"],
        "redacted_thinking" => &["type", "data"],
        "tool_use" => &["type", "id", "name", "input", "caller", "cache_control"],
        "tool_result" => &[
            "type",
            "tool_use_id",
            "content",
            "is_error",
            "cache_control",
        ],
        "image" => &["type", "source", "cache_control"],
        _ => return None,
    })
}

pub(super) fn check(body: &Value, report: &mut Report) {
    if !report.check(body.is_object(), "anthropic.body_object", "", || {
        format!("the body must be a JSON object, got {}", kind(body))
    }) {
        return;
    }
    anthropic_params::check(body, report);
    let messages = body.get("messages").and_then(Value::as_array);
    let Some(messages) = messages.filter(|m| !m.is_empty()) else {
        report.add(
            "anthropic.messages",
            "messages",
            "messages: at least one message is required",
        );
        return;
    };
    let first = text_of(&messages[0], "role");
    report.check(
        first != "assistant",
        "anthropic.first_user",
        "messages[0]",
        || "messages: first message must use the \"user\" role".into(),
    );
    for (index, message) in messages.iter().enumerate() {
        check_message(
            message,
            index + 1 == messages.len(),
            &format!("messages[{index}]"),
            report,
        );
    }
    anthropic_pairing::check(messages, report);
    anthropic_media::check_all(messages, report);
    check_thinking_first(body, messages, report);
}

fn check_message(message: &Value, last: bool, at: &str, report: &mut Report) {
    let role = text_of(message, "role");
    if !report.check(
        role == "user" || role == "assistant",
        "anthropic.role",
        at,
        || {
            format!(
                "messages: unexpected role {:?}; a system prompt is the top-level `system`",
                message.get("role").unwrap_or(&Value::Null)
            )
        },
    ) {
        return;
    }
    let at = format!("{at}.content");
    match message.get("content").unwrap_or(&Value::Null) {
        Value::String(text) => {
            report.check(!is_blank(text), "anthropic.text_empty", &at, || {
                "messages: text content must contain non-whitespace text".into()
            });
            check_final_text(text, role, last, &at, report);
        }
        Value::Array(blocks) if !blocks.is_empty() => {
            for (index, block) in blocks.iter().enumerate() {
                check_block(block, role, &format!("{at}[{index}]"), report);
            }
            let tail = &blocks[blocks.len() - 1];
            let tail_at = format!("{at}[{}]", blocks.len() - 1);
            check_final_text(text_of(tail, "text"), role, last, &tail_at, report);
            let thinks = ["thinking", "redacted_thinking"].contains(&text_of(tail, "type"));
            report.check(
                !(thinks && role == "assistant"),
                "anthropic.thinking_last",
                &tail_at,
                || "the final block in an assistant message cannot be `thinking`".into(),
            );
        }
        other => report.add(
            "anthropic.content",
            at,
            format!(
                "content must be a string or an array with at least one block, got {}",
                kind(other)
            ),
        ),
    }
}

fn check_final_text(text: &str, role: &str, last: bool, at: &str, report: &mut Report) {
    let trails = last && role == "assistant" && text.ends_with(char::is_whitespace);
    report.check(!trails, "anthropic.trailing_whitespace", at, || {
        "final assistant content cannot end with trailing whitespace".into()
    });
}

fn check_block(block: &Value, role: &str, at: &str, report: &mut Report) {
    let block_type = text_of(block, "type");
    let hosted_result = block_type.ends_with("_tool_result");
    let both = [
        "text",
        "image",
        "document",
        "search_result",
        "container_upload",
        "compaction",
    ];
    let assistant = [
        "thinking",
        "redacted_thinking",
        "tool_use",
        "server_tool_use",
        "mcp_tool_use",
    ];
    let known = both.contains(&block_type)
        || assistant.contains(&block_type)
        || block_type == "tool_result"
        || hosted_result;
    if !report.check(known, "anthropic.block_type", at, || {
        format!("unknown block type {block_type:?}")
    }) {
        return;
    }
    let wrong_role = match role {
        "user" => assistant.contains(&block_type) || hosted_result,
        _ => ["tool_result", "image", "document"].contains(&block_type),
    };
    report.check(!wrong_role, "anthropic.block_role", at, || {
        format!("`{block_type}` blocks cannot be in `{role}` messages")
    });
    if let (Some(known), Some(fields)) = (known_keys(block_type), block.as_object()) {
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            report.add(
                "anthropic.block_field",
                format!("{at}.{key}"),
                "extra inputs are not permitted",
            );
        }
    }
    match block_type {
        "text" => {
            check_text(block, at, report);
            anthropic_hosted::check_citations(block, at, report);
        }
        "thinking" => {
            let signed = !text_of(block, "signature").is_empty();
            report.check(
                signed && block.get("thinking").is_some_and(Value::is_string),
                "anthropic.thinking_signature",
                at,
                || "a thinking block needs its `thinking` and its `signature`, as they were received".into(),
            );
        }
        "redacted_thinking" => {
            report.check(
                !text_of(block, "data").is_empty(),
                "anthropic.redacted_data",
                at,
                || "a redacted_thinking block needs its `data`".into(),
            );
        }
        "tool_use" => check_tool_use(block, at, report),
        "server_tool_use" => {
            check_tool_use(block, at, report);
            anthropic_hosted::check_use(block, at, report);
        }
        "tool_result" => check_tool_result(block, at, report),
        "image" | "document" => anthropic_media::check_source(block, at, report),
        _ if hosted_result => anthropic_hosted::check_result(block, at, report),
        _ => {}
    }
}

fn check_text(block: &Value, at: &str, report: &mut Report) {
    let text = block.get("text").and_then(Value::as_str);
    if report.check(text.is_some(), "anthropic.text", at, || {
        "a text block needs its `text`".into()
    }) {
        report.check(
            !is_blank(text.unwrap_or("")),
            "anthropic.text_empty",
            at,
            || "messages: text content blocks must contain non-whitespace text".into(),
        );
    }
}

fn check_tool_use(block: &Value, at: &str, report: &mut Report) {
    let id = text_of(block, "id");
    report.check(
        is_name(id, usize::MAX),
        "anthropic.tool_use_id",
        &format!("{at}.id"),
        || format!("tool_use.id: string should match pattern '^[a-zA-Z0-9_-]+$', got {id:?}"),
    );
    let name = text_of(block, "name");
    report.check(is_name(name, 128), "anthropic.tool_name", &format!("{at}.name"), || {
        format!("tool_use.name: string should match pattern '^[a-zA-Z0-9_-]{{1,128}}$', got {name:?}")
    });
    report.check(
        block.get("input").is_some_and(Value::is_object),
        "anthropic.tool_use",
        &format!("{at}.input"),
        || format!("tool_use {id:?}: input should be a valid dictionary"),
    );
}

fn check_tool_result(block: &Value, at: &str, report: &mut Report) {
    let id_ok = is_name(text_of(block, "tool_use_id"), usize::MAX);
    let legal = [
        "text",
        "image",
        "document",
        "search_result",
        "tool_reference",
    ];
    let mut content_ok = true;
    match given(block, "content") {
        None | Some(Value::String(_)) => {}
        Some(Value::Array(parts)) => {
            for (index, part) in parts.iter().enumerate() {
                content_ok &= legal.contains(&text_of(part, "type"));
                let at = format!("{at}.content[{index}]");
                match text_of(part, "type") {
                    "text" => check_text(part, &at, report),
                    "image" | "document" => anthropic_media::check_source(part, &at, report),
                    _ => {}
                }
            }
        }
        Some(_) => content_ok = false,
    }
    let flag_ok = given(block, "is_error").is_none_or(Value::is_boolean);
    report.check(id_ok && content_ok && flag_ok, "anthropic.tool_result", at, || {
        format!(
            "a tool_result has a tool_use_id, content as a string or blocks of type {legal:?}, and is_error as a \
             boolean"
        )
    });
}

/// With thinking enabled, the first assistant message of the tool loop that is open must begin with its thinking; a
/// model that thinks once says nothing of the kind in the others.
fn check_thinking_first(body: &Value, messages: &[Value], report: &mut Report) {
    if body.pointer("/thinking/type") != Some(&Value::String("enabled".into())) {
        return;
    }
    let last = messages
        .iter()
        .enumerate()
        .rev()
        .find(|(_, m)| text_of(m, "role") == "assistant");
    let Some((mut index, mut message)) = last else {
        return;
    };
    // A plain text prompt behind it has closed the tool loop.
    let closed = messages[index + 1..]
        .iter()
        .any(|m| !anthropic_pairing::holds(m, "tool_result"));
    if closed || !anthropic_pairing::holds(message, "tool_use") {
        return;
    }
    while index >= 2
        && anthropic_pairing::holds(&messages[index - 1], "tool_result")
        && anthropic_pairing::holds(&messages[index - 2], "tool_use")
    {
        index -= 2;
        message = &messages[index];
    }
    let first = message
        .pointer("/content/0")
        .map_or("", |block| text_of(block, "type"));
    report.check(
        first == "thinking" || first == "redacted_thinking",
        "anthropic.thinking_first",
        &format!("messages[{index}].content[0]"),
        || {
            format!(
                "expected `thinking` or `redacted_thinking`, but found `{first}`: when `thinking` is enabled, a \
                 final `assistant` message must start with a thinking block"
            )
        },
    );
}
