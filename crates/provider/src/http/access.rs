//! How a request is authorised when a fixed header does not do.

#[cfg(feature = "bedrock")]
use crate::aws::Aws;
use crate::secret::Secret;
use crate::settings::{Protocol, ProviderSettings, SettingsError};
use http::HeaderMap;
use reqwest::Url;
use std::time::SystemTime;
use tenure_core::error::ProviderError;

/// Signs what has to be signed.
pub(super) struct Access {
    #[cfg(feature = "bedrock")]
    aws: Option<Aws>,
}

impl Access {
    /// What the settings ask for, and the address they leave out, filled in.
    ///
    /// # Errors
    /// When the build cannot sign, or the region is unknown.
    pub fn of(settings: &mut ProviderSettings) -> Result<Self, SettingsError> {
        if settings.protocol != Protocol::BedrockConverse {
            return Ok(Self {
                #[cfg(feature = "bedrock")]
                aws: None,
            });
        }
        Self::of_aws(settings)
    }

    #[cfg(feature = "bedrock")]
    fn of_aws(settings: &mut ProviderSettings) -> Result<Self, SettingsError> {
        let aws = Aws::find(settings)?;
        if settings.base_url.trim().is_empty() {
            settings.base_url = aws.base_url();
        }
        Ok(Self { aws: Some(aws) })
    }

    #[cfg(not(feature = "bedrock"))]
    fn of_aws(settings: &mut ProviderSettings) -> Result<Self, SettingsError> {
        Err(SettingsError::NotBuilt {
            provider: settings.name.clone(),
            protocol: settings.protocol,
            feature: "bedrock",
        })
    }

    /// What is known already and must never be shown.
    pub fn secrets(&self) -> Vec<Secret> {
        #[cfg(feature = "bedrock")]
        if let Some(aws) = &self.aws {
            return aws.secrets();
        }
        Vec::new()
    }

    /// Adds what authorises a POST of `body` to `url` at `time`; gives what must not be shown of it.
    ///
    /// # Errors
    /// `Auth` when there are no keys.
    #[cfg_attr(
        not(feature = "bedrock"),
        expect(
            clippy::unused_async,
            reason = "reading keys takes time in other builds"
        )
    )]
    pub async fn authorise(
        &self,
        headers: &mut HeaderMap,
        url: &Url,
        body: &[u8],
        time: SystemTime,
    ) -> Result<Vec<Secret>, ProviderError> {
        #[cfg(feature = "bedrock")]
        if let Some(aws) = &self.aws {
            return aws.authorise(headers, url.as_str(), body, time).await;
        }
        let _ = (headers, url, body, time);
        Ok(Vec::new())
    }
}
