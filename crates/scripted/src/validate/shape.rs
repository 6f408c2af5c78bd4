//! Small shape tests the validators share: names, ids, blank text, JSON inside strings, numbers in a range.

use serde_json::Value;

use super::Report;

/// True for text that has no visible character.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// True for 1 to `max` characters of letters, digits, `_` and `-`.
pub(super) fn is_name(name: &str, max: usize) -> bool {
    !name.is_empty()
        && name.len() <= max
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// True when the string holds one JSON object and nothing else.
pub(super) fn holds_object(text: &str) -> bool {
    matches!(serde_json::from_str::<Value>(text), Ok(Value::Object(_)))
}

/// A name for a JSON value's type, for messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The field as a present, non-null value.
pub(super) fn given<'a>(body: &'a Value, key: &str) -> Option<&'a Value> {
    body.get(key).filter(|v| !v.is_null())
}

/// The field as text, or an empty string.
pub(super) fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

/// Refuses a field that is given and not a number within `min..=max`.
pub(super) fn number_in(
    report: &mut Report,
    body: &Value,
    key: &'static str,
    rule: &'static str,
    (min, max): (f64, f64),
) {
    if let Some(value) = given(body, key) {
        let ok = value.as_f64().is_some_and(|n| (min..=max).contains(&n));
        report.check(ok, rule, key, || {
            format!("{key} must be a number from {min} to {max}")
        });
    }
}

/// Refuses a field that is given and not a whole number of at least `min`.
pub(super) fn whole_number(
    report: &mut Report,
    body: &Value,
    key: &'static str,
    rule: &'static str,
    min: u64,
) {
    if let Some(value) = given(body, key) {
        let ok = value.as_u64().is_some_and(|n| n >= min);
        report.check(ok, rule, key, || {
            format!("{key} must be a whole number of at least {min}")
        });
    }
}

/// Refuses a field that is given and not a boolean.
pub(super) fn boolean(report: &mut Report, body: &Value, key: &'static str, rule: &'static str) {
    if let Some(value) = given(body, key) {
        report.check(value.is_boolean(), rule, key, || {
            format!("{key} must be a boolean, got {}", kind(value))
        });
    }
}

/// Refuses a missing or empty `model`.
pub(super) fn model(report: &mut Report, body: &Value, rule: &'static str) {
    report.check(!is_blank(text_of(body, "model")), rule, "model", || {
        "model is required and must be a non-empty string".into()
    });
}

/// Refuses a JSON schema that is not an object describing an object.
pub(super) fn object_schema(report: &mut Report, schema: &Value, rule: &'static str, at: &str) {
    let described = schema.as_object().is_some_and(|s| {
        s.get("type").is_none_or(|t| t == "object")
            && s.get("properties").is_none_or(Value::is_object)
            && s.get("required")
                .is_none_or(|r| r.as_array().is_some_and(|r| r.iter().all(Value::is_string)))
    });
    report.check(described, rule, at, || {
        "a tool's schema must be a JSON schema of type \"object\", with `properties` an object and `required` a \
         list of strings"
            .into()
    });
}
