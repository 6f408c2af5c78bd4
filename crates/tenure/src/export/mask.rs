//! Masks secrets in a session's events, also where one was cut in two by streaming.

use super::patterns::{MASK, Patterns};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use tenure_core::MessageId;
use tenure_core::event::body::{FragmentChunk, FragmentEnded, InputKind};
use tenure_core::event::{Event, EventBody, EventRecord};

/// Fields that are names and numbers of Tenure's own, never anybody's text.
const OWN_FIELDS: &[&str] = &[
    "input_id",
    "message",
    "call",
    "execution",
    "interrupt",
    "compaction",
    "parent",
    "hash",
    "request_hash",
    "digest",
    "kind",
    "delivery",
    "finish",
    "failure",
    "phase",
    "decision",
];

/// The events with secrets masked, and how many secrets there were.
pub fn events(events: &[Event], patterns: &Patterns) -> (Vec<EventRecord>, u64) {
    let mut count = 0;
    let chunks = Chunks::of(events, patterns, &mut count);
    let records = events
        .iter()
        .map(|event| {
            let mut masked = event.clone();
            match &mut masked.body {
                EventBody::InputAdmitted(admitted) => without_content(&mut admitted.kind),
                EventBody::FragmentChunk(chunk) => chunks.put(event.seq, chunk),
                EventBody::FragmentEnded(end) => chunks.end(end),
                _ => {}
            }
            let body = match &masked.body {
                // Done above, over the whole fragment.
                EventBody::FragmentChunk(_) => None,
                body => body_masked(body, patterns, &mut count),
            };
            let mut record = EventRecord::from(&masked);
            if let Some(text) =
                body.and_then(|text| serde_json::value::RawValue::from_string(text).ok())
            {
                record.data = text;
            }
            record
        })
        .collect();
    (records, count)
}

/// Images and documents go without their content: nobody can say whether it shows a secret.
fn without_content(kind: &mut InputKind) {
    if let InputKind::User { media, .. } = kind {
        for one in media {
            one.data = "".into();
        }
    }
}

/// The body's data with secrets masked; none when it holds none.
fn body_masked(body: &EventBody, patterns: &Patterns, count: &mut u64) -> Option<String> {
    let encoded = body.encode();
    let before = *count;
    let mut value: Value = serde_json::from_str(&encoded).ok()?;
    let is_input = matches!(
        body,
        EventBody::InputAdmitted(_) | EventBody::InputPromoted(_)
    );
    walk(&mut value, patterns, count, is_input);
    (*count > before).then(|| value.to_string())
}

fn walk(value: &mut Value, patterns: &Patterns, count: &mut u64, ids_named_input: bool) {
    match value {
        Value::String(text) => {
            if let Some(masked) = text_masked(text, patterns, count) {
                *text = masked;
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|v| walk(v, patterns, count, ids_named_input)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let own =
                    OWN_FIELDS.contains(&name.as_str()) || (ids_named_input && name == "input");
                // A field of that name may be somebody's own, as in a tool's metadata: then it is no string of ours.
                if own && value.as_str().is_some_and(is_own_word) {
                    continue;
                }
                walk(value, patterns, count, ids_named_input);
            }
        }
        _ => {}
    }
}

/// Ids, hashes and words of ours have nothing in them that could be a sentence or an assignment.
fn is_own_word(text: &str) -> bool {
    let prefixed = ["msg_", "exe_", "int_", "cmp_", "ses_", "evt_", "clm_"];
    prefixed.iter().any(|p| text.starts_with(p))
        || text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
}

fn text_masked(text: &str, patterns: &Patterns, count: &mut u64) -> Option<String> {
    let found = patterns.find(text);
    if found.is_empty() {
        return None;
    }
    *count += found.len() as u64;
    let mut out = text.to_owned();
    for range in found.into_iter().rev() {
        out.replace_range(range, MASK);
    }
    Some(out)
}

type Part = (MessageId, u32);

/// The chunks of every fragment with a secret in it, masked over their borders.
struct Chunks {
    texts: HashMap<u64, String>,
    ends: HashMap<Part, (u64, String)>,
}

impl Chunks {
    fn of(events: &[Event], patterns: &Patterns, count: &mut u64) -> Self {
        let mut parts: HashMap<Part, Vec<(u64, &str)>> = HashMap::new();
        for event in events {
            if let EventBody::FragmentChunk(chunk) = &event.body {
                let key = (chunk.message.clone(), chunk.part);
                parts.entry(key).or_default().push((event.seq, &chunk.text));
            }
        }
        let mut chunks = Self {
            texts: HashMap::new(),
            ends: HashMap::new(),
        };
        for (part, pieces) in parts {
            let whole: String = pieces.iter().map(|(_, text)| *text).collect();
            let found = patterns.find(&whole);
            if found.is_empty() {
                continue;
            }
            *count += found.len() as u64;
            let masked = split_masked(&pieces, &found);
            let all: String = masked.iter().map(|(_, text)| text.as_str()).collect();
            let hash = super::super::config::trust::hex(&Sha256::digest(all.as_bytes())[..8]);
            chunks.ends.insert(part, (all.len() as u64, hash));
            chunks.texts.extend(masked);
        }
        chunks
    }

