//! The guardian process itself: waits for its order, starts the shell, watches pipe, lease and children.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{AccessFlags, Pid, access};

use super::clock::asleep;
use super::kill::{self, Record};
use super::leftover::MARKER_ENV;
use super::wire::{ExitKind, Order, Report, Why, encode};
use super::{identity, since_boot};

/// How long processes that outlive the shell may take to end by themselves: the last writers of a pipeline or of a
/// process substitution often end a moment after it.
const LINGER: Duration = Duration::from_millis(200);
/// How long a parent has after the machine woke up to renew a lease that ended while it slept.
const WAKE_GRACE: Duration = Duration::from_millis(500);
/// Clocks are read one after the other, so they never agree exactly.
const SLEEP_NOTICED: Duration = Duration::from_millis(100);

/// The shells that are tried, by name.
const SHELLS: [&str; 2] = ["bash", "sh"];

/// Runs to the end of the command and of everything it started; gives the process's exit code.
pub(super) fn main() -> i32 {
    match Guardian::new().and_then(|mut guardian| guardian.serve()) {
        Ok(()) => 0,
        Err(error) => {
            // The parent may be gone; there is nobody else to tell.
            let _ = send(&Report::NotStarted(format!(
                "the guardian process failed: {error}"
            )));
            1
        }
    }
}

struct Guardian {
    pending: Vec<u8>,
    lease: Lease,
}

/// What the parent wants, as far as it was read.
enum Control {
    Nothing,
    Go(String),
    End,
}

impl Guardian {
    fn new() -> io::Result<Self> {
        // Fails only for a group leader, which then has its own group already.
        let _ = nix::unistd::setsid();
        nix::sys::prctl::set_child_subreaper(true)?;
        Ok(Self {
            pending: Vec::new(),
            lease: Lease::new()?,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let Some(command) = self.wait_for_go()? else {
            return Ok(());
        };
        let mut mask = SigSet::empty();
        for signal in [
            Signal::SIGCHLD,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ] {
            mask.add(signal);
        }
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let shell = match start_shell(&command) {
            Ok(pid) => pid,
            Err(error) => return send(&Report::NotStarted(error)),
        };
        // From here on nothing may end this process before its children, so no error leaves this function early.
        // Signals are blocked only now: the shell must not inherit a mask. A child that ended already is found by
        // the first reaping.
        let _ = mask.thread_block();
        let mut children = Children {
            shell,
            shell_ended: None,
        };
        let why = self
            .watch(&signals, &mut children)
            .unwrap_or(Some(Why::Signal));
        let mut record = Record::new(shell);
        if let Some(why) = why {
            let _ = send(&Report::Ending(why));
            let tell = |stuck| drop(send(&Report::Stuck(stuck)));
            kill::end_all(&mut record, &signals, || children.reap(), tell);
        }
        let (killed, more_killed) = record.into_report();
        send(&Report::Done {
            killed,
            more_killed,
        })
    }

    /// Waits for the order to begin; `None` when there is nothing to do.
    fn wait_for_go(&mut self) -> io::Result<Option<String>> {
        loop {
            let stdin = io::stdin();
            let mut fds = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.lease.timer.as_fd(), PollFlags::POLLIN),
            ];
            wait(&mut fds, PollTimeout::NONE)?;
            let readable = ready(&fds[0]);
            let over = ready(&fds[1]) && self.lease.is_over()?;
            if over {
                return Ok(None);
            }
            if readable {
                match self.read_orders()? {
                    Control::Nothing => {}
                    Control::End => return Ok(None),
                    Control::Go(_) if self.lease.deadline.is_some_and(|d| d <= since_boot()) => {
                        send(&Report::NotStarted("the lease had already ended".into()))?;
                        return Ok(None);
                    }
                    Control::Go(command) => return Ok(Some(command)),
                }
            }
        }
    }

    /// Watches until nothing is left (`None`) or everything must be ended.
    fn watch(&mut self, signals: &SignalFd, children: &mut Children) -> io::Result<Option<Why>> {
        loop {
            if !children.reap() {
                return Ok(None);
            }
            let timeout = match children.shell_ended {
                Some(at) => match LINGER.checked_sub(at.elapsed()) {
                    Some(left) => PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO),
                    None => return Ok(Some(Why::Leftover)),
                },
                None => PollTimeout::NONE,
            };
            let stdin = io::stdin();
            let mut fds = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.lease.timer.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            wait(&mut fds, timeout)?;
            let (control, timer, signal) = (ready(&fds[0]), ready(&fds[1]), ready(&fds[2]));
            if control && matches!(self.read_orders()?, Control::End) {
                return Ok(Some(Why::Order));
            }
            if timer && self.lease.is_over()? {
                return Ok(Some(Why::Lease));
            }
            if signal && drain_signals(signals)? {
                return Ok(Some(Why::Signal));
            }
        }
    }

    /// Reads what is there; called only when reading does not block. Orders behind a `Go` in the same piece are kept.
    fn read_orders(&mut self) -> io::Result<Control> {
        let mut piece = [0_u8; 16 * 1024];
        // Not `io::stdin().read`: its buffer would hide input from `poll`.
        let n = match nix::unistd::read(io::stdin().as_fd(), &mut piece) {
            Ok(n) => n,
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(Control::Nothing),
            Err(errno) => return Err(errno.into()),
        };
        if n == 0 {
            return Ok(Control::End);
        }
        self.pending
            .extend_from_slice(piece.get(..n).unwrap_or_default());
        let mut result = Control::Nothing;
        while let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Order::Lease(at)) => self.lease.set(Duration::from_nanos(at))?,
                Ok(Order::Go(command)) => result = Control::Go(command),
                // What is not understood cannot be obeyed; going on unwatched would be worse.
                Ok(Order::Kill) | Err(_) => return Ok(Control::End),
            }
        }
        Ok(result)
    }
}

