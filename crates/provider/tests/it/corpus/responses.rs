//! Responses in the corpus: the status of the response, or why it is incomplete, is the finish word.

use super::Vendor;
use super::compare::{finish_reason, last_usage, tokens};
use serde_json::Value;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub const VENDOR: Vendor = Vendor {
    protocol: Protocol::OpenaiResponses,
    folder: "openai-responses",
    extension: "sse",
    at_least: 55,
    usage,
    finish,
    opaque: |_| false,
    deviations: &[],
};

fn usage(expected: &Value) -> Option<Usage> {
    let usage = last_usage(expected)?;
    let at = |path: &[&str]| tokens(usage, path);
    Some(Usage::from_gross(
        at(&["input_tokens"]),
        at(&["input_tokens_details", "cached_tokens"]),
        at(&["input_tokens_details", "cache_write_tokens"]),
        at(&["output_tokens"]),
        at(&["output_tokens_details", "reasoning_tokens"]),
    ))
}

fn finish(expected: &Value) -> Option<String> {
    let detail = expected["finish_detail"].as_str().map(str::to_owned);
    detail.or_else(|| finish_reason(expected))
}
