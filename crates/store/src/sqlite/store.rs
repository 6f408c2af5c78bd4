//! The store's contract, method by method, over the writer and the readers.

use super::event;
use super::locks::remove_socket;
use super::node::{self, Death};
use super::reader::{read, unavailable};
use super::rows::{self, Now};
use super::tx::{Stop, int, uint};
use super::{CLOSED, SharedState, SqliteStore, fork, node_failed, upkeep};
use crate::api::*;
use crate::hooks::{Failure, append_failed, batch_key};
use crate::job::{AppendJob, Asks, Task};
use crate::machine::Ran;
use crate::machine::replay::read_lines;
use crate::machine::{append, check, claim, fork as forking, replay};
use async_trait::async_trait;
use rusqlite::{Connection, params};
use std::sync::{Arc, PoisonError};
use tenure_core::event::{EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;
use tokio::sync::{oneshot, watch};

/// Runs a read with what tells the living from the dead.
async fn read_state<T: Send + 'static>(
    shared: &Arc<SharedState>,
    work: impl FnOnce(&Connection, &Now<'_>) -> Result<T, super::reader::ReadStop> + Send + 'static,
) -> Result<T, ReadError> {
    let state = Arc::clone(shared);
    read(shared, move |conn| {
        let now = Now {
            boot_ms: state.clock.boottime_ms(),
            wall_ms: state.clock.wall_ms(),
            boot_id: state.boot_id.clone(),
            is_gone: &|incarnation| state.is_gone(incarnation),
        };
        work(conn, &now)
    })
    .await
}

fn read_failed(failure: &Failure) -> ReadError {
    unavailable(failure.reason.clone())
}

fn delete_failed(failure: &Failure) -> DeleteError {
    DeleteError::Unavailable {
        reason: failure.reason.clone(),
    }
}

fn replay_failed(failure: &Failure) -> ReplayError {
    ReplayError::Unavailable {
        reason: failure.reason.clone(),
    }
}

impl SqliteStore {
    /// A claim-side write of one session: everything that answers with an [`AppendError`].
    async fn write<T, F>(&self, session: &SessionId, work: F) -> Result<T, AppendError>
    where
        T: Send + 'static,
        F: FnMut(&super::tx::Tx<'_>) -> Result<(T, Ran), super::tx::AppendStop> + Send + 'static,
    {
        let mut work = work;
        let result = self
            .submit::<Result<T, AppendError>, Failure, _>(
                Some(session),
                vec![session.clone()],
                Failure::clone,
                move |tx| match work(tx) {
                    Ok((value, ran)) => Ok((Ok(value), ran)),
                    Err(Stop::Refused(refusal)) => Ok((Err(refusal), Ran::Nothing)),
                    Err(Stop::Failed(error)) => Err(Stop::Failed(error)),
                },
            )
            .await;
        result.unwrap_or_else(|failure| Err(append_failed(session, &failure)))
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn append(&self, append: Append) -> Result<Committed, AppendError> {
        let session = append.session.clone();
        let (reply, answer) = oneshot::channel();
        let job = AppendJob::new(append, Arc::clone(&self.shared.hooks), reply)?;
        let bytes = job.bytes();
        self.queue(Box::new(job), bytes).await;
        let closed = Failure {
            unknown: false,
            reason: CLOSED.to_owned(),
        };
        let reply = answer
            .await
            .unwrap_or_else(|_| Err(append_failed(&session, &closed)))?;
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
            asks: Asks::default(),
            session: Some(session.clone()),
            wakes: vec![session.clone()],
            work: move |tx: &super::tx::Tx<'_>| match append::resolve(tx, &id, &fence, &ids) {
                // Also when it only looked: the hook of what it found runs with the commit.
                Ok(found) => Ok((found, Ran::Wrote)),
                Err(Stop::Refused(refusal)) => Err(Stop::Refused(Ok(refusal))),
                Err(Stop::Failed(error)) => Err(Stop::Failed(error)),
            },
            verdict: None,
            failed: |failure: &Failure| Err(failure.clone()),
            reply: Some(reply),
        };
        let result: Result<_, Result<AppendError, Failure>> = self.finish(task, answer).await;
        result.map_err(|stop| stop.unwrap_or_else(|failure| append_failed(session, &failure)))
    }

    async fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let session = session.clone();
        read(&self.shared, move |conn| {
            let head = rows::head_for(conn, &session, after)?;
            let from = after.map_or(0, |after| after + 1);
            let events = event::page(conn, &head, from, limit)??;
            Ok(Page {
                events,
                head: head.head,
            })
        })
        .await
    }

    fn watch(&self, session: &SessionId) -> watch::Receiver<u64> {
        self.shared.watchers.session(session, &self.shared)
    }

    fn watch_all(&self) -> watch::Receiver<u64> {
        self.shared.watchers.all(&self.shared)
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
        let (parent, id) = (parent.clone(), child.clone());
        self.write(child, move |tx| {
            let committed = forking::fork(tx, &parent, through, &id, &event)?;
            let ran = if committed.duplicate {
                Ran::Nothing
            } else {
                Ran::Wrote
            };
            Ok((committed, ran))
        })
        .await
    }

    async fn delete(&self, session: &SessionId) -> Result<(), DeleteError> {
        let (id, shared) = (session.clone(), Arc::clone(&self.shared));
        self.submit(
            Some(session),
            vec![session.clone()],
            delete_failed,
            move |tx| {
                fork::delete(tx, &id, &|owner| shared.is_gone(owner))?;
                Ok(((), Ran::Wrote))
            },
        )
        .await?;
        // It is gone for every reader. What follows gives space back and may be left to `gc`.
        loop {
            let purged = self
                .submit(None, Vec::new(), delete_failed, |tx| {
                    Ok((fork::purge(tx)?, Ran::Wrote))
                })
                .await?;
            if !purged.more {
                return Ok(());
            }
        }
    }

    async fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError> {
        let gaps = broken!(self.shared.switches, ReplayAcceptsGap);
        let lines = read_lines(session, events, gaps)?;
        let id = session.clone();
        self.submit(
            Some(session),
            vec![session.clone()],
            replay_failed,
            move |tx| {
                let done = replay::replay(tx, &id, &lines)?;
                Ok((
                    done,
                    if done.inserted > 0 {
                        Ran::Wrote
                    } else {
                        Ran::Nothing
                    },
                ))
            },
        )
        .await
    }

    async fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        let id = session.clone();
        read_state(&self.shared, move |conn, now| rows::session(conn, &id, now)).await
    }

    async fn sessions(&self, query: SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        read_state(&self.shared, move |conn, now| {
            rows::sessions(conn, &query, now)
        })
        .await
    }

    async fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        read_state(&self.shared, move |conn, now| {
            rows::claimable(conn, limit, now)
        })
        .await
    }

    async fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        let id = session.clone();
        read(&self.shared, move |conn| rows::inbox(conn, &id)).await
    }

    async fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        let id = session.clone();
        read(&self.shared, move |conn| rows::effects(conn, &id)).await
    }

    async fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError> {
        read(&self.shared, move |conn| rows::leftovers(conn, limit)).await
    }

    async fn interrupt(&self, interrupt: Interrupt) -> Result<Interrupted, AppendError> {
        let session = interrupt.session.clone();
        self.write(&session, move |tx| {
            let answer = claim::interrupt(tx, &interrupt)?;
            let wrote = !matches!(answer, Interrupted::Idle | Interrupted::AlreadyFinished);
            Ok((answer, if wrote { Ran::Wrote } else { Ran::Nothing }))
        })
        .await
    }

    async fn join(&self, node: NodeInfo) -> Result<(), NodeError> {
        let name = node.incarnation.as_str().to_owned();
        if self.nodes().contains_key(&name) {
            return Err(NodeError::NotLive(node.incarnation));
        }
        let (locks, wanted) = (self.shared.locks.clone(), name.clone());
        let taken = tokio::task::spawn_blocking(move || locks.take_node(&wanted)).await;
        let held = taken
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| NodeError::Unavailable {
                reason: format!("the lock file of this process cannot be made: {error}"),
            })?;
        let Some(held) = held else {
            return Err(NodeError::NotLive(node.incarnation));
        };
        // The lock stands before the row does: nobody can take a newcomer for dead.
        self.nodes().insert(name.clone(), held);
        let joined = self
            .submit(None, Vec::new(), node_failed, move |tx| {
                Ok((node::join(tx, &node)?, Ran::Wrote))
            })
            .await;
        if matches!(joined, Err(NodeError::NotLive(_))) {
            self.nodes().remove(&name);
        }
        joined
    }

    async fn renew(&self, incarnation: &Incarnation) -> Result<Renewal, NodeError> {
        let id = incarnation.clone();
        self.submit(None, Vec::new(), node_failed, move |tx| {
            let renewal = node::renew(tx, &id)?;
            Ok((
                renewal,
                if renewal == Renewal::Renewed {
                    Ran::Wrote
                } else {
                    Ran::Nothing
                },
            ))
        })
        .await
    }

    async fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.clone();
        self.submit(None, Vec::new(), node_failed, move |tx| {
            Ok((node::drain(tx, &id)?, Ran::Wrote))
        })
        .await
    }

    async fn leave(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.as_str().to_owned();
        self.submit(None, Vec::new(), node_failed, move |tx| {
            let buried = node::bury(tx, &id, Death::Proven)?;
            Ok(((), if buried { Ran::Wrote } else { Ran::Nothing }))
        })
        .await?;
        if let Some(held) = self.nodes().remove(incarnation.as_str()) {
            held.remove();
        }
        Ok(())
    }

    async fn resign(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let id = incarnation.as_str().to_owned();
        self.submit(None, Vec::new(), node_failed, move |tx| {
            let said = node::resign(tx, &id)?;
            Ok(((), if said { Ran::Wrote } else { Ran::Nothing }))
        })
        .await?;
        if let Some(held) = self.nodes().remove(incarnation.as_str()) {
            held.remove();
        }
        Ok(())
    }

    async fn reap(&self, observer: &Incarnation) -> Result<Vec<Incarnation>, NodeError> {
        let (observer, shared) = (observer.clone(), Arc::clone(&self.shared));
        let (buried, sockets) = self
            .submit(None, Vec::new(), node_failed, move |tx| {
                let nodes = node::suspects(tx)?;
                let Some(own) = nodes
                    .iter()
                    .find(|node| node.incarnation == observer.as_str())
                else {
                    return Err(Stop::Refused(NodeError::NotLive(observer.clone())));
                };
                let mut all = shared
                    .observations
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let seen = all.entry(own.incarnation.clone()).or_default();
                let lapsed = seen.judge(tx.boot_ms, own, &nodes, tx.switches);
                let mut buried = Vec::new();
                for node in nodes
                    .iter()
                    .filter(|node| node.incarnation != own.incarnation)
                {
                    // A free lock is a proof, and so is another boot.
                    let death = if node.proven_dead || shared.is_gone(&node.incarnation) {
                        Death::Proven
                    } else if lapsed.contains(&node.incarnation) {
                        Death::Lapsed
                    } else {
                        continue;
                    };
                    if node::bury(tx, &node.incarnation, death)? {
                        buried.push(node.incarnation.clone());
                    }
                }
                if buried.is_empty() {
                    return Ok(((buried, Vec::new()), Ran::Nothing));
                }
                let sockets = node::left_addresses(tx.conn)?;
                Ok(((buried, sockets), Ran::Wrote))
            })
            .await?;
        for incarnation in &buried {
            self.shared.locks.remove_free_node(incarnation);
        }
        sockets.iter().for_each(|path| remove_socket(path));
        Ok(buried
            .iter()
            .filter_map(|id| Incarnation::parse(id).ok())
            .collect())
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, NodeError> {
        read_state(&self.shared, rows::nodes)
            .await
            .map_err(|error| NodeError::Unavailable {
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
        self.write(session, move |tx| {
            claim::acquire(tx, &id, &taker, even_if_idle)
        })
        .await
    }

    async fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError> {
        let (id, owner) = (session.clone(), incarnation.clone());
        self.write(session, move |tx| claim::adopt(tx, &id, &owner))
            .await
    }

    async fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        let (id, fence) = (session.clone(), fence.clone());
        read(&self.shared, move |conn| {
            rows::claim_phase(conn, &id, &fence)
        })
        .await
    }

    async fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        let owner = incarnation.clone();
        read(&self.shared, move |conn| rows::held(conn, &owner)).await
    }

    async fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        read_state(&self.shared, rows::claims).await
    }

    async fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError> {
        let id = session.clone();
        self.submit(Some(session), Vec::new(), read_failed, move |tx| {
            let Some(head) = super::head::load(tx.conn, &id)? else {
                return Err(Stop::Refused(ReadError::UnknownSession(id.clone())));
            };
            tx.exec(
                "DELETE FROM checkpoint WHERE sid = ?1 AND version <> ?2",
                params![head.sid, checkpoint.version],
            )?;
            tx.exec(
                "INSERT OR REPLACE INTO checkpoint(sid, version, through, bytes) VALUES (?1, ?2, ?3, ?4)",
                params![head.sid, checkpoint.version, int(checkpoint.through), checkpoint.bytes],
            )?;
            Ok(((), Ran::Wrote))
        })
        .await
    }

    async fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        let id = session.clone();
        read(&self.shared, move |conn| {
            let Some(head) = super::head::load(conn, &id)? else {
                return Err(ReadError::UnknownSession(id.clone()).into());
            };
            let mut found = Vec::new();
            // A fork may use its parent's, as far as the shared events reach.
            for segment in event::segments(conn, &head)? {
                let mut statement = conn.prepare_cached(
                    "SELECT through, bytes FROM checkpoint WHERE sid = ?1 AND version = ?2 \
                     AND through BETWEEN ?3 AND ?4 ORDER BY through",
                )?;
                let range = params![segment.sid, version, int(segment.from), int(segment.to)];
                let rows = statement.query_map(range, |row| {
                    Ok(Checkpoint {
                        through: uint(row.get(0)?),
                        version,
                        bytes: row.get(1)?,
                    })
                })?;
                for row in rows {
                    found.push(row?);
                }
            }
            Ok(found)
        })
        .await
    }

    async fn gc(&self) -> Result<GcReport, ReadError> {
        let before = upkeep::bytes(&self.shared);
        // Before rows are forgotten: they say what to look for.
        let shared = Arc::clone(&self.shared);
        read(&self.shared, move |conn| {
            Ok(upkeep::sweep_nodes(&shared, conn)?)
        })
        .await?;
        let step = self
            .submit(None, Vec::new(), read_failed, upkeep::step)
            .await?;
        let shared = Arc::clone(&self.shared);
        tokio::task::spawn_blocking(move || upkeep::truncate(&shared))
            .await
            .map_err(|error| unavailable(error.to_string()))??;
        Ok(upkeep::report(before, upkeep::bytes(&self.shared), &step))
    }

    async fn health(&self) -> Result<StoreHealth, ReadError> {
        upkeep::health(&self.shared).await
    }
}
