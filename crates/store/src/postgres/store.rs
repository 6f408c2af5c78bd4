//! The store's contract, method by method, over the writers, the pool and the slots.

use super::node::{self, presence_of, unavailable};
use super::pool::Slot;
use super::presence;
use super::queue::{Queue, Work};
use super::rows::{self, ReadStop};
use super::trouble::Trouble;
use super::{CLOSED, PostgresStore, QUEUE_KIB, Shared, upkeep};
use crate::api::*;
use crate::hooks::{Failure, append_failed, batch_key};
use crate::job::{AppendJob, Asks, Job, Task};
use crate::lanes::Waits;
use crate::machine::loaded::Loaded;
use crate::machine::replay::read_lines;
use crate::machine::{Failure as Failed, Ran, Stop, append, check, claim, fork as forking, replay};
use async_trait::async_trait;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::event::{EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tokio::sync::{oneshot, watch};

/// What a read does with its connection.
type Reading<T> = dyn for<'a> Fn(&'a Shared, &'a super::conn::Conn) -> BoxFuture<'a, Result<T, ReadStop>>
    + Send
    + Sync;

/// How long a connection that was open already may keep a renewal waiting.
const SILENT: Duration = Duration::from_secs(1);

fn read_failed(reason: impl Into<String>) -> ReadError {
    ReadError::Unavailable {
        reason: reason.into(),
    }
}

fn closed() -> Failure {
    Failure {
        unknown: false,
        reason: CLOSED.to_owned(),
    }
}

/// A job that gives its place in the queue back when it is done.
struct Permitted {
    job: Work,
    bytes: usize,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl<'a> Job<Loaded<'a>> for Permitted {
    fn session(&self) -> Option<&SessionId> {
        Waits::session(&self.job)
    }
    fn lane(&self) -> Lane {
        Waits::lane(&self.job)
    }
    fn bytes(&self) -> usize {
        self.bytes
    }
    fn asks(&self) -> Asks {
        self.job.asks()
    }
    fn run(&mut self, rows: &Loaded<'a>) -> Result<Ran, Failed> {
        self.job.run(rows)
    }
    fn committed(&mut self) {
        self.job.committed();
    }
    fn reply(&mut self) {
        self.job.reply();
    }
    fn fail(&mut self, failure: &Failure) {
        self.job.fail(failure);
    }
    fn wakes(&self) -> &[SessionId] {
        self.job.wakes()
    }
}

impl PostgresStore {
    /// Queues a job within the bound on what may wait. Dropping the future before that leaves nothing done;
    /// after it the job runs whatever happens to the caller.
    async fn queue(&self, queue: fn(&Shared) -> &Queue, job: Work, bytes: usize) {
        let kib = u32::try_from((bytes >> 10) + 1)
            .unwrap_or(u32::MAX)
            .min(QUEUE_KIB as u32);
        // Unconstrained: the runtime's own budget must not put a first poll off, since it orders appends.
        let permits = Arc::clone(&queue(&self.shared).permits);
        let permit = tokio::task::unconstrained(permits.acquire_many_owned(kib)).await;
        let job: Work = match permit {
            Ok(permit) => Box::new(Permitted {
                job,
                bytes,
                _permit: permit,
            }),
            Err(_) => job,
        };
        if let Err(mut job) = queue(&self.shared).push(job) {
            job.fail(&closed());
        }
    }

    /// Runs a closure over a session's rows, in its turn.
    async fn submit<T, E, F>(
        &self,
        queue: fn(&Shared) -> &Queue,
        session: &SessionId,
        asks: Asks,
        failed: fn(&Failure) -> E,
        work: F,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: for<'a> FnMut(&Loaded<'a>) -> Result<(T, Ran), Stop<E>> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task = Task {
            after: None,
            session: Some(session.clone()),
            wakes: vec![session.clone()],
            asks,
            work,
            verdict: None,
            failed,
            reply: Some(reply),
        };
        self.queue(queue, Box::new(task), 0).await;
        answer.await.unwrap_or_else(|_| Err(failed(&closed())))
    }

    /// As [`PostgresStore::submit`], for everything that answers with an [`AppendError`].
    async fn write<T, F>(
        &self,
        queue: fn(&Shared) -> &Queue,
        session: &SessionId,
        asks: Asks,
        work: F,
    ) -> Result<T, AppendError>
    where
        T: Send + 'static,
        F: for<'a> FnMut(&Loaded<'a>) -> Result<(T, Ran), Stop<AppendError>> + Send + 'static,
    {
        let mut work = work;
        let result = self
            .submit::<Result<T, AppendError>, Failure, _>(
                queue,
                session,
                asks,
                Failure::clone,
                move |rows| match work(rows) {
                    Ok((value, ran)) => Ok((Ok(value), ran)),
                    Err(Stop::Refused(refusal)) => Ok((Err(refusal), Ran::Nothing)),
                    Err(Stop::Failed(failed)) => Err(Stop::Failed(failed)),
                },
            )
            .await;
        result.unwrap_or_else(|failure| Err(append_failed(session, &failure)))
    }

    /// Runs work on the store's own runtime: it goes on whatever becomes of the caller.
    async fn spawned<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let task = self.io.spawn(work);
        task.await.map_err(|error| {
            if error.is_cancelled() {
                CLOSED.to_owned()
            } else {
                "an internal error; the log says where".to_owned()
            }
        })
    }

    /// A read on a connection of the pool, then behind the hooks of the batch in flight. One that fails on a
    /// connection that had gone stale is done once more.
    async fn read_rows<T: Send + 'static>(
        &self,
        session: Option<&SessionId>,
        work: Box<Reading<T>>,
    ) -> Result<T, ReadError> {
        let (shared, session) = (Arc::clone(&self.shared), session.cloned());
        let done = self.spawned(async move {
            let mut again = true;
            loop {
                let conn = shared.pool.get().await?;
                match work(&shared, &conn).await {
                    Ok(value) => {
                        drop(conn);
                        shared.gate.pass(session.as_ref()).await;
                        return Ok(value);
                    }
                    Err(ReadStop::Error(error)) => return Err(error),
                    Err(ReadStop::Trouble(trouble)) => {
                        let stale = trouble.is_lost() && conn.used && again;
                        if trouble.is_lost() {
                            conn.discard();
                        }
                        if !stale {
                            return Err(ReadError::from(trouble));
                        }
                        again = false;
                    }
                }
            }
        });
        done.await.unwrap_or_else(|reason| Err(read_failed(reason)))
    }

    /// Work that must not wait for a connection that has gone silent, and may be done twice: a network that broke
    /// without a word is found out within [`SILENT`], and everything is done again on a new connection.
    async fn promptly<T, F>(&self, slot: fn(&Shared) -> &Slot, work: F) -> Result<T, NodeError>
    where
        T: Send + 'static,
        F: for<'a> Fn(&'a Arc<Shared>, &'a super::conn::Conn) -> BoxFuture<'a, Result<T, Trouble>>
            + Send
            + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let done = self.spawned(async move {
            let slot = slot(&shared);
            if let Some(conn) = slot.standing().await {
                let tried = tokio::time::timeout(SILENT, work(&shared, &conn)).await;
                let tried = tried.unwrap_or_else(|_| Err(Trouble::lost("the server is silent")));
                match conn.ended(tried) {
                    Err(Trouble::Lost(reason)) => {
                        tracing::warn!(reason, "a connection was lost; trying a new one");
                    }
                    done => return done,
                }
            }
            let conn = match slot.get().await {
                Ok(conn) => conn,
                // What met one attempt to connect need not meet the next.
                Err(_) => slot.get().await?,
            };
            let done = work(&shared, &conn).await;
            conn.ended(done)
        });
        match done.await {
            Ok(done) => done.map_err(|trouble| unavailable(&trouble)),
            Err(reason) => Err(NodeError::Unavailable { reason }),
        }
    }

    /// Work on a slot's connection.
    async fn on_slot<T, F>(&self, slot: fn(&Shared) -> &Slot, work: F) -> Result<T, NodeError>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(
                &'a Arc<Shared>,
                &'a super::conn::Conn,
            ) -> BoxFuture<'a, Result<T, Trouble>>
            + Send
            + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let done = self.spawned(async move {
            let conn = slot(&shared).get().await?;
            let done = work(&shared, &conn).await;
            conn.ended(done)
        });
        match done.await {
            Ok(done) => done.map_err(|trouble| unavailable(&trouble)),
            Err(reason) => Err(NodeError::Unavailable { reason }),
        }
    }
}

