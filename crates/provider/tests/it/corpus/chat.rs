//! Chat Completions in the corpus: cached tokens are within the prompt, under several names.

use super::Vendor;
use super::compare::{Part, finish_reason, last_usage, tokens};
use serde_json::Value;
use tenure_core::usage::Usage;
use tenure_provider::Protocol;

pub const VENDOR: Vendor = Vendor {
    protocol: Protocol::OpenaiChat,
    folder: "openai-chat",
    extension: "sse",
    at_least: 99,
    usage,
    finish: finish_reason,
    opaque: |_| false,
    deviations: &[
        (
            "gpustack-llama-box-ruby-with-extended-thinking-gpustack-qwen3-streams-thinking-content-when-available",
            Part::End,
            "a reader that ignores the server's own `error:` line sees a cut; the line says why it was cut",
        ),
        (
            "groq-rig-agent-tool-sessions-parallel-tool-calls-single-turn-streaming",
            Part::Calls,
            "arguments `null` are how this vendor writes none; a tool always gets an object",
        ),
        (
            "openrouter-pyd-openrouter-stream-error",
            Part::End,
            "the error beside the finish reason `length` explains it; what was said is whole up to the limit",
        ),
    ],
};

fn usage(expected: &Value) -> Option<Usage> {
    let usage = last_usage(expected)?;
    let at = |path: &[&str]| tokens(usage, path);
    let (prompt, output) = (at(&["prompt_tokens"]), at(&["completion_tokens"]));
    let reasoning =
        at(&["completion_tokens_details", "reasoning_tokens"]).max(at(&["reasoning_tokens"]));
    // Some vendors count reasoning beside the completion.
    let beside = reasoning > 0 && at(&["total_tokens"]) == prompt + output + reasoning;
    Some(Usage::from_gross(
        prompt,
        at(&["prompt_tokens_details", "cached_tokens"])
            .max(at(&["prompt_cache_hit_tokens"]))
            .max(at(&["cached_tokens"])),
        at(&["prompt_tokens_details", "cache_write_tokens"])
            .max(at(&["prompt_tokens_details", "cache_creation_tokens"])),
        if beside { output + reasoning } else { output },
        reasoning,
    ))
}
