//! How long a provider asks us to wait: headers in seconds, milliseconds and dates, and durations in text.

use http::HeaderMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wait in milliseconds that the headers ask for. `retry-after-ms` wins over `retry-after`; values that
/// are no non-negative number and no HTTP date are ignored. A date is taken against the answer's own `date`,
/// or `now` when it has none.
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let get = |name: &str| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::trim)
    };
    if let Some(ms) = get("retry-after-ms").and_then(non_negative) {
        return Some(ms.round() as u64);
    }
    if let Some(value) = get("retry-after") {
        if let Some(seconds) = non_negative(value) {
            return Some((seconds * 1000.0).round() as u64);
        }
        if let Ok(date) = httpdate::parse_http_date(value) {
            let from = get("date")
                .and_then(|d| httpdate::parse_http_date(d).ok())
                .unwrap_or(now);
            return Some(
                date.duration_since(from)
                    .map_or(0, |wait| wait.as_millis() as u64),
            );
        }
        // Not in the standard: `30s`, `1m2.5s`.
        if let Some(ms) = duration_ms(value) {
            return Some(ms.round() as u64);
        }
    }
    exhausted_window(headers, now)
}

/// Windows of vendors: what remains in one, the words for nothing, and when it begins anew.
const WINDOWS: [(&str, &[&str], &str); 11] = [
    (
        "x-ratelimit-remaining-requests",
        &["0"],
        "x-ratelimit-reset-requests",
    ),
    (
        "x-ratelimit-remaining-tokens",
        &["0"],
        "x-ratelimit-reset-tokens",
    ),
    ("x-ratelimit-remaining", &["0"], "x-ratelimit-reset"),
    ("ratelimit-remaining", &["0"], "ratelimit-reset"),
    (
        "x-ratelimit-remaining-tokens-minute",
        &["0"],
        "x-ratelimit-reset-tokens-minute",
    ),
    (
        "x-ratelimit-remaining-requests-day",
        &["0"],
        "x-ratelimit-reset-requests-day",
    ),
    (
        "anthropic-ratelimit-requests-remaining",
        &["0"],
        "anthropic-ratelimit-requests-reset",
    ),
    (
        "anthropic-ratelimit-tokens-remaining",
        &["0"],
        "anthropic-ratelimit-tokens-reset",
    ),
    (
        "anthropic-ratelimit-input-tokens-remaining",
        &["0"],
        "anthropic-ratelimit-input-tokens-reset",
    ),
    (
        "anthropic-ratelimit-output-tokens-remaining",
        &["0"],
        "anthropic-ratelimit-output-tokens-reset",
    ),
    (
        "anthropic-ratelimit-unified-status",
        &["rejected", "exhausted"],
        "anthropic-ratelimit-unified-reset",
    ),
];

/// The reset time of a window of which nothing remains; of several, the latest.
fn exhausted_window(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let get = |name: &str| {
        headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .map(str::trim)
    };
    let spent = WINDOWS.iter().filter(|(remaining, nothing, _)| {
        get(remaining).is_some_and(|left| nothing.contains(&left))
    });
    spent
        .filter_map(|(_, _, reset)| reset_ms(get(reset)?, now))
        .max()
}

/// The wait until a reset that is told as a duration, an instant, or a bare number: a time since the epoch in
/// milliseconds or seconds when it is large enough to be one, else seconds from now.
pub(super) fn reset_ms(text: &str, now: SystemTime) -> Option<u64> {
    if let Some(ms) = duration_ms(text) {
        return Some(ms.round() as u64);
    }
    let until = |at_ms: u64| at_ms.saturating_sub(epoch_ms(now));
    if let Some(number) = non_negative(text) {
        return Some(match number {
            n if n >= 1e11 => until(n as u64),
            n if n >= 1e9 => until((n * 1000.0) as u64),
            n => (n * 1000.0).round() as u64,
        });
    }
    iso_ms(text).map(until)
}

fn epoch_ms(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}

fn non_negative(text: &str) -> Option<f64> {
    // `parse` would take "inf" and "1e999" too.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    text.parse::<f64>().ok().filter(|n| n.is_finite())
}

/// A duration at the start of `text`, such as `34.07s`, `9m38.016s`, `6m0s`, `17ms`, `2 h` or `30 seconds`,
/// in milliseconds.
pub(super) fn duration_ms(text: &str) -> Option<f64> {
    let mut total = 0.0;
    let mut found = false;
    let mut rest = text.trim_start();
    loop {
        let digits = rest
            .bytes()
            .take_while(|b| b.is_ascii_digit() || *b == b'.')
            .count();
        // A full stop ends a sentence, not a number.
        let number = rest[..digits].trim_end_matches('.');
        let Some(value) = non_negative(number) else {
            break;
        };
        let unit = rest[number.len()..].trim_start();
        let letters = unit.bytes().take_while(u8::is_ascii_alphabetic).count();
        let scale = match unit[..letters].to_ascii_lowercase().as_str() {
            "ms" | "millisecond" | "milliseconds" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            _ => break,
        };
        found = true;
        total += value * scale;
        rest = unit[letters..].trim_start();
    }
    found.then_some(total)
}

/// An ISO 8601 instant at the start of `text`, in milliseconds since the epoch.
pub(super) fn iso_ms(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || ":.+-".contains(c)))
        .unwrap_or(text.len());
    let stamp = text[..end].trim_end_matches('.').to_ascii_uppercase();
    let at: jiff::Timestamp = stamp.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_every_vendor() {
        for (text, ms) in [
            ("34.074824224s", 34_074.824_224),
            ("644ms.", 644.0),
            ("26.604s. Visit", 26_604.0),
            ("9m38.016s. Need", 578_016.0),
            ("30 seconds.", 30_000.0),
            ("6m0s", 360_000.0),
            ("1h2m", 3_720_000.0),
        ] {
            let got = duration_ms(text).unwrap();
            assert!((got - ms).abs() < 0.001, "{text}: {got}");
        }
        for text in ["", "soon", "a few minutes", "5", "-5s", "."] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }
}
