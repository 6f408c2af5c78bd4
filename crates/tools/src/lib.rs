//! Built-in tools, permission rules and process guardianship.
//!
//! This crate knows nothing of stores, providers or sessions' logs. A caller makes a [`ToolCx`] for one call, asks
//! the tool what the call would [touch](Tool::access), judges that by its [permission] rules, and runs it.
//!
//! A program that runs the `bash` tool must call [`guardian::maybe_run`] first in `main`: shell commands run under
//! a small helper process, which is the same executable started again.

pub mod bash;
pub mod edit;
pub mod glob;
pub mod grep;
pub mod guardian;
pub mod input;
mod lock;
mod nearest;
pub mod output;
pub mod path;
pub mod permission;
pub mod read;
pub mod schema;
pub mod seen;
mod set;
mod text;
pub mod todo;
mod tool;
mod walk;
pub mod write;

pub use output::{OutputLimits, Truncation};
pub use set::ToolSet;
pub use tool::{
    AtWork, PathFilter, Progress, ProgressSink, SpawnSink, Spawned, Tool, ToolCx, ToolError,
    ToolOutput, ToolSpec,
};
