//! The scripted task of the kill runs: twelve steps with parallel tools, each leaving a line that can be counted.

use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use tenure_core::Event;
use tenure_core::event::EventBody;
use tenure_scripted::{Part, Script, Turn};

/// Steps of the task, the closing words not counted.
pub const STEPS: usize = 12;
/// The file in the workspace that every call appends its line to.
pub const EFFECTS: &str = "effects.log";

/// The model's side: each step is asked for until its mark is in the history, so that any process can go on.
pub fn script() -> Script {
    let turns: Vec<Turn> = (0..STEPS).map(turn).collect();
    Script::new(turns)
        .by_history()
        .fallback(Turn::text("All twelve steps are done."))
}

fn turn(step: usize) -> Turn {
    let mut turn = Turn::default()
        .and(Part::reasoning(format!(
            "Step {step:02} comes next; its parts do not depend on each other."
        )))
        .and(Part::text(format!(
            "Now step {step:02}: three calls side by side."
        )));
    for call in commands(step) {
        turn = turn.and(Part::call("bash", json!({ "command": call })));
    }
    turn.name = Some(format!("step {step:02}"));
    turn.skip_if_contains = Some(format!("STEP-{step:02}-DONE"));
    // Some streams are slow enough to be cut in the middle.
    turn.chunk_delay_ms = if step % 3 == 1 { 2 } else { 0 };
    turn
}

/// The three commands of a step. Every line names the guardian of its spawn, which no other spawn has.
fn commands(step: usize) -> [String; 3] {
    let line = |part: char| format!("echo \"{step:02}{part} $TENURE_GUARDIAN\" >> {EFFECTS}");
    // Grandchildren that leave the group, and calls that are still running when the kill comes.
    let first = match step % 4 {
        0 => format!(
            "{}; setsid sleep 300 >/dev/null 2>&1 & sleep 0.03",
            line('a')
        ),
        1 => format!(
            "{}; nohup sleep 300 >/dev/null 2>&1 & sleep 0.01",
            line('a')
        ),
        _ => line('a'),
    };
    let second = format!("{}; sleep 0.0{}", line('b'), step % 5);
    // The mark is in the result only, never in the call.
    let third = format!("{}; echo STEP-{step:02}-$(echo DONE)", line('c'));
    [first, second, third]
}

/// What the effect file and the log say together. Empty when they agree.
///
/// # Errors
/// The file cannot be read, for another reason than that no call ever began.
pub fn disagreements(workspace: &Path, events: &[Event]) -> std::io::Result<Vec<String>> {
    let text = match std::fs::read_to_string(workspace.join(EFFECTS)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    Ok(compare(&text, events))
}

/// How often each marked command was started and succeeded, as the log says.
#[derive(Default)]
struct Counts {
    started: usize,
    succeeded: usize,
}

fn compare(text: &str, events: &[Event]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut spawns = HashSet::new();
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines() {
        let Some((mark, guardian)) = line.split_once(' ') else {
            wrong.push(format!("a line that no call writes: {line:?}"));
            continue;
        };
        if !spawns.insert(guardian) {
            wrong.push(format!("guardian {guardian} ran two commands"));
        }
        *lines.entry(mark).or_default() += 1;
    }
    let counts = counts(events);
    for (mark, lines) in &lines {
        let started = counts.get(*mark).map_or(0, |count| count.started);
        if *lines > started {
            wrong.push(format!(
                "call {mark} ran {lines} times and was started {started} times"
            ));
        }
    }
    for (mark, count) in &counts {
        let lines = lines.get(mark.as_str()).copied().unwrap_or(0);
        if lines < count.succeeded {
            wrong.push(format!(
                "call {mark} succeeded {} times and left {lines} lines",
                count.succeeded
            ));
        }
    }
    wrong
}

fn counts(events: &[Event]) -> BTreeMap<String, Counts> {
    let mut marks = BTreeMap::new();
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    for event in events {
        match &event.body {
            EventBody::ToolCalled(e) => {
                if let Some(mark) = e
                    .input
                    .split_once("echo \\\"")
                    .and_then(|(_, rest)| rest.get(..3))
                {
                    marks.insert((e.message.clone(), e.call.clone()), mark.to_owned());
                }
            }
            EventBody::ToolStarted(e) => {
                if let Some(mark) = marks.get(&(e.message.clone(), e.call.clone())) {
                    counts.entry(mark.clone()).or_default().started += 1;
                }
            }
            EventBody::ToolSucceeded(e) => {
                if let Some(mark) = marks.get(&(e.message.clone(), e.call.clone())) {
                    counts.entry(mark.clone()).or_default().succeeded += 1;
                }
            }
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::body::*;
    use tenure_core::{CallId, EventId, MessageId, SessionId};

    /// Two calls of one step: the first was started and succeeded, the second was started only.
    fn log() -> Vec<Event> {
        let message = MessageId::from_bits(1);
        let called = |part: u32, call: &str, mark: &str| {
            EventBody::from(ToolCalled {
                message: message.clone(),
                part,
                attempt: 1,
                call: CallId::new(call),
                name: "bash".to_owned(),
                input: json!({"command": format!("echo \"{mark} $TENURE_GUARDIAN\" >> {EFFECTS}")})
                    .to_string(),
                executed: false,
                native: None,
            })
        };
        let started = |call: &str| {
            EventBody::from(ToolStarted {
                message: message.clone(),
                call: CallId::new(call),
                generation: 0,
            })
        };
        let succeeded = EventBody::from(ToolSucceeded {
            message: message.clone(),
            call: CallId::new("a"),
            text: "ok".to_owned(),
            title: String::new(),
            metadata: serde_json::Value::Null,
            cut: None,
            native: None,
        });
        let bodies = [
            called(0, "a", "00a"),
            called(1, "b", "00b"),
            started("a"),
            started("b"),
            succeeded,
        ];
        let numbered = bodies.into_iter().enumerate();
        let event = |(seq, body): (usize, EventBody)| Event {
            id: EventId::from_bits(seq as u128),
            session: SessionId::from_bits(1),
            seq: seq as u64,
            epoch: Some(1),
            created_ms: 0,
            body,
        };
        numbered.map(event).collect()
    }

    #[test]
    fn a_started_call_leaves_one_line_or_none_and_a_successful_one_leaves_one() {
        assert_eq!(compare("00a g1\n00b g2\n", &log()), [] as [String; 0]);
        assert_eq!(compare("00a g1\n", &log()), [] as [String; 0]);
        let wrong = |text: &str| compare(text, &log()).join("; ");
        assert!(
            wrong("00a g1\n00a g3\n00b g2\n").contains("00a ran 2 times and was started 1 times")
        );
        assert!(wrong("00b g2\n").contains("00a succeeded 1 times and left 0 lines"));
        assert!(wrong("00a g1\n00c g2\n").contains("00c ran 1 times and was started 0 times"));
        assert!(wrong("00a g1\n00b g1\n").contains("g1 ran two commands"));
        assert!(wrong("00a g1\nodd\n").contains("a line that no call writes"));
    }
}
