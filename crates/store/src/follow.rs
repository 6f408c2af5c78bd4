//! The gapless reader: subscribe, replay, one marker, tail. Over the contract alone.

use crate::api::Store;
use crate::error::ReadError;
use futures::stream::{BoxStream, StreamExt};
use std::collections::VecDeque;
use std::sync::Arc;
use tenure_core::event::Event;
use tenure_core::id::SessionId;
use tokio::sync::watch;

/// Events read at a time.
const PAGE: usize = 256;

/// What a follower gets.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every item is an event; a box would cost each of them an allocation"
)]
pub enum FollowItem {
    /// The next event.
    Event(Event),
    /// Everything that was there when the reader began has been delivered. Comes once.
    Synced {
        /// The last seq then; none for a session without events.
        head: Option<u64>,
    },
}

struct Follower {
    store: Arc<dyn Store>,
    session: SessionId,
    cursor: Option<u64>,
    wake: Option<watch::Receiver<u64>>,
    ready: VecDeque<Event>,
    watermark: Option<Option<u64>>,
    synced: bool,
    done: bool,
    /// Test aid: subscribe only after the replay.
    late: bool,
}

/// Every durable event after `after` (none: from the start), once and in order, across changes of owner;
/// one [`FollowItem::Synced`] where the replay ends; then what comes, for as long as the stream is kept.
///
/// An error ends the stream: an unknown or deleted session, a cursor beyond the head, a store that cannot
/// be read. Dropping the stream at any point loses nothing; follow again from the last seq seen.
pub fn follow(
    store: Arc<dyn Store>,
    session: SessionId,
    after: Option<u64>,
) -> BoxStream<'static, Result<FollowItem, ReadError>> {
    start(store, session, after, false)
}

/// As [`follow`], but broken on purpose: it reads before it subscribes.
#[cfg(feature = "testing")]
pub fn follow_subscribing_late(
    store: Arc<dyn Store>,
    session: SessionId,
    after: Option<u64>,
) -> BoxStream<'static, Result<FollowItem, ReadError>> {
    start(store, session, after, true)
}

fn start(
    store: Arc<dyn Store>,
    session: SessionId,
    after: Option<u64>,
    late: bool,
) -> BoxStream<'static, Result<FollowItem, ReadError>> {
    let follower = Follower {
        store,
        session,
        cursor: after,
        wake: None,
        ready: VecDeque::new(),
        watermark: None,
        synced: false,
        done: false,
        late,
    };
    futures::stream::unfold(follower, |mut follower| async move {
        if follower.done {
            return None;
        }
        let item = follower.next().await;
        follower.done = item.is_err();
        Some((item, follower))
    })
    .boxed()
}

impl Follower {
    async fn next(&mut self) -> Result<FollowItem, ReadError> {
        if self.wake.is_none() && !self.late {
            // Subscribing comes first: what is committed after the read below leaves a mark here.
            self.wake = Some(self.store.watch(&self.session));
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                if !self.beyond_watermark(event.seq) {
                    self.cursor = Some(event.seq);
                    return Ok(FollowItem::Event(event));
                }
                self.ready.push_front(event);
                return Ok(self.sync());
            }
            if !self.synced && self.reached_watermark() {
                return Ok(self.sync());
            }
            let first = self.watermark.is_none();
            // Marks seen before the read are answered by it.
            if let Some(wake) = &mut self.wake {
                wake.mark_unchanged();
            }
            let page = self.store.read(&self.session, self.cursor, PAGE).await?;
            if first {
                self.watermark = Some(page.head);
            }
            self.ready.extend(page.events);
            if self.ready.is_empty() && self.synced {
                self.rest(page.head).await?;
            }
        }
    }

    fn beyond_watermark(&self, seq: u64) -> bool {
        match self.watermark {
            Some(watermark) if !self.synced => watermark.is_none_or(|head| seq > head),
            _ => false,
        }
    }

    fn reached_watermark(&self) -> bool {
        match self.watermark {
            Some(Some(head)) => self.cursor.is_some_and(|cursor| cursor >= head),
            Some(None) => true,
            None => false,
        }
    }

    fn sync(&mut self) -> FollowItem {
        self.synced = true;
        FollowItem::Synced {
            head: self.watermark.flatten(),
        }
    }

    /// Waits for a hint that there may be more.
    async fn rest(&mut self, _head: Option<u64>) -> Result<(), ReadError> {
        let wake = self
            .wake
            .get_or_insert_with(|| self.store.watch(&self.session));
        wake.changed().await.map_err(|_| ReadError::Unavailable {
            reason: "it was closed while it was followed".to_owned(),
        })
    }
}
