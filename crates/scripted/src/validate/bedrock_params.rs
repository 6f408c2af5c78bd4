//! The rules of Bedrock Converse requests: everything beside the messages.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::bedrock::{Maker, blocks, member};
use super::shape::{is_blank, is_name, object_schema, text_of};

const FIELDS: &[&str] = &[
    "messages",
    "system",
    "inferenceConfig",
    "toolConfig",
    "guardrailConfig",
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
    "promptVariables",
    "requestMetadata",
    "performanceConfig",
    "serviceTier",
    "outputConfig",
];

pub(super) fn check(model: &str, maker: Maker, body: &Value, report: &mut Report) {
    for key in body.as_object().into_iter().flatten().map(|(key, _)| key) {
        report.check(
            FIELDS.contains(&key.as_str()),
            "bedrock.unknown_field",
            key,
            || format!("extraneous key [{key}] is not permitted; the model is named in the path"),
        );
    }
    check_system(body, report);
    check_inference(body, report);
    check_tools(maker, body, report);
    check_cache_points(model, maker, body, report);
    check_output(body, report);
    check_additional(maker, body, report);
}

fn check_system(body: &Value, report: &mut Report) {
    let Some(system) = body.get("system") else {
        return;
    };
    let Some(parts) = system.as_array() else {
        report.add("bedrock.system", "system", "system is a list of blocks");
        return;
    };
    for (index, part) in parts.iter().enumerate() {
        let ok = match member(part) {
            Some(("text", text)) => text.as_str().is_some_and(|text| !is_blank(text)),
            Some(("cachePoint", _)) => index > 0,
            Some(("guardContent", _)) => true,
            _ => false,
        };
        report.check(ok, "bedrock.system", &format!("system[{index}]"), || {
            "a system block is a text that is not blank, or a cachePoint behind one".into()
        });
    }
}

fn check_inference(body: &Value, report: &mut Report) {
    let Some(config) = body.get("inferenceConfig") else {
        return;
    };
    let known = ["maxTokens", "temperature", "topP", "stopSequences"];
    let keys = config
        .as_object()
        .is_some_and(|fields| fields.keys().all(|key| known.contains(&key.as_str())));
    let whole = |key: &str| {
        config
            .get(key)
            .is_none_or(|n| n.as_u64().is_some_and(|n| n >= 1))
    };
    let share = |key: &str| {
        config
            .get(key)
            .is_none_or(|n| n.as_f64().is_some_and(|n| (0.0..=1.0).contains(&n)))
    };
    let stops = config.get("stopSequences").is_none_or(|list| {
        list.as_array().is_some_and(|list| {
            list.iter()
                .all(|s| s.as_str().is_some_and(|s| !s.is_empty()))
        })
    });
    let ok = keys && whole("maxTokens") && share("temperature") && share("topP") && stops;
    report.check(ok, "bedrock.inference_config", "inferenceConfig", || {
        format!("inferenceConfig holds {known:?}: maxTokens of at least 1, temperature and topP from 0 to 1")
    });
}

fn check_tools(maker: Maker, body: &Value, report: &mut Report) {
    let Some(config) = body.get("toolConfig") else {
        return;
    };
    let tools = config.get("tools").and_then(Value::as_array);
    let Some(tools) = tools.filter(|t| !t.is_empty()) else {
        report.add(
            "bedrock.tools",
            "toolConfig.tools",
            "1 validation error detected: Value at 'toolConfig.tools' must have length greater than or equal to 1",
        );
        return;
    };
    let mut names = HashSet::new();
    for (index, tool) in tools.iter().enumerate() {
        let at = format!("toolConfig.tools[{index}]");
        match member(tool) {
            Some(("toolSpec", spec)) => {
                let name = text_of(spec, "name");
                report.check(is_name(name, 64), "bedrock.tool_name", &at, || {
                    format!("Value {name:?} at 'toolSpec.name' must satisfy [a-zA-Z0-9_-]+ and be at most 64 long")
                });
                report.check(names.insert(name), "bedrock.duplicate_tool", &at, || {
                    format!("The tool {name:?} is defined twice.")
                });
                let described = spec
                    .get("description")
                    .is_none_or(|d| d.as_str().is_some_and(|d| !d.is_empty()));
                report.check(described, "bedrock.tools", &at, || {
                    "a description has at least one character".into()
                });
                let schema = spec.pointer("/inputSchema/json").unwrap_or(&Value::Null);
                object_schema(report, schema, "bedrock.tool_schema", &at);
                report.check(
                    text_of(schema, "type") == "object",
                    "bedrock.tool_schema",
                    &at,
                    || "The value at toolSpec.inputSchema.json.type must be one of the following: object.".into(),
                );
            }
            Some(("systemTool", tool)) => {
                let name = text_of(tool, "name");
                report.check(
                    is_name(name, 64) && matches!(maker, Maker::Amazon | Maker::Unknown),
                    "bedrock.tools",
                    &at,
                    || format!("This model does not support the system tool {name:?}."),
                );
            }
            Some(("cachePoint", _)) if index > 0 => {}
            _ => report.add(
                "bedrock.tools",
                at,
                "a tool is a toolSpec, a systemTool, or a cachePoint behind one",
            ),
        }
    }
    if let Some(choice) = config.get("toolChoice") {
        check_choice(maker, choice, &names, report);
    }
}

