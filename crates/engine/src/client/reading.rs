//! Reading a session from any node: the log and, between its events, live items, each byte of which is then
//! confirmed by the log or explicitly superseded (P6).

use super::Client;
use crate::hub::LiveItem;
use crate::hub::tracker::LiveTracker;
use crate::peer::LiveFeed;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::collections::VecDeque;
use tenure_core::id::SessionId;
use tenure_store::ReadError;
use tenure_store::follow::FollowItem;

/// What a reader is shown.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every item is an event; a box would cost each of them an allocation"
)]
pub enum Shown {
    /// From the log: every event once, in order, and the mark where the replay ends.
    Log(FollowItem),
    /// Ahead of the log.
    Live(LiveItem),
}

struct Reading {
    log: BoxStream<'static, Result<FollowItem, ReadError>>,
    client: Client,
    live: Option<LiveFeed>,
    tracker: LiveTracker,
    ready: VecDeque<Shown>,
    over: bool,
}

impl Client {
    /// The session's events after `after` (none: from the start) and its live items, for ever, whichever node
    /// runs it and wherever this is called. Live text comes once, contiguous with what was shown; what the log
    /// leaves unconfirmed (an attempt given up, an owner replaced) is taken back by
    /// [`LiveItem::Superseded`] before the event that shows it. A slow reader is told [`LiveItem::Lagged`] and
    /// goes on from the log. A store that is away is waited for, and an error ends the stream, as in
    /// [`Client::follow`]. Dropping it at any point
    /// loses nothing durable.
    pub fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
    ) -> BoxStream<'static, Result<Shown, ReadError>> {
        let ahead = broken!(self, LiveNotHeld);
        let reading = Reading {
            log: self.follow(session, after),
            client: self.clone(),
            live: Some(self.follow_live(session)),
            tracker: match ahead {
                true => LiveTracker::ahead_of_everything(),
                false => LiveTracker::new(),
            },
            ready: VecDeque::new(),
            over: false,
        };
        futures::stream::unfold(reading, |mut reading| async move {
            let item = reading.next().await?;
            Some((item, reading))
        })
        .boxed()
    }
}

impl Reading {
    async fn next(&mut self) -> Option<Result<Shown, ReadError>> {
        loop {
            if let Some(shown) = self.ready.pop_front() {
                return Some(Ok(shown));
            }
            if self.over {
                return None;
            }
            tokio::select! {
                // What is durable goes before what is not.
                biased;
                item = self.log.next() => match item? {
                    Ok(item) => self.logged(item),
                    Err(error) => {
                        self.over = true;
                        return Some(Err(error));
                    }
                },
                item = next_live(&mut self.live) => match item {
                    Some(item) if broken!(self.client, LiveUntracked) => {
                        self.ready.push_back(Shown::Live(item));
                    }
                    Some(item) => self.ready.extend(self.tracker.live(item).map(Shown::Live)),
                    None => self.live = None,
                },
            }
        }
    }

    fn logged(&mut self, item: FollowItem) {
        if let FollowItem::Event(event) = &item {
            if let Some(live) = &self.live {
                live.saw(event);
            }
            let markers = self.tracker.event(event);
            if !broken!(self.client, SupersededUnsaid) {
                self.ready.extend(markers.into_iter().map(Shown::Live));
            }
        }
        self.ready.push_back(Shown::Log(item));
        while let Some(item) = self.tracker.released() {
            self.ready.push_back(Shown::Live(item));
        }
    }
}

async fn next_live(live: &mut Option<LiveFeed>) -> Option<LiveItem> {
    match live {
        Some(feed) => feed.recv().await,
        None => std::future::pending().await,
    }
}
