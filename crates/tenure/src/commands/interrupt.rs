//! `tenure interrupt`: stop what a session does. The answer comes when the interrupt is durable.

use super::show::each_event;
use super::{Context, open, print};
use crate::args::{Global, InterruptArgs};
use crate::config::Config;
use crate::exit::{CliError, CliResult};
use crate::node::{self, Role};
use crate::store;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{EventBody, ExecutionId, SessionId};
use tenure_engine::{Approvals, Scope};
use tenure_store::{Interrupted, SessionRow, SessionState, Store};

/// A living owner settles in much less; after this somebody else looks whether it lives.
const OWNER_SETTLES_WITHIN: Duration = Duration::from_millis(1_000);
/// Settling for a dead owner is quick; a silent one is judged after its lease. More than this is left to others.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);
/// What follows an interrupt until it is settled fits in this many events.
const PAGE: usize = 1_000;
/// A hint of a change may be lost: look again after this.
const LOOK: Duration = Duration::from_millis(100);

/// Interrupts.
pub async fn run(cx: &Context, global: &Global, args: &InterruptArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let execution = args
        .execution
        .as_deref()
        .map(ExecutionId::parse)
        .transpose()
        .map_err(|e| CliError::usage(e.to_string()))?;
    if let Some(execution) = &execution {
        known(store.as_ref(), &row, execution).await?;
    }
    let client = store::client(&config, store.clone()).await;
    let receipt = client
        .interrupt(&row.id, execution, "tenure interrupt")
        .await?;
    let quarantined = matches!(row.state, SessionState::Quarantined { .. });
    let (word, sentence, seq, settle) = match &receipt {
        Interrupted::Accepted {
            seq,
            after_takeover: false,
            ..
        } => (
            "accepted",
            "interrupt accepted; ".to_owned(),
            Some(*seq),
            true,
        ),
        Interrupted::Accepted { seq, .. } => (
            "after_takeover",
            "interrupt accepted; ".to_owned(),
            Some(*seq),
            true,
        ),
        Interrupted::StoppedBeforeStart { seq } => (
            "stopped_before_start",
            if quarantined {
                set_aside(&row.id)
            } else {
                format!(
                    "stopped before it started; what waits stays pending (`tenure resume {}`)\n",
                    row.id
                )
            },
            Some(*seq),
            false,
        ),
        Interrupted::AlreadyFinished => (
            "already_finished",
            "that execution is over already\n".to_owned(),
            None,
            false,
        ),
        Interrupted::Idle if quarantined => ("idle", set_aside(&row.id), None, false),
        Interrupted::Idle => ("idle", idle(&row.state), None, false),
    };
    if args.json {
        let line =
            json!({"v": 1, "kind": "interrupt", "session": row.id, "receipt": word, "seq": seq});
        print(&format!("{line}\n"))?;
    } else {
        print(&sentence)?;
    }
    let Some(seq) = seq.filter(|_| settle) else {
        return Ok(());
    };
    // A living owner needs no help; one that was killed without a word is found out here.
    let done = settled(store.as_ref(), &row.id, OWNER_SETTLES_WITHIN).await?
        || take_over(&config, store.clone(), &row.id).await?;
    if args.json {
        return Ok(());
    }
    print(
        match (done, taken_over(store.as_ref(), &row.id, seq).await?) {
            (true, false) => "its owner stopped\n",
            (true, true) => "its owner was gone: taken over and settled\n",
            (false, _) => "its owner is silent; whoever takes the session over settles it\n",
        },
    )
}

/// An execution that never was cannot be over.
async fn known(store: &dyn Store, row: &SessionRow, execution: &ExecutionId) -> CliResult {
    let mut found = row.execution.as_ref() == Some(execution);
    if !found {
        each_event(store, row, None, |event| {
            found |=
                matches!(&event.body, EventBody::ExecutionStarted(e) if &e.execution == execution);
            Ok(())
        })
        .await?;
    }
    if found {
        return Ok(());
    }
    Err(
        CliError::usage(format!("session {} has no execution {execution}", row.id)).hint(format!(
            "`tenure log {}` shows them (`execution.started`)",
            row.id
        )),
    )
}

/// There was nothing to stop; what rests is not nothing.
fn idle(state: &SessionState) -> String {
    match state {
        SessionState::Parked { inputs: 1 } => {
            "nothing runs; 1 input waits, parked; nothing was changed\n".to_owned()
        }
        SessionState::Parked { inputs } => {
            format!("nothing runs; {inputs} inputs wait, parked; nothing was changed\n")
        }
        _ => "nothing runs and nothing waits; nothing was changed\n".to_owned(),
    }
}

/// Nothing runs in a session that is set aside, and resuming it does not change that.
fn set_aside(session: &SessionId) -> String {
    format!(
        "nothing runs: the session is set aside, and what waits stays pending until `tenure release {session}`\n"
    )
}

/// Did somebody take the session over since the interrupt? The log tells.
async fn taken_over(store: &dyn Store, session: &SessionId, interrupt: u64) -> CliResult<bool> {
    let page = store.read(session, Some(interrupt), PAGE).await?;
    let mut bodies = page.events.iter().map(|event| &event.body);
    Ok(bodies.any(|body| matches!(body, EventBody::RecoveryStarted(_))))
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

/// Any node may settle an interrupt for an owner that is gone: this one does. True when it is settled.
async fn take_over(config: &Config, store: Arc<dyn Store>, session: &SessionId) -> CliResult<bool> {
    let role = Role::command("interrupt", Scope::Asked, Approvals::Headless);
    let engine = node::start(config, store.clone(), &role).await?;
    engine.run(session);
    let done = settled(store.as_ref(), session, SETTLE_WITHIN).await;
    engine.forget(session);
    engine.shutdown_now().await?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receipt_tells_of_parked_inputs() {
        let words = |inputs| idle(&SessionState::Parked { inputs });
        assert!(words(1).starts_with("nothing runs; 1 input waits, parked;"));
        assert!(words(2).starts_with("nothing runs; 2 inputs wait, parked;"));
        assert!(idle(&SessionState::Idle).starts_with("nothing runs and nothing waits;"));
    }
}
