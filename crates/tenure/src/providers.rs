//! The configured providers as the engine takes them: keys are read and clients made when first needed.

use crate::config::origin::Setting;
use crate::config::resolve::{KeySource, ProviderConfig};
use crate::config::{Config, StoreUrl, store_url};
use crate::exit::{CliError, CliResult};
use async_trait::async_trait;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::model::ModelRef;
use tenure_core::request::Request;
use tenure_engine::Models;
use tenure_provider::{
    AWS_SECRET_ENV, AttemptKey, AwsKeys, AwsSettings, Catalogue, Encoded, EventStream,
    HttpProvider, Protocol, Provider, ProviderSettings, Secret,
};

/// The file of the refreshed table of models.
pub fn refreshed(config: &Config) -> PathBuf {
    config.folders.data.join("models.tsv")
}

/// What is known of the models of the configured providers.
pub fn catalogue(config: &Config) -> Catalogue {
    let mut catalogue = Catalogue::new().with_refreshed(refreshed(config));
    for (name, provider) in &config.providers {
        if let Some(vendor) = &provider.catalogue {
            catalogue.is_vendor(name, &vendor.value);
        }
        for (model, settings) in &provider.models {
            let reference = ModelRef {
                provider: name.clone(),
                model: model.clone(),
            };
            catalogue.declare(&reference, settings.value.clone());
        }
    }
    catalogue
}

/// All configured models. A provider whose key is missing fails when it is asked, not before.
pub fn models(config: &Config) -> Models {
    let mut models = Models::new(catalogue(config));
    for (name, provider) in &config.providers {
        let lazy = LazyProvider {
            name: name.clone(),
            config: provider.clone(),
            made: OnceLock::new(),
        };
        models = models.with(name.clone(), Arc::new(lazy));
    }
    models
}

/// The provider's settings with its key.
///
/// # Errors
/// A usage error when the key cannot be read; it never holds any part of the key.
pub fn settings(name: &str, provider: &ProviderConfig) -> CliResult<ProviderSettings> {
    let mut settings = ProviderSettings::new(
        name,
        provider.protocol.value,
        provider.base_url.value.clone(),
    );
    settings.dialect = provider.dialect.as_ref().map(|dialect| dialect.value);
    if let Some(key) = &provider.key {
        let read = match &key.value {
            KeySource::Env(var) => Secret::from_env(var),
            KeySource::File(path) => Secret::from_file(path),
        };
        settings.api_key = Some(read.map_err(|e| {
            CliError::usage(format!("provider {name}: {e}"))
                .hint(format!("the key's place is set in {}", key.origin))
        })?);
    }
    settings.aws = aws(name, provider)?;
    settings.headers = provider
        .headers
        .iter()
        .map(|(k, v)| (k.clone(), v.value.clone()))
        .collect();
    settings.ca_file = provider.ca_file.as_ref().map(|file| file.value.clone());
    if let Some(limit) = &provider.first_byte_timeout {
        settings.first_byte_timeout = limit.value;
    }
    if let Some(limit) = &provider.idle_timeout {
        settings.idle_timeout = limit.value;
    }
    settings.models = provider
        .models
        .iter()
        .map(|(k, v)| (k.clone(), v.value.clone()))
        .collect();
    Ok(settings)
}

/// Where AWS is to be asked, with the keys of the provider's own.
fn aws(name: &str, provider: &ProviderConfig) -> CliResult<AwsSettings> {
    let aws = &provider.aws;
    let value = |setting: &Option<Setting<String>>| setting.as_ref().map(|s| s.value.clone());
    let read = |var: &str| {
        Secret::from_env(var).map_err(|e| CliError::usage(format!("provider {name}: {e}")))
    };
    let keys = match &aws.keys {
        Some(names) => Some(AwsKeys {
            id: read(&names.value.id)?,
            secret: read(&names.value.secret)?,
            token: names.value.token.as_deref().map(read).transpose()?,
        }),
        None => None,
    };
    Ok(AwsSettings {
        region: value(&aws.region),
        profile: value(&aws.profile),
        keys,
    })
}

/// Checks that a model can be asked by this process: its provider is configured and its key can be read.
///
/// # Errors
/// A usage error with the next step.
pub fn check(config: &Config, model: &ModelRef) -> CliResult {
    let provider = config.providers.get(&model.provider).ok_or_else(|| {
        CliError::usage(format!(
            "the session's model is {model}, and there is no provider `{}`",
            model.provider
        ))
        .near(&model.provider, config.providers.keys())
        .hint("configure it, or choose another model with --model")
    })?;
    can_ask(&model.provider, provider)
}

/// Checks that a provider's models can be asked by this process, as far as that is known without asking.
///
/// # Errors
/// A usage error that says what is missing.
pub fn can_ask(name: &str, provider: &ProviderConfig) -> CliResult {
    let settings = settings(name, provider)?;
    HttpProvider::new(settings).map_err(|e| CliError::usage(e.to_string()))?;
    Ok(())
}

