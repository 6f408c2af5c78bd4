//! The rules of Anthropic Messages requests: thinking, effort, the form of the answer, the sandbox.

use serde_json::Value;

use super::Report;
use super::shape::{given, text_of};

pub(super) fn check(body: &Value, max_tokens: u64, report: &mut Report) {
    check_thinking(body, max_tokens, report);
    check_output_config(body, report);
    if let Some(container) = given(body, "container") {
        let tools = given(body, "tools").and_then(Value::as_array);
        let runs_code = tools.is_some_and(|list| {
            list.iter()
                .any(|t| text_of(t, "type").starts_with("code_execution_"))
        });
        let named = container.is_string() || given(container, "id").is_some();
        report.check(
            named && runs_code,
            "anthropic.container",
            "container",
            || "container is an id, and asks for the code execution tool".into(),
        );
    }
}

fn check_thinking(body: &Value, max_tokens: u64, report: &mut Report) {
    let Some(thinking) = given(body, "thinking") else {
        return;
    };
    let mode = text_of(thinking, "type");
    let known: &[&str] = match mode {
        "enabled" => &["type", "budget_tokens", "display"],
        "adaptive" => &["type", "display", "block_binding"],
        "between_tools" | "disabled" => &["type"],
        _ => &[],
    };
    let keys = thinking
        .as_object()
        .is_some_and(|fields| fields.keys().all(|key| known.contains(&key.as_str())));
    let display = given(thinking, "display").is_none_or(|d| d == "summarized" || d == "omitted");
    report.check(
        keys && display,
        "anthropic.thinking_config",
        "thinking",
        || {
            "thinking.type is enabled, disabled, between_tools or adaptive; display is summarized or omitted".into()
        },
    );
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

fn check_output_config(body: &Value, report: &mut Report) {
    let Some(config) = given(body, "output_config") else {
        return;
    };
    let known = ["effort", "format", "task_budget"];
    let keys = config
        .as_object()
        .is_some_and(|fields| fields.keys().all(|key| known.contains(&key.as_str())));
    report.check(keys, "anthropic.output_config", "output_config", || {
        format!("output_config is an object of {known:?}")
    });
    if let Some(effort) = given(config, "effort") {
        let legal = ["low", "medium", "high", "xhigh", "max"];
        let ok = effort.as_str().is_some_and(|e| legal.contains(&e));
        report.check(ok, "anthropic.effort", "output_config.effort", || {
            format!("effort is one of {legal:?}")
        });
    }
    if let Some(format) = given(config, "format") {
        let at = "output_config.format";
        let schema = format.get("schema").unwrap_or(&Value::Null);
        let keys = format
            .as_object()
            .is_some_and(|f| f.keys().all(|key| key == "type" || key == "schema"));
        let shaped = keys && text_of(format, "type") == "json_schema" && schema.is_object();
        if report.check(shaped, "anthropic.output_format", at, || {
            "format has type \"json_schema\" and a schema that is an object".into()
        }) {
            let fault = schema_fault(schema);
            report.check(fault.is_none(), "anthropic.output_schema", at, || {
                fault.unwrap_or_default()
            });
        }
    }
}

/// Keywords that grammars cannot hold to.
const REFUSED: &[&str] = &[
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
];

/// What the endpoint does not take in a schema of the answer.
fn schema_fault(schema: &Value) -> Option<String> {
    let fields = schema.as_object()?;
    let object = fields.get("type").is_some_and(|t| t == "object");
    if object && fields.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Some(
            "For 'object' type, 'additionalProperties' must be explicitly set to false".into(),
        );
    }
    if let Some(key) = fields.keys().find(|key| REFUSED.contains(&key.as_str())) {
        return Some(format!("the keyword {key:?} is not supported"));
    }
    for (key, value) in fields {
        let fault = match key.as_str() {
            "properties" | "$defs" | "definitions" => {
                value.as_object()?.values().find_map(schema_fault)
            }
            "items" => schema_fault(value),
            "anyOf" | "allOf" => value.as_array()?.iter().find_map(schema_fault),
            _ => None,
        };
        if fault.is_some() {
            return fault;
        }
    }
    None
}
