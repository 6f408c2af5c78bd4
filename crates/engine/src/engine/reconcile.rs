//! Three loops that keep a node true to the store, whatever it was or was not told (P7): what it holds, what it may
//! take, and who has died. Level-triggered: each looks at the store, not at what it remembers.

use super::orphans::Orphans;
use super::rank::{able, is_first, takes};
use super::{Shared, wake};
use crate::complaint::Complaint;
use crate::config::Scope;
use crate::environment::Environment;
use crate::error::EngineError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_store::{SessionRow, SessionState};

/// The shortest time between looks that hints ask for.
const SHORTEST: Duration = Duration::from_millis(20);
/// After a look, hints wait for this many times what it took: however much there is to read, it stays a small part.
const REST: u64 = 10;
/// The longest of these rests after a look that found few rows: it took its time for other reasons than its size.
const SHORT_REST: Duration = Duration::from_millis(60);
/// What is few.
const FEW: usize = 64;
/// Rows of claimable sessions looked at in one pass: those of other locations may stand before this node's.
const PASS: usize = 4_096;
/// How long a session is left to the node that comes first for it, in milliseconds.
const STAND_OFF_MS: u64 = 600;

/// When hints are heard again after a look that began at `began_ms` and found so many rows.
fn rest(env: &dyn Environment, began_ms: u64, found: usize, poll: Duration) -> Duration {
    let took = env.boot_ms().saturating_sub(began_ms);
    let longest = if found <= FEW { SHORT_REST } else { poll };
    SHORTEST
        .max(Duration::from_millis(took * REST))
        .min(longest.min(poll))
}

/// Compares what this node holds with what runs here: the poll that is always on, and the hints that hurry it.
pub(super) async fn keep_claims(shared: Arc<Shared>) {
    let env = shared.config.env.clone();
    let poll = shared.config.poll;
    let mut orphans = Orphans::default();
    let mut polled = true;
    let mut due = env.sleep(Duration::ZERO);
    let unread = Complaint::default();
    let mut deaf: Option<futures::future::BoxFuture<'static, ()>> = None;
    loop {
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = shared.board.urged() => {
                look_at_urgent(&shared).await;
                continue;
            }
            () = async { match deaf.as_mut() {
                Some(rest) => rest.await,
                None => std::future::pending().await,
            } } => {
                deaf = None;
                continue;
            }
            () = &mut due, if !broken!(shared.config, ClaimPollOff) => polled = true,
            () = shared.board.hinted(), if deaf.is_none() => {}
        }
        let began = env.boot_ms();
        let found = look_at_claims(&shared, &mut orphans, polled).await;
        let found = found.unwrap_or_else(|error| {
            if unread.again(env.boot_ms()) {
                tracing::warn!(%error, "what this node holds cannot be read");
            }
            usize::MAX
        });
        if found != usize::MAX {
            unread.over(env.boot_ms());
        }
        deaf = Some(env.sleep(rest(env.as_ref(), began, found, poll)));
        if polled {
            due = env.sleep(poll);
        }
        polled = false;
    }
}

async fn look_at_urgent(shared: &Shared) {
    for (session, fence) in shared.board.take_urgent() {
        match shared.store.claim_phase(&session, &fence).await {
            Ok(found) => shared.board.tell(&session, &fence, found),
            Err(error) => tracing::warn!(%session, %error, "the claim cannot be read"),
        }
    }
}

async fn look_at_claims(
    shared: &Arc<Shared>,
    orphans: &mut Orphans,
    polled: bool,
) -> Result<usize, EngineError> {
    let incarnation = shared.node.life().incarnation;
    let round = shared.board.begin_round();
    let held = shared.store.held(&incarnation).await?;
    shared.board.tell_all(round, &held);
    if !shared.draining() && shared.node.may_start() {
        orphans.look(shared, &held, polled).await?;
    }
    Ok(held.len())
}

/// Finds nodes that died, several times a second; what they held is looked at right away.
pub(super) async fn suspect(shared: Arc<Shared>) {
    let env = shared.config.env.clone();
    let every = shared.config.suspect_every.as_millis() as u64;
    loop {
        // Nodes that look at the same moment ask the same question twice.
        let jitter = env.random() % (every / 4 + 1);
        let pause = Duration::from_millis(every - every / 8 + jitter);
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = env.sleep(pause) => {}
        }
        // A node that draws its own lease into question judges nobody (R13).
        if shared.draining() || !shared.node.may_start() {
            continue;
        }
        match shared.store.reap(&shared.node.life().incarnation).await {
            Ok(dead) if dead.is_empty() => {}
            Ok(dead) => {
                tracing::warn!(?dead, "nodes are gone");
                shared.bereaved.notify_one();
                shared.left.notify_one();
            }
            Err(error) => tracing::debug!(%error, "cannot look for nodes that died"),
        }
    }
}

