//! Any bytes as a response body of this protocol: as they are, and within frames whose checksums fit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_fuzz::invariants::any_body;
use tenure_provider::Protocol;

const KINDS: [&str; 8] = [
    "messageStart",
    "contentBlockStart",
    "contentBlockDelta",
    "contentBlockStop",
    "messageStop",
    "metadata",
    "chunk",
    "throttlingException",
];

/// One line of the input: its first byte chooses the event, the rest is the payload, or after `!` raw headers.
fn frame(line: &[u8], into: &mut Vec<u8>) {
    let Some((first, rest)) = line.split_first() else {
        return;
    };
    let kind = KINDS[usize::from(*first) % KINDS.len()];
    let mut headers = Vec::new();
    let (name, message) = if kind.ends_with("Exception") {
        (":exception-type", "exception")
    } else {
        (":event-type", "event")
    };
    for (name, value) in [(name, kind), (":message-type", message)] {
        headers.push(name.len() as u8);
        headers.extend_from_slice(name.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&(value.len() as u16).to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let (headers, payload) = match rest.strip_prefix(b"!") {
        Some(raw) => (raw, &[][..]),
        None => (headers.as_slice(), rest),
    };
    let start = into.len();
    into.extend_from_slice(&(16 + headers.len() as u32 + payload.len() as u32).to_be_bytes());
    into.extend_from_slice(&(headers.len() as u32).to_be_bytes());
    let sum = crc32fast::hash(&into[start..]);
    into.extend_from_slice(&sum.to_be_bytes());
    into.extend_from_slice(headers);
    into.extend_from_slice(payload);
    let sum = crc32fast::hash(&into[start..]);
    into.extend_from_slice(&sum.to_be_bytes());
}

fuzz_target!(|body: &[u8]| {
    any_body(Protocol::BedrockConverse, body);
    let mut framed = Vec::new();
    body.split(|byte| *byte == b'\n')
        .for_each(|line| frame(line, &mut framed));
    any_body(Protocol::BedrockConverse, &framed);
});
