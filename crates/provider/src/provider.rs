//! The contract between the engine and a model vendor: encode purely, send once, stream events.

use async_trait::async_trait;
use bytes::Bytes;
use futures::Stream;
use serde::Deserialize;
use std::pin::Pin;
use tenure_core::error::ProviderError;
use tenure_core::provider::ProviderEvent;
use tenure_core::request::Request;

/// The events of one attempt. Each item holds all events decoded from one network chunk and is never
/// empty, so that the reader can handle them as one batch. The stream ends after the item that holds
/// [`ProviderEvent::Finish`], or after the first `Err`: an error that the vendor reports inside its stream
/// comes as `Err` too, never as [`ProviderEvent::Error`].
///
/// Dropping the stream closes the connection.
pub type EventStream =
    Pin<Box<dyn Stream<Item = Result<Vec<ProviderEvent>, ProviderError>> + Send>>;

/// A request in the vendor's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The JSON body as it goes over the wire.
    pub body: Bytes,
    /// SHA-256 of `body` in lower-case hexadecimal.
    pub hash: String,
    /// The model asked, as its provider names it: some protocols put it into the URL and not into the body.
    pub model: String,
}

impl Encoded {
    /// The most tokens the body allows the answer to have, as it says it in its protocol's words. It may be more than
    /// the request asked for: some vendors want a number, and get one.
    pub fn output_allowed(&self) -> Option<u64> {
        let said: Allowed = serde_json::from_slice(&self.body).ok()?;
        let deep = said.generation_config.or(said.inference_config);
        [
            said.max_tokens,
            said.max_completion_tokens,
            said.max_output_tokens,
            deep.and_then(|deep| deep.tokens),
        ]
        .into_iter()
        .flatten()
        .max()
    }
}

/// Where the protocols say how long an answer may be.
#[derive(Deserialize)]
struct Allowed {
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    #[serde(rename = "generationConfig")]
    generation_config: Option<Deep>,
    #[serde(rename = "inferenceConfig")]
    inference_config: Option<Deep>,
}

#[derive(Deserialize)]
struct Deep {
    #[serde(alias = "maxOutputTokens", alias = "maxTokens")]
    tokens: Option<u64>,
}

/// Names one attempt to the endpoint, so that its logs and ours can be joined, and so that an endpoint
/// that knows idempotency keys never bills it twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptKey(pub String);

/// One configured model endpoint.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The wire protocol: `openai-chat`, `openai-responses`, `anthropic-messages`, `gemini`, or an own word. Native
    /// state made under one protocol is never shown to another.
    fn protocol(&self) -> &'static str;

    /// Turns a request into the vendor's bytes. Pure and deterministic: equal requests give equal bytes,
    /// and a request that extends another shares its prefix up to the change, cache marks apart.
    ///
    /// # Errors
    /// `InvalidRequest` when the request has nothing that can be sent.
    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError>;

    /// Sends the request once and gives the stream as soon as the response's head has come. Never retries.
    ///
    /// Cancellation: dropping the future or the stream closes the connection; nothing goes on in the
    /// background.
    ///
    /// # Errors
    /// What the endpoint answered instead of a stream, classified; `Transport` when no connection came
    /// about; `Timeout` when no head came within the first-byte limit.
    async fn send(
        &self,
        encoded: Encoded,
        attempt: &AttemptKey,
    ) -> Result<EventStream, ProviderError>;
}
