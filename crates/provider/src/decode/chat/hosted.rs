//! Tools the server ran itself (`executed_tools`): a call, and its result as far as the stream shows it.

use super::super::raw::{self, Raw};
use super::super::sink::Sink;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tenure_core::provider::ProviderEvent;

#[derive(Deserialize)]
struct Executed<'a> {
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    name: Raw<'a>,
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    arguments: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
    #[serde(borrow, default)]
    search_results: Raw<'a>,
    #[serde(borrow, default)]
    code_results: Raw<'a>,
}

struct Tool {
    index: u64,
    id: String,
    answered: bool,
}

/// The tools of one stream, in order of first appearance.
#[derive(Default)]
pub(super) struct Hosted {
    tools: Vec<Tool>,
}

impl Hosted {
    /// Takes an `executed_tools` array. The caller has ended what was open.
    pub fn delta(&mut self, json: &RawValue, sink: &mut Sink) {
        let entries: Vec<&RawValue> = serde_json::from_str(json.get()).unwrap_or_default();
        for (at, raw) in entries.into_iter().enumerate() {
            if sink.ended() {
                return;
            }
            let Ok(entry) = serde_json::from_str::<Executed<'_>>(raw.get()) else {
                continue;
            };
            let index = raw::number(entry.index).unwrap_or(at as u64);
            let place = match self.tools.iter().position(|tool| tool.index == index) {
                Some(place) => place,
                None => self.call(index, &entry, sink),
            };
            let tool = &mut self.tools[place];
            if tool.answered {
                continue;
            }
            if let Some(text) = text(&entry) {
                tool.answered = true;
                sink.push_content(ProviderEvent::ToolResult {
                    id: tool.id.clone(),
                    text,
                    is_error: false,
                    native: Some(raw.get().to_owned()),
                });
            }
        }
    }

    fn call(&mut self, index: u64, entry: &Executed<'_>, sink: &mut Sink) -> usize {
        let name = raw::filled(entry.name)
            .or_else(|| raw::filled(entry.kind))
            .map_or_else(|| "tool".to_owned(), |name| name.into_owned());
        let id = sink.call_id(&raw::word(entry.id).unwrap_or_default());
        let arguments = raw::arguments(entry.arguments).unwrap_or_default();
        let input = if raw::is_object(&arguments) {
            arguments.into_owned()
        } else {
            String::new()
        };
        sink.push_content(ProviderEvent::ToolCall {
            id: id.clone(),
            name,
            input,
            executed: true,
            native: None,
        });
        self.tools.push(Tool {
            index,
            id,
            answered: false,
        });
        self.tools.len() - 1
    }
}

/// The readable result; `None` while there is none.
fn text(entry: &Executed<'_>) -> Option<String> {
    if let Some(output) = raw::filled(entry.output) {
        return Some(output.into_owned());
    }
    let value = |raw: Raw<'_>| serde_json::from_str::<Value>(raw?.get()).ok();
    let list = |value: &Value, keys: [&str; 2]| {
        let entries = value.get("results").unwrap_or(value).as_array()?;
        let lines: Vec<String> = entries
            .iter()
            .map(|entry| {
                let parts = keys.iter().filter_map(|key| entry.get(key)?.as_str());
                parts.collect::<Vec<_>>().join("\n")
            })
            .filter(|line| !line.is_empty())
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n\n"))
    };
    value(entry.search_results)
        .and_then(|found| list(&found, ["title", "url"]))
        .or_else(|| value(entry.code_results).and_then(|ran| list(&ran, ["text", "error"])))
}
