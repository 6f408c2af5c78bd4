//! What a provider's error means: by its codes, then by every vendor's wording, then by HTTP status.

mod overflow;
mod retry_after;
mod said;

pub use overflow::{output_that_fits, window_said};
pub use retry_after::retry_after;

use http::HeaderMap;
use said::Said;
use serde_json::Value;
use std::time::SystemTime;
use tenure_core::error::{ErrorClass, ProviderError};

/// Classifies an HTTP answer that is no stream. `now` is only used for a date in `retry-after` when the
/// answer has no `date` of its own.
pub fn classify(status: u16, headers: &HeaderMap, body: &[u8], now: SystemTime) -> ProviderError {
    let mut said = Said::of_body(body);
    if let Some(kind) = headers
        .get("x-amzn-errortype")
        .and_then(|v| v.to_str().ok())
    {
        said.add_code(kind.split(':').next().unwrap_or(kind));
    }
    let wait = retry_after(headers, now).or_else(|| said.delay_ms(now));
    let class = class_of(Some(status), &said, wait);
    let forbidden = headers
        .get("x-should-retry")
        .is_some_and(|v| v.as_bytes() == b"false");
    ProviderError {
        class,
        message: message(class, Some(status), &said),
        code: code(&said),
        status: Some(status),
        retry_after_ms: wait.filter(|_| !forbidden && may_wait(class)),
    }
}

/// Classifies an error that came inside a stream of status 200. Takes the error object or the whole event.
pub fn classify_event(error: &Value) -> ProviderError {
    let said = Said::of_value(error);
    let wait = said.delay_ms(SystemTime::UNIX_EPOCH);
    let class = class_of(said.status(), &said, wait);
    ProviderError {
        class,
        message: message(class, None, &said),
        code: code(&said),
        status: None,
        retry_after_ms: wait.filter(|_| may_wait(class)),
    }
}

fn may_wait(class: ErrorClass) -> bool {
    class.retryable() || class == ErrorClass::Quota
}

fn class_of(status: Option<u16>, said: &Said, wait: Option<u64>) -> ErrorClass {
    let status = status.unwrap_or(0);
    if at_capacity(said) {
        return ErrorClass::Overloaded;
    }
    let limited = rate_limited(status, said);
    if content_filtered(said) {
        return ErrorClass::ContentFilter;
    }
    if said.any_code(&HARD_QUOTA) {
        return ErrorClass::Quota;
    }
    if !limited && overflow::is_overflow(status, said) {
        return ErrorClass::ContextOverflow;
    }
    if !short_window(said) && quota_worded(said) {
        // A quota that comes back within the hour is a rate limit by another name (Google words it so).
        let soon = said.any_code(&["resource_exhausted"]) && wait.is_some_and(|ms| ms < 3_600_000);
        return if soon {
            ErrorClass::RateLimit
        } else {
            ErrorClass::Quota
        };
    }
    if limited {
        // A single request above the limit per minute never passes by waiting; a smaller one does.
        return if status == 413 {
            ErrorClass::RequestTooLarge
        } else {
            ErrorClass::RateLimit
        };
    }
    by_code(said)
        .or_else(|| by_status(status, said))
        .unwrap_or_else(|| by_wording(status, said))
}

const HARD_QUOTA: [&str; 9] = [
    "insufficient_quota",
    "usage_limit_reached",
    "user_quota_exceeded",
    "exceeded_current_quota_error",
    "billing_hard_limit_reached",
    "insufficient_credits",
    "billing_error",
    "billing_not_active",
    "servicequotaexceededexception",
];

/// Mistral's backend has no room for its service tier, whatever the request's own limits: 429 or 503, with the code 3505.
fn at_capacity(said: &Said) -> bool {
    said.any_code(&["3505", "service_tier_capacity_exceeded"])
        || said.has_any(&["service tier capacity exceeded"])
}

