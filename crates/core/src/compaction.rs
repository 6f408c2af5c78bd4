//! When history is too long, what is summarised and what stays. Pure; the runner makes the request.

use crate::event::body::{CompactionReason, InputKind};
use crate::history::input_parts;
use crate::message::*;
use crate::model::{ModelLimits, ModelRef};
use crate::request::{Request, RequestMessage, ToolChoice};
use crate::session::SessionState;
use std::fmt::Write;
use std::sync::Arc;

/// Bytes per token where nothing is measured.
const BYTES_PER_TOKEN: u64 = 4;
/// Tool inputs and results in the text to be summarised are cut to so many bytes: the first of these with
/// which the whole fits. Tool output goes first, words of the user and the model last.
const TOOL_TEXT_MAX: [usize; 3] = [2_000, 500, 120];
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
        "there is nothing to compact: the last input and what is fixed take about {fixed_tokens} tokens, the \
         model's window holds {window_tokens}. Shorten the input or the instruction files, or choose a model \
         with a larger window"
    )]
    NothingOld {
        /// Tokens of what cannot be summarised, estimated.
        fixed_tokens: u64,
        /// The window; 0 when unknown.
        window_tokens: u64,
    },
    /// The last compaction left more than the window holds; another one would not do better.
    #[error(
        "compacting did not help: what always stays (instructions, tools, summary, the last messages) took \
         {fixed_tokens} tokens, the model's window holds {window_tokens}. Shorten the instruction files, offer \
         fewer tools, or choose a model with a larger window"
    )]
    Futile {
        /// Tokens of the first request after the compaction, as the provider counted them.
        fixed_tokens: u64,
        /// The window.
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
        None => whole_bytes(state) / BYTES_PER_TOKEN,
    }
}

/// Bytes of everything the fold knows of the next request: tool definitions are not among it.
fn whole_bytes(state: &SessionState) -> u64 {
    let entries: u64 = state.entries.iter().map(|e| entry_bytes(e)).sum();
    fixed_bytes(state) + entries
}

/// Bytes of what no further compaction removes: instructions, summary, pinned words.
fn fixed_bytes(state: &SessionState) -> u64 {
    let parts = |input: &InputKind| input_parts(input).iter().map(|p| p.len() as u64).sum();
    let fixed: u64 = state
        .instructions
        .iter()
        .flat_map(|i| &i.parts)
        .map(|p| p.len() as u64)
        .sum();
    let summary = state.summary.as_ref().map_or(0, |s| {
        s.text.len() as u64 + s.pinned.as_ref().map_or(0, parts)
    });
    fixed + summary
}

/// Bytes of the conversation that the measurement at `measured` did not count: everything behind it, and
/// the results of the calls in the measured message.
fn unmeasured_bytes(state: &SessionState, measured: u64) -> u64 {
    let mut bytes = 0;
    for entry in state.entries.iter().rev() {
        match entry.as_ref() {
            entry if entry.seq() > measured => bytes += entry_bytes(entry),
            // Written while the measured step was open: its request did not hold it.
            Entry::Note { text, .. } => bytes += text.len() as u64,
            Entry::Assistant(message) => {
                bytes += message.parts.iter().map(result_bytes).sum::<u64>();
                break;
            }
            Entry::Input { .. } => break,
        }
    }
    bytes
}

fn result_bytes(part: &Part) -> u64 {
    match &part.kind {
        PartKind::Tool(tool) if !tool.executed && !part.superseded => tool
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
                PartKind::Text(text) | PartKind::Reasoning(text) => {
                    let native = text.native.as_ref().map_or(0, |n| n.native.len());
                    text.text.len().max(native) as u64
                }
                PartKind::Opaque { native } => native.native.len() as u64,
                PartKind::Tool(tool) => {
                    tool.input.as_ref().map_or(2, |i| i.len() as u64)
                        + tool.outcome.as_ref().map_or(0, |o| o.text.len() as u64)
                }
            })
            .sum(),
    }
}

/// Tokens from which on the history is compacted; none for an unknown window.
fn trigger(limits: &ModelLimits) -> Option<u64> {
    let window = limits.context?;
    // An output limit as large as the window must not trigger by itself.
    let reserve = limits.output.unwrap_or(window / 10).min(window / 4);
    Some(window.saturating_sub(reserve))
}

/// Should the history be compacted before the next step? Not again right after a compaction, before the
/// provider has counted what is left, and not when that count says that it did not help.
pub fn due(state: &SessionState, limits: &ModelLimits) -> bool {
    let Some(trigger) = trigger(limits) else {
        return false;
    };
    let helped = state
        .after_compaction
        .is_none_or(|tokens| tokens <= trigger)
        && fixed_bytes(state) / BYTES_PER_TOKEN <= trigger;
    state.failed_compactions < MAX_FUTILE
        && estimate(state) > trigger
        && helped
        && !unasked_since_compaction(state)
}

/// Has no step been asked for since the last compaction? (Some providers never count: then a step that
/// ended has to do.)
fn unasked_since_compaction(state: &SessionState) -> bool {
    let Some(summary) = &state.summary else {
        return false;
    };
    let asked = |entry: &Arc<Entry>| {
        matches!(entry.as_ref(), Entry::Assistant(_)) && entry.seq() > summary.seq
    };
    state.context_tokens.is_none() && !state.entries.iter().rev().any(asked)
}

