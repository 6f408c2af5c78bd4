//! What a Gemini model's name says about what it takes: thinking, signatures, tools of both kinds at once.

use serde::Serialize;
use tenure_core::request::Effort;

/// Models that take the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// Gemini 3 and later, and names that always mean the newest.
    Level {
        /// Knows `minimal`: the quick sizes known to.
        minimal: bool,
        /// Gemini 3 Pro itself knows two levels only.
        two_levels: bool,
    },
    /// Gemini 2.5.
    Budget {
        /// Of the large size, which always thinks.
        pro: bool,
    },
    /// Everything else: nothing that not every model takes.
    Plain,
}

/// How a model is told to think.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Thinking {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

impl Family {
    /// The family of a model by its name at the provider.
    pub fn of(model: &str) -> Self {
        let name = model.rsplit('/').next().unwrap_or(model);
        let name = name.to_ascii_lowercase();
        let Some(rest) = name.strip_prefix("gemini-") else {
            return Self::Plain;
        };
        // Models for pictures, speech and vectors do not think.
        if ["image", "tts", "live", "audio", "embedding"]
            .iter()
            .any(|word| rest.contains(word))
        {
            return Self::Plain;
        }
        let number = rest.split('-').next().unwrap_or_default();
        let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
        let flash = rest.contains("flash");
        match (major.parse::<u32>(), minor) {
            (Ok(2), "5") => Self::Budget {
                pro: rest.contains("pro"),
            },
            (Ok(0..=2), _) => Self::Plain,
            (Ok(major), minor) => Self::Level {
                minimal: flash && major == 3 && matches!(minor, "0" | "1"),
                two_levels: !flash && major == 3 && minor == "0",
            },
            (Err(_), _) if rest.ends_with("-latest") => Self::Level {
                minimal: false,
                two_levels: false,
            },
            (Err(_), _) => Self::Plain,
        }
    }

    /// Refuses a call of the current turn that has no signature.
    pub fn wants_signatures(self) -> bool {
        matches!(self, Self::Level { .. })
    }

    /// Takes functions together with the vendor's own tools and with JSON mode.
    pub fn combines(self) -> bool {
        matches!(self, Self::Level { .. })
    }

    /// The configuration that asks for thoughts, as hard as wanted.
    pub fn thinking(self, effort: Option<Effort>) -> Option<Thinking> {
        let level = |level| Thinking {
            include_thoughts: true,
            thinking_budget: None,
            thinking_level: level,
        };
        let budget = |tokens| Thinking {
            include_thoughts: true,
            thinking_budget: tokens,
            thinking_level: None,
        };
        match (self, effort) {
            (Self::Plain, _) => None,
            (Self::Level { .. }, None) => Some(level(None)),
            (Self::Level { minimal: true, .. }, Some(Effort::Off)) => Some(level(Some("minimal"))),
            (Self::Level { .. }, Some(Effort::Off | Effort::Low)) => Some(level(Some("low"))),
            (
                Self::Level {
                    two_levels: true, ..
                },
                Some(Effort::Medium),
            ) => Some(level(None)),
            (Self::Level { .. }, Some(Effort::Medium)) => Some(level(Some("medium"))),
            (Self::Level { .. }, Some(Effort::High)) => Some(level(Some("high"))),
            (Self::Budget { .. }, None) => Some(budget(None)),
            // Without any thinking there are no thoughts to be shown, and asking for them is refused.
            (Self::Budget { pro: false }, Some(Effort::Off)) => Some(Thinking {
                include_thoughts: false,
                thinking_budget: Some(0),
                thinking_level: None,
            }),
            (Self::Budget { pro: true }, Some(Effort::Off)) => Some(budget(Some(128))),
            (Self::Budget { .. }, Some(Effort::Low)) => Some(budget(Some(1024))),
            (Self::Budget { .. }, Some(Effort::Medium)) => Some(budget(Some(8192))),
            (Self::Budget { .. }, Some(Effort::High)) => Some(budget(Some(24_576))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_families() {
        let level = |minimal, two_levels| Family::Level {
            minimal,
            two_levels,
        };
        for (name, family) in [
            ("gemini-3-pro-preview", level(false, true)),
            ("gemini-3.1-pro-preview", level(false, false)),
            ("models/gemini-3-flash-preview", level(true, false)),
            ("gemini-3.1-flash-lite-preview", level(true, false)),
            ("gemini-3.5-flash", level(false, false)),
            ("gemini-flash-latest", level(false, false)),
            ("gemini-2.5-pro", Family::Budget { pro: true }),
            ("gemini-2.5-flash-lite", Family::Budget { pro: false }),
            ("gemini-2.5-flash-image", Family::Plain),
            ("gemini-2.0-flash", Family::Plain),
            ("gemini-1.5-pro-latest", Family::Plain),
            ("gemma-3-27b-it", Family::Plain),
            ("m1", Family::Plain),
            ("", Family::Plain),
        ] {
            assert_eq!(Family::of(name), family, "{name}");
        }
    }

    #[test]
    fn effort_is_a_level_or_a_budget_and_never_both() {
        for name in [
            "gemini-3-pro",
            "gemini-3-flash",
            "gemini-2.5-pro",
            "gemini-2.5-flash",
        ] {
            for effort in [
                None,
                Some(Effort::Off),
                Some(Effort::Low),
                Some(Effort::Medium),
                Some(Effort::High),
            ] {
                let thinking = Family::of(name).thinking(effort).unwrap();
                assert!(
                    thinking.thinking_budget.is_none() || thinking.thinking_level.is_none(),
                    "{name} {effort:?}"
                );
                assert!(
                    thinking.include_thoughts || thinking.thinking_budget == Some(0),
                    "{name} {effort:?}"
                );
            }
        }
    }
}
