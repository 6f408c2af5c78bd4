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
    }
    exhausted_window(headers, now)
}

/// The reset time of a window of which nothing remains; of several, the latest.
fn exhausted_window(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let get = |name: String| {
        headers
            .get(name.as_str())
            .and_then(|v| v.to_str().ok())
            .map(str::trim)
    };
    let mut longest = None;
    for kind in ["requests", "tokens"] {
        if get(format!("x-ratelimit-remaining-{kind}")) == Some("0")
            && let Some(ms) = get(format!("x-ratelimit-reset-{kind}")).and_then(duration_ms)
        {
            longest = longest.max(Some(ms.round() as u64));
        }
    }
    for kind in ["requests", "tokens", "input-tokens", "output-tokens"] {
        if get(format!("anthropic-ratelimit-{kind}-remaining")) == Some("0")
            && let Some(at) = get(format!("anthropic-ratelimit-{kind}-reset")).and_then(iso_ms)
        {
            longest = longest.max(Some(at.saturating_sub(epoch_ms(now))));
        }
    }
    longest
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
