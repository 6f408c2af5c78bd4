//! When history is too long, what is summarised and what stays. Pure; the runner makes the request.

use crate::event::body::{CompactionReason, InputKind};
use crate::history::input_parts;
use crate::message::*;
use crate::model::{ModelLimits, ModelRef};
use crate::request::{Request, RequestMessage, ToolChoice};
use crate::session::SessionState;
use std::fmt::Write;

/// Bytes per token where nothing is measured.
const BYTES_PER_TOKEN: u64 = 4;
/// A tool result in the text to be summarised is cut to this many characters.
const TOOL_TEXT_MAX: usize = 2_000;
/// Compactions in a row without a finished step in between, after which the turn stops.
pub const MAX_FUTILE: u32 = 1;

/// What begins every summarising request; scripted models and tests recognise it by this.
pub const SUMMARY_MARK: &str = "Summarise the conversation below";

/// How a compaction would be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Entries from this seq on stay.
    pub kept_from: u64,
    /// The request that asks for the summary.
    pub request: Request,
}

/// Why no compaction can be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unplannable {
    /// Nothing that could be summarised lies before what must stay.
    #[error(
        "there is nothing to compact: the last input and what is fixed take about {fixed_tokens} of {window_tokens} tokens"
    )]
    NothingOld {
        /// Tokens of what cannot be summarised, estimated.
        fixed_tokens: u64,
        /// The window; 0 when unknown.
        window_tokens: u64,
    },
}

/// Tokens `state`'s next request needs, as far as that is known: the last measured context plus an estimate
/// of what came after it.
pub fn estimate(state: &SessionState) -> u64 {
    match state.context_tokens {
        Some((tokens, seq)) => {
            let newer: u64 = unmeasured_bytes(state, seq);
            tokens + newer / BYTES_PER_TOKEN
        }
        None => {
            let fixed: u64 = state
                .instructions
                .iter()
                .flat_map(|i| &i.parts)
                .map(|p| p.len() as u64)
                .sum();
            let summary = state.summary.as_ref().map_or(0, |s| s.text.len() as u64);
            let entries: u64 = state.entries.iter().map(|e| entry_bytes(e)).sum();
            (fixed + summary + entries) / BYTES_PER_TOKEN
        }
    }
}

/// Bytes of the conversation that the measurement at `measured` did not count: everything behind it, and
/// the results of the calls in the measured message.
fn unmeasured_bytes(state: &SessionState, measured: u64) -> u64 {
    let mut bytes = 0;
    for entry in state.entries.iter().rev() {
        if entry.seq() > measured {
            bytes += entry_bytes(entry);
            continue;
        }
        if let Entry::Assistant(message) = entry.as_ref() {
            bytes += message.parts.iter().map(result_bytes).sum::<u64>();
        }
        break;
    }
    bytes
}

fn result_bytes(part: &Part) -> u64 {
    match &part.kind {
        PartKind::Tool(tool) if !tool.executed => tool
            .outcome
            .as_ref()
            .map_or(0, |outcome| outcome.text.len() as u64),
        _ => 0,
    }
}

fn entry_bytes(entry: &Entry) -> u64 {
    match entry {
        Entry::Input { input, .. } => input_parts(input).iter().map(|p| p.len() as u64).sum(),
        Entry::Note { text, .. } => text.len() as u64,
        Entry::Assistant(message) => message
            .parts
            .iter()
            .filter(|part| !part.superseded)
            .map(|part| match &part.kind {
                PartKind::Text(text) | PartKind::Reasoning(text) => text.text.len() as u64,
                PartKind::Opaque { native } => native.native.len() as u64,
                PartKind::Tool(tool) => {
                    tool.input.as_ref().map_or(2, |i| i.len() as u64)
                        + tool.outcome.as_ref().map_or(0, |o| o.text.len() as u64)
                }
            })
            .sum(),
    }
}

/// Should the history be compacted before the next step?
pub fn due(state: &SessionState, limits: &ModelLimits) -> bool {
    let Some(window) = limits.context else {
        return false;
    };
    // An output limit as large as the window must not trigger by itself.
    let reserve = limits.output.unwrap_or(window / 10).min(window / 4);
    state.failed_compactions < MAX_FUTILE
        && estimate(state) > window.saturating_sub(reserve)
        && !(state.summary.is_some() && state.context_tokens.is_none())
}

