//! `cargo xtask mutants`: each rule is broken once, and the test that shows it must turn red.
//!
//! A switch is set for a whole test process by the environment, so any test of any crate can be the witness.

use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::process::{Command, Stdio};
use tenure_store::mutation::{Mutation, VARIABLE};

/// What one witness did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Green,
    Red,
    /// No test of that name ran.
    Missing,
}

/// A switch and what came of it.
#[derive(Debug)]
pub struct Row {
    mutation: Mutation,
    /// Without the switch.
    clean: Verdict,
    /// With it.
    broken: Verdict,
}

impl Row {
    /// The test passes, and fails when its rule is broken.
    pub fn is_caught(&self) -> bool {
        self.clean == Verdict::Green && self.broken == Verdict::Red
    }
}

/// Runs the witnesses of the switches whose names contain `filter`, first as they are, then with the switch set.
///
/// # Errors
/// The tests cannot be built or the runner cannot be started.
pub fn run(filter: &str) -> Result<Vec<Row>> {
    let chosen: Vec<Mutation> = Mutation::ALL
        .iter()
        .copied()
        .filter(|mutation| mutation.name().contains(filter))
        .collect();
    if chosen.is_empty() {
        bail!("no switch has `{filter}` in its name");
    }
    let mut rows = Vec::with_capacity(chosen.len());
    for mutation in chosen {
        let (package, test) = mutation
            .witness()
            .split_once(' ')
            .with_context(|| format!("{} names no test", mutation.name()))?;
        let clean = witness(package, test, None)?;
        let broken = witness(package, test, Some(mutation))?;
        let row = Row {
            mutation,
            clean,
            broken,
        };
        eprintln!("{}", line(&row));
        rows.push(row);
    }
    Ok(rows)
}

/// Runs one test by its exact name.
fn witness(package: &str, test: &str, mutation: Option<Mutation>) -> Result<Verdict> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["nextest", "run", "-p", package, "--no-fail-fast"])
        .args(["--retries", "0", "-E", &format!("test(={test})")])
        .stdin(Stdio::null())
        .env_remove(VARIABLE);
    if let Some(mutation) = mutation {
        command.env(VARIABLE, mutation.name());
    }
    let output = command.output().context("cargo-nextest cannot be run")?;
    match output.status.code() {
        Some(0) => Ok(Verdict::Green),
        Some(100) => Ok(Verdict::Red),
        Some(4) => Ok(Verdict::Missing),
        code => bail!(
            "`{package} {test}` could not be run ({code:?}):\n{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}

fn line(row: &Row) -> String {
    let said = match (row.clean, row.broken) {
        (Verdict::Green, Verdict::Red) => "caught",
        (Verdict::Green, Verdict::Green) => "SURVIVES",
        (Verdict::Missing, _) | (_, Verdict::Missing) => "NO SUCH TEST",
        (Verdict::Red, _) => "RED WITHOUT IT",
    };
    format!(
        "| {} | {} | `{}` | {said} |",
        row.mutation.rule(),
        row.mutation.name(),
        row.mutation.witness()
    )
}

/// The table of all rows, and how many were caught.
pub fn table(rows: &[Row]) -> String {
    let mut text =
        String::from("| rule | switch | test that shows it | verdict |\n|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(text, "{}", line(row));
    }
    let caught = rows.iter().filter(|row| row.is_caught()).count();
    let _ = writeln!(text, "\n{caught} of {} caught", rows.len());
    text
}
