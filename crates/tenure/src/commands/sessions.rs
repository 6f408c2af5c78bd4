//! `tenure sessions`: all sessions with their state, age, cost and last line.

use super::claims::silent;
use super::show::each_event;
use super::{Context, open, print};
use crate::args::{Global, SessionsArgs};
use crate::config::origin::Origin;
use crate::environment::working_folder;
use crate::exit::CliResult;
use crate::render::escape::safe_line;
use crate::render::{human, table};
use crate::{store, waiting};
use futures::StreamExt;
use serde_json::json;
use std::collections::HashMap;
use tenure_core::event::body::Phase;
use tenure_core::usage::Usage;
use tenure_core::{EventBody, SessionError, SessionId};
use tenure_store::{NodeRow, OpenError, SessionQuery, SessionRow, SessionState, Store};

/// The end of an execution is looked for in so many last events.
const LAST_WORDS: u64 = 64;
/// Logs looked at at the same time.
const READS_AT_ONCE: usize = 8;

/// Lists them.
pub async fn run(cx: &Context, global: &Global, args: &SessionsArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = match store::try_existing(&config).await? {
        Ok(store) => store,
        // Where nobody named a place, none can be mistyped: nothing has been done here yet.
        Err(OpenError::Missing { path, .. }) if config.store.origin == Origin::Default => {
            return if args.json {
                Ok(())
            } else {
                print(&format!(
                    "no sessions: no store at {} yet\n",
                    safe_line(&path)
                ))
            };
        }
        Err(error) => return Err(store::open_error(&error, &config)),
    };
    let directory = if args.here {
        Some(working_folder(None)?.to_string_lossy().into_owned())
    } else {
        None
    };
    let query = SessionQuery {
        directory,
        text: args.search.clone(),
        limit: args.limit,
        offset: 0,
    };
    let rows = store.sessions(query).await?;
    let errors = last_errors(store.as_ref(), &rows).await;
    let asks = waiting::counts(store.as_ref(), &store.claims().await?, &rows).await;
    let asks = |row: &SessionRow| asks.get(&row.id).copied().unwrap_or(0);
    if args.json {
        let lines = rows
            .iter()
            .map(|row| format!("{}\n", line(row, errors.get(&row.id), asks(row))));
        return print(&lines.collect::<String>());
    }
    if rows.is_empty() {
        return print("no sessions\n");
    }
    let now = human::now_ms();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| cells(row, errors.get(&row.id), asks(row), now))
        .collect();
    let room = cx.caps.stdout.then_some(cx.caps.width);
    let colour = cx.caps.colour && cx.caps.stdout;
    print(&table::plain(
        &["ID", "STATE", "AGE", "COST", "TITLE · LAST LINE"],
        &cells,
        room,
        colour,
    ))
}

/// Why sessions that ended badly did: the last word of each of their logs, a bounded read a session.
pub async fn last_errors(
    store: &dyn Store,
    rows: &[SessionRow],
) -> HashMap<SessionId, SessionError> {
    let failed = rows.iter().filter(|row| {
        let rests = matches!(row.state, SessionState::Idle | SessionState::Parked { .. });
        rests && row.last_outcome.as_deref() == Some("failed")
    });
    let reads = futures::stream::iter(failed.map(|row| async move {
        let mut last = None;
        let from = row.head.checked_sub(LAST_WORDS);
        let read = each_event(store, row, from, |event| {
            if let EventBody::ExecutionFailed(end) = event.body {
                last = Some(end.error);
            }
            Ok(())
        });
        // It was deleted meanwhile, or cannot be read: the list shows it all the same.
        if let Err(error) = read.await {
            tracing::debug!(session = %row.id, %error, "why it failed is not known");
        }
        Some((row.id.clone(), last?))
    }));
    let found: Vec<_> = reads.buffer_unordered(READS_AT_ONCE).collect().await;
    found.into_iter().flatten().collect()
}

/// A session as one JSON object; `asks` is the number of its questions that wait.
pub fn line(row: &SessionRow, error: Option<&SessionError>, asks: usize) -> serde_json::Value {
    let mut value = serde_json::to_value(row).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("v".into(), json!(1));
        fields.insert("kind".into(), json!("session_row"));
        if let Some(error) = error {
            fields.insert("last_error".into(), json!(error));
        }
        if asks > 0 {
            fields.insert("asks".into(), json!(asks));
        }
    }
    value
}

