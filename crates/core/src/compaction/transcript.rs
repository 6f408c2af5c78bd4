//! The text to be summarised: old history, cut until it fits, with what was cut named in it.

use super::size::TokenCounter;
use crate::event::body::InputKind;
use crate::history::input_parts;
use crate::message::*;
use crate::session::SessionState;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// Tool inputs and results in the text are cut to so many bytes: the first of these with which the whole fits.
/// Tool output goes first, words of the user and the model last.
const TOOL_TEXT_MAX: [usize; 3] = [2_000, 500, 120];

/// The transcript of `old`, at most `budget` tokens by `counter`; what was cut is named in it.
pub(super) fn transcript(
    state: &SessionState,
    old: &[Arc<Entry>],
    budget: u64,
    counter: &dyn TokenCounter,
) -> String {
    let mut pieces: Vec<String> = Vec::new();
    for tool_max in TOOL_TEXT_MAX {
        pieces.clear();
        if let Some(pinned) = state.summary.as_ref().and_then(|s| s.pinned.as_ref()) {
            pieces.push(input_text("User", pinned));
        }
        pieces.extend(old.iter().map(|entry| entry_text(entry, tool_max)));
        if pieces.iter().map(|p| counter.text(p)).sum::<u64>() <= budget {
            return pieces.concat();
        }
    }
    fit_tokens(&pieces, budget, counter)
}

/// `text`, cut to at most `budget` tokens.
pub(super) fn shortened(text: &str, budget: u64, counter: &dyn TokenCounter) -> String {
    if counter.text(text) <= budget {
        return text.to_owned();
    }
    fit_tokens(&[text.to_owned()], budget, counter)
}

/// Joins `pieces` within `budget` tokens. No text has more tokens than bytes, so this ends with one that fits.
fn fit_tokens(pieces: &[String], budget: u64, counter: &dyn TokenCounter) -> String {
    let budget = budget.clamp(1, u64::from(u32::MAX));
    let mut bytes = budget * 4;
    loop {
        let text = fit(pieces, usize::try_from(bytes).unwrap_or(usize::MAX));
        let tokens = counter.text(&text);
        if tokens <= budget || bytes <= budget {
            return text;
        }
        bytes = (bytes * budget / tokens * 19 / 20).clamp(budget, bytes - 1);
    }
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
    // The oldest holds the task, the newest what the work is at.
    let first = if omitted > 0 {
        most.min(2) / 2
    } else {
        pieces.len()
    };
    let kept: Vec<&String> = pieces[..first]
        .iter()
        .chain(&pieces[first + omitted..])
        .collect();
    let level = common_length(&kept, room, LEAST, MARK);
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

/// The largest length to which all may be cut so that they fit `room` together.
fn common_length(pieces: &[&String], room: usize, least: usize, mark: usize) -> usize {
    let size = |level: usize| -> usize {
        let cut = |p: &&String| {
            if p.len() > level {
                level + mark
            } else {
                p.len()
            }
        };
        pieces.iter().map(cut).sum()
    };
    let mut level = least.min(room);
    let mut above = pieces.iter().map(|p| p.len()).max().unwrap_or(0) + 1;
    while above - level.min(above) > 1 {
        let middle = level + (above - level) / 2;
        if size(middle) <= room {
            level = middle;
        } else {
            above = middle;
        }
    }
    level
}

fn input_text(who: &str, input: &InputKind) -> String {
    let mut out = format!("[{who}]\n");
    if let InputKind::User { media, .. } = input {
        for media in media {
            // Named, never sent: an image costs thousands of tokens, and its name says what it was.
            let _ = writeln!(
                out,
                "[Attached and not shown here: {} ({}, {} bytes)]",
                media.name,
                media.media_type,
                media.data.len() / 4 * 3
            );
        }
    }
    let _ = writeln!(out, "{}", input_parts(input).join("\n"));
    out
}

fn entry_text(entry: &Entry, tool_max: usize) -> String {
    match entry {
        Entry::Input { input, .. } => {
            let who = if matches!(input, InputKind::User { .. }) {
                "User"
            } else {
                "Tenure"
            };
            input_text(who, input)
        }
        Entry::Note { text, .. } => format!("[Note]\n{text}\n"),
        Entry::Assistant(message) => assistant_text(message, tool_max),
    }
}

fn assistant_text(message: &AssistantMessage, tool_max: usize) -> String {
    let mut out = "[Assistant]\n".to_owned();
    for part in message.parts.iter().filter(|part| !part.superseded) {
        match &part.kind {
            PartKind::Text(text) => {
                let _ = writeln!(out, "{}", text.text);
            }
            PartKind::Tool(tool) => {
                let input = tool.input.as_deref().unwrap_or("");
                let outcome = tool.outcome.as_ref();
                let result = outcome.map_or("(no result)", |o| o.text.as_str());
                let failed = outcome.is_some_and(|o| o.failure.is_some());
                let _ = writeln!(
                    out,
                    "[Tool {}] {}\n[{}] {}",
                    tool.name,
                    cut(input, tool_max),
                    if failed { "Failed" } else { "Result" },
                    cut(result, tool_max)
                );
            }
            PartKind::Reasoning(_) | PartKind::Opaque { .. } => {}
        }
    }
    if let Some(error) = message.end.as_ref().and_then(|end| end.error.as_ref()) {
        let _ = writeln!(out, "[This step failed: {}]", cut(&error.message, tool_max));
    }
    out
}

fn cut(text: &str, max: usize) -> Cow<'_, str> {
    if text.len() <= max {
        return text.into();
    }
    let end = text.floor_char_boundary(max);
    format!("{} […{} bytes cut]", &text[..end], text.len() - end).into()
}
