//! Arguments of a function call that come as values at paths, such as `$.items[1].name`.

use serde_json::{Map, Value};

/// A path of more steps than this is nobody's arguments.
const DEPTH: usize = 64;
/// A list may be told out of order, but not with gaps that only cost memory.
const GAP: usize = 8;

/// The arguments so far.
#[derive(Default)]
pub(super) struct Arguments {
    whole: Option<String>,
    built: Option<Value>,
    /// The path whose string goes on.
    open: Option<String>,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Arguments {
    /// Takes arguments that came as one JSON object.
    pub fn whole(&mut self, text: &str) {
        self.whole = Some(text.to_owned());
    }

    /// Takes one value at its path. What cannot be placed is left out.
    pub fn set(&mut self, partial: &Value) {
        let Some(path) = partial.get("jsonPath").and_then(Value::as_str) else {
            return;
        };
        let value = ["stringValue", "numberValue", "boolValue"]
            .iter()
            .find_map(|key| partial.get(*key).cloned());
        let value = match value {
            Some(value) => value,
            None if partial.get("nullValue").is_some() => Value::Null,
            None => return,
        };
        let goes_on = partial.get("willContinue") == Some(&Value::Bool(true));
        let append = self.open.as_deref() == Some(path);
        self.open = goes_on.then(|| path.to_owned());
        let Some(steps) = steps(path) else { return };
        let root = self.built.get_or_insert_with(|| Value::Object(Map::new()));
        let Some(place) = place(root, &steps) else {
            return;
        };
        match (place, value) {
            (Value::String(so_far), Value::String(more)) if append => so_far.push_str(&more),
            (place, value) => *place = value,
        }
    }

    /// The arguments as JSON text; empty when none came.
    pub fn into_text(self) -> String {
        match (self.whole, self.built) {
            (_, Some(built)) => built.to_string(),
            (Some(whole), None) => whole,
            (None, None) => String::new(),
        }
    }
}

/// The steps of a path behind its `$`; `None` when it is no path this reads.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() >= DEPTH {
            return None;
        }
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            steps.push(Step::Key(after[..end].to_owned()));
            rest = &after[end..];
            continue;
        }
        let inner = rest.strip_prefix('[')?;
        let quote = inner.chars().next().filter(|c| matches!(c, '\'' | '"'));
        if let Some(quote) = quote {
            let (key, after) = quoted(&inner[1..], quote)?;
            steps.push(Step::Key(key));
            rest = after.strip_prefix(']')?;
        } else {
            let (index, after) = inner.split_once(']')?;
            steps.push(Step::Index(index.parse().ok()?));
            rest = after;
        }
    }
    Some(steps)
}

/// A key up to its closing quote, and what follows it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => key.push(chars.next()?.1),
            c if c == quote => return Some((key, &text[at + c.len_utf8()..])),
            c => key.push(c),
        }
    }
    None
}

/// The place at the end of `steps`, made on the way.
fn place<'a>(root: &'a mut Value, steps: &[Step]) -> Option<&'a mut Value> {
    let mut at = root;
    for step in steps {
        at = match step {
            Step::Key(key) => {
                if at.is_null() {
                    *at = Value::Object(Map::new());
                }
                at.as_object_mut()?
                    .entry(key.as_str())
                    .or_insert(Value::Null)
            }
            Step::Index(index) => {
                if at.is_null() {
                    *at = Value::Array(Vec::new());
                }
                let list = at.as_array_mut()?;
                if *index > list.len() + GAP {
                    return None;
                }
                while list.len() <= *index {
                    list.push(Value::Null);
                }
                &mut list[*index]
            }
        };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn built(partials: &[Value]) -> Value {
        let mut arguments = Arguments::default();
        for partial in partials {
            arguments.set(partial);
        }
        serde_json::from_str(&arguments.into_text()).unwrap_or(Value::Null)
    }

    #[test]
    fn values_find_their_places_and_strings_grow() {
        let got = built(&[
            json!({"jsonPath": "$.a.b[0].c", "stringValue": "x", "willContinue": true}),
            json!({"jsonPath": "$.a.b[0].c", "stringValue": "y", "willContinue": true}),
            json!({"jsonPath": "$.a.b[0].c", "stringValue": ""}),
            json!({"jsonPath": "$.a.b[1]", "numberValue": 1.5}),
            json!({"jsonPath": "$['odd key']['it\\'s']", "boolValue": true}),
            json!({"jsonPath": "$.none", "nullValue": "NULL_VALUE"}),
        ]);
        assert_eq!(
            got,
            json!({"a": {"b": [{"c": "xy"}, 1.5]}, "odd key": {"it's": true}, "none": null})
        );
    }

    #[test]
    fn a_value_told_again_replaces_and_does_not_grow() {
        let once = json!({"jsonPath": "$.a", "stringValue": "x"});
        assert_eq!(built(&[once.clone(), once]), json!({"a": "x"}));
    }

    #[test]
    fn paths_that_lead_nowhere_cost_nothing() {
        for path in [
            "$.a[999999999999]",
            "$.a[x]",
            "a.b",
            "$[",
            "$['a",
            "$.a..b[-1]",
        ] {
            let got = built(&[json!({"jsonPath": path, "numberValue": 1})]);
            assert!(got.to_string().len() < 40, "{path}: {got}");
        }
        let deep = format!("${}", ".a".repeat(5000));
        assert_eq!(
            built(&[json!({"jsonPath": deep, "numberValue": 1})]),
            Value::Null
        );
        // A place that holds something else already stays as it is.
        let got = built(&[
            json!({"jsonPath": "$.a", "stringValue": "x"}),
            json!({"jsonPath": "$.a.b", "stringValue": "y"}),
        ]);
        assert_eq!(got, json!({"a": "x"}));
    }
}
