//! The text of messages, once nothing can supersede it any more.

use std::collections::HashMap;
use tenure_core::MessageId;
use tenure_core::event::EventBody;
use tenure_core::event::body::FragmentKind;

/// Holds a message's text back until its attempt has ended well, or its step is over: a block that was complete
/// before its response was cut is given up with it.
#[derive(Debug, Default)]
pub struct Settled {
    open: HashMap<(MessageId, u32), String>,
    /// Complete text of attempts that are not decided yet, in its order.
    ended: HashMap<MessageId, Vec<String>>,
}

impl Settled {
    /// Learns from an event; gives the message and its blocks of text that count from now on.
    pub fn event(&mut self, body: &EventBody) -> Option<(MessageId, Vec<String>)> {
        match body {
            EventBody::FragmentStarted(start) if start.kind == FragmentKind::Text => {
                self.open
                    .insert((start.message.clone(), start.part), String::new());
            }
            EventBody::FragmentChunk(chunk) => {
                if let Some(text) = self.open.get_mut(&(chunk.message.clone(), chunk.part)) {
                    text.push_str(&chunk.text);
                }
            }
            EventBody::FragmentEnded(end) => {
                let text = self
                    .open
                    .remove(&(end.message.clone(), end.part))
                    .unwrap_or_default();
                if !end.superseded && !text.is_empty() {
                    self.ended
                        .entry(end.message.clone())
                        .or_default()
                        .push(text);
                }
            }
            EventBody::AttemptEnded(end) if end.error.is_none() => {
                return self.counts(&end.message);
            }
            EventBody::RetryScheduled(retry) => {
                self.ended.remove(&retry.message);
            }
            EventBody::StepEnded(end) => return self.counts(&end.message),
            EventBody::StepFailed(end) => return self.counts(&end.message),
            _ => {}
        }
        None
    }

    fn counts(&mut self, message: &MessageId) -> Option<(MessageId, Vec<String>)> {
        Some((message.clone(), self.ended.remove(message)?))
    }
}
