//! Decode speed: bytes of made-up long streams through each protocol's decoder, on one core.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tenure_provider::{Decoder, Protocol};

/// So much of each stream is decoded in a round.
const BYTES: usize = 24 * 1024 * 1024;
/// What one read of the network gives.
const READ: usize = 16 * 1024;
/// Text of a small delta: a token or two.
const SMALL: &str = " measure twice";

/// One stream's speed.
pub(super) struct Speed {
    /// Its place among the decode figures.
    pub figure: usize,
    /// Bytes of the body, in millions, per second of the core's time.
    pub mb_per_s: f64,
}

/// A made-up stream: a start, one delta over and over, an end.
struct Stream {
    protocol: Protocol,
    start: &'static str,
    delta: fn(&str) -> String,
    end: &'static str,
    large: bool,
}

/// The streams, each with small and with large deltas, in the order of the figures.
pub(super) fn measure() -> Vec<Speed> {
    streams()
        .iter()
        .enumerate()
        .map(|(figure, stream)| Speed {
            figure,
            mb_per_s: speed(stream),
        })
        .collect()
}

fn speed(stream: &Stream) -> f64 {
    let text = if stream.large {
        // Four kilobytes with the escapes that source code brings.
        "    let total = items.iter().map(|item| item.price * item.count).sum::<u64>();\\n"
            .repeat(50)
    } else {
        SMALL.to_owned()
    };
    let delta = (stream.delta)(&text);
    let mut body = stream.start.to_owned();
    while body.len() < BYTES {
        body.push_str(&delta);
    }
    body.push_str(stream.end);
    let before = spent_us();
    let mut decoder = Decoder::new(stream.protocol);
    let mut events = 0;
    for read in body.as_bytes().chunks(READ) {
        events += decoder.feed(read).len();
    }
    events += decoder.end().len();
    let spent = spent_us() - before;
    assert!(events > BYTES / delta.len(), "the stream was not read");
    body.len() as f64 / spent as f64
}

/// Time this thread was on a core, in microseconds: what others do on the machine does not count.
fn spent_us() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD)
        .map(|usage| (usage.user_time() + usage.system_time()).num_microseconds())
        .unwrap_or_default()
}

fn streams() -> Vec<Stream> {
    let both = |protocol, start, delta, end| {
        [false, true].map(|large| Stream {
            protocol,
            start,
            delta,
            end,
            large,
        })
    };
    [
        both(
            Protocol::OpenaiChat,
            "data: {\"id\":\"chatcmpl-BxT5pQ2mW8aLr0KdVn4Ys7Jc\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"a-model-2026-01-01\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            |text| format!("data: {{\"id\":\"chatcmpl-BxT5pQ2mW8aLr0KdVn4Ys7Jc\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"a-model-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_62a23a81ef\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null}}\n\n"),
            "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ),
        both(
            Protocol::OpenaiResponses,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\"}}\n\nevent: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\n",
            |text| format!("event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":4711,\"item_id\":\"msg_68c2e7a1f0d4819b8e3c5a7d9f1b2c4e\",\"output_index\":0,\"content_index\":0,\"delta\":\"{text}\",\"logprobs\":[],\"obfuscation\":\"bX2kP9\"}}\n\n"),
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n",
        ),
        both(
            Protocol::AnthropicMessages,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            |text| format!("event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"),
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        both(
            Protocol::Gemini,
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}],\"role\":\"model\"},\"index\":0}],\"modelVersion\":\"m\",\"responseId\":\"r\"}\r\n\r\n",
            |text| format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":812,\"candidatesTokenCount\":96,\"totalTokenCount\":908,\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":812}}]}},\"modelVersion\":\"a-model-001\",\"responseId\":\"kX3aZ5mQDMvTxs0P2byvgAE\"}}\r\n\r\n"),
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":812,\"candidatesTokenCount\":97,\"totalTokenCount\":909}}\r\n\r\n",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
