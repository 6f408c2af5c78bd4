//! What users of a random session send: words, files, pictures, PDFs, wishes about the answer.

use super::native::PNG;
use super::{RandomLog, Tape};
use serde_json::json;
use std::sync::Arc;
use tenure_core::event::body::{AttachedFile, InputKind};
use tenure_core::request::{Effort, Media, OutputSchema};

/// The least that looks like a PDF, in base64.
const PDF: &str = "JVBERi0xLjQKJSVFT0YK";

impl RandomLog {
    pub(super) fn user(&mut self) {
        let kind = prompt(&mut self.tape);
        self.promote_new(kind);
    }
}

fn prompt(tape: &mut Tape) -> InputKind {
    let texts = ["do it", "", " \n", "né \u{1f600}\u{0}", "```\n<file>\n"];
    let text = tape.of(&texts).to_owned();
    let files = if tape.once_in(4) {
        let text = tape.of(&["", "line\r\n"]).to_owned();
        let name = "a b\".txt".to_owned();
        vec![AttachedFile { name, text }]
    } else {
        Vec::new()
    };
    let media = if tape.once_in(3) {
        (0..=tape.pick(2)).map(|_| medium(tape)).collect()
    } else {
        Vec::new()
    };
    let efforts = [
        None,
        None,
        Some(Effort::Off),
        Some(Effort::Low),
        Some(Effort::High),
    ];
    InputKind::User {
        text,
        files,
        media,
        schema: schema(tape),
        effort: tape.of(&efforts),
    }
}

/// A picture, a PDF, or what no vendor takes.
fn medium(tape: &mut Tape) -> Media {
    let (name, media_type, data) = tape.of(&[
        ("a.png", "image/png", PNG),
        ("b \"1\".pdf", "application/pdf", PDF),
        ("", "image/png", PNG),
        ("c.bmp", "image/bmp", PDF),
        ("lies.png", "image/png", PDF),
    ]);
    Media {
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        data: Arc::from(data),
    }
}

/// The form of an answer: strict, or with what not every vendor's grammar holds.
fn schema(tape: &mut Tape) -> Option<OutputSchema> {
    let schema = match tape.pick(9) {
        7 => json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                    "additionalProperties": false}),
        8 => json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1},
                    "t": {"$ref": "#/$defs/t"}}, "$defs": {"t": {"type": ["string", "null"]}}}),
        _ => return None,
    };
    Some(OutputSchema {
        name: "answer".to_owned(),
        schema,
    })
}
