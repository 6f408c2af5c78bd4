//! Google Gemini: alternating roles, results in the order of their calls, signatures in their place.
//!
//! Nothing marks what may be cached: Gemini's cache finds the longest known prefix by itself. So everything
//! that a session keeps comes first and the conversation last.

mod contents;
mod family;
mod schema;

pub(super) use contents::MEDIA;

use super::shape::visible;
use family::{Family, Thinking};
use serde::Serialize;
use serde_json::Value;
use tenure_core::request::{HostedTool, Request, ToolChoice};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<System<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<Generation>,
    contents: Vec<contents::Content>,
}

#[derive(Serialize)]
struct System<'a> {
    parts: Vec<Text<'a>>,
}

#[derive(Serialize)]
struct Text<'a> {
    text: &'a str,
}

/// One entry of `tools`: the functions together, or one tool of the vendor's.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Tool<'a> {
    FunctionDeclarations(Vec<Declaration<'a>>),
    GoogleSearch(Empty),
    CodeExecution(Empty),
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    function_calling_config: Option<Calling<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_server_side_tool_invocations: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Calling<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

#[derive(Serialize, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Generation {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<Thinking>,
}

/// The body; `None` when no message is left.
pub(super) fn encode(request: &Request, output: Option<u64>) -> Option<Vec<u8>> {
    let family = Family::of(&request.model.model);
    let contents = contents::contents(request, family.wants_signatures());
    if contents.is_empty() {
        return None;
    }
    let schema = request
        .output_schema
        .as_ref()
        .map(|output| schema::reduced(&output.schema));
    // Before Gemini 3, JSON mode and tools exclude each other: then words have to do.
    let by_words = schema.is_some() && !request.tools.is_empty() && !family.combines();
    let told = by_words.then(|| told(schema.as_ref().unwrap_or(&Value::Null)));
    let (mime, schema) = match schema {
        Some(schema) if !by_words => (Some("application/json"), Some(schema)),
        _ => (None, None),
    };
    let generation = Generation {
        max_output_tokens: output.map(|tokens| tokens.max(1)),
        response_mime_type: mime,
        response_json_schema: schema,
        thinking_config: family.thinking(request.effort),
    };
    let tools = tools(request, family);
    let body = Body {
        system_instruction: system(&request.system, told.as_deref()),
        tool_config: tool_config(request, &tools),
        tools,
        generation_config: (generation != Generation::default()).then_some(generation),
        contents,
    };
    serde_json::to_vec(&body).ok()
}

fn system<'a>(parts: &'a [String], told: Option<&'a str>) -> Option<System<'a>> {
    let parts: Vec<Text<'a>> = parts
        .iter()
        .map(String::as_str)
        .filter(|part| visible(part))
        .chain(told)
        .map(|text| Text { text })
        .collect();
    (!parts.is_empty()).then_some(System { parts })
}

/// The wanted form of the answer, for models that cannot be held to it.
fn told(schema: &Value) -> String {
    format!(
        "When no more tools are needed, answer with one JSON value that follows this JSON Schema, without any \
         other text and without a code fence:\n{schema}"
    )
}

/// The functions, and the vendor's own tools where the model takes both; before Gemini 3 it does not.
fn tools(request: &Request, family: Family) -> Vec<Tool<'_>> {
    let mut tools = Vec::new();
    if !request.tools.is_empty() {
        let declarations = request
            .tools
            .iter()
            .map(|tool| Declaration {
                name: &tool.name,
                description: &tool.description,
                parameters_json_schema: schema::parameters(&tool.input_schema),
            })
            .collect();
        tools.push(Tool::FunctionDeclarations(declarations));
    }
    if request.tools.is_empty() || family.combines() {
        let mut hosted = request.hosted_tools.clone();
        hosted.sort_unstable();
        hosted.dedup();
        tools.extend(hosted.into_iter().map(|tool| match tool {
            HostedTool::WebSearch => Tool::GoogleSearch(Empty {}),
            HostedTool::CodeExecution => Tool::CodeExecution(Empty {}),
        }));
    }
    tools
}

fn tool_config<'a>(request: &'a Request, tools: &[Tool<'_>]) -> Option<ToolConfig<'a>> {
    let functions = !request.tools.is_empty();
    let calling = functions.then(|| match &request.tool_choice {
        ToolChoice::Auto => ("AUTO", None),
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        // A name that was not declared would be refused.
        ToolChoice::Tool(name) => match request.tools.iter().find(|tool| tool.name == *name) {
            Some(tool) => ("ANY", Some([tool.name.as_str()])),
            None => ("ANY", None),
        },
    });
    functions.then(|| ToolConfig {
        function_calling_config: calling.map(|(mode, names)| Calling {
            mode,
            allowed_function_names: names,
        }),
        include_server_side_tool_invocations: tools.len() > 1,
    })
}
