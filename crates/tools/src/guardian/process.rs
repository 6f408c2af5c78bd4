//! The parent's end of a guardian: starts it, lets the command begin, hears how it ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;

use super::wire::{Order, Report, encode};
use super::{GuardianCommand, identity};
use crate::tool::Spawned;

/// A guardian and, once it may begin, its command. Dropping it closes the pipe, on which the guardian ends
/// everything; the guardian itself is never killed, for then nobody would.
pub(crate) struct Guarded {
    spawned: Spawned,
    control: Option<ChildStdin>,
    reports: Lines<BufReader<ChildStdout>>,
    lease: Option<watch::Receiver<Duration>>,
    /// Both outputs of the command, in the order they were written.
    pub(crate) output: ChildStderr,
    /// Held so that the runtime reaps the guardian.
    _child: Child,
}

/// Why no command was started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error("cannot start the guardian process {program}: {source}")]
    Guardian { program: String, source: io::Error },
    #[error("cannot identify the guardian process: {0}")]
    Identity(io::Error),
    #[error("the guardian process ended before the command could begin: {0}")]
    Gone(io::Error),
}

impl Guarded {
    /// Starts a guardian in `dir`, an open directory. Nothing of the command runs yet.
    pub(crate) fn prepare(
        guardian: &GuardianCommand,
        dir: &File,
        env_remove: &[String],
    ) -> Result<Self, StartError> {
        let failed = |source| StartError::Guardian {
            program: guardian.program.display().to_string(),
            source,
        };
        let mut command = Command::new(&guardian.program);
        command
            .args(&guardian.args)
            // The open directory, not its name: the name may lead elsewhere by now.
            .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(false);
        for name in env_remove {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(failed)?;
        let missing = || io::Error::other("a pipe is missing");
        let pid = child.id().ok_or_else(|| StartError::Identity(missing()))?;
        let pid_start = identity::pid_start(pid)
            .ok_or_else(|| StartError::Identity(io::Error::other("its start time is not known")))?;
        let boot_id = identity::boot_id().map_err(StartError::Identity)?;
        let control = child.stdin.take().ok_or_else(|| failed(missing()))?;
        let status = child.stdout.take().ok_or_else(|| failed(missing()))?;
        let output = child.stderr.take().ok_or_else(|| failed(missing()))?;
        Ok(Self {
            spawned: Spawned {
                pid,
                pid_start,
                boot_id,
            },
            control: Some(control),
            reports: BufReader::new(status).lines(),
            lease: guardian.lease.as_ref().map(super::LeaseDeadline::watch),
            output,
            _child: child,
        })
    }

    pub(crate) fn spawned(&self) -> &Spawned {
        &self.spawned
    }

    /// Lets the command begin.
    pub(crate) async fn go(&mut self, command: &str) -> Result<(), StartError> {
        let mut orders = Vec::new();
        if let Some(lease) = &mut self.lease {
            orders.extend(encode(&lease_order(*lease.borrow_and_update())));
        }
        orders.extend(encode(&Order::Go(command.to_owned())));
        self.write(&orders).await.map_err(StartError::Gone)
    }

    /// Asks for the end of everything; the reports go on until [`Report::Done`].
    pub(crate) async fn kill(&mut self) {
        if self.write(&encode(&Order::Kill)).await.is_err() {
            self.control = None;
        }
    }

    /// The guardian's reports and the command's output, to be waited for together.
    pub(crate) fn split(&mut self) -> (Reports<'_>, &mut ChildStderr) {
        let reports = Reports {
            lines: &mut self.reports,
            control: &mut self.control,
            lease: &mut self.lease,
        };
        (reports, &mut self.output)
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.control {
            Some(control) => control.write_all(bytes).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// One side of [`Guarded::split`].
pub(crate) struct Reports<'a> {
    lines: &'a mut Lines<BufReader<ChildStdout>>,
    control: &'a mut Option<ChildStdin>,
    lease: &'a mut Option<watch::Receiver<Duration>>,
}

impl Reports<'_> {
    /// The next report, `None` when the guardian is gone; passes renewed leases on meanwhile. Cancel safe: a renewal
    /// is one line, shorter than what a pipe takes at once.
    pub(crate) async fn next(self) -> Option<Report> {
        loop {
            tokio::select! {
                line = self.lines.next_line() => {
                    return serde_json::from_str(&line.ok().flatten()?).ok();
                }
                at = changed(self.lease) => match at {
                    Some(at) => pass_on(self.control, at).await,
                    None => *self.lease = None,
                },
            }
        }
    }
}

async fn pass_on(control: &mut Option<ChildStdin>, at: Duration) {
    if let Some(pipe) = control
        && pipe.write_all(&encode(&lease_order(at))).await.is_err()
    {
        *control = None;
    }
}

fn lease_order(at: Duration) -> Order {
    Order::Lease(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
}

/// The new deadline; pending for ever without a lease, `None` when nobody can renew it any more.
async fn changed(lease: &mut Option<watch::Receiver<Duration>>) -> Option<Duration> {
    match lease {
        Some(receiver) => match receiver.changed().await {
            Ok(()) => Some(*receiver.borrow_and_update()),
            Err(_) => None,
        },
        None => std::future::pending().await,
    }
}
