//! Server-sent events as the way from bytes to a protocol's machine.

use super::sink::Sink;
use super::surrogates::mended;
use super::{Body, too_large};
use crate::classify::classify_event;
use crate::sse::{SseEvent, SseReader};
use serde_json::Value;
use std::borrow::Cow;
use tenure_core::error::{ErrorClass, ProviderError};

/// What a protocol's machine does with whole events.
pub(super) trait Wire: Send {
    /// One event with data.
    fn event(&mut self, event: &SseEvent<'_>, sink: &mut Sink);

    /// As [`Body::close`].
    fn close(&mut self, sink: &mut Sink);

    /// As [`Body::finish_seen`].
    fn finish_seen(&self) -> bool;
}

/// A machine behind a reader of server-sent events.
pub(super) struct OverSse<W> {
    reader: SseReader,
    wire: W,
}

impl<W: Wire> OverSse<W> {
    /// Refuses single events of more than `limit` bytes.
    pub fn new(wire: W, limit: usize) -> Self {
        Self {
            reader: SseReader::new(limit),
            wire,
        }
    }
}

impl<W: Wire> OverSse<W> {
    /// Takes an event that came by another way.
    pub fn event(&mut self, event: &SseEvent<'_>, sink: &mut Sink) {
        whole_characters(event, |event| self.wire.event(event, sink));
    }
}

impl<W: Wire> Body for OverSse<W> {
    fn feed(&mut self, bytes: &[u8], sink: &mut Sink) {
        let wire = &mut self.wire;
        let read = self.reader.feed(bytes, &mut |event| {
            whole_characters(&event, |event| wire.event(event, sink));
            !sink.ended()
        });
        if let Err(large) = read {
            self.wire.close(sink);
            if !sink.ended() {
                sink.fail(too_large(large.limit));
            }
        }
    }

    fn end(&mut self, sink: &mut Sink) {
        let wire = &mut self.wire;
        self.reader.end(&mut |event| {
            // Half a JSON value must never count; a whole one in front of a lost line end does.
            if whole(&event.data) {
                whole_characters(&event, |event| wire.event(event, sink));
            }
            !sink.ended()
        });
    }

    fn close(&mut self, sink: &mut Sink) {
        self.wire.close(sink);
    }

    fn finish_seen(&self) -> bool {
        self.wire.finish_seen()
    }
}

/// Gives the event on, half characters in it replaced.
fn whole_characters(event: &SseEvent<'_>, on: impl FnOnce(&SseEvent<'_>)) {
    match mended(&event.data) {
        Cow::Borrowed(_) => on(event),
        data => on(&SseEvent {
            name: Cow::Borrowed(&event.name),
            data,
        }),
    }
}

fn whole(data: &str) -> bool {
    let data = data.trim();
    data == "[DONE]"
        || serde_json::from_str::<&serde_json::value::RawValue>(data)
            .is_ok_and(|v| v.get().starts_with('{'))
}

/// A whole event whose data is no JSON object.
pub(super) fn malformed(event: &SseEvent<'_>) -> ProviderError {
    if event.name == "error" {
        return classify_event(&Value::String(event.data.to_string()));
    }
    let start: String = event.data.chars().take(200).collect();
    ProviderError::new(
        ErrorClass::Protocol,
        format!("the provider sent an event that is not JSON: {start}"),
    )
}
