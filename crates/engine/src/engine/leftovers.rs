//! What settled calls left at work: their effect rows stay in the store until it is known to be gone (R10). Who settled
//! a call sees to that first; should its process be lost meanwhile, any node of the same machine does.

use super::Shared;
use super::stopped::Trace;
use crate::complaint::Complaint;
use crate::environment::Environment;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_store::{Append, AppendError, EffectRow, HookOp, ReadError, Store};

/// Between two looks at what others left; a node that was lost, or a tenure that ends early, hurries it.
const EVERY: Duration = Duration::from_secs(20);
/// Rows in one look.
const PASS: usize = 4_096;
/// For how long a row is kept whose end nobody here can prove, for a node of its machine that comes back: long after
/// everything that a lease guards is over.
const KEPT_MS: u64 = 600_000;

/// Removes the rows of these calls once what they left is gone. Called before they are settled, so that no settlement
/// leaves a row that nobody looks after.
pub(crate) fn see_to(shared: &Arc<Shared>, session: &SessionId, left: &[Trace]) {
    for trace in left.iter().filter(|trace| trace.is_for_me()) {
        let (task, session, trace) = (shared.clone(), session.clone(), trace.clone());
        // A node that leaves waits for it.
        let alive = shared.living.begin();
        shared.config.env.spawn(Box::pin(async move {
            trace.over().await;
            if let Err(error) = is_over(&task, &session, &trace).await {
                tracing::warn!(%session, call = %trace.call, %error, "the row of what a call left is not removed yet");
            }
            drop(alive);
        }));
    }
}

/// Nothing in this process looks after the call any more: does anything live?
async fn is_over(shared: &Shared, session: &SessionId, trace: &Trace) -> Result<(), ReadError> {
    let rows = shared.store.effects(session).await?;
    let same = |row: &&EffectRow| row.message == trace.message && row.call == trace.call;
    let Some(row) = rows.iter().find(same) else {
        return Ok(());
    };
    let env = shared.config.env.as_ref();
    match end(env, row).await {
        // There is nothing to find it by but what has just ended.
        None | Some(Ok(())) => gone(shared.store.as_ref(), session, row).await,
        // Whoever follows it has said so; the next look tries again.
        Some(Err(error)) => {
            tracing::error!(%session, call = %row.call, %error, "what a stopped call left does not end");
        }
    }
    Ok(())
}

/// Ends what the row stands for; none where that cannot be done here.
pub(crate) async fn end(env: &dyn Environment, row: &EffectRow) -> Option<Result<(), String>> {
    let process = row.process.as_ref().filter(|process| env.is_local(process));
    Some(env.end_leftover(process?.clone()).await)
}

/// Removes the row of what is gone. Where the store does not take it, the next look does it again.
pub(crate) async fn gone(store: &dyn Store, session: &SessionId, row: &EffectRow) {
    let mut append = Append::unfenced(session.clone(), Vec::new());
    append.ops = vec![HookOp::EffectGone {
        message: row.message.clone(),
        call: row.call.clone(),
        process: row.process.clone(),
    }];
    match store.append(append).await {
        // With a session that was deleted its rows are gone.
        Ok(_) | Err(AppendError::UnknownSession(_)) => {}
        Err(error) => {
            tracing::warn!(%session, call = %row.call, %error, "the row of what a call left is not removed yet");
        }
    }
}

/// Rows whose end nobody here can prove, and since when this process knows them.
type Kept = BTreeMap<(SessionId, MessageId, CallId), u64>;

/// Looks, from the node's start on, for what is left on this machine of calls that are over, and ends it.
pub(super) async fn look_after(shared: Arc<Shared>) {
    let env = shared.config.env.clone();
    let mut kept = Kept::new();
    let unread = Complaint::default();
    loop {
        match look(shared.store.as_ref(), env.as_ref(), &mut kept).await {
            Ok(()) => drop(unread.over(env.boot_ms())),
            Err(error) => {
                if unread.again(env.boot_ms()) {
                    tracing::warn!(%error, "what calls left cannot be read");
                }
            }
        }
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return,
            () = shared.left.notified() => {}
            () = env.sleep(EVERY) => {}
        }
    }
}

async fn look(store: &dyn Store, env: &dyn Environment, kept: &mut Kept) -> Result<(), ReadError> {
    let mut known = std::mem::take(kept);
    for (session, row) in store.leftovers(PASS).await? {
        match end(env, &row).await {
            Some(Ok(())) => {
                tracing::warn!(%session, call = %row.call, "nothing is left of a call whose node was lost");
                gone(store, &session, &row).await;
            }
            Some(Err(error)) => {
                tracing::error!(%session, call = %row.call, %error, "what a call left does not end");
            }
            None => {
                let key = (session.clone(), row.message.clone(), row.call.clone());
                let now = env.boot_ms();
                let since = known.remove(&key).unwrap_or(now);
                if now.saturating_sub(since) >= KEPT_MS {
                    gone(store, &session, &row).await;
                } else {
                    kept.insert(key, since);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
