//! Errors as data: what a provider said, and why a step or an execution failed.

use crate::provider::replace_nul;
use serde::{Deserialize, Serialize};

/// What a provider's refusal or failure means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The request does not fit the model's context window: compact, then try again.
    ContextOverflow,
    /// The body is larger than the endpoint accepts.
    RequestTooLarge,
    /// Too many requests or tokens for now.
    RateLimit,
    /// The provider has no capacity for now.
    Overloaded,
    /// A missing or wrong key.
    Auth,
    /// The key may not do this.
    Permission,
    /// A quota or the credit is used up; not before its reset.
    Quota,
    /// No such model or endpoint.
    NotFound,
    /// The provider refuses the request's form.
    InvalidRequest,
    /// The provider's content policy stopped it.
    ContentFilter,
    /// The provider failed internally.
    Server,
    /// No connection came about: nothing was sent, nothing was run, nothing costs.
    Unsent,
    /// The connection broke before an answer began: what the provider did is unknown.
    Transport,
    /// Nothing came within the first-byte limit, or no content within the idle limit.
    Timeout,
    /// The stream ended without the protocol's own end.
    Cut,
    /// The stream said something the protocol does not allow.
    Protocol,
    /// A class this version does not know.
    #[serde(other)]
    Unknown,
}

impl ErrorClass {
    /// Is the same request, unchanged, worth repeating?
    pub fn retryable(self) -> bool {
        matches!(
            self,
            Self::RateLimit
                | Self::Overloaded
                | Self::Server
                | Self::Unsent
                | Self::Transport
                | Self::Timeout
                | Self::Cut
                | Self::Protocol
                | Self::Unknown
        )
    }

    /// The class as it is written in events and shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ContextOverflow => "context_overflow",
            Self::RequestTooLarge => "request_too_large",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Auth => "auth",
            Self::Permission => "permission",
            Self::Quota => "quota",
            Self::NotFound => "not_found",
            Self::InvalidRequest => "invalid_request",
            Self::ContentFilter => "content_filter",
            Self::Server => "server",
            Self::Unsent => "unsent",
            Self::Transport => "transport",
            Self::Timeout => "timeout",
            Self::Cut => "cut",
            Self::Protocol => "protocol",
            Self::Unknown => "unknown",
        }
    }
}

/// The code of a [`ProviderError`] for a response longer than any answer is: it is not asked for again, however much its
/// class would allow it.
pub const RESPONSE_TOO_LONG: &str = "response_too_long";

/// A provider's error, without any secret. Durable in `attempt.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ProviderError {
    /// What it means for the caller.
    pub class: ErrorClass,
    /// What happened, for people; at most 2,000 characters.
    pub message: String,
    /// The provider's own code or type, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// HTTP status, if a response came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks us to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl ProviderError {
    /// Did the provider certainly do nothing that it would bill? Only before an answer began. A gateway that gave up
    /// waiting (502, 504) says nothing of what stands behind it.
    pub fn unbilled(&self) -> bool {
        match self.class {
            ErrorClass::ContextOverflow
            | ErrorClass::RequestTooLarge
            | ErrorClass::RateLimit
            | ErrorClass::Overloaded
            | ErrorClass::Auth
            | ErrorClass::Permission
            | ErrorClass::Quota
            | ErrorClass::NotFound
            | ErrorClass::InvalidRequest
            | ErrorClass::Unsent => true,
            ErrorClass::Server => matches!(self.status, Some(500 | 501 | 503)),
            _ => false,
        }
    }

    /// An error of `class` with a message and nothing else known.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            code: None,
            status: None,
            retry_after_ms: None,
        }
    }
}

/// Why a step, compaction or execution failed, as its terminal event says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    /// A stable word: an [`ErrorClass`], or `violation`, `interrupted`, `crashed`, `shutdown`,
    /// `stale_attachment`, `step_limit`, `budget`, `unusable`, `unusable_summary`, `internal`.
    pub kind: String,
    /// What happened and what to do next, for people.
    pub message: String,
    /// The provider's own code or type, if one was given: what it refuses is often said by that alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl SessionError {
    /// An error of `kind` saying `message`; what others say may hold a NUL, which no store takes.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        let mut message = message.into();
        replace_nul(&mut message);
        Self {
            kind: kind.into(),
            message,
            code: None,
        }
    }
}

impl SessionError {
    /// Was the work stopped from outside (by a person, a lost owner, a shutdown, a move) and did not fail by itself?
    pub fn was_stopped(&self) -> bool {
        ["interrupted", "crashed", "shutdown", "stale_attachment"].contains(&self.kind.as_str())
    }
}

impl From<&ProviderError> for SessionError {
    fn from(error: &ProviderError) -> Self {
        let mut code = error.code.clone();
        code.iter_mut().for_each(replace_nul);
        Self {
            code,
            ..Self::new(error.class.as_str(), error.message.clone())
        }
    }
}
