//! OpenAI Responses: typed output items, each added, streamed and done.

mod item;

use super::over_sse::{Wire, malformed};
use super::raw::{self, Raw};
use super::sink::Sink;
use crate::classify::classify_event;
use crate::sse::SseEvent;
use item::{Fragment, Item};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashSet};
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    output_index: Raw<'a>,
    #[serde(borrow, default)]
    summary_index: Raw<'a>,
    #[serde(borrow, default)]
    content_index: Raw<'a>,
    #[serde(borrow, default)]
    item: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    response: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize, Default)]
struct Response<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    output: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
    #[serde(borrow, default)]
    incomplete_details: Raw<'a>,
}

/// The machine. Items are known by their output index: some gateways change item ids between events.
#[derive(Default)]
pub(super) struct Responses {
    open: BTreeMap<u64, Item>,
    done: HashSet<u64>,
    calls: item::Calls,
    ended: bool,
}

impl Wire for Responses {
    fn event(&mut self, event: &SseEvent<'_>, sink: &mut Sink) {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return;
        }
        if let Ok(parsed) = serde_json::from_str::<Event<'_>>(data) {
            return self.handle(&parsed, event, sink);
        }
        let normal = raw::normalised(data);
        match normal.as_deref().map(serde_json::from_str::<Event<'_>>) {
            Some(Ok(parsed)) => self.handle(&parsed, event, sink),
            _ => sink.fail(malformed(event)),
        }
    }

    fn close(&mut self, _sink: &mut Sink) {}

    fn finish_seen(&self) -> bool {
        self.ended
    }
}

