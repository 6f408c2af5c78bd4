//! This process as a node of the store: the engine with the configuration in force, and, where the store has nodes
//! on several machines, the port that answers them.

use crate::config::{Config, StoreUrl};
use crate::exit::{CliError, CliResult};
use crate::{providers, store};
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::id::SessionId;
use tenure_core::placement::{Serves, Unserved};
use tenure_engine::{Approvals, Engine, EngineConfig, Isolate, Scope};
use tenure_provider::Secret;
use tenure_server::{Advertise, HttpPeers, Limits, NodeServer};
use tenure_store::{SessionRow, SessionState, Store};
use tenure_tools::ToolSet;
use tenure_tools::guardian::{GuardianCommand, raise_open_files};

/// How this process takes part.
#[derive(Debug, Clone)]
pub struct Role {
    /// A label for people.
    pub name: String,
    /// Which sessions it takes.
    pub scope: Scope,
    /// How questions are answered.
    pub approvals: Approvals,
    /// This process was made to run one session alone (R8).
    pub alone: bool,
    /// How others reach it, when it is more than a command that runs its own session.
    pub door: Option<Door>,
}

impl Role {
    /// A command's own node.
    pub fn command(name: &str, scope: Scope, approvals: Approvals) -> Self {
        Self {
            name: name.to_owned(),
            scope,
            approvals,
            alone: false,
            door: None,
        }
    }
}

/// What `tenure node` is told of itself.
#[derive(Debug, Clone)]
pub struct Door {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What it tells others.
    pub advertise: Option<String>,
    /// What it serves.
    pub serves: Serves,
}

/// The engine, and the port that answers for it as long as it is kept.
pub struct Node {
    engine: Engine,
    /// None where nodes reach each other in another way, or not at all.
    pub server: Option<NodeServer>,
}

impl Deref for Node {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

/// Starts the engine.
///
/// # Errors
/// Its settings do not fit, the store cannot be written, or the port that was asked for cannot be had.
pub async fn start(config: &Config, store: Arc<dyn Store>, role: &Role) -> CliResult<Node> {
    let mut settings = settings(config, role)?;
    settings.serves = match &role.door {
        Some(door) => door.serves.clone(),
        None => serves(config, &role.scope),
    };
    let server = match &config.store.value {
        StoreUrl::Sqlite(path) => {
            // Sockets stand where the store keeps its nodes' locks.
            let mut folder = path.as_os_str().to_owned();
            folder.push(".nodes");
            settings.socket_dir = Some(PathBuf::from(folder));
            None
        }
        StoreUrl::Postgres(_) => {
            say_what_is_weak(store.as_ref()).await;
            let (peers, server) = reachable(config, store.as_ref(), role).await?;
            settings.peers = peers.map(|peers| Arc::new(peers) as _);
            server
        }
    };
    let models = providers::models(config);
    let engine = Engine::start(store, models, ToolSet::builtin(), settings).await?;
    Ok(Node { engine, server })
}

/// Adds whose models this process can ask. A command asks those of the session it was told to run, whose key it has
/// looked at; who takes whatever comes looks at everything.
pub fn asking(serves: Serves, config: &Config, scope: &Scope) -> Serves {
    let names = config.providers.iter().filter(|(name, provider)| {
        let able = match scope {
            Scope::Any => providers::can_ask(name, provider),
            Scope::Asked => providers::settings(name, provider).map(drop),
        };
        able.is_ok()
    });
    serves.asking(names.map(|(name, _)| name.as_str()))
}

/// Whoever writes to a store is told once which of its promises do not hold.
async fn say_what_is_weak(store: &dyn Store) {
    match store.weak().await {
        Ok(weak) => weak.iter().for_each(|weak| {
            crate::commands::notice(&format!("{}; {}", weak.what, weak.next));
        }),
        Err(error) => tracing::debug!(%error, "what is weak is not known"),
    }
}

fn settings(config: &Config, role: &Role) -> CliResult<EngineConfig> {
    let guardian = GuardianCommand::current_exe()
        .map_err(|e| CliError::failed(format!("the program's own file cannot be found: {e}")))?;
    let outputs = config.folders.data.join("outputs");
    let mut settings = EngineConfig::new(role.name.clone(), outputs, guardian);
    settings.scope = role.scope.clone();
    settings.approvals = role.approvals;
    settings.lease = config.lease_duration.value;
    settings.renew_every = config.lease_renew.value;
    settings.margin = config.lease_margin.value;
    settings.tool_concurrency = config.max_parallel_tools.value as usize;
    settings.max_steps = config.max_steps.value;
    settings.auto_compaction = config.auto_compaction.value;
    settings.secret_env = providers::secret_env(config);
    settings.secrets = providers::known_secrets(config)
        .into_iter()
        .map(Secret::new)
        .collect();
    settings.user_instructions = Some(config.folders.config.clone());
    settings.extra_instructions = config
        .instructions
        .iter()
        .map(|s| s.value.clone())
        .collect();
    settings.isolate = (!role.alone).then(|| isolate(config));
    Ok(settings)
}

/// The way to other nodes, and theirs to this one. A command that cannot listen is not reached directly, and works;
/// a node that was told where to listen must.
async fn reachable(
    config: &Config,
    store: &dyn Store,
    role: &Role,
) -> CliResult<(Option<HttpPeers>, Option<NodeServer>)> {
    // A node that could not read it would be out of reach for its whole life.
    let Some(secret) = store::secret(store).await? else {
        return Ok((None, None));
    };
    let Some(peers) = store::peers_by(config, secret.clone()) else {
        return Ok((None, None));
    };
    let own = config.node.listen.value;
    let (listen, advertise) = match &role.door {
        Some(door) => (door.listen, door.advertise.clone()),
        // The node of this machine has the port; the rest of its address holds for commands, too.
        None => (SocketAddr::new(own.ip(), 0), host_only(config)),
    };
    let advertise = advertise.map_or(Advertise::Listened, Advertise::As);
    let machine = &config.node.host_label.value;
    let limits = raise_open_files().map_or_else(Limits::default, Limits::within);
    match NodeServer::bind(listen, &advertise, machine, secret, limits).await {
        Ok(server) => Ok((Some(peers.served_by(&server)), Some(server))),
        Err(error) if role.door.is_some() => Err(CliError::usage(error.to_string())
            .hint("where it listens is set by --listen or node.listen; port 0 takes a free one")),
        Err(error) => {
            tracing::warn!(%error, "other nodes cannot reach this process; they wait for its poll");
            Ok((Some(peers), None))
        }
    }
}

/// The configured address without its port: another one than the machine's own node has.
pub fn host_only(config: &Config) -> Option<String> {
    let given = config.node.advertise.as_ref()?.value.as_str();
    let (scheme, rest) = given.split_once("://").unwrap_or(("http", given));
    let rest = rest.trim_end_matches('/');
    let host = match rest.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => rest,
    };
    Some(format!("{scheme}://{host}"))
}

