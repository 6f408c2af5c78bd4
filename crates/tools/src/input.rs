//! From what a model sent as arguments to a typed input.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::tool::ToolError;

/// Reads the arguments of a complete call. Models that want to pass nothing send nothing, blanks, `null` or `{}`:
/// all of them are the empty object.
///
/// # Errors
/// [`ToolError::InvalidInput`] when the text is not JSON (it says how long it was and where it breaks) or not an
/// object. A guess at what was meant is never made.
pub fn parse_arguments(raw: Option<&str>) -> Result<Value, ToolError> {
    let raw = raw.unwrap_or_default();
    if raw.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    match serde_json::from_str::<Value>(raw) {
        Ok(value) => normalise(value),
        Err(error) if error.is_eof() => Err(ToolError::invalid(format!(
            "the arguments were cut off after {} bytes and are not complete JSON. Send the call again, in smaller \
             pieces if it was long.",
            raw.len()
        ))),
        Err(error) => Err(ToolError::invalid(format!(
            "the arguments are not valid JSON: {error}."
        ))),
    }
}

/// Makes an already parsed input an object: `null` and blank strings are the empty object.
///
/// # Errors
/// [`ToolError::InvalidInput`] for any other value that is not an object.
pub fn normalise(value: Value) -> Result<Value, ToolError> {
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(Map::new())),
        Value::String(s) if s.trim().is_empty() => Ok(Value::Object(Map::new())),
        other => Err(ToolError::invalid(format!(
            "the arguments must be a JSON object, not {}.",
            crate::schema::type_name(&other)
        ))),
    }
}

/// Reads a typed input.
///
/// # Errors
/// [`ToolError::InvalidInput`] with the reason.
pub(crate) fn read<T: DeserializeOwned>(input: &Value) -> Result<T, ToolError> {
    let input = if input.is_null() {
        &Value::Object(Map::new())
    } else {
        input
    };
    serde::Deserialize::deserialize(input).map_err(|e: serde_json::Error| {
        // The message may quote the input.
        ToolError::invalid(format!("{}.", crate::output::cut(&e.to_string(), 500)))
    })
}
