//! Typed, prefixed identifiers. Ids never define order: order is `(session, seq)`.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::sync::Arc;

/// An identifier that a person typed or a peer sent does not have the required shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is not a {what} id: expected `{prefix}` followed by 1 to 64 letters, digits, `-` or `_`"
)]
pub struct BadId {
    /// What was given, cut to 80 characters.
    pub given: String,
    /// Which kind of id was expected.
    pub what: &'static str,
    /// The prefix ids of that kind begin with.
    pub prefix: &'static str,
}

fn well_formed(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|rest| {
        !rest.is_empty()
            && rest.len() <= 64
            && rest
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    })
}

macro_rules! prefixed_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The prefix every id of this kind begins with.
            pub const PREFIX: &'static str = $prefix;

            /// Reads an id. Errors when the prefix or the alphabet is wrong.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                if well_formed(text, $prefix) {
                    Ok(Self(text.into()))
                } else {
                    Err(BadId {
                        given: text.chars().take(80).collect(),
                        what: $what,
                        prefix: $prefix,
                    })
                }
            }

            /// Makes an id from 128 bits supplied by the shell (see [`IdSource`](crate::facts::IdSource)).
            pub fn from_bits(bits: u128) -> Self {
                let mut text = String::with_capacity($prefix.len() + 26);
                text.push_str($prefix);
                push_base32(&mut text, bits);
                Self(text.into())
            }

            /// An id that is a function of its parts, so that deriving it twice gives the same id.
            pub fn derived(parts: &[&str]) -> Self {
                Self::from_bits(digest_bits(parts))
            }

            /// The id as text, prefix included.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

prefixed_id!(
    /// A session, the aggregate of the event log.
    SessionId, "ses_", "session"
);
prefixed_id!(
    /// An event. Appending an id seen before returns the stored result.
    EventId, "evt_", "event"
);
prefixed_id!(
    /// A message; an input's id becomes its message's id.
    MessageId, "msg_", "message"
);
prefixed_id!(
    /// One busy period of a session.
    ExecutionId, "exe_", "execution"
);
prefixed_id!(
    /// The row that says who holds tenure.
    ClaimId, "clm_", "claim"
);
prefixed_id!(
    /// One process start of a node.
    Incarnation, "inc_", "incarnation"
);
prefixed_id!(
    /// One compaction.
    CompactionId, "cmp_", "compaction"
);
prefixed_id!(
    /// The key of one interrupt request; repeating it is harmless.
    InterruptId, "int_", "interrupt"
);

/// A tool call's id as the provider gave it, made unique within its stream by the decoder.
/// Unique together with its assistant message, not across a session.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(Arc<str>);

impl CallId {
    /// Wraps a provider's call id.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Crockford's base 32, lower case: 26 characters for 128 bits, sorts like the number.
fn push_base32(out: &mut String, bits: u128) {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    for shift in (0..26).rev() {
        let index = (bits >> (shift * 5)) & 31;
        out.push(char::from(ALPHABET[index as usize]));
    }
}

fn digest_bits(parts: &[&str]) -> u128 {
    use sha2::{Digest, Sha256};
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let bytes = hash.finalize();
    let mut first = [0u8; 16];
    first.copy_from_slice(&bytes[..16]);
    u128::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_refuses_other_shapes() {
        let id = SessionId::from_bits(u128::MAX);
        assert_eq!(SessionId::parse(id.as_str()), Ok(id.clone()));
        assert_eq!(id.as_str(), "ses_7zzzzzzzzzzzzzzzzzzzzzzzzz");
        for bad in ["", "ses_", "msg_1", "ses_a b", "ses_\u{e9}"] {
            assert!(SessionId::parse(bad).is_err(), "{bad}");
        }
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<SessionId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<MessageId>(&json).is_err());
    }

    #[test]
    fn derived_ids_depend_on_every_part_and_its_border() {
        let one = MessageId::derived(&["a", "bc"]);
        assert_eq!(one, MessageId::derived(&["a", "bc"]));
        assert_ne!(one, MessageId::derived(&["ab", "c"]));
    }
}
