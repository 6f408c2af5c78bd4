//! Amounts as people write and read them: money, tokens and time of a session's limits.

use std::fmt;
use std::str::FromStr;
use tenure_core::budget::duration_words;
use tenure_core::event::body::Limits;
use tenure_core::price::{dollars, parse_dollars};

/// No limit on time is believed to be longer: a year.
const LONGEST_MS: u64 = 366 * 24 * 3_600_000;

/// A limit as the command line gives it: an amount, or `none` to lift it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound<T>(pub Option<T>);

/// Money in microdollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money(pub u64);

/// So many tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens(pub u64);

/// A time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub u64);

impl<T: FromStr<Err = String>> FromStr for Bound<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "none" => Ok(Self(None)),
            amount => amount.parse().map(|amount| Self(Some(amount))),
        }
    }
}

impl FromStr for Money {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_dollars(text).map(Self).map_err(|e| e.to_string())
    }
}

impl FromStr for Tokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, times) = match text.trim() {
            t if t.ends_with(['k', 'K']) => (&t[..t.len() - 1], 1_000),
            t if t.ends_with('M') => (&t[..t.len() - 1], 1_000_000),
            t => (t, 1),
        };
        let count: Option<u64> = digits.parse().ok();
        count
            .and_then(|n| n.checked_mul(times))
            .map(Self)
            .ok_or_else(|| {
                format!("`{text}` is no number of tokens: write for example 200000, 200k or 2M")
            })
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no time: write for example 90s, 15m or 2h");
        let text = text.trim();
        let unit = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let count: u64 = text[..unit].parse().map_err(|_| wrong())?;
        let times = match text[unit..].trim() {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            _ => return Err(wrong()),
        };
        let ms = count.checked_mul(times).filter(|ms| *ms <= LONGEST_MS);
        ms.map(Self)
            .ok_or_else(|| format!("`{text}` is longer than a year: leave the limit away"))
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dollars(self.0))
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration_words(self.0))
    }
}

/// Changes of a session's limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LimitsChange {
    /// `--max-steps`
    pub steps: Option<u32>,
    /// `--max-cost`
    pub cost: Option<Bound<Money>>,
    /// `--max-tokens`
    pub tokens: Option<Bound<Tokens>>,
    /// `--max-time`
    pub time: Option<Bound<Time>>,
}

impl LimitsChange {
    /// Is there nothing to change?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The limits after the change.
    pub fn apply(&self, limits: &Limits) -> Limits {
        let mut limits = limits.clone();
        if let Some(steps) = self.steps {
            limits.max_steps = steps;
        }
        if let Some(Bound(cost)) = self.cost {
            limits.max_cost = cost.map(|money| money.0);
        }
        if let Some(Bound(tokens)) = self.tokens {
            limits.max_tokens = tokens.map(|tokens| tokens.0);
        }
        if let Some(Bound(time)) = self.time {
            limits.max_wall_ms = time.map(|time| time.0);
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        assert_eq!("1.50".parse(), Ok(Money(1_500_000)));
        assert_eq!("$2".parse(), Ok(Money(2_000_000)));
        assert_eq!("200k".parse(), Ok(Tokens(200_000)));
        assert_eq!("2M".parse(), Ok(Tokens(2_000_000)));
        assert_eq!("90".parse(), Ok(Time(90_000)));
        assert_eq!("15m".parse(), Ok(Time(900_000)));
        assert_eq!("2 h".parse(), Ok(Time(7_200_000)));
        assert_eq!("250ms".parse(), Ok(Time(250)));
        assert_eq!("none".parse::<Bound<Money>>(), Ok(Bound(None)));
        assert_eq!("1".parse::<Bound<Time>>(), Ok(Bound(Some(Time(1_000)))));
        for bad in ["", "x", "-1", "1 day", "99999999999h", "é"] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
            assert!(bad.parse::<Tokens>().is_err(), "{bad}");
            assert!(bad.parse::<Money>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_change_leaves_the_others_as_they_are() {
        let before = Limits {
            max_steps: 7,
            max_cost: Some(1),
            max_tokens: Some(2),
            max_wall_ms: Some(3),
        };
        assert!(LimitsChange::default().is_empty());
        assert_eq!(LimitsChange::default().apply(&before), before);
        let change = LimitsChange {
            cost: Some(Bound(None)),
            time: Some(Bound(Some(Time(9)))),
            ..LimitsChange::default()
        };
        let after = change.apply(&before);
        assert_eq!((after.max_steps, after.max_cost), (7, None));
        assert_eq!((after.max_tokens, after.max_wall_ms), (Some(2), Some(9)));
    }
}
