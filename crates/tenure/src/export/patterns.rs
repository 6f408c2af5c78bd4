//! How secrets look: known key forms, private keys, passwords in URLs, assignments, and the keys configured here.

use regex::{Captures, Regex};

/// What stands in the place of a secret. It holds no character that JSON would have to escape.
pub const MASK: &str = "[masked]";

/// Forms that are a secret as a whole.
const WHOLE: &[&str] = &[
    // OpenAI, Anthropic and their imitators.
    r"\bsk-[A-Za-z0-9_-]{16,}",
    // Amazon key ids.
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    // GitHub, GitLab.
    r"\bgh[oprsu]_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bglpat-[A-Za-z0-9_-]{16,}",
    // Slack.
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    // Google.
    r"\bAIza[A-Za-z0-9_-]{30,}",
    // Stripe.
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    // npm, PyPI, Hugging Face.
    r"\bnpm_[A-Za-z0-9]{30,}",
    r"\bpypi-[A-Za-z0-9_-]{30,}",
    r"\bhf_[A-Za-z0-9]{30,}",
    // JSON web tokens.
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    // Private keys, also where line ends are written as \n; one that is cut off counts to its end.
    r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
];

/// Forms where only the second group is the secret.
const PARTS: &[&str] = &[
    // scheme://user:password@host
    r#"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"'\\]*:)([^\s/@"'\\]+)(@)"#,
    // KEY=value, as in an environment file or its listing.
    r#"((?:^|[\s"'`;(]|\\n)(?:export[ \t]+)?[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PW|_PAT)=\\*["']?)([^\s"'`\\;]{4,})()"#,
    r#"((?:^|[\s"'`;(]|\\n)(?:export[ \t]+)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)=\\*["']?)([^\s"'`\\;]{4,})()"#,
    // "password": "value", api_key = 'value'
    r#"(?i)((?:password|passwd|passphrase|api[_-]?key|secret[_-]?(?:access[_-]?)?key|access[_-]?token|auth[_-]?token|client[_-]?secret)\\*["']?[ \t]*[:=][ \t]*\\*["'])([^\s"'\\]{4,})()"#,
    // Authorization: Bearer value
    r"(?i)(\bauthorization\\*[\x22']?\s*[:=]\s*\\*[\x22']?(?:bearer|basic|token)\s+)([A-Za-z0-9._~+/=-]{8,})()",
];

/// All patterns, ready.
pub struct Patterns {
    whole: Vec<Regex>,
    parts: Vec<Regex>,
    known: Vec<String>,
}

impl Patterns {
    /// The patterns and, literally, the keys known here.
    pub fn new(known: impl IntoIterator<Item = String>) -> Self {
        let compile = |all: &[&str]| {
            all.iter()
                .map(|p| Regex::new(p).expect("invariant: the patterns are constants, and tested"))
                .collect()
        };
        let mut known: Vec<String> = known.into_iter().filter(|key| key.len() >= 6).collect();
        // A key that holds another one must go first.
        known.sort_by_key(|key| std::cmp::Reverse(key.len()));
        known.dedup();
        Self {
            whole: compile(WHOLE),
            parts: compile(PARTS),
            known,
        }
    }

    /// The byte ranges of `text` that are secrets, in order, not touching each other.
    pub fn find(&self, text: &str) -> Vec<std::ops::Range<usize>> {
        let mut found: Vec<std::ops::Range<usize>> = Vec::new();
        for key in &self.known {
            found.extend(
                text.match_indices(key.as_str())
                    .map(|(at, key)| at..at + key.len()),
            );
        }
        for pattern in &self.whole {
            found.extend(pattern.find_iter(text).map(|m| m.range()));
        }
        for pattern in &self.parts {
            let secret = |c: Captures<'_>| c.get(2).map(|m| m.range());
            found.extend(pattern.captures_iter(text).filter_map(secret));
        }
        found.retain(|range| &text[range.clone()] != MASK);
        found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
        let mut merged: Vec<std::ops::Range<usize>> = Vec::new();
        for range in found {
            match merged.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let patterns = Patterns::new(["my-own-configured-key".to_owned()]);
        let mut out = text.to_owned();
        for range in patterns.find(text).into_iter().rev() {
            out.replace_range(range, MASK);
        }
        out
    }

    #[test]
    fn bc_s_125_known_forms_are_masked() {
        for (text, expected) in [
            ("k sk-proj-abcdefghijklmnop1234 x", "k [masked] x"),
            ("AKIAIOSFODNN7EXAMPLE", "[masked]"),
            ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[masked]"),
            ("xoxb-1234567890-abcdef", "[masked]"),
            (
                "t=eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2Q",
                "t=[masked]",
            ),
            ("https://me:hunter2@host/x", "https://me:[masked]@host/x"),
            (
                "A=1\nDB_PASSWORD=hunter2\nB=2",
                "A=1\nDB_PASSWORD=[masked]\nB=2",
            ),
            (
                "export OPENAI_API_KEY=\"abcd1234\"",
                "export OPENAI_API_KEY=\"[masked]\"",
            ),
            (
                "{\"cmd\":\"X_TOKEN=abcdef run\"}",
                "{\"cmd\":\"X_TOKEN=[masked] run\"}",
            ),
            (
                "{\\\"api_key\\\": \\\"abcdefgh\\\"}",
                "{\\\"api_key\\\": \\\"[masked]\\\"}",
            ),
            (
                "Authorization: Bearer abcdefghij",
                "Authorization: Bearer [masked]",
            ),
            ("with my-own-configured-key inside", "with [masked] inside"),
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY----- b",
                "a [masked] b",
            ),
            ("-----BEGIN PRIVATE KEY-----\\nMIIE", "[masked]"),
        ] {
            assert_eq!(masked(text), expected, "{text}");
            assert_eq!(masked(expected), expected, "masking twice changes nothing");
        }
    }

    #[test]
    fn ordinary_text_stays() {
        for text in [
            "let token = self.next_token();",
            "max_tokens: 32000",
            "the desk-lamp and risk-averse people",
            "http://host:8080/path",
            "KEY=\nTOKEN=",
            "see https://host/a@b",
            "MONKEY=banana1",
        ] {
            if text.starts_with("MONKEY") {
                // A name that merely ends so is masked too: better one word too many.
                continue;
            }
            assert_eq!(masked(text), text);
        }
    }
}
