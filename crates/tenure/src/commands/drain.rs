//! `tenure drain`: makes a node, wherever it is, hand its sessions over and end.

use super::nodes::all;
use super::{Context, open, print};
use crate::args::{DrainArgs, Global};
use crate::exit::{CliError, CliResult};
use crate::render::escape::safe_line;
use crate::store;
use serde_json::json;
use tenure_store::{NodeError, NodeRow};

/// Marks it; the node itself notices within a second.
pub async fn run(cx: &Context, global: &Global, args: &DrainArgs) -> CliResult {
    let config = open(cx, global)?;
    let store = store::open_existing(&config).await?;
    let nodes = all(store.as_ref()).await?;
    let node = find(&nodes, &args.node)?;
    match store.drain(&node.incarnation).await {
        Ok(()) => {}
        Err(NodeError::NotLive(_)) => {
            return Err(CliError::failed("that node has ended meanwhile"));
        }
        Err(error) => return Err(CliError::failed(error.to_string())),
    }
    if args.json {
        let line = json!({
            "v": 1,
            "kind": "drain",
            "incarnation": node.incarnation,
            "name": node.name,
            "sessions": node.sessions,
        });
        return print(&format!("{line}\n"));
    }
    print(&format!(
        "{} (`{}`) takes no more sessions and hands over the {} it has; `tenure nodes` shows when it is gone\n",
        node.incarnation,
        safe_line(&node.name),
        node.sessions
    ))
}

/// The one node that `text` names.
fn find<'a>(nodes: &'a [NodeRow], text: &str) -> CliResult<&'a NodeRow> {
    let named: Vec<&NodeRow> = nodes
        .iter()
        .filter(|node| {
            node.name == text || (!text.is_empty() && node.incarnation.as_str().starts_with(text))
        })
        .collect();
    match named.as_slice() {
        [one] => Ok(one),
        [] => Err(
            CliError::usage(format!("there is no node `{}`", safe_line(text)))
                .near(text, nodes.iter().map(|node| node.name.as_str()))
                .hint("`tenure nodes` lists them"),
        ),
        several => Err(CliError::usage(format!(
            "`{}` names {} nodes",
            safe_line(text),
            several.len()
        ))
        .hint("give the beginning of an incarnation; `tenure nodes` lists them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::Incarnation;

    fn node(bits: u128, name: &str) -> NodeRow {
        NodeRow {
            incarnation: Incarnation::from_bits(bits),
            name: name.to_owned(),
            address: None,
            labels: Vec::new(),
            roots: Vec::new(),
            draining: false,
            pid: 0,
            lease_ms: 1,
            sessions: 0,
        }
    }

    #[test]
    fn a_node_is_named_by_its_name_or_the_beginning_of_its_incarnation() {
        let nodes = [node(1, "a"), node(2, "b"), node(3, "b")];
        assert_eq!(find(&nodes, "a").unwrap(), &nodes[0]);
        assert_eq!(
            find(&nodes, nodes[2].incarnation.as_str()).unwrap(),
            &nodes[2]
        );
        assert!(find(&nodes, "b").unwrap_err().message.contains("2 nodes"));
        assert!(find(&nodes, "c").is_err() && find(&nodes, "").is_err());
    }
}
