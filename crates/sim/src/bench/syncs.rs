//! Where the time of a tool turn goes: system calls that flush or start something, counted by `strace` where there is one.

use super::server::Server;
use super::turns::{TOOL_TURNS, tool_script};
use crate::place::Place;
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};

const CALLS: &str = "trace=fdatasync,fsync,execve,clone,clone3,vfork,fork";

/// One sentence; none without `strace`.
pub(super) fn note(tenure: &Path) -> Result<Option<String>> {
    let server = Server::start(&tool_script())?;
    let place = Place::new(tenure, &server.base_url, "openai-chat")?;
    let plain = place.blocking(&["run", "--allow-all", "Call it fifty times."]);
    let report = place.workspace().join("strace.txt");
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-c", "-e", CALLS, "-o"])
        .arg(&report)
        .arg(plain.get_program())
        .args(plain.get_args());
    traced.current_dir(place.workspace()).env_clear();
    for (name, value) in plain.get_envs() {
        if let Some(value) = value {
            traced.env(name, value);
        }
    }
    let ran = traced
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !ran.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let counts = counts(&std::fs::read_to_string(report)?);
    let per_turn: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{:.1} {name}", *count as f64 / TOOL_TURNS as f64))
        .collect();
    Ok(Some(format!(
        "A tool turn makes {} (whole run divided by its turns).",
        per_turn.join(", ")
    )))
}

/// Call names with their counts, of the summary of `strace -c`.
fn counts(summary: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = *words.last()?;
        // % time, seconds, usecs/call, calls, and errors when there were some.
        let calls = words.get(3)?.parse().ok()?;
        (name != "total" && words[0].parse::<f64>().is_ok()).then(|| (name.to_owned(), calls))
    };
    summary.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n \
                    60.00    0.001000          10       100           fdatasync\n \
                    40.00    0.000500          10        50         3 execve\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.001500                   150         3 total\n";
        assert_eq!(
            counts(text),
            [("fdatasync".to_owned(), 100), ("execve".to_owned(), 50)]
        );
    }
}
