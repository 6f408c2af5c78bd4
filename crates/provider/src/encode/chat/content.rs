//! The content of messages: text, images, documents, and the marks of a cache.

use super::super::media::{self, Kind, Shown};
use super::super::shape::{self, Json, json};
use crate::dialect::{Facts, Files};
use serde::Serialize;
use serde_json::{Map, Value, json as value};
use tenure_core::request::Media;

/// Does the server want cache marks?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marks {
    /// Text content is a string.
    None,
    /// Text content is always a list of parts, so that a mark that moves on changes nothing else.
    Parts,
}

/// One part of what is said.
pub(super) enum Piece {
    /// Words.
    Text(String),
    /// A part in the server's JSON.
    Part(Json),
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Mixed {
    role: &'static str,
    content: Vec<Json>,
}

/// The system message.
pub(super) fn system(text: &str, marks: Marks) -> Json {
    plain("system", text, marks, marks == Marks::Parts)
}

/// A message of words.
pub(super) fn plain(role: &'static str, text: &str, marks: Marks, marked: bool) -> Json {
    json(&Message {
        role,
        content: words(text, marks, marked),
        tool_call_id: None,
    })
}

/// The result of a call.
pub(super) fn result(id: &str, text: &str, marks: Marks, marked: bool) -> Json {
    json(&Message {
        role: "tool",
        content: words(text, marks, marked),
        tool_call_id: Some(id),
    })
}

/// What the user said: a string where it is words only, else parts.
pub(super) fn user(pieces: &[Piece], marks: Marks, marked: bool) -> Json {
    let mut parts: Vec<Json> = Vec::new();
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(more) => {
                if !text.is_empty() {
                    text.push_str("\n\n");
                }
                text.push_str(more);
            }
            Piece::Part(part) => {
                if !text.is_empty() {
                    parts.push(json(&text_part(&text, false)));
                    text.clear();
                }
                parts.push(part.clone());
            }
        }
    }
    if parts.is_empty() {
        return plain("user", &text, marks, marked);
    }
    if !text.is_empty() {
        parts.push(json(&text_part(&text, marked)));
    }
    json(&Mixed {
        role: "user",
        content: parts,
    })
}

fn words(text: &str, marks: Marks, marked: bool) -> Value {
    match marks {
        Marks::None => Value::String(text.to_owned()),
        Marks::Parts => Value::Array(vec![text_part(text, marked)]),
    }
}

fn text_part(text: &str, marked: bool) -> Value {
    let mut part = Map::new();
    part.insert("type".to_owned(), "text".into());
    part.insert("text".to_owned(), text.into());
    if marked {
        part.insert("cache_control".to_owned(), value!({"type": "ephemeral"}));
    }
    Value::Object(part)
}

/// An image or a document as the server takes it; in words when it does not.
pub(super) fn media(media: &Media, facts: &Facts, shown: &Shown) -> Piece {
    let url = || format!("data:{};base64,{}", media.media_type, media.data);
    let taken = match media::kind(media) {
        Some(Kind::Image) => facts.images,
        Some(Kind::Pdf) => facts.files != Files::None,
        None => false,
    };
    if !taken {
        return Piece::Text(shape::media_as_text(media));
    }
    if let Some(words) = shown.stand_in(media) {
        return Piece::Text(words);
    }
    let part = if media::kind(media) == Some(Kind::Image) {
        value!({"type": "image_url", "image_url": {"url": url()}})
    } else {
        match facts.files {
            Files::File => {
                value!({"type": "file", "file": {"filename": media.name, "file_data": url()}})
            }
            Files::DocumentUrl => {
                value!({"type": "document_url", "document_url": url(), "document_name": media.name})
            }
            Files::FileUrl => {
                let data: &str = &media.data;
                value!({"type": "file_url", "file_url": {"url": data}, "file_name": media.name})
            }
            Files::None => return Piece::Text(shape::media_as_text(media)),
        }
    };
    Piece::Part(json(&part))
}
