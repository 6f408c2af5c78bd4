//! `tenure node`: runs the sessions of a store, in the background of one machine or as one node of many.

use super::{Context, notice, open};
use crate::args::{Global, NodeArgs};
use crate::config::node::{absolute, own_label};
use crate::config::{Config, StoreUrl};
use crate::exit::{CliError, CliResult};
use crate::follow::{Signals, too_old};
use crate::node::{self, Door, Node, Role};
use crate::render::escape::safe_line;
use crate::{providers, store};
use std::path::Path;
use std::time::Duration;
use tenure_core::SessionId;
use tenure_engine::{Approvals, Engine, Scope};
use tenure_store::{ReadError, SessionState, Store};

/// How often a node looks whether it is still needed.
const LOOK: Duration = Duration::from_millis(500);
/// How often it looks whether somebody drained it from afar.
const DRAINED: Duration = Duration::from_secs(1);
/// Answers to other nodes that are under way may take so long at the end.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// Runs until told to stop or, with `--until-idle`, until nothing is left to do.
pub async fn run(cx: &Context, global: &Global, args: NodeArgs) -> CliResult {
    let config = open(cx, global)?;
    let mut waiting_for = Vec::new();
    for text in &args.waiting_for {
        waiting_for.push(SessionId::parse(text).map_err(|e| CliError::usage(e.to_string()))?);
    }
    let role = role(&config, &args)?;
    if role.door.is_some() {
        models_asked(&config);
    }
    if config.store.value.has_password() && global.store.is_some() {
        notice(
            "the password stands on the command line, where every user of this machine can read it; \
             TENURE_STORE, PGPASSWORD and store_password_file are private",
        );
    }
    let mut signals = Signals::new()?;
    let clustered = matches!(config.store.value, StoreUrl::Postgres(_));
    let (store, node) = loop {
        let store = tokio::select! {
            store = store::wait_for(&config) => store?,
            _ = signals.next() => return Ok(()),
        };
        match node::start(&config, store.clone(), &role).await {
            Ok(node) => break (store, node),
            // It went away in between.
            Err(error) if clustered && is_away(store.as_ref()).await => {
                notice(&format!("{}; trying again", safe_line(&error.message)));
                tokio::time::sleep(LOOK).await;
            }
            Err(error) => return Err(error),
        }
    };
    told(&node, &role);
    for session in &waiting_for {
        node.run(session);
    }
    let mut ended = Ok(());
    tokio::select! {
        result = unneeded(&node, store.as_ref(), &waiting_for, (args.alone, clustered)), if args.until_idle => {
            ended = result.map_err(CliError::from);
        }
        why = node.outdated() => {
            return Err(too_old(why));
        }
        () = drained(&node, store.as_ref()), if role.door.is_some() => notice("drained from afar: handing over"),
        _ = signals.next() => {
            if role.door.is_some() {
                notice("draining; a second signal does not wait for safe boundaries");
            }
        }
    }
    leave(&node, &mut signals).await?;
    ended
}

/// Does the store not answer now?
async fn is_away(store: &dyn Store) -> bool {
    matches!(store.health().await, Err(error) if error.is_unreadable())
}

/// Hands over at safe boundaries; a second signal hands over at once.
async fn leave(node: &Node, signals: &mut Signals) -> CliResult {
    tokio::select! {
        left = node.shutdown() => left?,
        _ = signals.next() => node.shutdown_now().await?,
    }
    if let Some(server) = &node.server {
        server.shutdown(LAST_ANSWERS).await;
    }
    Ok(())
}

fn role(config: &Config, args: &NodeArgs) -> CliResult<Role> {
    args.labels.iter().try_for_each(|text| own_label(text))?;
    let roots: Vec<String> = if args.roots.is_empty() {
        config.node.roots.value.clone()
    } else {
        args.roots
            .iter()
            .map(|root| root.to_string_lossy().into_owned())
            .collect()
    };
    roots.iter().try_for_each(|root| absolute(root))?;
    let clustered = matches!(config.store.value, StoreUrl::Postgres(_));
    let asked = args.listen.is_some()
        || args.advertise.is_some()
        || !args.labels.is_empty()
        || !args.roots.is_empty();
    if !clustered && asked {
        return Err(CliError::usage(
            "--listen, --advertise, --label and --root are for nodes of a PostgreSQL store; \
             processes on one SQLite file are on one machine",
        )
        .hint("name the store with --store postgres://USER@HOST/DATABASE"));
    }
    for root in roots.iter().filter(|root| !Path::new(root).is_dir()) {
        notice(&format!(
            "there is no folder {} here: sessions below it would fail on this node until there is",
            safe_line(root)
        ));
    }
    let name = args.name.clone();
    let configured = config.node.name.as_ref().map(|name| name.value.clone());
    let scope = if args.alone { Scope::Asked } else { Scope::Any };
    // One that runs a single session is not for others, and has no address to keep free.
    let door = (clustered && !args.alone).then(|| Door {
        listen: args.listen.unwrap_or_else(|| {
            let mut listen = config.node.listen.value;
            if args.until_idle {
                // One that a command left behind: the machine's own node has the port.
                listen.set_port(0);
            }
            listen
        }),
        advertise: args.advertise.clone().or_else(|| {
            if args.until_idle {
                return node::host_only(config);
            }
            let advertise = config.node.advertise.as_ref();
            advertise.map(|advertise| advertise.value.clone())
        }),
        serves: node::asking(config.node.serves(&args.labels, &roots), config, &scope),
    });
    Ok(Role {
        name: name.or(configured).unwrap_or_else(|| "node".to_owned()),
        scope,
        approvals: if clustered {
            Approvals::Wait
        } else {
            Approvals::Headless
        },
        alone: args.alone,
        door,
    })
}

