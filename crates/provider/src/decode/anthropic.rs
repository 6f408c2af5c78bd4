//! Anthropic Messages: typed content blocks, each with start, deltas and stop.

mod block;

use super::blocks::Blocks;
use super::over_sse::{Wire, malformed};
use super::raw::{self, Raw};
use super::sink::Sink;
use crate::classify::classify_event;
use crate::sse::SseEvent;
use block::Block;
use serde::Deserialize;
use serde_json::{Map, Value};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::usage::Usage;

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default)]
    index: Raw<'a>,
    #[serde(borrow, default)]
    content_block: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    message: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    #[serde(borrow, default)]
    error: Raw<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
    #[serde(borrow, default)]
    model: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    #[serde(borrow, default)]
    container: Raw<'a>,
}

#[derive(Deserialize)]
struct MessageDelta<'a> {
    #[serde(borrow, default)]
    stop_reason: Raw<'a>,
    #[serde(borrow, default)]
    container: Raw<'a>,
}

/// The sandbox that hosted code ran in. To use it further its id has to be sent again.
#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow, default)]
    id: Raw<'a>,
}

/// The machine.
#[derive(Default)]
pub(super) struct Anthropic {
    blocks: Blocks<Block>,
    usage: Map<String, Value>,
    /// The tokens of the whole answer were told: what the start of a message says of them is a placeholder.
    output_told: bool,
    stop_reason: Option<String>,
    container: Option<String>,
    stopped: bool,
}

impl Wire for Anthropic {
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

    fn close(&mut self, sink: &mut Sink) {
        if self.stop_reason.is_none() && !self.stopped {
            return;
        }
        let cut = self.stop_reason.as_deref() == Some("max_tokens");
        self.blocks.close(cut, sink);
        if let Some(id) = self.container.take() {
            let native = serde_json::json!({"type": "container", "id": id}).to_string();
            sink.push(ProviderEvent::Opaque { native });
        }
        let finish = match self.stop_reason.as_deref().map(finish_of) {
            None if self.blocks.any_local_call() => Finish::ToolCalls,
            None => Finish::Stop,
            Some(finish) => finish,
        };
        if !self.output_told {
            // What is unknown is not counted as the placeholder says.
            sink.set_usage(Usage::default());
        }
        sink.finish(finish, self.stop_reason.take());
    }

    fn finish_seen(&self) -> bool {
        self.stop_reason.is_some()
    }
}

impl Anthropic {
    fn handle(&mut self, event: &Event<'_>, sse: &SseEvent<'_>, sink: &mut Sink) {
        let kind = raw::text(event.kind);
        let kind = kind.as_deref().unwrap_or(&sse.name);
        match kind {
            "message_start" => self.message_start(event, sink),
            "content_block_start" => self.block_start(event, sink),
            "content_block_delta" => self.block_delta(event, sink),
            "content_block_stop" => {
                self.blocks
                    .stop(raw::number(event.index).unwrap_or(0), sink);
            }
            "message_delta" => self.message_delta(event, sink),
            "message_stop" => {
                self.stopped = true;
                self.close(sink);
            }
            "error" => {
                let json = event.error.map_or(&*sse.data, |e| e.get());
                let value = serde_json::from_str(json).unwrap_or(Value::Null);
                sink.fail(classify_event(&value));
            }
            // Some gateways put an error into an event of no type.
            "" if event.error.is_some() => {
                let value = serde_json::from_str(&sse.data).unwrap_or(Value::Null);
                sink.fail(classify_event(&value));
            }
            _ => {}
        }
    }