/// Every key that can be read now, for masking. Unreadable ones mask nothing.
pub fn known_secrets(config: &Config) -> Vec<String> {
    let keys = config.providers.iter().filter_map(|(name, provider)| {
        let settings = settings(name, provider).ok()?;
        let aws = settings.aws.keys.map(|keys| keys.secret);
        Some(settings.api_key.into_iter().chain(aws))
    });
    let keys = keys.flatten().map(|key| key.expose().to_owned());
    let shared = AWS_SECRET_ENV
        .iter()
        .filter(|_| config.providers.values().any(speaks_aws))
        .filter_map(|name| Secret::from_env(name).ok())
        .map(|key| key.expose().to_owned())
        .collect::<Vec<_>>();
    let keys = keys.chain(shared);
    let headers = config.providers.values().flat_map(|p| p.headers.iter());
    let headers = headers
        .filter(|(name, _)| is_secret_header(name))
        .map(|(_, value)| {
            value
                .value
                .rsplit(' ')
                .next()
                .unwrap_or_default()
                .to_owned()
        });
    let password = match &config.store.value {
        StoreUrl::Postgres(url) => config.store_password.complete(url).ok(),
        StoreUrl::Sqlite(_) => None,
    };
    let password = password
        .as_deref()
        .and_then(store_url::password)
        .map(store_url::unescaped);
    // A very short one would be found everywhere.
    let password = password.filter(|password| password.len() >= 6);
    keys.chain(headers).chain(password).collect()
}

/// `text` without any of `secrets`; true when there was one.
pub fn mask(text: &mut String, secrets: &[String]) -> bool {
    let masked = secrets
        .iter()
        .fold(text.clone(), |text, secret| Secret::new(secret).mask(&text));
    let found = masked != *text;
    *text = masked;
    found
}

fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "key", "token", "secret", "cookie"]
        .iter()
        .any(|word| name.contains(word))
}

/// Names of the environment variables that hold keys: no tool may see them.
pub fn secret_env(config: &Config) -> Vec<String> {
    let vars = config
        .providers
        .values()
        .filter_map(|p| match &p.key.as_ref()?.value {
            KeySource::Env(var) => Some(var.clone()),
            KeySource::File(_) => None,
        });
    let aws = config.providers.values().filter(|p| speaks_aws(p));
    let aws = aws.flat_map(|provider| {
        let own = provider.aws.keys.as_ref().map(|keys| keys.value.clone());
        let own = own.into_iter().flat_map(|names| {
            [Some(names.id), Some(names.secret), names.token]
                .into_iter()
                .flatten()
        });
        AWS_SECRET_ENV
            .iter()
            .map(|name| (*name).to_owned())
            .chain(own)
    });
    // The store's password may stand in these.
    let store: &[&str] = match &config.store.value {
        StoreUrl::Postgres(_) => &["TENURE_STORE", "PGPASSWORD", "PGPASSFILE"],
        StoreUrl::Sqlite(_) => &[],
    };
    vars.chain(aws)
        .chain(store.iter().map(|name| (*name).to_owned()))
        .collect()
}

/// Does it find its keys where AWS's own programs do?
fn speaks_aws(provider: &ProviderConfig) -> bool {
    provider.protocol.value == Protocol::BedrockConverse
}

struct LazyProvider {
    name: String,
    config: ProviderConfig,
    made: OnceLock<Result<HttpProvider, ProviderError>>,
}

impl LazyProvider {
    fn made(&self) -> Result<&HttpProvider, ProviderError> {
        let made = self.made.get_or_init(|| {
            let settings = settings(&self.name, &self.config)
                .map_err(|e| ProviderError::new(ErrorClass::Auth, e.message))?;
            HttpProvider::new(settings)
                .map_err(|e| ProviderError::new(ErrorClass::InvalidRequest, e.to_string()))
        });
        made.as_ref().map_err(Clone::clone)
    }
}

#[async_trait]
impl Provider for LazyProvider {
    fn protocol(&self) -> &'static str {
        self.config.protocol.value.as_str()
    }

    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError> {
        self.made()?.encode(request)
    }

    async fn send(
        &self,
        encoded: Encoded,
        attempt: &AttemptKey,
    ) -> Result<EventStream, ProviderError> {
        let sent = self.made()?.send(encoded, attempt).await;
        sent.map_err(|error| self.with_key_place(error))
    }
}

impl LazyProvider {
    /// Whoever has to mend a refused key must know which one it was.
    fn with_key_place(&self, mut error: ProviderError) -> ProviderError {
        if matches!(error.class, ErrorClass::Auth | ErrorClass::Permission) {
            let text = error.message.trim_end().trim_end_matches('.');
            error.message = format!("{text}; {}", key_place(&self.name, &self.config));
        }
        error
    }
}

/// Where a provider's key is read from, in words. No part of the key is in them.
pub fn key_place(name: &str, provider: &ProviderConfig) -> String {
    match provider.key.as_ref().map(|key| (&key.value, &key.origin)) {
        Some((KeySource::Env(var), origin)) => {
            format!("the key of provider {name} is that of the variable {var} ({origin})")
        }
        Some((KeySource::File(path), origin)) => {
            format!(
                "the key of provider {name} is that of the file {} ({origin})",
                path.display()
            )
        }
        None if speaks_aws(provider) => {
            format!("the keys of provider {name} are found as AWS's own programs find them")
        }
        None if provider
            .headers
            .keys()
            .any(|header| is_secret_header(header)) =>
        {
            format!("the key of provider {name} stands in its headers")
        }
        None => format!(
            "provider {name} has no key: set api_key_env or api_key_file in [providers.{name}]"
        ),
    }
}