    fn put(&self, seq: u64, chunk: &mut FragmentChunk) {
        if let Some(text) = self.texts.get(&seq) {
            chunk.text.clone_from(text);
        }
    }

    fn end(&self, end: &mut FragmentEnded) {
        if let Some((bytes, hash)) = self.ends.get(&(end.message.clone(), end.part)) {
            end.bytes = *bytes;
            end.hash.clone_from(hash);
        }
    }
}

/// Each piece without the secrets; the mask stands where a secret begins.
fn split_masked(pieces: &[(u64, &str)], found: &[std::ops::Range<usize>]) -> Vec<(u64, String)> {
    let mut start = 0;
    pieces
        .iter()
        .map(|(seq, text)| {
            let (from, to) = (start, start + text.len());
            start = to;
            let mut out = String::new();
            let mut at = from;
            for range in found.iter().filter(|r| r.start < to && r.end > from) {
                if range.start >= at {
                    out.push_str(&text[at - from..range.start - from]);
                    out.push_str(MASK);
                }
                at = range.end.min(to);
            }
            out.push_str(&text[at - from..]);
            (*seq, out)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::body::*;
    use tenure_core::{CallId, EventId, SessionId};

    const KEY: &str = "sk-abcdefghijklmnopqrstuvwx";

    fn event(seq: u64, body: impl Into<EventBody>) -> Event {
        Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: None,
            created_ms: 0,
            body: body.into(),
        }
    }

    fn fragment(pieces: &[&str]) -> Vec<Event> {
        let message = MessageId::from_bits(1);
        let mut events: Vec<_> = pieces
            .iter()
            .enumerate()
            .map(|(i, text)| {
                let body = FragmentChunk {
                    message: message.clone(),
                    part: 0,
                    text: (*text).into(),
                };
                event(i as u64, body)
            })
            .collect();
        let end = FragmentEnded {
            message,
            part: 0,
            bytes: 1,
            hash: "0".into(),
            native: None,
            partial: false,
            superseded: false,
        };
        events.push(event(pieces.len() as u64, end));
        events
    }

    fn texts(records: &[EventRecord]) -> Vec<String> {
        records
            .iter()
            .filter_map(|r| match Event::try_from(r.clone()).unwrap().body {
                EventBody::FragmentChunk(c) => Some(c.text),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn bc_s_125_a_key_cut_in_two_by_streaming_is_masked_and_the_fragment_stays_sound() {
        let pieces = [
            "say sk-abcdef",
            "ghijklmnop",
            "qrstuvwx and sk-abcdefghijklmnopq2 end",
        ];
        let (records, count) = events(&fragment(&pieces), &Patterns::new([]));
        assert_eq!(count, 2);
        let texts = texts(&records);
        assert_eq!(texts, ["say [masked]", "", " and [masked] end"]);
        let EventBody::FragmentEnded(end) = Event::try_from(records[3].clone()).unwrap().body
        else {
            panic!("the end is the last")
        };
        let whole = texts.concat();
        assert_eq!(end.bytes, whole.len() as u64);
        assert_eq!(
            end.hash,
            super::super::super::config::trust::digest(whole.as_bytes())[..16]
        );
    }

    #[test]
    fn bc_s_125_inputs_tools_titles_and_native_state_are_masked() {
        let message = MessageId::from_bits(1);
        let native = NativeForm::of(KEY);
        let all = [
            event(
                0,
                SessionRenamed {
                    title: format!("use {KEY}"),
                    automatic: true,
                },
            ),
            event(
                1,
                InputAdmitted {
                    input: message.clone(),
                    kind: InputKind::with_files(
                        format!("key {KEY}"),
                        vec![AttachedFile {
                            name: "e".into(),
                            text: format!("A_TOKEN={KEY}"),
                        }],
                    ),
                    delivery: Delivery::Steer,
                },
            ),
            event(
                2,
                ToolCalled {
                    message: message.clone(),
                    part: 0,
                    attempt: 1,
                    call: CallId::new("c"),
                    name: "bash".into(),
                    input: format!("{{\"command\":\"echo {KEY}\"}}"),
                    executed: false,
                    native: Some(native),
                },
            ),
            event(
                3,
                ToolSucceeded {
                    message,
                    call: CallId::new("c"),
                    text: format!("{KEY}\nhttps://u:pw@h/"),
                    title: KEY.into(),
                    metadata: serde_json::json!({"env": {"call": format!("X {KEY}")}}),
                    cut: None,
                    native: None,
                },
            ),
        ];
        let (records, count) = events(&all, &Patterns::new([]));
        let text: String = records
            .iter()
            .map(|r| serde_json::to_string(r).unwrap())
            .collect();
        assert!(!text.contains(KEY) && !text.contains(":pw@"), "{text}");
        assert_eq!(count, 9, "{text}");
        for record in records {
            let read = Event::try_from(record).unwrap();
            assert!(!matches!(read.body, EventBody::Unknown(_)));
        }
    }

    struct NativeForm;
    impl NativeForm {
        fn of(key: &str) -> tenure_core::provider::NativeState {
            tenure_core::provider::NativeState {
                protocol: "p".into(),
                provider: "p".into(),
                model: "m".into(),
                native: format!("{{\"input\":\"echo {key}\"}}"),
            }
        }
    }
}
