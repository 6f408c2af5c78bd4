//! A buffer of server-sent events that remembers where each one ends.

use serde_json::Value;

/// Events on their way out.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// The bytes not yet sent.
    pub(crate) bytes: Vec<u8>,
    /// Where each event in `bytes` ends; kept only when `track` is set.
    pub(crate) ends: Vec<usize>,
    /// Set when events must be told apart on sending.
    pub(crate) track: bool,
    crlf: bool,
    comments: bool,
}

impl Frames {
    pub(crate) fn new(track: bool, crlf: bool, comments: bool) -> Self {
        Self {
            bytes: Vec::with_capacity(20 * 1024),
            ends: Vec::new(),
            track,
            crlf,
            comments,
        }
    }

    pub(crate) fn line_end(&self) -> &'static str {
        if self.crlf { "\r\n" } else { "\n" }
    }

    /// The lines before the data of an event, up to and including `data: `.
    pub(crate) fn opening(&self, event: Option<&str>) -> String {
        let comment = if self.comments {
            format!(": scripted{}", self.line_end())
        } else {
            String::new()
        };
        match event {
            Some(name) => format!("{comment}event: {name}{}data: ", self.line_end()),
            None => format!("{comment}data: "),
        }
    }

    /// One event whose data is given as consecutive pieces.
    pub(crate) fn event(&mut self, opening: &str, data: &[&str]) {
        self.bytes.extend_from_slice(opening.as_bytes());
        for piece in data {
            self.bytes.extend_from_slice(piece.as_bytes());
        }
        let end = self.line_end().as_bytes();
        self.bytes.extend_from_slice(end);
        self.bytes.extend_from_slice(end);
        if self.track {
            self.ends.push(self.bytes.len());
        }
    }

    /// A comment that stands alone, as some servers send to keep a connection open.
    pub(crate) fn comment(&mut self, text: &str) {
        let end = self.line_end();
        self.bytes
            .extend_from_slice(format!(": {text}{end}{end}").as_bytes());
    }

    /// One event of JSON data.
    pub(crate) fn json(&mut self, event: Option<&str>, data: &Value) {
        let opening = self.opening(event);
        self.event(&opening, &[&data.to_string()]);
    }
}
