//! Whole `tenure run` processes: one turn, fifty turns with a tool, one turn of twenty thousand deltas.

use super::median;
use super::server::Server;
use super::usage::{Measured, measure};
use crate::place::Place;
use anyhow::{Result, ensure};
use serde_json::json;
use std::path::Path;

/// Turns that call a tool.
pub(super) const TOOL_TURNS: usize = 50;
/// Deltas of the long answer.
pub(super) const DELTAS: u32 = 20_000;
/// Runs on a store that is there already, of which the middle one counts.
const AGAIN: usize = 5;

/// One-turn runs.
pub(super) struct OneTurn {
    /// The first, which makes the store.
    pub fresh: Measured,
    /// The middle one of those after it, by time.
    pub again: Measured,
}

pub(super) fn one_turn(tenure: &Path) -> Result<OneTurn> {
    let script =
        json!({"version": 1, "turns": [], "fallback": {"parts": [{"text": "It is done."}]}});
    let server = Server::start(&script)?;
    let place = Place::new(tenure, &server.base_url, "openai-chat")?;
    let run = || measure(&place.blocking(&["run", "--allow-all", "Say one word."]));
    let fresh = run()?;
    let mut again = (0..AGAIN).map(|_| run()).collect::<Result<Vec<_>>>()?;
    again.sort_by_key(|one| one.wall);
    Ok(OneTurn {
        fresh,
        again: again[AGAIN / 2],
    })
}

/// Fifty turns with `bash` `true`.
pub(super) struct ToolTurns {
    /// From the end of a response to the next request, the median, in milliseconds.
    pub gap_ms: f64,
    /// CPU of the whole process tree, in milliseconds a turn.
    pub cpu_ms: f64,
}

/// The script of fifty tool turns, used once.
pub(super) fn tool_script() -> serde_json::Value {
    let call = json!({"parts": [{"call": {"name": "bash", "input": {"command": "true"}}}], "times": TOOL_TURNS});
    json!({"version": 1, "turns": [call], "fallback": {"parts": [{"text": "It is done."}]}})
}

pub(super) fn tool_turns(tenure: &Path) -> Result<ToolTurns> {
    let mut server = Server::start(&tool_script())?;
    let place = Place::new(tenure, &server.base_url, "openai-chat")?;
    let measured = measure(&place.blocking(&["run", "--allow-all", "Call it fifty times."]))?;
    let seen = server.requests()?;
    ensure!(
        seen.len() == TOOL_TURNS + 1,
        "{} requests instead of {}",
        seen.len(),
        TOOL_TURNS + 1
    );
    let gaps: Vec<f64> = seen
        .windows(2)
        .filter_map(|pair| Some(pair[1].started_ns.saturating_sub(pair[0].ended_ns?) as f64 / 1e6))
        .collect();
    Ok(ToolTurns {
        gap_ms: median(&gaps),
        cpu_ms: measured.cpu.as_secs_f64() * 1e3 / TOOL_TURNS as f64,
    })
}

pub(super) fn deltas(tenure: &Path) -> Result<Measured> {
    let text = json!({"text": "word ", "deltas": DELTAS});
    let script = json!({"version": 1, "turns": [], "fallback": {"parts": [text]}});
    let server = Server::start(&script)?;
    let place = Place::new(tenure, &server.base_url, "openai-chat")?;
    measure(&place.blocking(&["run", "--allow-all", "Say many words."]))
}
