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

const fn asked(provider: &'static str, model: &'static str, protocol: &'static str) -> Asked {
    Asked {
        provider,
        model,
        protocol,
    }
}

/// Every protocol, two providers of one, and one model family under two names.
pub const MODELS: &[Asked] = &[
    asked("anthropic", "large-4-20260101", "anthropic-messages"),
    asked("openai", "gen-5", "openai-responses"),
    asked("local", "m1", "openai-chat"),
    asked("anthropic", "large-4-latest", "anthropic-messages"),
    asked("proxy", "large-4-20260101", "anthropic-messages"),
    asked("openai", "gen-5-mini", "openai-responses"),
    asked("other", "m1", "openai-chat"),
];
