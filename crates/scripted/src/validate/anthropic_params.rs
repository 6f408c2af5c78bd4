//! The rules of Anthropic Messages requests: parameters, system prompt, tools, cache marks.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::shape::{boolean, given, is_blank, is_name, model, number_in, object_schema, text_of};

const FIELDS: &[&str] = &[
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "stream",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "metadata",
    "service_tier",
    "container",
    "mcp_servers",
    "context_management",
    "cache_control",
    "output_config",
    "output_format",
    "speed",
    "inference_geo",
    "betas",
    "anthropic_beta",
];

pub(super) fn check(body: &Value, report: &mut Report) {
    for key in body.as_object().into_iter().flat_map(|o| o.keys()) {
        report.check(
            FIELDS.contains(&key.as_str()),
            "anthropic.unknown_field",
            key,
            || format!("{key}: extra inputs are not permitted"),
        );
    }
    model(report, body, "anthropic.model");
    let tokens = body.get("max_tokens").and_then(Value::as_u64);
    report.check(
        tokens.is_some_and(|n| n >= 1),
        "anthropic.max_tokens",
        "max_tokens",
        || "max_tokens: field required, a whole number of at least 1".into(),
    );
    boolean(report, body, "stream", "anthropic.stream");
    number_in(
        report,
        body,
        "temperature",
        "anthropic.temperature",
        (0.0, 1.0),
    );
    number_in(report, body, "top_p", "anthropic.top_p", (0.0, 1.0));
    if let Some(stops) = given(body, "stop_sequences") {
        let ok = stops.as_array().is_some_and(|list| {
            list.iter()
                .all(|s| s.as_str().is_some_and(|s| !is_blank(s)))
        });
        report.check(ok, "anthropic.stop_sequences", "stop_sequences", || {
            "stop_sequences: each stop sequence must contain non-whitespace".into()
        });
    }
    check_system(body, report);
    check_tools(body, report);
    check_thinking(body, tokens.unwrap_or(0), report);
    let mut marks = 0;
    count_cache_marks(body, "", &mut marks, report);
    report.check(marks <= 4, "anthropic.cache_control_count", "", || {
        format!("a maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    });
}

fn check_system(body: &Value, report: &mut Report) {
    let ok = match given(body, "system") {
        None | Some(Value::String(_)) => true,
        Some(Value::Array(blocks)) => blocks
            .iter()
            .all(|b| text_of(b, "type") == "text" && !is_blank(text_of(b, "text"))),
        Some(_) => false,
    };
    report.check(ok, "anthropic.system", "system", || {
        "system is a string or an array of text blocks that are not empty".into()
    });
}

fn check_thinking(body: &Value, max_tokens: u64, report: &mut Report) {
    let Some(thinking) = given(body, "thinking") else {
        return;
    };
    let mode = text_of(thinking, "type");
    let ok = ["enabled", "disabled", "adaptive"].contains(&mode);
    report.check(ok, "anthropic.thinking_config", "thinking.type", || {
        "thinking.type is enabled, disabled or adaptive".into()
    });
    if mode == "enabled" {
        let budget = thinking.get("budget_tokens").and_then(Value::as_u64);
        report.check(
            budget.is_some_and(|b| b >= 1024 && b < max_tokens),
            "anthropic.thinking_budget",
            "thinking.budget_tokens",
            || "thinking.budget_tokens must be at least 1024 and less than max_tokens".into(),
        );
    }
    if mode == "enabled" || mode == "adaptive" {
        let warm = given(body, "temperature").is_none_or(|t| t.as_f64() == Some(1.0));
        report.check(
            warm && given(body, "top_k").is_none(),
            "anthropic.thinking_sampling",
            "temperature",
            || {
                "`temperature` may only be set to 1 and `top_k` not at all when thinking is enabled"
                    .into()
            },
        );
        let forced = body.pointer("/tool_choice/type").and_then(Value::as_str);
        report.check(
            !matches!(forced, Some("any" | "tool")),
            "anthropic.thinking_forced_tool",
            "tool_choice",
            || "thinking may not be enabled when tool_choice forces tool use".into(),
        );
    }
}

fn check_tools(body: &Value, report: &mut Report) {
    let tools = given(body, "tools");
    let mut names = HashSet::new();
    if let Some(tools) = tools {
        let Some(list) = tools.as_array() else {
            report.add("anthropic.tools", "tools", "tools must be an array");
            return;
        };
        for (index, tool) in list.iter().enumerate() {
            check_tool(tool, &format!("tools[{index}]"), &mut names, report);
        }
    }
    if let Some(choice) = given(body, "tool_choice") {
        report.check(
            tools.is_some(),
            "anthropic.tool_choice_without_tools",
            "tool_choice",
            || "tool_choice may only be specified while providing tools".into(),
        );
        let ok = match text_of(choice, "type") {
            "auto" | "any" | "none" => true,
            "tool" => names.contains(text_of(choice, "name")),
            _ => false,
        };
        report.check(ok, "anthropic.tool_choice", "tool_choice", || {
            "tool_choice.type is auto, any, none, or tool with the name of one of the tools".into()
        });
    }
}

fn check_tool<'a>(tool: &'a Value, at: &str, names: &mut HashSet<&'a str>, report: &mut Report) {
    if !report.check(tool.is_object(), "anthropic.tools", at, || {
        "a tool is an object".into()
    }) {
        return;
    }
    let tool_type = given(tool, "type").map_or("custom", |t| t.as_str().unwrap_or(""));
    if tool_type == "mcp_toolset" {
        return;
    }
    let name = text_of(tool, "name");
    report.check(
        is_name(name, 128),
        "anthropic.tool_name",
        &format!("{at}.name"),
        || {
            format!(
                "tools.name: string should match pattern '^[a-zA-Z0-9_-]{{1,128}}$', got {name:?}"
            )
        },
    );
    report.check(names.insert(name), "anthropic.duplicate_tool", at, || {
        format!("tools: tool names must be unique, {name:?} occurs twice")
    });
    if tool_type == "custom" {
        let schema = tool.get("input_schema").unwrap_or(&Value::Null);
        let at = format!("{at}.input_schema");
        object_schema(report, schema, "anthropic.tool_schema", &at);
        if schema.is_object() {
            report.check(
                schema.get("type").is_some(),
                "anthropic.tool_schema",
                &at,
                || "input_schema.type: field required".into(),
            );
        }
    }
}

/// Counts cache marks wherever blocks may carry them; never looks into a tool's input or schema, which may use the
/// same word for something else.
fn count_cache_marks(value: &Value, at: &str, marks: &mut usize, report: &mut Report) {
    match value {
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                count_cache_marks(item, &format!("{at}[{index}]"), marks, report);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                let here = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                match key.as_str() {
                    "cache_control" if !item.is_null() => {
                        *marks += 1;
                        let ttl = given(item, "ttl").is_none_or(|t| t == "5m" || t == "1h");
                        report.check(
                            text_of(item, "type") == "ephemeral" && ttl,
                            "anthropic.cache_control",
                            &here,
                            || "cache_control has type \"ephemeral\" and an optional ttl of 5m or 1h".into(),
                        );
                    }
                    "messages" | "content" | "system" | "tools" => {
                        count_cache_marks(item, &here, marks, report)
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
