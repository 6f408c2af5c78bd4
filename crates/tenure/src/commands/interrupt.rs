//! `tenure interrupt`: stop what a session does. The answer comes when the interrupt is durable.

use super::{Context, open, print};
use crate::args::{Global, InterruptArgs};
use crate::config::Config;
use crate::exit::{CliError, CliResult};
use crate::node::{self, Role};
use crate::store;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{ExecutionId, SessionId};
use tenure_engine::{Approvals, Scope};
use tenure_store::{Interrupted, SqliteStore, Store};

/// A living owner settles in much less; after this somebody else looks whether it lives.
const OWNER_SETTLES_WITHIN: Duration = Duration::from_millis(1_000);
/// Settling for a dead owner is quick; a silent one is judged after its lease. More than this is left to others.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// A hint of a change may be lost: look again after this.
const LOOK: Duration = Duration::from_millis(100);

/// Interrupts.
pub async fn run(cx: &Context, global: &Global, args: &InterruptArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config)?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let execution = args
        .execution
        .as_deref()
        .map(ExecutionId::parse)
        .transpose()
        .map_err(|e| CliError::usage(e.to_string()))?;
    let client = store::client(store.clone());
    let receipt = client
        .interrupt(&row.id, execution, "tenure interrupt")
        .await?;
    let (word, sentence, seq, settle) = match &receipt {
        Interrupted::Accepted {
            seq,
            after_takeover: false,
            ..
        } => (
            "accepted",
            "interrupt accepted; its owner stops now".to_owned(),
            Some(*seq),
            true,
        ),
        Interrupted::Accepted { seq, .. } => (
            "after_takeover",
            "interrupt accepted; its owner is gone, so it takes effect with the takeover"
                .to_owned(),
            Some(*seq),
            true,
        ),
        Interrupted::StoppedBeforeStart { seq } => (
            "stopped_before_start",
            format!(
                "stopped before it started; what waits stays pending (`tenure resume {}`)",
                row.id
            ),
            Some(*seq),
            false,
        ),
        Interrupted::AlreadyFinished => (
            "already_finished",
            "that execution is over already".to_owned(),
            None,
            false,
        ),
        Interrupted::Idle => (
            "idle",
            "nothing runs and nothing waits; nothing was changed".to_owned(),
            None,
            false,
        ),
    };
    if args.json {
        let line =
            json!({"v": 1, "kind": "interrupt", "session": row.id, "receipt": word, "seq": seq});
        print(&format!("{line}\n"))?;
    } else {
        print(&format!("{sentence}\n"))?;
    }
    // A living owner needs no help; one that was killed without a word is found out here.
    if settle && !settled(store.as_ref(), &row.id, OWNER_SETTLES_WITHIN).await? {
        return take_over(&config, store, &row.id, args.json).await;
    }
    Ok(())
}

/// Waits until the session's claim is gone.
async fn settled(store: &dyn Store, session: &SessionId, limit: Duration) -> CliResult<bool> {
    let mut changes = store.watch(session);
    let began = Instant::now();
    loop {
        changes.borrow_and_update();
        if store
            .claims()
            .await?
            .iter()
            .all(|claim| &claim.session != session)
        {
            return Ok(true);
        }
        if began.elapsed() >= limit {
            return Ok(false);
        }
        // A change that comes is looked at at once.
        let _ = tokio::time::timeout(LOOK, changes.changed()).await;
    }
}

/// Any node may settle an interrupt for an owner that is gone: this one does.
async fn take_over(
    config: &Config,
    store: Arc<SqliteStore>,
    session: &SessionId,
    quiet: bool,
) -> CliResult {
    let role = Role {
        name: "interrupt",
        scope: Scope::Asked,
        approvals: Approvals::Headless,
        alone: false,
    };
    let engine = node::start(config, store.clone(), &role).await?;
    engine.run(session);
    let done = settled(store.as_ref(), session, SETTLE_WITHIN).await;
    engine.forget(session);
    engine.shutdown_now().await?;
    match (done?, quiet) {
        (_, true) => Ok(()),
        (true, false) => print("its owner was gone: taken over and settled\n"),
        (false, false) => print("its owner is silent; whoever takes the session over settles it\n"),
    }
}
