//! What a request asks for beside the conversation: thinking, the answer's form, tools of the server.

use super::super::shape::{self, Json, json};
use super::{Body, object};
use crate::dialect::{Choice, Facts, Format, Hosted, Think};
use serde_json::{Value, json as value};
use tenure_core::request::{Effort, HostedTool, Request, ToolChoice};

/// The answer's form.
pub(super) struct Form {
    /// The field, where the server has one.
    pub field: Option<Value>,
    /// The words for the model, where the field does not say it all.
    pub words: Option<String>,
}

/// The form the answer must have, as far as the server can promise it.
pub(super) fn form(request: &Request, facts: &Facts, with_tools: bool) -> Form {
    let nothing = Form {
        field: None,
        words: None,
    };
    let Some(wanted) = &request.output_schema else {
        return nothing;
    };
    let schema = shape::canonical(&wanted.schema);
    let possible = !with_tools || facts.format_with_tools;
    if facts.format == Format::Schema && possible {
        let format = value!({
            "name": shape::legal_id(&wanted.name, 64),
            "schema": schema,
            "strict": is_strict(&schema),
        });
        return Form {
            field: Some(value!({"type": "json_schema", "json_schema": format})),
            ..nothing
        };
    }
    let words = format!(
        "Give your final answer as one JSON value that fits this JSON Schema, and nothing else:\n{schema}"
    );
    Form {
        field: (facts.format == Format::Object && possible)
            .then(|| object("type", "json_object".into())),
        words: Some(words),
    }
}

/// What is said about `tool_choice`.
#[derive(Debug, PartialEq)]
pub(super) enum Chosen {
    /// This.
    Say(Value),
    /// Nothing: there are no tools.
    Nothing,
    /// Nothing, and the tools are left out, too.
    Hide,
}

/// The choice of tools in the server's words. What it cannot be told is left to the model.
pub(super) fn choice(request: &Request, facts: &Facts, tools: usize) -> Chosen {
    if tools == 0 {
        return Chosen::Nothing;
    }
    let word = |word: &str| Chosen::Say(Value::String(word.to_owned()));
    let thinks = request.effort != Some(Effort::Off);
    let free = facts.free_choice_when_thinking && thinks;
    let forced = match facts.choice {
        _ if free => "auto",
        Choice::Named | Choice::Words => "required",
        Choice::NamedAny => "any",
        Choice::NamedOrNone | Choice::Auto => "auto",
    };
    match &request.tool_choice {
        ToolChoice::Auto => word("auto"),
        ToolChoice::None if facts.choice == Choice::Auto => Chosen::Hide,
        ToolChoice::None => word("none"),
        ToolChoice::Required => word(forced),
        ToolChoice::Tool(name) => {
            let by_name = matches!(
                facts.choice,
                Choice::Named | Choice::NamedAny | Choice::NamedOrNone
            );
            let defined = request.tools.iter().take(tools).any(|t| t.name == *name);
            if by_name && defined && !free {
                Chosen::Say(value!({"type": "function", "function": {"name": name}}))
            } else {
                word(forced)
            }
        }
    }
}

/// How hard the model should think, when the request says so.
pub(super) fn effort(request: &Request, facts: &Facts, body: &mut Body) {
    let Some(effort) = request.effort else {
        return;
    };
    let on = effort != Effort::Off;
    let pick = |words: [Option<&'static str>; 4]| match effort {
        Effort::Off => words[0],
        Effort::Low => words[1],
        Effort::Medium => words[2],
        Effort::High => words[3],
    };
    let mut say = |words| {
        if let Some(word) = pick(words) {
            body.put("reasoning_effort", word);
        }
    };
    let kind = if on { "enabled" } else { "disabled" };
    let model = request.model.model.as_str();
    let think = match facts.think {
        Think::Of(of) => of(model),
        think => think,
    };
    match think {
        Think::Effort(words) => say(words),
        Think::EffortOf(words) => say(words(model)),
        Think::EffortOrDisabled(words) if on => say(words),
        Think::EffortOrDisabled(_) => body.put("reasoning", &object("enabled", false.into())),
        Think::Reasoning(words) => {
            if let Some(word) = pick(words) {
                body.put("reasoning", &object("effort", word.into()));
            }
        }
        Think::Switch(words) => {
            say(words);
            body.put("thinking", &object("type", kind.into()));
        }
        Think::Preserved if on => {
            body.put(
                "thinking",
                &value!({"type": "enabled", "clear_thinking": false}),
            );
        }
        Think::Preserved => body.put("thinking", &object("type", kind.into())),
        Think::Enable => body.put("enable_thinking", &on),
        Think::Template => {
            if on {
                say([None, Some("low"), Some("medium"), Some("high")]);
            }
            let kwargs = value!({"enable_thinking": on, "thinking": on});
            body.put("chat_template_kwargs", &kwargs);
        }
        // A way by model names none.
        Think::Of(_) | Think::Unasked => {}
    }
}

fn wants(request: &Request, tool: HostedTool) -> bool {
    request.hosted_tools.contains(&tool)
}

/// Fields that switch the server's own tools on.
pub(super) fn hosted(request: &Request, facts: &Facts, body: &mut Body) {
    let model = request.model.model.as_str();
    let search = wants(request, HostedTool::WebSearch);
    match facts.hosted {
        Hosted::SearchOptions if search && model.contains("-search") => {
            body.put("web_search_options", &value!({}));
        }
        Hosted::EnableSearch if search => body.put("enable_search", &true),
        Hosted::Compound if model.contains("compound") && !request.hosted_tools.is_empty() => {
            let mut enabled = Vec::new();
            if search {
                enabled.extend(["web_search", "visit_website"]);
            }
            if wants(request, HostedTool::CodeExecution) {
                enabled.push("code_interpreter");
            }
            body.put(
                "compound_custom",
                &value!({"tools": {"enabled_tools": enabled}}),
            );
        }
        _ => {}
    }
}

/// The server's own tools that stand among the others.
pub(super) fn hosted_tools(request: &Request, facts: &Facts) -> Vec<Json> {
    let mut tools = Vec::new();
    let search = wants(request, HostedTool::WebSearch);
    match facts.hosted {
        Hosted::ServerTool if search => tools.push(value!({"type": "openrouter:web_search"})),
        Hosted::WebSearchTool if search => tools.push(value!({
            "type": "web_search",
            "web_search": {"enable": true, "search_engine": "search-prime", "search_result": true},
        })),
        Hosted::Compound if request.model.model.contains("gpt-oss") => {
            if search {
                tools.push(value!({"type": "browser_search"}));
            }
            if wants(request, HostedTool::CodeExecution) {
                tools.push(value!({"type": "code_interpreter"}));
            }
        }
        _ => {}
    }
    tools.iter().map(json).collect()
}

/// May the schema be asked for strictly? Every object closed, and each of its properties required.
fn is_strict(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let closed = match fields.get("properties") {
                Some(Value::Object(properties)) => {
                    let required = fields.get("required").and_then(Value::as_array);
                    fields.get("additionalProperties") == Some(&Value::Bool(false))
                        && properties
                            .keys()
                            .all(|key| required.is_some_and(|list| list.iter().any(|r| r == key)))
                }
                _ => fields.get("type").is_none_or(|kind| kind != "object"),
            };
            closed && fields.values().all(is_strict)
        }
        Value::Array(list) => list.iter().all(is_strict),
        _ => true,
    }
}
