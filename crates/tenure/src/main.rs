//! The `tenure` program: guardian re-execution, the runtime, and the way from arguments to a command.

#![allow(
    dead_code,
    unused_imports,
    reason = "the commands that use the rest follow"
)]

mod args;
mod commands;
mod config;
mod environment;
mod exit;
mod export;
mod input;
mod render;

use args::{Cli, Command};
use clap::Parser;
use commands::Context;
use environment::Environment;
use exit::{CliError, CliResult, Kind};
use render::terminal::Caps;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A shell command's guardian is this program started again: it must not get any further than this.
    tenure_tools::guardian::maybe_run();
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            if error.kind != Kind::Quiet {
                eprintln!("{error}");
            }
            ExitCode::from(error.kind.code())
        }
    }
}

fn dispatch(cli: Cli) -> CliResult<u8> {
    let env = Environment::real();
    let cx = Context {
        caps: Caps::detect(&env),
        env,
    };
    let global = &cli.global;
    match cli.command {
        Command::Config(args) => commands::config::run(&cx, global, &args)?,
        Command::Trust(args) => commands::trust::run(&cx, &args)?,
        Command::Models(args) => commands::models::run(&cx, global, &args)?,
        Command::ScriptedModel(args) => runtime()?.block_on(commands::scripted::run(args))?,
        _ => return Err(CliError::failed("not wired yet")),
    }
    Ok(0)
}

/// The runtime, made only for commands that need one.
fn runtime() -> CliResult<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .map_err(|e| CliError::failed(format!("the runtime could not be started: {e}")))
}
