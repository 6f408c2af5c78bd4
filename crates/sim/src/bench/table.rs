//! Samples of all rounds, their medians, and the table with targets and verdicts.

use super::appends::Appends;
use super::decode::Speed;
use super::long::Opened;
use super::median;
use super::postgres::Shared;
use super::turns::{DELTAS, OneTurn, ToolTurns};
use super::usage::Measured;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Whether small or large is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Good {
    AtMost,
    AtLeast,
}

/// A line of the table.
#[derive(Debug)]
pub(super) struct Row {
    what: &'static str,
    unit: &'static str,
    value: f64,
    spread: (f64, f64),
    good: Good,
    target: f64,
}

impl Row {
    pub(super) fn met(&self) -> bool {
        match self.good {
            Good::AtMost => self.value <= self.target,
            Good::AtLeast => self.value >= self.target,
        }
    }

    fn verdict(&self) -> String {
        if self.met() {
            return "met".to_owned();
        }
        let (over, word) = match self.good {
            Good::AtMost => (self.value / self.target, "over"),
            Good::AtLeast => (self.target / self.value, "short"),
        };
        format!("missed: {over:.2} times {word}")
    }
}

/// What is measured, in the order of the table: name, unit, direction, fixed target.
const FIGURES: [(&str, &str, Good, f64); 25] = [
    ("one-turn `tenure run`, wall", "ms", Good::AtMost, 80.0),
    (
        "one-turn `tenure run` on a fresh store, wall",
        "ms",
        Good::AtMost,
        80.0,
    ),
    (
        "one-turn `tenure run`, peak memory",
        "MiB",
        Good::AtMost,
        40.0,
    ),
    (
        "50 tool turns, response to next request",
        "ms",
        Good::AtMost,
        10.0,
    ),
    (
        "50 tool turns, CPU of all processes a turn",
        "ms",
        Good::AtMost,
        5.0,
    ),
    ("20,000 deltas, CPU a delta", "µs", Good::AtMost, 6.0),
    (
        "append of one session / bare write and flush",
        "×",
        Good::AtMost,
        1.5,
    ),
    ("appends of 16 sessions", "/s", Good::AtLeast, f64::NAN),
    ("appends of 128 sessions", "/s", Good::AtLeast, f64::NAN),
    (
        "100,000 events, process start to first request",
        "ms",
        Good::AtMost,
        150.0,
    ),
    (
        "100,000 events, load by the engine alone",
        "ms",
        Good::AtMost,
        150.0,
    ),
    ("one-turn `tenure run`, CPU", "ms", Good::AtMost, 80.0),
    (
        "PostgreSQL: appends of 256 sessions / one transaction of one statement per event",
        "×",
        Good::AtLeast,
        8.0,
    ),
    (
        "PostgreSQL: appends of 256 sessions / one usual transaction per event",
        "×",
        Good::AtLeast,
        8.0,
    ),
    (
        "PostgreSQL: appends of 256 sessions / the same on 16 connections",
        "×",
        Good::AtLeast,
        1.0,
    ),
    (
        "decode Chat Completions, small deltas",
        "MB/s",
        Good::AtLeast,
        200.0,
    ),
    (
        "decode Chat Completions, large deltas",
        "MB/s",
        Good::AtLeast,
        200.0,
    ),
    (
        "decode Responses, small deltas",
        "MB/s",
        Good::AtLeast,
        200.0,
    ),
    (
        "decode Responses, large deltas",
        "MB/s",
        Good::AtLeast,
        200.0,
    ),
    (
        "decode Messages, small deltas",
        "MB/s",
        Good::AtLeast,
        200.0,
    ),
    (
        "decode Messages, large deltas",
        "MB/s",
        Good::AtLeast,
        200.0,
    ),
    ("decode Gemini, small deltas", "MB/s", Good::AtLeast, 200.0),
    ("decode Gemini, large deltas", "MB/s", Good::AtLeast, 200.0),
    ("decode Bedrock, small deltas", "MB/s", Good::AtLeast, 200.0),
    ("decode Bedrock, large deltas", "MB/s", Good::AtLeast, 200.0),
];

/// The first of the decode figures; each stream says which one after it is its own.
const FIRST_DECODE: usize = 15;

/// The samples of all rounds.
#[derive(Debug, Default)]
pub(super) struct Samples {
    values: BTreeMap<usize, Vec<f64>>,
    targets: BTreeMap<usize, Vec<f64>>,
    bare: Vec<f64>,
    handed: Vec<f64>,
    single: Vec<f64>,
    one: Vec<f64>,
    bytes: Vec<f64>,
    grouped: Vec<f64>,
    alone: Vec<f64>,
    transactions: Vec<f64>,
    usual: Vec<f64>,
    no_flush: bool,
    our_cpu: Vec<f64>,
    server_cpu: Vec<f64>,
    side_by_side: Vec<f64>,
}

impl Samples {
    fn add(&mut self, figure: usize, value: f64) {
        self.values.entry(figure).or_default().push(value);
    }

    fn add_against(&mut self, figure: usize, value: f64, target: f64) {
        self.add(figure, value);
        self.targets.entry(figure).or_default().push(target);
    }

    pub(super) fn one_turn(&mut self, runs: &OneTurn) {
        self.add(0, runs.again.wall.as_secs_f64() * 1e3);
        self.add(1, runs.fresh.wall.as_secs_f64() * 1e3);
        self.add(
            2,
            runs.again.peak.max(runs.fresh.peak) as f64 / f64::from(1 << 20),
        );
        self.add(11, runs.again.cpu.as_secs_f64() * 1e3);
    }

