//! What parent and guardian say to each other: one line per message, JSON.
//!
//! Parent to guardian, on its standard input: [`Order`]. Guardian to parent, on its standard output: [`Report`]. The
//! command's own output goes through the guardian's standard error, which the guardian itself lets go of.

use serde::{Deserialize, Serialize};

/// From the parent. The end of this stream means that the parent is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Begin this shell command, in the directory the guardian was started in. Sent once, after everything that must be durable before is.
    Go(String),
    /// The lease ends when the boot-time clock shows this many nanoseconds.
    Lease(u64),
    /// End everything now.
    Kill,
}

/// From the guardian.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The command could not be started; nothing ran.
    NotStarted(String),
    /// The shell itself ended. Descendants may be left.
    Exited(ExitKind),
    /// Everything is being ended now.
    Ending(Why),
    /// Descendants are being ended and some do not die (another user's, or stuck in the kernel).
    Stuck(Vec<Killed>),
    /// Nothing is left. The last message.
    Done {
        killed: Vec<Killed>,
        more_killed: u64,
    },
}

/// Why the guardian ends what is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// The parent said so, or is gone.
    Order,
    /// The lease was not renewed in time.
    Lease,
    /// Somebody sent the guardian a signal, or it can no longer watch.
    Signal,
    /// The shell is over and something it started is not.
    Leftover,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitKind {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A process the guardian ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Killed {
    /// Its id then.
    pub pid: u32,
    /// Its command line, shortened.
    pub command: String,
    /// Whether the gentle signal was not enough.
    pub hard: bool,
}

/// How a guarded command ended, with everything it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How the shell itself ended; `None` when the guardian was killed and nobody knows.
    pub exit: Option<ExitKind>,
    /// Descendants that were ended, at most 20.
    pub killed: Vec<Killed>,
    /// How many more were ended.
    pub more_killed: u64,
    /// Processes that could not be ended.
    pub stuck: Vec<Killed>,
}

pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Plain data with string keys always has a JSON form.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}
