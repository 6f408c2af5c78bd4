//! Times, amounts and costs as people read them.

use std::time::Duration;
use tenure_core::usage::Usage;

/// A running time: `0.4s`, `12s`, `3m 04s`, `2h 05m`.
pub fn elapsed(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The time between two wall-clock values in milliseconds; nothing when the clock went back.
pub fn between(from_ms: i64, to_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0))
}

/// How long ago: `now`, `5m`, `3h`, `2d`, `6w`.
pub fn age(then_ms: i64, now_ms: i64) -> String {
    let seconds = between(then_ms, now_ms).as_secs();
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        86_400..1_209_600 => format!("{}d", seconds / 86_400),
        _ => format!("{}w", seconds / 604_800),
    }
}

/// As [`age`], to the second as long as seconds count: `12s`, `5m`.
pub fn since(then_ms: i64, now_ms: i64) -> String {
    match between(then_ms, now_ms).as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        _ => age(then_ms, now_ms),
    }
}

/// A cost in millionths of a dollar. An incomplete one is a lower bound, never shown as exact; a session
/// whose price nobody knows has no price, not the price zero.
pub fn cost(micro_dollars: u64, incomplete: bool) -> String {
    match (micro_dollars, incomplete) {
        (0, true) => "price unknown".to_owned(),
        (amount, incomplete) => {
            format!("{}{}", if incomplete { "≥ " } else { "" }, dollars(amount))
        }
    }
}

fn dollars(micro: u64) -> String {
    let amount = micro as f64 / 1e6;
    match micro {
        0 => "$0".to_owned(),
        1..100 => "< $0.0001".to_owned(),
        100..1_000_000 => format!("${amount:.4}"),
        _ => format!("${amount:.2}"),
    }
}

/// A count: `950`, `12.3k`, `4.5M`.
pub fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}k", n as f64 / 1e3),
        _ => format!("{:.1}M", n as f64 / 1e6),
    }
}

/// So many of something, with a plural in `s`: `1 session`, `2 sessions`.
pub fn many(n: u64, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Bytes: `950 B`, `12.3 KiB`, `4.5 MiB`.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", n as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", n as f64 / 1_073_741_824.0),
    }
}

/// Tokens: what went in (with the part from cache) and what came out (with the part that was reasoning).
pub fn tokens(usage: &Usage) -> String {
    let cached = if usage.cache_read > 0 {
        format!(" ({} cached)", count(usage.cache_read))
    } else {
        String::new()
    };
    let reasoning = if usage.reasoning > 0 {
        format!(" ({} reasoning)", count(usage.reasoning))
    } else {
        String::new()
    };
    format!(
        "{} in{cached}, {} out{reasoning}",
        count(usage.prompt()),
        count(usage.output)
    )
}

/// A wall-clock time of this machine's zone, to the second.
pub fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(
        |_| format!("{ms} ms"),
        |at| {
            at.to_zoned_datetime(jiff::tz::TimeZone::system())
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        },
    )
}

/// Now, in milliseconds since 1970 UTC.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_amounts_are_short() {
        assert_eq!(elapsed(Duration::from_millis(420)), "0.4s");
        assert_eq!(elapsed(Duration::from_secs(184)), "3m 04s");
        assert_eq!(elapsed(Duration::from_secs(7500)), "2h 05m");
        assert_eq!(age(0, 59_000), "now");
        assert_eq!(age(0, 3_600_000 * 5), "5h");
        assert_eq!(age(10, 0), "now");
        assert_eq!(count(12_345), "12.3k");
        assert_eq!(bytes(2048), "2.0 KiB");
        assert_eq!(many(0, "session"), "0 sessions");
        assert_eq!(many(1, "session"), "1 session");
    }

    #[test]
    fn an_unknown_price_is_never_shown_as_zero() {
        assert_eq!(cost(0, true), "price unknown");
        assert_eq!(cost(0, false), "$0");
        assert_eq!(cost(43_500, false), "$0.0435");
        assert_eq!(cost(2_500_000, true), "≥ $2.50");
        assert_eq!(cost(5, false), "< $0.0001");
    }

    #[test]
    fn cached_and_reasoning_tokens_are_parts() {
        let usage = Usage {
            input: 200,
            output: 500,
            reasoning: 300,
            cache_read: 800,
            cache_write: 0,
            cache_write_long: 0,
            searches: None,
        };
        assert_eq!(
            tokens(&usage),
            "1.0k in (800 cached), 500 out (300 reasoning)"
        );
    }
}
