//! Reads a live stream line by line: bounded, and ended by silence.

use crate::wire::LiveLine;
use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use std::time::Duration;
use tenure_engine::Relayed;

/// A node that relays says something every second. One that is silent for so long is cut off.
const SILENCE: Duration = Duration::from_millis(3_500);
/// No line is longer: live text comes in the pieces the model sends.
const LINE_MAX: usize = 4 * 1024 * 1024;

struct Reading<E> {
    chunks: BoxStream<'static, Result<Bytes, E>>,
    buffer: BytesMut,
    /// Bytes of the buffer that hold no line's end.
    looked: usize,
}

/// What the node says, until the stream ends, is cut, or is silent for too long.
pub(super) fn relayed<E: Send + 'static>(
    chunks: BoxStream<'static, Result<Bytes, E>>,
) -> BoxStream<'static, Relayed> {
    let reading = Reading {
        chunks,
        buffer: BytesMut::new(),
        looked: 0,
    };
    stream::unfold(reading, |mut reading| async move {
        let said = reading.next().await?;
        Some((said, reading))
    })
    .boxed()
}

impl<E> Reading<E> {
    async fn next(&mut self) -> Option<Relayed> {
        loop {
            let end = self.buffer[self.looked..].iter().position(|b| *b == b'\n');
            let Some(end) = end else {
                self.looked = self.buffer.len();
                if self.looked > LINE_MAX {
                    return None;
                }
                let chunk = tokio::time::timeout(SILENCE, self.chunks.next()).await;
                self.buffer.extend_from_slice(&chunk.ok()??.ok()?);
                continue;
            };
            let line = self.buffer.split_to(self.looked + end);
            self.buffer.advance(1);
            self.looked = 0;
            match serde_json::from_slice(&line) {
                Ok(LiveLine::Said(said)) => return Some(said),
                // A newer node may say what this one does not know.
                Ok(LiveLine::Beat { .. }) | Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_engine::LiveItem;

    fn text(chunks: &[&'static str]) -> BoxStream<'static, Result<Bytes, ()>> {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|c| Ok(Bytes::from_static(c.as_bytes())))
            .collect();
        stream::iter(chunks).boxed()
    }

    const LAGGED: Relayed = Relayed::Item {
        item: LiveItem::Lagged,
    };

    #[tokio::test]
    async fn lines_are_found_however_they_are_cut() {
        let chunks = [
            "{\"beat\":true}\n{\"say\":\"it",
            "em\",\"item\":{\"live\":\"lagged\"}}",
            "\n{\"say\":\"news\"}\n\n",
            "{\"say\":\"moved\",\"epoch\":3}\nrest",
        ];
        let said: Vec<Relayed> = relayed(text(&chunks)).collect().await;
        assert_eq!(said, [LAGGED, Relayed::Moved { epoch: Some(3) }]);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_beats_do_not() {
        let beats = stream::iter(0..5).then(|_| async {
            // tidy: sleep ok because time is paused and the wait is what is tested
            tokio::time::sleep(SILENCE - Duration::from_millis(1)).await;
            Ok::<_, ()>(Bytes::from_static(b"{\"beat\":true}\n"))
        });
        let last = stream::iter([Ok(Bytes::from_static(
            b"{\"say\":\"item\",\"item\":{\"live\":\"lagged\"}}\n",
        ))]);
        let chunks = beats.chain(last).chain(stream::pending()).boxed();
        let said: Vec<Relayed> = relayed(chunks).collect().await;
        assert_eq!(said, [LAGGED]);
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_kept() {
        let chunk = Bytes::from(vec![b'x'; 1024 * 1024]);
        let endless = stream::repeat_with(move || Ok::<_, ()>(chunk.clone())).boxed();
        let said: Vec<Relayed> = relayed(endless).collect().await;
        assert!(said.is_empty());
    }
}
