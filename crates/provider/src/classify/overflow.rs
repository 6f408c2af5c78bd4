//! Is an error about the model's context window? By code, by wording, by the numbers in it.

use super::said::Said;
use tenure_core::error::ProviderError;

/// Codes and types that mean nothing else, in lower case.
pub(super) const CODES: [&str; 10] = [
    "context_length_exceeded",
    "context_window_exceeded",
    "model_context_window_exceeded",
    "exceed_context_size_error",
    "context_exceeded",
    "too_many_prompt_tokens",
    "too_many_tokens",
    "tokens_limit_reached",
    "content_length_exceeds_threshold",
    "context_limit_exceeded",
];

/// One of these in the text is enough.
const PHRASES: [&str; 25] = [
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "exceeds the context window",
    "context window exceeds",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds context size",
    "maximum context length",
    "maximum prompt length",
    "maximum input length",
    "model's context length",
    "input tokens exceed",
    "input token count",
    "token limit exceeded",
    "tokens exceed the configured limit",
    "requested token count exceeds",
    "total length of all messages is too long",
    "reduce the length of the messages",
    "prompt exceeds max length",
    "range of input length should be",
    "exceed max message tokens",
    "tokens in request more than max tokens",
    "size limit exceeded by",
];

/// All words of one line have to be in the text.
const PAIRS: [&[&str]; 10] = [
    &["prompt token count of", "exceeds the limit"],
    &["max_seq_len", "must be less than"],
    &["inputs tokens", "max_new_tokens", "must be <="],
    &["n_keep", "n_ctx"],
    &["tokens to keep", "context length"],
    &["trying to keep the first", "context"],
    &["context window", "exceed"],
    &["context length", "exceed"],
    &["context size", "exceed"],
    &["context limit", "exceed"],
];

/// Judges an error that is not about a rate limit.
pub(super) fn is_overflow(status: u16, said: &Said) -> bool {
    // Some vendors give an oversized prompt no word at all.
    if said.is_empty() && matches!(status, 400 | 413) {
        return true;
    }
    if said.any_code(&CODES) {
        return true;
    }
    // Limits on the answer alone: a shorter history would not help.
    if said.has_any(&["max_completion_tokens must be", "max_tokens specified"]) {
        return false;
    }
    PHRASES.iter().any(|phrase| said.text().contains(phrase))
        || PAIRS.iter().any(|words| said.has_all(words))
        || (said.has_any(&["prompt has", "input has", "prompt contains"])
            && said.has_any(&["tokens"]))
        || said.has_all(&["too many tokens"])
        || sum(said.text()).is_some()
}

/// The output limit with which the same prompt would fit, when the error names a sum that is too large:
/// `178959 + 64000 > 200000`. `None` when the prompt alone is too long or the error names no sum.
pub fn output_that_fits(error: &ProviderError) -> Option<u64> {
    let (input, _, limit) = sum(&error.message).or_else(|| requested(&error.message))?;
    limit.checked_sub(input).filter(|room| *room > 0)
}

/// The window of the model, when the error names a sum that is too large for it.
pub fn window_said(error: &ProviderError) -> Option<u64> {
    let numbers = sum(&error.message).or_else(|| requested(&error.message))?;
    Some(numbers.2)
}

/// "context length is C tokens … requested … (A in the messages, B in the completion)", in its variants.
fn requested(text: &str) -> Option<(u64, u64, u64)> {
    let (_, rest) = text.split_once("context length is")?;
    let (limit, rest) = first_number(rest)?;
    let (_, rest) = rest.split_once('(')?;
    let (input, rest) = first_number(rest)?;
    let about_input = [
        "in the messages",
        "of text input",
        "in your prompt",
        "in the input",
    ];
    let rest = rest.trim_start();
    let rest = about_input
        .iter()
        .find_map(|words| rest.strip_prefix(words))?;
    let (_, rest) = rest.split_once([',', ';'])?;
    let (output, rest) = first_number(rest.trim_start().trim_start_matches("and "))?;
    let about_output = ["in the completion", "for the completion", "in the output"];
    about_output
        .iter()
        .any(|words| rest.trim_start().starts_with(words))
        .then_some((input, output, limit))
}

/// `A + B > C` anywhere in the text.
fn sum(text: &str) -> Option<(u64, u64, u64)> {
    text.match_indices('+').find_map(|(at, _)| {
        let input = last_number(&text[..at])?;
        let (output, rest) = first_number(&text[at + 1..])?;
        let (limit, _) = first_number(rest.trim_start().strip_prefix('>')?)?;
        (input.checked_add(output)? > limit).then_some((input, output, limit))
    })
}

fn last_number(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let start = text.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| {
        at + text[at..].chars().next().map_or(1, char::len_utf8)
    });
    text[start..].parse().ok()
}

fn first_number(text: &str) -> Option<(u64, &str)> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}