/// What acquiring asks.
fn asks_of(node: &Incarnation) -> Asks {
    Asks {
        nodes: vec![node.clone()],
        fresh: true,
        ..Asks::default()
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn append(&self, append: Append) -> Result<Committed, AppendError> {
        let session = append.session.clone();
        let (reply, answer) = oneshot::channel();
        let job = AppendJob::new(append, Arc::clone(&self.shared.hooks), reply)?;
        let bytes = job.bytes();
        self.queue(|shared| &shared.queue, Box::new(job), bytes)
            .await;
        let reply = answer
            .await
            .unwrap_or_else(|_| Err(append_failed(&session, &closed())))?;
        if let Some(hook) = reply.late_hook {
            self.shared
                .hooks
                .run(hook, &reply.committed)
                .map_err(|panicked| panicked.told(&session))?;
        }
        Ok(reply.committed)
    }

    async fn resolve(
        &self,
        session: &SessionId,
        fence: &Fence,
        ids: &[EventId],
    ) -> Result<Option<Committed>, AppendError> {
        let key = batch_key(session, Some(fence), ids.first());
        let (id, fence, ids) = (session.clone(), fence.clone(), ids.to_vec());
        let hooks = Arc::clone(&self.shared.hooks);
        // R3: this process learns of it now, so the hook runs now: on the writer's thread, where no dropped
        // caller can keep it from running. What is not in the log takes its hook along.
        let asked = session.clone();
        let after = move |found: Option<&Option<Committed>>| {
            let (Some(hook), Some(Some(committed))) = (hooks.take_unknown(&key), found) else {
                return None;
            };
            let ran = hooks.run(hook, committed);
            ran.err().map(|panicked| Ok(panicked.told(&asked)))
        };
        let (reply, answer) = oneshot::channel();
        let task = Task {
            after: Some(Box::new(after)),
            session: Some(session.clone()),
            wakes: vec![session.clone()],
            asks: Asks {
                events: ids.clone(),
                fresh: true,
                ..Asks::default()
            },
            work: move |rows: &Loaded<'_>| match append::resolve(rows, &id, &fence, &ids) {
                // Also when it only looked: the hook of what it found runs with the commit.
                Ok(found) => Ok((found, Ran::Wrote)),
                Err(Stop::Refused(refusal)) => Err(Stop::Refused(Ok(refusal))),
                Err(Stop::Failed(failed)) => Err(Stop::Failed(failed)),
            },
            verdict: None,
            failed: |failure: &Failure| Err(failure.clone()),
            reply: Some(reply),
        };
        self.queue(|shared| &shared.queue, Box::new(task), 0).await;
        let result: Result<_, Result<AppendError, Failure>> =
            answer.await.unwrap_or_else(|_| Err(Err(closed())));
        result.map_err(|stop| stop.unwrap_or_else(|failure| append_failed(session, &failure)))
    }

    async fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let id = session.clone();
        let work: Box<Reading<Page>> = Box::new(move |_, conn| {
            let id = id.clone();
            Box::pin(async move { rows::page(conn, &id, after, limit).await })
        });
        self.read_rows(Some(session), work).await
    }

    fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        self.shared.watchers.session(session)
    }

    fn watch_all(&self) -> watch::Receiver<u64> {
        self.shared.watchers.all()
    }

    async fn fork(
        &self,
        parent: &SessionId,
        through: u64,
        child: &SessionId,
        event: NewEvent,
    ) -> Result<Committed, AppendError> {
        let mut encoded = check::encode(child, vec![event])?;
        let Some(event) = encoded.pop() else {
            return Err(AppendError::Rejected {
                session: child.clone(),
                reason: "a fork begins with its own event".to_owned(),
            });
        };
        let asks = Asks {
            events: vec![event.id.clone()],
            creates: true,
            parent: Some((parent.clone(), through)),
            fresh: true,
            ..Asks::default()
        };
        let (parent, id) = (parent.clone(), child.clone());
        self.write(
            |shared| &shared.queue,
            child,
            asks,
            move |rows| {
                let committed = forking::fork(rows, &parent, through, &id, &event)?;
                let ran = if committed.duplicate {
                    Ran::Nothing
                } else {
                    Ran::Wrote
                };
                Ok((committed, ran))
            },
        )
        .await
    }

    async fn delete(&self, session: &SessionId) -> Result<(), DeleteError> {
        let (id, shared) = (session.clone(), Arc::clone(&self.shared));
        let failed = |reason: String| DeleteError::Unavailable { reason };
        let done = self.spawned(async move {
            let conn = shared.pool.get().await.map_err(|t| failed(t.words()))?;
            upkeep::delete(&shared, &conn, &id).await?;
            shared.cache.forget(std::iter::once(&id));
            shared.wake(std::slice::from_ref(&id));
            // It is gone for every reader. What follows gives space back and may be left to `gc`.
            loop {
                let purged = upkeep::purge(&shared, &conn).await;
                if !purged.map_err(|t| failed(t.words()))?.more {
                    return Ok(());
                }
            }
        });
        done.await.unwrap_or_else(|reason| Err(failed(reason)))
    }

    async fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError> {
        let gaps = broken!(self.shared.switches, ReplayAcceptsGap);
        let asks = Asks {
            events: events.iter().map(|record| record.id.clone()).collect(),
            creates: true,
            stored: events.first().map(|first| (first.seq, events.len())),
            fresh: true,
            ..Asks::default()
        };
        let lines = read_lines(session, events, gaps)?;
        let id = session.clone();
        let failed = |failure: &Failure| ReplayError::Unavailable {
            reason: failure.reason.clone(),
        };
        self.submit(
            |shared| &shared.queue,
            session,
            asks,
            failed,
            move |rows| {
                let done = replay::replay(rows, &id, &lines)?;
                let ran = if done.inserted > 0 {
                    Ran::Wrote
                } else {
                    Ran::Nothing
                };
                Ok((done, ran))
            },
        )
        .await
    }

    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        let id = session.clone();
        let work: Box<Reading<Option<SessionRow>>> = Box::new(move |_, conn| {
            let id = id.clone();
            Box::pin(async move { rows::session(conn, &id).await })
        });
        self.read_rows(Some(session), work).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        let work: Box<Reading<Vec<SessionRow>>> = Box::new(move |_, conn| {
            let query = query.clone();
            Box::pin(async move { rows::sessions(conn, &query).await })
        });
        self.read_rows(None, work).await
    }

    async fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        let work: Box<Reading<Vec<SessionRow>>> =
            Box::new(move |_, conn| Box::pin(rows::claimable(conn, limit)));
        self.read_rows(None, work).await
    }

    async fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        let id = session.clone();
        let work: Box<Reading<Vec<PendingInput>>> = Box::new(move |_, conn| {
            let id = id.clone();
            Box::pin(async move { rows::inbox(conn, &id).await })
        });
        self.read_rows(Some(session), work).await
    }

    async fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        let id = session.clone();
        let work: Box<Reading<Vec<EffectRow>>> = Box::new(move |_, conn| {
            let id = id.clone();
            Box::pin(async move { rows::effects(conn, &id).await })
        });
        self.read_rows(Some(session), work).await
    }

    async fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError> {
        let work: Box<Reading<Vec<(SessionId, EffectRow)>>> =
            Box::new(move |_, conn| Box::pin(rows::leftovers(conn, limit)));
        self.read_rows(None, work).await
    }

    async fn interrupt(&self, interrupt: Interrupt) -> Result<Interrupted, AppendError> {
        let session = interrupt.session.clone();
        let asks = Asks {
            receipt: Some(interrupt.interrupt.as_str().to_owned()),
            fresh: true,
            ..Asks::default()
        };
        self.write(
            |shared| &shared.control,
            &session,
            asks,
            move |rows| {
                let answer = claim::interrupt(rows, &interrupt)?;
                let wrote = !matches!(answer, Interrupted::Idle | Interrupted::AlreadyFinished);
                Ok((answer, if wrote { Ran::Wrote } else { Ran::Nothing }))
            },
        )
        .await
    }

    async fn join(&self, node: NodeInfo) -> Result<(), NodeError> {
        let name = node.incarnation.as_str().to_owned();
        if self.shared.presences().contains_key(&name) {
            return Err(NodeError::NotLive(node.incarnation));
        }
        let shared = Arc::clone(&self.shared);
        let done = self.spawned(async move {
            let key = presence_of(&shared, &node.incarnation);
            // The lock stands before the row does: nobody can take a newcomer for dead.
            let held = match key {
                Some(_) => Some(presence::hold(&shared, &node.incarnation).await?),
                None => None,
            };
            let conn = shared.upkeep.get().await?;
            let joined = node::join(&conn, &node, key, shared.clock.wall_ms()).await;
            let joined = conn.ended(joined)?;
            if joined {
                shared.presences().insert(name, held);
                shared.owned.join(&node.incarnation);
                shared.set_name(format!("tenure/{}", node.incarnation));
            }
            Ok::<_, Trouble>(joined.then_some(()).ok_or(node.incarnation))
        });
        match done.await {
            Ok(Ok(joined)) => joined.map_err(NodeError::NotLive),
            Ok(Err(trouble)) => Err(unavailable(&trouble)),
            Err(reason) => Err(NodeError::Unavailable { reason }),
        }
    }

    async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError> {
        let id = incarnation.clone();
        self.promptly(
            |shared| &shared.renewals,
            move |shared, conn| {
                let id = id.clone();
                Box::pin(async move { node::renew(conn, &id, shared).await })
            },
        )
        .await
    }

    async fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.clone();
        let drained = self
            .promptly(
                |shared| &shared.renewals,
                move |_, conn| {
                    let id = id.clone();
                    Box::pin(async move { node::drain(conn, &id).await })
                },
            )
            .await?;
        if drained {
            Ok(())
        } else {
            Err(NodeError::NotLive(incarnation.clone()))
        }
    }

    async fn leave(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.as_str().to_owned();
        self.on_slot(
            |shared| &shared.renewals,
            move |shared, conn| {
                Box::pin(async move {
                    let gone = node::bury(conn, &id, shared.clock.wall_ms()).await?;
                    shared.gone(&id, gone);
                    Ok(())
                })
            },
        )
        .await
    }

    async fn resign(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.as_str().to_owned();
        self.on_slot(
            |shared| &shared.renewals,
            move |shared, conn| {
                Box::pin(async move {
                    let gone = node::resign(conn, &id, shared.clock.wall_ms()).await?;
                    shared.gone(&id, gone);
                    Ok(())
                })
            },
        )
        .await
    }

    async fn reap(&self, observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError> {
        let (observer, shared) = (observer.clone(), Arc::clone(&self.shared));
        let done = self.spawned(async move { node::reap(&shared, &observer).await });
        done.await
            .unwrap_or_else(|reason| Err(NodeError::Unavailable { reason }))
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, NodeError> {
        let work: Box<Reading<Vec<NodeRow>>> = Box::new(|_, conn| Box::pin(rows::nodes(conn)));
        let rows = self.read_rows(None, work).await;
        rows.map_err(|error| NodeError::Unavailable {
            reason: error.to_string(),
        })
    }

    async fn acquire(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
        even_if_idle: bool,
    ) -> Result<Acquire, AppendError> {
        let (id, taker) = (session.clone(), incarnation.clone());
        self.write(
            |shared| &shared.queue,
            session,
            asks_of(incarnation),
            move |rows| claim::acquire(rows, &id, &taker, even_if_idle),
        )
        .await
        .map(|taken| self.shared.quieted(incarnation, taken))
    }

    async fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError> {
        let (id, owner) = (session.clone(), incarnation.clone());
        self.write(
            |shared| &shared.queue,
            session,
            asks_of(incarnation),
            move |rows| claim::adopt(rows, &id, &owner),
        )
        .await
        .map(|taken| self.shared.quieted(incarnation, taken))
    }

    async fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        let (id, fence) = (session.clone(), fence.clone());
        let work: Box<Reading<Option<ClaimView>>> = Box::new(move |_, conn| {
            let (id, fence) = (id.clone(), fence.clone());
            Box::pin(async move { rows::claim_phase(conn, &id, &fence).await })
        });
        self.read_rows(Some(session), work).await
    }

    async fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        let owner = incarnation.clone();
        let work: Box<Reading<Vec<HeldClaim>>> = Box::new(move |_, conn| {
            let owner = owner.clone();
            Box::pin(async move { rows::held(conn, &owner).await })
        });
        self.read_rows(None, work).await
    }

    async fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        let work: Box<Reading<Vec<ClaimRow>>> =
            Box::new(|shared, conn| Box::pin(rows::claims(conn, shared.clock.wall_ms())));
        self.read_rows(None, work).await
    }

    async fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError> {
        let id = session.clone();
        let work: Box<Reading<()>> = Box::new(move |_, conn| {
            let (id, checkpoint) = (id.clone(), checkpoint.clone());
            Box::pin(async move { rows::put_checkpoint(conn, &id, &checkpoint).await })
        });
        self.read_rows(Some(session), work).await
    }

    async fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        let id = session.clone();
        let work: Box<Reading<Vec<Checkpoint>>> = Box::new(move |_, conn| {
            let id = id.clone();
            Box::pin(async move { rows::checkpoints(conn, &id, version).await })
        });
        self.read_rows(Some(session), work).await
    }

    async fn gc(&self) -> Result<GcReport, ReadError> {
        let work: Box<Reading<GcReport>> =
            Box::new(|shared, conn| Box::pin(upkeep::gc(shared, conn)));
        self.read_rows(None, work).await
    }

    async fn health(&self) -> Result<StoreHealth, ReadError> {
        let work: Box<Reading<StoreHealth>> =
            Box::new(|shared, conn| Box::pin(upkeep::health(shared, conn)));
        self.read_rows(None, work).await
    }

    async fn weak(&self) -> Result<Vec<Weakness>, ReadError> {
        let work: Box<Reading<Vec<Weakness>>> = Box::new(|_, conn| Box::pin(upkeep::weak(conn)));
        self.read_rows(None, work).await
    }

    async fn cluster_secret(&self) -> Result<Option<Vec<u8>>, ReadError> {
        let work: Box<Reading<Option<Vec<u8>>>> =
            Box::new(|_, conn| Box::pin(upkeep::secret(conn)));
        self.read_rows(None, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::conn::Use;
    use super::*;

    /// A node renews each second, and stops 4.5 s after the last renewal it knows of.
    #[test]
    fn a_renewal_outlives_a_silent_connection_and_a_lost_dial() {
        let (_, dial) = Use::Control.dialling();
        let latest = Duration::from_secs(1) + SILENT + dial;
        assert!(latest <= Duration::from_millis(3_500), "{latest:?}");
    }
}
