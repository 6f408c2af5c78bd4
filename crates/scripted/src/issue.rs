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

use crate::encode::covered_call;
use crate::validate::Broken;
use crate::vendor::Vendor;

/// What each signature and encrypted content issued by a scripted model begins with.
pub const SEAL_PREFIX: &str = "tnscripted";

/// What the Gemini form takes in place of a signature, for calls another model made.
const SKIPPED: &str = "skip_thought_signature_validator";

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
        Vendor::BedrockConverse => 'b',
        Vendor::Gemini => 'g',
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
    for_each_seal(vendor, body, |at, seal, text| {
        let (rule, what) = if !seal.starts_with(SEAL_PREFIX) {
            if !strict {
                return;
            }
            (
                "scripted.foreign_seal",
                "this reasoning was not issued by this model",
            )
        } else if is_intact(vendor, seal, text) {
            return;
        } else {
            (
                "scripted.altered_seal",
                "reasoning must be replayed exactly as it was received",
            )
        };
        broken.push(Broken {
            rule,
            at,
            message: format!("Invalid signature: {what} ({seal:?})"),
        });
    });
    broken
}

/// Calls `visit` with the place, the seal and the text it covers of each reasoning in a request.
fn for_each_seal(vendor: Vendor, body: &Value, mut visit: impl FnMut(String, &str, &str)) {
    match vendor {
        Vendor::OpenaiChat => {
            for (index, message) in list(body, "messages").iter().enumerate() {
                for (place, detail) in list(message, "reasoning_details").iter().enumerate() {
                    if let Some(seal) = detail.get("signature").and_then(Value::as_str) {
                        let at = format!("messages[{index}].reasoning_details[{place}]");
                        let text = detail.get("text").and_then(Value::as_str);
                        visit(at, seal, text.unwrap_or(""));
                    }
                }
            }
        }
        Vendor::OpenaiResponses => {
            for (index, item) in list(body, "input").iter().enumerate() {
                if let Some(seal) = item.get("encrypted_content").and_then(Value::as_str) {
                    visit(format!("input[{index}].encrypted_content"), seal, "");
                }
            }
        }
        Vendor::AnthropicMessages => {
            for (index, message) in list(body, "messages").iter().enumerate() {
                for (place, block) in list(message, "content").iter().enumerate() {
                    let at = || format!("messages[{index}].content[{place}]");
                    let field = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or("");
                    match field("type") {
                        "thinking" => visit(at(), field("signature"), field("thinking")),
                        "redacted_thinking" => visit(at(), field("data"), ""),
                        _ => {}
                    }
                }
            }
        }
        Vendor::BedrockConverse => {
            for (index, message) in list(body, "messages").iter().enumerate() {
                for (place, block) in list(message, "content").iter().enumerate() {
                    let at = || format!("messages[{index}].content[{place}]");
                    let field = |at: &str| block.pointer(at).and_then(Value::as_str);
                    if let Some(seal) = field("/reasoningContent/reasoningText/signature") {
                        let text = field("/reasoningContent/reasoningText/text");
                        visit(at(), seal, text.unwrap_or(""));
                    }
                    let hidden = field("/reasoningContent/redactedContent");
                    if let Some(bytes) = hidden.and_then(|data| STANDARD.decode(data).ok()) {
                        visit(at(), &String::from_utf8_lossy(&bytes), "");
                    }
                }
            }
        }
        Vendor::Gemini => {
            for (index, content) in list(body, "contents").iter().enumerate() {
                for (place, part) in list(content, "parts").iter().enumerate() {
                    let Some(seal) = part.get("thoughtSignature").and_then(Value::as_str) else {
                        continue;
                    };
                    // The documented stand-in for a signature is nobody's.
                    if seal == SKIPPED {
                        continue;
                    }
                    let covered = match part.get("functionCall") {
                        Some(call) => covered_call(
                            call.get("name").and_then(Value::as_str).unwrap_or(""),
                            call.get("args").unwrap_or(&Value::Null),
                        ),
                        None => part
                            .get("text")
                            .and_then(Value::as_str)
                            .unwrap_or("")
                            .to_owned(),
                    };
                    visit(format!("contents[{index}].parts[{place}]"), seal, &covered);
                }
            }
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
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
