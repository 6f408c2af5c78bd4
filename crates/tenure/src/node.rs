//! This process as a node of the store: the engine with the configuration in force.

use crate::config::Config;
use crate::exit::{CliError, CliResult};
use crate::providers;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tenure_engine::{Approvals, Engine, EngineConfig, Isolate, Scope};
use tenure_provider::Secret;
use tenure_store::SqliteStore;
use tenure_tools::ToolSet;
use tenure_tools::guardian::GuardianCommand;

/// How this process takes part.
#[derive(Debug, Clone)]
pub struct Role {
    /// A label for people.
    pub name: &'static str,
    /// Which sessions it takes.
    pub scope: Scope,
    /// How questions are answered.
    pub approvals: Approvals,
    /// This process was made to run one session alone (R8).
    pub alone: bool,
}

/// Starts the engine.
pub async fn start(config: &Config, store: Arc<SqliteStore>, role: &Role) -> CliResult<Engine> {
    let guardian = GuardianCommand::current_exe()
        .map_err(|e| CliError::failed(format!("the program's own file cannot be found: {e}")))?;
    let mut settings = EngineConfig::new(role.name, config.folders.data.join("outputs"), guardian);
    settings.scope = role.scope.clone();
    settings.approvals = role.approvals;
    settings.lease = config.lease_duration.value;
    settings.renew_every = config.lease_renew.value;
    settings.margin = config.lease_margin.value;
    settings.tool_concurrency = config.max_parallel_tools.value as usize;
    settings.max_steps = config.max_steps.value;
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
    settings.socket_dir = Some(socket_folder(config));
    let engine = Engine::start(
        store,
        providers::models(config),
        ToolSet::builtin(),
        settings,
    )
    .await?;
    Ok(engine)
}

/// Sockets stand where the store keeps its nodes' locks.
fn socket_folder(config: &Config) -> PathBuf {
    let mut folder = config.store.value.path().as_os_str().to_owned();
    folder.push(".nodes");
    PathBuf::from(folder)
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
