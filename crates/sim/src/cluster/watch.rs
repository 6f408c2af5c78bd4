//! A reader of one session that never stops: every durable event once, in order, with the moment it was seen.

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{Event, SessionId};
use tenure_engine::Client;
use tenure_store::FollowItem;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a reader waits before it asks a store again that could not be read.
const AGAIN: Duration = Duration::from_millis(100);

/// A session's events as they come, through any change of owner and any break of the store.
#[derive(Debug)]
pub struct Watch {
    session: SessionId,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    all: Mutex<All>,
    count: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct All {
    events: Vec<(Instant, Event)>,
    /// Seqs that came again or out of order.
    wrong: Vec<u64>,
    breaks: usize,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, event: Event) {
        let mut all = self.lock();
        let next = all.events.last().map_or(0, |(_, last)| last.seq + 1);
        if event.seq != next {
            all.wrong.push(event.seq);
        }
        all.events.push((Instant::now(), event));
        self.count.send_replace(all.events.len());
    }
}

impl Watch {
    /// Starts to read, from the session's first event on. Needs a runtime.
    pub fn new(client: Client, session: &SessionId) -> Self {
        let seen = Arc::new(Seen::default());
        let task = tokio::spawn(read(client, session.clone(), Arc::clone(&seen)));
        Self {
            session: session.clone(),
            seen,
            task,
        }
    }

    /// The session.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// All that was seen so far.
    pub fn events(&self) -> Vec<Event> {
        let all = self.seen.lock();
        all.events.iter().map(|(_, event)| event.clone()).collect()
    }

    /// When the first event that `fits` was seen.
    pub fn seen_at(&self, fits: impl Fn(&Event) -> bool) -> Option<Instant> {
        let all = self.seen.lock();
        let found = all.events.iter().find(|(_, event)| fits(event));
        found.map(|(at, _)| *at)
    }

    /// How often the store could not be read meanwhile.
    pub fn breaks(&self) -> usize {
        self.seen.lock().breaks
    }

    /// Seqs that came twice or out of order; none, ever, if the store keeps P6.
    pub fn wrong(&self) -> Vec<u64> {
        self.seen.lock().wrong.clone()
    }

    /// Waits until `holds` is true of all that was seen. Cancellation-safe.
    ///
    /// # Errors
    /// It is not within `limit`; with the types of the last events.
    pub async fn until(
        &self,
        what: &str,
        limit: Duration,
        holds: impl Fn(&[(Instant, Event)]) -> bool,
    ) -> Result<()> {
        let mut count = self.seen.count.subscribe();
        let waiting = async {
            while !holds(&self.seen.lock().events) {
                count.changed().await.context("the reader has ended")?;
            }
            Ok(())
        };
        match tokio::time::timeout(limit, waiting).await {
            Ok(done) => done,
            Err(_) => {
                let all = self.seen.lock();
                let skip = all.events.len().saturating_sub(8);
                let last: Vec<String> = all.events[skip..]
                    .iter()
                    .map(|(_, event)| format!("{} {}", event.seq, event.body.type_name()))
                    .collect();
                bail!("no {what} of {} in {limit:?}: {last:?}", self.session)
            }
        }
    }

    /// Waits until so many events of a type were seen.
    ///
    /// # Errors
    /// As [`Watch::until`].
    pub async fn until_events(&self, type_name: &str, count: usize, limit: Duration) -> Result<()> {
        self.until(type_name, limit, |seen| {
            let of_type = seen
                .iter()
                .filter(|(_, event)| event.body.type_name() == type_name);
            of_type.count() >= count
        })
        .await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(client: Client, session: SessionId, seen: Arc<Seen>) {
    loop {
        let after = seen.lock().events.last().map(|(_, event)| event.seq);
        let mut items = client.follow(&session, after);
        while let Some(item) = items.next().await {
            match item {
                Ok(FollowItem::Event(event)) => seen.take(event),
                Ok(FollowItem::Synced { .. }) => {}
                Err(_) => break,
            }
        }
        seen.lock().breaks += 1;
        tokio::time::sleep(AGAIN).await;
    }
}
