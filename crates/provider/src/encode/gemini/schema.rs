//! JSON Schemas as Gemini takes them: only the keywords it documents, references written out.
//!
//! The vendor has two fields for a function's parameters. `parameters` is a small dialect of OpenAPI that
//! refuses a request for any keyword it does not know; `parametersJsonSchema` reads JSON Schema itself. The
//! latter is used here, and still reduced: references beside other keywords, references into other documents and
//! keywords outside the documented ones are what requests were refused for.

use serde_json::{Map, Value, json};

/// The keywords that are kept as they are.
const PLAIN: [&str; 13] = [
    "type",
    "format",
    "title",
    "description",
    "default",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "required",
];
/// Deeper schemas end as "anything".
const DEPTH: usize = 32;
/// Written-out references must not make a schema explode.
const NODES: usize = 5_000;

/// The parameters of a function; `None` for a function that takes none.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let reduced = reduced(schema);
    let Value::Object(mut fields) = reduced else {
        return None;
    };
    fields.insert("type".to_owned(), json!("object"));
    let empty = |key: &str| match fields.get(key) {
        None => true,
        Some(Value::Object(inner)) => inner.is_empty(),
        Some(_) => false,
    };
    let open = fields
        .get("additionalProperties")
        .is_some_and(|more| *more != Value::Bool(false));
    if empty("properties") && !fields.contains_key("anyOf") && !open {
        // A type without any field is refused; a function without parameters is not.
        return None;
    }
    Some(sorted(fields))
}

/// `schema` with its references written out and without unknown keywords.
pub(super) fn reduced(schema: &Value) -> Value {
    let mut walk = Walk {
        root: schema,
        nodes: 0,
        open: Vec::new(),
    };
    walk.schema(schema, 0)
}

struct Walk<'a> {
    root: &'a Value,
    nodes: usize,
    /// The references being written out: a type that contains itself ends there as "anything".
    open: Vec<String>,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Value {
        self.nodes += 1;
        let Value::Object(fields) = schema else {
            // `true` and `false` are schemas, too.
            return json!({});
        };
        if depth >= DEPTH || self.nodes > NODES {
            return json!({});
        }
        if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
            return self.reference(target, fields, depth);
        }
        let mut out = Map::new();
        for (key, value) in fields {
            self.keyword(key, value, depth, &mut out);
        }
        if let Some(all) = fields.get("allOf").and_then(Value::as_array) {
            for part in all {
                if let Value::Object(part) = self.schema(part, depth + 1) {
                    merge(&mut out, part);
                }
            }
        }
        tidy(&mut out);
        sorted(out)
    }

    fn keyword(&mut self, key: &str, value: &Value, depth: usize, out: &mut Map<String, Value>) {
        let mut put = |key: &str, value: Value| {
            out.insert(key.to_owned(), value);
        };
        match (key, value) {
            ("type" | "required", Value::Array(list)) if list.is_empty() => {}
            (key, value) if PLAIN.contains(&key) => put(key, value.clone()),
            ("enum", Value::Array(list)) if !list.is_empty() => put(key, value.clone()),
            ("const", value) => put("enum", json!([value])),
            // Whole numbers only have neighbours; for others the bound itself is close enough.
            ("exclusiveMinimum", Value::Number(_)) => put("minimum", value.clone()),
            ("exclusiveMaximum", Value::Number(_)) => put("maximum", value.clone()),
            ("properties", Value::Object(properties)) => {
                let inner: Map<String, Value> = properties
                    .iter()
                    .map(|(name, schema)| (name.clone(), self.schema(schema, depth + 1)))
                    .collect();
                put(key, sorted(inner));
            }
            ("items", Value::Object(_)) => {
                let items = self.schema(value, depth + 1);
                put(key, items);
            }
            // An old way to write a tuple.
            ("items" | "prefixItems", Value::Array(list)) => {
                let items = list.iter().map(|s| self.schema(s, depth + 1)).collect();
                put("prefixItems", items);
            }
            ("additionalProperties", Value::Bool(_)) => put(key, value.clone()),
            ("additionalProperties", Value::Object(_)) => {
                let inner = self.schema(value, depth + 1);
                put(key, inner);
            }
            ("anyOf" | "oneOf", Value::Array(list)) if !list.is_empty() => {
                let any = list.iter().map(|s| self.schema(s, depth + 1)).collect();
                put("anyOf", any);
            }
            _ => {}
        }
    }

    /// What a reference means, with the description that stands beside it.
    fn reference(&mut self, target: &str, beside: &Map<String, Value>, depth: usize) -> Value {
        let root = self.root;
        let found = target
            .strip_prefix('#')
            .and_then(|pointer| root.pointer(pointer));
        let mut schema = match found {
            Some(found) if !self.open.iter().any(|open| open == target) => {
                self.open.push(target.to_owned());
                let schema = self.schema(found, depth + 1);
                self.open.pop();
                schema
            }
            _ => json!({}),
        };
        if let (Some(fields), Some(description)) =
            (schema.as_object_mut(), beside.get("description"))
        {
            fields.insert("description".to_owned(), description.clone());
        }
        schema
    }
}

