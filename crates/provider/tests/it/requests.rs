//! The pieces that requests in tests are made of, the same for every protocol.

use serde_json::Value;
use tenure_core::model::{ModelLimits, ModelRef};
use tenure_core::request::*;

/// Of a model of which nothing is known.
pub const NO_LIMITS: ModelLimits = ModelLimits {
    context: None,
    output: None,
};

/// A request to `model` with a system prompt, messages and tools, and nothing else asked for.
pub fn plain(
    model: &str,
    system: &[&str],
    messages: Vec<RequestMessage>,
    tools: Vec<ToolDef>,
) -> Request {
    Request {
        system: system.iter().map(|part| (*part).into()).collect(),
        messages,
        tools,
        cache_key: "ses_1".into(),
        ..Request::new(ModelRef {
            provider: "p".into(),
            model: model.into(),
        })
    }
}

pub fn tool(name: &str, description: &str, input_schema: Value) -> ToolDef {
    ToolDef {
        name: name.into(),
        description: description.into(),
        input_schema,
    }
}

pub fn user(text: &str) -> RequestMessage {
    RequestMessage::User {
        parts: vec![text.into()],
    }
}

pub fn note(text: &str) -> RequestMessage {
    RequestMessage::System { text: text.into() }
}

pub fn assistant(blocks: Vec<AssistantBlock>) -> RequestMessage {
    RequestMessage::Assistant { blocks }
}

pub fn results(results: Vec<ToolResult>) -> RequestMessage {
    RequestMessage::ToolResults { results }
}

pub fn text(text: &str) -> AssistantBlock {
    AssistantBlock::Text {
        text: text.into(),
        native: None,
    }
}

/// Thinking with its provider's own JSON.
pub fn thought(text: &str, native: impl ToString) -> AssistantBlock {
    AssistantBlock::Reasoning {
        text: text.into(),
        native: Some(native.to_string()),
    }
}

pub fn call_of(id: &str, name: &str, input: &str, native: Option<&str>) -> AssistantBlock {
    AssistantBlock::ToolCall {
        id: id.into(),
        name: name.into(),
        input: input.into(),
        native: native.map(Into::into),
    }
}

pub fn result_of(id: &str, name: &str, text: &str) -> ToolResult {
    ToolResult {
        id: id.into(),
        name: name.into(),
        text: text.into(),
        is_error: false,
    }
}

/// A call, its result, a note and a prompt, as every long conversation has them.
pub fn long(
    second: &str,
    call: fn(&str) -> AssistantBlock,
    result: fn(&str, &str) -> ToolResult,
) -> Vec<RequestMessage> {
    vec![
        user("one"),
        assistant(vec![text("calling  \n"), call("c:1"), call(second)]),
        results(vec![
            result("c:1", "ok"),
            ToolResult {
                is_error: true,
                ..result(second, "bad")
            },
        ]),
        note("Instructions changed."),
        user("two"),
        assistant(vec![text("done")]),
        user("three"),
    ]
}

/// The roles of a body's messages.
pub fn roles(body: &Value) -> Vec<&str> {
    let messages = body["messages"].as_array().unwrap();
    messages
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect()
}
