//! Live items of a session, whichever node runs it, across changes of owner.

use super::owners::Reach;
use super::{Peer, Relayed};
use crate::hub::LiveItem;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::event::Event;
use tenure_core::id::SessionId;
use tokio::sync::{mpsc, watch};

/// Items a reader may be behind before it is told to resynchronise.
const CAPACITY: usize = 256;
/// Nobody runs the session, or its owner could not be reached: look again after this, or when the store hints.
const LOOK: Duration = Duration::from_secs(1);
/// A node that says it is not the owner, though the store names it, is asked again after this at first.
const SHORTLY: Duration = Duration::from_millis(20);
/// A connection that stays open may be to an owner that was replaced without knowing it.
const DOUBT: Duration = Duration::from_secs(5);

/// Live items of one session for one reader. Bounded: who reads slowly is told [`LiveItem::Lagged`]. Dropping it
/// ends the task behind it.
#[derive(Debug)]
pub struct LiveFeed {
    items: mpsc::Receiver<LiveItem>,
    epoch: watch::Sender<Option<u64>>,
}

impl LiveFeed {
    /// The next item, as it comes; `None` when the store was closed. Cancellation safe.
    pub async fn recv(&mut self) -> Option<LiveItem> {
        self.items.recv().await
    }

    /// An event the reader has seen: one of a newer epoch makes the feed look for the new owner at once.
    pub fn saw(&self, event: &Event) {
        if event.epoch.is_some() {
            self.epoch.send_if_modified(|known| {
                let newer = event.epoch > *known;
                if newer {
                    *known = event.epoch;
                }
                newer
            });
        }
    }
}

/// Starts following.
pub(crate) fn follow(reach: Arc<Reach>, session: SessionId) -> LiveFeed {
    let (sender, items) = mpsc::channel(CAPACITY);
    let epoch = watch::Sender::new(None);
    let seen = epoch.subscribe();
    let env = reach.env.clone();
    env.spawn(Box::pin(async move {
        let relay = Relay {
            reach,
            session,
            sender,
            seen,
            missed: false,
        };
        relay.run().await;
    }));
    LiveFeed { items, epoch }
}

/// How a connection to an owner ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The reader has gone.
    Unread,
    /// Look who owns the session now.
    Look,
}

struct Relay {
    reach: Arc<Reach>,
    session: SessionId,
    sender: mpsc::Sender<LiveItem>,
    /// The newest epoch the reader has seen in the log.
    seen: watch::Receiver<Option<u64>>,
    /// Something was dropped since the reader was last told.
    missed: bool,
}

impl Relay {
    async fn run(mut self) {
        let env = self.reach.env.clone();
        let mut changes = self.reach.store.watch(&self.session);
        let mut pause = SHORTLY;
        loop {
            changes.borrow_and_update();
            self.seen.borrow_and_update();
            let owner = self.reach.owner(&self.session).await;
            let owned = owner.is_some();
            if let Some((peer, epoch)) = owner {
                let opened = tokio::select! {
                    biased;
                    () = self.sender.closed() => return,
                    opened = self.reach.peers.live(&peer, &self.session) => opened,
                };
                match opened {
                    Ok(stream) => match self.relay(&peer, epoch, stream, &mut pause).await {
                        Ended::Unread => return,
                        Ended::Look => {}
                    },
                    Err(why) => {
                        tracing::debug!(session = %self.session, %why, "no live items from its owner");
                    }
                }
            }
            // A store that says "owned" while the node says "not I" is about to change: soon, then more rarely.
            let wait = if owned { pause } else { LOOK };
            pause = (pause * 2).min(LOOK);
            tokio::select! {
                biased;
                () = self.sender.closed() => return,
                () = tell(&self.sender), if self.missed => self.missed = false,
                changed = changes.changed(), if !owned => if changed.is_err() { return },
                changed = self.seen.changed() => if changed.is_err() { return },
                () = env.sleep(wait) => {}
            }
        }
    }

    /// Hands on what the owner says until it moves, is cut off, or is found to be replaced.
    async fn relay(
        &mut self,
        peer: &Peer,
        epoch: u64,
        mut stream: BoxStream<'static, Relayed>,
        pause: &mut Duration,
    ) -> Ended {
        let env = self.reach.env.clone();
        let mut doubt = env.sleep(DOUBT);
        loop {
            tokio::select! {
                biased;
                () = self.sender.closed() => return Ended::Unread,
                () = tell(&self.sender), if self.missed => self.missed = false,
                said = stream.next() => match said {
                    Some(Relayed::Item { item }) => {
                        *pause = SHORTLY;
                        if !self.hand_on(item) {
                            return Ended::Unread;
                        }
                    }
                    Some(Relayed::Moved { .. }) => return Ended::Look,
                    None => {
                        // It was cut: what was under way may be lost.
                        self.missed = true;
                        return Ended::Look;
                    }
                },
                changed = self.seen.changed() => match changed {
                    Ok(()) if self.seen.borrow_and_update().is_some_and(|seen| seen > epoch) => {
                        return Ended::Look;
                    }
                    Ok(()) => {}
                    Err(_) => return Ended::Unread,
                },
                () = &mut doubt => {
                    match self.reach.owner(&self.session).await {
                        Some((now, at)) if &now == peer && at == epoch => doubt = env.sleep(DOUBT),
                        _ => return Ended::Look,
                    }
                }
            }
        }
    }

    /// A slow reader is told, not waited for: the owner must not be held up. False when it has gone.
    fn hand_on(&mut self, item: LiveItem) -> bool {
        if self.missed {
            return !self.sender.is_closed();
        }
        match self.sender.try_send(item) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.missed = true;
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

/// Tells the reader that it missed something, as soon as it has room for that.
async fn tell(sender: &mpsc::Sender<LiveItem>) {
    match sender.reserve().await {
        Ok(room) => room.send(LiveItem::Lagged),
        // It has gone, which is noticed elsewhere.
        Err(_) => std::future::pending().await,
    }
}
