//! The commands, one file each, and what they have in common.

pub mod config;
pub mod models;
pub mod scripted;
pub mod trust;

use crate::environment::Environment;
use crate::exit::CliResult;
use crate::render::terminal::Caps;
use std::io::Write;

/// What every command is given.
pub struct Context {
    /// Environment variables and folders.
    pub env: Environment,
    /// What the terminal can do.
    pub caps: Caps,
}

/// Writes text to standard output.
pub fn print(text: &str) -> CliResult {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Tells the user something beside the output.
pub fn notice(text: &str) {
    // Nobody can be told that standard error is gone.
    let _ = writeln!(std::io::stderr(), "notice: {text}");
}
