//! The benchmarks: interleaved rounds of real processes and of the store alone, medians against their targets.

mod appends;
mod decode;
mod long;
mod owned;
mod postgres;
mod server;
mod syncs;
mod table;
mod turns;
mod usage;

pub use server::{SERVE, serve};
pub use usage::{MEASURE, measure_here};

use anyhow::{Context, Result};
use std::path::Path;
use table::Row;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rounds; each measures everything once, so that a slow minute of the machine hits all alike.
    pub rounds: usize,
    /// Only groups whose name is one of these; all when empty.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 5,
            only: Vec::new(),
        }
    }
}

/// The groups, in the order of the table.
pub const GROUPS: [&str; 7] = [
    "run", "tools", "deltas", "appends", "postgres", "long", "decode",
];

/// What was measured.
#[derive(Debug)]
pub struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    /// As Markdown: the table, then where the time goes.
    pub fn markdown(&self) -> String {
        table::markdown(&self.rows, &self.notes)
    }

    /// Every figure meets its target.
    pub fn met(&self) -> bool {
        self.rows.iter().all(Row::met)
    }
}

/// Measures. Blocking: it waits for processes.
///
/// # Errors
/// There is no `tenure`, or something that is measured fails.
pub fn run(options: &Options) -> Result<Report> {
    let wanted =
        |group: &str| options.only.is_empty() || options.only.iter().any(|one| one == group);
    let mut samples = table::Samples::default();
    if wanted("decode") {
        for _ in 0..options.rounds {
            samples.decode(&decode::measure());
        }
    }
    if options.only == ["decode"] {
        return Ok(Report {
            rows: samples.rows(),
            notes: samples.notes(),
        });
    }
    let tenure = crate::place::tenure()?;
    let long = wanted("long")
        .then(|| long::Session::import(&tenure))
        .transpose()?;
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        one_round(&tenure, &wanted, long.as_ref(), &mut samples)
            .with_context(|| format!("round {}", round + 1))?;
    }
    let mut notes = samples.notes();
    if wanted("tools") {
        notes.extend(syncs::note(&tenure)?);
    }
    Ok(Report {
        rows: samples.rows(),
        notes,
    })
}

fn one_round(
    tenure: &Path,
    wanted: &dyn Fn(&str) -> bool,
    long: Option<&long::Session>,
    samples: &mut table::Samples,
) -> Result<()> {
    // The others are compared with a one-turn run of their own round.
    let base = turns::one_turn(tenure)?;
    if wanted("run") {
        samples.one_turn(&base);
    }
    if wanted("tools") {
        samples.tools(&turns::tool_turns(tenure)?);
    }
    if wanted("deltas") {
        samples.deltas(&turns::deltas(tenure)?, &base);
    }
    if wanted("appends") {
        samples.appends(&appends::measure()?);
    }
    if wanted("postgres")
        && let Some(found) = postgres::measure()?
    {
        samples.postgres(&found);
    }
    if let Some(long) = long {
        samples.long(&long.open()?);
    }
    Ok(())
}

/// The middle value; the mean of the two middle ones of an even number.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
