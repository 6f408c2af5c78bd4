//! Every recorded stream of the shared corpus against its independently derived result.
//!
//! Deviations, each on purpose:
//!
//! | where | expected file | here | why |
//! |---|---|---|---|
//! | Chat, Responses | `refusal` apart from `text` | refusal is text | it is what the model says to the user |
//! | Responses | hosted items, `mcp_list_tools` left out | items Tenure does not know are kept as opaque blocks | they go back in their place |
//! | Responses | `apply_patch_call`, `local_shell_call`, `shell_call` and `tool_search_call` for the client, `mcp_approval_request` as calls | opaque blocks | Tenure offers none of these tools, so nothing here could run them |
//! | Chat | `{"error"}` line of llama-box: cut | an error with its message | the line says why it was cut |
//! | Chat | error object beside a finish reason | finish | the reason stands, the object explains it |
//! | all | a cut call has its partial arguments | the same, as streamed input without a call | a call is only made of whole input |
//! | Chat | arguments `null` | no arguments | it is how some vendors write them |
//! | Anthropic | `web_search_tool_result` whose id was replaced by the source | opaque block | a result needs its call |

use crate::fold::{Folded, decode_cut, fold};
use serde_json::Value;
use std::path::PathBuf;
use std::str::FromStr;
use tenure_core::error::ErrorClass;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub fn corpus() -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    if path.join("manifest.jsonl").exists() {
        return Some(path);
    }
    eprintln!("skipped: no corpus at {}", path.display());
    None
}

struct Case {
    name: String,
    protocol: Protocol,
    body: Vec<u8>,
    expected: Value,
}

fn cases(protocol: Protocol) -> Vec<Case> {
    let Some(corpus) = corpus() else {
        return Vec::new();
    };
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(corpus.join(protocol.as_str())).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "sse") {
            let expected = std::fs::read(path.with_extension("expected.json")).unwrap();
            cases.push(Case {
                name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                protocol,
                body: std::fs::read(&path).unwrap(),
                expected: serde_json::from_slice(&expected).unwrap(),
            });
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() > 50, "the corpus lost cases");
    cases
}

/// Item types that stay opaque here although the corpus lists them as calls.
const OPAQUE: [&str; 4] = [
    "apply_patch_call",
    "local_shell_call",
    "mcp_approval_request",
    "tool_search_call",
];

