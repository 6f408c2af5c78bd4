//! How a tool the provider ran itself looks in each wire form.

use serde_json::{Value, json};

use crate::vendor::Vendor;

/// What the id of a hosted call begins with.
pub(super) fn id_prefix(vendor: Vendor, name: &str) -> &'static str {
    match (vendor, name) {
        (Vendor::AnthropicMessages, _) => "srvtoolu_",
        (Vendor::BedrockConverse, _) => "tooluse_",
        (_, "web_search") => "ws_",
        (_, "file_search") => "fs_",
        (_, "code_interpreter") => "ci_",
        _ => "mcp_",
    }
}

/// Anthropic's result block of a hosted tool.
pub(crate) fn anthropic_result(id: &str, name: &str, result: &Value, failed: bool) -> Value {
    let content = if failed {
        json!({"type": format!("{name}_tool_result_error"),
               "error_code": result.as_str().unwrap_or("unavailable")})
    } else {
        result.clone()
    };
    json!({"type": format!("{name}_tool_result"), "tool_use_id": id, "content": content})
}

/// The Responses form's item of a hosted tool, in the given status.
pub(crate) fn responses_item(
    id: &str,
    name: &str,
    input: &Value,
    result: Option<&Value>,
    status: &str,
) -> Value {
    match name {
        "web_search" => {
            let mut action = input.clone();
            if let Some(fields) = action.as_object_mut() {
                fields.entry("type").or_insert_with(|| json!("search"));
            }
            json!({"id": id, "type": "web_search_call", "status": status, "action": action})
        }
        "file_search" => json!({
            "id": id, "type": "file_search_call", "status": status,
            "queries": input.get("queries").cloned().unwrap_or_else(|| json!([])),
            "results": result.cloned().unwrap_or(Value::Null)
        }),
        "code_interpreter" => json!({
            "id": id, "type": "code_interpreter_call", "status": status, "container_id": "cntr_scripted",
            "code": input.get("code").cloned().unwrap_or(Value::Null),
            "outputs": result.cloned().unwrap_or(Value::Null)
        }),
        _ => json!({
            "id": id, "type": "mcp_call", "status": status, "server_label": "scripted", "name": name,
            "arguments": input.to_string(), "error": null,
            "output": result.map_or(Value::Null, |r| r.as_str().map_or_else(|| json!(r.to_string()), |s| json!(s)))
        }),
    }
}
