//! The HTTP client of AWS's crates: the one everything else here uses.

use crate::http::client;
use crate::settings::{ProviderSettings, SettingsError};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use reqwest::{Client, Url};
use std::time::Duration;

/// No answer with keys is longer.
const ANSWER_LIMIT: usize = 1024 * 1024;
/// Where the crates set no limit.
const TIME: Duration = Duration::from_secs(20);

/// Two clients: AWS's own endpoints are asked over TLS as the provider's settings want it, what a container or a machine
/// has beside it never over a proxy.
#[derive(Debug, Clone)]
pub(super) struct OverHttp {
    secure: Client,
    near: Client,
    time: Duration,
}

impl OverHttp {
    /// With the settings' certificates.
    ///
    /// # Errors
    /// When they cannot be used.
    pub(super) fn new(settings: &ProviderSettings) -> Result<Self, SettingsError> {
        let url = |text: &str| Url::parse(text).expect("invariant: written here");
        Ok(Self {
            secure: client(settings, &url("https://sts.amazonaws.com"))?,
            // As for a server on this machine: without proxies and certificates.
            near: client(
                &ProviderSettings {
                    ca_file: None,
                    ..settings.clone()
                },
                &url("http://127.0.0.1"),
            )?,
            time: TIME,
        })
    }

    async fn ask(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = request
            .try_into_http1x()
            .map_err(|error| ConnectorError::user(error.into()))?;
        let (parts, body) = request.into_parts();
        let near = parts.uri.scheme_str() == Some("http");
        let client = if near { &self.near } else { &self.secure };
        let sending = client
            .request(parts.method, parts.uri.to_string())
            .headers(parts.headers)
            .body(body.bytes().unwrap_or_default().to_vec())
            .timeout(self.time);
        let mut response = sending.send().await.map_err(broken)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if bytes.len() + chunk.len() > ANSWER_LIMIT {
                let what = format!("an answer of more than {ANSWER_LIMIT} bytes");
                return Err(ConnectorError::other(what.into(), None));
            }
            bytes.extend_from_slice(&chunk);
        }
        let mut answer = http::Response::new(SdkBody::from(bytes));
        *answer.status_mut() = response.status();
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        HttpResponse::try_from(answer).map_err(|error| ConnectorError::other(error.into(), None))
    }
}

fn broken(error: reqwest::Error) -> ConnectorError {
    // Its address may hold a token of a sign-on.
    let error = error.without_url();
    if error.is_timeout() {
        ConnectorError::timeout(error.into())
    } else {
        ConnectorError::io(error.into())
    }
}

impl HttpConnector for OverHttp {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().ask(request))
    }
}

impl HttpClient for OverHttp {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let limits = [settings.connect_timeout(), settings.read_timeout()];
        let told: Duration = limits.into_iter().flatten().sum();
        SharedHttpConnector::new(Self {
            time: if told.is_zero() { TIME } else { told },
            ..self.clone()
        })
    }
}