/// Why the next step cannot fit and no compaction will change that, if it is so: the turn stops with it.
pub fn exhausted(state: &SessionState, limits: &ModelLimits) -> Option<Unplannable> {
    let window = limits.context?;
    let after = state.after_compaction?;
    (after > window && estimate(state) > window).then_some(Unplannable::Futile {
        fixed_tokens: after,
        window_tokens: window,
    })
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
    let tail_budget = if window == 0 {
        8_000
    } else {
        window / share * BYTES_PER_TOKEN
    };
    // Never more than a quarter of what there is: a window that is smaller than we were told, or a person
    // who asks early, must be helped too.
    let whole: u64 = state.entries.iter().map(|e| entry_bytes(e)).sum();
    let tail_budget = tail_budget.min(whole / 4);
    let kept = kept_entries(state, tail_budget);
    let old = &state.entries[..state.entries.len() - kept];
    if !worth_it(old, &state.entries[old.len()..]) {
        return Err(Unplannable::NothingOld {
            fixed_tokens: estimate(state).max(whole_bytes(state) / BYTES_PER_TOKEN),
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
        // Half: the estimate of bytes per token is rough, and the summary needs its room.
        window * BYTES_PER_TOKEN / 2
    };
    let text = transcript(state, old, budget as usize);
    Ok(Plan {
        kept_from,
        request: Request {
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
                )
                .into()],
            }],
            tools: Vec::new(),
            tool_choice: ToolChoice::None,
            max_output: Some(summary_limit(limits)),
            cache_key: cache_key.to_owned(),
            ..Request::new(model.clone())
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

/// Does summarising `old` remove anything? The last words of the user stay verbatim in any case.
fn worth_it(old: &[Arc<Entry>], kept: &[Arc<Entry>]) -> bool {
    let user = |entry: &Arc<Entry>| {
        matches!(
            entry.as_ref(),
            Entry::Input {
                input: InputKind::User { .. },
                ..
            }
        )
    };
    let pinned = if kept.iter().any(user) {
        None
    } else {
        old.iter().rposition(user)
    };
    old.len() > usize::from(pinned.is_some())
}

/// Tokens a summary may have.
fn summary_limit(limits: &ModelLimits) -> u64 {
    let window = limits.context.unwrap_or(u64::MAX);
    limits
        .output
        .unwrap_or(8_000)
        .min(8_000)
        .min(window / 4)
        .max(1)
}

/// The text to be summarised, at most `budget` bytes; what was cut is named in it.
fn transcript(state: &SessionState, old: &[Arc<Entry>], budget: usize) -> String {
    let mut pieces: Vec<String> = Vec::new();
    for tool_max in TOOL_TEXT_MAX {
        pieces.clear();
        if let Some(summary) = &state.summary {
            pieces.push(format!("[Earlier summary]\n{}\n", summary.text));
            if let Some(pinned) = &summary.pinned {
                pieces.push(format!("[User]\n{}\n", input_parts(pinned).join("\n")));
            }
        }
        pieces.extend(old.iter().map(|entry| entry_text(entry, tool_max)));
        if pieces.iter().map(String::len).sum::<usize>() <= budget {
            return pieces.concat();
        }
    }
    fit(&pieces, budget)
}

/// Joins `pieces` within `budget` bytes: long ones are cut to one common length; only when that would leave
/// almost nothing of each are some in the middle left out.
fn fit(pieces: &[String], budget: usize) -> String {
    /// Room for the line at the top, for a mark behind a cut piece, and the least left of a piece.
    const HEAD: usize = 200;
    const MARK: usize = 40;
    const LEAST: usize = 200;
    let room = budget.saturating_sub(HEAD);
    let most = (room / (LEAST + MARK)).max(1);
    let omitted = pieces.len().saturating_sub(most);
    // The oldest holds the task or the earlier summary, the newest what the work is at.
    let first = if omitted > 0 {
        most.min(2) / 2
    } else {
        pieces.len()
    };
    let kept: Vec<&String> = pieces[..first]
        .iter()
        .chain(&pieces[first + omitted..])
        .collect();
    let size = |level: usize| -> usize {
        let cut = |p: &&String| {
            if p.len() > level {
                level + MARK
            } else {
                p.len()
            }
        };
        kept.iter().map(cut).sum()
    };
    let (mut level, mut above) = (
        LEAST.min(room),
        kept.iter().map(|p| p.len()).max().unwrap_or(0) + 1,
    );
    while above - level.min(above) > 1 {
        let middle = level + (above - level) / 2;
        if size(middle) <= room {
            level = middle;
        } else {
            above = middle;
        }
    }
    let total: usize = pieces.iter().map(String::len).sum();
    let mut out = format!("[{total} bytes of conversation were cut to fit, long messages first]\n");
    for (index, piece) in kept.into_iter().enumerate() {
        if omitted > 0 && index == first {
            let _ = writeln!(out, "[{omitted} messages left out here]");
        }
        let end = piece.floor_char_boundary(level);
        out.push_str(&piece[..end]);
        if end < piece.len() {
            let _ = writeln!(out, " […{} bytes cut]", piece.len() - end);
        }
    }
    out
}

fn entry_text(entry: &Entry, tool_max: usize) -> String {
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
                            cut(input, tool_max),
                            cut(result, tool_max)
                        );
                    }
                    PartKind::Reasoning(_) | PartKind::Opaque { .. } => {}
                }
            }
        }
    }
    out
}

fn cut(text: &str, max: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let end = text.floor_char_boundary(max);
    format!("{} […{} bytes cut]", &text[..end], text.len() - end).into()
}
