//! The server's own measure of a request in tokens: it stands for a tokenizer, and shares nothing with any estimate.

use serde_json::Value;

/// Keys whose values are settings, not content that a model reads.
const SETTINGS: [&str; 6] = [
    "model",
    "stream",
    "max_tokens",
    "prompt_cache_key",
    "cache_control",
    "metadata",
];

/// Tokens of a request's body: each word of up to five letters is one, a longer one more; each other character that is
/// not blank is one for itself; each object and each field of it takes its share of framing.
pub fn measure(body: &Value) -> u64 {
    match body {
        Value::String(text) => text_tokens(text),
        Value::Array(items) => items.iter().map(measure).sum(),
        Value::Object(fields) => {
            let content = fields
                .iter()
                .filter(|(key, _)| !SETTINGS.contains(&key.as_str()));
            2 + content.map(|(_, value)| 1 + measure(value)).sum::<u64>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

fn text_tokens(text: &str) -> u64 {
    let mut tokens = 0;
    let mut word = 0u64;
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            word += 1;
            continue;
        }
        tokens += word.div_ceil(5);
        word = 0;
        tokens += u64::from(!c.is_whitespace());
    }
    tokens + word.div_ceil(5)
}

/// The limit on generated tokens that a request asks for, whatever its wire form calls it.
pub(crate) fn output_asked(body: &Value) -> Option<u64> {
    let keys = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
    let nested = [
        "/generationConfig/maxOutputTokens",
        "/inferenceConfig/maxTokens",
    ];
    keys.iter()
        .find_map(|key| body.get(*key))
        .or_else(|| nested.iter().find_map(|at| body.pointer(at)))
        .and_then(Value::as_u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_marks_and_frames_count() {
        assert_eq!(text_tokens("hello world, dear reader!"), 7);
        assert_eq!(text_tokens("你好"), 2);
        assert_eq!(text_tokens(""), 0);
        let small =
            measure(&json!({"messages": [{"role": "user", "content": "hi"}], "model": "m m m"}));
        assert_eq!(small, 2 + 1 + (2 + 1 + 1 + 1 + 1));
    }

    #[test]
    fn the_output_limit_is_found_in_each_form() {
        for key in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
            assert_eq!(output_asked(&json!({key: 7})), Some(7));
        }
        let gemini = json!({"generationConfig": {"maxOutputTokens": 9}});
        assert_eq!(output_asked(&gemini), Some(9));
        let bedrock = json!({"inferenceConfig": {"maxTokens": 8}});
        assert_eq!(output_asked(&bedrock), Some(8));
        assert_eq!(output_asked(&json!({})), None);
    }
}
