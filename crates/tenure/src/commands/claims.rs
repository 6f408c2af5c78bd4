//! `tenure claims`: who holds what since when, and every runnable session that nobody holds, with the reason (P7).

use super::nodes::all;
use super::{Context, open, print};
use crate::args::{Global, JsonOnly};
use crate::exit::CliResult;
use crate::render::escape::safe_line;
use crate::render::{human, table};
use crate::store;
use serde_json::{Value, json};
use std::collections::HashMap;
use tenure_core::event::body::Phase;
use tenure_core::{Incarnation, SessionId};
use tenure_store::{ClaimRow, NodeRow, SessionQuery, SessionRow, SessionState, Store};

/// Sessions read at a time.
const PAGE: usize = 1_000;

/// Lists them.
pub async fn run(cx: &Context, global: &Global, args: &JsonOnly) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let claims = store.claims().await?;
    let nodes = all(store.as_ref()).await?;
    let unheld = unheld(store.as_ref()).await?;
    if args.json {
        let held = claims.iter().map(|claim| held_line(claim, &nodes));
        let unheld = unheld.iter().map(unheld_line);
        let lines: String = held.chain(unheld).map(|line| format!("{line}\n")).collect();
        return print(&lines);
    }
    if claims.is_empty() && unheld.is_empty() {
        return print("nothing is held, and nothing waits to be run\n");
    }
    let now = human::now_ms();
    let names: HashMap<&Incarnation, &str> = nodes
        .iter()
        .map(|node| (&node.incarnation, node.name.as_str()))
        .collect();
    let mut cells: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| held_cells(claim, &names))
        .collect();
    cells.extend(unheld.iter().map(|row| unheld_cells(row, now)));
    let room = cx.caps.stdout.then_some(cx.caps.width);
    let colour = cx.caps.colour && cx.caps.stdout;
    print(&table::plain(
        &["SESSION", "STATE", "EPOCH", "SINCE", "HOLDER", "WHY"],
        &cells,
        room,
        colour,
    ))
}

/// Every session that would run, or is kept from it, and has no owner.
async fn unheld(store: &dyn Store) -> CliResult<Vec<SessionRow>> {
    let mut found = Vec::new();
    let mut offset = 0;
    loop {
        let query = SessionQuery {
            limit: PAGE,
            offset,
            ..SessionQuery::default()
        };
        let page = store.sessions(query).await?;
        let count = page.len();
        found.extend(page.into_iter().filter(|row| {
            !matches!(
                row.state,
                SessionState::Owned { .. } | SessionState::Idle | SessionState::Parked { .. }
            )
        }));
        if count < PAGE {
            return Ok(found);
        }
        offset += count;
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Safe => "safe",
        Phase::Active => "active",
        Phase::Cancelling => "cancelling",
    }
}

fn held_line(claim: &ClaimRow, nodes: &[NodeRow]) -> Value {
    let mut value = serde_json::to_value(claim).unwrap_or_default();
    let node = nodes.iter().find(|node| node.incarnation == claim.owner);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("v".into(), json!(1));
        fields.insert("kind".into(), json!("claim"));
        fields.insert("node".into(), json!(node.map(|node| &node.name)));
    }
    value
}

fn unheld_line(row: &SessionRow) -> Value {
    let (state, why) = why(&row.state);
    json!({
        "v": 1,
        "kind": "unheld",
        "session": row.id,
        "state": state,
        "reason": why,
        "epoch": row.epoch,
        "attempts": row.attempts,
        "location": row.location,
        "updated_ms": row.updated_ms,
    })
}

fn held_cells(claim: &ClaimRow, names: &HashMap<&Incarnation, &str>) -> Vec<String> {
    let holder = match names.get(&claim.owner) {
        Some(name) => format!("{} ({})", claim.owner, safe_line(name)),
        None => format!("{} (gone)", claim.owner),
    };
    let why = match (&claim.recovery_error, claim.attempts) {
        (Some(error), _) => safe_line(error),
        (None, 0) => String::new(),
        (None, n) => {
            human::many(u64::from(n), "crash charged").replace("crash chargeds", "crashes charged")
        }
    };
    row(
        &claim.session,
        phase(claim.phase),
        claim.epoch,
        // By the store's clock: this machine's may be off.
        human::age(0, i64::try_from(claim.held_ms).unwrap_or(i64::MAX)),
        holder,
        why,
    )
}

fn unheld_cells(session: &SessionRow, now: i64) -> Vec<String> {
    let (state, why) = why(&session.state);
    row(
        &session.id,
        state,
        session.epoch,
        human::age(session.updated_ms, now),
        "nobody".to_owned(),
        safe_line(&why),
    )
}

fn row(
    session: &SessionId,
    state: &str,
    epoch: u64,
    since: String,
    holder: String,
    why: String,
) -> Vec<String> {
    vec![
        session.to_string(),
        state.to_owned(),
        epoch.to_string(),
        since,
        holder,
        why,
    ]
}

/// The state's word, and the reason.
fn why(state: &SessionState) -> (&'static str, String) {
    match state {
        SessionState::Claimable { reason } => ("claimable", reason.clone()),
        SessionState::Waiting { owner, lease_ms } => (
            "waiting",
            format!("{owner} is silent; decided in at most {lease_ms} ms"),
        ),
        SessionState::Unplaceable { reason } => ("unplaceable", reason.clone()),
        SessionState::Quarantined { reason } => ("quarantined", reason.clone()),
        SessionState::Owned { .. } => ("owned", String::new()),
        SessionState::Parked { .. } => ("parked", String::new()),
        SessionState::Idle => ("idle", String::new()),
    }
}
