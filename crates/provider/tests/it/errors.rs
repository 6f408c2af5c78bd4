//! Recorded and reported error bodies against the class and the wait they must give.
//!
//! Deviations, each on purpose:
//!
//! | case | expected | here | why |
//! |---|---|---|---|
//! | `groq-413-rate-limit` | `rate_limit`, not retryable | `request_too_large` | one request above the limit per minute: waiting never helps, shrinking does, and the class has to say so |
//! | `zhipu-z-ai-200-context-overflow` | an error | the stream's decoder gives it | it is a finish reason, not an error body |

use crate::corpus::corpus;
use crate::fold::read;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_provider::{Protocol, classify, classify_event, output_that_fits, retry_after};

fn headers(value: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        headers.insert(
            HeaderName::try_from(name.as_str()).unwrap(),
            HeaderValue::from_str(value.as_str().unwrap()).unwrap(),
        );
    }
    headers
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_774_714_826)
}

fn judge(case: &Value) -> ProviderError {
    let body = case["body_raw"].as_str().unwrap_or_default();
    match case["delivered"].as_str().unwrap() {
        "http" => classify(
            case["http_status"].as_u64().unwrap() as u16,
            &headers(&case["headers"]),
            body.as_bytes(),
            now(),
        ),
        "SSE error event" => classify_event(&serde_json::from_str(body).unwrap()),
        _ => read(
            Protocol::OpenaiChat,
            format!("data: {body}\n\ndata: [DONE]\n\n"),
        )
        .error
        .unwrap(),
    }
}

/// How many errors of one class came out as expected.
#[derive(Default)]
struct Tally {
    good: usize,
    all: usize,
}

#[test]
fn corpus_errors_have_their_class_and_wait() {
    let Some(corpus) = corpus() else { return };
    let manifest = std::fs::read_to_string(corpus.join("errors_manifest.jsonl")).unwrap();
    let mut bad: Vec<String> = Vec::new();
    let mut tally: BTreeMap<String, Tally> = BTreeMap::new();
    for line in manifest.lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let case: Value = serde_json::from_slice(
            &std::fs::read(corpus.join(entry["file"].as_str().unwrap())).unwrap(),
        )
        .unwrap();
        let before = bad.len();
        let id = entry["id"].as_str().unwrap();
        let got = judge(&case);
        let want = &case["expected"];
        let class = if id == "groq-413-rate-limit" {
            "request_too_large"
        } else {
            want["class"].as_str().unwrap()
        };
        let wait = want["retry_after_ms"].as_u64();
        let retryable = want["retryable"].as_bool().unwrap();
        if got.class.as_str() != class || got.class.retryable() != retryable {
            bad.push(format!(
                "{id}: {} instead of {class}: {}",
                got.class.as_str(),
                got.message
            ));
        }
        if got.retry_after_ms != wait {
            bad.push(format!(
                "{id}: waits {:?} instead of {wait:?}",
                got.retry_after_ms
            ));
        }
        assert!(!got.message.is_empty() && got.message.chars().count() <= 2000);
        let tally = tally.entry(class.to_owned()).or_default();
        tally.all += 1;
        tally.good += usize::from(bad.len() == before);
    }
    let (good, all) = tally
        .values()
        .fold((0, 0), |(good, all), t| (good + t.good, all + t.all));
    println!(
        "corpus errors: {good} of {all} have their class, may be retried as expected and wait as long as told"
    );
    println!(
        "  on purpose: groq-413-rate-limit is request_too_large: waiting never helps it, shrinking does"
    );
    for (class, tally) in &tally {
        println!("  {class}: {} of {}", tally.good, tally.all);
    }
    assert!(all >= 141, "the corpus lost errors: {all}");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn corpus_forms_of_retry_after() {
    let Some(corpus) = corpus() else { return };
    let variants: Vec<Value> = serde_json::from_slice(
        &std::fs::read(corpus.join("errors/_retry_after_variants.json")).unwrap(),
    )
    .unwrap();
    println!("corpus forms of retry-after: {}", variants.len());
    for variant in variants {
        let body = variant["body"].as_str().unwrap_or_default();
        let got = classify(429, &headers(&variant["headers"]), body.as_bytes(), now());
        assert_eq!(
            got.retry_after_ms,
            variant["expected_retry_after_ms"].as_u64(),
            "{}",
            variant["case"]
        );
    }
}

