//! The parent's end of a guardian: starts it, lets the command begin, hears how it ends.

mod outlast;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::kill::{Found, signal};
use super::wire::{Order, Report, encode};
use super::{GuardianCommand, identity, nursery};
use crate::tool::Spawned;

/// A guardian and, once it may begin, its command. Dropping it closes the pipe, on which the guardian ends
/// everything; whoever must know that it did calls [`Guarded::outlast`] instead.
pub(crate) struct Guarded {
    spawned: Spawned,
    control: Option<pipe::Sender>,
    reports: Lines<BufReader<pipe::Receiver>>,
    lease: Option<watch::Receiver<Duration>>,
    /// Both outputs of the command, in the order they were written.
    pub(crate) output: pipe::Receiver,
    /// Held so that the runtime reaps a guardian that was started directly.
    _child: Option<Child>,
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
        // A guardian that a hanging nursery forks late must not find a second one at its pipes: each try has its own.
        let (control, status, read, streams) = nursery::pipes().map_err(failed)?;
        let nursery = &guardian.nursery;
        let found = nursery.guardian(guardian, dir, env_remove, &streams);
        drop(streams);
        let boot_id = identity::boot_id().map_err(StartError::Identity)?;
        let ((pid, pid_start), pipes, child) = match found {
            Some(found) => (found, (control, status, read), None),
            None => {
                let (control, status, read, streams) = nursery::pipes().map_err(failed)?;
                let child = start(guardian, dir, env_remove, &streams).map_err(failed)?;
                (identify(&child)?, (control, status, read), Some(child))
            }
        };
        let (control, status, read) = pipes;
        let status = pipe::Receiver::from_owned_fd(status.into()).map_err(failed)?;
        Ok(Self {
            spawned: Spawned {
                pid,
                pid_start,
                boot_id,
            },
            control: Some(pipe::Sender::from_owned_fd(control.into()).map_err(failed)?),
            reports: BufReader::new(status).lines(),
            lease: guardian.lease.as_ref().map(super::LeaseDeadline::watch),
            output: pipe::Receiver::from_owned_fd(read.into()).map_err(failed)?,
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
        self.wake();
        if self.write(&encode(&Order::Kill)).await.is_err() {
            self.control = None;
        }
    }

    /// A guardian that was stopped, perhaps by its own command, hears orders only when it goes on.
    fn wake(&self) {
        let guardian = Found {
            pid: self.spawned.pid,
            start: self.spawned.pid_start,
        };
        signal(guardian, Signal::SIGCONT);
    }

    /// The guardian's reports and the command's output, to be waited for together.
    pub(crate) fn split(&mut self) -> (Reports<'_>, &mut pipe::Receiver) {
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

/// Starts a guardian without a nursery.
fn start(
    guardian: &GuardianCommand,
    dir: &File,
    env_remove: &[String],
    streams: &nursery::Streams,
) -> io::Result<Child> {
    let mut command = Command::from(nursery::Wanted::of(guardian, env_remove).command());
    command
        // The open directory, not its name: the name may lead elsewhere by now.
        .current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd()))
        .stdin(nursery::handed(&streams.orders)?)
        .stdout(nursery::handed(&streams.reports)?)
        .stderr(nursery::handed(&streams.output)?)
        .kill_on_drop(false)
        .spawn()
}

fn identify(child: &Child) -> Result<(u32, u64), StartError> {
    let unknown = |what: &str| StartError::Identity(io::Error::other(what.to_owned()));
    let pid = child.id().ok_or_else(|| unknown("it has ended already"))?;
    let start = identity::pid_start(pid).ok_or_else(|| unknown("its start time is not known"))?;
    Ok((pid, start))
}

/// One side of [`Guarded::split`].
pub(crate) struct Reports<'a> {
    lines: &'a mut Lines<BufReader<pipe::Receiver>>,
    control: &'a mut Option<pipe::Sender>,
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

async fn pass_on(control: &mut Option<pipe::Sender>, at: Duration) {
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