fn cells(row: &SessionRow, error: Option<&SessionError>, asks: usize, now: i64) -> Vec<String> {
    // Why it does not go on says more than what was said before.
    let last = match (&row.state, error) {
        (SessionState::Unplaceable { reason } | SessionState::Quarantined { reason }, _) => {
            format!("✗ {}", safe_line(reason.trim()))
        }
        (_, Some(error)) => format!("✗ {}", safe_line(error.message.trim())),
        _ => safe_line(row.last_line.trim()),
    };
    let title = safe_line(row.title.as_deref().unwrap_or("").trim());
    let words = match (title.is_empty(), last.is_empty()) {
        (true, _) => last,
        (false, true) => title,
        (false, false) => format!("{title} · {last}"),
    };
    vec![
        row.id.to_string(),
        match asks {
            0 => state_words(row),
            n => format!("asks ({n})"),
        },
        human::age(row.updated_ms, now),
        cost_words(row),
        words,
    ]
}

/// What it cost; before anything was spent there is nothing to say.
fn cost_words(row: &SessionRow) -> String {
    let nothing = row.usage == Usage::default() && row.cost == 0 && !row.cost_incomplete;
    if nothing {
        "-".to_owned()
    } else {
        human::cost(row.cost, row.cost_incomplete)
    }
}

/// The state in a few words.
pub fn state_words(row: &SessionRow) -> String {
    match &row.state {
        SessionState::Owned { phase, .. } => match phase {
            Phase::Cancelling => "stopping".to_owned(),
            Phase::Safe | Phase::Active => "running".to_owned(),
        },
        SessionState::Claimable { .. } => "claimable".to_owned(),
        SessionState::Waiting { .. } => "waiting".to_owned(),
        SessionState::Parked { inputs } => format!("parked ({inputs})"),
        SessionState::Unplaceable { .. } => "unplaceable".to_owned(),
        SessionState::Quarantined { .. } => "quarantined".to_owned(),
        SessionState::Idle => match row.last_outcome.as_deref() {
            None => "new".to_owned(),
            Some("succeeded") => "idle".to_owned(),
            Some(other) => other.to_owned(),
        },
    }
}

/// The state with its reason, in a sentence; `nodes` are the store's, for their names.
pub fn state_sentence(row: &SessionRow, nodes: &[NodeRow]) -> String {
    let named = |owner| {
        nodes
            .iter()
            .find(|node| &node.incarnation == owner)
            .map(|node| format!("node `{}` (pid {})", safe_line(&node.name), node.pid))
    };
    match &row.state {
        SessionState::Owned {
            owner, node, epoch, ..
        } => {
            let node = named(owner).unwrap_or_else(|| format!("node `{}`", safe_line(node)));
            format!("{} on {node} at epoch {epoch}", state_words(row))
        }
        SessionState::Claimable { reason } => format!("free to be run: {}", safe_line(reason)),
        SessionState::Waiting { owner, lease_ms } => {
            let node = named(owner).unwrap_or_else(|| "a node".to_owned());
            format!("waiting: {}", silent(&node, *lease_ms))
        }
        SessionState::Parked { inputs } => {
            let inputs = match inputs {
                1 => "1 waiting input".to_owned(),
                n => format!("{n} waiting inputs"),
            };
            format!("parked with {inputs}; `tenure resume {}` goes on", row.id)
        }
        SessionState::Unplaceable { reason } => {
            format!(
                "unplaceable: {}; start such a node, or move the session with \
                 `tenure run --session {} --cwd DIR \"…\"`",
                safe_line(reason),
                row.id
            )
        }
        SessionState::Quarantined { reason } => {
            let release = format!("`tenure release {}`", row.id);
            match sentence(reason) {
                reason if reason.contains(&release) => format!("set aside: {reason}"),
                reason => format!("set aside: {reason}; {release} lets it go on"),
            }
        }
        SessionState::Idle => state_words(row),
    }
}

/// A reason as the middle of a sentence: without a full stop of its own.
fn sentence(reason: &str) -> String {
    safe_line(reason.trim_end().trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_brings_no_full_stop_into_a_sentence() {
        assert_eq!(sentence("It is so. Do that. "), "It is so. Do that");
        assert_eq!(sentence("plain"), "plain");
    }
}
