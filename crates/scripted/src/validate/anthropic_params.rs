//! The rules of Anthropic Messages requests: parameters, system prompt, tools, cache marks.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::anthropic_hosted;
use super::anthropic_output;
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
    anthropic_output::check(body, tokens.unwrap_or(0), report);
    check_cache_marks(body, report);
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
    if tool_type != "custom" {
        anthropic_hosted::check_tool(tool, at, report);
    } else {
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

/// The marks in the order the vendor reads a request: tools, system, messages.
fn check_cache_marks(body: &Value, report: &mut Report) {
    let mut marks = Vec::new();
    for key in ["tools", "system", "messages", "cache_control"] {
        if let Some(value) = given(body, key) {
            if key == "cache_control" {
                marks.push((key.to_owned(), value));
            } else {
                collect_marks(value, key, &mut marks);
            }
        }
    }
    let count = marks.len();
    report.check(count <= 4, "anthropic.cache_control_count", "", || {
        format!("a maximum of 4 blocks with cache_control may be provided. Found {count}.")
    });
    let mut short = false;
    for (at, mark) in marks {
        let ttl = given(mark, "ttl").and_then(Value::as_str).unwrap_or("5m");
        report.check(
            text_of(mark, "type") == "ephemeral" && (ttl == "5m" || ttl == "1h"),
            "anthropic.cache_control",
            &at,
            || "cache_control has type \"ephemeral\" and an optional ttl of 5m or 1h".into(),
        );
        report.check(
            !(short && ttl == "1h"),
            "anthropic.cache_ttl_order",
            &at,
            || {
                "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
                    .into()
            },
        );
        short |= ttl == "5m";
    }
}

/// Finds cache marks wherever blocks may carry them; never looks into a tool's input or schema, which may use the
/// same word for something else.
fn collect_marks<'a>(value: &'a Value, at: &str, marks: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                collect_marks(item, &format!("{at}[{index}]"), marks);
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                let here = format!("{at}.{key}");
                match key.as_str() {
                    "cache_control" if !item.is_null() => marks.push((here, item)),
                    "content" => collect_marks(item, &here, marks),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
