//! AWS event streams from bytes, however the network cut them: binary frames, bounded, with both checksums tested.

use aws_smithy_eventstream::frame::read_message_from;
use aws_smithy_types::event_stream::Message;
use bytes::Bytes;

/// Length of the frame, length of its headers, checksum of the two.
const PRELUDE: usize = 12;
/// A frame without headers and payload: the prelude and the checksum of the whole.
const SMALLEST: usize = PRELUDE + 4;

/// Why no frame can be read any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A frame claims to be larger than the limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A checksum does not fit, or lengths contradict each other.
    Damaged(String),
}

/// Collects frames. Holds at most one of them, and none that is larger than its limit.
pub(super) struct FrameReader {
    held: Vec<u8>,
    limit: usize,
}

impl FrameReader {
    /// A reader that refuses frames of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            held: Vec::new(),
            limit,
        }
    }

    /// Feeds bytes; `on` gets every frame that they complete and says whether to read on.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        on: &mut dyn FnMut(&Message) -> bool,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            if self.held.is_empty()
                && let Some(total) = self.length(bytes)?
                && bytes.len() >= total
            {
                let (frame, rest) = bytes.split_at(total);
                bytes = rest;
                if !on(&message(frame)?) {
                    return Ok(());
                }
                continue;
            }
            let want = self.length(&self.held)?.unwrap_or(PRELUDE);
            let take = want.saturating_sub(self.held.len()).min(bytes.len());
            self.held.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.length(&self.held)? == Some(self.held.len()) {
                let frame = message(&self.held)?;
                self.held.clear();
                if !on(&frame) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The length of the frame that begins here; `None` while its prelude is not whole. Judged before
    /// anything is collected, so that a damaged length neither fills the memory nor waits for ever.
    fn length(&self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let Some(prelude) = bytes.first_chunk::<PRELUDE>() else {
            return Ok(None);
        };
        let word = |at: usize| {
            u32::from_be_bytes([
                prelude[at],
                prelude[at + 1],
                prelude[at + 2],
                prelude[at + 3],
            ])
        };
        if crc32fast::hash(&prelude[..8]) != word(8) {
            return Err(Fault::Damaged(
                "the checksum of a frame's length does not fit".to_owned(),
            ));
        }
        let total = usize::try_from(word(0)).unwrap_or(usize::MAX);
        if total < SMALLEST {
            return Err(Fault::Damaged(format!("a frame of {total} bytes")));
        }
        if total > self.limit {
            return Err(Fault::TooLarge { limit: self.limit });
        }
        Ok(Some(total))
    }
}

fn message(frame: &[u8]) -> Result<Message, Fault> {
    read_message_from(Bytes::copy_from_slice(frame))
        .map_err(|error| Fault::Damaged(error.to_string()))
}
