//! Tool calls in the transcript: one line when a call is settled, with output when more is wanted.

use super::{Detail, Last, Transcript};
use crate::commands::answer;
use crate::render::escape::{safe, safe_line};
use crate::render::spans::Style;
use crate::render::{human, width};
use tenure_core::event::body::{OutputCut, PermissionAsked, ToolFailure};
use tenure_core::event::{Event, EventBody};
use tenure_core::{CallId, MessageId, SessionId};

/// Lines of output shown when some of it is wanted.
const SOME_LINES: usize = 6;

/// A call that is not settled.
pub struct Call {
    name: String,
    input: String,
    since_ms: i64,
    open: Open,
}

/// How far an open call has come.
enum Open {
    /// The model is still writing its input.
    Arriving,
    /// It has not begun.
    Called,
    /// A question about it waits for an answer, in this session.
    Asked(SessionId, PermissionAsked),
    /// It has begun.
    Running,
}

impl Transcript {
    pub(super) fn tool(&mut self, event: &Event) -> Vec<String> {
        match &event.body {
            // A call whose input never arrives whole is settled too, and has a name.
            EventBody::ToolInputStarted(started) => {
                let call = Call {
                    name: started.name.clone(),
                    input: String::new(),
                    since_ms: event.created_ms,
                    open: Open::Arriving,
                };
                self.calls
                    .insert((started.message.clone(), started.call.clone()), call);
                Vec::new()
            }
            EventBody::ToolCalled(called) => {
                let call = Call {
                    name: called.name.clone(),
                    input: called.input.clone(),
                    since_ms: event.created_ms,
                    // What the provider runs itself is under way as it is called.
                    open: if called.executed {
                        Open::Running
                    } else {
                        Open::Called
                    },
                };
                self.calls
                    .insert((called.message.clone(), called.call.clone()), call);
                Vec::new()
            }
            EventBody::ToolStarted(started) => {
                let key = (started.message.clone(), started.call.clone());
                if let Some(call) = self.calls.get_mut(&key) {
                    call.since_ms = event.created_ms;
                    call.open = Open::Running;
                }
                Vec::new()
            }
            EventBody::PermissionAsked(asked) => {
                let key = (asked.message.clone(), asked.call.clone());
                if let Some(call) = self.calls.get_mut(&key) {
                    call.open = Open::Asked(event.session.clone(), asked.clone());
                }
                Vec::new()
            }
            EventBody::ToolSucceeded(done) => {
                let call = self
                    .calls
                    .remove(&(done.message.clone(), done.call.clone()));
                // The call succeeded as a call; what it ran may have failed.
                let (mark, colour, how) = match exit_words(&done.metadata) {
                    Some(how) => ("!", Style::YELLOW, how),
                    None => ("✓", Style::GREEN, String::new()),
                };
                let outcome = Outcome {
                    mark,
                    colour,
                    how,
                    reason: "",
                    title: &done.title,
                    text: &done.text,
                    cut: done.cut.as_ref(),
                };
                self.settled(call, event.created_ms, &outcome)
            }
            EventBody::ToolFailed(done) => {
                let call = self
                    .calls
                    .remove(&(done.message.clone(), done.call.clone()));
                let outcome = Outcome {
                    mark: "✗",
                    colour: Style::RED,
                    how: failure_words(done.failure).to_owned(),
                    reason: reason(&done.text, failure_words(done.failure)),
                    title: "",
                    text: &done.text,
                    cut: done.cut.as_ref(),
                };
                self.settled(call, event.created_ms, &outcome)
            }
            _ => Vec::new(),
        }
    }

    /// A question has its answer.
    pub(super) fn answered(&mut self, message: &MessageId, call: &CallId) {
        if let Some(call) = self.calls.get_mut(&(message.clone(), call.clone())) {
            call.open = Open::Called;
        }
    }

    /// The calls that are not settled, with the questions that wait; `owned`: somebody runs the session now.
    pub fn open_calls(&mut self, now_ms: i64, owned: bool) -> Vec<String> {
        let mut calls: Vec<_> = self.calls.iter().collect();
        calls.sort_by_key(|(key, call)| (call.since_ms, *key));
        let look = self.drawing.look;
        let yellow = Style::colour(Style::YELLOW);
        let mut lines = Vec::new();
        let asking = calls
            .iter()
            .filter(|(_, call)| matches!(call.open, Open::Asked(..)))
            .count();
        for (_, call) in calls {
            let how = match &call.open {
                Open::Arriving => "its input arrives",
                Open::Called => "not begun",
                Open::Asked(..) => "waits for an answer",
                Open::Running if owned => "running",
                Open::Running => "begun, not settled: nobody runs the session now",
            };
            let name = safe_line(&call.name);
            let time = human::elapsed(human::between(call.since_ms, now_ms));
            let used = 2 + width::of(&name) + 2 + 2 + width::of(how) + 2 + width::of(&time);
            let room = look.width.saturating_sub(used).max(20);
            lines.push(format!(
                "{} {}  {}{}{}",
                yellow.paint("⋯", look.colour),
                Style::bold().paint(&name, look.colour),
                width::cut(&input_summary(&call.input), room),
                yellow.paint(&format!("  {how}"), look.colour),
                Style::dim().paint(&format!("  {time}"), look.colour)
            ));
            if let Open::Asked(session, asked) = &call.open {
                let question = safe(&asked.question);
                lines.extend(
                    question
                        .lines()
                        .map(|l| yellow.paint(&format!("  ? {l}"), look.colour)),
                );
                let answers = answer::commands(session, asked, asking > 1);
                lines.extend(answers.iter().map(|l| format!("    {l}")));
            }
        }
        self.block(Last::Tool, lines)
    }

