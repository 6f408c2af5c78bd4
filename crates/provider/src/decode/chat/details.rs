//! `reasoning_details`: typed reasoning of gateways, with signatures and sealed parts to be sent back.

use serde_json::{Map, Value};

/// The details of a message, streamed pieces of one entry joined.
#[derive(Default)]
pub(super) struct Details {
    entries: Vec<Map<String, Value>>,
}

const JOINED: [&str; 4] = ["text", "summary", "data", "signature"];

impl Details {
    /// Adds a chunk's array and gives the readable text in it.
    pub fn add(&mut self, json: &str) -> String {
        let mut readable = String::new();
        let Ok(Value::Array(entries)) = serde_json::from_str(json) else {
            return readable;
        };
        for entry in entries {
            let Value::Object(entry) = entry else {
                continue;
            };
            for key in ["text", "summary"] {
                if let Some(text) = entry.get(key).and_then(Value::as_str) {
                    readable.push_str(text);
                }
            }
            self.join(entry);
        }
        readable
    }

    fn join(&mut self, entry: Map<String, Value>) {
        let same = |a: &Map<String, Value>, b: &Map<String, Value>| {
            a.get("type") == b.get("type")
                && a.get("index") == b.get("index")
                && (a.get("id") == b.get("id") || b.get("id").is_none_or(Value::is_null))
        };
        let Some(last) = self.entries.last_mut().filter(|last| same(last, &entry)) else {
            self.entries.push(entry);
            return;
        };
        for (key, value) in entry {
            match (last.get_mut(&key), &value) {
                (Some(Value::String(have)), Value::String(more))
                    if JOINED.contains(&key.as_str()) =>
                {
                    have.push_str(more)
                }
                (_, Value::Null) => {}
                _ => {
                    last.insert(key, value);
                }
            }
        }
    }

    /// The entries so far as native state, if any of them is signed or sealed; without that the readable
    /// text is all there is to send back.
    pub fn take_sealed(&mut self) -> Option<String> {
        let filled = |entry: &Map<String, Value>, key: &str| {
            entry
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|text| !text.is_empty())
        };
        if !self
            .entries
            .iter()
            .any(|entry| filled(entry, "signature") || filled(entry, "data"))
        {
            // Kept: a signature may still come for them.
            return None;
        }
        let entries = std::mem::take(&mut self.entries);
        let mut whole = Map::new();
        whole.insert(
            "reasoning_details".to_owned(),
            entries.into_iter().map(Value::Object).collect(),
        );
        Some(Value::Object(whole).to_string())
    }
}
