//! Built-in tools, permission rules and process guardianship.
//!
//! This crate knows nothing of stores, providers or sessions' logs. A caller makes a [`ToolCx`] for one call, asks
//! the tool what the call would [touch](Tool::access), judges that by its [permission] rules, and runs it.
//!
//! A program that runs the `bash` tool must call [`guardian::maybe_run`] first in `main`: shell commands run under
//! a small helper process, which is the same executable started again.

#[allow(dead_code, unused_imports, reason = "used by the bash tool")]
pub mod guardian;
pub mod input;
mod nearest;
pub mod output;
pub mod permission;
pub mod schema;
pub mod seen;
mod set;
pub mod todo;
mod tool;

pub use output::{OutputLimits, Truncation};
pub use set::ToolSet;
pub use tool::{
    Progress, ProgressSink, SpawnSink, Spawned, Tool, ToolCx, ToolError, ToolOutput, ToolSpec,
};
