//! Keys that AWS gives for the asking, by its own crate: single sign-on, assumed roles, web identities, and what a
//! container or a machine is given.

use super::AwsKeys;
use super::over_http::OverHttp;
use crate::http::failure::add_causes;
use crate::secret::Secret;
use crate::settings::ProviderSettings;
use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::imds;
use aws_config::provider_config::ProviderConfig;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use std::time::{Duration, SystemTime};
use tokio::sync::OnceCell;

/// Nobody waits longer for keys: a sign-on that ended wants a person, not patience.
const TIME: Duration = Duration::from_secs(30);

/// The places AWS's crate looks in, in its order. Nothing is read or asked before the first keys are wanted.
pub(super) struct Chain {
    settings: ProviderSettings,
    region: String,
    profile: String,
    /// Where the metadata of a machine is, if not where AWS has it.
    machine: Option<String>,
    ready: OnceCell<DefaultCredentialsChain>,
}

impl Chain {
    /// For a profile's name, which need not exist.
    pub(super) fn new(settings: &ProviderSettings, region: &str, profile: &str) -> Self {
        Self {
            settings: settings.clone(),
            region: region.to_owned(),
            profile: profile.to_owned(),
            machine: None,
            ready: OnceCell::new(),
        }
    }

    /// With the metadata of a machine at another address.
    #[cfg(test)]
    pub(super) fn at_machine(mut self, url: &str) -> Self {
        self.machine = Some(url.to_owned());
        self
    }

    /// Keys, and when they end.
    ///
    /// Cancellation: dropping the future drops what was asked.
    ///
    /// # Errors
    /// Why no place has any, in words without a key.
    pub(super) async fn keys(&self) -> Result<(AwsKeys, Option<SystemTime>), String> {
        let chain = self.ready.get_or_try_init(|| self.build()).await?;
        let asked = tokio::time::timeout(TIME, chain.provide_credentials()).await;
        let given = match asked {
            Ok(given) => given.map_err(|error| words(&error))?,
            Err(_) => return Err(format!("nobody answered within {} s", TIME.as_secs())),
        };
        let keys = AwsKeys {
            id: Secret::new(given.access_key_id()),
            secret: Secret::new(given.secret_access_key()),
            token: given.session_token().map(Secret::new),
        };
        Ok((keys, given.expiry()))
    }

    async fn build(&self) -> Result<DefaultCredentialsChain, String> {
        let http = OverHttp::new(&self.settings).map_err(|error| error.to_string())?;
        let region = Region::new(self.region.clone());
        let config = ProviderConfig::without_region()
            .with_behavior_version(Some(BehaviorVersion::latest()))
            .with_region(Some(region.clone()))
            .with_http_client(http);
        // On any other machine nobody answers there: it is asked once.
        let mut machine = imds::Client::builder().configure(&config).max_attempts(1);
        if let Some(url) = &self.machine {
            machine = machine.endpoint(url).map_err(|error| error.to_string())?;
        }
        Ok(DefaultCredentialsChain::builder()
            .region(region)
            .profile_name(&self.profile)
            .imds_client(machine.build())
            .configure(config)
            .build()
            .await)
    }
}

/// An error with its causes. The crate's errors name places and codes, never keys.
fn words(error: &CredentialsError) -> String {
    let mut parts = vec![error.to_string()];
    add_causes(&mut parts, error);
    let mut text = parts.join(": ");
    crate::classify::shorten(&mut text, 500);
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::settings::Protocol;
    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A machine's metadata service with one role, or with none. Tells what it was asked.
    pub(in crate::aws) async fn machine(role: bool) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).await.unwrap_or(0) > 0
                {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let line = head.lines().next().unwrap_or_default().to_owned();
                let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                let body = match path.rsplit('/').find(|part| !part.is_empty()) {
                    Some("token") => Some("a-session".to_owned()),
                    Some("role-1") => Some(
                        r#"{"Code":"Success","Type":"AWS-HMAC","LastUpdated":"2026-01-01T00:00:00Z","AccessKeyId":"ASIAEXAMPLE","SecretAccessKey":"made-up","Token":"of-the-role","Expiration":"2099-01-01T00:00:00Z"}"#.to_owned(),
                    ),
                    Some(last) if role && last.starts_with("security-credentials") => Some("role-1".to_owned()),
                    _ => None,
                };
                seen.lock().unwrap().push(line);
                let (status, body) =
                    body.map_or(("404 Not Found", String::new()), |b| ("200 OK", b));
                let answer = format!(
                    "HTTP/1.1 {status}\r\nx-aws-ec2-metadata-token-ttl-seconds: 300\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        (url, asked)
    }

    pub(in crate::aws) fn chain(url: &str) -> Chain {
        let settings = ProviderSettings::new("aws", Protocol::BedrockConverse, "");
        Chain::new(&settings, "us-east-1", "a-profile-nobody-has").at_machine(url)
    }

    #[tokio::test]
    async fn a_machine_s_role_gives_keys_that_end() {
        let (url, asked) = machine(true).await;
        let (keys, until) = chain(&url).keys().await.unwrap();
        assert_eq!(keys.id.expose(), "ASIAEXAMPLE");
        assert_eq!(keys.secret.expose(), "made-up");
        assert_eq!(keys.token.unwrap().expose(), "of-the-role");
        assert!(until.unwrap() > SystemTime::now());
        let asked = asked.lock().unwrap();
        assert!(asked[0].starts_with("PUT /latest/api/token"), "{asked:?}");
    }

    #[tokio::test]
    async fn where_nobody_has_keys_the_reason_is_told() {
        let (url, asked) = machine(false).await;
        let why = chain(&url).keys().await.unwrap_err();
        assert!(!why.is_empty() && why.chars().count() <= 500, "{why}");
        assert!(!asked.lock().unwrap().is_empty());
    }
}