/// Plans a compaction. The last user input always stays, verbatim (kept, or pinned by the fold).
pub fn plan(
    state: &SessionState,
    reason: CompactionReason,
    model: &ModelRef,
    limits: &ModelLimits,
    cache_key: &str,
) -> Result<Plan, Unplannable> {
    let window = limits.context.unwrap_or(0);
    let share = match reason {
        CompactionReason::Overflow => 10,
        CompactionReason::Threshold | CompactionReason::Manual => 4,
    };
    let tail_budget = if window == 0 { 8_000 } else { window / share } * BYTES_PER_TOKEN;
    let kept = kept_entries(state, tail_budget);
    let old = &state.entries[..state.entries.len() - kept];
    if old.is_empty() {
        let fixed: u64 =
            state.entries.iter().map(|e| entry_bytes(e)).sum::<u64>() / BYTES_PER_TOKEN;
        return Err(Unplannable::NothingOld {
            fixed_tokens: fixed,
            window_tokens: window,
        });
    }
    let kept_from = match state.entries.get(old.len()) {
        Some(entry) => entry.seq(),
        None => state.cursor.map_or(0, |cursor| cursor + 1),
    };
    let budget = if window == 0 {
        400_000
    } else {
        window * BYTES_PER_TOKEN * 6 / 10
    };
    let text = transcript(state, old, budget as usize);
    Ok(Plan {
        kept_from,
        request: Request {
            model: model.clone(),
            system: vec![
                "You write precise summaries of coding sessions, so that the work can go on from them."
                    .to_owned(),
            ],
            messages: vec![RequestMessage::User {
                parts: vec![format!(
                    "{SUMMARY_MARK} for the agent that will continue it. Keep: the user's goals and \
                     constraints in their words, decisions, files touched and their state, commands and \
                     results that matter, open questions, and the next step. Answer with the summary \
                     only.\n\n{text}"
                )],
            }],
            tools: Vec::new(),
            tool_choice: ToolChoice::None,
            max_output: limits.output.map(|o| o.min(8_000)).or(Some(8_000)),
            cache_key: cache_key.to_owned(),
        },
    })
}

/// How many entries at the end stay: as many as fit the budget, never all of them.
fn kept_entries(state: &SessionState, budget: u64) -> usize {
    let mut bytes = 0;
    let mut kept = 0;
    for entry in state.entries.iter().rev() {
        bytes += entry_bytes(entry);
        if bytes > budget || kept + 1 >= state.entries.len() {
            break;
        }
        kept += 1;
    }
    kept
}

/// The text to be summarised, cut to `budget` bytes from its oldest end; what was cut is named in it.
fn transcript(state: &SessionState, old: &[std::sync::Arc<Entry>], budget: usize) -> String {
    let mut pieces: Vec<String> = Vec::new();
    if let Some(summary) = &state.summary {
        pieces.push(format!("[Earlier summary]\n{}\n", summary.text));
        if let Some(pinned) = &summary.pinned {
            pieces.push(format!("[User]\n{}\n", input_parts(pinned).join("\n")));
        }
    }
    pieces.extend(old.iter().map(|entry| entry_text(entry)));
    let total: usize = pieces.iter().map(String::len).sum();
    let mut out = String::new();
    if total <= budget {
        pieces.iter().for_each(|p| out.push_str(p));
        return out;
    }
    // Every piece keeps its beginning: a fair share each, so that no message is left out altogether.
    let share = (budget / pieces.len().max(1)).max(200);
    let _ = writeln!(
        out,
        "[{total} bytes of conversation were cut to fit: each message to its first {share} bytes]"
    );
    for piece in pieces {
        let end = piece.floor_char_boundary(share);
        out.push_str(&piece[..end]);
        if end < piece.len() {
            let _ = writeln!(out, " […{} bytes cut]", piece.len() - end);
        }
    }
    out
}

fn entry_text(entry: &Entry) -> String {
    let mut out = String::new();
    match entry {
        Entry::Input { input, .. } => {
            let who = if matches!(input, InputKind::User { .. }) {
                "User"
            } else {
                "Tenure"
            };
            let _ = writeln!(out, "[{who}]\n{}", input_parts(input).join("\n"));
        }
        Entry::Note { text, .. } => {
            let _ = writeln!(out, "[Note]\n{text}");
        }
        Entry::Assistant(message) => {
            out.push_str("[Assistant]\n");
            for part in message.parts.iter().filter(|part| !part.superseded) {
                match &part.kind {
                    PartKind::Text(text) => {
                        let _ = writeln!(out, "{}", text.text);
                    }
                    PartKind::Tool(tool) => {
                        let input = tool.input.as_deref().unwrap_or("");
                        let result = tool.outcome.as_ref().map_or("", |o| o.text.as_str());
                        let _ = writeln!(
                            out,
                            "[Tool {}] {}\n[Result] {}",
                            tool.name,
                            cut(input),
                            cut(result)
                        );
                    }
                    PartKind::Reasoning(_) | PartKind::Opaque { .. } => {}
                }
            }
        }
    }
    out
}

fn cut(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= TOOL_TEXT_MAX {
        return text.into();
    }
    let end = text.floor_char_boundary(TOOL_TEXT_MAX);
    format!("{} […{} bytes cut]", &text[..end], text.len() - end).into()
}
