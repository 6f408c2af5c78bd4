//! Lays a stream's events on the wire: chunked, paced, cut, stalled or split as the turn says.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::encode::{Frames, event_frames};
use crate::http::{Conn, head};
use crate::script::{CutHow, Fault, WireShape};
use crate::vendor::Vendor;

/// Without delays, events gather to this many bytes before a write.
const GATHER: usize = 16 * 1024;

/// Why a stream does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The client left.
    ClientLeft,
    /// The script cuts here.
    Cut(CutHow),
    /// The script puts an error event here.
    Error,
}

#[derive(Debug, Clone)]
enum Action {
    Stop(Stop),
    Stall {
        keepalive: Option<Duration>,
        limit: Option<Duration>,
    },
    Raw(String),
}

/// What goes wrong once so much was sent.
#[derive(Debug, Clone)]
pub(crate) struct Trigger {
    events: Option<u64>,
    bytes: Option<u64>,
    parts: Option<u64>,
    action: Action,
}

impl Trigger {
    pub(crate) fn of(fault: Option<&Fault>) -> Option<Self> {
        let millis = |ms: &Option<u64>| ms.map(Duration::from_millis);
        Some(match fault? {
            Fault::ErrorEvent {
                after_events,
                after_parts,
                ..
            } => Self {
                events: *after_events,
                bytes: None,
                parts: *after_parts,
                action: Action::Stop(Stop::Error),
            },
            Fault::Cut {
                after_events,
                after_bytes,
                after_parts,
                how,
            } => Self {
                events: *after_events,
                bytes: *after_bytes,
                parts: *after_parts,
                action: Action::Stop(Stop::Cut(*how)),
            },
            Fault::Stall {
                after_events,
                after_parts,
                before_headers: false,
                keepalive_ms,
                for_ms,
            } => Self {
                events: *after_events,
                bytes: None,
                parts: *after_parts,
                action: Action::Stall {
                    keepalive: millis(keepalive_ms),
                    limit: millis(for_ms),
                },
            },
            Fault::Malformed { after_events, raw } => Self {
                events: *after_events,
                bytes: None,
                parts: None,
                action: Action::Raw(raw.clone()),
            },
            _ => return None,
        })
    }

    fn has_place(&self) -> bool {
        self.events.is_some() || self.bytes.is_some() || self.parts.is_some()
    }
}

/// One streamed answer on a connection.
#[derive(Debug)]
pub(crate) struct Stream<'c> {
    conn: &'c mut Conn,
    /// The events not yet sent.
    pub(crate) frames: Frames,
    /// The HTTP head, until it leaves with the first bytes.
    head: Vec<u8>,
    trigger: Option<Trigger>,
    /// What a stall sends that says nothing.
    keep_alive: Vec<u8>,
    split_utf8: bool,
    write_bytes: usize,
    events: u64,
    bytes: u64,
    parts: u64,
}

impl<'c> Stream<'c> {
    pub(crate) fn new(
        conn: &'c mut Conn,
        vendor: Vendor,
        shape: &WireShape,
        trigger: Option<Trigger>,
    ) -> Self {
        let apart = shape.split_utf8 || shape.flush_events || shape.write_bytes.is_some();
        let track = trigger.is_some() || apart;
        let frames = vendor == Vendor::BedrockConverse;
        let content_type = if frames {
            "application/vnd.amazon.eventstream"
        } else {
            "text/event-stream; charset=utf-8"
        };
        let keep_alive = if frames {
            event_frames::event("keepAlive", b"{}")
        } else if shape.crlf {
            b": keep-alive\r\n\r\n".to_vec()
        } else {
            b": keep-alive\n\n".to_vec()
        };
        Self {
            conn,
            frames: Frames::new(track, shape.crlf, shape.comments),
            head: head(
                200,
                &[
                    ("content-type", content_type),
                    ("cache-control", "no-cache"),
                    ("transfer-encoding", "chunked"),
                ],
            ),
            trigger,
            keep_alive,
            split_utf8: shape.split_utf8,
            write_bytes: shape.write_bytes.unwrap_or(usize::MAX),
            events: 0,
            bytes: 0,
            parts: 0,
        }
    }

    /// True when [`Stream::pump`] has something to do now.
    pub(crate) fn is_due(&self) -> bool {
        self.frames.track || self.frames.bytes.len() >= GATHER
    }

    /// Sends what is due: everything when events are told apart, else what has gathered.
    pub(crate) async fn pump(&mut self) -> Result<(), Stop> {
        if self.is_due() {
            self.flush().await
        } else {
            Ok(())
        }
    }

