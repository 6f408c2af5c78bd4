//! Prices of tokens and searches, and what usage costs: exact integers throughout, so that sums add up to the last digit.
//!
//! A rate is kept in *picodollars per token* (a million of them are a microdollar), which is the same number as
//! microdollars per million tokens: every price a vendor prints is one exactly. A request's cost is the exact sum over
//! its tokens, rounded **up** to a whole microdollar once, per request: a budget never counts less than was spent.

use crate::usage::Usage;
use std::fmt;

/// Picodollars in a microdollar.
const PICO_PER_MICRO: u128 = 1_000_000;
/// Digits behind the point of a dollar amount that a picodollar rate per million, or a microdollar, can hold.
const DIGITS: usize = 6;
/// The highest rate that is believed: a dollar a token.
const HIGHEST: u64 = 1_000_000_000_000;

/// A price per token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A text that is no price or amount of money.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not a decimal number, zero or more.
    #[error("`{0}` is not an amount: write dollars as a decimal number, for example 1.50")]
    NotANumber(String),
    /// More digits behind the point than a microdollar has.
    #[error("`{0}` is finer than a millionth of a dollar")]
    TooFine(String),
    /// Beyond what any price can be.
    #[error("`{0}` is too much to be meant")]
    TooMuch(String),
}

impl Rate {
    /// Nothing.
    pub const FREE: Self = Self(0);

    /// From picodollars per token, which is microdollars per million tokens. More than a dollar a token is taken as
    /// that.
    pub const fn from_pico(pico: u64) -> Self {
        if pico > HIGHEST {
            Self(HIGHEST)
        } else {
            Self(pico)
        }
    }

    /// Picodollars per token.
    pub const fn pico(self) -> u64 {
        self.0
    }

    /// Reads dollars per million tokens, in decimal (`3`, `0.15`, `1.5e-1`). Digits beyond the sixth behind the point
    /// are rounded up.
    ///
    /// # Errors
    /// Not a number, negative, or more than a dollar a token.
    pub fn per_million(text: &str) -> Result<Self, MoneyError> {
        let (micro, _) = decimal(text, DIGITS as i64)?;
        if micro > u128::from(HIGHEST) {
            return Err(MoneyError::TooMuch(text.to_owned()));
        }
        Ok(Self(micro as u64))
    }

    /// Reads dollars per single token, in decimal (`1.5e-07`), as [`Rate::per_million`] otherwise.
    ///
    /// # Errors
    /// As [`Rate::per_million`].
    pub fn per_token(text: &str) -> Result<Self, MoneyError> {
        let (pico, _) = decimal(text, 2 * DIGITS as i64)?;
        if pico > u128::from(HIGHEST) {
            return Err(MoneyError::TooMuch(text.to_owned()));
        }
        Ok(Self(pico as u64))
    }

    fn of(self, tokens: u64) -> u128 {
        u128::from(self.0) * u128::from(tokens)
    }
}

impl fmt::Display for Rate {
    /// Dollars per million tokens, exactly, without a sign: `3`, `0.15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(self.0))
    }
}

/// The prices of one tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Uncached prompt tokens.
    pub input: Rate,
    /// Generated tokens.
    pub output: Rate,
    /// Generated tokens of reasoning; the output price when absent.
    pub reasoning: Option<Rate>,
    /// Tokens read from the provider's cache; the input price when absent.
    pub cache_read: Option<Rate>,
    /// Tokens written to the provider's cache; the input price when absent.
    pub cache_write: Option<Rate>,
    /// Tokens written to be kept for an hour. When absent: twice the input price where writes have a price, which is
    /// what vendors take, and else the input price.
    pub cache_write_long: Option<Rate>,
}

/// Prices that hold for requests whose prompt is longer than `above` tokens, cached ones included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tier {
    /// The longest prompt for which the tier before still holds.
    pub above: u64,
    /// Its prices, for the whole request.
    pub rates: Rates,
}

/// What a model's tokens cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Price {
    /// The prices of an ordinary request.
    pub base: Rates,
    /// Prices of requests with long prompts, by rising `above`.
    pub tiers: Vec<Tier>,
    /// One web search that the provider ran and counted; none where that is not known.
    pub search: Option<Rate>,
}