#[test]
fn bc_s_037_overflow_by_code_whatever_the_wording() {
    let body = json!({"error": {"code": "context_length_exceeded", "message": "prompt has 49202 tokens, size is 49152"}});
    let got = classify(400, &HeaderMap::new(), body.to_string().as_bytes(), now());
    assert_eq!(got.class, ErrorClass::ContextOverflow);
    assert!(!got.class.retryable());
    assert_eq!(got.code.as_deref(), Some("context_length_exceeded"));
    let without_code = json!({"error": {"message": "prompt has 49202 tokens, size is 49152"}});
    let got = classify(
        400,
        &HeaderMap::new(),
        without_code.to_string().as_bytes(),
        now(),
    );
    assert_eq!(got.class, ErrorClass::ContextOverflow);
}

#[test]
fn bc_s_038_overflow_by_a_sum_in_nested_json() {
    let inner = json!({"error": {"message": "input length and `max_tokens` exceed context limit: 196758 + 8192 > 200000"}});
    let body = json!({"error": {"code": 400, "message": format!("upstream said: {inner}")}});
    let got = classify(400, &HeaderMap::new(), body.to_string().as_bytes(), now());
    assert_eq!(got.class, ErrorClass::ContextOverflow);
    assert_eq!(
        output_that_fits(&got),
        Some(3242),
        "only the sum is too large: {}",
        got.message
    );
    let alone = json!({"error": {"message": "prompt is too long: 250000 tokens > 200000 maximum"}});
    let got = classify(400, &HeaderMap::new(), alone.to_string().as_bytes(), now());
    assert_eq!(output_that_fits(&got), None);
}

#[test]
fn bc_s_039_overflow_takes_one_path_by_any_status() {
    let body = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 208732 tokens > 200000 maximum"}});
    for status in [400, 413, 422] {
        let got = classify(
            status,
            &HeaderMap::new(),
            body.to_string().as_bytes(),
            now(),
        );
        assert_eq!(got.class, ErrorClass::ContextOverflow, "{status}");
    }
    let got = read(
        Protocol::AnthropicMessages,
        format!("event: error\ndata: {body}\n\n"),
    );
    assert_eq!(got.error.unwrap().class, ErrorClass::ContextOverflow);
}

