//! What can go wrong in a turn, and how its bytes are laid on the wire.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// How a cut connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutHow {
    /// The HTTP body ends properly, the vendor's stream does not.
    End,
    /// The socket is closed in the middle of the HTTP body.
    Close,
    /// The connection is reset.
    #[default]
    Reset,
}

/// What goes wrong in a turn. A position (`after_events`, `after_bytes`, `after_parts`) counts what was sent of the
/// stream's body; left out, it is behind the last part and before the finish.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// An HTTP answer with a status instead of a stream.
    Status {
        /// The status.
        status: u16,
        /// Further headers, such as `retry-after`.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// The body: a string is sent raw, a table as JSON; left out, the vendor's usual one.
        #[serde(default)]
        body: Option<Value>,
        /// The message in the vendor's usual body.
        #[serde(default)]
        message: Option<String>,
        /// The error type in the vendor's usual body.
        #[serde(default)]
        error_type: Option<String>,
    },
    /// The 400 for a prompt that is too long, in the vendor's wording.
    Overflow {
        /// Tokens the prompt is said to have.
        #[serde(default = "overflow_used")]
        used: u64,
        /// Tokens the model is said to take.
        #[serde(default = "overflow_limit")]
        limit: u64,
    },
    /// An error event in the stream, which then ends.
    ErrorEvent {
        /// After so many events.
        #[serde(default)]
        after_events: Option<u64>,
        /// After so many parts.
        #[serde(default)]
        after_parts: Option<u64>,
        /// The vendor's error type; left out, its word for overload.
        #[serde(default)]
        error_type: Option<String>,
        /// The message.
        #[serde(default)]
        message: Option<String>,
        /// In the Responses form: a `response.failed` instead of an `error` event.
        #[serde(default)]
        failed: bool,
    },
    /// The stream is cut.
    Cut {
        /// After so many events.
        #[serde(default)]
        after_events: Option<u64>,
        /// After so many bytes of the body, also within an event.
        #[serde(default)]
        after_bytes: Option<u64>,
        /// After so many parts.
        #[serde(default)]
        after_parts: Option<u64>,
        /// How.
        #[serde(default)]
        how: CutHow,
    },
    /// The request is read, and the connection ends without a byte of answer.
    NoAnswer {
        /// How; `end` means `close` here.
        #[serde(default)]
        how: CutHow,
    },
    /// Silence, until the client leaves.
    Stall {
        /// After so many events.
        #[serde(default)]
        after_events: Option<u64>,
        /// After so many parts.
        #[serde(default)]
        after_parts: Option<u64>,
        /// Before the status line, instead of within the stream.
        #[serde(default)]
        before_headers: bool,
        /// Send a comment every so many milliseconds meanwhile.
        #[serde(default)]
        keepalive_ms: Option<u64>,
        /// Go on after so many milliseconds.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// Raw bytes between two events; the stream then goes on.
    Malformed {
        /// After so many events.
        #[serde(default)]
        after_events: Option<u64>,
        /// What is sent.
        #[serde(default = "malformed_raw")]
        raw: String,
    },
    /// The stream ends properly but for the vendor's terminator.
    NoTerminator {},
}

fn overflow_used() -> u64 {
    250_000
}

fn overflow_limit() -> u64 {
    200_000
}

fn malformed_raw() -> String {
    "data: {\"broken\": \n\n".into()
}

/// How a stream's bytes are laid on the wire.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WireShape {
    /// Lines end with CR LF.
    pub crlf: bool,
    /// Each write ends inside the next multi-byte character where there is one.
    pub split_utf8: bool,
    /// At most so many bytes in one write.
    pub write_bytes: Option<usize>,
    /// A comment line before each event.
    pub comments: bool,
    /// One event in one write, instead of many.
    pub flush_events: bool,
}