impl Rates {
    fn pico(&self, usage: &Usage) -> u128 {
        let reasoning = usage.reasoning.min(usage.output);
        let long = usage.cache_write_long.min(usage.cache_write);
        let write = self.cache_write.unwrap_or(self.input);
        let parts = [
            self.input.of(usage.input),
            self.output.of(usage.output - reasoning),
            self.reasoning.unwrap_or(self.output).of(reasoning),
            self.cache_read.unwrap_or(self.input).of(usage.cache_read),
            write.of(usage.cache_write - long),
            self.long_write().of(long),
        ];
        parts.into_iter().fold(0, u128::saturating_add)
    }

    fn long_write(&self) -> Rate {
        let usual = || match self.cache_write {
            Some(write) => write.max(Rate::from_pico(self.input.pico().saturating_mul(2))),
            None => self.input,
        };
        self.cache_write_long.unwrap_or_else(usual)
    }

    /// The dearest of what a prompt's token may cost.
    fn dearest_input(&self) -> Rate {
        let others = [self.cache_read, self.cache_write, Some(self.long_write())];
        others.into_iter().flatten().fold(self.input, Rate::max)
    }

    fn dearest_output(&self) -> Rate {
        self.reasoning.map_or(self.output, |r| r.max(self.output))
    }
}

impl Price {
    /// One price for prompts of every length.
    pub fn flat(rates: Rates) -> Self {
        Self {
            base: rates,
            tiers: Vec::new(),
            search: None,
        }
    }

    /// The prices of a request with so many prompt tokens.
    pub fn rates(&self, prompt: u64) -> &Rates {
        let reached = self.tiers.iter().filter(|tier| prompt > tier.above);
        reached
            .max_by_key(|tier| tier.above)
            .map_or(&self.base, |tier| &tier.rates)
    }

    /// The cost of one request in microdollars, rounded up. `usage` must be that of one request: a tier is chosen by
    /// its prompt. None when it holds searches that have no price here.
    pub fn micro_dollars(&self, usage: &Usage) -> Option<u64> {
        let searches = match usage.searches {
            None | Some(0) => 0,
            Some(count) => self.search?.of(count),
        };
        let tokens = self.rates(usage.prompt()).pico(usage);
        Some(micro(tokens.saturating_add(searches)))
    }

    /// The most that requests of so many tokens together can cost, in microdollars, rounded up.
    pub fn at_most(&self, prompt: u64, output: u64) -> u64 {
        let reached = self.tiers.iter().filter(|tier| prompt > tier.above);
        let rates = std::iter::once(&self.base).chain(reached.map(|tier| &tier.rates));
        let dearest = rates.fold((Rate::FREE, Rate::FREE), |(i, o), rates| {
            (i.max(rates.dearest_input()), o.max(rates.dearest_output()))
        });
        micro(dearest.0.of(prompt).saturating_add(dearest.1.of(output)))
    }
}

fn micro(pico: u128) -> u64 {
    u64::try_from(pico.div_ceil(PICO_PER_MICRO)).unwrap_or(u64::MAX)
}

/// Reads an amount of dollars (`1.50`, `$2`) into microdollars.
///
/// # Errors
/// Not a number, negative, finer than a microdollar, or beyond 18 trillion dollars.
pub fn parse_dollars(text: &str) -> Result<u64, MoneyError> {
    let amount = text.trim();
    let (micro, exact) = decimal(amount.strip_prefix('$').unwrap_or(amount), DIGITS as i64)
        .map_err(|_| MoneyError::NotANumber(text.to_owned()))?;
    if !exact {
        return Err(MoneyError::TooFine(text.to_owned()));
    }
    u64::try_from(micro).map_err(|_| MoneyError::TooMuch(text.to_owned()))
}

/// Microdollars as dollars for people, exactly, with at least two digits behind the point: `$1.50`, `$0.000012`.
pub fn dollars(micro_dollars: u64) -> String {
    let mut text = format!("${}", plain(micro_dollars));
    match text.split_once('.').map(|(_, fraction)| fraction.len()) {
        None => text.push_str(".00"),
        Some(1) => text.push('0'),
        Some(_) => {}
    }
    text
}