fn short_window(said: &Said) -> bool {
    said.has_any(&[
        "per minute",
        "per min",
        "(tpm)",
        "(rpm)",
        "per second",
        "per day",
        "(tpd)",
        "(rpd)",
        " tpd ",
        " tpm ",
        " rpm ",
    ])
}

fn rate_limited(status: u16, said: &Said) -> bool {
    let codes = [
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limit_reached_error",
        "ratelimitreached",
        "rate_limited",
        "too_many_requests",
        "throttlingexception",
        "throttling",
        "token_quota_exceeded",
        "too_many_tokens_error",
    ];
    said.any_code(&codes)
        || said.has_any(&[
            "rate limit",
            "rate-limit",
            "ratelimit",
            "too many requests",
            "throttl",
            "too many tokens, please wait",
        ])
        || (short_window(said) && said.has_any(&["limit", "too many"]))
        || (status == 429
            && !said.any_code(&overflow::CODES)
            && !said.any_code(&["modelnotreadyexception"]))
}

fn quota_worded(said: &Said) -> bool {
    let windows = [
        "5-hour",
        "5 hour",
        "five-hour",
        "five hour",
        "weekly",
        "monthly",
        "daily",
    ];
    let used_up = ["reached", "exceeded", "used up", "exhausted", "hit your"];
    said.has_any(&[
        "exceeded your current quota",
        "exceeded current quota",
        "insufficient balance",
        "insufficient credit",
        "requires more credits",
        "credit balance is too low",
        "out of credits",
        "usage limit",
        "quota has been exhausted",
        "billing hard limit",
    ]) || (said.has_any(&windows) && said.has_any(&["limit", "quota"]) && said.has_any(&used_up))
}

fn content_filtered(said: &Said) -> bool {
    said.any_code(&[
        "content_filter",
        "responsibleaipolicyviolation",
        "data_inspection_failed",
        "content_policy_violation",
    ]) || said.has_any(&[
        "content management policy",
        "content filtering policy",
        "content exists risk",
        "inappropriate content",
        "violating our usage policy",
        "violates our usage policies",
        "blocked by content filter",
    ])
}

fn by_code(said: &Said) -> Option<ErrorClass> {
    let table: [(&[&str], ErrorClass); 8] = [
        (
            &[
                "authentication_error",
                "invalid_api_key",
                "api_key_invalid",
                "unauthenticated",
                "unrecognizedclientexception",
                "expiredtokenexception",
                "invalidsignatureexception",
                "missingauthenticationtokenexception",
                "incompletesignatureexception",
                "invalid_authentication_error",
            ],
            ErrorClass::Auth,
        ),
        (
            &[
                "model_not_found",
                "not_found_error",
                "not_found",
                "resource_not_found_error",
                "resourcenotfoundexception",
                "invalid_model",
                "deploymentnotfound",
            ],
            ErrorClass::NotFound,
        ),
        (
            &[
                "permission_error",
                "permission_denied",
                "accessdeniedexception",
                "access_denied",
                "forbidden",
                "insufficient_permissions",
            ],
            ErrorClass::Permission,
        ),
        (
            &[
                "overloaded_error",
                "overloaded",
                "engine_overloaded",
                "engine_overloaded_error",
                "server_overloaded",
                "unavailable",
                "service_unavailable",
                "serviceunavailableexception",
                "modelnotreadyexception",
                "slow_down",
                "modelnotreadyexception",
            ],
            ErrorClass::Overloaded,
        ),
        (
            &["request_too_large", "payload_too_large"],
            ErrorClass::RequestTooLarge,
        ),
        (
            &[
                "modelstreamerrorexception",
                "modelerrorexception",
                "internalserverexception",
                "internalerror",
            ],
            ErrorClass::Server,
        ),
        (&["modeltimeoutexception"], ErrorClass::Timeout),
        (&["servicequotaexceededexception"], ErrorClass::Quota),
    ];
    table
        .into_iter()
        .find(|(codes, _)| said.any_code(codes))
        .map(|(_, class)| class)
}

