//! The parent's end of a nursery: one process, started once, that forks a guardian for each call.
//!
//! To execute a program costs many times what a fork of a small process does: loading, linking, the first touch of
//! each page. So the executable is started again once, by the first call, and stays; a call's guardian is its child.
//! A nursery knows nothing of commands and holds no end of their pipes. It ends when the socket to it closes, and no
//! guardian depends on it: each watches its own pipe. Whatever goes wrong with it, a guardian is started directly.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::GuardianCommand;

/// The argument behind the guardian's own that makes the process a nursery.
pub(super) const NURSERY_ARG: &str = "nursery";
/// Bytes of an answer: the guardian's process id, zero when there is none, and its start time.
pub(super) const ANSWER: usize = 16;
/// How long an answer may take. A nursery that does not answer (a command may have stopped it) is given up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The ends of a call's pipes that become a guardian's standard streams.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) orders: PipeReader,
    pub(super) reports: PipeWriter,
    pub(super) output: PipeWriter,
}

/// The nursery that all clones of a [`GuardianCommand`] share, once there is one.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<Nursery>>);

impl Slot {
    /// Has a guardian forked in `dir`; its process id and start time. `None` when that is not possible now. Blocks for
    /// well below a millisecond, for [`PATIENCE`] when the nursery hangs.
    pub(super) fn guardian(
        &self,
        command: &GuardianCommand,
        dir: &File,
        env_remove: &[String],
        streams: &Streams,
    ) -> Option<(u32, u64)> {
        let wanted = Wanted::of(command, env_remove);
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if slot
            .as_ref()
            .is_none_or(|nursery| nursery.made_as != wanted)
        {
            *slot = None;
            *slot = Nursery::start(wanted.clone()).ok();
        }
        // One that was killed between two calls shows when it is asked, and is replaced.
        if slot.as_ref()?.ask(dir, streams).is_err() {
            *slot = None;
            *slot = Nursery::start(wanted).ok();
            slot.as_ref()?.ask(dir, streams).ok()?;
        }
        // From here on a guardian may hold the streams, whatever becomes of the answer.
        match slot.as_mut()?.answer() {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "a nursery of guardians is gone or does not answer");
                *slot = None;
                None
            }
        }
    }
}

/// What a nursery, or a guardian without one, is started with: a call that needs something else needs another nursery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    program: PathBuf,
    args: Vec<OsString>,
    env_remove: Vec<String>,
}

impl Wanted {
    pub(super) fn of(command: &GuardianCommand, env_remove: &[String]) -> Self {
        Self {
            program: command.program.clone(),
            args: command.args.clone(),
            env_remove: env_remove.to_vec(),
        }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).envs(super::open_files_before());
        for name in &self.env_remove {
            command.env_remove(name);
        }
        command
    }
}

#[derive(Debug)]
struct Nursery {
    made_as: Wanted,
    socket: UnixStream,
    child: Child,
}

impl Nursery {
    fn start(wanted: Wanted) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let child = wanted
            .command()
            .arg(NURSERY_ARG)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self {
            made_as: wanted,
            socket,
            child,
        })
    }

    /// Nothing has come of it when this fails.
    fn ask(&self, dir: &File, streams: &Streams) -> io::Result<()> {
        let fds = [
            dir.as_raw_fd(),
            streams.orders.as_raw_fd(),
            streams.reports.as_raw_fd(),
            streams.output.as_raw_fd(),
        ];
        sendmsg::<()>(
            self.socket.as_raw_fd(),
            &[IoSlice::new(b"g")],
            &[ControlMessage::ScmRights(&fds)],
            MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }

    fn answer(&mut self) -> io::Result<Option<(u32, u64)>> {
        let mut answer = [0; ANSWER];
        self.socket.read_exact(&mut answer)?;
        let (pid, start) = answer.split_at(ANSWER / 2);
        let number = |half: &[u8]| half.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let pid = u32::try_from(number(pid)).unwrap_or_default();
        Ok((pid != 0).then(|| (pid, number(start))))
    }
}

impl Drop for Nursery {
    /// Waits for its end, which follows at once: what it and the guardians cost is this process's, too.
    fn drop(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        // Nothing comes any more but the end of the stream.
        let ended = matches!(self.socket.read(&mut [0; ANSWER]), Ok(0));
        if !ended {
            // No guardian depends on it.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// New pipes for a call: this process's ends, and the guardian's.
pub(super) fn pipes() -> io::Result<(PipeWriter, PipeReader, PipeReader, Streams)> {
    let (orders, control) = io::pipe()?;
    let (status, reports) = io::pipe()?;
    let (read, output) = io::pipe()?;
    let streams = Streams {
        orders,
        reports,
        output,
    };
    Ok((control, status, read, streams))
}

/// A standard stream of a process that is started directly.
pub(super) fn handed(fd: impl AsFd) -> io::Result<Stdio> {
    Ok(Stdio::from(fd.as_fd().try_clone_to_owned()?))
}