    fn message_start(&mut self, event: &Event<'_>, sink: &mut Sink) {
        // A gateway that began again in the same stream: what was open stays as far as it came.
        self.blocks.stop_all(sink);
        let Some(message) = event
            .message
            .and_then(|m| serde_json::from_str::<Message<'_>>(m.get()).ok())
        else {
            return;
        };
        let filled = |raw| raw::word(raw).filter(|w| !w.is_empty());
        sink.start(filled(message.id), filled(message.model));
        self.take_container(message.container);
        self.merge_usage(message.usage, sink);
        sink.say_usage();
    }

    fn block_start(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let Some(start) = event.content_block else {
            return;
        };
        let index = raw::number(event.index).unwrap_or(0);
        self.blocks.make_room(index, sink);
        if let Some(block) = Block::start(start.get(), sink) {
            self.blocks.open(index, block);
        }
    }

    fn block_delta(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let Some(delta) = event.delta else { return };
        let index = raw::number(event.index).unwrap_or(0);
        if let Some(open) = self.blocks.at(index) {
            return open.delta(delta.get(), sink);
        }
        if let Some(mut block) = Block::implied(delta.get(), sink) {
            block.delta(delta.get(), sink);
            self.blocks.open(index, block);
        }
    }

    fn message_delta(&mut self, event: &Event<'_>, sink: &mut Sink) {
        self.merge_usage(event.usage, sink);
        self.output_told |= tells_output(event.usage);
        let delta = event
            .delta
            .and_then(|d| serde_json::from_str::<MessageDelta<'_>>(d.get()).ok());
        let Some(delta) = delta else { return };
        self.take_container(delta.container);
        if let Some(reason) = raw::filled(delta.stop_reason) {
            self.stop_reason = Some(reason.into_owned());
            sink.touch();
        }
    }

    fn take_container(&mut self, container: Raw<'_>) {
        let id = container
            .and_then(|c| serde_json::from_str::<Container<'_>>(c.get()).ok())
            .and_then(|c| raw::filled(c.id));
        if let Some(id) = id {
            self.container = Some(id.into_owned());
        }
    }

    /// `message_start` and `message_delta` each tell a part; what comes later wins, field by field.
    fn merge_usage(&mut self, usage: Raw<'_>, sink: &mut Sink) {
        let Some(Ok(fields)) = usage.map(|u| serde_json::from_str::<Map<String, Value>>(u.get()))
        else {
            return;
        };
        self.usage
            .extend(fields.into_iter().filter(|(_, value)| !value.is_null()));
        let get = |key: &str| self.usage.get(key).and_then(raw::tokens).unwrap_or(0);
        let reasoning = self
            .usage
            .get("output_tokens_details")
            .and_then(|details| {
                details
                    .get("thinking_tokens")
                    .or_else(|| details.get("reasoning_tokens"))
            })
            .and_then(raw::tokens)
            .unwrap_or(0);
        let mut usage = Usage::from_net(
            get("input_tokens"),
            get("cache_read_input_tokens"),
            get("cache_creation_input_tokens"),
            get("output_tokens"),
            reasoning,
        );
        // What is written for an hour has a price of its own.
        let long = self
            .usage
            .get("cache_creation")
            .and_then(|written| written.get("ephemeral_1h_input_tokens"))
            .and_then(raw::tokens);
        usage.cache_write_long = long.unwrap_or(0).min(usage.cache_write);
        // What is billed by the piece: a search that failed is not.
        usage.searches = self
            .usage
            .get("server_tool_use")
            .and_then(|run| run.get("web_search_requests"))
            .and_then(raw::tokens);
        sink.set_usage(usage);
    }
}

fn tells_output(usage: Raw<'_>) -> bool {
    #[derive(Deserialize)]
    struct Told {
        output_tokens: Option<Value>,
    }
    let told = usage.and_then(|usage| serde_json::from_str::<Told>(usage.get()).ok());
    told.and_then(|told| told.output_tokens)
        .is_some_and(|count| raw::tokens(&count).is_some())
}

fn finish_of(reason: &str) -> Finish {
    match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "refusal" => Finish::ContentFilter,
        // Both want to be called again with what they sent.
        "pause_turn" | "compaction" => Finish::Pause,
        _ => Finish::Other,
    }
}