/// The deadline, on a timer that also runs while the machine sleeps.
struct Lease {
    timer: TimerFd,
    deadline: Option<Duration>,
    asleep_when_set: Duration,
    grace_given: bool,
}

impl Lease {
    fn new() -> io::Result<Self> {
        let timer = TimerFd::new(
            ClockId::CLOCK_BOOTTIME,
            TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
        )?;
        Ok(Self {
            timer,
            deadline: None,
            asleep_when_set: Duration::ZERO,
            grace_given: false,
        })
    }

    fn set(&mut self, at: Duration) -> io::Result<()> {
        self.deadline = Some(at);
        self.asleep_when_set = asleep();
        self.grace_given = false;
        self.arm(at)
    }

    fn arm(&self, at: Duration) -> io::Result<()> {
        // Zero would disarm the timer.
        let at = TimeSpec::from_duration(at.max(Duration::from_nanos(1)));
        Ok(self.timer.set(
            Expiration::OneShot(at),
            TimerSetTimeFlags::TFD_TIMER_ABSTIME,
        )?)
    }

    /// Called when the timer fired. A lease that ended while the machine slept gets a short grace: the parent wakes at
    /// the same moment and renews first, if it still can.
    fn is_over(&mut self) -> io::Result<bool> {
        let mut count = [0_u8; 8];
        let _ = nix::unistd::read(self.timer.as_fd(), &mut count);
        let Some(deadline) = self.deadline else {
            return Ok(false);
        };
        let now = since_boot();
        if now < deadline {
            self.arm(deadline)?;
            return Ok(false);
        }
        if !self.grace_given && asleep().saturating_sub(self.asleep_when_set) > SLEEP_NOTICED {
            self.grace_given = true;
            self.arm(now + WAKE_GRACE)?;
            return Ok(false);
        }
        Ok(true)
    }
}

/// The shell and, since this process is the subreaper, everything below it that lost its parent.
struct Children {
    shell: Pid,
    shell_ended: Option<Instant>,
}

impl Children {
    /// Reaps what has ended; `false` when no descendant is left at all.
    fn reap(&mut self) -> bool {
        loop {
            let kind = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.shell => ExitKind::Code(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.shell => {
                    ExitKind::Signal(signal as i32)
                }
                Ok(WaitStatus::StillAlive) => return true,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return false,
            };
            self.shell_ended = Some(Instant::now());
            // The parent may be gone.
            let _ = send(&Report::Exited(kind));
        }
    }
}

fn start_shell(command: &str) -> Result<Pid, String> {
    let me = std::process::id();
    let start = identity::pid_start(me).unwrap_or_default();
    let boot = identity::boot_id().unwrap_or_default();
    let mut last = String::new();
    let told_limit = super::open_files::lower_again();
    // The file that was found first; where it has gone, what `PATH` has now.
    let found = find_shell().map(|file| (file, SHELLS[0]));
    let names = SHELLS.map(|name| (Path::new(name), name));
    for (file, shell) in found.into_iter().chain(names) {
        let (out, err) = match (duplicate_output(), duplicate_output()) {
            (Ok(out), Ok(err)) => (out, err),
            (Err(error), _) | (_, Err(error)) => {
                return Err(format!("cannot pass the output on: {error}"));
            }
        };
        let started = Command::new(file)
            .arg0(shell)
            .arg("-c")
            .arg(command)
            .env_remove(told_limit)
            .env(MARKER_ENV, super::leftover::marker(&boot, me, start))
            .stdin(Stdio::null())
            .stdout(Stdio::from(out))
            .stderr(Stdio::from(err))
            .process_group(0)
            .spawn();
        match started {
            Ok(child) => {
                let id = i32::try_from(child.id()).map_err(|e| e.to_string())?;
                let_go_of_output();
                return Ok(Pid::from_raw(id));
            }
            Err(error) => {
                last = format!("cannot start {shell}: {error}");
                if error.kind() != io::ErrorKind::NotFound {
                    break;
                }
            }
        }
    }
    Err(last)
}

/// Where `PATH` has the shell; looked up once, by a nursery for all its guardians. To try each folder by an exec that
/// fails costs more than the look, and the look as much as a fork.
pub(super) fn find_shell() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            // What is relative depends on the call: from there on the exec searches.
            .take_while(|folder| folder.is_absolute())
            .map(|folder| folder.join(SHELLS[0]))
            .find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
    });
    found.as_deref()
}

fn duplicate_output() -> io::Result<OwnedFd> {
    io::stderr().as_fd().try_clone_to_owned()
}

/// From now on only the command holds the output pipe, so that its end can be seen; nor does this process keep a
/// directory busy.
fn let_go_of_output() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stderr(null);
    }
    let _ = std::env::set_current_dir("/");
}

/// Takes all pending signals; `true` when one of them asks to end.
fn drain_signals(signals: &SignalFd) -> io::Result<bool> {
    let mut end = false;
    while let Some(info) = signals.read_signal()? {
        end |= i32::try_from(info.ssi_signo) != Ok(Signal::SIGCHLD as i32);
    }
    Ok(end)
}

fn wait(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<()> {
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn ready(fd: &PollFd<'_>) -> bool {
    fd.revents().is_some_and(|events| !events.is_empty())
}

fn send(report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&encode(report))?;
    out.flush()
}
