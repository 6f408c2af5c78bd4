//! Requests in the vendors' JSON: pure, deterministic, valid whatever the history looks like.

mod anthropic;
mod chat;
mod gemini;
mod responses;
mod shape;

use crate::dialect::Dialect;
use crate::provider::Encoded;
use crate::settings::Protocol;
use sha2::{Digest, Sha256};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::model::ModelLimits;
use tenure_core::request::Request;

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
        Protocol::Gemini => gemini::encode(request, output),
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
