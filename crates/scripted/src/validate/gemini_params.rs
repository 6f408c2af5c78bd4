//! The rules of Gemini requests beside the conversation: system instruction, tools, schemas, generation.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Report;
use super::gemini::{check_name, get, known_fields, list, snake, text};
use super::shape::{is_blank, kind};

const FIELDS: [&str; 11] = [
    "model",
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
];

const TOOLS: [&str; 11] = [
    "functionDeclarations",
    "googleSearch",
    "googleSearchRetrieval",
    "codeExecution",
    "urlContext",
    "fileSearch",
    "computerUse",
    "googleMaps",
    "mcpServers",
    "retrieval",
    "enterpriseWebSearch",
];

const GENERATION: [&str; 24] = [
    "stopSequences",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "_responseJsonSchema",
    "responseModalities",
    "candidateCount",
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "seed",
    "presencePenalty",
    "frequencyPenalty",
    "responseLogprobs",
    "logprobs",
    "enableEnhancedCivicAnswers",
    "speechConfig",
    "thinkingConfig",
    "imageConfig",
    "mediaResolution",
    "audioTimestamp",
    "routingConfig",
    "modelConfig",
];

/// What the small dialect of `parameters` knows.
const DIALECT: [&str; 22] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "items",
    "minimum",
    "maximum",
];

/// What JSON Schema is documented to be read for, and what is known to be passed over.
const JSON_SCHEMA: [&str; 28] = [
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
    "default",
    "nullable",
    "minLength",
    "maxLength",
    "pattern",
    "minProperties",
    "maxProperties",
];

pub(super) fn check(body: &Value, report: &mut Report) {
    known_fields(report, body, &FIELDS, "gemini.unknown_field", "");
    check_system(body, report);
    let functions = check_tools(body, report);
    check_tool_config(body, &functions, report);
    if let Some(generation) = get(body, "generationConfig") {
        check_generation(generation, report);
    }
    if let Some(safety) = get(body, "safetySettings") {
        let shaped = safety.as_array().is_some_and(|list| {
            list.iter()
                .all(|s| !text(s, "category").is_empty() && !text(s, "threshold").is_empty())
        });
        report.check(shaped, "gemini.safety", "safetySettings", || {
            "each safety setting needs a category and a threshold".into()
        });
    }
}

fn check_system(body: &Value, report: &mut Report) {
    let Some(system) = get(body, "systemInstruction") else {
        return;
    };
    let parts = list(system, "parts");
    let texts = parts.iter().all(|part| {
        get(part, "text")
            .and_then(Value::as_str)
            .is_some_and(|t| !is_blank(t))
    });
    report.check(
        system.is_object() && !parts.is_empty() && texts,
        "gemini.system",
        "systemInstruction",
        || "systemInstruction must be a content whose parts are texts, none empty".into(),
    );
}

/// Checks the tools; gives the names of the functions.
fn check_tools<'a>(body: &'a Value, report: &mut Report) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut hosted = false;
    let Some(tools) = get(body, "tools") else {
        return names;
    };
    let Some(tools) = tools.as_array() else {
        report.add(
            "gemini.tools",
            "tools",
            format!("tools must be a list, got {}", kind(tools)),
        );
        return names;
    };
    for (index, tool) in tools.iter().enumerate() {
        let at = format!("tools[{index}]");
        known_fields(report, tool, &TOOLS, "gemini.tools", &at);
        let given = TOOLS.iter().filter(|key| get(tool, key).is_some()).count();
        report.check(given > 0, "gemini.tools", &at, || {
            "tools: at least one kind of tool must be specified in each entry".into()
        });
        hosted |= TOOLS[1..].iter().any(|key| get(tool, key).is_some());
        for (place, declaration) in list(tool, "functionDeclarations").iter().enumerate() {
            let at = format!("{at}.functionDeclarations[{place}]");
            check_declaration(declaration, &at, &mut names, report);
        }
    }
    let told = get(body, "toolConfig")
        .and_then(|config| get(config, "includeServerSideToolInvocations"))
        == Some(&Value::Bool(true));
    report.check(
        !hosted || names.is_empty() || told,
        "gemini.tool_mix",
        "tools",
        || {
            "Built-in tools and Function Calling cannot be combined in the same request, unless \
             toolConfig.includeServerSideToolInvocations is set."
                .into()
        },
    );
    names
}

