//! What an error body says: its codes, its words and its delays, however deep they are nested.

use super::retry_after::{duration_ms, iso_ms, reset_ms};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bodies are read to this depth; JSON inside a message counts as a level.
const DEPTH: usize = 8;

/// The findings of one error.
#[derive(Default)]
pub(super) struct Said {
    codes: Vec<String>,
    text: String,
    message: String,
    code: Option<String>,
    delay: Option<f64>,
    resets_at: Option<u64>,
    reset: Option<String>,
    empty: bool,
}

impl Said {
    /// Reads a body: JSON, JSON in an array, server-sent events, or plain text.
    pub fn of_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        let json = text.strip_prefix("data:").map_or(text, str::trim);
        let mut said = match serde_json::from_str::<Value>(json) {
            Ok(value) => Self::of_value(&value),
            Err(_) => Self::of_text(text),
        };
        said.empty = text.is_empty();
        said
    }

    /// Reads an error object, or a whole event around one.
    pub fn of_value(value: &Value) -> Self {
        let mut said = Self::default();
        match value {
            Value::String(text) => said.text_in(text, 0),
            value => said.walk(value, 0),
        }
        // A gateway's own sentence says less than what it passes on.
        let passed_on = ["/error/metadata/raw", "/metadata/raw"]
            .iter()
            .find_map(|at| value.pointer(at)?.as_str());
        if let Some(raw) = passed_on
            && said.message.eq_ignore_ascii_case("provider returned error")
        {
            said.message = raw.trim().to_owned();
        }
        said.text.make_ascii_lowercase();
        said.text.retain(|c| c != '`');
        said
    }

    fn of_text(text: &str) -> Self {
        let mut said = Self::default();
        // An HTML page says nothing a person wants to read here.
        if text.starts_with('<') {
            said.text = text.to_ascii_lowercase();
            said.message = page_title(text);
            return said;
        }
        said.text_in(text, 0);
        said.text.make_ascii_lowercase();
        said
    }

    fn walk(&mut self, value: &Value, depth: usize) {
        if depth > DEPTH {
            return;
        }
        match value {
            Value::Array(list) => list.iter().for_each(|v| self.walk(v, depth + 1)),
            Value::Object(fields) => {
                // The message of the innermost object that has one counts; its own keys are read first.
                for key in [
                    "message",
                    "msg",
                    "detail",
                    "error",
                    "raw",
                    "error_description",
                    "details",
                    "errorMessage",
                ] {
                    if let Some(Value::String(text)) = fields.get(key) {
                        self.text_in(text, depth);
                    }
                }
                for (key, value) in fields {
                    self.field(key, value);
                    if matches!(value, Value::Object(_) | Value::Array(_)) {
                        self.walk(value, depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    fn field(&mut self, key: &str, value: &Value) {
        match (key, value) {
            (
                "code" | "type" | "status" | "error_type" | "reason" | "errorCode",
                Value::String(word),
            ) if !word.is_empty() => {
                if key == "code" || (self.code.is_none() && key == "type" && word != "error") {
                    self.code = Some(word.clone());
                }
                self.add_code(word);
            }
            ("code" | "status" | "status_code" | "http_code", Value::Number(n)) => {
                self.add_code(&n.to_string())
            }
            ("retryDelay", Value::String(text)) => self.delay = duration_ms(text).or(self.delay),
            ("resets_in_seconds" | "retry_after", Value::Number(n)) => {
                self.delay = n
                    .as_f64()
                    .filter(|s| *s >= 0.0)
                    .map(|s| s * 1000.0)
                    .or(self.delay);
            }
            ("resets_at", Value::Number(n)) => self.resets_at = n.as_u64(),
            // A gateway that passes the limit's headers on in its body.
            (name, Value::String(text)) if name.eq_ignore_ascii_case("x-ratelimit-reset") => {
                self.reset = Some(text.clone());
            }
            _ => {}
        }
    }

    fn text_in(&mut self, text: &str, depth: usize) {
        // A gateway's message may be, or hold, the JSON of the provider behind it.
        let nested = text.find(['{', '[']).and_then(|at| {
            let mut documents =
                serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
            documents
                .next()?
                .ok()
                .filter(|v| v.is_object() || v.is_array())
        });
        if let Some(value) = nested.filter(|_| depth < DEPTH) {
            let before = std::mem::take(&mut self.message);
            self.walk(&value, depth + 1);
            if self.message.is_empty() {
                self.message = before;
            }
        }
        if self.message.is_empty() && !text.trim().is_empty() {
            self.message = text.trim().to_owned();
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Adds a code from elsewhere, such as a header.
    pub fn add_code(&mut self, code: &str) {
        self.codes.push(code.to_ascii_lowercase());
    }

    /// Does any code equal one of `codes` (lower case)?
    pub fn any_code(&self, codes: &[&str]) -> bool {
        self.codes.iter().any(|have| codes.contains(&have.as_str()))
    }

    /// Does the text hold any of `phrases` (lower case)?
    pub fn has_any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.text.contains(phrase))
    }

    /// Does the text hold all of `phrases` (lower case)?
    pub fn has_all(&self, phrases: &[&str]) -> bool {
        phrases.iter().all(|phrase| self.text.contains(phrase))
    }

    /// The text in lower case, without backticks.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Was the body empty?
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// The provider's own code or type.
    pub fn code(&self) -> Option<&str> {
        self.code
            .as_deref()
            .or_else(|| self.codes.first().map(String::as_str))
    }

    /// What the provider says to people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// An HTTP status among the codes, for errors that came inside a stream.
    pub fn status(&self) -> Option<u16> {
        self.codes
            .iter()
            .filter_map(|code| code.parse().ok())
            .find(|n| (400..600).contains(n))
    }

    /// How long to wait, as the body says it.
    pub fn delay_ms(&self, now: SystemTime) -> Option<u64> {
        if let Some(ms) = self.delay {
            return Some(ms.round() as u64);
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let until =
            |at_ms: u64| (now.as_secs() > 0).then(|| at_ms.saturating_sub(now.as_millis() as u64));
        if let Some(at) = self.resets_at {
            return until(at.saturating_mul(1000));
        }
        if let Some(reset) = &self.reset
            && now.as_secs() > 0
        {
            return reset_ms(reset, UNIX_EPOCH + now);
        }
        for mark in [
            "try again in ",
            "retry in ",
            "retry after ",
            "try again after ",
            "available in ",
            "resets in ",
            "reset in ",
        ] {
            if let Some(at) = self.text.find(mark)
                && let Some(ms) = duration_ms(&self.text[at + mark.len()..])
            {
                return Some(ms.round() as u64);
            }
        }
        for mark in [
            "reset at ",
            "resets at ",
            "reset on ",
            "resets on ",
            "available at ",
        ] {
            if let Some(at) = self.text.find(mark)
                && let Some(ms) = iso_ms(&self.text[at + mark.len()..])
            {
                return until(ms);
            }
        }
        None
    }
}

fn page_title(html: &str) -> String {
    let lower = html.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|at| {
        let from = at + "<title>".len();
        lower[from..]
            .find("</title>")
            .map(|len| html[from..from + len].trim().to_owned())
    });
    match title.filter(|t| !t.is_empty()) {
        Some(title) => {
            format!("the endpoint answered with a web page titled {title:?}, not with the API")
        }
        None => "the endpoint answered with a web page, not with the API".to_owned(),
    }
}