/// Joins a part of `allOf` into what is known already.
fn merge(out: &mut Map<String, Value>, part: Map<String, Value>) {
    for (key, value) in part {
        match (out.get_mut(&key), value) {
            (Some(Value::Object(have)), Value::Object(more)) => have.extend(more),
            (Some(Value::Array(have)), Value::Array(more)) if key == "required" => {
                for name in more {
                    if !have.contains(&name) {
                        have.push(name);
                    }
                }
            }
            (Some(_), _) => {}
            (None, value) => {
                out.insert(key, value);
            }
        }
    }
}

/// Mends what the vendor refuses: required fields that no property describes, and lists of unknown items.
fn tidy(out: &mut Map<String, Value>) {
    let known = out.get("properties").and_then(Value::as_object).cloned();
    if let Some(required) = out.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| {
            let name = name.as_str().unwrap_or_default();
            known.as_ref().is_some_and(|known| known.contains_key(name))
        });
    }
    if out
        .get("required")
        .is_some_and(|list| list.as_array().is_none_or(Vec::is_empty))
    {
        out.remove("required");
    }
    let list = out.get("type").is_some_and(|t| t == "array");
    if list && !out.contains_key("items") && !out.contains_key("prefixItems") {
        out.insert("items".to_owned(), json!({}));
    }
}

/// The same fields in the order of their names, however the map type keeps them.
fn sorted(fields: Map<String, Value>) -> Value {
    let mut fields: Vec<(String, Value)> = fields.into_iter().collect();
    fields.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(fields.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_written_out_and_unknown_keywords_dropped() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "type": "object",
            "$defs": {"Item": {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}},
                               "required": ["n", "gone"], "additionalProperties": false}},
            "properties": {
                "one": {"$ref": "#/$defs/Item", "description": "the one"},
                "many": {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/Item"}},
                "kind": {"const": "a"}, "tuple": {"type": "array", "items": [{"type": "string"}]},
                "any": {"oneOf": [{"type": "string"}, {"type": "null"}]}, "list": {"type": "array"},
                "both": {"allOf": [{"$ref": "#/$defs/Item"}, {"properties": {"m": {"type": "string"}}}]}
            },
            "required": ["one"]
        });
        let item = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}},
                          "required": ["n"], "additionalProperties": false});
        let mut described = item.clone();
        described["description"] = json!("the one");
        let mut both = item.clone();
        both["properties"]["m"] = json!({"type": "string"});
        assert_eq!(
            parameters(&schema).unwrap(),
            json!({"type": "object", "required": ["one"], "properties": {
                "one": described, "many": {"type": "array", "items": item}, "kind": {"enum": ["a"]},
                "tuple": {"type": "array", "prefixItems": [{"type": "string"}]},
                "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "list": {"type": "array", "items": {}}, "both": both
            }})
        );
    }

    #[test]
    fn a_type_that_contains_itself_ends() {
        let schema = json!({"type": "object", "$defs": {"T": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/T"}, "right": {"$ref": "#/$defs/T"}}}}, "properties": {"t": {"$ref": "#/$defs/T"}}});
        let text = parameters(&schema).unwrap().to_string();
        assert!(!text.contains("$ref"));
        assert!(text.len() < 300, "{text}");
        // A reference to itself alone, and one that leads nowhere.
        assert_eq!(reduced(&json!({"$ref": "#"})), json!({}));
        assert_eq!(reduced(&json!({"$ref": "other.json#/x"})), json!({}));
    }

    #[test]
    fn a_function_without_parameters_has_no_schema() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {}}),
            json!(true),
            json!(7),
        ] {
            assert_eq!(parameters(&schema), None, "{schema}");
        }
    }
}
