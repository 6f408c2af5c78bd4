//! A child process under test: its lines, its signals, and waiting for either without guessing at time.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::leash::Leash;
use crate::{Error, wait};

/// Ends the process `$1`, if it is still the one that began at `$2`.
const END: &str = r#"
began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }
[ "$(began "$1")" = "$2" ] && kill -KILL "$1"
"#;

/// A running child. Dropped, it is killed; and it does not outlive this process either.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    output: Arc<Output>,
    leash: Option<Leash>,
}

/// Lines of a child's output and errors, in the order in which they came.
#[derive(Debug, Default)]
struct Output {
    lines: Mutex<Lines>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Lines {
    all: Vec<String>,
    /// Of the two streams, how many have ended.
    ended: u8,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collect(self: Arc<Self>, stream: impl Read) {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            self.lock().all.push(line);
            self.news.notify_all();
        }
        self.lock().ended += 1;
        self.news.notify_all();
    }
}

impl Running {
    /// Starts `command`, reading what it writes; `name` stands for it in messages.
    ///
    /// Standard input stays as the command has it.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(name: impl Into<String>, command: &mut Command) -> Result<Self, Error> {
        let name = name.into();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::system(format!("start {name}")))?;
        let output = Arc::new(Output::default());
        if let Some(stdout) = child.stdout.take() {
            let output = Arc::clone(&output);
            std::thread::spawn(move || output.collect(stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            let output = Arc::clone(&output);
            std::thread::spawn(move || output.collect(stderr));
        }
        let began = stat_field(child.id(), 19).unwrap_or_default();
        let leash = Leash::new(END, &[child.id().to_string(), began]);
        let mut running = Running {
            name,
            child,
            output,
            leash: None,
        };
        running.leash = Some(leash?);
        Ok(running)
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The child itself, for its standard input.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Every line so far, of both streams.
    pub fn lines(&self) -> Vec<String> {
        self.output.lock().all.clone()
    }

    /// Waits for the first line from number `from` on that `wanted` accepts; gives its number and text.
    ///
    /// # Errors
    /// [`Error::Late`] after `limit`, or as soon as the output has ended without it; with the last lines.
    pub fn line_from(
        &self,
        from: usize,
        what: &str,
        limit: Duration,
        mut wanted: impl FnMut(&str) -> bool,
    ) -> Result<(usize, String), Error> {
        let deadline = Instant::now() + limit;
        let mut at = from;
        let mut lines = self.output.lock();
        loop {
            while let Some(line) = lines.all.get(at) {
                if wanted(line) {
                    return Ok((at, line.clone()));
                }
                at += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || lines.ended == 2 {
                return Err(self.late(what, limit, &lines.all));
            }
            lines = self
                .output
                .news
                .wait_timeout(lines, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits for the first line with `text` in it, from the beginning of the output on.
    ///
    /// # Errors
    /// As [`Running::line_from`].
    pub fn line_with(&self, text: &str, limit: Duration) -> Result<String, Error> {
        self.line_from(0, &format!("`{text}`"), limit, |line| line.contains(text))
            .map(|(_, line)| line)
    }

    /// Sends a signal to the process, not to its group.
    ///
    /// # Errors
    /// The process has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        kill(self.target(), signal).map_err(|errno| Error::System {
            doing: format!("send {signal} to {}", self.name),
            source: errno.into(),
        })
    }

    /// SIGSTOP; returns once the kernel shows every thread of it stopped.
    ///
    /// # Errors
    /// It has ended.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)?;
        wait::until_true("a stopped process", wait::PATIENCE, || {
            is_stopped(self.pid())
        })
    }

    /// SIGCONT; returns once it runs again.
    ///
    /// # Errors
    /// It has ended.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)?;
        wait::until_true("a process that goes on", wait::PATIENCE, || {
            !is_stopped(self.pid())
        })
    }

    /// SIGTERM; does not wait.
    ///
    /// # Errors
    /// It has ended.
    pub fn terminate(&self) -> Result<(), Error> {
        self.signal(Signal::SIGTERM)
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(&mut self) -> Result<ExitStatus, Error> {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child
            .wait()
            .map_err(Error::system(format!("wait for {}", self.name)))
    }

    /// How it ended; nothing while it runs.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        self.child
            .try_wait()
            .map_err(Error::system(format!("wait for {}", self.name)))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`Error::Late`] after `limit`, with its last lines; it runs on.
    pub fn end(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        match wait::until("an end", limit, || self.ended()) {
            Err(Error::Late { .. }) => Err(self.late("its end", limit, &self.lines())),
            ended => ended,
        }
    }

    fn target(&self) -> Pid {
        // Process ids of this system fit; the child is not reaped before it is waited for.
        Pid::from_raw(self.child.id().cast_signed())
    }

    fn late(&self, what: &str, waited: Duration, lines: &[String]) -> Error {
        let tail = lines.len().saturating_sub(20);
        Error::Late {
            what: format!("{what} of {}", self.name),
            waited,
            detail: format!(": its last lines were\n{}", lines[tail..].join("\n")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only for a process that is gone, which is what is wanted. SIGKILL reaches a stopped process too.
        let _ = self.kill();
        if let Some(leash) = self.leash.take() {
            leash.release();
        }
    }
}

/// Is every thread of the process stopped by a signal?
pub fn is_stopped(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return false;
    };
    let mut states = threads.flatten().filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        field(&stat, 0).map(|state| state == "T")
    });
    states.all(|stopped| stopped)
}

/// A field of `/proc/PID/stat`, counted after the program's name, whose brackets may hold anything.
fn stat_field(pid: u32, index: usize) -> Option<String> {
    field(
        &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?,
        index,
    )
    .map(str::to_owned)
}

fn field(stat: &str, index: usize) -> Option<&str> {
    stat.rsplit_once(") ")?.1.split(' ').nth(index)
}
