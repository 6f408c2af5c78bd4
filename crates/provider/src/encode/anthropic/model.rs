//! What a Claude model takes of thinking, effort and forced calls, by its generation.
//!
//! The vendor's own pages say it, read in November 2026: budgets up to 4.5, adaptive thinking from 4.6 on,
//! thinking by default from 5 on, and from 5.5 (Fable and Mythos: 5.1) neither forced calls nor thinking
//! blocks in front of which the conversation changed.

use serde::Serialize;
use tenure_core::request::Effort;

/// A model as far as its name tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::encode) struct Generation {
    family: Family,
    /// Major and minor; `None` for a model that is no Claude, or whose name does not say.
    version: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Opus,
    Sonnet,
    Haiku,
    /// Fable and Mythos: they always think.
    Always,
    Other,
}

/// The `thinking` field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::encode) enum Thinking {
    /// A fixed budget.
    Enabled { budget_tokens: u64 },
    /// As much as the model finds right.
    Adaptive {
        #[serde(skip_serializing_if = "Option::is_none")]
        display: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        block_binding: Option<Binding>,
    },
    /// Only between calls.
    BetweenTools,
    /// Not at all.
    Disabled,
}

/// What becomes of thinking blocks in front of which the conversation changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(in crate::encode) struct Binding {
    prefix_mismatch_behavior: &'static str,
}

/// The beta that [`Binding`] needs.
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the client sends headers")
)]
const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

impl Generation {
    /// Reads `claude-sonnet-4-6`, `claude-3-7-sonnet-20250219`, `anthropic/claude-opus-4.8` and their like.
    pub fn of(model: &str) -> Self {
        let name = model
            .rsplit('/')
            .next()
            .unwrap_or(model)
            .to_ascii_lowercase();
        let Some(at) = name.find("claude") else {
            return Self {
                family: Family::Other,
                version: None,
            };
        };
        let words: Vec<&str> = name[at..].split(['-', '.', '@', '_', ':']).collect();
        let has = |word: &str| words.contains(&word);
        let family = if has("fable") || has("mythos") {
            Family::Always
        } else if has("opus") {
            Family::Opus
        } else if has("sonnet") {
            Family::Sonnet
        } else if has("haiku") {
            Family::Haiku
        } else {
            Family::Other
        };
        // Dates have eight digits; a version's numbers have one or two, the minor right behind the major.
        let number = |word: &str| {
            (word.len() <= 2)
                .then(|| word.parse::<u32>().ok())
                .flatten()
        };
        let major = words.iter().position(|word| number(word).is_some());
        let version = major.and_then(|at| {
            let minor = words.get(at + 1).and_then(|word| number(word)).unwrap_or(0);
            Some((number(words[at])?, minor))
        });
        Self {
            version: version.or((family == Family::Always).then_some((5, 0))),
            family,
        }
    }

    /// Is it of this version or a later one?
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|v| v >= (major, minor))
    }

    /// Is it a Claude of a known generation?
    fn known(&self) -> bool {
        self.version.is_some()
    }

    fn adaptive(&self) -> bool {
        self.at_least(4, 6)
    }

    /// Thinks although nobody asked for it.
    fn by_default(&self) -> bool {
        self.at_least(5, 0)
    }

    /// Ties its thinking to the conversation before it, and refuses forced calls.
    fn bound(&self) -> bool {
        match self.family {
            Family::Always => self.at_least(5, 1),
            _ => self.at_least(5, 5),
        }
    }

    /// May thinking come back without its text, its signature holding all of it?
    pub fn omits_thinking(&self) -> bool {
        self.at_least(4, 7)
    }

    /// Does it hold to a JSON schema?
    pub fn takes_schema(&self) -> bool {
        self.at_least(4, 5)
    }

    /// Does it read PDFs?
    pub fn reads_documents(&self) -> bool {
        !self.known() || self.at_least(3, 5)
    }

    /// Betas without which a field of its requests would be refused.
    #[cfg_attr(
        not(feature = "client"),
        allow(dead_code, reason = "the client sends headers")
    )]
    pub fn betas(&self) -> Option<&'static str> {
        self.bound().then_some(BINDING_BETA)
    }

    fn takes_effort(&self) -> bool {
        self.adaptive() || (self.family == Family::Opus && self.at_least(4, 5))
    }

    /// The word for `effort`, where the model has such a setting.
    pub fn effort(&self, effort: Option<Effort>) -> Option<&'static str> {
        let word = match effort? {
            // Where thinking cannot be turned off, the least is asked for.
            Effort::Off => return (self.turned_off() == Off::Least).then_some("low"),
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
        };
        self.takes_effort().then_some(word)
    }

    /// The `thinking` field; `None` leaves it out. `max_tokens` bounds a budget.
    pub fn thinking(&self, effort: Option<Effort>, max_tokens: u64) -> Option<Thinking> {
        let adaptive = || Thinking::Adaptive {
            // Left alone, newer models send thinking without its text.
            display: self.omits_thinking().then_some("summarized"),
            // A compaction changes what is before the messages it keeps: their thinking must not
            // make the conversation unsendable.
            block_binding: self.bound().then_some(Binding {
                prefix_mismatch_behavior: "drop_block",
            }),
        };
        match effort {
            None => self.by_default().then(adaptive),
            Some(Effort::Off) => match self.turned_off() {
                Off::Silent => None,
                Off::Disabled => Some(Thinking::Disabled),
                Off::BetweenTools => Some(Thinking::BetweenTools),
                Off::Least => Some(adaptive()),
            },
            Some(_) if self.adaptive() => Some(adaptive()),
            Some(effort) if !self.known() || self.at_least(3, 7) => {
                let budget = budget(effort).min(max_tokens / 2);
                (budget >= 1024).then_some(Thinking::Enabled {
                    budget_tokens: budget,
                })
            }
            Some(_) => None,
        }
    }

    fn turned_off(&self) -> Off {
        match self.family {
            _ if !self.by_default() => Off::Silent,
            Family::Always => Off::Least,
            Family::Opus if self.bound() => Off::Least,
            Family::Sonnet if self.bound() => Off::BetweenTools,
            _ => Off::Disabled,
        }
    }

    /// May a call be forced? With thinking it may not be, nor by the newest models.
    pub fn may_force(&self, thinking: Option<&Thinking>) -> bool {
        let thinks = match thinking {
            Some(Thinking::Enabled { .. } | Thinking::Adaptive { .. }) => true,
            Some(Thinking::BetweenTools | Thinking::Disabled) => false,
            None => self.by_default(),
        };
        !thinks && !self.bound()
    }

    /// The output limit to send when nobody knows one.
    pub fn default_output(&self, effort: Option<Effort>) -> u64 {
        let usual = 8192;
        match effort {
            _ if self.adaptive() => 32_000,
            Some(effort) if effort != Effort::Off => usual + 2 * budget(effort),
            _ => usual,
        }
    }
}

