//! AWS endpoints: their region, whose keys are used, and the signature of a request.

use crate::secret::Secret;

#[cfg(all(feature = "bedrock", feature = "client"))]
mod chain;
#[cfg(all(feature = "bedrock", feature = "client"))]
mod keys;
#[cfg(all(feature = "bedrock", feature = "client"))]
mod over_http;
#[cfg(all(feature = "bedrock", feature = "client"))]
mod profile;
#[cfg(feature = "bedrock")]
mod sign;

#[cfg(all(feature = "bedrock", feature = "client"))]
pub(crate) use keys::Aws;
#[cfg(feature = "bedrock")]
pub use sign::sign;

/// An access key, with the token of a session where it is a temporary one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsKeys {
    /// The id of the access key; not secret, but nobody's business.
    pub id: Secret,
    /// The access key itself.
    pub secret: Secret,
    /// The session's token.
    pub token: Option<Secret>,
}

#[cfg(all(feature = "bedrock", feature = "client"))]
impl AwsKeys {
    /// All parts that an endpoint must not be able to echo.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = Secret> {
        [
            Some(self.id.clone()),
            Some(self.secret.clone()),
            self.token.clone(),
        ]
        .into_iter()
        .flatten()
    }
}

/// What a provider's configuration says of AWS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AwsSettings {
    /// The region, such as `us-east-1`; else `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile's.
    pub region: Option<String>,
    /// A profile of AWS's shared files, before any key in the environment; else `AWS_PROFILE`, `default`.
    pub profile: Option<String>,
    /// Keys of this provider's own, before a profile and the environment.
    pub keys: Option<AwsKeys>,
}

/// The environment variables that hold keys of AWS: no tool may see them.
pub const AWS_SECRET_ENV: [&str; 4] = [
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
