//! Ids and opaque reasoning state the server issues, and how it knows its own again.
//!
//! A seal proves itself: it holds a nonce and a digest of the nonce, the wire form and the text it seals. So an altered
//! one is recognised after a restart too, by any server, without a list of what was issued.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::validate::Broken;
use crate::vendor::Vendor;

/// What each signature and encrypted content issued by a scripted model begins with.
pub const SEAL_PREFIX: &str = "tnscripted";

/// Not a secret: it only keeps a digest from being hit by accident.
const KEY: &[u8] = b"tenure scripted model, seal 1";
const NONCE_LEN: usize = 16;

/// Issues ids and seals. Ids never repeat, also not across restarts: each run has its own random part.
#[derive(Debug)]
pub(crate) struct Issuer {
    run: u64,
    counter: AtomicU64,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        // The standard library's hash keys are the one source of randomness that needs no further dependency.
        let mut hasher = RandomState::new().build_hasher();
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        hasher.write_u128(now.as_nanos());
        hasher.write_u32(std::process::id());
        Self {
            run: hasher.finish(),
            counter: AtomicU64::new(0),
        }
    }

    /// A new id: at most 40 characters of `[a-zA-Z0-9_]` for prefixes of up to 10.
    pub(crate) fn id(&self, prefix: &str) -> String {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        format!("{prefix}{:016x}{n:04x}", self.run)
    }

    /// New opaque state that seals `text` in a wire form.
    pub(crate) fn seal(&self, vendor: Vendor, text: &str) -> String {
        let n = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut payload = Vec::with_capacity(NONCE_LEN + 32);
        payload.extend_from_slice(&self.run.to_be_bytes());
        payload.extend_from_slice(&n.to_be_bytes());
        let digest = digest(vendor, &payload, text);
        payload.extend_from_slice(&digest);
        format!(
            "{SEAL_PREFIX}.{}.{}",
            letter(vendor),
            STANDARD.encode(payload)
        )
    }
}

fn letter(vendor: Vendor) -> char {
    match vendor {
        Vendor::OpenaiChat => 'c',
        Vendor::OpenaiResponses => 'r',
        Vendor::AnthropicMessages => 'a',
    }
}

fn digest(vendor: Vendor, nonce: &[u8], text: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(KEY);
    hash.update([letter(vendor) as u8]);
    hash.update(nonce);
    hash.update(text.as_bytes());
    hash.finalize().into()
}

fn is_intact(vendor: Vendor, seal: &str, text: &str) -> bool {
    let Some(rest) = seal
        .strip_prefix(SEAL_PREFIX)
        .and_then(|rest| rest.strip_prefix('.'))
    else {
        return false;
    };
    let Some((form, encoded)) = rest.split_once('.') else {
        return false;
    };
    let Ok(payload) = STANDARD.decode(encoded) else {
        return false;
    };
    payload.len() == NONCE_LEN + 32
        && form.chars().eq([letter(vendor)])
        && payload[NONCE_LEN..] == digest(vendor, &payload[..NONCE_LEN], text)
}

/// Finds replayed reasoning that was altered, moved to another wire form, or, when `strict`, never issued here.
pub(crate) fn check_seals(vendor: Vendor, body: &Value, strict: bool) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut check = |at: String, seal: &str, text: &str| {
        if seal.starts_with(SEAL_PREFIX) {
            if !is_intact(vendor, seal, text) {
                broken.push(Broken {
                    rule: "scripted.altered_seal",
                    at,
                    message: format!(
                        "Invalid signature: reasoning must be replayed exactly as it was received ({seal:?})"
                    ),
                });
            }
        } else if strict {
            broken.push(Broken {
                rule: "scripted.foreign_seal",
                at,
                message: format!(
                    "Invalid signature: this reasoning was not issued by this model ({seal:?})"
                ),
            });
        }
    };
    let empty = Vec::new();
    let list = |value: &Value, key: &str| {
        value
            .get(key)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    match vendor {
        Vendor::OpenaiChat => {}
        Vendor::OpenaiResponses => {
            let items = body
                .get("input")
                .and_then(Value::as_array)
                .unwrap_or(&empty);
            for (index, item) in items.iter().enumerate() {
                if let Some(seal) = item.get("encrypted_content").and_then(Value::as_str) {
                    check(format!("input[{index}].encrypted_content"), seal, "");
                }
            }
        }
        Vendor::AnthropicMessages => {
            let messages = body
                .get("messages")
                .and_then(Value::as_array)
                .unwrap_or(&empty);
            for (index, message) in messages.iter().enumerate() {
                for (place, block) in list(message, "content").iter().enumerate() {
                    let at = format!("messages[{index}].content[{place}]");
                    let field = |key: &str| block.get(key).and_then(Value::as_str);
                    match field("type") {
                        Some("thinking") => {
                            let text = field("thinking").unwrap_or("");
                            check(at, field("signature").unwrap_or(""), text);
                        }
                        Some("redacted_thinking") => check(at, field("data").unwrap_or(""), ""),
                        _ => {}
                    }
                }
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_known_again_by_another_server_and_any_change_shows() {
        let seal = Issuer::new().seal(Vendor::AnthropicMessages, "Two.");
        assert!(is_intact(Vendor::AnthropicMessages, &seal, "Two."));
        assert!(!is_intact(Vendor::AnthropicMessages, &seal, "Two"));
        assert!(!is_intact(Vendor::OpenaiResponses, &seal, "Two."));
        for place in SEAL_PREFIX.len()..seal.len() {
            let mut bytes = seal.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(bytes).expect("ascii");
            assert!(
                !is_intact(Vendor::AnthropicMessages, &altered, "Two."),
                "{altered}"
            );
        }
    }

    #[test]
    fn ids_fit_each_vendor_and_do_not_repeat_across_runs() {
        let (one, two) = (Issuer::new(), Issuer::new());
        assert_ne!(one.id("call_"), two.id("call_"));
        assert_ne!(one.id("call_"), one.id("call_"));
        assert!(one.id("srvtoolu_").len() <= 40);
    }
}
