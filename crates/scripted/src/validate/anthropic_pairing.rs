//! The rules of Anthropic Messages requests: which tool result answers which tool use, and where it must stand.

use std::collections::HashSet;

use serde_json::Value;

use super::Report;
use super::shape::text_of;

fn blocks(message: &Value) -> &[Value] {
    message
        .get("content")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// True when the message has a block of that type.
pub(super) fn holds(message: &Value, block_type: &str) -> bool {
    blocks(message)
        .iter()
        .any(|b| text_of(b, "type") == block_type)
}

pub(super) fn check(messages: &[Value], report: &mut Report) {
    let mut ever = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages[{index}]");
        match text_of(message, "role") {
            "user" => {
                check_results(message, &open, &at, report);
                open.clear();
            }
            _ => {
                // An assistant message straight behind open calls leaves them unanswered.
                leave_unanswered(&open, &at, report);
                open = uses(message);
                for id in &open {
                    report.check(
                        ever.insert(*id),
                        "anthropic.tool_use_id_unique",
                        &at,
                        || format!("`tool_use` ids must be unique, {id:?} occurs twice"),
                    );
                }
                check_hosted(message, index + 1 == messages.len(), &at, report);
            }
        }
    }
    leave_unanswered(&open, "messages", report);
}

fn uses(message: &Value) -> Vec<&str> {
    let calls = blocks(message)
        .iter()
        .filter(|b| text_of(b, "type") == "tool_use");
    calls.map(|b| text_of(b, "id")).collect()
}

fn leave_unanswered(open: &[&str], at: &str, report: &mut Report) {
    for id in open {
        report.add(
            "anthropic.unanswered_tool_use",
            at,
            format!(
                "`tool_use` ids were found without `tool_result` blocks immediately after: {id}. Each `tool_use` \
                 block must have a corresponding `tool_result` block in the next message."
            ),
        );
    }
}

fn check_results(message: &Value, open: &[&str], at: &str, report: &mut Report) {
    let mut answered = HashSet::new();
    let mut other_seen = false;
    for (index, block) in blocks(message).iter().enumerate() {
        let here = format!("{at}.content[{index}]");
        if text_of(block, "type") != "tool_result" {
            other_seen = true;
            continue;
        }
        let id = text_of(block, "tool_use_id");
        if !open.contains(&id) {
            report.add(
                "anthropic.orphan_result",
                here,
                format!(
                    "unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have \
                     a corresponding `tool_use` block in the previous message."
                ),
            );
            continue;
        }
        if !answered.insert(id) {
            report.add(
                "anthropic.duplicate_result",
                here.clone(),
                format!("each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"),
            );
        }
        report.check(!other_seen, "anthropic.result_first", &here, || {
            format!("the tool_result for {id} must come before any other content of its message")
        });
    }
    let missing: Vec<&str> = open
        .iter()
        .copied()
        .filter(|id| !answered.contains(id))
        .collect();
    leave_unanswered(&missing, at, report);
}

/// A tool the vendor ran carries its result in the same assistant message, save in a turn that is still paused.
fn check_hosted(message: &Value, last: bool, at: &str, report: &mut Report) {
    let mut open: Vec<&str> = Vec::new();
    for (index, block) in blocks(message).iter().enumerate() {
        let block_type = text_of(block, "type");
        if block_type == "server_tool_use" || block_type == "mcp_tool_use" {
            open.push(text_of(block, "id"));
        } else if block_type.ends_with("_tool_result") {
            let id = text_of(block, "tool_use_id");
            let known = open.iter().position(|o| *o == id);
            match known {
                Some(place) => drop(open.swap_remove(place)),
                None => report.add(
                    "anthropic.hosted_orphan",
                    format!("{at}.content[{index}]"),
                    format!(
                        "`{block_type}` for {id:?} has no hosted tool use before it in its message"
                    ),
                ),
            }
        }
    }
    if !last {
        for id in open {
            report.add(
                "anthropic.hosted_unanswered",
                at,
                format!("hosted tool use with id {id:?} was found without its result block"),
            );
        }
    }
}
