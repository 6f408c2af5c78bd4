//! The `tenure` program: guardian re-execution, the runtime, and the way from arguments to a command.

mod amounts;
mod answer;
mod args;
mod ask;
mod background;
mod commands;
mod config;
mod demo;
mod environment;
mod exit;
mod export;
mod follow;
mod form;
mod input;
mod machine;
mod node;
mod providers;
mod render;
mod store;
mod waiting;

use args::{Cli, Command};
use clap::Parser;
use commands::Context;
use environment::Environment;
use exit::{CliError, CliResult, Kind};
use render::terminal::Caps;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A shell command's guardian is this program started again: it must not get any further than this.
    tenure_tools::guardian::maybe_run();
    // A tool runs as the same user: it must not read this process's keys from its environment or memory.
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_dumpable(false) {
        eprintln!("tenure: keys could not be shielded from tools: {error}");
    }
    tenure_tools::guardian::raise_open_files();
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            if error.kind != Kind::Quiet {
                // A terminal that has gone cannot be told.
                let _ = writeln!(std::io::stderr(), "{error}");
            }
            ExitCode::from(error.kind.code())
        }
    }
}

fn dispatch(cli: Cli) -> CliResult<u8> {
    let env = Environment::real();
    tracing_to_stderr(&env, matches!(cli.command, Command::Node(_)));
    let cx = Context {
        caps: Caps::detect(&env),
        env,
    };
    let global = cli.global;
    match cli.command {
        Command::Config(args) => commands::config::run(&cx, &global, &args)?,
        Command::Trust(args) => commands::trust::run(&cx, &args)?,
        command => return runtime()?.block_on(in_runtime(&cx, &global, command)),
    }
    Ok(0)
}

async fn in_runtime(cx: &Context, global: &args::Global, command: Command) -> CliResult<u8> {
    match command {
        Command::Run(args) => return commands::run::run(cx, global, args).await,
        Command::Resume(args) => return commands::resume::run(cx, global, args).await,
        Command::Log(args) => return commands::log::run(cx, global, &args).await,
        Command::Interrupt(args) => commands::interrupt::run(cx, global, &args).await?,
        Command::Answer(args) => commands::answer::run(cx, global, &args).await?,
        Command::Cancel(args) => commands::small::cancel(cx, global, &args).await?,
        Command::Sessions(args) => commands::sessions::run(cx, global, &args).await?,
        Command::Show(args) => commands::show::run(cx, global, &args).await?,
        Command::Fork(args) => commands::small::fork(cx, global, &args).await?,
        Command::Delete(args) => commands::small::delete(cx, global, &args).await?,
        Command::Gc(args) => commands::small::gc(cx, global, &args).await?,
        Command::Release(args) => commands::small::release(cx, global, &args).await?,
        Command::Export(args) => commands::transfer::export(cx, global, &args).await?,
        Command::Import(args) => commands::transfer::import(cx, global, &args).await?,
        Command::Doctor(args) => commands::doctor::run(cx, global, &args).await?,
        Command::Demo(args) => commands::demo::run(cx, &args).await?,
        Command::ScriptedModel(args) => commands::scripted::run(args).await?,
        Command::Node(args) => commands::node::run(cx, global, args).await?,
        Command::Nodes(args) => commands::nodes::run(cx, global, &args).await?,
        Command::Claims(args) => commands::claims::run(cx, global, &args).await?,
        Command::Models(args) => commands::models::run(cx, global, &args).await?,
        Command::Limits(args) => commands::limits::run(cx, global, &args).await?,
        Command::Drain(args) => commands::drain::run(cx, global, &args).await?,
        Command::Config(_) | Command::Trust(_) => {}
    }
    Ok(0)
}

/// Diagnostics go to standard error, and only when they are asked for; a background node's go to its log.
fn tracing_to_stderr(env: &Environment, always: bool) {
    let filter = match env.var("TENURE_LOG") {
        Some(filter) => filter.to_owned(),
        None if always => "warn".to_owned(),
        None => return,
    };
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(filter);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
}

/// The runtime, made only for commands that need one.
fn runtime() -> CliResult<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(16)
        .enable_all()
        .build()
        .map_err(|e| CliError::failed(format!("the runtime could not be started: {e}")))
}
