//! Checks an input against the plain part of a JSON schema, with messages a model can act on.

use serde_json::{Map, Value};

/// Everything that does not fit, one sentence each; empty when the input fits.
///
/// Understood are `type`, `required`, `properties`, `items`, `enum`, `minimum`, `maximum`, `minLength` and
/// `additionalProperties: false`. What is not understood is not checked: the tool itself still reads its input
/// strictly.
#[must_use]
pub fn problems(schema: &Value, input: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, input, "", &mut found);
    found
}

fn check(schema: &Value, input: &Value, at: &str, found: &mut Vec<String>) {
    if found.len() >= 10 {
        return;
    }
    let named = |at: &str| {
        if at.is_empty() {
            "the input".to_owned()
        } else {
            format!("parameter `{at}`")
        }
    };
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(t)) => vec![t],
        Some(Value::Array(ts)) => ts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|t| has_type(input, t)) {
        found.push(format!(
            "{} must be of type {}, not {}",
            named(at),
            types.join(" or "),
            type_name(input)
        ));
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(input)
    {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        found.push(format!(
            "{} must be one of {}",
            named(at),
            allowed.join(", ")
        ));
    }
    if let Some(n) = input.as_f64() {
        if let Some(min) = schema
            .get("minimum")
            .and_then(Value::as_f64)
            .filter(|min| n < *min)
        {
            found.push(format!("{} must be at least {min}", named(at)));
        }
        if let Some(max) = schema
            .get("maximum")
            .and_then(Value::as_f64)
            .filter(|max| n > *max)
        {
            found.push(format!("{} must be at most {max}", named(at)));
        }
    }
    if let (Some(min), Some(s)) = (
        schema.get("minLength").and_then(Value::as_u64),
        input.as_str(),
    ) && (s.chars().count() as u64) < min
    {
        found.push(format!("{} must not be empty", named(at)));
    }
    if let Some(object) = input.as_object() {
        check_object(schema, object, at, found);
    }
    if let (Some(items), Some(array)) = (schema.get("items"), input.as_array()) {
        for (i, item) in array.iter().enumerate() {
            check(items, item, &format!("{at}[{i}]"), found);
        }
    }
}

fn check_object(schema: &Value, object: &Map<String, Value>, at: &str, found: &mut Vec<String>) {
    let join = |name: &str| {
        let name = crate::output::cut(name, 100);
        if at.is_empty() {
            name.to_owned()
        } else {
            format!("{at}.{name}")
        }
    };
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if object.get(name).is_none_or(Value::is_null) {
            found.push(format!("required parameter `{}` is missing", join(name)));
        }
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    for (name, value) in object {
        match properties.and_then(|p| p.get(name)) {
            // An optional parameter sent as null was not meant to be sent.
            Some(_) if value.is_null() => {}
            Some(property) => check(property, value, &join(name), found),
            None if closed => {
                let known: Vec<&str> = properties
                    .into_iter()
                    .flatten()
                    .map(|(k, _)| k.as_str())
                    .collect();
                found.push(format!(
                    "unknown parameter `{}` (known: {})",
                    join(name),
                    known.join(", ")
                ));
            }
            None => {}
        }
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => type_name(value) == other,
    }
}

/// The JSON schema name of a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
