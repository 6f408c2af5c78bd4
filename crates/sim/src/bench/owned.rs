//! Owned sessions that append one small event at a time, whatever the store.

use anyhow::{Result, bail};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::placement::Serves;
use tenure_core::*;
use tenure_store::*;

/// A session that is owned, with its pen.
pub(super) struct Owned {
    store: Arc<dyn Store>,
    session: SessionId,
    fence: Fence,
    next: u128,
}

impl Owned {
    pub(super) async fn take(
        store: &Arc<dyn Store>,
        node: &Incarnation,
        number: u128,
    ) -> Result<Self> {
        let session = SessionId::from_bits(number);
        let created = SessionCreated {
            title: None,
            location: Location::at("/".to_owned()),
            model: ModelRef {
                provider: "p".to_owned(),
                model: "m".to_owned(),
            },
            limits: Limits::default(),
            permissions: serde_json::Value::Null,
        };
        let mut owned = Self {
            store: store.clone(),
            session: session.clone(),
            fence: Fence {
                claim: ClaimId::from_bits(0),
                epoch: 0,
                owner: node.clone(),
                write_no: 0,
            },
            next: number << 64,
        };
        let first = owned.event(created);
        store
            .append(Append::unfenced(session.clone(), vec![first]))
            .await?;
        match store.acquire(&session, node, true).await? {
            Acquire::Acquired(tenure) => owned.fence = tenure.fence,
            other => bail!("a fresh session was not acquired: {other:?}"),
        }
        Ok(owned)
    }

    fn event(&mut self, body: impl Into<EventBody>) -> NewEvent {
        self.next += 1;
        NewEvent {
            id: EventId::from_bits(self.next),
            created_ms: 0,
            body: body.into(),
        }
    }

    /// One fenced append of one small event.
    pub(super) async fn append(&mut self) -> Result<()> {
        let chunk = FragmentChunk {
            message: MessageId::from_bits(1),
            part: 0,
            text: "A hundred characters of an answer, as a checkpoint of a stream brings them: no more, and no less. ".to_owned(),
        };
        let event = self.event(chunk);
        let mut append = Append::unfenced(self.session.clone(), vec![event]);
        append.fence = Some(self.fence.clone());
        append.guard = Guard::Running;
        self.fence.write_no = self.store.append(append).await?.write_no;
        Ok(())
    }
}

/// The benchmark's node.
pub(super) async fn joined(store: &Arc<dyn Store>) -> Result<Incarnation> {
    let node = Incarnation::from_bits(1);
    let info = NodeInfo {
        incarnation: node.clone(),
        name: "bench".to_owned(),
        address: None,
        serves: Serves::everywhere(),
        lease: Duration::from_secs(600),
    };
    store.join(info).await?;
    Ok(node)
}

/// Appends a second of so many sessions side by side, each with one append under way at a time.
pub(super) async fn side_by_side(
    store: &Arc<dyn Store>,
    node: &Incarnation,
    sessions: u32,
    time: Duration,
) -> Result<f64> {
    all_at_once(taken(store, node, sessions).await?, time).await
}

/// So many sessions, owned.
pub(super) async fn taken(
    store: &Arc<dyn Store>,
    node: &Incarnation,
    sessions: u32,
) -> Result<Vec<Owned>> {
    let mut owned = Vec::new();
    for number in 0..sessions {
        owned.push(Owned::take(store, node, u128::from(number) + 1).await?);
    }
    Ok(owned)
}

/// Appends a second of these side by side.
pub(super) async fn all_at_once(owned: Vec<Owned>, time: Duration) -> Result<f64> {
    let began = Instant::now();
    let until = began + time;
    let work = owned.into_iter().map(|mut one| {
        tokio::spawn(async move {
            let mut done = 0_u64;
            while Instant::now() < until {
                one.append().await?;
                done += 1;
            }
            Ok::<u64, anyhow::Error>(done)
        })
    });
    let mut total = 0;
    for one in futures::future::join_all(work).await {
        total += one??;
    }
    Ok(total as f64 / began.elapsed().as_secs_f64())
}
