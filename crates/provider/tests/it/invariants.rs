//! What must hold for any bytes a decoder gets, whoever made them. The fuzz targets use this file, too.

use crate::fold::{decode_cut, fold};
use tenure_core::provider::ProviderEvent;
use tenure_provider::{Decoder, Protocol};

/// Events may be larger than the bytes they came from by this factor: names and ids are repeated with every piece.
const GROWTH: usize = 128;

/// Checks everything: order and end of the events, no difference by cuts, bounded size, silence after the end.
pub fn any_body(protocol: Protocol, body: &[u8]) {
    let whole = decode_cut(protocol, body, &[]);
    // Exactly one end, which is last; nothing out of order; native state is what can be sent back.
    fold(&whole);
    let size: usize = whole.iter().map(bytes_of).sum();
    assert!(
        size <= GROWTH * (body.len() + 64),
        "{size} bytes of events from {} bytes",
        body.len()
    );
    for round in 0..3 {
        let cut = decode_cut(protocol, body, &cuts(body, round));
        assert_eq!(cut, whole, "other events in round {round}");
    }
    after_the_end(protocol, body);
    small_limit(protocol, body);
}

/// Cut points that depend on the bytes alone: every byte of a short body first, then ever wider random steps.
pub fn cuts(body: &[u8], round: u64) -> Vec<usize> {
    if round == 0 && body.len() <= 2048 {
        return (1..body.len()).collect();
    }
    let seed = body
        .iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ round, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let mut state = seed | 1;
    let mut cuts = Vec::new();
    let mut at = 0;
    loop {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at += 1 + (state % [3, 17, 200][(round % 3) as usize]) as usize;
        if at >= body.len() {
            return cuts;
        }
        cuts.push(at);
    }
}

fn after_the_end(protocol: Protocol, body: &[u8]) {
    let mut decoder = Decoder::new(protocol);
    decoder.feed(body);
    decoder.end();
    assert!(decoder.is_ended());
    assert!(decoder.feed(body).is_empty() && decoder.end().is_empty());
}

/// With a limit for single events the stream still ends once, and what comes before the end is the same.
fn small_limit(protocol: Protocol, body: &[u8]) {
    let mut decoder = Decoder::with_limit(protocol, 128);
    let mut events = decoder.feed(body);
    events.extend(decoder.end());
    fold(&events);
}

/// The size of an event, as what it costs to keep it.
fn bytes_of(event: &ProviderEvent) -> usize {
    let some = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match event {
        ProviderEvent::Started { response_id, model } => some(response_id) + some(model),
        ProviderEvent::TextStart { id } | ProviderEvent::ReasoningStart { id } => id.len(),
        ProviderEvent::TextDelta { id, text } | ProviderEvent::ReasoningDelta { id, text } => {
            id.len() + text.len()
        }
        ProviderEvent::TextEnd { id, native } | ProviderEvent::ReasoningEnd { id, native } => {
            id.len() + some(native)
        }
        ProviderEvent::ToolInputStart { id, name } => id.len() + name.len(),
        ProviderEvent::ToolInputDelta { id, name, text } => id.len() + some(name) + text.len(),
        ProviderEvent::ToolInputEnd { id, name } => id.len() + some(name),
        ProviderEvent::ToolCall {
            id,
            name,
            input,
            native,
            ..
        } => id.len() + name.len() + input.len() + some(native),
        ProviderEvent::ToolResult {
            id, text, native, ..
        } => id.len() + text.len() + some(native),
        ProviderEvent::Opaque { native } => native.len(),
        ProviderEvent::Usage(_) => 40,
        ProviderEvent::Finish { raw, .. } => 40 + some(raw),
        ProviderEvent::Error(error) => error.message.len() + some(&error.code),
    }
}
