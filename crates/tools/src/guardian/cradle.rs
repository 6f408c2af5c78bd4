//! The nursery process itself: forks a guardian for each request, says who it is, and reaps those that ended.

use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::{set_dumpable, set_name, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fchdir, fork};

use super::identity;
use super::nursery::ANSWER;

/// Serves the socket that is its standard input until that closes; gives the process's exit code. In a guardian it
/// forked it returns that one's.
pub(super) fn main() -> i32 {
    match serve() {
        Ok(End::Closed) => 0,
        Ok(End::Guardian) => super::run::main(),
        Err(_) => 1,
    }
}

/// Why serving ended.
enum End {
    /// The parent let go of this process, or is gone.
    Closed,
    /// This is a forked guardian now, its standard streams and directory in place.
    Guardian,
}

fn serve() -> io::Result<End> {
    // Signals from a terminal are for the parent. Nor may a command look into what starts other commands.
    let _ = nix::unistd::setsid();
    set_dumpable(false)?;
    // Also one that a command stopped ends with its parent. Guardians do not inherit this.
    set_pdeathsig(Signal::SIGKILL)?;
    set_name(c"tenure-nursery")?;
    // Remembered by all guardians to come.
    let _ = identity::boot_id();
    let _ = super::run::find_shell();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let before = SigSet::thread_get_mask()?;
    mask.thread_block()?;
    loop {
        let mut fds = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let asked = fds[0].revents().is_some_and(|events| !events.is_empty());
        if asked {
            let Some(fds) = receive(&socket)? else {
                reap();
                return Ok(End::Closed);
            };
            if let Some(end) = bear(fds, &socket, &before)? {
                return Ok(end);
            }
        }
        while let Ok(Some(_)) = signals.read_signal() {}
        reap();
    }
}

/// The next request: a directory and three streams. `None` when the socket is closed.
fn receive(socket: &UnixStream) -> io::Result<Option<Vec<OwnedFd>>> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([RawFd; 4]);
    let mut parts = [IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = part {
            fds.extend(received.into_iter().map(owned));
        }
    }
    Ok(Some(fds))
}

#[allow(
    unsafe_code,
    reason = "received descriptors come as plain numbers; nothing safe takes them over"
)]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for this process, and nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Forks a guardian and tells who it is. Gives an end in the guardian only.
#[allow(unsafe_code, reason = "fork has no safe form")]
fn bear(fds: Vec<OwnedFd>, socket: &UnixStream, mask: &SigSet) -> io::Result<Option<End>> {
    let Ok([dir, orders, reports, output]) = <[OwnedFd; 4]>::try_from(fds) else {
        return answer(socket, None).map(|()| None);
    };
    // SAFETY: this process has one thread, so that its copy is whole and may do whatever it could.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            mask.thread_set_mask()?;
            set_dumpable(true)?;
            set_name(c"tenure-guardian")?;
            fchdir(dir)?;
            // The first of them closes the copy of the socket that is this process's standard input; the other copy
            // and the signals' descriptor close with their owners, when this function's callers return.
            dup2_stdin(orders)?;
            dup2_stdout(reports)?;
            dup2_stderr(output)?;
            Ok(Some(End::Guardian))
        }
        // It cannot be reaped before the next look: its id is its own as yet.
        Ok(ForkResult::Parent { child }) => answer(socket, Some(child)).map(|()| None),
        Err(_) => answer(socket, None).map(|()| None),
    }
}

fn answer(mut socket: &UnixStream, child: Option<Pid>) -> io::Result<()> {
    let pid = child.and_then(|pid| u32::try_from(pid.as_raw()).ok());
    let known = pid.and_then(|pid| Some((pid, identity::pid_start(pid)?)));
    let (pid, start) = known.unwrap_or_default();
    let mut bytes = [0; ANSWER];
    let (first, second) = bytes.split_at_mut(ANSWER / 2);
    first.copy_from_slice(&u64::from(pid).to_le_bytes());
    second.copy_from_slice(&start.to_le_bytes());
    socket.write_all(&bytes)
}

fn reap() {
    while let Ok(status) = waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
        if status == WaitStatus::StillAlive {
            return;
        }
    }
}
