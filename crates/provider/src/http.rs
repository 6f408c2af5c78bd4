//! A provider over HTTP: one client, one endpoint, one request per attempt.

mod access;
pub(crate) mod failure;
mod stream;

use crate::catalogue::ModelInfo;
use crate::classify::{classify, classify_event};
use crate::decode::Decoder;
use crate::dialect::{Auth, Dialect};
use crate::encode;
use crate::provider::{AttemptKey, Encoded, EventStream, Provider};
use crate::secret::Secret;
use crate::settings::{Protocol, ProviderSettings, SettingsError, segment, shown_url};
use access::Access;
use async_trait::async_trait;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, SystemTime};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::request::Request;
use tokio::time::{Instant, timeout_at};

/// More of an error body is not read.
const ERROR_BODY_LIMIT: usize = 64 * 1024;
/// An error body that does not come whole within this time is judged as far as it came.
const ERROR_BODY_TIME: Duration = Duration::from_secs(10);
const CONNECT_TIME: Duration = Duration::from_secs(30);
/// `{model}` in a base URL's path, as the URL type writes it.
const MODEL_IN_PATH: &str = "%7Bmodel%7D";
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// A configured provider, ready to send. Cheap to keep, and safe to use from many tasks.
pub struct HttpProvider {
    settings: ProviderSettings,
    base: Url,
    client: Client,
    headers: HeaderMap,
    dialect: Dialect,
    access: Access,
    /// Everything an endpoint must not be able to echo into our errors, apart from keys read later.
    secrets: Arc<[Secret]>,
    /// As `secrets`, with the keys of the last request.
    masks: Mutex<Arc<[Secret]>>,
}

impl HttpProvider {
    /// Checks the settings and makes the client; sends nothing.
    ///
    /// # Errors
    /// When the URL, a header, a limit or the CA file cannot be used.
    pub fn new(mut settings: ProviderSettings) -> Result<Self, SettingsError> {
        for (limit, value) in [
            ("first_byte_timeout", settings.first_byte_timeout),
            ("idle_timeout", settings.idle_timeout),
        ] {
            if value.is_zero() {
                return Err(SettingsError::Limit {
                    provider: settings.name.clone(),
                    limit,
                });
            }
        }
        let access = Access::of(&mut settings)?;
        let base = base(&settings)?;
        let dialect = settings
            .dialect
            .unwrap_or_else(|| Dialect::of_host(base.host_str().unwrap_or_default()));
        let headers = headers(&settings, dialect)?;
        let client = client(&settings, &base)?;
        let secrets: Arc<[Secret]> = secrets(&settings).chain(access.secrets()).collect();
        Ok(Self {
            masks: Mutex::new(secrets.clone()),
            secrets,
            access,
            settings,
            base,
            client,
            headers,
            dialect,
        })
    }

    /// What is known of a model of this provider.
    pub fn model_info(&self, model: &str) -> ModelInfo {
        ModelInfo::of(self.settings.models.get(model))
    }

    /// The settings it was made from.
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Sends a POST for `model` and waits for the head of the answer, at most until `deadline`.
    pub(crate) async fn post(
        &self,
        model: &str,
        body: bytes::Bytes,
        attempt: Option<&AttemptKey>,
        deadline: Instant,
    ) -> Result<Response, ProviderError> {
        let mut headers = self.headers.clone();
        if let Some(key) = attempt.and_then(|key| HeaderValue::from_str(&key.0).ok()) {
            headers.insert("x-tenure-attempt", key.clone());
            headers.entry("idempotency-key").or_insert(key);
        }
        add_betas(&mut headers, self.settings.protocol, model);
        let url = endpoint(&self.base, self.settings.protocol, model);
        let more = self
            .access
            .authorise(&mut headers, &url, &body, SystemTime::now())
            .await?;
        if !more.is_empty() {
            let masks = self.secrets.iter().cloned().chain(more).collect();
            *self.masks.lock().unwrap_or_else(PoisonError::into_inner) = masks;
        }
        let sending = self
            .client
            .post(url.clone())
            .headers(headers)
            .body(body)
            .send();
        match timeout_at(deadline, sending).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.masked(failure::of_send(&error, &url))),
            Err(_) => Err(ProviderError::new(
                ErrorClass::Timeout,
                format!(
                    "{} did not answer within the first-byte limit",
                    failure::host(&url)
                ),
            )),
        }
    }

    /// Reads an answer that is no stream and says what it means.
    pub(crate) async fn refusal(&self, mut response: Response) -> ProviderError {
        let status = response.status();
        let headers = response.headers().clone();
        let mut body = Vec::new();
        let deadline = Instant::now() + ERROR_BODY_TIME;
        while let Ok(Ok(Some(chunk))) = timeout_at(deadline, response.chunk()).await {
            body.extend_from_slice(&chunk[..chunk.len().min(ERROR_BODY_LIMIT - body.len())]);
            if body.len() >= ERROR_BODY_LIMIT {
                break;
            }
        }
        if status.is_success() {
            return self.masked(unexpected(&headers, &body));
        }
        let mut error = classify(status.as_u16(), &headers, &body, SystemTime::now());
        if status.is_redirection() {
            let to = headers
                .get("location")
                .and_then(|l| l.to_str().ok())
                .unwrap_or("elsewhere");
            error.message = format!(
                "{} redirects to {}; requests with keys are not sent on: set base_url to the final address",
                failure::host(&self.base),
                shown_url(to),
            );
        }
        self.masked(error)
    }

    fn masks(&self) -> Arc<[Secret]> {
        self.masks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn masked(&self, mut error: ProviderError) -> ProviderError {
        mask(&self.masks(), &mut error);
        error
    }
}

