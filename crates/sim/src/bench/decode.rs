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
    start: Vec<u8>,
    delta: fn(&str) -> Vec<u8>,
    end: Vec<u8>,
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
    let mut body = stream.start.clone();
    while body.len() < BYTES {
        body.extend_from_slice(&delta);
    }
    body.extend_from_slice(&stream.end);
    let before = spent_us();
    let mut decoder = Decoder::new(stream.protocol);
    let mut events = 0;
    for read in body.chunks(READ) {
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
    let all = [
        both(
            Protocol::OpenaiChat,
            b"data: {\"id\":\"chatcmpl-BxT5pQ2mW8aLr0KdVn4Ys7Jc\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"a-model-2026-01-01\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            |text| format!("data: {{\"id\":\"chatcmpl-BxT5pQ2mW8aLr0KdVn4Ys7Jc\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"a-model-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_62a23a81ef\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null}}\n\n").into_bytes(),
            b"data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ),
        both(
            Protocol::OpenaiResponses,
            b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\"}}\n\nevent: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\n",
            |text| format!("event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"sequence_number\":4711,\"item_id\":\"msg_68c2e7a1f0d4819b8e3c5a7d9f1b2c4e\",\"output_index\":0,\"content_index\":0,\"delta\":\"{text}\",\"logprobs\":[],\"obfuscation\":\"bX2kP9\"}}\n\n").into_bytes(),
            b"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n",
        ),
        both(
            Protocol::AnthropicMessages,
            b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            |text| format!("event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n").into_bytes(),
            b"event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":9}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        ),
        both(
            Protocol::Gemini,
            b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}],\"role\":\"model\"},\"index\":0}],\"modelVersion\":\"m\",\"responseId\":\"r\"}\r\n\r\n",
            |text| format!("data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":812,\"candidatesTokenCount\":96,\"totalTokenCount\":908,\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":812}}]}},\"modelVersion\":\"a-model-001\",\"responseId\":\"kX3aZ5mQDMvTxs0P2byvgAE\"}}\r\n\r\n").into_bytes(),
            b"data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":812,\"candidatesTokenCount\":97,\"totalTokenCount\":909}}\r\n\r\n",
        ),
    ]
    .into_iter()
    .flatten();
    #[cfg(feature = "bedrock")]
    let all = all.chain(converse());
    all.collect()
}

/// A protocol's stream, once with small and once with large deltas.
fn both(protocol: Protocol, start: &[u8], delta: fn(&str) -> Vec<u8>, end: &[u8]) -> [Stream; 2] {
    [false, true].map(|large| Stream {
        protocol,
        start: start.to_vec(),
        delta,
        end: end.to_vec(),
        large,
    })
}

/// Bedrock's binary frames; the checksums of each are part of the work.
#[cfg(feature = "bedrock")]
fn converse() -> [Stream; 2] {
    use tenure_scripted::event_frame;
    let start = event_frame("messageStart", br#"{"p":"abcdef","role":"assistant"}"#);
    let delta = |text: &str| {
        let body = format!(
            r#"{{"contentBlockIndex":0,"delta":{{"text":"{text}"}},"p":"abcdefghijklmnopqrstuvw"}}"#
        );
        event_frame("contentBlockDelta", body.as_bytes())
    };
    let ends = [
        event_frame("contentBlockStop", br#"{"contentBlockIndex":0,"p":"abc"}"#),
        event_frame("messageStop", br#"{"p":"abcd","stopReason":"end_turn"}"#),
        event_frame(
            "metadata",
            br#"{"metrics":{"latencyMs":900},"p":"abcde","usage":{"inputTokens":812,"outputTokens":97,"totalTokens":909}}"#,
        ),
    ];
    both(Protocol::BedrockConverse, &start, delta, &ends.concat())
}
