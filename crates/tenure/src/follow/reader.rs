//! Whoever reads the output of a command that only looks on: once they have gone there is nothing left to do.

#[cfg(unix)]
use tokio::net::unix::pipe;

/// Notices that the reader of standard output has gone, also while nothing is written.
pub(super) struct Reader {
    #[cfg(unix)]
    output: Option<pipe::Sender>,
}

impl Reader {
    /// Begins to watch, if `wanted` and where it can be noticed: not on a file.
    #[cfg(unix)]
    pub(super) fn new(wanted: bool) -> Self {
        use std::os::fd::AsFd;
        // It is only watched, so it need not be one that never blocks: that would be changed for all who share it.
        let watched = || {
            let output = std::io::stdout().as_fd().try_clone_to_owned().ok()?;
            pipe::Sender::from_owned_fd_unchecked(output).ok()
        };
        Self {
            output: wanted.then(watched).flatten(),
        }
    }

    /// It is noticed by the next write only.
    #[cfg(not(unix))]
    pub(super) fn new(_wanted: bool) -> Self {
        Self {}
    }

    /// Resolves when the reader has gone. Cancellation safe.
    #[cfg(unix)]
    pub(super) async fn gone(&self) {
        let Some(output) = &self.output else {
            return std::future::pending().await;
        };
        if output.ready(tokio::io::Interest::ERROR).await.is_err() {
            // The runtime ends.
            std::future::pending().await
        }
    }

    /// Never, here.
    #[cfg(not(unix))]
    pub(super) async fn gone(&self) {
        std::future::pending().await
    }
}
