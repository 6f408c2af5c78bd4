//! The rules of OpenAI Chat Completions requests: tools, choices, sampling and streaming parameters.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::chat_habits::Habits;
use super::shape::{
    boolean, given, is_name, model, number_in, object_schema, text_of, whole_number,
};

pub(super) fn check(body: &Value, habits: &Habits, report: &mut Report) {
    model(report, body, "chat.model");
    boolean(report, body, "stream", "chat.stream");
    number_in(report, body, "temperature", "chat.temperature", (0.0, 2.0));
    number_in(report, body, "top_p", "chat.top_p", (0.0, 1.0));
    whole_number(report, body, "n", "chat.n", 1);
    whole_number(report, body, "max_tokens", "chat.max_tokens", 1);
    whole_number(report, body, "max_completion_tokens", "chat.max_tokens", 1);
    let twice =
        given(body, "max_tokens").is_some() && given(body, "max_completion_tokens").is_some();
    report.check(!twice, "chat.max_tokens_twice", "max_tokens", || {
        "max_tokens and max_completion_tokens cannot be set both".into()
    });
    check_stream_options(body, report);
    check_stop(body, report);
    check_enums(body, report);
    check_tools(body, habits, report);
}

fn check_stream_options(body: &Value, report: &mut Report) {
    if let Some(options) = given(body, "stream_options") {
        let streams = body.get("stream") == Some(&Value::Bool(true));
        let usage = options.get("include_usage");
        let ok = streams && options.is_object() && usage.is_none_or(Value::is_boolean);
        report.check(ok, "chat.stream_options", "stream_options", || {
            "stream_options is an object, only allowed when stream is true".into()
        });
    }
}

fn check_stop(body: &Value, report: &mut Report) {
    if let Some(stop) = given(body, "stop") {
        let list = stop
            .as_array()
            .is_some_and(|list| list.len() <= 4 && list.iter().all(Value::is_string));
        report.check(stop.is_string() || list, "chat.stop", "stop", || {
            "stop is a string or an array of at most 4 strings".into()
        });
    }
}

fn check_enums(body: &Value, report: &mut Report) {
    if let Some(format) = given(body, "response_format") {
        let ok = match text_of(format, "type") {
            "text" | "json_object" => true,
            "json_schema" => format
                .pointer("/json_schema/name")
                .is_some_and(Value::is_string),
            _ => false,
        };
        report.check(ok, "chat.response_format", "response_format", || {
            "response_format is text, json_object, or json_schema with a name".into()
        });
    }
    if let Some(effort) = given(body, "reasoning_effort") {
        let legal = [
            "none", "minimal", "low", "medium", "high", "xhigh", "max", "default",
        ];
        let ok = effort.as_str().is_some_and(|e| legal.contains(&e));
        report.check(ok, "chat.reasoning_effort", "reasoning_effort", || {
            format!("reasoning_effort is one of {legal:?}")
        });
    }
}

fn check_tools(body: &Value, habits: &Habits, report: &mut Report) {
    let tools = given(body, "tools");
    let mut names = HashSet::new();
    if let Some(tools) = tools {
        let Some(list) = tools.as_array() else {
            report.add("chat.tools", "tools", "tools must be an array");
            return;
        };
        for (index, tool) in list.iter().enumerate() {
            if habits.own_tools.contains(&text_of(tool, "type")) {
                continue;
            }
            check_tool(tool, &format!("tools[{index}]"), &mut names, report);
        }
    }
    if given(body, "parallel_tool_calls").is_some() {
        boolean(
            report,
            body,
            "parallel_tool_calls",
            "chat.parallel_without_tools",
        );
        report.check(
            tools.is_some(),
            "chat.parallel_without_tools",
            "parallel_tool_calls",
            || "parallel_tool_calls is only allowed when tools are given".into(),
        );
    }
    if let Some(choice) = given(body, "tool_choice") {
        report.check(
            tools.is_some() || choice == "none",
            "chat.tool_choice_without_tools",
            "tool_choice",
            || "tool_choice is only allowed when tools are given".into(),
        );
        // "any" is the spelling of "required" at one compatible vendor.
        let ok = match choice {
            Value::String(word) => ["none", "auto", "required", "any"].contains(&word.as_str()),
            Value::Object(_) => match text_of(choice, "type") {
                "function" => choice
                    .pointer("/function/name")
                    .and_then(Value::as_str)
                    .is_some_and(|name| names.contains(name)),
                "allowed_tools" => choice.get("allowed_tools").is_some_and(Value::is_object),
                _ => false,
            },
            _ => false,
        };
        report.check(ok, "chat.tool_choice", "tool_choice", || {
            "tool_choice is none, auto, required, or names a function among tools".into()
        });
    }
}

fn check_tool<'a>(tool: &'a Value, at: &str, names: &mut HashSet<&'a str>, report: &mut Report) {
    let function = tool.get("function").filter(|f| f.is_object());
    let Some(function) = function.filter(|_| text_of(tool, "type") == "function") else {
        report.add(
            "chat.tools",
            at,
            "a tool has type \"function\" and a function object",
        );
        return;
    };
    let name = text_of(function, "name");
    report.check(
        is_name(name, 64),
        "chat.tool_name",
        &format!("{at}.function.name"),
        || format!("a function name must match ^[a-zA-Z0-9_-]{{1,64}}$, got {name:?}"),
    );
    report.check(names.insert(name), "chat.duplicate_tool", at, || {
        format!("tool {name:?} is defined twice")
    });
    if let Some(schema) = given(function, "parameters") {
        object_schema(
            report,
            schema,
            "chat.tool_schema",
            &format!("{at}.function.parameters"),
        );
    }
}
