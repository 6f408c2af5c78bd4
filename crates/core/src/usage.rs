//! Token usage, normalised over vendors, and its price.

use serde::{Deserialize, Serialize};

/// Tokens of one or more attempts. The parts do not overlap, except that `reasoning` is within `output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens that were neither read from nor written to the provider's cache.
    pub input: u64,
    /// Generated tokens, reasoning included.
    pub output: u64,
    /// Reasoning tokens, a part of `output`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: u64,
    /// Prompt tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Usage {
    /// From a vendor that counts cached tokens within the prompt ("gross"). A vendor that reports more
    /// cached than prompt tokens is clamped, never negative.
    pub fn from_gross(
        prompt: u64,
        cache_read: u64,
        cache_write: u64,
        output: u64,
        reasoning: u64,
    ) -> Self {
        let cache_read = cache_read.min(prompt);
        let cache_write = cache_write.min(prompt - cache_read);
        Self {
            input: prompt - cache_read - cache_write,
            output,
            reasoning: reasoning.min(output),
            cache_read,
            cache_write,
        }
    }

    /// From a vendor that counts cached tokens beside the prompt ("net").
    pub fn from_net(
        input: u64,
        cache_read: u64,
        cache_write: u64,
        output: u64,
        reasoning: u64,
    ) -> Self {
        Self {
            input,
            output,
            reasoning: reasoning.min(output),
            cache_read,
            cache_write,
        }
    }

    /// All prompt tokens, cached or not.
    pub fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// Tokens in the context after the response: prompt and output.
    pub fn context(&self) -> u64 {
        self.prompt().saturating_add(self.output)
    }

    /// Adds another attempt's usage.
    pub fn add(&mut self, other: &Usage) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Uncached prompt tokens.
    pub input: f64,
    /// Generated tokens.
    pub output: f64,
    /// Tokens read from cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<f64>,
    /// Tokens written to cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<f64>,
}

impl Price {
    /// The cost of `usage` in millionths of a US dollar, rounded to the nearest. A price that is not a
    /// finite, non-negative number counts as zero; the others still apply.
    pub fn micro_dollars(&self, usage: &Usage) -> u64 {
        let part = |tokens: u64, price: f64| {
            if price.is_finite() && price > 0.0 {
                tokens as f64 * price
            } else {
                0.0
            }
        };
        let sum = part(usage.input, self.input)
            + part(usage.output, self.output)
            + part(usage.cache_read, self.cache_read.unwrap_or(self.input))
            + part(usage.cache_write, self.cache_write.unwrap_or(self.input));
        sum.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bc_s_067_gross_and_net_agree() {
        let gross = Usage::from_gross(1000, 800, 0, 500, 300);
        let net = Usage::from_net(200, 800, 0, 500, 300);
        assert_eq!(gross, net);
        assert_eq!(
            (gross.prompt(), gross.input, gross.context()),
            (1000, 200, 1500)
        );
    }

    #[test]
    fn bc_s_068_cached_tokens_have_their_own_price_and_never_go_negative() {
        let price = Price {
            input: 3.0,
            output: 15.0,
            cache_read: Some(0.3),
            cache_write: None,
        };
        let usage = Usage::from_gross(100_000, 95_000, 0, 0, 0);
        assert_eq!(price.micro_dollars(&usage), 43_500);
        let odd = Usage::from_gross(10, 20, 5, 0, 0);
        assert_eq!((odd.input, odd.cache_read, odd.cache_write), (0, 10, 0));
    }

    #[test]
    fn a_malformed_price_counts_as_zero_and_the_others_apply() {
        let price = Price {
            input: f64::NAN,
            output: 2.0,
            cache_read: None,
            cache_write: None,
        };
        let usage = Usage {
            input: 5,
            output: 3,
            ..Usage::default()
        };
        assert_eq!(price.micro_dollars(&usage), 6);
    }
}
