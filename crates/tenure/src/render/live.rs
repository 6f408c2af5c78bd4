//! Live items as views see them.

use tenure_core::event::body::FragmentKind;
use tenure_core::id::{CallId, MessageId};

/// Something shown before, or beside, the log.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(tag = "live", rename_all = "snake_case")]
pub enum LiveItem {
    /// Text as it streams.
    Delta {
        /// The step's message.
        message: MessageId,
        /// The attempt.
        attempt: u32,
        /// The part.
        part: u32,
        /// What it belongs to.
        kind: FragmentKind,
        /// Offset in bytes.
        offset: u64,
        /// The text.
        text: String,
    },
    /// Output of a running tool.
    ToolOutput {
        /// The call.
        call: CallId,
        /// New text.
        text: String,
        /// Bytes so far.
        total_bytes: u64,
    },
    /// Items were missed.
    Lagged,
}
