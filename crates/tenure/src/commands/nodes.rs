//! `tenure nodes`: every node of the store, what it serves, and how long its lease still runs.

use super::{Context, open, print};
use crate::args::{Global, JsonOnly};
use crate::exit::{CliError, CliResult};
use crate::render::escape::safe_line;
use crate::render::table;
use crate::store;
use serde_json::json;
use tenure_core::placement::MODELS;
use tenure_store::{NodeRow, Store};

/// Lists them.
pub async fn run(cx: &Context, global: &Global, args: &JsonOnly) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let nodes = all(store.as_ref()).await?;
    if args.json {
        let lines: String = nodes
            .iter()
            .map(|node| format!("{}\n", line(node)))
            .collect();
        return print(&lines);
    }
    if nodes.is_empty() {
        return print("no nodes: nobody runs this store's sessions\n");
    }
    let cells: Vec<Vec<String>> = nodes.iter().map(cells).collect();
    let room = cx.caps.stdout.then_some(cx.caps.width);
    let colour = cx.caps.colour && cx.caps.stdout;
    print(&table::plain(
        &[
            "INCARNATION",
            "NAME",
            "STATE",
            "LEASE",
            "SESSIONS",
            "ADDRESS",
            "LABELS",
            "ROOTS",
        ],
        &cells,
        room,
        colour,
    ))
}

/// Every node that is not dead.
pub async fn all(store: &dyn Store) -> CliResult<Vec<NodeRow>> {
    store
        .nodes()
        .await
        .map_err(|e| CliError::failed(e.to_string()))
}

fn line(node: &NodeRow) -> serde_json::Value {
    let mut value = serde_json::to_value(node).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.insert("v".into(), json!(1));
        fields.insert("kind".into(), json!("node_row"));
        fields.insert("state".into(), json!(state(node)));
    }
    value
}

fn state(node: &NodeRow) -> &'static str {
    match (node.lease_ms < 0, node.draining) {
        // Nobody has judged it yet; it may only be slow.
        (true, _) => "silent",
        (false, true) => "draining",
        (false, false) => "active",
    }
}

/// What is left of a lease, or how long ago it ended.
fn lease(left_ms: i64) -> String {
    let seconds = left_ms as f64 / 1000.0;
    if left_ms < 0 {
        format!("over for {:.1} s", -seconds)
    } else {
        format!("{seconds:.1} s")
    }
}

/// A loopback address brings the machine it means along: others know it by that, people by a word.
pub fn address(told: &str) -> String {
    match told.split_once("#machine=") {
        Some((url, _)) => format!("{} (its own machine)", safe_line(url)),
        None => safe_line(told),
    }
}

/// Labels for people: the mark that the list of models is whole says something only where there is none.
pub fn labels(all: &[String]) -> Vec<String> {
    let mark = format!("{MODELS}=");
    let named = |label: &String| label.starts_with(&mark) && *label != mark;
    let any = all.iter().any(named);
    let shown = all.iter().filter(|label| !any || **label != mark);
    shown
        .map(|label| match *label == mark {
            true => format!("{mark}(none)"),
            false => label.clone(),
        })
        .collect()
}

fn cells(node: &NodeRow) -> Vec<String> {
    let listed = |list: &[String], none: &str| {
        if list.is_empty() {
            none.to_owned()
        } else {
            safe_line(&list.join(" "))
        }
    };
    vec![
        node.incarnation.to_string(),
        safe_line(&node.name),
        state(node).to_owned(),
        lease(node.lease_ms),
        node.sessions.to_string(),
        node.address.as_deref().map_or("-".to_owned(), address),
        listed(&labels(&node.labels), "-"),
        listed(&node.roots, "any"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Incarnation;

    #[test]
    fn a_node_is_a_line_with_its_state() {
        let mut node = NodeRow {
            incarnation: Incarnation::from_bits(1),
            name: "a\u{1b}".into(),
            address: None,
            labels: vec!["host=m1".into()],
            roots: vec![],
            draining: false,
            pid: 1,
            lease_ms: 5_250,
            sessions: 2,
        };
        let row = cells(&node);
        assert_eq!(row[2..], ["active", "5.2 s", "2", "-", "host=m1", "any"]);
        assert!(!row[1].contains('\u{1b}'));
        for (all, shown) in [
            (vec!["a=b", "models="], vec!["a=b", "models=(none)"]),
            (vec!["models=", "models=x"], vec!["models=x"]),
        ] {
            let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
            assert_eq!(labels(&all), shown);
        }
        assert_eq!(
            address("http://127.0.0.1:7420#machine=m1"),
            "http://127.0.0.1:7420 (its own machine)"
        );
        assert_eq!(address("http://10.0.0.1:7420"), "http://10.0.0.1:7420");
        node.draining = true;
        let told = line(&node);
        assert_eq!(
            (&told["kind"], &told["state"]),
            (&json!("node_row"), &json!("draining"))
        );
        node.lease_ms = -1;
        assert_eq!(cells(&node)[2..4], ["silent", "over for 0.0 s"]);
    }
}
