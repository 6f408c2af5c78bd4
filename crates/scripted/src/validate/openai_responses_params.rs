//! The rules of OpenAI Responses requests: tools, choices, sampling, storage and streaming parameters.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::shape::{
    boolean, given, is_name, model, number_in, object_schema, text_of, whole_number,
};

const INCLUDES: &[&str] = &[
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "web_search_call.action.sources",
    "web_search_call.results",
];

pub(super) fn check(body: &Value, report: &mut Report) {
    model(report, body, "responses.model");
    boolean(report, body, "stream", "responses.stream");
    boolean(report, body, "store", "responses.store");
    boolean(
        report,
        body,
        "parallel_tool_calls",
        "responses.parallel_tool_calls",
    );
    number_in(
        report,
        body,
        "temperature",
        "responses.temperature",
        (0.0, 2.0),
    );
    number_in(report, body, "top_p", "responses.top_p", (0.0, 1.0));
    whole_number(
        report,
        body,
        "max_output_tokens",
        "responses.max_output_tokens",
        16,
    );
    if let Some(text) = given(body, "instructions") {
        report.check(
            text.is_string(),
            "responses.instructions",
            "instructions",
            || "instructions must be a string".into(),
        );
    }
    if let Some(include) = given(body, "include") {
        let ok = include.as_array().is_some_and(|list| {
            list.iter()
                .all(|v| v.as_str().is_some_and(|v| INCLUDES.contains(&v)))
        });
        report.check(ok, "responses.include", "include", || {
            format!("include is an array of {INCLUDES:?}")
        });
    }
    check_enums(body, report);
    check_tools(body, report);
}

fn check_enums(body: &Value, report: &mut Report) {
    if let Some(format) = body.pointer("/text/format") {
        let ok = match text_of(format, "type") {
            "text" | "json_object" => true,
            "json_schema" => {
                is_name(text_of(format, "name"), 64)
                    && format.get("schema").is_some_and(Value::is_object)
            }
            _ => false,
        };
        report.check(ok, "responses.text_format", "text.format", || {
            "text.format is text, json_object, or json_schema with a name and a schema".into()
        });
    }
    if let Some(format) = body.pointer("/text/format")
        && format.get("strict") == Some(&Value::Bool(true))
    {
        let fault = strict_fault(format.get("schema").unwrap_or(&Value::Null));
        report.check(
            fault.is_none(),
            "responses.strict_schema",
            "text.format.schema",
            || fault.unwrap_or_default(),
        );
    }
    if let Some(summary) = body.pointer("/reasoning/summary").filter(|s| !s.is_null()) {
        let legal = ["auto", "concise", "detailed"];
        let ok = summary.as_str().is_some_and(|s| legal.contains(&s));
        report.check(
            ok,
            "responses.reasoning_summary",
            "reasoning.summary",
            || format!("reasoning.summary is one of {legal:?}"),
        );
    }
    if let Some(effort) = body.pointer("/reasoning/effort").filter(|e| !e.is_null()) {
        let legal = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
        let ok = effort.as_str().is_some_and(|e| legal.contains(&e));
        report.check(ok, "responses.reasoning_effort", "reasoning.effort", || {
            format!("reasoning.effort is one of {legal:?}")
        });
    }
    if let Some(truncation) = given(body, "truncation") {
        let ok = truncation == "auto" || truncation == "disabled";
        report.check(ok, "responses.truncation", "truncation", || {
            "truncation is auto or disabled".into()
        });
    }
}

