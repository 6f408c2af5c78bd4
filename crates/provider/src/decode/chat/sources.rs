//! Where an answer took its facts from: citations and search results, kept beside the text they belong to.

use super::super::raw::Raw;
use serde_json::value::RawValue;

/// More than this is not kept of one stream: sources are a courtesy, not the answer.
const LIMIT: usize = 4 * 1024 * 1024;

/// The sources seen so far, each in the vendor's own JSON.
#[derive(Default)]
pub(super) struct Sources {
    /// Entries that come once each.
    annotations: Vec<String>,
    /// Whole lists that come again and again: the last one counts.
    lists: [Option<String>; 3],
    size: usize,
    /// What was given last, for lists that come once more.
    told: Option<String>,
}

/// The names of the lists, in the order of [`Sources::lists`].
const LISTS: [&str; 3] = ["citations", "search_results", "web_search"];

impl Sources {
    /// Adds the entries of an `annotations` array.
    pub fn annotate(&mut self, raw: Raw<'_>) {
        let Some(raw) = raw.filter(|raw| raw.get().starts_with('[')) else {
            return;
        };
        let entries: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
        for entry in entries {
            let more = entry.get().len();
            if self.size + more <= LIMIT {
                self.size += more;
                self.annotations.push(entry.get().to_owned());
            }
        }
    }

    /// Takes the lists of a chunk.
    pub fn lists(&mut self, lists: [Raw<'_>; 3]) {
        for (have, raw) in self.lists.iter_mut().zip(lists) {
            let Some(list) = raw.map(RawValue::get) else {
                continue;
            };
            let filled = list.starts_with('[') && list.len() > 2 && list.len() <= LIMIT;
            if filled && have.as_deref() != Some(list) {
                *have = Some(list.to_owned());
            }
        }
    }

    /// What is known and was not given yet, as native state.
    pub fn take(&mut self) -> Option<String> {
        let mut fields = Vec::new();
        if !self.annotations.is_empty() {
            fields.push(format!("\"annotations\":[{}]", self.annotations.join(",")));
            self.annotations.clear();
        }
        for (name, list) in LISTS.iter().zip(&mut self.lists) {
            if let Some(list) = list.take() {
                fields.push(format!("\"{name}\":{list}"));
            }
        }
        if fields.is_empty() {
            return None;
        }
        let native = format!("{{{}}}", fields.join(","));
        if self.told.as_ref() == Some(&native) {
            return None;
        }
        self.told = Some(native.clone());
        Some(native)
    }
}
