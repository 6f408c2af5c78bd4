//! The summary of a kill run as a Markdown table, and what to do about each violation.

use super::phase::Phase;
use super::point::Point;
use std::fmt::Write;

/// The summary. Every violation comes with the command that makes it again.
pub fn table(points: &[Point]) -> String {
    let mut out = String::from(
        "| killed | kills | takeovers | not executed | outcome unknown |\n|---|---:|---:|---:|---:|\n",
    );
    for phase in Phase::ALL {
        let hits: Vec<_> = points
            .iter()
            .flat_map(|p| &p.hits)
            .filter(|hit| hit.phase == phase)
            .collect();
        let sum =
            |of: fn(&super::point::Hit) -> usize| -> usize { hits.iter().map(|hit| of(hit)).sum() };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {phase} | {} | {} | {} | {} |",
            hits.len(),
            sum(|hit| usize::from(hit.taken_over)),
            sum(|hit| hit.not_executed),
            sum(|hit| hit.unknown),
        );
    }
    let mut spoken: Vec<&str> = points.iter().map(|point| point.plan.protocol).collect();
    spoken.sort_unstable();
    spoken.dedup();
    let _ = writeln!(
        out,
        "\n| wire form | points | kills | model requests |\n|---|---:|---:|---:|"
    );
    for protocol in spoken {
        let of: Vec<&Point> = points
            .iter()
            .filter(|point| point.plan.protocol == protocol)
            .collect();
        let _ = writeln!(
            out,
            "| {protocol} | {} | {} | {} |",
            of.len(),
            of.iter().map(|point| point.hits.len()).sum::<usize>(),
            of.iter().map(|point| point.requests).sum::<usize>(),
        );
    }
    let violations: usize = points.iter().map(|point| point.violations.len()).sum();
    let _ = writeln!(
        out,
        "\n{} points, {} kills, {} charged takeovers, {} quarantined and released, {} prompts, {} model requests, \
         {} tool starts, {violations} violations",
        points.len(),
        points.iter().map(|point| point.hits.len()).sum::<usize>(),
        points.iter().map(|point| point.charged).sum::<usize>(),
        points.iter().filter(|point| point.quarantined).count(),
        points.iter().map(|point| point.prompts).sum::<usize>(),
        points.iter().map(|point| point.requests).sum::<usize>(),
        points.iter().map(|point| point.tools).sum::<usize>(),
    );
    for point in points.iter().filter(|point| !point.violations.is_empty()) {
        let _ = writeln!(out, "\n{point}");
        let _ = writeln!(
            out,
            "  again: cargo xtask kill --seed {} --only {}",
            point.plan.seed, point.plan.number
        );
    }
    out
}
