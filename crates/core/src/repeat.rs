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

/// Does the turn keep failing the same way? Looks back to the user's last words. Only failures of the model's
/// own making count: not interrupts, lost processes or replaced locations.
pub fn repeating(state: &SessionState) -> Option<Repeating> {
    let mut same_call = 0;
    let mut same_tool = 0;
    let mut identical = true;
    let mut last: Option<&ToolPart> = None;
    for tool in calls_from_the_end(state) {
        let Some(outcome) = &tool.outcome else { break };
        match outcome.failure {
            Some(ToolFailure::NotExecuted | ToolFailure::Failed) => {}
            Some(ToolFailure::TimedOut | ToolFailure::Denied) => {}
            Some(_) | None => break,
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
        error: text.chars().take(200).collect(),
    })
}

/// Local calls since the user's last words, newest first.
fn calls_from_the_end(state: &SessionState) -> impl Iterator<Item = &ToolPart> {
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
                Some(message.parts.iter().rev())
            }
            _ => None,
        })
        .flatten()
        .filter_map(|part| match &part.kind {
            PartKind::Tool(tool) if !tool.executed && !part.superseded && tool.input.is_some() => {
                Some(tool)
            }
            _ => None,
        })
}