/// May anybody reach this address? Calls between nodes are signed, not encrypted.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let shared = a == 100 && (64..128).contains(&b);
            !(ip.is_loopback() || ip.is_private() || ip.is_link_local() || shared)
        }
        IpAddr::V6(ip) => {
            let first = ip.segments()[0];
            let local = (first & 0xfe00) == 0xfc00 || (first & 0xffc0) == 0xfe80;
            !(ip.is_loopback() || local)
        }
    }
}

/// Runs a session that crashed its owner twice in a process of its own.
fn isolate(config: &Config) -> Isolate {
    let config = config.clone();
    Arc::new(move |session| crate::background::spawn(&config, &[session.as_str()], true).map(drop))
}

/// Lets go of everything at once, but never takes longer than `limit`: what was not let go of is claimable
/// as soon as this process has ended.
pub async fn leave(engine: &Engine, limit: Duration) {
    match tokio::time::timeout(limit, engine.shutdown_now()).await {
        Ok(Err(error)) => tracing::warn!(%error, "the store was not told of the end"),
        Ok(Ok(())) => {}
        Err(_) => tracing::warn!("letting go took too long"),
    }
}

/// What a command's node of this machine serves.
pub fn serves(config: &Config, scope: &Scope) -> Serves {
    let serves = match &config.store.value {
        StoreUrl::Sqlite(_) => Serves::everywhere(),
        // A command runs only what it was asked to, in a folder that this machine has.
        StoreUrl::Postgres(_) => config.node.serves(&[], &[]),
    };
    asking(serves, config, scope)
}

/// Would a command's node of this machine serve the session, told to run it?
///
/// # Errors
/// What it lacks.
pub fn served_here(config: &Config, row: &SessionRow) -> Result<(), Unserved> {
    row.check_served(&serves(config, &Scope::Asked))
}

/// Why a session waits: nobody serves its location and its model, and a node of this process would not either. None
/// when somebody does, or when it has nothing to do.
///
/// # Errors
/// The store cannot be read.
pub async fn unplaced(
    config: &Config,
    store: &dyn Store,
    session: &SessionId,
) -> CliResult<Option<String>> {
    let row = store.session(session).await?;
    let Some(row) = row else { return Ok(None) };
    let SessionState::Unplaceable { reason } = &row.state else {
        return Ok(None);
    };
    Ok(served_here(config, &row).is_err().then(|| reason.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_anybody_may_reach_are_known() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["0.0.0.0", "8.8.8.8", "100.128.0.1", "::", "2001:db8::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }
}
