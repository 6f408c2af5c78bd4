//! The rules of Gemini requests about calls: each answered in the next content, by count, name and id.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Report;
use super::gemini::{get, list, text};

/// Calls or responses of one content.
fn all<'a>(content: &'a Value, key: &str) -> Vec<&'a Value> {
    list(content, "parts")
        .iter()
        .filter_map(|part| get(part, key))
        .collect()
}

pub(super) fn check(contents: &[Value], report: &mut Report) {
    let mut ids: BTreeSet<&str> = BTreeSet::new();
    let mut calls: Vec<&Value> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let at = format!("contents[{index}]");
        let responses = all(content, "functionResponse");
        if calls.is_empty() {
            report.check(responses.is_empty(), "gemini.orphan_response", &at, || {
                "Please ensure that function response turn comes immediately after a function call turn.".into()
            });
        } else {
            check_answers(&calls, &responses, &at, report);
        }
        calls = all(content, "functionCall");
        for call in &calls {
            let id = text(call, "id");
            report.check(
                id.is_empty() || ids.insert(id),
                "gemini.call_id_unique",
                &at,
                || format!("the call id {id:?} was used before"),
            );
        }
        check_hosted(content, &at, report);
    }
    if !calls.is_empty() {
        report.add(
            "gemini.unanswered_call",
            format!("contents[{}]", contents.len()),
            "a function call turn must be followed by a function response turn",
        );
    }
}

fn check_answers(calls: &[&Value], responses: &[&Value], at: &str, report: &mut Report) {
    if responses.is_empty() {
        report.add(
            "gemini.unanswered_call",
            at,
            "Please ensure that function call turn is followed immediately by a function response turn.",
        );
        return;
    }
    if !report.check(
        calls.len() == responses.len(),
        "gemini.response_count",
        at,
        || {
            format!(
                "Please ensure that the number of function response parts is equal to the number of function call \
                 parts of the function call turn: {} and {}.",
                responses.len(),
                calls.len()
            )
        },
    ) {
        return;
    }
    for (place, response) in responses.iter().enumerate() {
        let id = text(response, "id");
        // By its id where there is one, else by its place.
        let call = if id.is_empty() {
            Some(calls[place])
        } else {
            calls.iter().copied().find(|call| text(call, "id") == id)
        };
        let wanted = call.map_or("", |call| text(call, "id"));
        report.check(
            call.is_some() && wanted == id,
            "gemini.response_id",
            at,
            || {
                format!(
                    "the function response id {id:?} is not that of a function call: {wanted:?}"
                )
            },
        );
        if let Some(call) = call {
            let (asked, said) = (text(call, "name"), text(response, "name"));
            report.check(asked == said, "gemini.response_name", at, || {
                format!("the function response for {asked:?} names {said:?}")
            });
        }
    }
}

/// What the provider ran itself stands in the content with its result.
fn check_hosted(content: &Value, at: &str, report: &mut Report) {
    for (call, result) in [
        ("executableCode", "codeExecutionResult"),
        ("toolCall", "toolResponse"),
    ] {
        let mut open = 0_usize;
        for part in list(content, "parts") {
            if get(part, call).is_some() {
                open += 1;
            } else if get(part, result).is_some() {
                report.check(open > 0, "gemini.hosted_orphan", at, || {
                    format!("{result} without {call} before it")
                });
                open = open.saturating_sub(1);
            }
        }
        report.check(open == 0, "gemini.hosted_unanswered", at, || {
            format!("{call} without its {result}")
        });
    }
}

/// The rule of Gemini 3: in the current turn, the first call of each step has a signature.
pub(super) fn check_signatures(contents: &[Value], report: &mut Report) {
    let is_question = |content: &Value| {
        text(content, "role") == "user" && all(content, "functionResponse").is_empty()
    };
    let turn = contents.iter().rposition(is_question).unwrap_or(0);
    for (index, content) in contents.iter().enumerate().skip(turn) {
        let first = list(content, "parts")
            .iter()
            .find(|part| get(part, "functionCall").is_some());
        if let Some(part) = first {
            report.check(
                get(part, "thoughtSignature").is_some(),
                "gemini.call_signature",
                &format!("contents[{index}]"),
                || {
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools \
                     to work correctly."
                        .into()
                },
            );
        }
    }
}
