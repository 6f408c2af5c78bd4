//! Commands of one step: cancel, fork, delete, gc, release.

use super::show::each_event;
use super::{Context, notice, open, print};
use crate::args::{CancelArgs, DeleteArgs, ForkArgs, Global, JsonOnly, ReleaseArgs};
use crate::exit::{CliError, CliResult};
use crate::render::human;
use crate::store;
use serde_json::json;
use std::collections::HashSet;
use tenure_core::event::body::{InputCancelled, InputPromoted};
use tenure_core::{EventBody, MessageId, SessionId};
use tenure_engine::EngineError;
use tenure_store::{AppendError, SessionRow, SessionState, Store};

/// `tenure cancel`: takes a waiting input back.
pub async fn cancel(cx: &Context, global: &Global, args: &CancelArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    let pending = store.inbox(&row.id).await?;
    let input = MessageId::parse(&args.input).map_err(|e| CliError::usage(e.to_string()))?;
    if !pending.iter().any(|p| p.input == input) {
        return Err(
            CliError::usage(format!("{input} does not wait in {}", row.id))
                .near(&args.input, pending.iter().map(|p| p.input.as_str()))
                .hint(format!("`tenure show {}` lists what waits", row.id)),
        );
    }
    match store::client(&config, store)
        .await
        .cancel_input(&row.id, &input, "tenure cancel")
        .await
    {
        Ok(()) => print(&format!("{input} was taken back\n")),
        Err(EngineError::Append(AppendError::InboxChanged { .. })) => Err(CliError::failed(
            format!("{input} was delivered meanwhile; nothing was changed"),
        )),
        Err(error) => Err(error.into()),
    }
}

/// `tenure fork`: a session that shares another one's history.
pub async fn fork(cx: &Context, global: &Global, args: &ForkArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    if let Some(at) = args.at
        && at > row.head
    {
        return Err(
            CliError::usage(format!("session {} ends at {}", row.id, row.head)).hint(format!(
                "`tenure log {}` shows where it can be forked",
                row.id
            )),
        );
    }
    let left = left(store.as_ref(), &row, args.at).await?;
    let child = store::client(&config, store)
        .await
        .fork(&row.id, args.at)
        .await?;
    print(&format!("{child}\n"))?;
    left.words(&row.id).iter().for_each(|text| notice(text));
    Ok(())
}

/// What a fork does not take along.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Left {
    /// A turn was under way.
    turn: bool,
    /// Inputs waited.
    inputs: usize,
}

impl Left {
    fn words(self, parent: &SessionId) -> Vec<String> {
        let mut words = Vec::new();
        if self.turn {
            words.push(format!(
                "the fork begins in the middle of a turn: what was open there is settled as not carried over, and the \
                 turn itself is {parent}'s"
            ));
        }
        match self.inputs {
            0 => {}
            1 => words.push(format!("1 input that waited there stays with {parent}")),
            n => words.push(format!("{n} inputs that waited there stay with {parent}")),
        }
        words
    }
}

/// What is open in a session at the place of a fork.
async fn left(store: &dyn Store, row: &SessionRow, at: Option<u64>) -> CliResult<Left> {
    let Some(at) = at else {
        return Ok(Left {
            turn: row.execution.is_some(),
            inputs: store.inbox(&row.id).await?.len(),
        });
    };
    let mut turn = false;
    let mut waiting = HashSet::new();
    // What comes later does not matter, and may be what cannot be read.
    let shared = SessionRow {
        head: at,
        ..row.clone()
    };
    each_event(store, &shared, None, |event| {
        match event.body {
            EventBody::ExecutionStarted(_) => turn = true,
            EventBody::ExecutionSucceeded(_)
            | EventBody::ExecutionFailed(_)
            | EventBody::ExecutionInterrupted(_) => turn = false,
            // It begins at rest; what waited stayed with its own parent.
            EventBody::SessionForked(_) => {
                turn = false;
                waiting.clear();
            }
            EventBody::InputAdmitted(e) => {
                waiting.insert(e.input);
            }
            EventBody::InputPromoted(InputPromoted { input })
            | EventBody::InputCancelled(InputCancelled { input, .. }) => {
                waiting.remove(&input);
            }
            _ => {}
        }
        Ok(())
    })
    .await?;
    Ok(Left {
        turn,
        inputs: waiting.len(),
    })
}

/// `tenure delete`: all of the sessions named are known before the first is deleted.
pub async fn delete(cx: &Context, global: &Global, args: &DeleteArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let mut rows = Vec::new();
    for text in &args.sessions {
        rows.push(store::find(store.as_ref(), text).await?);
    }
    for row in rows {
        store.delete(&row.id).await.map_err(|e| {
            let hint = format!("`tenure interrupt {}` stops it", row.id);
            CliError::from(e).hint(hint)
        })?;
        print(&format!("deleted {}\n", row.id))?;
    }
    Ok(())
}

/// `tenure gc`: gives space back.
pub async fn gc(cx: &Context, global: &Global, args: &JsonOnly) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let mut total = store.gc().await?;
    while total.more {
        let next = store.gc().await?;
        total.bytes_after = next.bytes_after;
        total.events_removed += next.events_removed;
        total.nodes_removed += next.nodes_removed;
        total.more = next.more;
    }
    if args.json {
        let mut line = json!(total);
        line["v"] = json!(1);
        line["kind"] = json!("gc");
        return print(&format!("{line}\n"));
    }
    print(&format!(
        "{} before, {} after; {} that nobody needed and {} removed\n",
        human::bytes(total.bytes_before),
        human::bytes(total.bytes_after),
        human::many(total.events_removed, "event"),
        human::many(total.nodes_removed, "dead node")
    ))
}

/// `tenure release`: ends a quarantine.
pub async fn release(cx: &Context, global: &Global, args: &ReleaseArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let row = store::find(store.as_ref(), &args.session).await?;
    if !matches!(row.state, SessionState::Quarantined { .. }) {
        // Without their names the state is still told.
        let nodes = store.nodes().await.unwrap_or_default();
        return Err(
            CliError::usage(format!("session {} is not quarantined", row.id)).hint(format!(
                "it is {}",
                super::sessions::state_sentence(&row, &nodes)
            )),
        );
    }
    store::client(&config, store)
        .await
        .release(&row.id, "tenure release")
        .await?;
    print(&format!(
        "{} is released; `tenure resume {}` goes on with it\n",
        row.id, row.id
    ))
}
