//! A turn that keeps failing in the same way, so that a runner can stop it before it costs more.

use crate::event::body::{InputKind, ToolFailure};
use crate::message::{Entry, PartKind, ToolPart};
use crate::provider::Finish;
use crate::session::SessionState;

/// The same call, with the same input, may fail this often in a row.
pub const SAME_CALL: u32 = 3;
/// One tool may fail this often in a row, whatever its input.
pub const SAME_TOOL: u32 = 8;

/// What repeats.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "repeating failure: the tool `{tool}` failed {times} times in a row, the last time with: {error}. Say what to \
     do differently, then send another prompt"
)]
pub struct Repeating {
    /// The tool.
    pub tool: String,
    /// How often in a row.
    pub times: u32,
    /// What its last failure said, cut.
    pub error: String,
}

/// Does the turn keep failing the same way? Looks back to the user's last words, step by step: calls made at once
/// count once, since the model had not seen any of their results. Only failures of the model's own making count:
/// not interrupts, lost processes or replaced locations.
pub fn repeating(state: &SessionState) -> Option<Repeating> {
    let mut same_call = 0;
    let mut same_tool = 0;
    let mut identical = true;
    let mut last: Option<&ToolPart> = None;
    for calls in steps_from_the_end(state) {
        let Some(&tool) = calls.first() else { continue };
        if !calls.iter().all(|call| failed_by_itself(call)) {
            break;
        }
        let newest = *last.get_or_insert(tool);
        if tool.name != newest.name {
            break;
        }
        same_tool += 1;
        identical &= tool.input == newest.input;
        same_call += u32::from(identical);
    }
    let times = if same_call >= SAME_CALL {
        same_call
    } else if same_tool >= SAME_TOOL {
        same_tool
    } else {
        return None;
    };
    let newest = last?;
    let text = newest.outcome.as_ref().map_or("", |o| o.text.as_str());
    Some(Repeating {
        tool: newest.name.clone(),
        times,
        error: first_words(text),
    })
}

fn failed_by_itself(call: &ToolPart) -> bool {
    use ToolFailure as F;
    let failure = call.outcome.as_ref().and_then(|outcome| outcome.failure);
    matches!(
        failure,
        Some(F::NotExecuted | F::Failed | F::TimedOut | F::Denied)
    )
}

/// The first line of `text`, cut at a word, without its own full stop.
fn first_words(text: &str) -> String {
    const MOST: usize = 160;
    let line = text.trim().lines().next().unwrap_or_default().trim();
    if line.len() <= MOST {
        return line.trim_end_matches('.').to_owned();
    }
    let cut = &line[..line.floor_char_boundary(MOST)];
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", &cut[..end])
}

/// The local calls of each step since the user's last words, newest first in both.
fn steps_from_the_end(state: &SessionState) -> impl Iterator<Item = Vec<&ToolPart>> {
    state
        .entries
        .iter()
        .rev()
        .take_while(|entry| {
            !matches!(
                entry.as_ref(),
                Entry::Input {
                    input: InputKind::User { .. },
                    ..
                }
            )
        })
        .filter_map(|entry| match entry.as_ref() {
            // A call cut by the output limit is no bad call (the model is told to take smaller steps).
            Entry::Assistant(message)
                if message
                    .end
                    .as_ref()
                    .is_none_or(|e| e.finish != Finish::Length) =>
            {
                let calls = message
                    .parts
                    .iter()
                    .rev()
                    .filter_map(|part| match &part.kind {
                        PartKind::Tool(tool)
                            if !tool.executed && !part.superseded && tool.input.is_some() =>
                        {
                            Some(tool)
                        }
                        _ => None,
                    });
                Some(calls.collect())
            }
            _ => None,
        })
}