fn check_choice(maker: Maker, choice: &Value, names: &HashSet<&str>, report: &mut Report) {
    let at = "toolConfig.toolChoice";
    let found = member(choice);
    let ok = match found {
        Some(("auto" | "any", value)) => value.is_object(),
        Some(("tool", value)) => names.contains(text_of(value, "name")),
        _ => false,
    };
    report.check(ok, "bedrock.tool_choice", at, || {
        "toolChoice has exactly one of auto, any and tool, the last with the name of a defined tool; there is no \
         \"none\""
            .into()
    });
    let forced = matches!(found, Some(("any" | "tool", _)));
    report.check(
        !(forced && maker == Maker::Other),
        "bedrock.tool_choice_model",
        at,
        || "This model doesn't support the toolConfig.toolChoice.any field. Remove it and try again.".into(),
    );
}

fn count_points(list: &[Value]) -> usize {
    list.iter()
        .filter(|b| b.get("cachePoint").is_some())
        .count()
}

fn check_cache_points(model: &str, maker: Maker, body: &Value, report: &mut Report) {
    let list = |at: &str| {
        body.pointer(at)
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice)
    };
    let tools = count_points(list("/toolConfig/tools"));
    let messages: usize = list("/messages")
        .iter()
        .map(|m| count_points(blocks(m)))
        .sum();
    let all = tools + messages + count_points(list("/system"));
    report.check(all <= 4, "bedrock.cache_point_count", "", || {
        format!("A maximum of 4 cachePoint blocks may be provided. Found {all}.")
    });
    let lacks = match maker {
        Maker::Other => all > 0,
        Maker::Amazon => tools > 0,
        Maker::Anthropic => {
            let old = [
                "claude-3-5-sonnet",
                "claude-3-sonnet",
                "claude-3-opus",
                "claude-3-haiku",
            ];
            all > 0 && old.iter().any(|old| model.contains(old))
        }
        Maker::Unknown => false,
    };
    report.check(!lacks, "bedrock.cache_point_model", "", || {
        "You invoked an unsupported model or your request did not allow prompt caching.".into()
    });
}

fn check_output(body: &Value, report: &mut Report) {
    let Some(config) = body.get("outputConfig") else {
        return;
    };
    let format = config.get("textFormat").unwrap_or(&Value::Null);
    let schema = format
        .pointer("/structure/jsonSchema/schema")
        .and_then(Value::as_str);
    let object = schema.is_some_and(super::shape::holds_object);
    report.check(
        text_of(format, "type") == "json_schema" && object,
        "bedrock.output_config",
        "outputConfig.textFormat",
        || "textFormat has the type json_schema and a structure.jsonSchema whose schema is JSON in a string".into(),
    );
}

fn check_additional(maker: Maker, body: &Value, report: &mut Report) {
    let Some(fields) = body.get("additionalModelRequestFields") else {
        return;
    };
    report.check(
        fields.is_object(),
        "bedrock.additional_fields",
        "additionalModelRequestFields",
        || "additionalModelRequestFields is an object".into(),
    );
    let thinking = fields.get("thinking").unwrap_or(&Value::Null);
    if maker != Maker::Anthropic {
        report.check(
            thinking.is_null() || maker == Maker::Unknown,
            "bedrock.additional_fields",
            "additionalModelRequestFields.thinking",
            || "extraneous key [thinking] is not permitted".into(),
        );
        return;
    }
    if text_of(thinking, "type") == "enabled" {
        let budget = thinking.get("budget_tokens").and_then(Value::as_u64);
        let limit = body
            .pointer("/inferenceConfig/maxTokens")
            .and_then(Value::as_u64);
        let ok = budget.is_some_and(|b| b >= 1024 && limit.is_none_or(|limit| b < limit));
        report.check(
            ok,
            "bedrock.thinking_budget",
            "additionalModelRequestFields.thinking",
            || "`budget_tokens` must be at least 1024 and less than `max_tokens`".into(),
        );
    }
    let thinks = ["enabled", "adaptive"].contains(&text_of(thinking, "type"));
    let choice = body
        .pointer("/toolConfig/toolChoice")
        .unwrap_or(&Value::Null);
    let forced = choice.get("any").is_some() || choice.get("tool").is_some();
    report.check(
        !(thinks && forced),
        "bedrock.thinking_forced_tool",
        "toolConfig.toolChoice",
        || "Thinking may not be enabled when tool_choice forces tool use.".into(),
    );
}
