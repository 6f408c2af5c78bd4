//! Entries in a form that reads fast: externally tagged and without flattened fields, so that nothing is
//! buffered while reading. Its meaning is the version's of the whole checkpoint.

use crate::event::body::InputKind;
use crate::id::MessageId;
use crate::message::*;
use crate::model::ModelRef;
use crate::provider::NativeState;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Serialize, Deserialize)]
enum WireEntry<'a> {
    #[serde(rename = "i")]
    Input(Cow<'a, MessageId>, u64, Cow<'a, InputKind>),
    #[serde(rename = "n")]
    Note(u64, Cow<'a, str>),
    #[serde(rename = "a")]
    Assistant(
        Cow<'a, MessageId>,
        u64,
        Cow<'a, ModelRef>,
        Vec<WirePart<'a>>,
        Cow<'a, Option<StepEnd>>,
    ),
}

/// Attempt, superseded, and what it is.
#[derive(Serialize, Deserialize)]
struct WirePart<'a>(u32, bool, WireKind<'a>);

#[derive(Serialize, Deserialize)]
enum WireKind<'a> {
    #[serde(rename = "t")]
    Text(Cow<'a, TextPart>),
    #[serde(rename = "r")]
    Reasoning(Cow<'a, TextPart>),
    #[serde(rename = "c")]
    Tool(Cow<'a, ToolPart>),
    #[serde(rename = "o")]
    Opaque(Cow<'a, NativeState>),
}

impl<'a> From<&'a Entry> for WireEntry<'a> {
    fn from(entry: &'a Entry) -> Self {
        match entry {
            Entry::Input { id, seq, input } => {
                Self::Input(Cow::Borrowed(id), *seq, Cow::Borrowed(input))
            }
            Entry::Note { seq, text } => Self::Note(*seq, text.into()),
            Entry::Assistant(m) => Self::Assistant(
                Cow::Borrowed(&m.id),
                m.seq,
                Cow::Borrowed(&m.model),
                m.parts.iter().map(WirePart::from).collect(),
                Cow::Borrowed(&m.end),
            ),
        }
    }
}

impl<'a> From<&'a Part> for WirePart<'a> {
    fn from(part: &'a Part) -> Self {
        let kind = match &part.kind {
            PartKind::Text(text) => WireKind::Text(Cow::Borrowed(text)),
            PartKind::Reasoning(text) => WireKind::Reasoning(Cow::Borrowed(text)),
            PartKind::Tool(tool) => WireKind::Tool(Cow::Borrowed(tool)),
            PartKind::Opaque { native } => WireKind::Opaque(Cow::Borrowed(native)),
        };
        Self(part.attempt, part.superseded, kind)
    }
}

impl From<WireEntry<'_>> for Entry {
    fn from(entry: WireEntry<'_>) -> Self {
        match entry {
            WireEntry::Input(id, seq, input) => Self::Input {
                id: id.into_owned(),
                seq,
                input: input.into_owned(),
            },
            WireEntry::Note(seq, text) => Self::Note {
                seq,
                text: text.into_owned(),
            },
            WireEntry::Assistant(id, seq, model, parts, end) => Self::Assistant(AssistantMessage {
                id: id.into_owned(),
                seq,
                model: model.into_owned(),
                parts: parts.into_iter().map(Part::from).collect(),
                end: end.into_owned(),
            }),
        }
    }
}

impl From<WirePart<'_>> for Part {
    fn from(WirePart(attempt, superseded, kind): WirePart<'_>) -> Self {
        let kind = match kind {
            WireKind::Text(text) => PartKind::Text(text.into_owned()),
            WireKind::Reasoning(text) => PartKind::Reasoning(text.into_owned()),
            WireKind::Tool(tool) => PartKind::Tool(tool.into_owned()),
            WireKind::Opaque(native) => PartKind::Opaque {
                native: native.into_owned(),
            },
        };
        Self {
            attempt,
            superseded,
            kind,
        }
    }
}

pub(super) fn serialize<S: Serializer>(
    entries: &[Arc<Entry>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(entries.iter().map(|entry| WireEntry::from(entry.as_ref())))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Arc<Entry>>, D::Error> {
    struct Entries;
    impl<'de> serde::de::Visitor<'de> for Entries {
        type Value = Vec<Arc<Entry>>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of entries")
        }
        fn visit_seq<A: serde::de::SeqAccess<'de>>(
            self,
            mut seq: A,
        ) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = seq.next_element::<WireEntry<'_>>()? {
                entries.push(Arc::new(entry.into()));
            }
            Ok(entries)
        }
    }
    deserializer.deserialize_seq(Entries)
}
