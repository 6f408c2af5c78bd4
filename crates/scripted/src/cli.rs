//! The scripted model as a program: prints its address as one JSON line, serves until told to stop.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::json;

use crate::script::{Script, ScriptError};
use crate::server::ScriptedModel;

/// What `tenure scripted-model` was told.
#[derive(Debug, Clone)]
pub struct CliOptions {
    /// The script file, TOML or JSON.
    pub script: PathBuf,
    /// Where to listen; port 0 picks a free one.
    pub addr: SocketAddr,
    /// The request log to append to.
    pub log: Option<PathBuf>,
    /// The key to require.
    pub api_key: Option<String>,
}

/// Why the program ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The script is not usable.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The address or the log is not usable.
    #[error("cannot serve on {addr}: {source}; choose another --addr or --log")]
    Serve {
        /// The address asked for.
        addr: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Signals cannot be received, or the address cannot be printed.
    #[error("cannot start: {0}")]
    Start(std::io::Error),
}

/// Serves a script until SIGTERM, SIGINT or Ctrl-C. Prints one line first:
/// `{"kind":"scripted_model","version":1,"addr":"…","base_url":"…"}`.
///
/// # Errors
/// The script, the address or the log is not usable.
///
/// # Cancellation
/// Dropped, it stops serving.
pub async fn serve_cli(options: CliOptions) -> Result<(), CliError> {
    let script = Script::load(&options.script)?;
    let mut builder = ScriptedModel::builder(script).keep_bodies(false);
    if let Some(log) = options.log {
        builder = builder.log(log);
    }
    if let Some(key) = options.api_key {
        builder = builder.api_key(key);
    }
    // Signals are caught before the address is printed: whoever reads it may stop the program at once.
    let stop = stop_signal().map_err(CliError::Start)?;
    let handle = builder
        .bind(options.addr)
        .await
        .map_err(|source| CliError::Serve {
            addr: options.addr,
            source,
        })?;
    let line = json!({
        "kind": "scripted_model", "version": 1, "addr": handle.addr().to_string(), "base_url": handle.base_url()
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .map_err(CliError::Start)?;
    drop(out);
    stop.await;
    handle.shutdown().await;
    Ok(())
}

#[cfg(unix)]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
