//! Which words for thinking a model takes, by its name: the same in Chat Completions and in Responses.
//!
//! A word that a model does not know makes the vendor refuse every request, so a model whose documents name
//! none gets none, and one that is not known here gets only the three words that most take.

/// The words for off, low, medium and high; none where nothing is to be said.
pub(crate) type Words = [Option<&'static str>; 4];

const NONE: Words = [None; 4];
/// A model that always thinks takes its least for "off".
const ALWAYS: Words = [Some("low"), Some("low"), Some("medium"), Some("high")];
const WITH_NONE: Words = [Some("none"), Some("low"), Some("medium"), Some("high")];
const UNKNOWN: Words = [None, Some("low"), Some("medium"), Some("high")];

/// The words `model` takes.
pub(crate) fn words(model: &str) -> Words {
    let name = model.rsplit('/').next().unwrap_or(model);
    if name.starts_with("grok") {
        xai(name)
    } else {
        openai(name)
    }
}

/// The words that xAI's own server takes for `model`: under whatever name, never OpenAI's `minimal`.
pub(crate) fn of_xai(model: &str) -> Words {
    let name = model.rsplit('/').next().unwrap_or(model);
    if name.starts_with("grok") {
        xai(name)
    } else {
        UNKNOWN
    }
}

/// Is it a model of OpenAI's own that can tell what it thinks? Servers that imitate the protocol may not know the field.
pub(crate) fn summarises(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    words(name) != NONE && (name.starts_with("gpt-5") || numbered(name) || name.contains("codex"))
}

/// OpenAI's model pages and its API reference of `reasoning.effort`: `none` from GPT-5.1 on, where `minimal` is a 400
/// "Supported values are: 'none', 'low', 'medium', and 'high'"; `minimal` for GPT-5; low, medium and high for the
/// o series, whose models before 5.1 do not take `none`; GPT-5 Pro only `high`. Models from GPT-6 on are not looked up:
/// they get what all take.
fn openai(name: &str) -> Words {
    let talks = ["gpt-3", "gpt-4", "chatgpt-", "o1-mini", "o1-preview"];
    let fixed = name.contains("-chat") || name.contains("deep-research");
    if fixed || talks.iter().any(|talks| name.starts_with(talks)) {
        return NONE;
    }
    if numbered(name) || name.starts_with("codex") || name.starts_with("gpt-oss") {
        return ALWAYS;
    }
    let Some(rest) = name.strip_prefix("gpt-5") else {
        return UNKNOWN;
    };
    let first = !rest.starts_with('.');
    if rest.contains("-pro") {
        // The first takes only what it does anyway.
        let least = Some("medium");
        return if first {
            NONE
        } else {
            [least, least, least, Some("high")]
        };
    }
    if rest.contains("codex") {
        ALWAYS
    } else if first {
        [Some("minimal"), Some("low"), Some("medium"), Some("high")]
    } else {
        WITH_NONE
    }
}

/// `o1`, `o3-mini`, `o4-mini`.
fn numbered(name: &str) -> bool {
    name.strip_prefix('o')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// xAI, "Reasoning": grok-4.3 takes `none` to `high`, grok-3-mini `low` and `high`; to grok-3, grok-4 and grok-4-fast the
/// parameter is an error. Of newer ones nothing was found, and nothing is said to them.
fn xai(name: &str) -> Words {
    if name.starts_with("grok-3-mini") {
        [Some("low"), Some("low"), Some("low"), Some("high")]
    } else if name.starts_with("grok-4.3") {
        WITH_NONE
    } else {
        NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_the_model_takes() {
        let [low, medium, high] = [Some("low"), Some("medium"), Some("high")];
        for (model, expected) in [
            ("gpt-4o", NONE),
            ("gpt-4.1-mini", NONE),
            ("chatgpt-4o-latest", NONE),
            ("gpt-5-chat-latest", NONE),
            ("gpt-5.2-chat-latest", NONE),
            ("gpt-5-pro", NONE),
            ("gpt-5-pro-2025-10-06", NONE),
            ("o4-mini-deep-research", NONE),
            ("gpt-5.2-pro", [medium, medium, medium, high]),
            ("gpt-5-mini", [Some("minimal"), low, medium, high]),
            ("gpt-5-codex", ALWAYS),
            ("gpt-5.1-codex-max", ALWAYS),
            ("openai/gpt-5.4", WITH_NONE),
            ("o3", ALWAYS),
            ("gpt-oss-120b", ALWAYS),
            ("grok-3", NONE),
            ("grok-3-mini", [low, low, low, high]),
            ("grok-4", NONE),
            ("grok-4-fast-reasoning", NONE),
            ("grok-4-0709", NONE),
            ("grok-code-fast-1", NONE),
            ("x-ai/grok-4.3", WITH_NONE),
            ("my-deployment", UNKNOWN),
        ] {
            assert_eq!(words(model), expected, "{model}");
        }
    }

    #[test]
    fn a_server_is_told_no_word_of_another_vendor_s_models() {
        assert_eq!(of_xai("gpt-5-nano"), UNKNOWN);
        assert_eq!(of_xai("grok-4"), NONE);
        assert_eq!(of_xai("grok-4.3"), WITH_NONE);
    }

    #[test]
    fn only_models_that_can_are_asked_to_tell_their_thoughts() {
        for model in ["gpt-5.4", "openai/o4-mini", "gpt-5-codex"] {
            assert!(summarises(model), "{model}");
        }
        for model in ["gpt-5-pro", "gpt-4.1", "grok-4.3", "gpt-oss-20b", "m"] {
            assert!(!summarises(model), "{model}");
        }
    }
}
