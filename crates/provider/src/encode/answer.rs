//! The form of an answer, in the subset of JSON Schema that each vendor's grammar takes.

use super::shape::canonical;
use serde_json::{Map, Value};
use tenure_core::request::OutputSchema;

/// Keywords no grammar holds to. Left out, the answer is still checked against the whole schema here.
const UNHELD: &[&str] = &[
    "$schema",
    "$id",
    "$comment",
    "default",
    "examples",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "prefixItems",
    "minProperties",
    "maxProperties",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
    "not",
    "if",
    "then",
    "else",
];

/// String formats that grammars know.
const FORMATS: &[&str] = &[
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "uri",
    "ipv4",
    "ipv6",
    "uuid",
];

/// The schema with closed objects and without what grammars refuse. What fits it fits the original, apart
/// from the keywords that are left out.
pub(super) fn closed(schema: &OutputSchema) -> Value {
    canonical(&close(&schema.schema))
}

fn close(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    let mut closed = Map::new();
    for (key, value) in fields {
        if UNHELD.contains(&key.as_str()) {
            continue;
        }
        let value = match key.as_str() {
            "properties" | "$defs" | "definitions" => each(value),
            "items" => close(value),
            "anyOf" | "oneOf" | "allOf" => match value {
                Value::Array(list) => list.iter().map(close).collect(),
                other => other.clone(),
            },
            "format" if !value.as_str().is_some_and(|f| FORMATS.contains(&f)) => continue,
            _ => value.clone(),
        };
        // Of alternatives that exclude each other, grammars know the plain kind.
        let key = if key == "oneOf" { "anyOf" } else { key };
        closed.insert(key.to_owned(), value);
    }
    let object = closed.contains_key("properties")
        || match closed.get("type") {
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            _ => false,
        };
    if object {
        closed.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    Value::Object(closed)
}

fn each(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), close(value)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Can a grammar hold to every word of the schema as it is? Then every object is closed and requires all its
/// properties.
pub(super) fn is_strict(schema: &Value) -> bool {
    let Value::Object(fields) = schema else {
        return false;
    };
    let object = fields.get("type").is_some_and(|kind| kind == "object");
    if object {
        let required: Vec<&str> = fields
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let properties = fields.get("properties").and_then(Value::as_object);
        let all = properties.is_none_or(|p| p.keys().all(|key| required.contains(&key.as_str())));
        if fields.get("additionalProperties") != Some(&Value::Bool(false)) || !all {
            return false;
        }
    }
    fields.iter().all(|(key, value)| match key.as_str() {
        "properties" | "$defs" => value
            .as_object()
            .is_some_and(|inner| inner.values().all(is_strict)),
        "items" => is_strict(value),
        "anyOf" => value
            .as_array()
            .is_some_and(|list| list.iter().all(is_strict)),
        "oneOf" | "allOf" => false,
        other => !UNHELD.contains(&other),
    })
}

/// The form in words, for models that hold to no schema.
pub(super) fn in_words(schema: &OutputSchema) -> String {
    format!(
        "Your final answer must be JSON alone, without any other text or code fence, that fits this JSON \
         Schema:\n{}",
        canonical(&schema.schema)
    )
}

/// The schema's name, as every vendor takes it.
pub(super) fn name(schema: &OutputSchema) -> String {
    let clean: String = schema
        .name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == '-')
        .take(64)
        .collect();
    if clean.is_empty() {
        "answer".to_owned()
    } else {
        clean
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn closing_keeps_the_shape_and_drops_what_no_grammar_holds() {
        let schema = OutputSchema {
            name: "a".into(),
            schema: json!({"$schema": "x", "type": "object", "properties": {
                "n": {"type": "integer", "minimum": 1},
                "when": {"type": "string", "format": "date"},
                "re": {"type": "string", "format": "regex", "pattern": "^a"},
                "list": {"type": "array", "maxItems": 3, "items": {"type": "object", "properties": {}}},
                "one": {"oneOf": [{"type": "null"}, {"type": "object"}]}},
                "additionalProperties": true}),
        };
        assert_eq!(
            closed(&schema),
            json!({"type": "object", "properties": {
                "n": {"type": "integer"},
                "when": {"type": "string", "format": "date"},
                "re": {"type": "string"},
                "list": {"type": "array", "items":
                    {"type": "object", "properties": {}, "additionalProperties": false}},
                "one": {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": false}]}},
                "additionalProperties": false})
        );
    }

    #[test]
    fn strict_is_claimed_only_where_a_grammar_can_hold_it() {
        let good = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
            "additionalProperties": false});
        assert!(is_strict(&good));
        let mut open = good.clone();
        open["additionalProperties"] = json!(true);
        assert!(!is_strict(&open));
        let mut optional = good.clone();
        optional["required"] = json!([]);
        assert!(!is_strict(&optional));
        let mut bounded = good;
        bounded["properties"]["a"]["maxLength"] = json!(3);
        assert!(!is_strict(&bounded));
    }
}
