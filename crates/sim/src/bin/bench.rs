//! `cargo xtask bench`: measures `tenure` and its store in interleaved rounds and prints a Markdown table.

use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use tenure_sim::bench::{GROUPS, MEASURE, Options, SERVE, measure_here, run, serve};

fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A missed target is no failure: the table says it, and a busy machine misses them all.
fn work() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|argument| argument == SERVE).is_some() {
        let script = arguments.next().context("which script?")?;
        return serve(script.to_str().context("a script is text")?);
    }
    if arguments.next_if(|argument| argument == MEASURE).is_some() {
        return measure_here(arguments);
    }
    if cfg!(debug_assertions) {
        eprintln!(
            "bench: this is a debug build; its figures mean nothing. Use `cargo xtask bench`."
        );
    }
    let report = run(&options(std::env::args().skip(1))?)?;
    println!("{}", report.markdown());
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .with_context(|| format!("`{argument}` needs a value"))
        };
        match argument.as_str() {
            "--rounds" => options.rounds = value()?.parse().context("`--rounds` needs a number")?,
            "--only" => {
                let group = value()?;
                if !GROUPS.contains(&group.as_str()) {
                    bail!(
                        "there is no group `{group}`; there are {}",
                        GROUPS.join(", ")
                    );
                }
                options.only.push(group);
            }
            _ => bail!(
                "there is no option `{argument}`; usage: bench [--rounds N] [--only GROUP]..."
            ),
        }
    }
    Ok(options)
}