fn check_tools(body: &Value, report: &mut Report) {
    let tools = given(body, "tools");
    let mut names = HashSet::new();
    if let Some(tools) = tools {
        let Some(list) = tools.as_array() else {
            report.add("responses.tools", "tools", "tools must be an array");
            return;
        };
        for (index, tool) in list.iter().enumerate() {
            check_tool(tool, &format!("tools[{index}]"), &mut names, report);
        }
    }
    if let Some(choice) = given(body, "tool_choice") {
        report.check(
            tools.is_some() || choice == "none" || choice == "auto",
            "responses.tool_choice_without_tools",
            "tool_choice",
            || "a tool_choice that asks for a tool needs tools".into(),
        );
        let ok = match choice {
            Value::String(word) => ["none", "auto", "required"].contains(&word.as_str()),
            Value::Object(_) => match text_of(choice, "type") {
                "function" | "custom" => names.contains(text_of(choice, "name")),
                "allowed_tools" => choice.get("tools").is_some_and(Value::is_array),
                other => !other.is_empty(),
            },
            _ => false,
        };
        report.check(ok, "responses.tool_choice", "tool_choice", || {
            "tool_choice is none, auto, required, or names one of the tools".into()
        });
    }
}

fn check_tool<'a>(tool: &'a Value, at: &str, names: &mut HashSet<&'a str>, report: &mut Report) {
    let tool_type = text_of(tool, "type");
    if !report.check(!tool_type.is_empty(), "responses.tools", at, || {
        "a tool is an object with a type".into()
    }) {
        return;
    }
    if tool_type != "function" && tool_type != "custom" {
        check_hosted(tool, tool_type, at, report);
        return;
    }
    // The name lies on the tool itself here, not in a nested function object as in Chat Completions.
    let name = text_of(tool, "name");
    report.check(
        is_name(name, 64),
        "responses.tool_name",
        &format!("{at}.name"),
        || format!("a tool's name must match ^[a-zA-Z0-9_-]{{1,64}}$, got {name:?}"),
    );
    report.check(names.insert(name), "responses.duplicate_tool", at, || {
        format!("tool {name:?} is defined twice")
    });
    if let Some(schema) = given(tool, "parameters") {
        object_schema(
            report,
            schema,
            "responses.tool_schema",
            &format!("{at}.parameters"),
        );
    }
}

fn check_hosted(tool: &Value, tool_type: &str, at: &str, report: &mut Report) {
    let ok = match tool_type {
        "web_search"
        | "web_search_2025_08_26"
        | "web_search_preview"
        | "image_generation"
        | "local_shell"
        | "shell"
        | "apply_patch"
        | "tool_search"
        | "computer"
        | "computer_use_preview"
        | "namespace" => true,
        // The sandbox is named, or made when it is needed.
        "code_interpreter" => given(tool, "container")
            .is_some_and(|container| container.is_string() || text_of(container, "type") == "auto"),
        "file_search" => tool
            .get("vector_store_ids")
            .and_then(Value::as_array)
            .is_some_and(|ids| !ids.is_empty()),
        "mcp" => !text_of(tool, "server_label").is_empty(),
        _ => false,
    };
    report.check(ok, "responses.hosted_tool", at, || {
        format!("the tool {tool_type:?} is unknown or lacks what it needs")
    });
}

/// What a strict schema of the answer must hold: closed objects, with every property required.
fn strict_fault(schema: &Value) -> Option<String> {
    let fields = schema.as_object()?;
    if fields.get("type").is_some_and(|t| t == "object") {
        let closed = fields.get("additionalProperties") == Some(&Value::Bool(false));
        let required: HashSet<&str> = fields
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let all = fields
            .get("properties")
            .and_then(Value::as_object)
            .is_none_or(|p| p.keys().all(|key| required.contains(key.as_str())));
        if !closed || !all {
            return Some(
                "In context=(), 'additionalProperties' is required to be false and 'required' to name every property"
                    .into(),
            );
        }
    }
    for (key, value) in fields {
        let fault = match key.as_str() {
            "properties" | "$defs" => value.as_object()?.values().find_map(strict_fault),
            "items" => strict_fault(value),
            "anyOf" => value.as_array()?.iter().find_map(strict_fault),
            _ => None,
        };
        if fault.is_some() {
            return fault;
        }
    }
    None
}
