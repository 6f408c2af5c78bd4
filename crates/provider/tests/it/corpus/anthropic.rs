//! Anthropic Messages in the corpus: usage grows over the stream, and cached tokens lie beside the input.

use super::Vendor;
use super::compare::{finish_reason, tokens};
use serde_json::Value;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub const VENDOR: Vendor = Vendor {
    protocol: Protocol::AnthropicMessages,
    folder: "anthropic-messages",
    extension: "sse",
    at_least: 56,
    usage,
    finish: finish_reason,
    opaque: |_| false,
    deviations: &[],
};

fn usage(expected: &Value) -> Option<Usage> {
    let merged = expected.get("usage_merged")?;
    let at = |key: &str| tokens(merged, &[key]);
    let usage = Usage::from_net(
        at("input_tokens"),
        at("cache_read_input_tokens"),
        at("cache_creation_input_tokens"),
        at("output_tokens"),
        tokens(merged, &["output_tokens_details", "thinking_tokens"]),
    );
    Some(Usage {
        cache_write_long: tokens(merged, &["cache_creation", "ephemeral_1h_input_tokens"]),
        searches: merged
            .pointer("/server_tool_use/web_search_requests")
            .and_then(Value::as_u64),
        ..usage
    })
}
