//! Bedrock in the corpus: binary frames, and cached tokens beside the input.

use super::Vendor;
use super::compare::{finish_reason, tokens};
use serde_json::Value;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub const VENDOR: Vendor = Vendor {
    protocol: Protocol::BedrockConverse,
    folder: "bedrock",
    extension: "eventstream",
    at_least: 30,
    usage,
    finish: finish_reason,
    opaque: |_| false,
    deviations: &[],
};

fn usage(expected: &Value) -> Option<Usage> {
    // Frames of InvokeModelWithResponseStream hold the model's own events.
    if let Some(merged) = expected.get("usage_merged") {
        let at = |key: &str| tokens(merged, &[key]);
        return Some(Usage::from_net(
            at("input_tokens"),
            0,
            0,
            at("output_tokens"),
            0,
        ));
    }
    let last = expected["usage"].as_array()?.last()?;
    let at = |key: &str| tokens(last, &[key]);
    Some(Usage::from_net(
        at("inputTokens"),
        at("cacheReadInputTokens"),
        at("cacheWriteInputTokens"),
        at("outputTokens"),
        0,
    ))
}
