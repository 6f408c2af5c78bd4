//! Token usage, normalised over vendors.

use serde::{Deserialize, Serialize};

/// Tokens of one or more attempts. The parts do not overlap, except that `reasoning` is within `output` and
/// `cache_write_long` within `cache_write`.
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
    /// Prompt tokens written to be kept for an hour, a part of `cache_write`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_long: u64,
    /// Web searches that the provider ran and counts by the piece; none where it counts none, however many it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searches: Option<u64>,
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
            cache_write_long: 0,
            searches: None,
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
            cache_write_long: 0,
            searches: None,
        }
    }

    /// All prompt tokens, cached or not.
    pub fn prompt(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }

    /// All tokens, sent and generated: what a limit on tokens counts.
    pub fn total(&self) -> u64 {
        self.prompt().saturating_add(self.output)
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
        self.cache_write_long = self.cache_write_long.saturating_add(other.cache_write_long);
        self.searches = match (self.searches, other.searches) {
            (Some(ours), Some(theirs)) => Some(ours.saturating_add(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
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
    fn usage_without_long_writes_reads_as_before() {
        let usage: Usage =
            serde_json::from_str(r#"{"input":1,"output":2,"cache_write":3}"#).unwrap();
        assert_eq!((usage.cache_write, usage.cache_write_long), (3, 0));
        assert_eq!(usage.searches, None);
    }

    #[test]
    fn searches_are_summed_as_far_as_they_were_counted() {
        let counted = |searches| Usage {
            searches,
            ..Usage::default()
        };
        let mut sum = counted(None);
        sum.add(&counted(Some(2)));
        sum.add(&counted(None));
        sum.add(&counted(Some(3)));
        assert_eq!(sum.searches, Some(5));
    }
}
