//! The model's text for a pipe or a file: exactly as it was written, and nothing else.

use std::collections::HashMap;
use std::io::{self, Write};
use tenure_core::MessageId;
use tenure_core::event::EventBody;
use tenure_core::event::body::FragmentKind;

/// Writes a message's text once its attempt has ended well, or its step is over, so that nothing superseded
/// ever gets out: a block that was complete before its response was cut is given up with it.
pub struct Plain<W> {
    out: W,
    open: HashMap<(MessageId, u32), String>,
    /// Complete text of attempts that are not decided yet, in its order.
    ended: HashMap<MessageId, Vec<String>>,
    /// The last byte written was a line end, or nothing was written.
    at_line_start: bool,
}

impl<W: Write> Plain<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            open: HashMap::new(),
            ended: HashMap::new(),
            at_line_start: true,
        }
    }

    /// Learns from an event.
    pub fn event(&mut self, body: &EventBody) -> io::Result<()> {
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
            EventBody::AttemptEnded(end) if end.error.is_none() => self.counts(&end.message)?,
            EventBody::RetryScheduled(retry) => {
                self.ended.remove(&retry.message);
            }
            EventBody::StepEnded(end) => self.counts(&end.message)?,
            EventBody::StepFailed(end) => self.counts(&end.message)?,
            _ => {}
        }
        Ok(())
    }

    /// Writes a message's complete text: nothing can supersede it any more.
    fn counts(&mut self, message: &MessageId) -> io::Result<()> {
        for text in self.ended.remove(message).unwrap_or_default() {
            self.write(&text)?;
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if !self.at_line_start {
            self.out.write_all(b"\n")?;
        }
        self.out.write_all(text.as_bytes())?;
        self.at_line_start = text.ends_with('\n');
        self.out.flush()
    }

    /// Ends the last line.
    pub fn finish(&mut self) -> io::Result<()> {
        if !self.at_line_start {
            self.out.write_all(b"\n")?;
            self.at_line_start = true;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::ProviderError;
    use tenure_core::event::body::*;
    use tenure_core::provider::Finish;

    fn ended(message: &MessageId, error: Option<ProviderError>) -> EventBody {
        AttemptEnded {
            message: message.clone(),
            attempt: 1,
            finish: Finish::Stop,
            raw_finish: None,
            usage: None,
            cost: None,
            error,
        }
        .into()
    }

    #[test]
    fn only_text_that_counts_is_written_exactly() {
        let mut plain = Plain::new(Vec::new());
        let message = MessageId::from_bits(1);
        let mut fragment = |part, kind, text: &str, superseded| {
            let start = FragmentStarted {
                message: message.clone(),
                part,
                attempt: 1,
                kind,
            };
            let chunk = FragmentChunk {
                message: message.clone(),
                part,
                text: text.into(),
            };
            let end = FragmentEnded {
                message: message.clone(),
                part,
                bytes: 0,
                hash: String::new(),
                native: None,
                partial: false,
                superseded,
            };
            for body in [start.into(), chunk.into(), end.into()] {
                plain.event(&body).unwrap();
            }
        };
        fragment(0, FragmentKind::Reasoning, "hm", false);
        fragment(1, FragmentKind::Text, "# a\u{1b}[1m", false);
        fragment(2, FragmentKind::Text, "gone", true);
        fragment(3, FragmentKind::Text, "b\n", false);
        fragment(4, FragmentKind::Text, "c", false);
        assert_eq!(plain.out, b"", "nothing counts before its attempt ended");
        plain.event(&ended(&message, None)).unwrap();
        plain.finish().unwrap();
        assert_eq!(
            String::from_utf8(plain.out).unwrap(),
            "# a\u{1b}[1m\nb\nc\n"
        );
    }
}