/// Adds what fields of a request to `model` need, behind what the configuration asks for.
fn add_betas(headers: &mut HeaderMap, protocol: Protocol, model: &str) {
    const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
    let Some(needed) = encode::betas(protocol, model) else {
        return;
    };
    let configured = headers
        .get(&BETA)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let all = match configured {
        "" => needed.to_owned(),
        configured => format!("{configured},{needed}"),
    };
    if let Ok(value) = HeaderValue::from_str(&all) {
        headers.insert(BETA, value);
    }
}

/// Takes every secret out of an error.
fn mask(secrets: &[Secret], error: &mut ProviderError) {
    for secret in secrets {
        error.message = secret.mask(&error.message);
        error.code = error.code.take().map(|code| secret.mask(&code));
    }
}

/// The key, and header values that are keys by their header's name.
fn secrets(settings: &ProviderSettings) -> impl Iterator<Item = Secret> {
    let words = ["key", "token", "auth", "secret", "cookie"];
    let headers = settings.headers.iter().filter(move |(name, _)| {
        let name = name.to_ascii_lowercase();
        words.iter().any(|word| name.contains(word))
    });
    headers
        .map(|(_, value)| Secret::new(value.rsplit(' ').next().unwrap_or(value)))
        .chain(settings.api_key.clone())
}

impl std::fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpProvider")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for HttpProvider {
    fn protocol(&self) -> &'static str {
        self.settings.protocol.as_str()
    }

    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError> {
        let info = self.model_info(&request.model.model);
        encode::encode_cached(
            self.settings.protocol,
            self.dialect,
            &info.limits,
            request,
            info.asks.cache,
        )
    }

    async fn send(
        &self,
        encoded: Encoded,
        attempt: &AttemptKey,
    ) -> Result<EventStream, ProviderError> {
        let deadline = Instant::now() + self.settings.first_byte_timeout;
        tracing::debug!(provider = %self.settings.name, hash = %encoded.hash, bytes = encoded.body.len(), "sending");
        let response = self
            .post(&encoded.model, encoded.body, Some(attempt), deadline)
            .await?;
        if !response.status().is_success()
            || !may_stream(self.settings.protocol, response.headers())
        {
            return Err(self.refusal(response).await);
        }
        let reading = stream::Reading {
            response,
            decoder: Decoder::new(self.settings.protocol),
            deadline,
            first: true,
            first_byte: self.settings.first_byte_timeout,
            idle: self.settings.idle_timeout,
            secrets: self.masks(),
            held: None,
        };
        Ok(reading.into_stream())
    }
}

/// An event stream, or something that does not say what it is. Gemini's stream may be a JSON list, too.
fn may_stream(protocol: Protocol, headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default()
        .to_ascii_lowercase();
    let json = kind.starts_with("application/json") && protocol != Protocol::Gemini;
    !(json || kind.starts_with("text/html"))
}

/// Status 200, but no event stream.
fn unexpected(headers: &HeaderMap, body: &[u8]) -> ProviderError {
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body)
        && value.get("error").is_some_and(|e| !e.is_null())
    {
        return classify_event(&value);
    }
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|v| v.to_str().ok())
        .unwrap_or("no content type");
    ProviderError {
        status: Some(200),
        ..ProviderError::new(
            ErrorClass::InvalidRequest,
            format!(
                "the endpoint answered with {kind} and not with an event stream: check base_url and protocol"
            ),
        )
    }
}

