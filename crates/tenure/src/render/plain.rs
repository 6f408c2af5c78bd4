//! The model's text for a pipe or a file: exactly as it was written, and nothing else.

use super::settled::Settled;
use std::io::{self, Write};
use tenure_core::event::EventBody;

/// Writes a message's text once it counts, so that nothing superseded ever gets out.
pub struct Plain<W> {
    out: W,
    settled: Settled,
    /// The last byte written was a line end, or nothing was written.
    at_line_start: bool,
}

impl<W: Write> Plain<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self {
            out,
            settled: Settled::default(),
            at_line_start: true,
        }
    }

    /// Learns from an event.
    pub fn event(&mut self, body: &EventBody) -> io::Result<()> {
        if let Some((_, texts)) = self.settled.event(body) {
            for text in texts {
                self.write(&text)?;
            }
        }
        Ok(())
    }

    /// Writes text as a block of its own.
    pub fn write(&mut self, text: &str) -> io::Result<()> {
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
    use tenure_core::event::body::*;
    use tenure_core::provider::Finish;
    use tenure_core::{MessageId, ProviderError};

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
