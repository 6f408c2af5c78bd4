//! `cargo xtask kill`: SIGKILL of real processes at random points of a scripted task, and what is left checked.

use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use tenure_sim::kill::{Options, run, table};

const USAGE: &str = "usage: kill [--points N] [--seed S] [--only POINT] [--jobs J] [--quiet]";

fn main() -> ExitCode {
    match work() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kill: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn work() -> Result<bool> {
    let options = options(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let began = std::time::Instant::now();
    let points = runtime.block_on(run(&options))?;
    println!("{}", table(&points));
    println!(
        "seed {}, {:.0} s",
        options.seed,
        began.elapsed().as_secs_f64()
    );
    Ok(points.iter().all(|point| point.violations.is_empty()))
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        // Another run, other points; the seed is printed.
        seed: std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |since| since.as_secs()),
        tell: true,
        ..Options::default()
    };
    while let Some(argument) = arguments.next() {
        let mut number = || -> Result<u64> {
            let value = arguments
                .next()
                .with_context(|| format!("`{argument}` needs a number"))?;
            value
                .parse()
                .with_context(|| format!("`{argument}` needs a number, and got `{value}`"))
        };
        match argument.as_str() {
            "--points" => options.points = number()?,
            "--seed" => options.seed = number()?,
            "--only" => options.only = Some(number()?),
            "--jobs" => options.jobs = number()? as usize,
            "--quiet" => options.tell = false,
            _ => bail!("there is no option `{argument}`\n{USAGE}"),
        }
    }
    Ok(options)
}
