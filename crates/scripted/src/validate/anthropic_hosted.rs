//! The rules of Anthropic Messages requests: tools the vendor runs, their results, and citations.

use serde_json::Value;

use super::Report;
use super::shape::{given, is_name, text_of};

/// A hosted tool's definition.
pub(super) fn check_tool(tool: &Value, at: &str, report: &mut Report) {
    let tool_type = text_of(tool, "type");
    let name = match tool_type.rsplit_once('_') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => {
            report.add(
                "anthropic.hosted_tool",
                at,
                format!("tools: unknown type {tool_type:?}; hosted tools end in their date"),
            );
            return;
        }
    };
    let named = match name {
        "web_search" | "web_fetch" | "code_execution" => text_of(tool, "name") == name,
        _ => true,
    };
    report.check(named, "anthropic.hosted_tool", at, || {
        format!("tools: the name of {tool_type} must be {name:?}")
    });
}

/// A hosted call.
pub(super) fn check_use(block: &Value, at: &str, report: &mut Report) {
    let id = text_of(block, "id");
    let rest = id.strip_prefix("srvtoolu_");
    report.check(
        rest.is_some_and(|rest| is_name(rest, 256)),
        "anthropic.server_tool_use_id",
        &format!("{at}.id"),
        || format!("server_tool_use.id: string should match pattern '^srvtoolu_[a-zA-Z0-9_]+$', got {id:?}"),
    );
}

/// A hosted call's result.
pub(super) fn check_result(block: &Value, at: &str, report: &mut Report) {
    let content = block.get("content").unwrap_or(&Value::Null);
    let kind = text_of(block, "type");
    let ok = match content {
        Value::Array(items) if kind == "web_search_tool_result" => items.iter().all(|item| {
            text_of(item, "type") == "web_search_result"
                && !text_of(item, "url").is_empty()
                && !text_of(item, "encrypted_content").is_empty()
        }),
        Value::Array(_) => true,
        Value::Object(fields) => fields.get("type").is_some_and(Value::is_string),
        _ => false,
    };
    report.check(
        ok && !text_of(block, "tool_use_id").is_empty(),
        "anthropic.hosted_result",
        at,
        || format!("{kind}: content must be the result as it was received"),
    );
}

/// Citations of a text block.
pub(super) fn check_citations(block: &Value, at: &str, report: &mut Report) {
    let Some(citations) = given(block, "citations") else {
        return;
    };
    let whole = |citation: &Value| match text_of(citation, "type") {
        "web_search_result_location" => {
            !text_of(citation, "encrypted_index").is_empty() && !text_of(citation, "url").is_empty()
        }
        "char_location" | "page_location" | "content_block_location" => {
            citation.get("cited_text").is_some_and(Value::is_string)
        }
        "search_result_location" => true,
        _ => false,
    };
    let ok = citations
        .as_array()
        .is_some_and(|list| list.iter().all(whole));
    report.check(
        ok,
        "anthropic.citations",
        &format!("{at}.citations"),
        || "citations must be sent back as they were received".into(),
    );
}
