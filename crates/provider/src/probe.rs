//! Is a provider reachable, does it speak HTTP, does it take the key? For `tenure doctor`.

use crate::http::HttpProvider;
use crate::settings::{Protocol, ProviderSettings, shown_url};
use std::time::Duration;
use tenure_core::error::{ErrorClass, ProviderError};
use tokio::time::Instant;

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// The endpoint exists and takes the key.
    Ok,
    /// The settings cannot be used.
    Settings,
    /// No connection: refused, unknown host, TLS, or no HTTP there.
    Unreachable,
    /// Nothing came in time.
    Timeout,
    /// The key is missing, wrong or not allowed.
    Auth,
    /// There is no such endpoint.
    NotFound,
    /// It answers, but with trouble of its own.
    Trouble,
}

/// A probe's result for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// What was found.
    pub finding: Finding,
    /// What it means and what to do next.
    pub message: String,
}

/// For vendors that name the model in the URL: no model, as an empty body names none.
const PROBED_MODEL: &str = "tenure-probe";

/// Asks the endpoint with an empty request, which costs nothing: a sound endpoint refuses it as invalid,
/// after it has judged the key. Never sends a prompt.
///
/// Cancellation: dropping the future closes the connection.
pub async fn probe(settings: &ProviderSettings, limit: Duration) -> ProbeReport {
    let report = |finding, message: String| ProbeReport { finding, message };
    let provider = match HttpProvider::new(settings.clone()) {
        Ok(provider) => provider,
        Err(error) => return report(Finding::Settings, error.to_string()),
    };
    let url = shown_url(&provider.settings().base_url);
    let sent = provider
        .post(
            PROBED_MODEL,
            bytes::Bytes::from_static(b"{}"),
            None,
            Instant::now() + limit,
        )
        .await;
    let response = match sent {
        Ok(response) => response,
        Err(error) if error.class == ErrorClass::Timeout => {
            return report(
                Finding::Timeout,
                format!(
                    "{url} did not answer within {} s: check that the server is not stuck, and the proxy settings",
                    limit.as_secs_f64()
                ),
            );
        }
        Err(error) if error.class == ErrorClass::Auth => {
            return report(Finding::Auth, error.message);
        }
        Err(error) => return report(Finding::Unreachable, error.message),
    };
    if response.status().is_success() {
        return report(Finding::Ok, format!("{url} answers"));
    }
    let error = provider.refusal(response).await;
    let (finding, message) = judge(&url, settings, &error);
    report(finding, message)
}

fn judge(url: &str, settings: &ProviderSettings, error: &ProviderError) -> (Finding, String) {
    let said = &error.message;
    match error.class {
        ErrorClass::Auth | ErrorClass::Permission
            if settings.protocol == Protocol::BedrockConverse =>
        {
            (
                Finding::Auth,
                format!(
                    "{url} refuses the AWS keys: check them, and that they may call bedrock:InvokeModelWithResponseStream ({said})"
                ),
            )
        }
        ErrorClass::Auth if settings.api_key.is_none() => (
            Finding::Auth,
            format!("{url} wants a key: set api_key_env or api_key_file ({said})"),
        ),
        ErrorClass::Auth => (
            Finding::Auth,
            format!(
                "{url} refuses the key: check it, and that it belongs to this endpoint ({said})"
            ),
        ),
        ErrorClass::Permission => (
            Finding::Auth,
            format!("{url} does not allow this key to do that ({said})"),
        ),
        // A model that does not exist is what an empty request asks for.
        ErrorClass::NotFound if error.status == Some(400) => {
            (Finding::Ok, format!("{url} answers and takes the key"))
        }
        // Gemini's endpoint knows no model of that name, and says so only to whom it knows.
        ErrorClass::NotFound if knows_no_model(settings.protocol, said) => {
            (Finding::Ok, format!("{url} answers and takes the key"))
        }
        ErrorClass::NotFound if error.status.is_some_and(|s| (300..400).contains(&s)) => {
            (Finding::NotFound, said.clone())
        }
        ErrorClass::NotFound => {
            let path = settings.protocol.path(PROBED_MODEL);
            (
                Finding::NotFound,
                format!(
                    "{url} has no {path}: base_url usually ends with /v1; check it and the protocol ({said})"
                ),
            )
        }
        ErrorClass::Quota => (
            Finding::Trouble,
            format!("{url} takes the key, but its quota or credit is used up ({said})"),
        ),
        ErrorClass::RateLimit
        | ErrorClass::Overloaded
        | ErrorClass::Server
        | ErrorClass::Timeout => (
            Finding::Trouble,
            format!("{url} answers, but cannot serve now; try again later ({said})"),
        ),
        _ => (Finding::Ok, format!("{url} answers and takes the key")),
    }
}

/// An endpoint of Gemini's (of its own API, or of Vertex AI) that has judged the key and knows no such model.
fn knows_no_model(protocol: Protocol, said: &str) -> bool {
    protocol == Protocol::Gemini
        && [" is not found", "` was not found"]
            .iter()
            .any(|words| said.contains(&format!("models/{PROBED_MODEL}{words}")))
}