fn check_declaration<'a>(
    declaration: &'a Value,
    at: &str,
    names: &mut BTreeSet<&'a str>,
    report: &mut Report,
) {
    let known = [
        "name",
        "description",
        "behavior",
        "parameters",
        "parametersJsonSchema",
        "response",
        "responseJsonSchema",
    ];
    known_fields(report, declaration, &known, "gemini.declaration", at);
    report.check(
        get(declaration, "description").is_none_or(Value::is_string),
        "gemini.declaration",
        at,
        || "description must be a string".into(),
    );
    let name = text(declaration, "name");
    check_name(name, at, report);
    report.check(names.insert(name), "gemini.duplicate_function", at, || {
        format!("Duplicate function declaration found: {name}")
    });
    let dialect = get(declaration, "parameters");
    let json_schema = get(declaration, "parametersJsonSchema");
    report.check(
        dialect.is_none() || json_schema.is_none(),
        "gemini.schema_twice",
        at,
        || "parameters and parametersJsonSchema are mutually exclusive".into(),
    );
    for (schema, known) in [(dialect, &DIALECT[..]), (json_schema, &JSON_SCHEMA[..])] {
        let Some(schema) = schema else { continue };
        let object = text(schema, "type").eq_ignore_ascii_case("object");
        report.check(object, "gemini.schema", at, || {
            "the parameters of a function must be a schema of the type object".into()
        });
        check_schema(schema, known, at, report);
    }
}

/// One schema and those within it.
fn check_schema(schema: &Value, known: &[&str], at: &str, report: &mut Report) {
    let Some(fields) = schema.as_object() else {
        report.check(schema.is_boolean(), "gemini.schema", at, || {
            format!("a schema must be an object, got {}", kind(schema))
        });
        return;
    };
    for key in fields.keys() {
        let ok = known.iter().any(|k| key == k || *key == snake(k));
        report.check(ok, "gemini.schema_keyword", at, || {
            format!("Invalid JSON payload received. Unknown name {key:?} in a schema: Cannot find field.")
        });
    }
    let beside = ["$ref", "description", "default"];
    report.check(
        !fields.contains_key("$ref") || fields.keys().all(|key| beside.contains(&key.as_str())),
        "gemini.schema",
        at,
        || "If a schema node has $ref set, then only description and default can be set alongside it".into(),
    );
    let properties = get(schema, "properties");
    report.check(
        properties.is_none_or(Value::is_object),
        "gemini.schema",
        at,
        || "properties must be an object".into(),
    );
    for name in list(schema, "required") {
        let described = name
            .as_str()
            .is_some_and(|name| properties.is_some_and(|p| p.get(name).is_some()));
        report.check(described, "gemini.schema", at, || {
            format!("required: property {name} is not defined")
        });
    }
    let is_list = text(schema, "type").eq_ignore_ascii_case("array");
    let has_items = get(schema, "items").is_some() || get(schema, "prefixItems").is_some();
    report.check(!is_list || has_items, "gemini.schema", at, || {
        "items: missing field".into()
    });
    for (name, inner) in properties.and_then(Value::as_object).into_iter().flatten() {
        check_schema(inner, known, &format!("{at}.properties[{name}]"), report);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = get(schema, key) {
            check_schema(inner, known, &format!("{at}.{key}"), report);
        }
    }
    for key in ["anyOf", "oneOf", "prefixItems"] {
        for inner in list(schema, key) {
            check_schema(inner, known, &format!("{at}.{key}"), report);
        }
    }
}

fn check_tool_config(body: &Value, functions: &BTreeSet<&str>, report: &mut Report) {
    let Some(config) = get(body, "toolConfig") else {
        return;
    };
    let known = [
        "functionCallingConfig",
        "retrievalConfig",
        "includeServerSideToolInvocations",
    ];
    known_fields(report, config, &known, "gemini.tool_config", "toolConfig");
    let Some(calling) = get(config, "functionCallingConfig") else {
        return;
    };
    let at = "toolConfig.functionCallingConfig";
    let known = [
        "mode",
        "allowedFunctionNames",
        "streamFunctionCallArguments",
    ];
    known_fields(report, calling, &known, "gemini.tool_config", at);
    report.check(
        !functions.is_empty(),
        "gemini.tool_config_without_functions",
        at,
        || "Function calling config is set without function_declarations.".into(),
    );
    let mode = text(calling, "mode");
    let modes = ["", "MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"];
    report.check(modes.contains(&mode), "gemini.tool_config", at, || {
        format!("Invalid value at 'mode': {mode:?}")
    });
    let allowed = list(calling, "allowedFunctionNames");
    let declared = allowed
        .iter()
        .all(|name| name.as_str().is_some_and(|name| functions.contains(name)));
    let fits = allowed.is_empty() || ["ANY", "VALIDATED"].contains(&mode);
    report.check(declared && fits, "gemini.allowed_names", at, || {
        "allowedFunctionNames must be names of declared functions, and only with the mode ANY or VALIDATED".into()
    });
}

