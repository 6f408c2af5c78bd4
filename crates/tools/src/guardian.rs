//! Guardian processes: each shell command runs below a helper that ends every descendant when the call ends, when
//! its parent dies, or when the parent's lease is not renewed.
//!
//! The helper is the current executable started again with a hidden first argument; the first call starts it, as a
//! *nursery*, which forks a guardian for that call and for each one after it. Both are single-threaded programs
//! without a runtime. A guardian makes itself the *subreaper* of whatever the command starts: processes that call `setsid`,
//! are started by `nohup` or fork twice come back to it as its children, so that "no children left" is one system
//! call and is the truth.
//!
//! What it cannot do: see a process that something else starts on the command's behalf (a service manager, a
//! container engine, `at`), or end one that runs as another user.

mod clock;
#[cfg(target_os = "linux")]
mod cradle;
mod identity;
#[cfg(target_os = "linux")]
mod kill;
mod lease;
#[cfg(target_os = "linux")]
mod leftover;
#[cfg(target_os = "linux")]
mod nursery;
#[cfg(target_os = "linux")]
mod open_files;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod run;
#[cfg(not(target_os = "linux"))]
mod unsupported;
mod wire;

use std::ffi::OsString;
use std::path::PathBuf;

pub use clock::since_boot;
pub use identity::{boot_id, pid_start};
pub use lease::LeaseDeadline;
#[cfg(target_os = "linux")]
pub use leftover::{Leftover, LeftoverError, kill_leftover};
#[cfg(target_os = "linux")]
pub use open_files::{open_files_before, raise_open_files};
#[cfg(target_os = "linux")]
pub(crate) use process::{Guarded, StartError};
#[cfg(not(target_os = "linux"))]
pub(crate) use unsupported::{Guarded, StartError};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Leftover, LeftoverError, kill_leftover};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{open_files_before, raise_open_files};
pub use wire::{Ended, ExitKind, Killed};
pub(crate) use wire::{Report, Why};

/// The hidden first argument.
pub const GUARDIAN_ARG: &str = "__tenure-guardian";

/// How to start a guardian.
#[derive(Debug, Clone)]
pub struct GuardianCommand {
    /// The program; its `main` must call [`maybe_run`] first.
    pub program: PathBuf,
    /// Its arguments; the first must be [`GUARDIAN_ARG`].
    pub args: Vec<OsString>,
    /// The deadline all guardians of this process share; without one only the pipe from the parent is watched.
    pub lease: Option<LeaseDeadline>,
    /// What forks the guardians, once the first was wanted; shared by all clones.
    #[cfg(target_os = "linux")]
    nursery: std::sync::Arc<nursery::Slot>,
}

impl GuardianCommand {
    /// The current executable. On Linux it is named by `/proc/self/exe`, so that replacing the file on disk (an
    /// upgrade) does not start another version under a running process.
    ///
    /// # Errors
    /// When the executable's path is unknown.
    pub fn current_exe() -> std::io::Result<Self> {
        let link = PathBuf::from("/proc/self/exe");
        Ok(Self::new(if link.exists() {
            link
        } else {
            std::env::current_exe()?
        }))
    }

    /// Another program, such as this crate's `tenure-guardian`.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: vec![GUARDIAN_ARG.into()],
            lease: None,
            #[cfg(target_os = "linux")]
            nursery: std::sync::Arc::default(),
        }
    }

    /// Watches a lease, too.
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseDeadline) -> Self {
        self.lease = Some(lease);
        self
    }
}

/// Becomes the guardian, or what forks guardians, and never returns, when this process was started as one; otherwise
/// does nothing.
///
/// Call it first in `main`: before threads, runtimes and argument parsing.
pub fn maybe_run() {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|arg| arg == GUARDIAN_ARG)
    {
        #[cfg(target_os = "linux")]
        std::process::exit(
            if std::env::args_os()
                .last()
                .is_some_and(|arg| arg == nursery::NURSERY_ARG)
            {
                cradle::main()
            } else {
                run::main()
            },
        );
        #[cfg(not(target_os = "linux"))]
        std::process::exit(unsupported::main());
    }
}
