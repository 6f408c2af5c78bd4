//! Gemini in the corpus: thoughts are counted beside the answer, cached tokens within the prompt.

use super::Vendor;
use super::compare::{Part, finish_reason, last_usage, tokens};
use serde_json::Value;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub const VENDOR: Vendor = Vendor {
    protocol: Protocol::Gemini,
    folder: "gemini",
    extension: "sse",
    at_least: 37,
    usage,
    finish: finish_reason,
    opaque: |_| false,
    deviations: &[
        (
            "google-gemini-pyd-google-model-web-search-tool-stream",
            Part::Calls,
            "what the provider's search found is told as a hosted call, so that it is seen and kept",
        ),
        (
            "google-vertex-pyd-model-armor-prompt-blocked",
            Part::End,
            "a prompt that was refused is an error with its reason, not a cut stream",
        ),
    ],
};

fn usage(expected: &Value) -> Option<Usage> {
    let usage = last_usage(expected)?;
    let at = |key: &str| tokens(usage, &[key]);
    let prompt = at("promptTokenCount") + at("toolUsePromptTokenCount");
    let output = at("candidatesTokenCount") + at("thoughtsTokenCount");
    if let Some(total) = usage["totalTokenCount"].as_u64() {
        assert_eq!(total, prompt + output, "the parts add up: {usage}");
    }
    Some(Usage::from_gross(
        prompt,
        at("cachedContentTokenCount"),
        0,
        output,
        at("thoughtsTokenCount"),
    ))
}
