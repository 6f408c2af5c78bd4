//! The form an answer must have: a JSON Schema, understood whole before it is asked for.

use boon::{Compiler, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;
use std::error::Error;
use std::fmt::Display;
use tenure_core::request::OutputSchema;

/// The schema's own address; nothing is there.
const HERE: &str = "tenure:///answer.json";
/// At most so many faults are looked for.
const FAULTS: usize = 64;

/// A schema that can be checked.
pub struct Form {
    asked: OutputSchema,
    schemas: Schemas,
    index: SchemaIndex,
}

/// Nothing is fetched, from the network or from files: a schema stands for itself.
struct Nothing;

impl UrlLoader for Nothing {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        Err(format!(
            "it refers to {url}, and nothing is fetched: put what it needs into its own `$defs`"
        )
        .into())
    }
}

impl Form {
    /// Reads the schema: of the draft that its `$schema` names, else of 2020-12.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(asked: OutputSchema) -> Result<Self, String> {
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(Nothing));
        compiler
            .add_resource(HERE, asked.schema.clone())
            .map_err(|e| told(&e))?;
        let index = compiler.compile(HERE, &mut schemas).map_err(|e| told(&e))?;
        Ok(Self {
            asked,
            schemas,
            index,
        })
    }

    /// What the provider is told.
    pub fn asked(&self) -> &OutputSchema {
        &self.asked
    }

    /// Everything that does not fit, with its place; empty when the value fits.
    pub fn problems(&self, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        if let Err(error) = self.schemas.validate(value, self.index) {
            leaves(&error, &mut found);
        }
        found
    }
}

/// The faults at the bottom of the tree: those above only say that there are some.
fn leaves(error: &ValidationError<'_, '_>, found: &mut Vec<String>) {
    if found.len() >= FAULTS {
        return;
    }
    if error.causes.is_empty() {
        let place = error.instance_location.to_string();
        let what = &error.kind;
        found.push(match place.as_str() {
            "" => what.to_string(),
            place => format!("{place}: {what}"),
        });
    }
    for cause in &error.causes {
        leaves(cause, found);
    }
}

/// On one line, without the address that nobody gave.
fn told(error: &impl Display) -> String {
    let text = format!("{error:#}")
        .replace(&format!("{HERE}#"), "the schema #")
        .replace(HERE, "the schema");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(schema: Value) -> Result<Form, String> {
        Form::new(OutputSchema {
            name: "a".into(),
            schema,
        })
    }

    #[test]
    fn the_whole_of_a_schema_counts() {
        let form = form(json!({
            "type": "object",
            "properties": {
                "n": {"type": ["integer", "null"]},
                "kind": {"$ref": "#/$defs/kind"},
                "list": {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, {"const": 0}]}},
            },
            "required": ["n"],
            "$defs": {"kind": {"type": "string", "pattern": "^[a-z]+$"}},
        }))
        .map_err(drop)
        .expect("a good schema");
        let judge = |value: Value| form.problems(&value).join("; ");
        assert_eq!(judge(json!({"n": 1})), "");
        assert_eq!(judge(json!({"n": null, "kind": "a", "list": ["x", 0]})), "");
        assert!(judge(json!({})).contains("'n'"));
        assert!(judge(json!({"n": 1, "kind": "A"})).starts_with("/kind: "));
        assert!(judge(json!({"n": 1, "list": []})).starts_with("/list: "));
        assert!(judge(json!({"n": 1, "list": [1]})).starts_with("/list/0: "));
    }

    #[test]
    fn what_is_no_schema_is_refused_and_nothing_is_fetched() {
        for (bad, words) in [
            (json!({"type": "objekt"}), "/type"),
            (
                json!({"properties": {"a": {"$ref": "#/nowhere"}}}),
                "nowhere",
            ),
            (
                json!({"$ref": "file:///etc/hostname"}),
                "nothing is fetched",
            ),
            (
                json!({"$ref": "https://example.com/x.json"}),
                "nothing is fetched",
            ),
            (json!({"pattern": "("}), "pattern"),
        ] {
            let error = form(bad.clone()).err().expect("refused");
            assert!(
                error.contains(words) && !error.contains('\n') && !error.contains(HERE),
                "{bad}: {error}"
            );
        }
    }
}
