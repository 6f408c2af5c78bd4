//! What all encoders share: exact JSON pieces, legal ids, canonical schemas.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use tenure_core::request::{
    AssistantBlock, Media, Request, RequestMessage, ToolDef, ToolResult, UserPart,
};

/// A piece of JSON, kept as text.
pub(super) type Json = Box<RawValue>;

/// `value` as JSON.
pub(super) fn json<T: Serialize>(value: &T) -> Json {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Native state as it was; `None` when it is no JSON object (a damaged log must not break the request).
pub(super) fn native(text: Option<&str>) -> Option<(Json, Map<String, Value>)> {
    let text = text?;
    let fields = serde_json::from_str(text).ok()?;
    Some((RawValue::from_string(text.to_owned()).ok()?, fields))
}

/// Is there more than white space?
pub(super) fn visible(text: &str) -> bool {
    !text.trim().is_empty()
}

/// Privileged text for vendors that know it only at the start.
pub(super) fn note(text: &str) -> String {
    format!("<tenure-note>\n{text}\n</tenure-note>")
}

/// A hosted call of another provider, told in words.
pub(super) fn hosted_as_text(name: &str, text: &str) -> Option<String> {
    visible(text).then(|| {
        format!(
            "[{name} was run by the provider and gave:]\n{}",
            text.trim_end()
        )
    })
}

/// A call's input as a JSON object. Anything else would make the whole request invalid.
pub(super) fn object_text(input: &str) -> Cow<'_, str> {
    if input.trim().is_empty() {
        return Cow::Borrowed("{}");
    }
    match serde_json::from_str::<Map<String, Value>>(input) {
        Ok(_) => Cow::Borrowed(input.trim()),
        Err(_) => {
            let mut wrapped = Map::new();
            wrapped.insert("unparsed".to_owned(), Value::String(input.to_owned()));
            Cow::Owned(Value::Object(wrapped).to_string())
        }
    }
}

/// As [`object_text`], as a piece of JSON.
pub(super) fn object(input: &str) -> Json {
    RawValue::from_string(object_text(input).into_owned()).unwrap_or_else(|_| json(&Map::new()))
}

/// Does thinking go back as it was signed? Its text and its signature have to belong together; `sealed` says that the
/// model may have kept the text to itself.
pub(super) fn is_whole(said: &str, signature: &str, text: &str, sealed: bool) -> bool {
    (visible(said) || sealed) && !signature.is_empty() && said == text
}

/// The blocks of an assistant's turn. Thinking alone is no answer, and vendors refuse a message that ends with it.
pub(super) struct Answer<T> {
    blocks: Vec<T>,
    /// Where the last block that is no thinking ends.
    answered: usize,
}

impl<T> Answer<T> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self {
            blocks: Vec::new(),
            answered: 0,
        }
    }

    /// Adds thinking.
    pub fn think(&mut self, blocks: impl IntoIterator<Item = T>) {
        self.blocks.extend(blocks);
    }

    /// Adds what the thinking before it is for; nothing changes where there is nothing.
    pub fn say(&mut self, blocks: impl IntoIterator<Item = T>) {
        let before = self.blocks.len();
        self.blocks.extend(blocks);
        if self.blocks.len() > before {
            self.answered = self.blocks.len();
        }
    }

    /// All blocks but thinking at the end.
    pub fn into_blocks(mut self) -> Vec<T> {
        self.blocks.truncate(self.answered);
        self.blocks
    }
}

/// `id` in letters, digits, `_` and `-`, at most `limit` long. A changed id carries a hash of the original,
/// so that different ids stay different; the same id always becomes the same.
pub(super) fn legal_id(id: &str, limit: usize) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.len() <= limit && id.chars().all(legal) {
        return Cow::Borrowed(id);
    }
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut clean: String = id.chars().map(|c| if legal(c) { c } else { '_' }).collect();
    clean.truncate(limit.saturating_sub(17));
    Cow::Owned(format!("{clean}_{hash:016x}"))
}

/// A tool's schema with sorted keys and the least every vendor asks for: `type: object`, `properties`.
pub(super) fn schema(tool: &ToolDef) -> Value {
    let mut schema = match canonical(&tool.input_schema) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    schema.remove("$schema");
    schema
        .entry("properties")
        .or_insert_with(|| Value::Object(Map::new()));
    schema.insert("type".to_owned(), Value::String("object".to_owned()));
    canonical(&Value::Object(schema))
}

/// The same value with every object's keys in order, however the map type keeps them.
pub(super) fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            keys.into_iter()
                .map(|key| (key.clone(), canonical(&fields[key])))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(list) => list.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

/// A message with neighbours of its kind joined.
pub(super) enum Turn<'a> {
    /// User texts and notes.
    User(Vec<Said<'a>>),
    /// All blocks between two turns of the other side.
    Assistant(Vec<&'a AssistantBlock>),
    /// Results, before any text that follows them.
    Results(Vec<&'a ToolResult>),
}

/// Something said to the model.
pub(super) enum Said<'a> {
    /// By the user.
    User(&'a str),
    /// An image or a document of the user.
    Media(&'a Media),
    /// By the system.
    System(&'a str),
}

/// Stands for an image or a document that the endpoint does not take.
pub(super) fn media_as_text(media: &Media) -> String {
    format!(
        "[The user attached {} ({}), which cannot be shown to this model.]",
        media.name, media.media_type
    )
}

/// The conversation with neighbours joined and blank texts left out.
pub(super) fn turns(request: &Request) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for message in &request.messages {
        match message {
            RequestMessage::User { parts } => {
                for part in parts {
                    match part {
                        UserPart::Text(text) if visible(text) => say(&mut turns, Said::User(text)),
                        UserPart::Text(_) => {}
                        UserPart::Media(media) => say(&mut turns, Said::Media(media)),
                    }
                }
            }
            RequestMessage::System { text } if visible(text) => say(&mut turns, Said::System(text)),
            RequestMessage::System { .. } => {}
            RequestMessage::Assistant { blocks } => match turns.last_mut() {
                Some(Turn::Assistant(before)) => before.extend(blocks),
                _ => turns.push(Turn::Assistant(blocks.iter().collect())),
            },
            RequestMessage::ToolResults { results } => answer(&mut turns, results),
        }
    }
    turns
}

fn say<'a>(turns: &mut Vec<Turn<'a>>, said: Said<'a>) {
    match turns.last_mut() {
        Some(Turn::User(before)) => before.push(said),
        _ => turns.push(Turn::User(vec![said])),
    }
}

/// Results stand directly after their calls, even when a note came in between.
fn answer<'a>(turns: &mut Vec<Turn<'a>>, results: &'a [ToolResult]) {
    if results.is_empty() {
        return;
    }
    let between = matches!(turns.last(), Some(Turn::User(_))) && turns.len() > 1;
    let at = if between {
        turns.len() - 1
    } else {
        turns.len()
    };
    if let Some(Turn::Results(before)) = at.checked_sub(1).and_then(|at| turns.get_mut(at)) {
        before.extend(results);
        return;
    }
    turns.insert(at, Turn::Results(results.iter().collect()));
}
