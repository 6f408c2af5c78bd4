//! Requests in the vendors' JSON: pure, deterministic, valid whatever the history looks like.

mod anthropic;
mod chat;
mod responses;
mod shape;

use crate::provider::Encoded;
use crate::settings::Protocol;
use sha2::{Digest, Sha256};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::model::ModelLimits;
use tenure_core::request::Request;

/// Which habits of a Chat endpoint to follow; known from its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dialect {
    /// OpenAI's own: newest field names, privileged messages anywhere.
    Openai,
    /// Mistral's own: refuses fields that it does not know.
    Mistral,
    /// Everything else: only what every imitation understands.
    #[default]
    Common,
}

impl Dialect {
    /// The dialect of the endpoint at `host`.
    pub fn of_host(host: &str) -> Self {
        let host = host.to_ascii_lowercase();
        let under = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
        if under("openai.com") || under("openai.azure.com") {
            Self::Openai
        } else if under("mistral.ai") {
            Self::Mistral
        } else {
            Self::Common
        }
    }
}

/// Encodes `request` for `protocol`. Equal arguments give equal bytes.
///
/// # Errors
/// `InvalidRequest` when no message is left that could be sent.
pub fn encode(
    protocol: Protocol,
    dialect: Dialect,
    limits: &ModelLimits,
    request: &Request,
) -> Result<Encoded, ProviderError> {
    let output = match (request.max_output, limits.output) {
        (Some(wanted), Some(limit)) => Some(wanted.min(limit)),
        (wanted, limit) => wanted.or(limit),
    };
    let body = match protocol {
        Protocol::OpenaiChat => chat::encode(request, dialect, output),
        Protocol::OpenaiResponses => responses::encode(request, output),
        Protocol::AnthropicMessages => anthropic::encode(request, output),
        Protocol::BedrockConverse => None,
    };
    let Some(body) = body else {
        return Err(ProviderError::new(
            ErrorClass::InvalidRequest,
            "there is no message that could be sent: the conversation holds no text yet",
        ));
    };
    let hash = Sha256::digest(&body)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(Encoded {
        body: body.into(),
        hash,
        model: request.model.model.clone(),
    })
}