fn plain(micro: u64) -> String {
    let (whole, fraction) = (micro / 1_000_000, micro % 1_000_000);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{fraction:06}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// A decimal number times ten to the power of `shift`, as a whole number; what is beyond is rounded up, and the second
/// value says whether nothing was.
fn decimal(text: &str, shift: i64) -> Result<(u128, bool), MoneyError> {
    let bad = || MoneyError::NotANumber(text.to_owned());
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => {
            let exponent = &text[at + 1..];
            let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
            (&text[..at], exponent.parse::<i16>().map_err(|_| bad())?)
        }
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if digits().count() == 0 || digits().count() > 60 || digits().any(|b| !b.is_ascii_digit()) {
        return Err(bad());
    }
    // Where the point is after the shift, counted from the first digit.
    let point = whole.len() as i64 + i64::from(exponent) + shift;
    let mut value: u128 = 0;
    let mut exact = true;
    for (place, digit) in digits().enumerate() {
        if (place as i64) < point {
            value = value
                .checked_mul(10)
                .and_then(|v| v.checked_add(u128::from(digit - b'0')))
                .ok_or_else(|| MoneyError::TooMuch(text.to_owned()))?;
        } else {
            exact &= digit == b'0';
        }
    }
    for _ in digits().count() as i64..point {
        if value == 0 {
            break;
        }
        value = value
            .checked_mul(10)
            .ok_or_else(|| MoneyError::TooMuch(text.to_owned()))?;
    }
    Ok((value + u128::from(!exact), exact))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> Rate {
        Rate::per_million(text).unwrap()
    }

    fn sonnet() -> Price {
        let long = Rates {
            input: rate("6"),
            output: rate("22.5"),
            ..Rates::default()
        };
        Price {
            base: Rates {
                input: rate("3"),
                output: rate("15"),
                reasoning: None,
                cache_read: Some(rate("0.3")),
                cache_write: Some(rate("3.75")),
                cache_write_long: Some(rate("6")),
            },
            tiers: vec![Tier {
                above: 200_000,
                rates: long,
            }],
            search: Some(Rate::from_pico(10_000_000_000)),
        }
    }

    fn cost(price: &Price, usage: &Usage) -> u64 {
        price.micro_dollars(usage).unwrap()
    }

    #[test]
    fn bc_s_068_cached_tokens_have_their_own_price_and_never_go_negative() {
        let usage = Usage::from_gross(100_000, 95_000, 0, 0, 0);
        assert_eq!(cost(&sonnet(), &usage), 43_500);
        let odd = Usage::from_gross(10, 20, 5, 0, 0);
        assert_eq!((odd.input, odd.cache_read, odd.cache_write), (0, 10, 0));
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        let usage = Usage {
            input: 1_000_000,
            output: 2_000_000,
            reasoning: 1_000_000,
            cache_read: 10,
            cache_write: 30,
            cache_write_long: 20,
            searches: None,
        };
        let mut price = sonnet();
        price.base.reasoning = Some(rate("60"));
        price.tiers.clear();
        // 3 + 15 + 60 dollars, 3 + 37.5 + 120 microdollars.
        assert_eq!(cost(&price, &usage), 78_000_161);
    }

    #[test]
    fn a_write_for_an_hour_without_a_price_of_its_own_is_no_cheaper_than_vendors_take() {
        let mut usage = Usage::from_net(0, 0, 1_000_000, 0, 0);
        usage.cache_write_long = 1_000_000;
        let mut price = sonnet();
        price.tiers.clear();
        price.base.cache_write_long = None;
        assert_eq!(cost(&price, &usage), 6_000_000);
        assert_eq!(price.at_most(1_000_000, 0), 6_000_000);
        price.base.cache_write = None;
        assert_eq!(cost(&price, &usage), 3_000_000);
    }

    #[test]
    fn a_longer_prompt_than_the_tier_costs_its_prices_for_the_whole_request() {
        let at = |input| Usage::from_net(input, 0, 0, 1_000, 0);
        assert_eq!(cost(&sonnet(), &at(200_000)), 615_000);
        assert_eq!(cost(&sonnet(), &at(200_001)), 1_222_506);
        let cached = Usage::from_net(1, 200_000, 0, 0, 0);
        assert_eq!(cost(&sonnet(), &cached), 1_200_006);
    }

    #[test]
    fn a_search_that_was_counted_costs_its_fee_and_one_without_a_price_makes_the_cost_unknown() {
        let mut usage = Usage::from_net(1_000, 0, 0, 0, 0);
        for (searches, fee) in [(None, 0), (Some(0), 0), (Some(3), 30_000)] {
            usage.searches = searches;
            assert_eq!(cost(&sonnet(), &usage), 3_000 + fee);
        }
        let mut price = sonnet();
        price.search = None;
        assert_eq!(price.micro_dollars(&usage), None);
        usage.searches = Some(0);
        assert_eq!(price.micro_dollars(&usage), Some(3_000));
    }

    #[test]
    fn the_smallest_cost_is_not_nothing() {
        let price = Price::flat(Rates {
            input: rate("0.0001"),
            ..Rates::default()
        });
        assert_eq!(cost(&price, &Usage::from_net(1, 0, 0, 0, 0)), 1);
        assert_eq!(cost(&price, &Usage::default()), 0);
    }

    #[test]
    fn decimals_are_read_exactly() {
        assert_eq!(rate("0.15").pico(), 150_000);
        assert_eq!(Rate::per_token("1.5e-07").unwrap(), rate("0.15"));
        assert_eq!(Rate::per_token("3E-6").unwrap(), rate("3"));
        assert_eq!(Rate::per_token("0.000003").unwrap(), rate("3"));
        assert_eq!(rate("1e2").to_string(), "100");
        assert_eq!(rate("0.0375").to_string(), "0.0375");
        assert_eq!(rate("0.0000001").pico(), 1, "rounded up");
        for bad in ["", ".", "-1", "1,5", "NaN", "inf", "1e", "0x1", "1 "] {
            assert!(Rate::per_million(bad).is_err(), "{bad}");
        }
        assert!(matches!(
            Rate::per_million("1000001"),
            Err(MoneyError::TooMuch(_))
        ));
        assert!(matches!(
            Rate::per_million("1e30000"),
            Err(MoneyError::TooMuch(_))
        ));
        assert_eq!(Rate::per_million("0e30000").unwrap(), Rate::FREE);
        assert_eq!(rate("1e-30000").pico(), 1);
    }

    #[test]
    fn amounts_of_money_are_whole_microdollars() {
        assert_eq!(parse_dollars("1.50"), Ok(1_500_000));
        assert_eq!(parse_dollars("$0.000001"), Ok(1));
        assert!(matches!(
            parse_dollars("0.0000001"),
            Err(MoneyError::TooFine(_))
        ));
        assert!(matches!(
            parse_dollars("1e13"),
            Ok(10_000_000_000_000_000_000)
        ));
        assert!(matches!(parse_dollars("1e14"), Err(MoneyError::TooMuch(_))));
        assert!(parse_dollars("two").is_err());
        assert_eq!(dollars(1_500_000), "$1.50");
        assert_eq!(dollars(0), "$0.00");
        assert_eq!(dollars(12), "$0.000012");
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(micro in any::<u64>(), pico in 0..=HIGHEST) {
            prop_assert_eq!(parse_dollars(&dollars(micro)), Ok(micro));
            let rate = Rate::from_pico(pico);
            prop_assert_eq!(Rate::per_million(&rate.to_string()), Ok(rate));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9.eE+-]{0,40}|.{0,12}") {
            let _ = (Rate::per_million(&text), Rate::per_token(&text), parse_dollars(&text));
        }

        #[test]
        fn no_request_costs_more_than_the_most(
            input in 0u64..500_000, read in 0u64..500_000, write in 0u64..500_000, long in 0u64..500_000,
            output in 0u64..100_000, reasoning in 0u64..100_000,
        ) {
            let mut usage = Usage::from_net(input, read, write, output, reasoning);
            usage.cache_write_long = long.min(write);
            let most = sonnet().at_most(usage.prompt(), usage.output);
            prop_assert!(cost(&sonnet(), &usage) <= most);
        }
    }
}
