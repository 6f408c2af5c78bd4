//! `tenure claims`: who holds what since when, and every runnable session that nobody holds, with the reason (P7).

use super::nodes::all;
use super::{Context, open, print};
use crate::args::{Global, JsonOnly};
use crate::exit::CliResult;
use crate::render::escape::safe_line;
use crate::render::{human, table};
use crate::{store, waiting};
use serde_json::{Value, json};
use std::collections::HashMap;
use tenure_core::claim::ISOLATE_FROM;
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
    let (held, unheld) = split(store.as_ref()).await?;
    let asks = waiting::counts(store.as_ref(), &claims, &held).await;
    let asks = |claim: &ClaimRow| asks.get(&claim.session).copied().unwrap_or(0);
    if args.json {
        let held = claims
            .iter()
            .map(|claim| held_line(claim, &nodes, asks(claim)));
        let unheld = unheld.iter().map(unheld_line);
        let lines: String = held.chain(unheld).map(|line| format!("{line}\n")).collect();
        return print(&lines);
    }
    if claims.is_empty() && unheld.is_empty() {
        return print("nothing is held, and nothing waits to be run\n");
    }
    let now = human::now_ms();
    let names = Names(&nodes);
    // Whose owner is silent has a claim and waits: one line says both.
    let waiting: HashMap<&SessionId, &ClaimRow> = claims
        .iter()
        .filter(|claim| unheld.iter().any(|row| row.id == claim.session))
        .map(|claim| (&claim.session, claim))
        .collect();
    let mut cells: Vec<Vec<String>> = claims
        .iter()
        .filter(|claim| !waiting.contains_key(&claim.session))
        .map(|claim| held_cells(claim, &names, asks(claim)))
        .collect();
    cells.extend(
        unheld
            .iter()
            .map(|row| unheld_cells(row, waiting.get(&row.id).copied(), &names, now)),
    );
    let room = cx.caps.stdout.then_some(cx.caps.width);
    let colour = cx.caps.colour && cx.caps.stdout;
    print(&table::plain(
        &["SESSION", "STATE", "EPOCH", "SINCE", "HOLDER", "WHY"],
        &cells,
        room,
        colour,
    ))
}

/// Every session that would run, or is kept from it, and has no living owner.
pub(super) async fn unheld(store: &dyn Store) -> CliResult<Vec<SessionRow>> {
    Ok(split(store).await?.1)
}

