//! `tenure interrupt`: stop what a session does. The answer comes when the interrupt is durable.

use super::{Context, open, print};
use crate::args::{Global, InterruptArgs};
use crate::config::Config;
use crate::exit::{CliError, CliResult};
use crate::node::{self, Role};
use crate::store;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{ExecutionId, SessionId};
use tenure_engine::{Approvals, Scope};
use tenure_store::{Interrupted, SqliteStore, Store};

/// Settling for a dead owner is quick; more than this is left to others.
const SETTLE_WITHIN: Duration = Duration::from_secs(5);

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
            false,
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
    if settle {
        return take_over(&config, store, &row.id, args.json).await;
    }
    Ok(())
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
    let mut changes = store.watch(session);
    let settled = tokio::time::timeout(SETTLE_WITHIN, async {
        loop {
            changes.borrow_and_update();
            if store
                .claims()
                .await?
                .iter()
                .all(|claim| &claim.session != session)
            {
                return CliResult::Ok(());
            }
            let _ = tokio::time::timeout(Duration::from_millis(200), changes.changed()).await;
        }
    })
    .await;
    engine.forget(session);
    engine.shutdown_now().await?;
    match settled {
        Ok(done) => done?,
        Err(_) => return Ok(()),
    }
    if quiet {
        Ok(())
    } else {
        print("taken over and settled\n")
    }
}
