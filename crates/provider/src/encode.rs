//! Requests in the vendors' JSON: pure, deterministic, valid whatever the history looks like.

mod answer;
mod anthropic;
mod bedrock;
mod chat;
mod gemini;
mod media;
mod responses;
mod shape;

use crate::dialect::Dialect;
use crate::provider::Encoded;
use crate::settings::Protocol;
use sha2::{Digest, Sha256};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::model::ModelLimits;
use tenure_core::request::Request;

/// How long a provider is asked to keep a request's prefix in its cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheTime {
    /// As long as the vendor does by itself: minutes.
    #[default]
    Usual,
    /// An hour, at a higher price of writing, where the vendor has that.
    Hour,
}

/// Values of the vendor's own header that a request to `model` needs, if any.
#[cfg_attr(
    not(feature = "client"),
    allow(dead_code, reason = "the client sends headers")
)]
pub(crate) fn betas(protocol: Protocol, model: &str) -> Option<&'static str> {
    (protocol == Protocol::AnthropicMessages)
        .then(|| anthropic::betas(model))
        .flatten()
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
    encode_cached(protocol, dialect, limits, request, CacheTime::Usual)
}

/// As [`encode`], with an own time in the provider's cache.
///
/// # Errors
/// As [`encode`].
pub fn encode_cached(
    protocol: Protocol,
    dialect: Dialect,
    limits: &ModelLimits,
    request: &Request,
    cache: CacheTime,
) -> Result<Encoded, ProviderError> {
    let output = match (request.max_output, limits.output) {
        (Some(wanted), Some(limit)) => Some(wanted.min(limit)),
        (wanted, limit) => wanted.or(limit),
    };
    let body = match protocol {
        Protocol::OpenaiChat => chat::encode(request, dialect, output),
        Protocol::OpenaiResponses => responses::encode(request, dialect, output),
        Protocol::AnthropicMessages => anthropic::encode(request, output, cache),
        Protocol::Gemini => gemini::encode(request, output),
        Protocol::BedrockConverse => bedrock::encode(request, output, cache),
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
