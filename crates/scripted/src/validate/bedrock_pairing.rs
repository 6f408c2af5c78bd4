//! The rules of Bedrock Converse requests: which result answers which call, and where both must stand.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::bedrock::{Maker, blocks};
use super::shape::text_of;

/// Amazon's own tools are called and answered within one message of the assistant.
fn is_hosted(value: &Value) -> bool {
    !matches!(text_of(value, "type"), "" | "tool_use" | "tool_result")
}

fn ids<'a>(message: &'a Value, member: &str, hosted: bool) -> Vec<&'a str> {
    blocks(message)
        .iter()
        .filter_map(|block| block.get(member))
        .filter(|value| is_hosted(value) == hosted)
        .map(|value| text_of(value, "toolUseId"))
        .collect()
}

fn holds(message: &Value, member: &str) -> bool {
    blocks(message)
        .iter()
        .any(|block| block.get(member).is_some())
}

pub(super) fn check(maker: Maker, body: &Value, messages: &[Value], report: &mut Report) {
    let mut ever = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}].content");
        if text_of(message, "role") == "user" {
            check_results(maker, message, &open, &at, report);
            open.clear();
        } else {
            leave_unanswered(&open, &at, report);
            open = ids(message, "toolUse", false);
            for id in &open {
                report.check(ever.insert(*id), "bedrock.tool_use_id_unique", &at, || {
                    format!("`tool_use` ids must be unique, {id:?} occurs twice")
                });
            }
            check_hosted(message, &at, report);
        }
        check_mixed(maker, message, &at, report);
    }
    leave_unanswered(&open, "messages", report);
    let tools = messages
        .iter()
        .any(|m| holds(m, "toolUse") || holds(m, "toolResult"));
    report.check(
        !tools || body.get("toolConfig").is_some_and(Value::is_object),
        "bedrock.tool_config_required",
        "toolConfig",
        || {
            "The toolConfig field must be defined when using toolUse and toolResult content blocks."
                .into()
        },
    );
    check_thinking_first(maker, body, messages, report);
}

fn leave_unanswered(open: &[&str], at: &str, report: &mut Report) {
    if !open.is_empty() {
        report.add(
            "bedrock.unanswered_tool_use",
            at,
            format!(
                "Expected toolResult blocks at {at} for the following Ids: {}",
                open.join(", ")
            ),
        );
    }
}

fn check_results(maker: Maker, message: &Value, open: &[&str], at: &str, report: &mut Report) {
    let given = ids(message, "toolResult", false);
    let mut answered = HashSet::new();
    for id in &given {
        report.check(open.contains(id), "bedrock.orphan_result", at, || {
            format!("The toolResult {id:?} has no toolUse block in the turn before it.")
        });
        report.check(answered.insert(*id), "bedrock.duplicate_result", at, || {
            format!("The toolUse {id:?} has two toolResult blocks.")
        });
    }
    report.check(given.len() <= open.len(), "bedrock.result_count", at, || {
        format!(
            "The number of toolResult blocks at {at} exceeds the number of toolUse blocks of previous turn."
        )
    });
    let left: Vec<&str> = open
        .iter()
        .filter(|id| !answered.contains(*id))
        .copied()
        .collect();
    leave_unanswered(&left, at, report);
    // Anthropic's models want the answers in front of everything else.
    let mut others = false;
    for block in blocks(message) {
        if block.get("toolResult").is_none() {
            others = true;
        } else if others && maker != Maker::Other {
            report.add(
                "bedrock.result_first",
                at,
                "toolResult blocks have to stand in front of all other blocks of their message",
            );
            return;
        }
    }
}

fn check_hosted(message: &Value, at: &str, report: &mut Report) {
    let answered = ids(message, "toolResult", true);
    for id in ids(message, "toolUse", true) {
        report.check(
            answered.contains(&id),
            "bedrock.hosted_unanswered",
            at,
            || {
                format!(
                    "the tool of the provider's own called as {id:?} has no result in its message"
                )
            },
        );
    }
}

/// Models of other makers take a turn of words or a turn of calls, never one of both.
fn check_mixed(maker: Maker, message: &Value, at: &str, report: &mut Report) {
    if maker != Maker::Other {
        return;
    }
    for (member, what) in [("toolUse", "tool use"), ("toolResult", "tool result")] {
        let mixed = holds(message, member)
            && blocks(message)
                .iter()
                .any(|block| block.get(member).is_none());
        report.check(!mixed, "bedrock.mixed_turn", at, || {
            format!(
                "{at}: Conversation blocks and {what} blocks cannot be provided in the same turn."
            )
        });
    }
}

/// With thinking enabled, the first assistant message of the tool loop that is open must begin with its thinking.
fn check_thinking_first(maker: Maker, body: &Value, messages: &[Value], report: &mut Report) {
    let enabled = body.pointer("/additionalModelRequestFields/thinking/type");
    if maker != Maker::Anthropic || enabled != Some(&Value::String("enabled".into())) {
        return;
    }
    let only_results = |message: &Value| {
        blocks(message)
            .iter()
            .all(|b| b.get("toolResult").is_some() || b.get("cachePoint").is_some())
    };
    let mut calling = None;
    let mut rest = messages;
    while let [before @ .., called, answers] = rest
        && only_results(answers)
        && holds(called, "toolUse")
    {
        calling = Some((before.len(), called));
        rest = before;
    }
    let Some((index, calling)) = calling else {
        return;
    };
    let first = blocks(calling).first();
    report.check(
        first.is_some_and(|b| b.get("reasoningContent").is_some()),
        "bedrock.thinking_first",
        &format!("messages[{index}].content[0]"),
        || {
            "Expected `thinking` or `redacted_thinking`: when `thinking` is enabled, a final `assistant` message \
             must start with a thinking block"
                .into()
        },
    );
}
