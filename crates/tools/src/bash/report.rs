//! What the model is told about a finished command.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::run::{Finished, Stopped};
use crate::guardian::{ExitKind, Killed};
use crate::tool::{ToolError, ToolOutput};

/// Turns a run into a result, or into the error that says who stopped it.
pub(super) fn report(command: &str, finished: Finished) -> Result<ToolOutput, ToolError> {
    let metadata = metadata(&finished);
    let truncation = finished.collected.truncation.clone();
    let notes = notes(&finished);
    let title = crate::output::cut(command.lines().next().unwrap_or_default(), 100).to_owned();
    if let Some(stopped) = finished.stopped {
        let text = stopped_text(stopped, &finished, &notes);
        return Err(match stopped {
            Stopped::Interrupt | Stopped::Lease | Stopped::Signal => ToolError::Interrupted {
                text,
                metadata,
                truncation,
            },
            Stopped::TimeLimit(_) => ToolError::TimedOut {
                text,
                metadata,
                truncation,
            },
        });
    }
    if finished.guardian_lost {
        let text = format!(
            "The process that watched this command was killed; what the command started has been ended, and how far \
             it came is not known.{}",
            output_part(&finished, &notes)
        );
        return Err(ToolError::Failed {
            text,
            metadata,
            truncation,
        });
    }
    let mut text = finished.collected.text;
    let exit = match finished.ended.exit {
        Some(ExitKind::Code(0)) if text.is_empty() => Some("(no output, exit code 0)".to_owned()),
        Some(ExitKind::Code(0)) => None,
        Some(ExitKind::Code(code)) if text.is_empty() => {
            Some(format!("(no output, exit code {code})"))
        }
        Some(kind) => Some(format!("[{}]", how_it_ended(kind))),
        None => Some("[how the command ended is not known]".to_owned()),
    };
    for line in exit.into_iter().chain(notes) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&line);
    }
    Ok(ToolOutput {
        text,
        title,
        metadata,
        truncation,
    })
}

fn stopped_text(stopped: Stopped, finished: &Finished, notes: &[String]) -> String {
    let took = seconds(finished.took);
    let by = match stopped {
        Stopped::Interrupt => format!("The command was stopped by an interrupt after {took}"),
        Stopped::TimeLimit(limit) => {
            format!(
                "The command was stopped after {took}: its time limit of {} had passed",
                seconds(limit)
            )
        }
        Stopped::Lease => {
            format!("The command was stopped after {took}: the process that ran it lost its lease")
        }
        Stopped::Signal => {
            format!(
                "The command was stopped after {took}: a signal was sent to the process that watched it"
            )
        }
    };
    let end = match finished.ended.exit {
        Some(kind) => format!("; {}", how_it_ended(kind)),
        None if finished.gave_up => "; it had not ended yet when this was written".to_owned(),
        None => String::new(),
    };
    format!("{by}{end}.{}", output_part(finished, notes))
}

fn output_part(finished: &Finished, notes: &[String]) -> String {
    let mut text = String::new();
    for note in notes {
        text.push_str(&format!("\n{note}"));
    }
    if finished.collected.total_bytes == 0 {
        text.push_str("\nIt had printed nothing.");
    } else {
        text.push_str("\nIts output up to then:\n");
        text.push_str(&finished.collected.text);
    }
    text
}

fn notes(finished: &Finished) -> Vec<String> {
    let mut notes = Vec::new();
    let ended = &finished.ended;
    if !ended.killed.is_empty() {
        let reason = if finished.stopped.is_some() {
            "also ended"
        } else {
            "still running after the shell; ended with the call"
        };
        let more = if ended.more_killed > 0 {
            format!(" and {} more", ended.more_killed)
        } else {
            String::new()
        };
        notes.push(format!("[{reason}: {}{more}]", list(&ended.killed)));
    }
    if !ended.stuck.is_empty() {
        notes.push(format!("[could not be ended: {}]", list(&ended.stuck)));
    }
    if finished.held {
        notes.push("[something that this command did not start itself still holds its output; the rest is not read]".into());
    }
    if finished.gave_up && ended.stuck.is_empty() {
        notes.push("[what the command started is still being ended]".into());
    }
    notes
}

fn list(killed: &[Killed]) -> String {
    let one = |k: &Killed| {
        format!(
            "`{}` (pid {}{})",
            crate::output::cut(&k.command, 80),
            k.pid,
            if k.hard { ", by SIGKILL" } else { "" }
        )
    };
    killed.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn how_it_ended(kind: ExitKind) -> String {
    match kind {
        ExitKind::Code(code) => format!("exit code {code}"),
        ExitKind::Signal(number) => match Signal::try_from(number) {
            Ok(signal) => format!("ended by {signal}"),
            Err(_) => format!("ended by signal {number}"),
        },
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn metadata(finished: &Finished) -> Value {
    let (code, signal) = match finished.ended.exit {
        Some(ExitKind::Code(code)) => (Some(code), None),
        Some(ExitKind::Signal(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    json!({
        "begun": true,
        "exit_code": code,
        "signal": signal,
        "took_ms": u64::try_from(finished.took.as_millis()).unwrap_or(u64::MAX),
        "output_bytes": finished.collected.total_bytes,
        "stopped_by": finished.stopped.map(|s| match s {
            Stopped::Interrupt => "interrupt",
            Stopped::TimeLimit(_) => "time_limit",
            Stopped::Lease => "lease",
            Stopped::Signal => "signal",
        }),
        "killed": finished.ended.killed,
        "more_killed": finished.ended.more_killed,
        "stuck": finished.ended.stuck,
        "output_held": finished.held,
    })
}