/// The sessions that are owned; and every one that would run, or is kept from it, and has no living owner.
async fn split(store: &dyn Store) -> CliResult<(Vec<SessionRow>, Vec<SessionRow>)> {
    let mut owned = Vec::new();
    let mut unheld = Vec::new();
    let mut offset = 0;
    loop {
        let query = SessionQuery {
            limit: PAGE,
            offset,
            ..SessionQuery::default()
        };
        let page = store.sessions(query).await?;
        let count = page.len();
        for row in page {
            match row.state {
                SessionState::Owned { .. } => owned.push(row),
                SessionState::Idle | SessionState::Parked { .. } => {}
                _ => unheld.push(row),
            }
        }
        if count < PAGE {
            return Ok((owned, unheld));
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

fn held_line(claim: &ClaimRow, nodes: &[NodeRow], asks: usize) -> Value {
    let mut value = serde_json::to_value(claim).unwrap_or_default();
    let node = nodes.iter().find(|node| node.incarnation == claim.owner);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("v".into(), json!(1));
        fields.insert("kind".into(), json!("claim"));
        fields.insert("node".into(), json!(node.map(|node| &node.name)));
        if asks > 0 {
            fields.insert("asks".into(), json!(asks));
        }
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

/// What people call the nodes.
struct Names<'a>(&'a [NodeRow]);

impl Names<'_> {
    fn of(&self, node: &Incarnation) -> String {
        match self.0.iter().find(|row| &row.incarnation == node) {
            Some(row) => format!("{node} ({})", safe_line(&row.name)),
            None => format!("{node} (gone)"),
        }
    }
}

fn held_cells(claim: &ClaimRow, names: &Names<'_>, asks: usize) -> Vec<String> {
    let state = match asks {
        0 => format!("owned, {}", phase(claim.phase)),
        n => format!("owned, asks ({n})"),
    };
    let why = match (&claim.recovery_error, asks) {
        (Some(error), _) => safe_line(error),
        (None, 0) => crashes(claim.attempts).unwrap_or_default(),
        (None, _) => format!("`tenure answer {}`", claim.session),
    };
    row(
        &claim.session,
        &state,
        claim.epoch,
        // By the store's clock: this machine's may be off.
        human::since(0, i64::try_from(claim.held_ms).unwrap_or(i64::MAX)),
        names.of(&claim.owner),
        why,
    )
}

/// The crashes that are charged, in words.
fn crashes(attempts: u32) -> Option<String> {
    match attempts {
        0 => None,
        1 => Some("1 crash charged".to_owned()),
        n => Some(format!("{n} crashes charged")),
    }
}

fn unheld_cells(
    session: &SessionRow,
    claim: Option<&ClaimRow>,
    names: &Names<'_>,
    now: i64,
) -> Vec<String> {
    let (state, mut why) = why(&session.state);
    let free = matches!(session.state, SessionState::Claimable { .. });
    if let Some(crashes) = crashes(session.attempts).filter(|_| free) {
        why = format!("{why}; {crashes}");
        // The takeover's own charge comes on top.
        if session.attempts + 1 >= ISOLATE_FROM {
            why.push_str(": it runs in a process of its own, each try a while after the last");
        }
    }
    row(
        &session.id,
        state,
        session.epoch,
        human::since(session.updated_ms, now),
        claim.map_or_else(|| "nobody".to_owned(), |claim| names.of(&claim.owner)),
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

/// Of an owner that says nothing, and when that is decided: somebody has to be there who decides it.
pub fn silent(owner: &str, lease_ms: u64) -> String {
    match lease_ms {
        0 => format!(
            "{owner} is silent and its lease is over: the next node that looks takes the session over"
        ),
        ms => format!(
            "{owner} is silent; decided when its lease is over, in {:.1} s",
            ms as f64 / 1000.0
        ),
    }
}

/// The state's word, and the reason.
fn why(state: &SessionState) -> (&'static str, String) {
    match state {
        SessionState::Claimable { reason } => ("claimable", reason.clone()),
        SessionState::Waiting { owner, lease_ms } => ("waiting", silent(owner.as_str(), *lease_ms)),
        SessionState::Unplaceable { reason } => ("unplaceable", reason.clone()),
        SessionState::Quarantined { reason } => ("quarantined", reason.clone()),
        SessionState::Owned { .. } => ("owned", String::new()),
        SessionState::Parked { .. } => ("parked", String::new()),
        SessionState::Idle => ("idle", String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::usage::Usage;

    #[test]
    fn who_waits_for_its_next_try_is_told_of_the_crashes() {
        let told = |attempts: u32, state: Value| {
            let mut row = json!({
                "id": SessionId::from_bits(1), "title": null, "head": 3, "epoch": 2, "cancelling": false,
                "location": {"directory": "/x", "requires": []}, "model": {"provider": "p", "model": "m"},
                "execution": null, "last_outcome": null, "pending": 0, "usage": Usage::default(), "cost": 0,
                "cost_incomplete": false, "last_line": "", "generation": 0, "attempts": attempts,
                "forked_from": null, "created_ms": 0, "updated_ms": 0,
            });
            for (key, value) in state.as_object().unwrap() {
                row[key] = value.clone();
            }
            let row: SessionRow = serde_json::from_value(row).unwrap();
            unheld_cells(&row, None, &Names(&[]), 8_000)
        };
        let free = json!({"state": "claimable", "reason": "an execution is open"});
        let first = told(0, free.clone());
        assert_eq!(
            first[1..],
            ["claimable", "2", "8s", "nobody", "an execution is open"]
        );
        let alone = told(1, free).pop().unwrap();
        assert_eq!(
            alone,
            "an execution is open; 1 crash charged: it runs in a process of its own, each try a while after the last"
        );
        let aside = told(3, json!({"state": "quarantined", "reason": "so"}))
            .pop()
            .unwrap();
        assert_eq!(aside, "so");
    }
}
