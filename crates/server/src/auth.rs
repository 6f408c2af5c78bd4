//! Who may ask a node: whoever knows the cluster's secret, which lies in the store.
//!
//! Each request is signed with HMAC-SHA256 over its method, path and query, the hash of its body, the life it is
//! meant for, the life it comes from, and a number used once. The receiver refuses
//!
//! - a signature that is not of this cluster (401), compared in constant time;
//! - a life that is not its own (421): a node that was restarted or cloned is another one, whatever its address;
//! - a number that was used, or belongs to a generation it no longer remembers (409).
//!
//! No clock is compared. This keeps out whoever can reach the port and does not know the secret, and whoever
//! records requests and sends them again. It does not hide anything: requests and live text cross the network
//! as they are, and answers are not signed. So nodes belong on a private network, or behind something that
//! encrypts between them. Whoever can read the store has the secret, and needs no port to do harm.

use bytes::Bytes;
use hmac::{Hmac, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use sha2::{Digest, Sha256};
use std::fmt;
use tenure_core::id::Incarnation;

/// The life a request is meant for.
pub const TO: HeaderName = HeaderName::from_static("x-tenure-to");
/// The life it comes from.
pub const FROM: HeaderName = HeaderName::from_static("x-tenure-from");
/// Generation and counter, as `7.1234`.
pub const NONCE: HeaderName = HeaderName::from_static("x-tenure-nonce");
/// The signature, hexadecimal.
pub const SIGNATURE: HeaderName = HeaderName::from_static("x-tenure-signature");

/// The first line of what is signed: another meaning of the lines needs another one.
const FORM: &str = "tenure-node-1";

/// What all nodes of a store share: 32 random bytes. No `Debug` or error shows it.
#[derive(Clone)]
pub struct ClusterSecret([u8; 32]);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret(…)")
    }
}

impl ClusterSecret {
    /// Takes the store's bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    fn mac(&self, request: &Signed<'_>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .expect("invariant: HMAC takes a key of any length");
        let Signed {
            method,
            path,
            body,
            to,
            from,
            nonce,
        } = request;
        let body = hex(&Sha256::digest(body));
        // No part can hold a line break: HTTP carries none, and ids have their own alphabet.
        let text = format!(
            "{FORM}\n{method}\n{path}\n{body}\n{to}\n{from}\n{}.{}",
            nonce.generation, nonce.counter
        );
        mac.update(text.as_bytes());
        mac
    }
}

/// A number used once: counted by the caller within a generation that the receiver names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce {
    /// The receiver's generation.
    pub generation: u64,
    /// The caller's counter: each value once in the caller's life.
    pub counter: u64,
}

impl Nonce {
    fn parse(text: &str) -> Option<Self> {
        let (generation, counter) = text.split_once('.')?;
        Some(Self {
            generation: generation.parse().ok()?,
            counter: counter.parse().ok()?,
        })
    }
}

/// All that is signed of a request.
#[derive(Debug)]
pub struct Signed<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query, as sent.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The life it is meant for.
    pub to: &'a Incarnation,
    /// The life it comes from.
    pub from: &'a Incarnation,
    /// The number used once.
    pub nonce: Nonce,
}

/// The headers that sign a request.
pub fn sign(secret: &ClusterSecret, request: &Signed<'_>) -> HeaderMap {
    let signature = hex(&secret.mac(request).finalize().into_bytes());
    let nonce = format!("{}.{}", request.nonce.generation, request.nonce.counter);
    let parts = [
        (TO, request.to.as_str()),
        (FROM, request.from.as_str()),
        (NONCE, &nonce),
        (SIGNATURE, &signature),
    ];
    parts
        .into_iter()
        .filter_map(|(name, value)| Some((name, HeaderValue::from_str(value).ok()?)))
        .collect()
}

/// Who sent a request that is signed by somebody of this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The life it is meant for: not checked yet.
    pub to: Incarnation,
    /// The life it comes from.
    pub from: Incarnation,
    /// The number used once: not checked yet.
    pub nonce: Nonce,
}

/// A request that nobody of this cluster signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// A header is missing or is not what it should be.
    #[error("the request is not signed: the header {0} is missing or malformed")]
    Header(&'static str),
    /// The signature does not fit.
    #[error("the signature is not of this cluster, or what it signs was changed on the way")]
    Signature,
}

/// Checks the signature, in constant time. The caller's life and number are still to be judged.
///
/// # Errors
/// A header is missing or malformed, or the signature does not fit.
pub fn verify(
    secret: &ClusterSecret,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Caller, Unsigned> {
    let text = |name: &HeaderName, called| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => value.to_str().map_err(|_| Unsigned::Header(called)),
            _ => Err(Unsigned::Header(called)),
        }
    };
    let life = |name: &HeaderName, called| {
        Incarnation::parse(text(name, called)?).map_err(|_| Unsigned::Header(called))
    };
    let to = life(&TO, "x-tenure-to")?;
    let from = life(&FROM, "x-tenure-from")?;
    let nonce =
        Nonce::parse(text(&NONCE, "x-tenure-nonce")?).ok_or(Unsigned::Header("x-tenure-nonce"))?;
    let signature = unhex(text(&SIGNATURE, "x-tenure-signature")?)
        .ok_or(Unsigned::Header("x-tenure-signature"))?;
    let request = Signed {
        method,
        path,
        body,
        to: &to,
        from: &from,
        nonce,
    };
    let expected = secret.mac(&request).finalize().into_bytes();
    let fits: bool =
        subtle::ConstantTimeEq::ct_eq(expected.as_slice(), signature.as_slice()).into();
    if fits {
        Ok(Caller { to, from, nonce })
    } else {
        Err(Unsigned::Signature)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS[usize::from(n & 15)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut out = [0; 32];
    if digits.len() != 2 * out.len() {
        return None;
    }
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests;
