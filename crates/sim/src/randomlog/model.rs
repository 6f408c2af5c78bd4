//! The models a random session talks to.

use tenure_core::ModelRef;
use tenure_core::model::Blind;

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
    /// What it is known not to see.
    pub blind: Blind,
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
        blind: Blind {
            images: false,
            documents: false,
        },
    }
}

/// As `asked`, and known not to see these.
const fn blind(asked: Asked, images: bool, documents: bool) -> Asked {
    Asked {
        blind: Blind { images, documents },
        ..asked
    }
}

/// The protocols by their words in the configuration.
pub const ANTHROPIC: &str = "anthropic-messages";
/// See [`ANTHROPIC`].
pub const RESPONSES: &str = "openai-responses";
/// See [`ANTHROPIC`].
pub const CHAT: &str = "openai-chat";
/// See [`ANTHROPIC`].
pub const GEMINI: &str = "gemini";
/// See [`ANTHROPIC`].
pub const BEDROCK: &str = "bedrock-converse";

const SONNET: &str = "claude-sonnet-4-5-20250929";
const AWS_SONNET: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const NOVA: &str = "amazon.nova-2-lite-v1:0";
const SONNET_FAMILY: &str = "claude-sonnet-4-5";

/// Every protocol, several providers of one, one model family under two names, generations that take
/// different things, and a provider whose protocol was changed.
pub const MODELS: &[Asked] = &[
    asked("anthropic", SONNET, ANTHROPIC, SONNET_FAMILY),
    asked("openai", "gpt-5.4", RESPONSES, "gpt-5.4"),
    blind(asked("local", "m1", CHAT, "m1"), true, true),
    asked(
        "google",
        "gemini-3-pro-preview",
        GEMINI,
        "gemini-3-pro-preview",
    ),
    asked(
        "anthropic",
        "claude-sonnet-4-5-latest",
        ANTHROPIC,
        SONNET_FAMILY,
    ),
    asked("proxy", SONNET, ANTHROPIC, SONNET_FAMILY),
    asked("anthropic", "claude-opus-5", ANTHROPIC, "claude-opus-5"),
    asked("openai", "gpt-5.4-mini", RESPONSES, "gpt-5.4-mini"),
    asked("openai", "gpt-5.4", CHAT, "gpt-5.4"),
    asked(
        "openrouter",
        "anthropic/claude-sonnet-4.5",
        CHAT,
        "anthropic/claude-sonnet-4.5",
    ),
    asked("google", "gemini-2.5-pro", GEMINI, "gemini-2.5-pro"),
    asked("vertex", "gemini-2.5-pro", GEMINI, "gemini-2.5-pro"),
    asked("aws", AWS_SONNET, BEDROCK, AWS_SONNET),
    blind(asked("aws", NOVA, BEDROCK, NOVA), false, true),
];