#[test]
fn bc_s_042_retry_after_in_every_form() {
    let wait = |pairs: &[(&str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        retry_after(&headers, now())
    };
    let date = httpdate(now() + Duration::from_secs(5));
    assert_eq!(wait(&[("retry-after-ms", "1500")]), Some(1500));
    assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
    assert_eq!(wait(&[("Retry-After", "2")]), Some(2000));
    assert_eq!(wait(&[("retry-after", &date)]), Some(5000));
    assert_eq!(
        wait(&[("retry-after", "9"), ("retry-after-ms", "1500")]),
        Some(1500)
    );
    assert_eq!(wait(&[("retry-after", "999999")]), Some(999_999_000));
    for bad in ["-1", "abc", "", "1e3", "inf", "NaN"] {
        assert_eq!(wait(&[("retry-after", bad)]), None, "{bad:?}");
        assert_eq!(
            wait(&[("retry-after-ms", bad), ("retry-after", "3")]),
            Some(3000),
            "{bad:?}"
        );
    }
}

#[test]
fn a_spent_window_says_when_it_begins_anew() {
    let wait = |pairs: &[(&str, &str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        retry_after(&headers, now())
    };
    for (value, ms) in [
        ("1774714836000", Some(10_000)),
        ("1774714836", Some(10_000)),
        ("10", Some(10_000)),
        ("1m2.5s", Some(62_500)),
        ("2026-03-28T16:20:36Z", Some(10_000)),
        ("1774714800", Some(0)),
        ("soon", None),
    ] {
        let spent = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", value)];
        assert_eq!(wait(&spent), ms, "{value}");
        let left = [("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", value)];
        assert_eq!(wait(&left), None, "there is room in the window");
    }
    let latest = [
        ("anthropic-ratelimit-tokens-remaining", "0"),
        ("anthropic-ratelimit-tokens-reset", "2026-03-28T16:20:36Z"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("anthropic-ratelimit-requests-reset", "2026-03-28T16:21:26Z"),
    ];
    assert_eq!(wait(&latest), Some(60_000));
    let unified = [
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-reset", "1774714836"),
    ];
    assert_eq!(wait(&unified), Some(10_000));
    assert_eq!(wait(&[("retry-after", "1m2.5s")]), Some(62_500));
    let body = json!({"error": {"code": 429, "message": "Rate limit exceeded: free-models-per-min", "metadata": {"headers": {"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1774714836000"}}}});
    let got = classify(429, &HeaderMap::new(), body.to_string().as_bytes(), now());
    assert_eq!(
        (got.class, got.retry_after_ms),
        (ErrorClass::RateLimit, Some(10_000))
    );
}

#[test]
fn bedrock_and_google_forms_have_their_class() {
    let amazon = |status, kind: &str, message: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("x-amzn-errortype", HeaderValue::from_str(kind).unwrap());
        let body = json!({ "message": message }).to_string();
        classify(status, &headers, body.as_bytes(), now()).class
    };
    for (status, kind, message, class) in [
        (
            429,
            "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/",
            "Too many tokens, please wait before trying again.",
            ErrorClass::RateLimit,
        ),
        (
            403,
            "AccessDeniedException",
            "You don't have access to the model with the specified model ID.",
            ErrorClass::Permission,
        ),
        (
            403,
            "UnrecognizedClientException",
            "The security token included in the request is invalid.",
            ErrorClass::Auth,
        ),
        (
            403,
            "ExpiredTokenException",
            "The security token included in the request is expired",
            ErrorClass::Auth,
        ),
        (
            404,
            "ResourceNotFoundException",
            "Could not resolve the foundation model from the model identifier: x",
            ErrorClass::NotFound,
        ),
        (
            400,
            "ValidationException",
            "Input is too long for requested model.",
            ErrorClass::ContextOverflow,
        ),
        (
            400,
            "ValidationException",
            "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
            ErrorClass::InvalidRequest,
        ),
        (
            503,
            "ServiceUnavailableException",
            "Bedrock is unable to process your request.",
            ErrorClass::Overloaded,
        ),
        (
            500,
            "InternalServerException",
            "The system encountered an unexpected error.",
            ErrorClass::Server,
        ),
        (
            424,
            "ModelErrorException",
            "The system encountered an unexpected error during processing.",
            ErrorClass::Server,
        ),
        (
            429,
            "ModelNotReadyException",
            "Model is not ready for inference.",
            ErrorClass::Overloaded,
        ),
        (
            408,
            "ModelTimeoutException",
            "Model has timed out in processing the request.",
            ErrorClass::Timeout,
        ),
        (
            400,
            "ServiceQuotaExceededException",
            "Your request exceeds the service quota for your account.",
            ErrorClass::Quota,
        ),
    ] {
        assert_eq!(amazon(status, kind, message), class, "{kind}: {message}");
    }
    let google = |status: u16, word: &str, message: &str, details: Value| {
        let body = json!({"error": {"code": status, "message": message, "status": word, "details": details}});
        let got = classify(
            status,
            &HeaderMap::new(),
            body.to_string().as_bytes(),
            now(),
        );
        (got.class, got.retry_after_ms)
    };
    let retry =
        json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]);
    assert_eq!(
        google(
            429,
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
            retry
        ),
        (ErrorClass::RateLimit, Some(34_500))
    );
    let key =
        json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]);
    for (status, word, message, details, class) in [
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            key,
            ErrorClass::Auth,
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            json!([]),
            ErrorClass::ContextOverflow,
        ),
        (
            400,
            "FAILED_PRECONDITION",
            "User location is not supported for the API use.",
            json!([]),
            ErrorClass::InvalidRequest,
        ),
        (
            403,
            "PERMISSION_DENIED",
            "The caller does not have permission",
            json!([]),
            ErrorClass::Permission,
        ),
        (
            503,
            "UNAVAILABLE",
            "The model is overloaded. Please try again later.",
            json!([]),
            ErrorClass::Overloaded,
        ),
        (
            500,
            "INTERNAL",
            "An internal error has occurred.",
            json!([]),
            ErrorClass::Server,
        ),
        (
            504,
            "DEADLINE_EXCEEDED",
            "Deadline expired before operation could complete.",
            json!([]),
            ErrorClass::Server,
        ),
    ] {
        assert_eq!(google(status, word, message, details).0, class, "{message}");
    }
}

