//! How one provider is configured, checked before anything is sent.

use crate::aws::AwsSettings;
use crate::catalogue::ModelSettings;
use crate::dialect::Dialect;
use crate::secret::Secret;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The wire protocols this crate speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// OpenAI Chat Completions and everything that imitates it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// Google Gemini, `streamGenerateContent`.
    Gemini,
    /// AWS Bedrock ConverseStream. Spoken only by a build with the feature `bedrock`.
    BedrockConverse,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 5] = [
        Self::OpenaiChat,
        Self::OpenaiResponses,
        Self::AnthropicMessages,
        Self::Gemini,
        Self::BedrockConverse,
    ];

    /// Can this build speak it? Bedrock needs the feature `bedrock`.
    pub const fn is_built(self) -> bool {
        !matches!(self, Self::BedrockConverse) || cfg!(feature = "bedrock")
    }

    /// The word used in configuration and native state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
            Self::Gemini => "gemini",
            Self::BedrockConverse => "bedrock-converse",
        }
    }

    /// The path of the streaming endpoint for `model`, appended to the base URL; percent-encoded.
    pub fn path(self, model: &str) -> Cow<'static, str> {
        match self {
            Self::OpenaiChat => Cow::Borrowed("chat/completions"),
            Self::OpenaiResponses => Cow::Borrowed("responses"),
            Self::AnthropicMessages => Cow::Borrowed("messages"),
            Self::Gemini => {
                let name = model.strip_prefix("models/").unwrap_or(model);
                Cow::Owned(format!("models/{}:streamGenerateContent", segment(name)))
            }
            Self::BedrockConverse => {
                Cow::Owned(format!("model/{}/converse-stream", segment(model)))
            }
        }
    }
}

/// `text` as one segment of a path: everything but letters, digits and `-._~` is percent-encoded, as
/// signatures over the path want it.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl FromStr for Protocol {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Self, SettingsError> {
        Self::ALL
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| SettingsError::Protocol {
                given: text.to_owned(),
            })
    }
}

/// One provider of the configuration. `Debug` never shows the key or header values.
#[derive(Clone)]
pub struct ProviderSettings {
    /// Its name in the configuration.
    pub name: String,
    /// What it speaks.
    pub protocol: Protocol,
    /// URL up to and with the version, such as `https://api.example.com/v1`. `{model}` in its path stands for
    /// the model asked, for endpoints that want it there. For Bedrock, empty means the region's own.
    pub base_url: String,
    /// Which server of Chat Completions it is; none leaves that to the host's name.
    pub dialect: Option<Dialect>,
    /// The key; sent as the protocol wants it.
    pub api_key: Option<Secret>,
    /// Where an AWS endpoint is, and whose keys sign.
    pub aws: AwsSettings,
    /// Further headers; they win over the ones made here.
    pub headers: BTreeMap<String, String>,
    /// PEM file with certificates to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Until the first event with content. Comments and pings do not count.
    pub first_byte_timeout: Duration,
    /// Between two events with content.
    pub idle_timeout: Duration,
    /// Declared limits by model name.
    pub models: BTreeMap<String, ModelSettings>,
}

impl ProviderSettings {
    /// Settings with the default limits: 300 s to the first content and between contents. Models that
    /// think in silence need minutes.
    pub fn new(name: impl Into<String>, protocol: Protocol, base_url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            protocol,
            base_url: base_url.into(),
            dialect: None,
            api_key: None,
            aws: AwsSettings::default(),
            headers: BTreeMap::new(),
            ca_file: None,
            first_byte_timeout: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(300),
            models: BTreeMap::new(),
        }
    }
}

impl std::fmt::Debug for ProviderSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("name", &self.name)
            .field("protocol", &self.protocol)
            .field("base_url", &crate::settings::shown_url(&self.base_url))
            .field("dialect", &self.dialect)
            .field("api_key", &self.api_key)
            .field("aws", &self.aws)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("ca_file", &self.ca_file)
            .field("first_byte_timeout", &self.first_byte_timeout)
            .field("idle_timeout", &self.idle_timeout)
            .field("models", &self.models)
            .finish()
    }
}

/// A URL for people: without user, password, query and fragment, where keys hide.
pub(crate) fn shown_url(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let url = &url[..end];
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let host_end = rest.find('/').unwrap_or(rest.len());
            let host_start = rest[..host_end].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[host_start..])
        }
        None => url.to_owned(),
    }
}

/// Why a provider's settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Unknown protocol word.
    #[error(
        "unknown protocol {given:?}: use one of {}",
        Protocol::ALL.map(Protocol::as_str).join(", ")
    )]
    Protocol {
        /// What was given.
        given: String,
    },
    /// The protocol is known, but this build cannot speak it.
    #[error(
        "provider {provider}: this build cannot speak {}: build it with `--features {feature}`, or use another provider",
        protocol.as_str()
    )]
    NotBuilt {
        /// The provider.
        provider: String,
        /// The protocol.
        protocol: Protocol,
        /// The cargo feature that is missing.
        feature: &'static str,
    },
    /// Unknown dialect word.
    #[error("unknown dialect {given:?}: use one of {known}, or leave it out")]
    Dialect {
        /// What was given.
        given: String,
        /// The words there are.
        known: String,
    },
    /// Nothing says in which region of AWS the models are.
    #[error(
        "provider {provider}: no AWS region: set region (such as us-east-1), AWS_REGION, or one in the profile"
    )]
    Region {
        /// The provider.
        provider: String,
    },
    /// The base URL is not an http(s) URL with a host.
    #[error(
        "provider {provider}: base_url {given:?} is not usable ({reason}): give something like https://api.example.com/v1"
    )]
    BaseUrl {
        /// The provider.
        provider: String,
        /// The URL, without credentials.
        given: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header that HTTP cannot carry.
    #[error(
        "provider {provider}: the header {header:?} has a name or value that HTTP cannot carry: correct it"
    )]
    Header {
        /// The provider.
        provider: String,
        /// The header's name.
        header: String,
    },
    /// The CA file cannot be used.
    #[error("provider {provider}: ca_file {}: {reason}", path.display())]
    CaFile {
        /// The provider.
        provider: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A time limit of zero.
    #[error("provider {provider}: {limit} is zero: give a number of seconds above zero")]
    Limit {
        /// The provider.
        provider: String,
        /// The setting.
        limit: &'static str,
    },
    /// The HTTP client could not be made.
    #[error("provider {provider}: the HTTP client could not be set up: {reason}")]
    Client {
        /// The provider.
        provider: String,
        /// What the client library said.
        reason: String,
    },
}
