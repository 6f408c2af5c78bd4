//! Which nodes may run a session, by where its folder is: any that serves a shared folder, else this machine's.

use super::{Asked, RunArgs};
use crate::commands::{nodes, notice};
use crate::config::node::label;
use crate::exit::CliResult;
use crate::machine;
use tenure_core::event::body::Location;
use tenure_core::placement::covers;
use tenure_store::{NodeRow, SessionRow, Store};

/// What the session requires of a node, where its store has nodes on several machines.
pub(super) async fn requires(
    asked: &Asked,
    args: &RunArgs,
    store: &dyn Store,
) -> CliResult<Vec<String>> {
    if asked.config.store.value.path().is_some() {
        if !args.requires.is_empty() {
            notice(
                "--requires is for nodes that share a PostgreSQL store: beside a file it means nothing",
            );
        }
        return Ok(Vec::new());
    }
    match args.requires.as_slice() {
        [] => {}
        [none] if none == "none" => return Ok(Vec::new()),
        labels => {
            labels.iter().try_for_each(|text| label(text))?;
            return Ok(labels.to_vec());
        }
    }
    let directory = asked.cwd.to_string_lossy();
    if asked.config.node.shares(&directory) {
        return Ok(Vec::new());
    }
    let host = asked.config.node.host();
    let nodes = nodes::all(store).await?;
    if announced(&nodes, &host, &directory) {
        return Ok(Vec::new());
    }
    if is_elsewhere(&nodes, &host) {
        notice(&format!(
            "only this machine's nodes may run this session (`{host}`): nothing declares {directory} to be a folder \
             that the other machines have, too; `[node] roots` in the configuration, or `tenure node --root` on this \
             machine, does, and `--requires none` asks for no machine"
        ));
    }
    Ok(vec![host])
}

/// Where the flags move a session that exists; none when they name no other place, or ask nothing else of its nodes.
pub(super) async fn moved(
    asked: &Asked,
    args: &RunArgs,
    store: &dyn Store,
    row: &SessionRow,
) -> CliResult<Option<Location>> {
    let place = row.destination();
    let directory = match &args.cwd {
        Some(_) => asked.cwd.to_string_lossy().into_owned(),
        None => place.directory.clone(),
    };
    let asks = !args.requires.is_empty();
    if !asks && directory == place.directory {
        return Ok(None);
    }
    let requires = requires(asked, args, store).await?;
    let to = Location {
        directory,
        requires,
    };
    if to == *place {
        if asked.config.store.value.path().is_some() {
            return Ok(None);
        }
        notice(
            "--requires changes nothing: that is what the session requires of its nodes already",
        );
        return Ok(None);
    }
    Ok(Some(to))
}

/// Does a node of this machine declare the folder to be shared? What one node of a machine was told holds for all
/// who work there.
fn announced(nodes: &[NodeRow], host: &String, directory: &str) -> bool {
    nodes
        .iter()
        .filter(|node| node.labels.contains(host))
        .flat_map(|node| &node.roots)
        .any(|root| covers(root, directory))
}

/// Is there a node of another machine?
fn is_elsewhere(nodes: &[NodeRow], host: &str) -> bool {
    let machine = format!("{}=", machine::HOST);
    nodes
        .iter()
        .flat_map(|node| &node.labels)
        .any(|label| label.starts_with(&machine) && label != host)
}