    /// Sends everything.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        let mut bytes = std::mem::take(&mut self.frames.bytes);
        if self.frames.track {
            let mut start = 0;
            for end in std::mem::take(&mut self.frames.ends) {
                self.fire_if_due().await?;
                self.send_event(&bytes[start..end]).await?;
                start = end;
            }
        } else {
            self.send_chunk(&bytes).await?;
        }
        bytes.clear();
        self.frames.bytes = bytes;
        Ok(())
    }

    async fn send_event(&mut self, event: &[u8]) -> Result<(), Stop> {
        let place = self.trigger.as_ref().and_then(|t| t.bytes);
        let left = place.and_then(|place| usize::try_from(place.saturating_sub(self.bytes)).ok());
        let (before, after) = match left.filter(|left| *left < event.len()) {
            Some(left) => event.split_at(left),
            None => (event, &[][..]),
        };
        self.send(before).await?;
        self.bytes += before.len() as u64;
        if !after.is_empty() {
            self.fire().await?;
            self.send(after).await?;
            self.bytes += after.len() as u64;
        }
        self.events += 1;
        Ok(())
    }

    /// Counts a part as sent.
    pub(crate) fn part_done(&mut self) {
        self.parts += 1;
    }

    async fn fire_if_due(&mut self) -> Result<(), Stop> {
        let reached = |place: Option<u64>, count: u64| place.is_some_and(|place| count >= place);
        let due = self.trigger.as_ref().is_some_and(|t| {
            reached(t.events, self.events)
                || reached(t.bytes, self.bytes)
                || reached(t.parts, self.parts)
        });
        if due { self.fire().await } else { Ok(()) }
    }

    /// Behind the last part: a fault without a place happens here.
    pub(crate) async fn content_end(&mut self) -> Result<(), Stop> {
        if self.trigger.as_ref().is_some_and(|t| !t.has_place()) {
            self.flush().await?;
            return self.fire().await;
        }
        Ok(())
    }

    /// Behind everything: a fault whose place was never reached happens here; then the HTTP body ends.
    pub(crate) async fn end(&mut self) -> Result<(), Stop> {
        self.flush().await?;
        self.fire().await?;
        self.end_body().await
    }

    /// Ends the HTTP body.
    pub(crate) async fn end_body(&mut self) -> Result<(), Stop> {
        let mut bytes = std::mem::take(&mut self.head);
        bytes.extend_from_slice(b"0\r\n\r\n");
        self.conn
            .write_all(&bytes)
            .await
            .map_err(|_| Stop::ClientLeft)
    }

    async fn fire(&mut self) -> Result<(), Stop> {
        match self.trigger.take().map(|t| t.action) {
            None => Ok(()),
            Some(Action::Stop(stop)) => {
                // The head was promised even when nothing else is sent.
                self.send_head().await?;
                Err(stop)
            }
            Some(Action::Raw(raw)) => self.send(raw.as_bytes()).await,
            Some(Action::Stall { keepalive, limit }) => self.stall(keepalive, limit).await,
        }
    }

    async fn stall(
        &mut self,
        keepalive: Option<Duration>,
        limit: Option<Duration>,
    ) -> Result<(), Stop> {
        self.send_head().await?;
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let step = keepalive.map(|every| Instant::now() + every);
            let next = match (step, end) {
                (Some(step), Some(end)) => Some(step.min(end)),
                (one, other) => one.or(other),
            };
            let Some(next) = next else {
                self.conn.left().await;
                return Err(Stop::ClientLeft);
            };
            self.pause_until(next).await?;
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
            let keep_alive = self.keep_alive.clone();
            self.send(&keep_alive).await?;
        }
    }

    /// Waits, and ends early when the client leaves.
    pub(crate) async fn pause(&mut self, duration: Duration) -> Result<(), Stop> {
        self.pause_until(Instant::now() + duration).await
    }

    async fn pause_until(&mut self, until: Instant) -> Result<(), Stop> {
        tokio::select! {
            biased;
            () = self.conn.left() => Err(Stop::ClientLeft),
            () = sleep_until(until) => Ok(()),
        }
    }

    async fn send_head(&mut self) -> Result<(), Stop> {
        let head = std::mem::take(&mut self.head);
        self.conn
            .write_all(&head)
            .await
            .map_err(|_| Stop::ClientLeft)
    }

    /// One or, when the shape says so, many chunks and writes.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        if !self.split_utf8 && self.write_bytes == usize::MAX {
            return self.send_chunk(bytes).await;
        }
        let mut start = 0;
        for at in 1..=bytes.len() {
            // A lead byte of a multi-byte character ends the write, its rest begins the next.
            let splits = self.split_utf8 && bytes[at - 1] >= 0xC0;
            if splits || at - start >= self.write_bytes || at == bytes.len() {
                self.send_chunk(&bytes[start..at]).await?;
                start = at;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    async fn send_chunk(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        // An empty chunk would end the body.
        if bytes.is_empty() {
            return Ok(());
        }
        let mut out = std::mem::take(&mut self.head);
        out.reserve(bytes.len() + 20);
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
        self.conn
            .write_all(&out)
            .await
            .map_err(|_| Stop::ClientLeft)
    }
}