fn check_generation(generation: &Value, report: &mut Report) {
    let at = "generationConfig";
    if !report.check(generation.is_object(), "gemini.generation", at, || {
        format!(
            "generationConfig must be an object, got {}",
            kind(generation)
        )
    }) {
        return;
    }
    known_fields(report, generation, &GENERATION, "gemini.generation", at);
    let number = |key: &str| get(generation, key);
    if let Some(tokens) = number("maxOutputTokens") {
        let ok = tokens.as_u64().is_some_and(|n| n >= 1);
        report.check(ok, "gemini.max_output_tokens", at, || {
            format!("max_output_tokens must be a positive whole number, got {tokens}")
        });
    }
    let mut within = |key: &str, rule: &'static str, max: f64| {
        if let Some(value) = get(generation, key) {
            let ok = value.as_f64().is_some_and(|n| (0.0..=max).contains(&n));
            report.check(ok, rule, at, || {
                format!("{key} must be a number from 0 to {max}")
            });
        }
    };
    within("temperature", "gemini.temperature", 2.0);
    within("topP", "gemini.top_p", 1.0);
    if let Some(stops) = number("stopSequences") {
        let ok = stops.as_array().is_some_and(|list| {
            list.len() <= 5
                && list
                    .iter()
                    .all(|s| s.as_str().is_some_and(|s| !s.is_empty()))
        });
        report.check(ok, "gemini.stop_sequences", at, || {
            "stopSequences are at most five strings, none empty".into()
        });
    }
    check_response_form(generation, at, report);
    if let Some(thinking) = get(generation, "thinkingConfig") {
        check_thinking(thinking, report);
    }
}

fn check_response_form(generation: &Value, at: &str, report: &mut Report) {
    let mime = text(generation, "responseMimeType");
    let mimes = ["", "text/plain", "application/json", "text/x.enum"];
    report.check(mimes.contains(&mime), "gemini.response_form", at, || {
        format!("responseMimeType {mime:?} is not allowed")
    });
    let dialect = get(generation, "responseSchema");
    let json_schema = get(generation, "responseJsonSchema");
    report.check(
        dialect.is_none() || json_schema.is_none(),
        "gemini.response_form",
        at,
        || "responseSchema and responseJsonSchema are mutually exclusive".into(),
    );
    let shaped = mime == "application/json" || (mime == "text/x.enum" && json_schema.is_none());
    report.check(
        (dialect.is_none() && json_schema.is_none()) || shaped,
        "gemini.response_form",
        at,
        || "a response schema needs the responseMimeType application/json".into(),
    );
    for (schema, known) in [(dialect, &DIALECT[..]), (json_schema, &JSON_SCHEMA[..])] {
        if let Some(schema) = schema {
            check_schema(schema, known, &format!("{at}.responseSchema"), report);
        }
    }
}

fn check_thinking(thinking: &Value, report: &mut Report) {
    let at = "generationConfig.thinkingConfig";
    let known = ["includeThoughts", "thinkingBudget", "thinkingLevel"];
    known_fields(report, thinking, &known, "gemini.thinking", at);
    let budget = get(thinking, "thinkingBudget");
    let level = get(thinking, "thinkingLevel");
    let whole = budget.is_none_or(|b| b.as_i64().is_some_and(|n| n >= -1));
    let levels = [
        "minimal",
        "low",
        "medium",
        "high",
        "thinking_level_unspecified",
    ];
    let named = level.is_none_or(|l| {
        l.as_str()
            .is_some_and(|l| levels.contains(&l.to_ascii_lowercase().as_str()))
    });
    report.check(whole && named, "gemini.thinking", at, || {
        "thinkingBudget is a whole number of at least -1, thinkingLevel one of minimal, low, medium, high".into()
    });
    report.check(
        budget.is_none() || level.is_none(),
        "gemini.thinking",
        at,
        || "You can only set only one of thinking budget and thinking level.".into(),
    );
    let shown = get(thinking, "includeThoughts");
    report.check(
        shown.is_none_or(Value::is_boolean),
        "gemini.thinking",
        at,
        || "includeThoughts must be a boolean".into(),
    );
    let off = budget.and_then(Value::as_i64) == Some(0);
    report.check(
        !(off && shown == Some(&Value::Bool(true))),
        "gemini.thinking",
        at,
        || "include_thoughts is only enabled when thinking is enabled.".into(),
    );
}
