//! Background nodes: starting one that outlives this process and its terminal.

use crate::config::trust::private_folder;
use crate::config::{Config, StoreUrl};
use crate::exit::{CliError, CliResult};
use crate::node::served_here;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tenure_core::SessionId;
use tenure_engine::{has_taker, takes};
use tenure_store::{SessionState, Store};

/// The log grows to this size, then begins anew; one old one is kept.
const LOG_MAX: u64 = 8 * 1024 * 1024;

/// The nodes of a cluster take what is left to them in milliseconds; after this they are believed to be gone.
const TAKEN_WITHIN: Duration = Duration::from_secs(3);
/// A hint of a change may be lost: look again after this.
const LOOK: Duration = Duration::from_millis(100);

/// Who works in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worker {
    /// A node of the cluster.
    Node,
    /// A process of this machine that was started for it.
    Process,
    /// Nobody: no node takes it, and this machine does not serve it.
    Nobody {
        /// What it needs.
        reason: String,
    },
}

/// Leaves a session to the cluster's nodes, where one of them takes it, else to a process of its own.
///
/// # Errors
/// The store cannot be read, or no process can be started.
pub async fn leave_to(
    config: &Config,
    store: &dyn Store,
    session: &SessionId,
) -> CliResult<Worker> {
    if matches!(config.store.value, StoreUrl::Postgres(_)) {
        if is_taken(store, session).await? {
            return Ok(Worker::Node);
        }
        let row = store.session(session).await?;
        let served = row.map_or(Ok(()), |row| served_here(config, &row));
        if let Err(unserved) = served {
            return Ok(Worker::Nobody {
                reason: unserved.to_string(),
            });
        }
    }
    spawn_for(config, session).map_err(|e| {
        CliError::failed(format!("the background node could not be started: {e}")).hint(format!(
            "what was asked for is stored; `tenure resume {session}` runs it here"
        ))
    })?;
    Ok(Worker::Process)
}

/// Waits until a node of the cluster has the session, or has done what was to be done; no longer than there is one
/// that would.
async fn is_taken(store: &dyn Store, session: &SessionId) -> CliResult<bool> {
    let mut changes = store.watch(session);
    let began = Instant::now();
    loop {
        changes.borrow_and_update();
        let Some(row) = store.session(session).await? else {
            return Ok(false);
        };
        let nodes = crate::commands::nodes::all(store).await?;
        match &row.state {
            SessionState::Idle => return Ok(true),
            // A command may hold it for as long as it runs.
            SessionState::Owned { owner, .. } => {
                let owner = nodes.iter().find(|node| &node.incarnation == owner);
                return Ok(owner.is_some_and(takes));
            }
            SessionState::Claimable { .. } if has_taker(&nodes, &row) => {}
            _ => return Ok(false),
        }
        if began.elapsed() >= TAKEN_WITHIN {
            return Ok(false);
        }
        let _ = tokio::time::timeout(LOOK, changes.changed()).await;
    }
}

/// Starts a node for one session that somebody may still hold. Beside a file it runs whatever else is runnable there;
/// in a cluster that is for the cluster's nodes, and for their folders.
pub fn spawn_for(config: &Config, session: &SessionId) -> io::Result<Child> {
    let alone = matches!(config.store.value, StoreUrl::Postgres(_));
    spawn(config, &[session.as_str()], alone)
}

/// Where background nodes write what they have to say.
pub fn log_path(config: &Config) -> PathBuf {
    config.folders.state.join("node.log")
}

/// Starts a node for the configured store in a session of its own, with its output in the log. It leaves
/// when nothing is left to do. It waits for `sessions` to be claimable, should somebody still hold them.
/// `alone`: it takes only those.
pub fn spawn(config: &Config, sessions: &[&str], alone: bool) -> io::Result<Child> {
    let log = open_log(config)?;
    let mut command = Command::new(program()?);
    command.arg("node").arg("--until-idle");
    match &config.store.value {
        StoreUrl::Sqlite(_) => {
            command.arg("--store").arg(config.store.value.to_string());
        }
        // It may hold a password, and everybody can read a command line.
        StoreUrl::Postgres(url) => {
            command.env("TENURE_STORE", url);
        }
    }
    if let Some(file) = &config.file {
        command.arg("--config").arg(file);
    }
    for session in sessions {
        command.arg("--for").arg(session);
    }
    if alone {
        command.arg("--alone");
    }
    command
        .envs(tenure_tools::guardian::open_files_before())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir(folder(config));
    detach(&mut command);
    command.spawn()
}

/// A trusted project's providers are there only in its folder; no other folder matters to a node.
fn folder(config: &Config) -> &Path {
    let project = config.project.as_ref().filter(|project| project.trusted);
    project.map_or(Path::new("/"), |project| &project.folder)
}

/// The running program, also when its file was replaced meanwhile.
fn program() -> io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        Ok(link)
    } else {
        std::env::current_exe()
    }
}

fn open_log(config: &Config) -> io::Result<File> {
    let path = log_path(config);
    private_folder(&config.folders.state)?;
    if std::fs::metadata(&path).is_ok_and(|m| m.len() > LOG_MAX) {
        std::fs::rename(&path, path.with_extension("log.1"))?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A terminal that closes must not reach the node: it gets a session of its own.
#[cfg(unix)]
fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: between fork and exec only `setsid` is called, which is async-signal-safe and touches no memory.
    #[allow(
        unsafe_code,
        reason = "a new session can only be made in the child itself"
    )]
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid().map_err(io::Error::from)?;
            Ok(())
        });
    }
}

#[cfg(not(unix))]
fn detach(_command: &mut Command) {}
