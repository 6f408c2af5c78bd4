//! The commands, one file each, and what they have in common.

pub mod answer;
pub mod claims;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod drain;
pub mod interrupt;
pub mod limits;
pub mod log;
pub mod models;
pub mod node;
pub mod nodes;
pub mod resume;
pub mod run;
pub mod scripted;
pub mod sessions;
pub mod show;
pub mod small;
pub mod transfer;
pub mod trust;

use crate::args::Global;
use crate::config::{Config, Flags, load};
use crate::environment::{Environment, working_folder};
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

/// The configuration for a command that needs only the store: a current folder that is gone is no obstacle.
pub fn open(cx: &Context, global: &Global) -> CliResult<Config> {
    let cwd = working_folder(None).unwrap_or_else(|_| "/".into());
    let config = load(&Flags::from(global), &cx.env, &cwd)?;
    if let Some(project) = config.project.as_ref().filter(|p| p.broken.is_some()) {
        project.notice().iter().for_each(|text| notice(text));
    }
    Ok(config)
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