/// Takes what may be taken.
pub(super) async fn reconcile(shared: Arc<Shared>) {
    let mut changes = shared.store.watch_all();
    let env = shared.config.env.clone();
    let mut left = Left::default();
    let unread = Complaint::default();
    loop {
        changes.borrow_and_update();
        let began = env.boot_ms();
        let (found, next) = match look(&shared, &mut left).await {
            Ok(seen) => {
                shared.looked_ms.store(env.boot_ms(), Ordering::Release);
                // Without a look nothing is known of the store.
                if seen.is_some()
                    && let Some(away_ms) = unread.over(env.boot_ms())
                {
                    tracing::warn!(away_ms, "the reconciler reads the store again");
                }
                seen.unwrap_or_default()
            }
            Err(error) => {
                if unread.again(env.boot_ms()) {
                    tracing::warn!(%error, "the reconciler cannot read the store");
                }
                (usize::MAX, None)
            }
        };
        let poll = next.unwrap_or(shared.config.poll).min(shared.config.poll);
        // A death is rare, and every moment counts then: it waits for no rest.
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = shared.bereaved.notified() => continue,
            () = env.sleep(rest(env.as_ref(), began, found, poll)) => {}
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = shared.bereaved.notified() => {}
            changed = changes.changed() => if changed.is_err() { return },
            () = shared.look.notified() => {}
            () = env.sleep(poll) => {}
        }
    }
}

/// Sessions left to the node that comes first for them, and since when.
#[derive(Debug, Default)]
struct Left(BTreeMap<SessionId, u64>);

impl Left {
    /// Which of `rows` are for this node now, and whether others are waited for.
    async fn take(
        &mut self,
        shared: &Shared,
        rows_found: Vec<SessionRow>,
    ) -> Result<(Vec<SessionId>, bool), EngineError> {
        let own = shared.node.life().incarnation;
        let (mut mine, mut rows): (Vec<SessionId>, Vec<SessionRow>) = Default::default();
        {
            let running = shared.running();
            for row in rows_found {
                if running.contains_key(&row.id) {
                    // Just let go by a run that has not quite ended: that one looks again.
                    mine.push(row.id);
                } else if row.cancelling || row.check_served(&shared.config.serves).is_ok() {
                    rows.push(row);
                }
            }
        }
        if rows.is_empty() {
            self.0.clear();
            return Ok((mine, false));
        }
        let mut nodes = shared.store.nodes().await?;
        nodes.retain(takes);
        let now = shared.config.env.boot_ms();
        let known: BTreeSet<&SessionId> = rows.iter().map(|row| &row.id).collect();
        self.0.retain(|session, _| known.contains(session));
        rows.retain(|row| {
            let able = able(&nodes, row);
            let here = row.cancelling
                || shared
                    .config
                    .serves
                    .check(&row.location, &row.model)
                    .is_ok();
            if !here && !able.iter().any(|node| node.incarnation == own) {
                // It moves here, and there is still somebody where it is.
                return false;
            }
            let since = *self.0.entry(row.id.clone()).or_insert(now);
            is_first(&row.id, &own, able.into_iter()) || now.saturating_sub(since) >= STAND_OFF_MS
        });
        for row in &rows {
            self.0.remove(&row.id);
        }
        mine.extend(rows.into_iter().map(|row| row.id));
        Ok((mine, !self.0.is_empty()))
    }
}

/// One pass. How many rows it looked at, and how soon to look again, when that is before the poll; none when there
/// was nothing to look for.
async fn look(
    shared: &Arc<Shared>,
    left: &mut Left,
) -> Result<Option<(usize, Option<Duration>)>, EngineError> {
    if shared.draining() || !shared.node.may_start() {
        return Ok(None);
    }
    if shared.config.scope == Scope::Any {
        let rows = shared.store.claimable(PASS).await?;
        let found = rows.len();
        let (mine, others) = left.take(shared, rows).await?;
        for session in &mine {
            wake(shared, session);
        }
        let again = others.then(|| Duration::from_millis(STAND_OFF_MS / 2));
        return Ok(Some((found, again)));
    }
    let incarnation = shared.node.life().incarnation;
    let asked: Vec<SessionId> = shared.asked().iter().cloned().collect();
    if asked.is_empty() {
        return Ok(None);
    }
    let (found, mut waiting) = (asked.len(), false);
    for session in asked {
        let row = shared.store.session(&session).await?;
        match row.map(|row| row.state) {
            // It may have been taken back while the row was read.
            Some(SessionState::Claimable { .. }) if shared.asked().contains(&session) => {
                wake(shared, &session);
            }
            Some(SessionState::Owned { owner, .. } | SessionState::Waiting { owner, .. })
                if owner != incarnation =>
            {
                waiting = true;
            }
            _ => {}
        }
    }
    // A session asked for here and held by another: notice at once when that one dies.
    Ok(Some((found, waiting.then(|| Duration::from_millis(100)))))
}