/// The base URL, checked.
pub(crate) fn base(settings: &ProviderSettings) -> Result<Url, SettingsError> {
    let refuse = |reason: &str| SettingsError::BaseUrl {
        provider: settings.name.clone(),
        given: shown_url(&settings.base_url),
        reason: reason.to_owned(),
    };
    let url = Url::parse(settings.base_url.trim()).map_err(|error| refuse(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("it does not begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refuse(
            "it holds a user name or password; use api_key_env or headers",
        ));
    }
    Ok(url)
}

/// The URL of the streaming endpoint for `model`. A base URL that already names it is taken as it is.
pub(crate) fn endpoint(base: &Url, protocol: Protocol, model: &str) -> Url {
    let mut url = base.clone();
    if url.path().contains(MODEL_IN_PATH) {
        let named = url.path().replace(MODEL_IN_PATH, &segment(model));
        url.set_path(&named);
    }
    let path = url.path().trim_end_matches('/').to_owned();
    let wanted = protocol.path(model);
    if !path.ends_with(&format!("/{wanted}")) {
        // These vendors' own documents give the host alone.
        let version = match protocol {
            Protocol::AnthropicMessages if path.is_empty() => "/v1",
            Protocol::Gemini if path.is_empty() => "/v1beta",
            _ => "",
        };
        url.set_path(&format!("{path}{version}/{wanted}"));
    }
    if protocol == Protocol::Gemini && url.query_pairs().all(|(key, _)| key != "alt") {
        // Without it the answer is one JSON list, which is read, too, and comes in larger pieces.
        url.query_pairs_mut().append_pair("alt", "sse");
    }
    url
}

fn headers(settings: &ProviderSettings, dialect: Dialect) -> Result<HeaderMap, SettingsError> {
    let refuse = |header: &str| SettingsError::Header {
        provider: settings.name.clone(),
        header: header.to_owned(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let accept = match settings.protocol {
        Protocol::BedrockConverse => "application/vnd.amazon.eventstream",
        _ => "text/event-stream",
    };
    headers.insert(ACCEPT, HeaderValue::from_static(accept));
    if settings.protocol == Protocol::AnthropicMessages {
        headers.insert(
            "anthropic-version",
            HeaderValue::from_static(ANTHROPIC_VERSION),
        );
    }
    if let Some(key) = &settings.api_key {
        let (name, value) = match settings.protocol {
            Protocol::AnthropicMessages => (
                HeaderName::from_static("x-api-key"),
                key.expose().to_owned(),
            ),
            Protocol::OpenaiChat if dialect.facts().auth == Auth::ApiKey => {
                (HeaderName::from_static("api-key"), key.expose().to_owned())
            }
            Protocol::Gemini => (
                HeaderName::from_static("x-goog-api-key"),
                key.expose().to_owned(),
            ),
            _ => (AUTHORIZATION, format!("Bearer {}", key.expose())),
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| refuse(name.as_str()))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    for (name, value) in &settings.headers {
        let header = HeaderName::try_from(name.as_str()).map_err(|_| refuse(name))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| refuse(name))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

pub(crate) fn client(settings: &ProviderSettings, url: &Url) -> Result<Client, SettingsError> {
    static CRYPTO: Once = Once::new();
    // Fails only when a provider is installed already, which does as well.
    CRYPTO.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let mut builder = Client::builder()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIME.min(settings.first_byte_timeout))
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30));
    let local = is_loopback(url);
    if local {
        builder = builder.no_proxy();
    }
    if let Some(path) = &settings.ca_file {
        let refuse = |reason: String| SettingsError::CaFile {
            provider: settings.name.clone(),
            path: path.clone(),
            reason,
        };
        let pem = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem)
            .map_err(|error| refuse(error.to_string()))?;
        if certificates.is_empty() {
            return Err(refuse("it holds no PEM certificate".to_owned()));
        }
        builder = builder.tls_certs_merge(certificates);
    } else if url.scheme() == "http" && (local || !proxied_by_tls()) {
        // No TLS will be spoken: loading the system's certificates would only cost start-up time.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| SettingsError::Client {
        provider: settings.name.clone(),
        reason: failure::chain(&error),
    })
}

fn proxied_by_tls() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
        .iter()
        .any(|name| {
            std::env::var(name)
                .is_ok_and(|url| url.trim_start().to_ascii_lowercase().starts_with("https:"))
        })
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}
