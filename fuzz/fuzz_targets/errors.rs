//! Any bytes as an error answer: the first line holds status and headers, the rest is the body.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use std::time::{Duration, SystemTime};
use tenure_provider::{classify, classify_event, output_that_fits};

const NAMES: [&str; 8] = [
    "retry-after",
    "retry-after-ms",
    "date",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-reset",
    "x-amzn-errortype",
    "x-should-retry",
    "x-ratelimit-remaining-tokens",
];

fuzz_target!(|data: &[u8]| {
    let (head, body) = match data.iter().position(|b| *b == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&[][..], data),
    };
    let status = head
        .first()
        .map_or(400, |b| 300 + u16::from(*b));
    let mut headers = HeaderMap::new();
    for pair in head.get(1..).unwrap_or_default().split(|b| *b == b'|') {
        if let Some((which, value)) = pair.split_first()
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            let name = NAMES[usize::from(*which) % NAMES.len()];
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let error = classify(status, &headers, body, now);
    assert!(!error.message.is_empty() && error.message.chars().count() <= 2000);
    assert!(error.code.as_ref().is_none_or(|code| code.chars().count() <= 200));
    assert_eq!(error, classify(status, &headers, body, now));
    output_that_fits(&error);
    if let Ok(value) = serde_json::from_slice(body) {
        let error = classify_event(&value);
        assert!(!error.message.is_empty() && error.message.chars().count() <= 2000);
    }
});
