//! AWS Bedrock ConverseStream: binary frames, each an event of a typed content block or an exception.
//!
//! `additionalModelResponseFields`, traces and padding say nothing that a conversation needs and are passed over.

mod block;
mod frames;

use super::anthropic::Anthropic;
use super::blocks::Blocks;
use super::over_sse::Wire;
use super::raw::{self, Raw};
use super::sink::Sink;
use super::{Body, too_large};
use crate::classify::classify_event;
use crate::sse::SseEvent;
use aws_smithy_types::event_stream::Message;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use block::Block;
use frames::{Fault, FrameReader};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(borrow, default)]
    content_block_index: Raw<'a>,
    #[serde(borrow, default)]
    start: Raw<'a>,
    #[serde(borrow, default)]
    delta: Raw<'a>,
    #[serde(borrow, default)]
    stop_reason: Raw<'a>,
    #[serde(borrow, default)]
    usage: Raw<'a>,
    /// A piece of the model's own stream, of InvokeModelWithResponseStream.
    #[serde(borrow, default)]
    bytes: Raw<'a>,
}

/// The reader of frames and the machine behind it.
pub(super) struct Bedrock {
    reader: FrameReader,
    converse: Converse,
}

impl Bedrock {
    /// Refuses single frames of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            reader: FrameReader::new(limit),
            converse: Converse::default(),
        }
    }
}

impl Body for Bedrock {
    fn feed(&mut self, bytes: &[u8], sink: &mut Sink) {
        let converse = &mut self.converse;
        let read = self.reader.feed(bytes, &mut |message| {
            converse.frame(message, sink);
            !sink.ended()
        });
        let Err(fault) = read else { return };
        converse.close(sink);
        if !sink.ended() {
            sink.fail(match fault {
                Fault::TooLarge { limit } => too_large(limit),
                Fault::Damaged(what) => ProviderError::new(
                    ErrorClass::Protocol,
                    format!(
                        "the provider's event stream is damaged ({what}); the stream was given up"
                    ),
                ),
            });
        }
    }

    /// Half a frame never counts.
    fn end(&mut self, _: &mut Sink) {}

    fn close(&mut self, sink: &mut Sink) {
        self.converse.close(sink);
    }

    fn finish_seen(&self) -> bool {
        self.converse.stop_reason.is_some()
            || self.converse.inner.as_ref().is_some_and(Wire::finish_seen)
    }
}

/// The machine over whole frames.
#[derive(Default)]
struct Converse {
    blocks: Blocks<Block>,
    metadata: bool,
    stop_reason: Option<String>,
    /// The model's own stream within the frames: some gateways answer so, for Anthropic's models.
    inner: Option<Anthropic>,
}

impl Converse {
    fn frame(&mut self, message: &Message, sink: &mut Sink) {
        match header(message, ":message-type").as_deref() {
            Some("exception") => {
                let kind = header(message, ":exception-type").unwrap_or_default();
                sink.fail(exception(&kind, message.payload()));
            }
            Some("error") => {
                let said = header(message, ":error-message").unwrap_or_default();
                let kind = header(message, ":error-code").unwrap_or_default();
                sink.fail(classify_event(
                    &json!({"error": {"type": kind, "message": said}}),
                ));
            }
            _ => {
                let kind = header(message, ":event-type").unwrap_or_default();
                self.event(&kind, message.payload(), sink);
            }
        }
    }

