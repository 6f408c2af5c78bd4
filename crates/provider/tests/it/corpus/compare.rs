//! What an expected file says, part by part, against what the decoder gave.

use super::{Case, Vendor};
use crate::fold::{Call, Folded};
use serde_json::Value;
use tenure_core::error::ErrorClass;

/// What of a case can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Text,
    Reasoning,
    Calls,
    Usage,
    End,
}

/// A token count at a path of keys, zero where there is none.
pub fn tokens(value: &Value, path: &[&str]) -> u64 {
    path.iter()
        .try_fold(value, |value, key| value.get(key))
        .and_then(Value::as_u64)
        .unwrap_or(0)
}

/// The last usage object of an expected file, if it holds anything.
pub fn last_usage(expected: &Value) -> Option<&Value> {
    let last = expected["usage"].as_array()?.last()?;
    last.as_object()
        .is_some_and(|fields| !fields.is_empty())
        .then_some(last)
}

/// The finish word of an expected file.
pub fn finish_reason(expected: &Value) -> Option<String> {
    expected["finish_reason"].as_str().map(str::to_owned)
}

/// Every difference, with the part it is in.
pub fn differences(vendor: &Vendor, case: &Case, got: &Folded) -> Vec<(Part, String)> {
    let mut wrong = Vec::new();
    let want = &case.expected;
    let string = |key: &str| want.get(key).and_then(Value::as_str).unwrap_or_default();
    let text = format!("{}{}", string("text"), string("refusal"));
    if got.text != text {
        wrong.push((
            Part::Text,
            format!("text {:?} instead of {text:?}", got.text),
        ));
    }
    let reasoning = string("reasoning");
    if got.reasoning != reasoning {
        wrong.push((
            Part::Reasoning,
            format!("reasoning {:?} instead of {reasoning:?}", got.reasoning),
        ));
    }
    calls(vendor, want, got, &mut wrong);
    if let Some(want) = (vendor.usage)(want) {
        let got = got.usage.unwrap_or_default();
        if got != want {
            wrong.push((Part::Usage, format!("usage {got:?} instead of {want:?}")));
        }
    }
    if let Some(line) = end(vendor, want, got) {
        wrong.push((Part::End, line));
    }
    wrong
}

fn calls(vendor: &Vendor, expected: &Value, got: &Folded, wrong: &mut Vec<(Part, String)>) {
    let mut got_calls = got.calls.iter();
    for want in expected["tool_calls"].as_array().unwrap() {
        if (vendor.opaque)(want) {
            let id = serde_json::to_string(&want["id"]).unwrap();
            if !got.opaque.iter().any(|native| native.contains(&id)) {
                wrong.push((Part::Calls, format!("not kept: {want}")));
            }
            continue;
        }
        match got_calls.next() {
            None => wrong.push((Part::Calls, format!("missing call {want}"))),
            Some(call) if !same_call(call, want, expected) => {
                wrong.push((Part::Calls, format!("call {call:?} instead of {want}")));
            }
            Some(_) => {}
        }
    }
    if let Some(extra) = got_calls.next() {
        wrong.push((Part::Calls, format!("unexpected call {extra:?}")));
    }
}

fn same_call(call: &Call, want: &Value, expected: &Value) -> bool {
    let raw = call.input.as_ref().unwrap_or(&call.streamed);
    let parsed = if raw.is_empty() {
        Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_str(raw).unwrap_or(Value::String(raw.clone()))
    };
    // A finished response with whole arguments is a call to be run, not only streamed input.
    let whole = expected["terminated"] == Value::Bool(true)
        && expected.get("stream_error").is_none()
        && want["arguments"].is_object()
        && !raw.is_empty();
    // Where the vendor gave no id, any will do.
    (want["id"].is_null() || Some(call.id.as_str()) == want["id"].as_str())
        && Some(call.name.as_str()) == want["name"].as_str()
        && parsed == want["arguments"]
        && Value::Bool(call.executed) == want["provider_executed"]
        && (call.input.is_some() || !whole)
}

fn end(vendor: &Vendor, want: &Value, got: &Folded) -> Option<String> {
    if let Some(said) = want.get("stream_error") {
        return match &got.error {
            Some(error) if error.class != ErrorClass::Cut => None,
            other => Some(format!(
                "{other:?} and {:?} instead of the error {said}",
                got.finish
            )),
        };
    }
    let reason = (vendor.finish)(want);
    if reason.is_none() && want["terminated"] == Value::Bool(false) {
        let cut = got.error.as_ref().map(|e| e.class) == Some(ErrorClass::Cut);
        return (!cut)
            .then(|| format!("a cut stream ended with {:?} / {:?}", got.finish, got.error));
    }
    let raw = got.finish.as_ref().map(|finish| finish.1.clone());
    (raw != Some(reason.clone())).then(|| {
        format!(
            "finish {:?} / {:?} instead of {reason:?}",
            got.finish, got.error
        )
    })
}