fn differences(case: &Case, got: &Folded) -> Vec<String> {
    let mut wrong = Vec::new();
    let want = &case.expected;
    let string = |key: &str| {
        want.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let text = string("text") + &string("refusal");
    if got.text != text {
        wrong.push(format!("text {:?} instead of {:?}", got.text, text));
    }
    if got.reasoning != string("reasoning") {
        wrong.push(format!(
            "reasoning {:?} instead of {:?}",
            got.reasoning,
            string("reasoning")
        ));
    }
    calls(case, got, &mut wrong);
    usage(case, got, &mut wrong);
    end(case, got, &mut wrong);
    wrong
}

fn calls(case: &Case, got: &Folded, wrong: &mut Vec<String>) {
    let mut got_calls = got.calls.iter();
    for want in case.expected["tool_calls"].as_array().unwrap() {
        let kind = want
            .get("item_type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let hosted = want["provider_executed"] == Value::Bool(true);
        if OPAQUE.contains(&kind) && !(kind == "tool_search_call" && hosted)
            || (kind == "shell_call" && !hosted)
        {
            let kept = got
                .opaque
                .iter()
                .any(|native| native.contains(want["id"].as_str().unwrap()));
            if !kept {
                wrong.push(format!("{kind} is not kept"));
            }
            continue;
        }
        let Some(call) = got_calls.next() else {
            wrong.push(format!("missing call {want}"));
            continue;
        };
        let raw = call.input.clone().unwrap_or_else(|| call.streamed.clone());
        let parsed = if raw.is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            serde_json::from_str(&raw).unwrap_or(Value::String(raw.clone()))
        };
        let same = Some(call.id.as_str()) == want["id"].as_str()
            && Some(call.name.as_str()) == want["name"].as_str()
            && (parsed == want["arguments"] || (raw.is_empty() && want["arguments"].is_null()))
            && call.executed == hosted;
        if !same {
            wrong.push(format!("call {call:?} instead of {want}"));
        }
    }
    if let Some(extra) = got_calls.next() {
        wrong.push(format!("unexpected call {extra:?}"));
    }
}

fn usage(case: &Case, got: &Folded, wrong: &mut Vec<String>) {
    let at = |value: &Value, path: &[&str]| {
        path.iter()
            .try_fold(value, |v, key| v.get(key))
            .and_then(Value::as_u64)
            .unwrap_or(0)
    };
    let want = match case.protocol {
        Protocol::AnthropicMessages => case.expected.get("usage_merged").cloned(),
        _ => case.expected["usage"]
            .as_array()
            .and_then(|all| all.last())
            .cloned(),
    };
    let Some(want) = want.filter(|w| w.as_object().is_some_and(|w| !w.is_empty())) else {
        return;
    };
    let got = got.usage.unwrap_or_default();
    let (prompt, output, cached) = match case.protocol {
        Protocol::AnthropicMessages => {
            let cached = at(&want, &["cache_read_input_tokens"]);
            let written = at(&want, &["cache_creation_input_tokens"]);
            (
                at(&want, &["input_tokens"]) + cached + written,
                at(&want, &["output_tokens"]),
                cached,
            )
        }
        Protocol::OpenaiResponses => (
            at(&want, &["input_tokens"]),
            at(&want, &["output_tokens"]),
            at(&want, &["input_tokens_details", "cached_tokens"]),
        ),
        Protocol::OpenaiChat => {
            let (prompt, output) = (
                at(&want, &["prompt_tokens"]),
                at(&want, &["completion_tokens"]),
            );
            let total = at(&want, &["total_tokens"]);
            let reasoning = at(&want, &["completion_tokens_details", "reasoning_tokens"])
                .max(at(&want, &["reasoning_tokens"]));
            let beside = reasoning > 0 && total == prompt + output + reasoning;
            let cached = at(&want, &["prompt_tokens_details", "cached_tokens"])
                .max(at(&want, &["prompt_cache_hit_tokens"]))
                .max(at(&want, &["cached_tokens"]));
            (
                prompt,
                if beside { output + reasoning } else { output },
                cached,
            )
        }
    };
    if (got.prompt(), got.output, got.cache_read) != (prompt, output, cached.min(prompt)) {
        wrong.push(format!("usage {got:?} instead of {want}"));
    }
}

fn end(case: &Case, got: &Folded, wrong: &mut Vec<String>) {
    let want = &case.expected;
    let reason = want["finish_reason"].as_str();
    let failed = want.get("stream_error").is_some();
    let llama_box = case.name.starts_with("gpustack-llama-box") && reason.is_none();
    if failed && (reason.is_none() || reason == Some("failed")) || llama_box {
        match &got.error {
            Some(error) if error.class != ErrorClass::Cut => {}
            other => wrong.push(format!(
                "error {other:?} instead of {}",
                want["stream_error"]
            )),
        }
    } else if reason.is_none() && want["terminated"] == Value::Bool(false) {
        if got.error.as_ref().map(|e| e.class) != Some(ErrorClass::Cut) {
            wrong.push(format!(
                "a cut stream ended with {:?} {:?}",
                got.finish, got.error
            ));
        }
    } else {
        let raw = got.finish.as_ref().map(|f| f.1.clone());
        let detail = want["finish_detail"].as_str().map(str::to_owned);
        let reason = detail
            .filter(|_| case.protocol == Protocol::OpenaiResponses)
            .or(reason.map(str::to_owned));
        if raw != Some(reason.clone()) {
            wrong.push(format!(
                "finish {:?} / {:?} instead of {reason:?}",
                got.finish, got.error
            ));
        }
    }
}

fn check(protocol: Protocol) {
    let mut bad = Vec::new();
    for case in cases(protocol) {
        let whole = decode_cut(protocol, &case.body, &[]);
        for line in differences(&case, &fold(&whole)) {
            let line: String = line.chars().take(600).collect();
            bad.push(format!("{}: {line}", case.name));
        }
        // The network's cuts must not matter.
        for step in [1, 7, 1021] {
            let cuts: Vec<usize> = (1..case.body.len()).step_by(step).collect();
            if decode_cut(protocol, &case.body, &cuts) != whole {
                bad.push(format!(
                    "{}: other events when cut every {step} bytes",
                    case.name
                ));
            }
        }
    }
    assert!(
        bad.is_empty(),
        "{} differences\n{}",
        bad.len(),
        bad.join("\n")
    );
}

#[test]
fn openai_chat() {
    check(Protocol::OpenaiChat);
}

#[test]
fn openai_responses() {
    check(Protocol::OpenaiResponses);
}

#[test]
fn anthropic_messages() {
    check(Protocol::AnthropicMessages);
}

#[test]
fn signatures_are_kept_byte_for_byte() {
    for case in cases(Protocol::AnthropicMessages) {
        let Some(signatures) = case
            .expected
            .get("reasoning_signatures")
            .and_then(Value::as_array)
        else {
            continue;
        };
        let got = fold(&decode_cut(case.protocol, &case.body, &[]));
        let natives: Vec<String> = got.reasonings.iter().filter_map(|r| r.1.clone()).collect();
        for signature in signatures {
            let quoted = serde_json::to_string(signature).unwrap();
            assert!(
                natives.iter().any(|native| native.contains(&quoted)),
                "{}: lost {quoted}",
                case.name
            );
        }
    }
}

#[test]
fn protocols_have_their_words() {
    for protocol in Protocol::ALL {
        assert_eq!(Protocol::from_str(protocol.as_str()).unwrap(), protocol);
    }
    assert_eq!(Usage::default().prompt(), 0);
}
