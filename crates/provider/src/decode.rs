//! Push decoders: bytes of a response body in, provider events out. Pure; one machine per protocol.

mod anthropic;
mod chat;
mod raw;
mod responses;
mod sink;

use crate::classify::classify_event;
use crate::settings::Protocol;
use crate::sse::{SseEvent, SseReader};
use sink::Sink;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::provider::ProviderEvent;

/// Largest single event. Generated images arrive whole in one event; text never comes near this.
const EVENT_LIMIT: usize = 32 * 1024 * 1024;

/// What a protocol's machine does with whole events.
trait Wire: Send {
    /// One event with data.
    fn event(&mut self, event: &SseEvent<'_>, sink: &mut Sink);

    /// Closes what may be closed because the stream is over. Pushes `Finish` if the protocol's end or its
    /// finish reason was seen, else only what is known and not yet said.
    fn close(&mut self, sink: &mut Sink);

    /// The finish reason was seen: what is missing is only the protocol's farewell.
    fn finish_seen(&self) -> bool;
}

/// Decodes one response body. The last event it ever gives is `Finish` or `Error`.
pub struct Decoder {
    reader: SseReader,
    wire: Box<dyn Wire>,
    sink: Sink,
}

impl Decoder {
    /// A decoder at the start of a body.
    pub fn new(protocol: Protocol) -> Self {
        Self::with_limit(protocol, EVENT_LIMIT)
    }

    /// As [`Decoder::new`], with an own limit in bytes for a single event.
    pub fn with_limit(protocol: Protocol, limit: usize) -> Self {
        let wire: Box<dyn Wire> = match protocol {
            Protocol::OpenaiChat => Box::new(chat::Chat::default()),
            Protocol::OpenaiResponses => Box::new(responses::Responses::default()),
            Protocol::AnthropicMessages => Box::new(anthropic::Anthropic::default()),
        };
        Self {
            reader: SseReader::new(limit),
            wire,
            sink: Sink::default(),
        }
    }

    /// Feeds bytes as they came and gives the events they complete; none once the stream has ended.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<ProviderEvent> {
        if !self.sink.ended() {
            let (wire, sink) = (&mut self.wire, &mut self.sink);
            let read = self.reader.feed(bytes, &mut |event| {
                wire.event(&event, sink);
                !sink.ended()
            });
            if let Err(large) = read {
                let error = ProviderError::new(
                    ErrorClass::Protocol,
                    format!(
                        "the provider sent a single event of more than {} bytes; the stream was given up",
                        large.limit
                    ),
                );
                return self.fail(error);
            }
        }
        self.sink.take()
    }

    /// The body is over. Without the protocol's end or a finish reason this is a `Cut` error.
    pub fn end(&mut self) -> Vec<ProviderEvent> {
        if !self.sink.ended() {
            let (wire, sink) = (&mut self.wire, &mut self.sink);
            self.reader.end(&mut |event| {
                // Half a JSON value must never count; a whole one in front of a lost line end does.
                if whole(&event.data) {
                    wire.event(&event, sink);
                }
                !sink.ended()
            });
        }
        self.fail(ProviderError::new(
            ErrorClass::Cut,
            "the provider's stream ended before the response was complete",
        ))
    }

    /// The body cannot be read further, for the reason in `error`. What was seen is closed; if only the
    /// farewell was missing, the response counts as finished and `error` is dropped.
    pub fn fail(&mut self, error: ProviderError) -> Vec<ProviderEvent> {
        if !self.sink.ended() {
            self.wire.close(&mut self.sink);
            if !self.sink.ended() {
                self.sink.fail(error);
            }
        }
        self.sink.take()
    }

    /// Was `Finish` or `Error` given?
    pub fn is_ended(&self) -> bool {
        self.sink.ended()
    }

    /// Was the finish reason seen, so that a lost farewell does no harm?
    pub fn finish_seen(&self) -> bool {
        self.wire.finish_seen()
    }

    /// Did anything with content arrive since the last call? Comments, pings and empty deltas do not count.
    pub fn take_content(&mut self) -> bool {
        self.sink.take_content()
    }
}

fn whole(data: &str) -> bool {
    let data = data.trim();
    data == "[DONE]"
        || serde_json::from_str::<&serde_json::value::RawValue>(data)
            .is_ok_and(|v| v.get().starts_with('{'))
}

/// A whole event whose data is no JSON object.
fn malformed(event: &SseEvent<'_>) -> ProviderError {
    if event.name == "error" {
        return classify_event(&serde_json::Value::String(event.data.to_string()));
    }
    let start: String = event.data.chars().take(200).collect();
    ProviderError::new(
        ErrorClass::Protocol,
        format!("the provider sent an event that is not JSON: {start}"),
    )
}