    pub(super) fn tools(&mut self, turns: &ToolTurns) {
        self.add(3, turns.gap_ms);
        self.add(4, turns.cpu_ms);
    }

    pub(super) fn deltas(&mut self, run: &Measured, base: &OneTurn) {
        let more = run.cpu.saturating_sub(base.again.cpu);
        self.add(5, more.as_secs_f64() * 1e6 / f64::from(DELTAS));
    }

    pub(super) fn appends(&mut self, found: &Appends) {
        self.add(6, found.single_us / found.bare_us);
        self.add_against(7, found.sixteen, (8.0 * found.one).min(10_000.0));
        self.add_against(8, found.many, (12.0 * found.one).min(12_000.0));
        self.single.push(found.single_us);
        self.bare.push(found.bare_us);
        self.handed.push(found.handed_us);
        self.one.push(found.one);
        self.bytes.push(found.bytes);
    }

    pub(super) fn postgres(&mut self, found: &Shared) {
        self.add(12, found.grouped / found.single);
        self.add(13, found.grouped / found.usual);
        self.add(14, found.grouped / found.many);
        self.grouped.push(found.grouped);
        self.alone.push(found.one);
        self.transactions.push(found.single);
        self.usual.push(found.usual);
        self.no_flush |= !found.flushes;
        self.our_cpu.push(found.cpu_us.0);
        self.server_cpu.extend(found.cpu_us.1);
        self.side_by_side.push(found.many);
    }

    pub(super) fn decode(&mut self, speeds: &[Speed]) {
        for speed in speeds {
            self.add(FIRST_DECODE + speed.figure, speed.mb_per_s);
        }
    }

    pub(super) fn long(&mut self, opened: &Opened) {
        self.add(9, opened.request.as_secs_f64() * 1e3);
        self.add(10, opened.load.as_secs_f64() * 1e3);
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |(figure, values): (&usize, &Vec<f64>)| {
            let (what, unit, good, fixed) = FIGURES[*figure];
            let target = self
                .targets
                .get(figure)
                .map_or(fixed, |targets| median(targets));
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            Row {
                what,
                unit,
                value: median(values),
                spread: (least, most),
                good,
                target,
            }
        };
        self.values.iter().map(row).collect()
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.single.is_empty() {
            notes.push(format!(
                "One session's append takes {:.0} µs and writes {:.0} bytes of log; a bare write and flush of as \
                 many takes {:.0} µs, {:.0} when it is handed to another thread and answered by it, as an append is. One \
                 session alone makes {:.0} appends a second.",
                median(&self.single),
                median(&self.bytes),
                median(&self.bare),
                median(&self.handed),
                median(&self.one)
            ));
        }
        if !self.grouped.is_empty() {
            notes.push(format!(
                "On PostgreSQL 256 sessions of one process make {:.0} appends a second and one session alone {:.0}. One \
                 transaction per event makes, on one connection, {:.0} as a single statement and {:.0} as it is usually \
                 written (BEGIN, look, insert, update, COMMIT), and {:.0} as a single statement on 16 connections. An \
                 append of the 256 costs {:.1} µs of this process's CPU and {:.1} µs of the server's. {}",
                median(&self.grouped),
                median(&self.alone),
                median(&self.transactions),
                median(&self.usual),
                median(&self.side_by_side),
                median(&self.our_cpu),
                median(&self.server_cpu),
                if self.no_flush {
                    "The server did NOT flush its commits: these are not the figures of one that keeps its data."
                } else {
                    "The server flushes every commit (fsync and synchronous_commit are on)."
                }
            ));
        }
        if self.values.contains_key(&FIRST_DECODE) {
            notes.push(
                "Decode speeds count bytes of the body and time on the core. A small delta is a token or two in an event \
                 of 140 to 300 bytes, a large one four kilobytes of escaped source code."
                    .to_owned(),
            );
        }
        notes
    }
}

/// The table, then the notes.
pub(super) fn markdown(rows: &[Row], notes: &[String]) -> String {
    let mut out = String::from(
        "| what | median | least – most | target | verdict |\n|---|---:|---:|---:|---|\n",
    );
    for row in rows {
        let sign = if row.good == Good::AtMost {
            "≤"
        } else {
            "≥"
        };
        let shown = |value: f64| {
            if value >= 1_000.0 {
                format!("{value:.0}")
            } else {
                format!("{value:.2}")
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {} {} | {} – {} | {sign} {} | {} |",
            row.what,
            shown(row.value),
            row.unit,
            shown(row.spread.0),
            shown(row.spread.1),
            shown(row.target),
            row.verdict()
        );
    }
    for note in notes {
        let _ = write!(out, "\n{note}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_figure_says_by_how_much() {
        let row = |good, value| Row {
            what: "x",
            unit: "ms",
            value,
            spread: (1.0, 2.0),
            good,
            target: 10.0,
        };
        assert_eq!(row(Good::AtMost, 10.0).verdict(), "met");
        assert_eq!(row(Good::AtMost, 25.0).verdict(), "missed: 2.50 times over");
        assert_eq!(
            row(Good::AtLeast, 5.0).verdict(),
            "missed: 2.00 times short"
        );
        let table = markdown(&[row(Good::AtLeast, 2_345.6)], &["Why.".to_owned()]);
        assert!(
            table.contains("| x | 2346 ms | 1.00 – 2.00 | ≥ 10.00 | met |"),
            "{table}"
        );
        assert!(table.ends_with("\nWhy.\n"));
    }
}