fn by_status(status: u16, said: &Said) -> Option<ErrorClass> {
    match status {
        // Bedrock: the model behind the endpoint failed.
        424 if said.any_code(&["modelerrorexception"]) => Some(ErrorClass::Server),
        401 | 407 => Some(ErrorClass::Auth),
        402 => Some(ErrorClass::Quota),
        403 if key_worded(said) => Some(ErrorClass::Auth),
        403 => Some(ErrorClass::Permission),
        300..=399 | 404 | 405 | 410 => Some(ErrorClass::NotFound),
        408 => Some(ErrorClass::Timeout),
        413 => Some(ErrorClass::RequestTooLarge),
        503 | 529 => Some(ErrorClass::Overloaded),
        _ if overload_worded(said) => Some(ErrorClass::Overloaded),
        500..=599 => Some(ErrorClass::Server),
        _ => None,
    }
}

/// Status 400 and 422, and errors inside a stream, say everything in words.
fn by_wording(status: u16, said: &Said) -> ErrorClass {
    if key_worded(said) {
        return ErrorClass::Auth;
    }
    let missing = [
        "not found",
        "not a valid model",
        "invalid model",
        "does not exist",
        "identifier is invalid",
        "api model names",
        "not exist",
    ];
    if said.has_any(&["model"]) && said.has_any(&missing) {
        return ErrorClass::NotFound;
    }
    if said.has_any(&[
        "request too large",
        "request entity too large",
        "body too large",
        "payload too large",
    ]) {
        return ErrorClass::RequestTooLarge;
    }
    if said.any_code(&[
        "server_error",
        "api_error",
        "internal_error",
        "internal_server_error",
        "internal",
    ]) || (status == 0
        && said.has_any(&[
            "server had an error",
            "internal server error",
            "internal error",
            "failed to decode",
        ]))
    {
        return ErrorClass::Server;
    }
    if (400..500).contains(&status)
        || said.any_code(&[
            "invalid_request_error",
            "validationexception",
            "invalid_argument",
            "invalid_prompt",
        ])
    {
        return ErrorClass::InvalidRequest;
    }
    ErrorClass::Unknown
}

fn key_worded(said: &Said) -> bool {
    said.has_any(&[
        "security token included in the request is invalid",
        "missing authentication",
        "no auth credentials",
    ]) || (said.has_any(&["api key", "api_key", "x-api-key"])
        && said.has_any(&[
            "invalid",
            "incorrect",
            "not valid",
            "missing",
            "expired",
            "no api key",
            "not provided",
        ]))
}

fn overload_worded(said: &Said) -> bool {
    said.has_any(&[
        "overloaded",
        "at capacity",
        "no capacity",
        "high demand",
        "temporarily unavailable",
    ])
}

/// The message for people: what the provider said, or what its silence means.
fn message(class: ErrorClass, status: Option<u16>, said: &Said) -> String {
    let text = said.message();
    let mut message = if text.is_empty() {
        match (status, class) {
            (Some(status), ErrorClass::ContextOverflow) => format!(
                "the provider answered {status} without a word; some answer so when the request does not fit the model's context window"
            ),
            (Some(status), _) => format!("the provider answered {status} without a word"),
            (None, _) => "the provider reported an error in the stream without a word".to_owned(),
        }
    } else {
        text.to_owned()
    };
    crate::classify::shorten(&mut message, 2000);
    message
}

/// The provider's own code, at most 200 characters of it: codes are words.
fn code(said: &Said) -> Option<String> {
    let mut code = said.code()?.to_owned();
    shorten(&mut code, 200);
    Some(code)
}

/// Cuts to at most `limit` characters, at a character boundary.
pub(crate) fn shorten(text: &mut String, limit: usize) {
    if let Some((at, _)) = text.char_indices().nth(limit) {
        let keep = text
            .char_indices()
            .nth(limit.saturating_sub(1))
            .map_or(0, |(at, _)| at);
        text.truncate(keep.min(at));
        text.push('…');
    }
}
