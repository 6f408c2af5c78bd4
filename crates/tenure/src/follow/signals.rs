//! The signals that matter while a session is followed.

use crate::exit::{CliError, CliResult};

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// The terminal has gone.
    HangUp,
    /// The process is to end.
    Terminate,
}

/// Catches them from its making on.
#[cfg(unix)]
pub struct Signals {
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    /// Begins to catch.
    pub fn new() -> CliResult<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let catch = |kind| {
            signal(kind).map_err(|e| CliError::failed(format!("signals cannot be received: {e}")))
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
            terminate: catch(SignalKind::terminate())?,
        })
    }

    /// The next one. Cancellation safe.
    pub async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.hang_up.recv() => Signal::HangUp,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
    }
}

/// Catches Ctrl-C only.
#[cfg(not(unix))]
pub struct Signals;

#[cfg(not(unix))]
impl Signals {
    /// Begins to catch.
    pub fn new() -> CliResult<Self> {
        Ok(Self)
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}