impl Responses {
    fn handle(&mut self, event: &Event<'_>, sse: &SseEvent<'_>, sink: &mut Sink) {
        let kind = raw::text(event.kind);
        let kind = kind.as_deref().unwrap_or(&sse.name);
        let index = raw::number(event.output_index).unwrap_or(0);
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.delta(index, &Fragment::Text, event.delta, sink)
            }
            "response.reasoning_summary_text.delta" => {
                let part = Fragment::Summary(raw::number(event.summary_index).unwrap_or(0));
                self.delta(index, &part, event.delta, sink);
            }
            "response.reasoning_text.delta" => {
                let part = Fragment::Thought(raw::number(event.content_index).unwrap_or(0));
                self.delta(index, &part, event.delta, sink);
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.delta(index, &Fragment::Arguments, event.delta, sink);
            }
            "response.output_item.added" => self.added(index, event.item, sink),
            "response.output_item.done" => self.finish_item(index, event.item, sink),
            "response.created" | "response.in_progress" | "response.queued" => {
                self.started(event.response, sink)
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                self.completed(kind, event.response, sink)
            }
            "response.failed" => self.failed(event, sse, sink),
            "error" | "response.error" => Self::error(event, sse, sink),
            "" if event.error.is_some() => Self::error(event, sse, sink),
            // Progress of hosted tools: the provider is at work.
            other if other.starts_with("response.") => sink.touch(),
            _ => {}
        }
    }

    fn started(&mut self, response: Raw<'_>, sink: &mut Sink) {
        let Some(response) = view(response) else {
            return;
        };
        let filled = |raw| raw::word(raw).filter(|w| !w.is_empty());
        sink.start(filled(response.id), filled(response.model));
    }

    fn added(&mut self, index: u64, item: Raw<'_>, sink: &mut Sink) {
        let Some(item) = item else { return };
        if self.done.contains(&index) {
            return;
        }
        sink.touch();
        self.open
            .entry(index)
            .or_insert_with(|| Item::added(item.get(), &mut self.calls, sink));
    }

    fn delta(&mut self, index: u64, fragment: &Fragment, delta: Raw<'_>, sink: &mut Sink) {
        // xAI and others send objects where OpenAI sends their text.
        let Some(text) = raw::arguments(delta).filter(|text| !text.is_empty()) else {
            return;
        };
        if self.done.contains(&index) {
            return;
        }
        let item = match self.open.entry(index) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => match Item::implied(fragment) {
                Some(item) => free.insert(item),
                None => return,
            },
        };
        item.delta(fragment, &text, sink);
    }

    fn finish_item(&mut self, index: u64, item: Raw<'_>, sink: &mut Sink) {
        let Some(json) = item else { return };
        if !self.done.insert(index) {
            return;
        }
        let item = match self.open.remove(&index) {
            Some(item) => item,
            None => Item::added(json.get(), &mut self.calls, sink),
        };
        sink.touch();
        item.done(json.get(), &mut self.calls, sink);
    }

    fn completed(&mut self, kind: &str, response: Raw<'_>, sink: &mut Sink) {
        let empty = Response::default();
        let response = view(response).unwrap_or(empty);
        self.started_late(&response, sink);
        let output: Vec<&RawValue> = response
            .output
            .and_then(|o| serde_json::from_str(o.get()).ok())
            .unwrap_or_default();
        for (index, item) in (0u64..).zip(output) {
            // What some gateways never stream, or begin and never end.
            self.finish_item(index, Some(item), sink);
        }
        for (_, item) in std::mem::take(&mut self.open) {
            item.close(kind == "response.incomplete", sink);
        }
        read_usage(response.usage, sink);
        let reason = response
            .incomplete_details
            .and_then(|d| serde_json::from_str::<Value>(d.get()).ok())
            .and_then(|d| d.get("reason").and_then(Value::as_str).map(str::to_owned));
        let finish = match (kind, reason.as_deref()) {
            ("response.incomplete", Some("content_filter")) => Finish::ContentFilter,
            ("response.incomplete", Some("max_output_tokens" | "max_tokens")) => Finish::Length,
            ("response.incomplete", _) => Finish::Other,
            _ if self.calls.any_local() => Finish::ToolCalls,
            _ => Finish::Stop,
        };
        self.ended = true;
        let status = kind.trim_start_matches("response.").to_owned();
        sink.finish(finish, Some(reason.unwrap_or(status)));
    }

    fn started_late(&mut self, response: &Response<'_>, sink: &mut Sink) {
        if !sink.is_started() {
            let filled = |raw| raw::word(raw).filter(|w| !w.is_empty());
            sink.start(filled(response.id), filled(response.model));
        }
    }

    fn failed(&mut self, event: &Event<'_>, sse: &SseEvent<'_>, sink: &mut Sink) {
        let Some(response) = view(event.response) else {
            return Self::error(event, sse, sink);
        };
        read_usage(response.usage, sink);
        let value = response
            .error
            .and_then(|e| serde_json::from_str(e.get()).ok())
            .unwrap_or(Value::Null);
        self.ended = true;
        sink.fail(classify_event(&value));
    }

    fn error(event: &Event<'_>, sse: &SseEvent<'_>, sink: &mut Sink) {
        let nested = event.error.filter(|e| e.get() != "null").map(RawValue::get);
        let value = serde_json::from_str(nested.unwrap_or(&sse.data)).unwrap_or(Value::Null);
        sink.fail(classify_event(&value));
    }
}

fn view(response: Raw<'_>) -> Option<Response<'_>> {
    serde_json::from_str(response?.get()).ok()
}

fn read_usage(usage: Raw<'_>, sink: &mut Sink) {
    let Some(Ok(usage)) = usage
        .filter(|u| u.get().starts_with('{'))
        .map(|u| serde_json::from_str::<Value>(u.get()))
    else {
        return;
    };
    let get = |path: &[&str]| raw::tokens_at(&usage, path).unwrap_or(0);
    sink.set_usage(Usage::from_gross(
        get(&["input_tokens"]),
        get(&["input_tokens_details", "cached_tokens"]),
        get(&["input_tokens_details", "cache_write_tokens"]),
        get(&["output_tokens"]),
        get(&["output_tokens_details", "reasoning_tokens"]),
    ));
}
