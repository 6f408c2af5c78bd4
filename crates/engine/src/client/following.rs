//! Following a session's log over the absences of its store: from the last event that was delivered, once the store is
//! back.

use super::Client;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_store::ReadError;
use tenure_store::follow::{FollowItem, follow};

/// How long a client that follows waits for a store that is away unless it is told otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);
/// The wait before the second try; each is twice the one before, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two tries.
const LONGEST: Duration = Duration::from_secs(2);

/// What [`Client::follow_telling`] gives.
#[derive(Debug, Clone, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every item is an event; a box would cost each of them an allocation"
)]
pub enum Followed {
    /// From the log: every event once, in order, and once the mark where the replay ends.
    Item(FollowItem),
    /// The store does not answer. It is asked again until it does, or patience ends; comes once for each absence.
    Away {
        /// What happened, and what to do.
        reason: String,
    },
    /// It answers again; what was missed follows.
    Back {
        /// Milliseconds since it was found away.
        away_ms: u64,
    },
}

struct Following {
    client: Client,
    session: SessionId,
    /// The last seq that was delivered.
    cursor: Option<u64>,
    items: BoxStream<'static, Result<FollowItem, ReadError>>,
    /// The store has answered once: what it refuses from the start is no absence.
    began: bool,
    synced: bool,
    /// Boot-time milliseconds at which it was found away.
    away_ms: Option<u64>,
    /// Tries since then.
    tries: u32,
    /// Comes next.
    ready: Option<FollowItem>,
    over: bool,
}

impl Client {
    /// As [`Client::follow`], and says when the store is away and when it is back.
    pub fn follow_telling(
        &self,
        session: &SessionId,
        after: Option<u64>,
    ) -> BoxStream<'static, Result<Followed, ReadError>> {
        let following = Following {
            client: self.clone(),
            session: session.clone(),
            cursor: after,
            items: follow(self.store.clone(), session.clone(), after),
            began: false,
            synced: false,
            away_ms: None,
            tries: 0,
            ready: None,
            over: false,
        };
        futures::stream::unfold(following, |mut following| async move {
            let item = following.next().await?;
            Some((item, following))
        })
        .boxed()
    }
}

impl Following {
    async fn next(&mut self) -> Option<Result<Followed, ReadError>> {
        loop {
            if let Some(item) = self.ready.take() {
                return Some(Ok(Followed::Item(item)));
            }
            if self.over {
                return None;
            }
            let error = match self.items.next().await? {
                Ok(item) => {
                    if let Some(back) = self.delivered(item) {
                        return Some(Ok(back));
                    }
                    continue;
                }
                Err(error) => error,
            };
            let wait = match &error {
                ReadError::Unavailable { .. } if self.began => self.wait(),
                _ => None,
            };
            let (Some(wait), ReadError::Unavailable { reason }) = (wait, &error) else {
                self.over = true;
                return Some(Err(error));
            };
            let store = self.client.store.clone();
            let (session, cursor, env) =
                (self.session.clone(), self.cursor, self.client.env.clone());
            // It waits when it is asked for the next item, so that the word about it comes first.
            self.items = futures::stream::once(async move { env.sleep(wait).await })
                .flat_map(move |()| follow(store.clone(), session.clone(), cursor))
                .boxed();
            if self.tries == 1 {
                let reason = reason.clone();
                return Some(Ok(Followed::Away { reason }));
            }
        }
    }

    /// The store has answered. Gives what is to be said of that, before the item.
    fn delivered(&mut self, item: FollowItem) -> Option<Followed> {
        self.began = true;
        self.tries = 0;
        self.ready = match &item {
            FollowItem::Event(event) => {
                self.cursor = Some(event.seq);
                Some(item)
            }
            // Each new beginning has its own mark; the first one counts.
            FollowItem::Synced { .. } => {
                (!std::mem::replace(&mut self.synced, true)).then_some(item)
            }
        };
        let since = self.away_ms.take()?;
        let away_ms = self.client.env.boot_ms().saturating_sub(since);
        Some(Followed::Back { away_ms })
    }

    /// How long to wait before the next try; none when patience is at its end.
    fn wait(&mut self) -> Option<Duration> {
        let env = self.client.env.as_ref();
        let now = env.boot_ms();
        let since = *self.away_ms.get_or_insert(now);
        let patience = u64::try_from(self.client.reading.as_millis()).unwrap_or(u64::MAX);
        let left = since.saturating_add(patience).saturating_sub(now);
        if left == 0 {
            return None;
        }
        let most = FIRST.saturating_mul(1 << self.tries.min(5)).min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        // Between half of it and all: those who lost the same server do not all come back at once.
        let half = u64::try_from(most.as_millis() / 2).unwrap_or(u64::MAX);
        let wait = half + env.random() % (half + 1);
        Some(Duration::from_millis(wait.min(left)))
    }
}