    fn settled(&mut self, call: Option<Call>, now_ms: i64, outcome: &Outcome<'_>) -> Vec<String> {
        let look = self.drawing.look;
        let (name, input, time) = match call {
            Some(call) => (call.name, call.input, human::between(call.since_ms, now_ms)),
            None => ("tool".to_owned(), String::new(), std::time::Duration::ZERO),
        };
        let title = if outcome.title.is_empty() {
            input_summary(&input)
        } else {
            safe_line(outcome.title)
        };
        let mut tail = String::new();
        if !outcome.how.is_empty() {
            tail.push_str(&format!("  {}", outcome.how));
            let reason = safe_line(outcome.reason);
            if self.drawing.detail == Detail::Brief && !reason.is_empty() {
                tail.push_str(&format!(": {reason}"));
            }
        }
        let time = format!("  {}", human::elapsed(time));
        let name = safe_line(&name);
        // The line stays one: the reason gives way first, but neither of the two is lost.
        let used = 2 + width::of(&name) + 2 + width::of(&time);
        let room = look.width.saturating_sub(used);
        let title = width::cut(&title, room.saturating_sub(width::of(&tail)).max(room / 2));
        let tail = match room.saturating_sub(width::of(&title)) {
            left if tail.is_empty() || left < 4 => String::new(),
            left => width::cut(&tail, left),
        };
        let line = format!(
            "{} {}  {}{}{}",
            Style::colour(outcome.colour).paint(outcome.mark, look.colour),
            Style::bold().paint(&name, look.colour),
            title,
            Style::colour(outcome.colour).paint(&tail, look.colour),
            Style::dim().paint(&time, look.colour)
        );
        let mut lines = vec![line];
        self.details(&input, outcome, &mut lines);
        self.block(Last::Tool, lines)
    }

    fn details(&self, input: &str, outcome: &Outcome<'_>, lines: &mut Vec<String>) {
        let limit = match self.drawing.detail {
            Detail::Brief => return,
            Detail::Some => SOME_LINES,
            Detail::Full => usize::MAX,
        };
        let colour = self.drawing.look.colour;
        let dim = |text: &str| Style::dim().paint(text, colour);
        if self.drawing.detail == Detail::Full && !input.is_empty() {
            lines.extend(safe(input).lines().map(|l| dim(&format!("  < {l}"))));
        }
        let text = safe(outcome.text);
        let all: Vec<&str> = text.trim_end().lines().collect();
        lines.extend(all.iter().take(limit).map(|l| dim(&format!("  │ {l}"))));
        if all.len() > limit {
            lines.push(dim(&format!(
                "  … {} more lines (--full shows them)",
                all.len() - limit
            )));
        }
        if let Some(cut) = outcome.cut {
            lines.push(dim(&format!(
                "  … all {} are in {}",
                human::bytes(cut.total_bytes),
                safe_line(&cut.full_path)
            )));
        }
    }
}

struct Outcome<'a> {
    mark: &'static str,
    colour: u8,
    how: String,
    /// Why, beside `how`, on one line; empty when there is nothing to add.
    reason: &'a str,
    title: &'a str,
    text: &'a str,
    cut: Option<&'a OutputCut>,
}

/// How a call that did not succeed ended.
pub fn failure_words(failure: ToolFailure) -> &'static str {
    match failure {
        ToolFailure::NotExecuted => "not executed",
        ToolFailure::Failed => "failed",
        ToolFailure::Denied => "denied",
        ToolFailure::Interrupted => "interrupted",
        ToolFailure::TimedOut => "timed out",
        ToolFailure::OutcomeUnknown => "outcome unknown",
        ToolFailure::Stale => "stale",
    }
}

/// How a command ended that ran and did not end well, as the tool that ran it tells.
fn exit_words(metadata: &serde_json::Value) -> Option<String> {
    let number = |key: &str| metadata.get(key).and_then(serde_json::Value::as_i64);
    match (number("exit_code"), number("signal")) {
        (Some(0) | None, None) => None,
        (_, Some(signal)) => Some(format!("ended by signal {signal}")),
        (Some(code), None) => Some(format!("exit code {code}")),
    }
}

/// The first line of a result, without the label that says the same as `how`.
fn reason<'a>(text: &'a str, how: &str) -> &'a str {
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty());
    let first = lines.next().unwrap_or("");
    match first.split_once(':') {
        Some((label, rest)) if label.eq_ignore_ascii_case(how) => {
            // Where nobody can be asked, the refusal has words of its own for it.
            let rest = rest.trim();
            match rest.strip_prefix("Permission denied:").unwrap_or(rest) {
                "" => lines.next().unwrap_or(""),
                rest => rest.trim_start(),
            }
        }
        _ => first,
    }
}

/// The part of a tool's input that says most, on one line.
pub fn input_summary(input: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(input) else {
        return safe_line(input);
    };
    for key in ["command", "path", "file_path", "pattern", "query", "url"] {
        if let Some(text) = fields.get(key).and_then(|v| v.as_str()) {
            return safe_line(text);
        }
    }
    if fields.is_empty() {
        String::new()
    } else {
        safe_line(input)
    }
}
