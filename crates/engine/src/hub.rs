//! Live items: what a session's owner shows ahead of the log. Hints only; the log is the truth.

pub(crate) mod tracker;

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tenure_core::event::body::FragmentKind;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_core::turn::publisher::LiveDelta;
use tokio::sync::broadcast;

/// Something shown before, or beside, the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "live", rename_all = "snake_case")]
pub enum LiveItem {
    /// Text as it streams. `fragment.ended` confirms or supersedes it.
    Delta {
        /// The step's message.
        message: MessageId,
        /// The attempt; a retry of the step supersedes everything of earlier ones.
        attempt: u32,
        /// The part.
        part: u32,
        /// What it belongs to.
        kind: FragmentKind,
        /// The offset in bytes at which `text` begins.
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
    /// Live text that was shown of this part, from byte `from` on, is in no log and will never be: its attempt
    /// was given up, or its owner was replaced. What lies before `from` is durable.
    Superseded {
        /// The step's message.
        message: MessageId,
        /// The attempt that made the text.
        attempt: u32,
        /// The part.
        part: u32,
        /// The offset in bytes from which what was shown does not count.
        from: u64,
    },
    /// The reader was too slow and missed items: read on from the log.
    Lagged,
}

impl From<LiveDelta> for LiveItem {
    fn from(delta: LiveDelta) -> Self {
        Self::Delta {
            message: delta.message,
            attempt: delta.attempt,
            part: delta.part,
            kind: delta.kind,
            offset: delta.offset,
            text: delta.text,
        }
    }
}

/// Items a slow reader may be behind before it is told to resynchronise.
const CAPACITY: usize = 1024;

/// Fans live items out to the readers in this process.
#[derive(Debug, Clone, Default)]
pub struct Hub {
    channels: Arc<Mutex<HashMap<SessionId, broadcast::Sender<LiveItem>>>>,
}

impl Hub {
    /// Live items of a session from now on.
    pub fn subscribe(&self, session: &SessionId) -> broadcast::Receiver<LiveItem> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels
            .entry(session.clone())
            .or_insert_with(|| broadcast::channel(CAPACITY).0)
            .subscribe()
    }

    /// Does anybody look? Deltas need not be built otherwise.
    pub fn has_readers(&self, session: &SessionId) -> bool {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        match channels.get(session).map(broadcast::Sender::receiver_count) {
            Some(0) => {
                channels.remove(session);
                false
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Shows an item to whoever looks.
    pub fn send(&self, session: &SessionId, item: LiveItem) {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(session) {
            // No reader is not an error: the log has it all.
            let _ = channel.send(item);
        }
    }
}