/// A session's model is asked by whoever runs it, with that one's own settings and keys: where something is missing
/// here, sessions are left to nodes that have it.
fn models_asked(config: &Config) {
    if config.providers.is_empty() {
        notice("no provider of models is configured: this node runs no session");
    }
    for (name, provider) in &config.providers {
        if let Err(error) = providers::can_ask(name, provider) {
            notice(&format!(
                "{}; sessions of its models are left to other nodes",
                safe_line(&error.message)
            ));
        }
    }
}

/// Says what this node is, for whoever reads its log.
fn told(node: &Node, role: &Role) {
    let Some(door) = &role.door else { return };
    let serves = &door.serves;
    let roots = if serves.roots.is_empty() {
        "any folder".to_owned()
    } else {
        serves.roots.join(", ")
    };
    let reached = match &node.server {
        Some(server) => {
            let local = server.local_addr();
            if node::is_public(local.ip()) {
                notice(&format!(
                    "{local} may be reached from anywhere: calls between nodes are signed, not encrypted, and belong \
                     on a private network"
                ));
            }
            let told = super::nodes::address(&server.advertised().to_string());
            format!("listening on {local}, told as {told}")
        }
        None => "not reached by other nodes".to_owned(),
    };
    notice(&format!(
        "node {} `{}`: {reached}; serves {roots}; labels {}",
        node.incarnation(),
        role.name,
        super::nodes::labels(&serves.labels).join(", ")
    ));
}

/// Waits until somebody marked this node as draining.
async fn drained(engine: &Engine, store: &dyn Store) {
    loop {
        tokio::time::sleep(DRAINED).await;
        // A store that cannot be read now is read later.
        let nodes = store.nodes().await.unwrap_or_default();
        let own = engine.incarnation();
        if nodes
            .iter()
            .any(|row| row.incarnation == own && row.draining)
        {
            return;
        }
    }
}

/// Waits until nothing runs here, nothing could, and nobody holds what was handed over. A store that does not answer is
/// asked again: what this process was left with would be nobody's.
async fn unneeded(
    engine: &Engine,
    store: &dyn Store,
    waiting_for: &[SessionId],
    (alone, clustered): (bool, bool),
) -> Result<(), ReadError> {
    loop {
        tokio::time::sleep(LOOK).await;
        if engine.running() > 0 {
            engine.idle().await;
            continue;
        }
        match is_needed(store, waiting_for, (alone, clustered)).await {
            Ok(false) if engine.running() == 0 => return Ok(()),
            Ok(_) => {}
            Err(error) if error.is_unreadable() => {
                tracing::debug!(%error, "what is left to do cannot be read");
            }
            Err(error) => return Err(error),
        }
    }
}

/// Is there something to do for whoever comes, or is one of these sessions in no good hands? What a node of a cluster
/// holds is in good ones: should that one die, the others take it.
async fn is_needed(
    store: &dyn Store,
    waiting_for: &[SessionId],
    (alone, clustered): (bool, bool),
) -> Result<bool, ReadError> {
    let mut needed = !alone && !store.claimable(1).await?.is_empty();
    for session in waiting_for {
        let Some(row) = store.session(session).await? else {
            continue;
        };
        needed |= match &row.state {
            SessionState::Owned { owner, .. } if clustered => {
                // Nodes that cannot be read now are read later.
                let nodes = store.nodes().await.unwrap_or_default();
                let owner = nodes.iter().find(|node| &node.incarnation == owner);
                !owner.is_some_and(tenure_engine::takes)
            }
            SessionState::Owned { .. }
            | SessionState::Waiting { .. }
            | SessionState::Claimable { .. } => true,
            _ => false,
        };
    }
    Ok(needed)
}