    fn event(&mut self, kind: &str, payload: &[u8], sink: &mut Sink) {
        const KNOWN: [&str; 7] = [
            "messageStart",
            "contentBlockStart",
            "contentBlockDelta",
            "contentBlockStop",
            "messageStop",
            "metadata",
            "chunk",
        ];
        if !KNOWN.contains(&kind) {
            return;
        }
        let text = String::from_utf8_lossy(payload);
        if let Ok(event) = serde_json::from_str::<Event<'_>>(&text) {
            return self.handle(kind, &event, sink);
        }
        let normal = raw::normalised(&text);
        match normal.as_deref().map(serde_json::from_str::<Event<'_>>) {
            Some(Ok(event)) => self.handle(kind, &event, sink),
            _ => sink.fail(malformed(kind, &text)),
        }
    }

    fn handle(&mut self, kind: &str, event: &Event<'_>, sink: &mut Sink) {
        match kind {
            "messageStart" => sink.start(None, None),
            "contentBlockStart" => self.block_start(event, sink),
            "contentBlockDelta" => self.block_delta(event, sink),
            "contentBlockStop" => self.blocks.stop(index(event), sink),
            "messageStop" => {
                self.blocks.stop_all(sink);
                let reason =
                    raw::filled(event.stop_reason).map_or("unknown".into(), Cow::into_owned);
                self.stop_reason = Some(reason);
                sink.touch();
                // Only the token counts can follow.
                if self.metadata {
                    self.close(sink);
                }
            }
            "metadata" => {
                self.metadata = true;
                sink.set_usage(usage(event.usage));
                sink.say_usage();
                if self.stop_reason.is_some() {
                    self.close(sink);
                }
            }
            _ => self.chunk(event, sink),
        }
    }

    fn block_start(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let index = index(event);
        self.blocks.make_room(index, sink);
        // Text may come without start and stop: it is over when the next block says its start.
        self.blocks.stop_where(Block::is_implied, sink);
        if let Some(start) = event.start
            && let Some(block) = Block::start(start.get(), sink)
        {
            self.blocks.open(index, block);
        }
    }

    fn block_delta(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let Some(delta) = event.delta else { return };
        let index = index(event);
        if let Some(open) = self.blocks.at(index)
            && open.delta(delta.get(), sink)
        {
            return;
        }
        // Nothing is open there, or another kind of content under the same index: a new block.
        self.blocks.make_room(index, sink);
        if let Some(mut block) = Block::implied(delta.get(), sink) {
            block.delta(delta.get(), sink);
            self.blocks.open(index, block);
        }
    }

    fn chunk(&mut self, event: &Event<'_>, sink: &mut Sink) {
        let Some(data) = raw::text(event.bytes).and_then(|text| STANDARD.decode(&*text).ok())
        else {
            return;
        };
        let data = String::from_utf8_lossy(&data);
        self.inner.get_or_insert_default().event(
            &SseEvent {
                name: "".into(),
                data,
            },
            sink,
        );
    }

    fn close(&mut self, sink: &mut Sink) {
        if let Some(inner) = &mut self.inner {
            return inner.close(sink);
        }
        let Some(reason) = self.stop_reason.take() else {
            return;
        };
        self.blocks.close(reason == "max_tokens", sink);
        let finish = match finish_of(&reason) {
            // Some models say `end_turn` beside their calls.
            Finish::Stop if self.blocks.any_local_call() => Finish::ToolCalls,
            finish => finish,
        };
        sink.finish(finish, Some(reason));
    }
}

fn index(event: &Event<'_>) -> u64 {
    raw::number(event.content_block_index).unwrap_or(0)
}

fn header(message: &Message, name: &str) -> Option<String> {
    let header = message
        .headers()
        .iter()
        .find(|header| header.name().as_str() == name)?;
    header
        .value()
        .as_string()
        .ok()
        .map(|value| value.as_str().to_owned())
}

/// Cached tokens are counted beside `inputTokens`.
fn usage(usage: Raw<'_>) -> Usage {
    let usage = usage
        .and_then(|usage| serde_json::from_str::<Value>(usage.get()).ok())
        .unwrap_or_default();
    let get = |key: &str| usage.get(key).and_then(raw::tokens).unwrap_or(0);
    let mut all = Usage::from_net(
        get("inputTokens"),
        get("cacheReadInputTokens"),
        get("cacheWriteInputTokens"),
        get("outputTokens"),
        0,
    );
    // What is written for an hour has a price of its own.
    let writes = usage.get("cacheDetails").and_then(Value::as_array);
    let long = writes
        .into_iter()
        .flatten()
        .filter(|write| write.get("ttl").and_then(Value::as_str) == Some("1h"))
        .filter_map(|write| write.get("inputTokens").and_then(raw::tokens))
        .fold(0, u64::saturating_add);
    all.cache_write_long = long.min(all.cache_write);
    all
}

fn finish_of(reason: &str) -> Finish {
    match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "guardrail_intervened" | "content_filtered" | "refusal" => Finish::ContentFilter,
        "pause_turn" => Finish::Pause,
        _ => Finish::Other,
    }
}

/// An exception in a frame of its own: its type stands in the headers, its words in the payload.
fn exception(kind: &str, payload: &[u8]) -> ProviderError {
    let mut said = match serde_json::from_slice::<Value>(payload) {
        Ok(Value::Object(fields)) => fields,
        _ => {
            let mut fields = serde_json::Map::new();
            let text = String::from_utf8_lossy(payload).into_owned();
            fields.insert("message".to_owned(), text.into());
            fields
        }
    };
    // Some exceptions spell it with a capital.
    if let Some(message) = said.remove("Message") {
        said.entry("message").or_insert(message);
    }
    said.insert("type".to_owned(), kind.into());
    classify_event(&json!({"error": said}))
}

fn malformed(kind: &str, text: &str) -> ProviderError {
    let start: String = text.chars().take(200).collect();
    ProviderError::new(
        ErrorClass::Protocol,
        format!("the provider sent a {kind} event that is not JSON: {start}"),
    )
}