/// How thinking is turned off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Off {
    /// By saying nothing: it is off unless asked for.
    Silent,
    /// By saying so.
    Disabled,
    /// Only in front of the answer.
    BetweenTools,
    /// Not at all: the least effort has to do.
    Least,
}

/// Tokens of thinking, where a model wants them numbered.
fn budget(effort: Effort) -> u64 {
    match effort {
        Effort::Off => 0,
        Effort::Low => 4_096,
        Effort::Medium => 10_240,
        Effort::High => 24_576,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str) -> Option<(u32, u32)> {
        Generation::of(name).version
    }

    #[test]
    fn names_tell_their_generation() {
        assert_eq!(version("claude-3-7-sonnet-20250219"), Some((3, 7)));
        assert_eq!(version("claude-3-5-haiku-latest"), Some((3, 5)));
        assert_eq!(version("claude-opus-4-20250514"), Some((4, 0)));
        assert_eq!(version("claude-opus-4-1-20250805"), Some((4, 1)));
        assert_eq!(version("claude-haiku-4-5-20251001"), Some((4, 5)));
        assert_eq!(version("anthropic/claude-haiku-4.5"), Some((4, 5)));
        assert_eq!(version("us.anthropic.claude-opus-4-6-v1"), Some((4, 6)));
        assert_eq!(version("claude-sonnet-4@20250514"), Some((4, 0)));
        assert_eq!(version("claude-sonnet-5"), Some((5, 0)));
        assert_eq!(version("claude-fable-5-1"), Some((5, 1)));
        assert_eq!(version("claude-mythos-preview"), Some((5, 0)));
        assert_eq!(version("claude-instant"), None);
        assert_eq!(version("deepseek-v4-flash"), None);
    }

    #[test]
    fn thinking_follows_the_generation() {
        let ask = |name: &str, effort| {
            let thinking = Generation::of(name).thinking(effort, 20_000);
            serde_json::to_string(&thinking).unwrap()
        };
        let high = Some(Effort::High);
        let off = Some(Effort::Off);
        assert_eq!(ask("claude-3-5-sonnet", high), "null");
        assert_eq!(
            ask("claude-sonnet-4-5", high),
            r#"{"type":"enabled","budget_tokens":10000}"#
        );
        assert_eq!(ask("claude-sonnet-4-6", high), r#"{"type":"adaptive"}"#);
        assert_eq!(ask("claude-sonnet-4-6", None), "null");
        assert_eq!(
            ask("claude-opus-4-8", high),
            r#"{"type":"adaptive","display":"summarized"}"#
        );
        assert_eq!(ask("claude-opus-4-8", off), "null");
        assert_eq!(ask("claude-opus-5", off), r#"{"type":"disabled"}"#);
        assert_eq!(ask("claude-sonnet-5-5", off), r#"{"type":"between_tools"}"#);
        let bound = r#"{"type":"adaptive","display":"summarized","block_binding":{"prefix_mismatch_behavior":"drop_block"}}"#;
        assert_eq!(ask("claude-opus-5-5", off), bound);
        assert_eq!(ask("claude-opus-5-5", None), bound);
        assert_eq!(Generation::of("claude-opus-5-5").effort(off), Some("low"));
        assert_eq!(Generation::of("claude-opus-5").betas(), None);
        assert_eq!(
            Generation::of("claude-fable-5-1").betas(),
            Some(BINDING_BETA)
        );
    }

    #[test]
    fn a_budget_leaves_room_for_the_answer_or_is_not_set() {
        let model = Generation::of("claude-sonnet-4-5");
        assert_eq!(model.thinking(Some(Effort::Low), 2_000), None);
        assert_eq!(
            model.thinking(Some(Effort::Low), 4_000),
            Some(Thinking::Enabled {
                budget_tokens: 2_000
            })
        );
    }

    #[test]
    fn calls_are_forced_only_where_that_is_taken() {
        let may = |name: &str, effort| {
            let model = Generation::of(name);
            let thinking = model.thinking(effort, 20_000);
            model.may_force(thinking.as_ref())
        };
        assert!(may("claude-sonnet-4-6", None));
        assert!(!may("claude-sonnet-4-6", Some(Effort::Low)));
        assert!(!may("claude-opus-5", None));
        assert!(may("claude-opus-5", Some(Effort::Off)));
        assert!(!may("claude-haiku-5-5", Some(Effort::Off)));
        assert!(may("another-model", None));
    }
}