fn httpdate(at: SystemTime) -> String {
    httpdate::fmt_http_date(at)
}

#[test]
fn bc_s_043_a_long_quota_is_no_rate_limit() {
    for message in [
        "You have reached your weekly limit. It resets at 2026-03-29T00:00:00Z.",
        "Your 5-hour quota is used up, resets at 2026-03-28T18:00:00Z",
        "Monthly usage limit reached",
    ] {
        let body = json!({"error": {"message": message}});
        let got = classify(429, &HeaderMap::new(), body.to_string().as_bytes(), now());
        assert_eq!(got.class, ErrorClass::Quota, "{message}");
        assert!(!got.class.retryable());
        assert_eq!(
            got.retry_after_ms.is_some(),
            message.contains("2026"),
            "{message}"
        );
    }
    let short = json!({"error": {"message": "Rate limit reached. Please try again in 20s."}});
    let got = classify(429, &HeaderMap::new(), short.to_string().as_bytes(), now());
    assert_eq!(
        (got.class, got.retry_after_ms),
        (ErrorClass::RateLimit, Some(20_000))
    );
}

#[test]
fn bc_s_041_a_bad_gateway_names_no_wait() {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("text/html"));
    headers.insert(
        "date",
        HeaderValue::from_static("Sat, 28 Mar 2026 16:00:00 GMT"),
    );
    let got = classify(
        502,
        &headers,
        b"<html><head><title>502 Bad Gateway</title></head></html>",
        now(),
    );
    assert_eq!((got.class, got.retry_after_ms), (ErrorClass::Server, None));
    assert!(got.message.contains("502 Bad Gateway"), "{}", got.message);
}

#[test]
fn a_service_tier_without_room_is_overload_whatever_its_status() {
    let body = json!({"object": "error", "message": "Service tier capacity exceeded for this model.",
        "type": "service_tier_capacity_exceeded", "param": null, "code": "3505"});
    for status in [429, 503] {
        let got = classify(
            status,
            &HeaderMap::new(),
            body.to_string().as_bytes(),
            now(),
        );
        assert_eq!(got.class, ErrorClass::Overloaded, "{status}");
        assert_eq!(got.code.as_deref(), Some("3505"));
    }
    let worded = json!({"object": "error", "message": body["message"], "type": "invalid_request_error", "code": null});
    for said in [json!({"error": body}), json!({"code": 3505}), worded] {
        assert_eq!(
            classify_event(&said).class,
            ErrorClass::Overloaded,
            "{said}"
        );
    }
    let limited = json!({"message": "Rate limit exceeded", "type": "rate_limited", "code": "1300"});
    let got = classify(
        429,
        &HeaderMap::new(),
        limited.to_string().as_bytes(),
        now(),
    );
    assert_eq!(got.class, ErrorClass::RateLimit);
}

#[test]
fn a_message_is_cut_at_a_character() {
    let body = json!({"error": {"message": "ё".repeat(5000)}});
    let got = classify(400, &HeaderMap::new(), body.to_string().as_bytes(), now());
    assert_eq!(got.message.chars().count(), 2000);
    assert!(got.message.ends_with('…'));
}

#[test]
fn a_gateway_passes_on_what_its_provider_said() {
    let body = json!({"error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "m is temporarily rate-limited upstream"}}});
    let got = classify(429, &HeaderMap::new(), body.to_string().as_bytes(), now());
    assert_eq!(got.message, "m is temporarily rate-limited upstream");
}
