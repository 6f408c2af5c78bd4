//! Token counts of Chat vendors: cached tokens are within the prompt, wherever the vendor puts them.

use super::super::raw::tokens_at;
use super::super::sink::Sink;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::usage::Usage;

/// Reads a `usage` object (or Groq's wrapper around one); everything else is ignored.
pub(super) fn read(raw: &RawValue, sink: &mut Sink) {
    if !raw.get().starts_with('{') {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(raw.get()) else {
        return;
    };
    let value = value.get("usage").unwrap_or(&value);
    if let Some(usage) = normalise(value) {
        sink.set_usage(usage);
    }
}

fn normalise(value: &Value) -> Option<Usage> {
    let prompt = tokens_at(value, &["prompt_tokens"]);
    let completion = tokens_at(value, &["completion_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let prompt = prompt.unwrap_or(0);
    let mut output = completion.unwrap_or(0);
    let first = |paths: &[&[&str]]| {
        paths
            .iter()
            .find_map(|path| tokens_at(value, path))
            .unwrap_or(0)
    };
    let cache_read = first(&[
        &["prompt_tokens_details", "cached_tokens"],
        &["prompt_cache_hit_tokens"],
        &["cached_tokens"],
    ]);
    let cache_write = first(&[
        &["prompt_tokens_details", "cache_write_tokens"],
        &["prompt_tokens_details", "cache_creation_tokens"],
        &["cache_creation_input_tokens"],
    ]);
    let reasoning = first(&[
        &["completion_tokens_details", "reasoning_tokens"],
        &["reasoning_tokens"],
    ]);
    // Some vendors count reasoning beside the completion; only the total gives that away.
    let total = tokens_at(value, &["total_tokens"]);
    if reasoning > 0 && total == Some(prompt.saturating_add(output).saturating_add(reasoning)) {
        output = output.saturating_add(reasoning);
    }
    Some(Usage::from_gross(
        prompt,
        cache_read,
        cache_write,
        output,
        reasoning,
    ))
}
