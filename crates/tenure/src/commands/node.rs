//! `tenure node`: runs the sessions of a store in the background.

use super::{Context, open};
use crate::args::{Global, NodeArgs};
use crate::exit::{CliError, CliResult};
use crate::follow::Signals;
use crate::node::{self, Role};
use crate::store;
use std::time::Duration;
use tenure_core::SessionId;
use tenure_engine::{Approvals, Engine, Scope};
use tenure_store::{SessionState, Store};

/// How often a node looks whether it is still needed.
const LOOK: Duration = Duration::from_millis(500);

/// Runs until told to stop or, with `--until-idle`, until nothing is left to do.
pub async fn run(cx: &Context, global: &Global, args: NodeArgs) -> CliResult {
    let config = open(cx, global)?;
    let mut waiting_for = Vec::new();
    for text in &args.waiting_for {
        waiting_for.push(SessionId::parse(text).map_err(|e| CliError::usage(e.to_string()))?);
    }
    let store = store::open_existing(&config)?;
    let role = Role {
        name: "node",
        scope: if args.alone { Scope::Asked } else { Scope::Any },
        approvals: Approvals::Headless,
        alone: args.alone,
    };
    let engine = node::start(&config, store.clone(), &role).await?;
    for session in &waiting_for {
        engine.run(session);
    }
    let mut signals = Signals::new()?;
    tokio::select! {
        result = unneeded(&engine, store.as_ref(), &waiting_for, args.alone), if args.until_idle => result?,
        _ = signals.next() => {}
    }
    engine.shutdown().await?;
    Ok(())
}

/// Waits until nothing runs here, nothing could, and nobody holds what was handed over.
async fn unneeded(
    engine: &Engine,
    store: &dyn Store,
    waiting_for: &[SessionId],
    alone: bool,
) -> CliResult {
    loop {
        tokio::time::sleep(LOOK).await;
        if engine.running() > 0 {
            engine.idle().await;
            continue;
        }
        let mut busy = !alone && !store.claimable(1).await?.is_empty();
        for session in waiting_for {
            let row = store.session(session).await?;
            busy |= row.is_some_and(|row| {
                matches!(
                    row.state,
                    SessionState::Owned { .. }
                        | SessionState::Waiting { .. }
                        | SessionState::Claimable { .. }
                )
            });
        }
        if !busy && engine.running() == 0 {
            return Ok(());
        }
    }
}
