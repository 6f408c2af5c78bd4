//! Lenient readers over raw JSON: vendors bend every type, and decoding must not fail for that.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A string that borrows from the input where it can; `Option<Cow<str>>` alone never does.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Str<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// An optional piece of JSON, kept as the text it came in.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// The string in `raw`; `None` for every other type.
pub(super) fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let raw = raw?.get();
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    // Raw JSON was checked when it was cut out: without escapes it is the text.
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str::<Str<'_>>(raw).ok().map(|s| s.0)
}

/// A non-empty string in `raw`.
pub(super) fn filled(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    text(raw).filter(|t| !t.is_empty())
}

/// An id or name: a string, or a number written out.
pub(super) fn word(raw: Raw<'_>) -> Option<String> {
    let json = raw?.get();
    match json.as_bytes().first()? {
        b'"' => text(raw).map(Cow::into_owned),
        b'0'..=b'9' | b'-' => Some(json.to_owned()),
        _ => None,
    }
}

/// An index: a whole number, or a string that holds one.
pub(super) fn number(raw: Raw<'_>) -> Option<u64> {
    raw?.get().trim_matches('"').parse().ok()
}

/// Arguments of a call: a string as it is, an object as its JSON text, anything else as nothing.
pub(super) fn arguments(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let json = raw?.get();
    match json.as_bytes().first()? {
        b'"' => text(raw),
        b'{' => Some(Cow::Borrowed(json)),
        _ => None,
    }
}

/// `json` without duplicate keys, for a document that a typed reader refused; `None` when it is no JSON.
pub(super) fn normalised(json: &str) -> Option<String> {
    serde_json::from_str::<Value>(json)
        .ok()
        .map(|value| value.to_string())
}

/// A token count: vendors send floats, strings and negatives too.
pub(super) fn tokens(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) => n
            .as_u64()
            .or_else(|| n.as_f64().map(|f| if f > 0.0 { f as u64 } else { 0 })),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

/// The token count at a path of keys, or zero.
pub(super) fn tokens_at(value: &Value, path: &[&str]) -> Option<u64> {
    let mut at = value;
    for key in path {
        at = at.get(key)?;
    }
    tokens(at)
}

/// Is `text` a whole JSON object? Nothing can be appended to one.
pub(super) fn is_object(text: &str) -> bool {
    let text = text.trim();
    // The last byte first: this is asked again and again while arguments stream.
    text.ends_with('}') && text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}
