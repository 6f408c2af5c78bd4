//! The models a random session talks to.

use tenure_core::ModelRef;

/// A model, and the protocol it is asked in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The provider's name.
    pub provider: &'static str,
    /// The model's name.
    pub model: &'static str,
    /// The protocol.
    pub protocol: &'static str,
    /// Models of one family read each other's state.
    pub family: &'static str,
}

impl Asked {
    /// As settings and requests name it.
    pub fn reference(&self) -> ModelRef {
        ModelRef {
            provider: self.provider.to_owned(),
            model: self.model.to_owned(),
        }
    }
}

const fn asked(
    provider: &'static str,
    model: &'static str,
    protocol: &'static str,
    family: &'static str,
) -> Asked {
    Asked {
        provider,
        model,
        protocol,
        family,
    }
}

const ANTHROPIC: &str = "anthropic-messages";
const RESPONSES: &str = "openai-responses";
const CHAT: &str = "openai-chat";

/// Every protocol, two providers of one, one model family under two names, and a provider whose protocol
/// was changed.
pub const MODELS: &[Asked] = &[
    asked("anthropic", "large-4-20260101", ANTHROPIC, "large-4"),
    asked("openai", "gen-5", RESPONSES, "gen-5"),
    asked("local", "m1", CHAT, "m1"),
    asked("anthropic", "large-4-latest", ANTHROPIC, "large-4"),
    asked("proxy", "large-4-20260101", ANTHROPIC, "large-4"),
    asked("openai", "gen-5-mini", RESPONSES, "gen-5-mini"),
    asked("openai", "gen-5", CHAT, "gen-5"),
];
