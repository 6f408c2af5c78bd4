//! Push decoders: bytes of a response body in, provider events out. Pure; one machine per protocol.

mod anthropic;
#[cfg(feature = "bedrock")]
mod bedrock;
mod blocks;
mod chat;
mod gemini;
mod json_list;
mod over_sse;
mod raw;
mod responses;
mod sink;
mod surrogates;

use crate::settings::Protocol;
use json_list::SseOrList;
use over_sse::OverSse;
use sink::Sink;
use tenure_core::error::{ErrorClass, ProviderError};
use tenure_core::provider::ProviderEvent;

/// Largest single event. Generated images arrive whole in one event; text never comes near this.
const EVENT_LIMIT: usize = 32 * 1024 * 1024;
/// Most that one response may say: text, thoughts, calls, and the vendor's own JSON of them. The longest answer a model
/// can give is a hundredth of it; what is left is for generated images.
const RESPONSE_LIMIT: usize = 64 * 1024 * 1024;
/// A body may be so many times as long as what it says: vendors wrap each token into an event.
const WRAPPING: usize = 8;

/// A protocol's way from the bytes of a body to events: its reader and its machine in one.
trait Body: Send {
    /// Takes bytes as they came. Errors go into the sink; nothing is fed after the sink has ended.
    fn feed(&mut self, bytes: &[u8], sink: &mut Sink);

    /// The body is over: takes what the reader still holds, as far as it is whole.
    fn end(&mut self, sink: &mut Sink);

    /// Closes what may be closed because nothing more comes. Pushes `Finish` if the protocol's end or its
    /// finish reason was seen, else only what is known and not yet said.
    fn close(&mut self, sink: &mut Sink);

    /// The finish reason was seen: what is missing is only the protocol's farewell.
    fn finish_seen(&self) -> bool;
}

/// Decodes one response body. The last event it ever gives is `Finish` or `Error`.
pub struct Decoder {
    body: Box<dyn Body>,
    sink: Sink,
    /// Bytes of the body that may still come. What a machine keeps to itself until a block ends is bounded by them.
    left: usize,
}

impl Decoder {
    /// A decoder at the start of a body.
    pub fn new(protocol: Protocol) -> Self {
        Self::with_limit(protocol, EVENT_LIMIT)
    }

    /// As [`Decoder::new`], with an own limit in bytes for a single event.
    pub fn with_limit(protocol: Protocol, limit: usize) -> Self {
        Self::with_limits(protocol, limit, RESPONSE_LIMIT)
    }

    /// As [`Decoder::new`], with own limits in bytes, for a single event and for all that one response says. The body
    /// around it may be eight times as long as that.
    pub fn with_limits(protocol: Protocol, limit: usize, response: usize) -> Self {
        let body: Box<dyn Body> = match protocol {
            Protocol::OpenaiChat => Box::new(OverSse::new(chat::Chat::default(), limit)),
            Protocol::OpenaiResponses => {
                Box::new(OverSse::new(responses::Responses::default(), limit))
            }
            Protocol::AnthropicMessages => {
                Box::new(OverSse::new(anthropic::Anthropic::default(), limit))
            }
            Protocol::Gemini => Box::new(SseOrList::new(gemini::Gemini::default(), limit)),
            #[cfg(feature = "bedrock")]
            Protocol::BedrockConverse => Box::new(bedrock::Bedrock::new(limit)),
            #[cfg(not(feature = "bedrock"))]
            Protocol::BedrockConverse => Box::new(NotBuilt),
        };
        Self {
            body,
            sink: Sink::new(response),
            left: response.saturating_mul(WRAPPING),
        }
    }

    /// Feeds bytes as they came and gives the events they complete; none once the stream has ended.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<ProviderEvent> {
        if !self.sink.ended() {
            match self.left.checked_sub(bytes.len()) {
                Some(left) => {
                    self.left = left;
                    self.body.feed(bytes, &mut self.sink);
                }
                None => self.sink.too_long(),
            }
        }
        self.sink.take()
    }

    /// The body is over. Without the protocol's end or a finish reason this is a `Cut` error.
    pub fn end(&mut self) -> Vec<ProviderEvent> {
        if !self.sink.ended() {
            self.body.end(&mut self.sink);
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
            self.body.close(&mut self.sink);
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
        self.body.finish_seen()
    }

    /// Did anything with content arrive since the last call? Comments, pings and empty deltas do not count.
    pub fn take_content(&mut self) -> bool {
        self.sink.take_content()
    }
}

/// A protocol that this build cannot read.
#[cfg(not(feature = "bedrock"))]
struct NotBuilt;

#[cfg(not(feature = "bedrock"))]
impl Body for NotBuilt {
    fn feed(&mut self, _: &[u8], sink: &mut Sink) {
        self.end(sink);
    }

    fn end(&mut self, sink: &mut Sink) {
        sink.fail(ProviderError::new(
            ErrorClass::Protocol,
            "this build cannot read AWS event streams: build it with `--features bedrock`",
        ));
    }

    fn close(&mut self, _: &mut Sink) {}

    fn finish_seen(&self) -> bool {
        false
    }
}

/// Nothing is buffered beyond the limit: the stream is given up.
fn too_large(limit: usize) -> ProviderError {
    ProviderError::new(
        ErrorClass::Protocol,
        format!(
            "the provider sent a single event of more than {limit} bytes; the stream was given up"
        ),
    )
}
