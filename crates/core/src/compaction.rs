//! When history is too long: how large it is, what is summarised and what stays. Pure; the runner makes the request.
//!
//! A compaction replaces old history by a summary. What the user said last always stays, word for word; a tail of
//! the newest messages stays as it is; the summary before it is brought up to date instead of being summarised.

mod size;
mod transcript;
mod wording;

pub use size::{
    Meter, Rough, Size, TokenCounter, Unmeasured, fixed_tokens, media_bound, meter, request_size,
    request_tokens, rough,
};
pub use wording::{SECTIONS, SUMMARY_MARK, UNUSABLE_SUMMARY, usable_summary};

use crate::error::SessionError;
use crate::event::body::{CompactionReason, InputKind};
use crate::message::*;
use crate::model::{ModelLimits, ModelRef};
use crate::request::{Effort, Request, RequestMessage, ToolChoice};
use crate::session::SessionState;
use size::{
    conversation_tokens, entry_tokens, input_guess, input_tokens, instruction_tokens,
    summary_tokens,
};
use std::sync::Arc;

/// Failed compactions without a finished step in between, after which the next step is asked for as it is.
pub const MAX_FUTILE: u32 = 1;
/// Summaries in a row that could not be used, over turns and restarts, after which only a person or another model
/// compacts.
pub const MAX_UNUSABLE: u32 = 3;
/// Tokens of a summary, at most.
const SUMMARY_TOKENS: u64 = 8_000;
/// Tokens of the text to be summarised where nothing is known of the window.
const UNKNOWN_WINDOW_TOKENS: u64 = 100_000;
/// Tokens that any window holds, whatever a provider says that it counted.
const LEAST_WINDOW: u64 = 4_000;
/// Tokens of the tail where nothing is known of the window.
const UNKNOWN_WINDOW_TAIL: u64 = 2_000;
/// The least output worth asking for.
pub const LEAST_OUTPUT: u64 = 256;
/// Output with which a model can think and answer: no estimate alone takes more of it away.
const USUAL_OUTPUT: u64 = 8_192;
/// A summary of almost nothing may be so much longer than it.
const SLACK: u64 = 100;

/// How a compaction would be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Entries from this seq on stay.
    pub kept_from: u64,
    /// The request that asks for the summary.
    pub request: Request,
    /// Tokens of what the summary would stand for.
    pub replaced_tokens: u64,
}

impl Plan {
    /// Judges the summary against what it replaces.
    ///
    /// # Errors
    /// [`UNUSABLE_SUMMARY`] when nothing would become shorter.
    pub fn shrinks(&self, summary: &str) -> Result<(), SessionError> {
        let tokens = rough(summary);
        if tokens <= self.replaced_tokens.saturating_add(SLACK) {
            return Ok(());
        }
        Err(SessionError::new(
            UNUSABLE_SUMMARY,
            format!(
                "The summary is no shorter than what it would replace (about {tokens} tokens against {})",
                self.replaced_tokens
            ),
        ))
    }
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
    /// What always stays is more than the window holds; a compaction would not do better.
    #[error(
        "compacting does not help: what always stays (instructions, tools, summary, the last messages) takes \
         {fixed_tokens} tokens, the model's window holds {window_tokens}. Shorten the instruction files, offer \
         fewer tools, or choose a model with a larger window"
    )]
    Futile {
        /// Tokens of what stays: of the first request after a compaction as the provider counted them, or estimated.
        fixed_tokens: u64,
        /// The window.
        window_tokens: u64,
    },
}

/// What a compaction is planned from.
#[derive(Clone, Copy)]
pub struct Planning<'a> {
    /// The session.
    pub state: &'a SessionState,
    /// Why it is compacted.
    pub reason: CompactionReason,
    /// The model that writes the summary.
    pub model: &'a ModelRef,
    /// What is known of it.
    pub limits: &'a ModelLimits,
    /// Counts its tokens.
    pub counter: &'a dyn TokenCounter,
    /// Tokens of instructions and tool definitions: see [`fixed_tokens`].
    pub fixed: u64,
    /// Key for the provider's prompt cache.
    pub cache_key: &'a str,
    /// Tries before this one whose request did not fit the provider's window.
    pub too_large: u32,
    /// A try before this one gave no usable summary.
    pub firmly: bool,
    /// How hard the model is asked to think; none where it may refuse to be asked.
    pub effort: Option<Effort>,
}

/// Tokens from which on the history is compacted; none for an unknown window.
pub fn trigger(limits: &ModelLimits) -> Option<u64> {
    let window = limits.context?;
    // An output limit as large as the window must not trigger by itself.
    let reserve = limits.output.unwrap_or(window / 10).min(window / 4);
    Some(window.saturating_sub(reserve))
}

/// The size of `state`'s next request, as `counter` sees it.
pub fn size(state: &SessionState, request: &Request, counter: &dyn TokenCounter) -> Size {
    match Unmeasured::of(state) {
        Some((measured, newer)) => newer.size(measured, counter),
        None => request_size(request, counter),
    }
}

/// Should the history be compacted before a request of this size? Not again right after a compaction, before the
/// provider has counted what is left, not when that count says that it did not help, and not when summaries keep
/// failing.
pub fn due(state: &SessionState, limits: &ModelLimits, size: &Size) -> bool {
    let Some(trigger) = trigger(limits) else {
        return false;
    };
    let helped = state
        .after_compaction
        .is_none_or(|tokens| tokens <= trigger);
    may_try(state)
        && size.at_most() > trigger
        && helped
        && !unasked_since_compaction(state)
        && shortenable(state, trigger)
}

/// Can a compaction bring the context below `trigger` at all? It makes neither instructions nor summaries shorter.
fn shortenable(state: &SessionState, trigger: u64) -> bool {
    instruction_tokens(state, &Rough) + summary_tokens(state, &Rough) <= trigger
}

/// May another automatic compaction be tried?
pub fn may_try(state: &SessionState) -> bool {
    state.failed_compactions < MAX_FUTILE && state.unusable_summaries < MAX_UNUSABLE
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
    (after > window && meter(state).tokens > window).then_some(Unplannable::Futile {
        fixed_tokens: after,
        window_tokens: window,
    })
}

/// The limit on generated tokens for a request of this size: what was to be `asked`, and no more than the window
/// probably has room for, since vendors refuse a sum that is too large. Where only an estimate leaves no room, enough
/// for an answer is asked for: a vendor that refuses it says how much there is. None leaves it to the vendor.
pub fn output_limit(asked: Option<u64>, limits: &ModelLimits, size: &Size) -> Option<u64> {
    let (Some(asked), Some(window)) = (asked, limits.context) else {
        return asked;
    };
    let room = window.saturating_sub(size.likely());
    let possible = window.saturating_sub(size.at_least());
    let usual = USUAL_OUTPUT.min(window / 4).min(possible);
    Some(asked.min(room.max(usual).max(LEAST_OUTPUT)))
}

/// Plans a compaction. The last user input always stays, verbatim (kept, or pinned by the fold).
///
/// # Errors
/// Why none would help.
pub fn plan(planning: &Planning<'_>) -> Result<Plan, Unplannable> {
    let Planning {
        state,
        limits,
        counter,
        fixed,
        ..
    } = *planning;
    let window = limits.context.unwrap_or(0);
    let kept = kept_entries(state, tail_budget(planning), counter);
    let old = &state.entries[..state.entries.len() - kept];
    if !worth_it(old, &state.entries[old.len()..]) {
        let whole = fixed + conversation_tokens(state, counter);
        return Err(Unplannable::NothingOld {
            fixed_tokens: meter(state).tokens.max(whole),
            window_tokens: window,
        });
    }
    let stays = Size {
        measured: 0,
        counted: fixed + last_words(state, counter),
        margin: counter.margin(),
        guessed: last_input(state).map_or(0, |input| input_guess(input, counter)),
    };
    if window > 0 && stays.surely_above(window) {
        return Err(Unplannable::Futile {
            fixed_tokens: stays.counted,
            window_tokens: window,
        });
    }
    let kept_from = match state.entries.get(old.len()) {
        Some(entry) => entry.seq(),
        None => state.cursor.map_or(0, |cursor| cursor + 1),
    };
    let replaced = old.iter().map(|e| entry_tokens(e, &Rough)).sum::<u64>();
    Ok(Plan {
        kept_from,
        request: summarising(planning, old),
        replaced_tokens: replaced + summary_tokens(state, &Rough),
    })
}

/// The request that asks for a summary of `old`; it fits the window, whatever `old` holds.
fn summarising(planning: &Planning<'_>, old: &[Arc<Entry>]) -> Request {
    let counter = planning.counter;
    let output = answer_limit(planning.limits, planning.firmly);
    let room = transcript_budget(planning, output);
    let earlier = planning.state.summary.as_ref().map(|s| {
        // Made for a larger window, it may be more than this one holds.
        transcript::shortened(&s.text, room / 2, counter)
    });
    let taken = earlier.as_ref().map_or(0, |text| counter.text(text));
    let text = transcript::transcript(planning.state, old, room.saturating_sub(taken), counter);
    let words = wording::instructions(earlier.as_deref(), &text, planning.firmly);
    Request {
        system: vec![wording::SYSTEM.to_owned()],
        messages: vec![RequestMessage::User {
            parts: vec![words.into()],
        }],
        tool_choice: ToolChoice::None,
        max_output: Some(output),
        effort: planning.effort,
        cache_key: planning.cache_key.to_owned(),
        ..Request::new(planning.model.clone())
    }
}

/// Tokens for the earlier summary and the transcript.
fn transcript_budget(planning: &Planning<'_>, output: u64) -> u64 {
    let counter = planning.counter;
    let frame = counter.text(&wording::instructions(Some(""), "", true))
        + counter.text(wording::SYSTEM)
        + 100;
    let room = match planning.limits.context {
        Some(window) => window.saturating_sub(output + frame),
        // What was sent before did fit.
        None => planning
            .state
            .context_tokens
            .map_or(UNKNOWN_WINDOW_TOKENS, |(tokens, _)| {
                tokens.clamp(LEAST_WINDOW, UNKNOWN_WINDOW_TOKENS)
            }),
    };
    let room = room.min(10_000_000) * 100 / (100 + counter.margin());
    // After an overflow the window is perhaps not what we were told; each refusal halves the next try.
    let halved = planning.too_large + u32::from(planning.reason == CompactionReason::Overflow);
    (room >> halved.min(16)).max(200)
}

/// Tokens of the newest messages that stay as they are.
fn tail_budget(planning: &Planning<'_>) -> u64 {
    let Planning {
        state,
        limits,
        counter,
        fixed,
        ..
    } = *planning;
    let share = match planning.reason {
        CompactionReason::Overflow => 10,
        CompactionReason::Threshold | CompactionReason::Manual => 4,
    };
    let room = match (limits.context, trigger(limits)) {
        (Some(window), Some(trigger)) => {
            let summary = SUMMARY_TOKENS.min(answer_limit(limits, false));
            let taken = fixed + summary + last_words(state, counter);
            (window / share).min(trigger.saturating_sub(taken))
        }
        _ => UNKNOWN_WINDOW_TAIL,
    };
    // Never more than a quarter of what there is: a window that is smaller than we were told, or a person
    // who asks early, must be helped too.
    let whole: u64 = state.entries.iter().map(|e| entry_tokens(e, counter)).sum();
    room.min(whole / 4)
}

/// Tokens of the user's last input.
fn last_words(state: &SessionState, counter: &dyn TokenCounter) -> u64 {
    last_input(state).map_or(0, |input| input_tokens(input, counter))
}

/// The user's last input, in the history or pinned behind the summary.
fn last_input(state: &SessionState) -> Option<&InputKind> {
    let last = state.entries.iter().rev().find_map(|e| match e.as_ref() {
        Entry::Input { input, .. } if matches!(input, InputKind::User { .. }) => Some(input),
        _ => None,
    });
    let pinned = || state.summary.as_ref()?.pinned.as_ref();
    last.or_else(pinned)
}

/// How many entries at the end stay: as many as fit the budget, never all of them.
fn kept_entries(state: &SessionState, budget: u64, counter: &dyn TokenCounter) -> usize {
    let mut tokens = 0;
    let mut kept = 0;
    for entry in state.entries.iter().rev() {
        tokens += entry_tokens(entry, counter);
        if tokens > budget || kept + 1 >= state.entries.len() {
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

/// Tokens that may be generated for a summary: the summary, and as much for the thoughts before it, which many models
/// do not leave out. What was cut off by them gets twice as many.
fn answer_limit(limits: &ModelLimits, firmly: bool) -> u64 {
    let window = limits.context.unwrap_or(u64::MAX);
    let most = SUMMARY_TOKENS * if firmly { 4 } else { 2 };
    limits
        .output
        .unwrap_or(most)
        .min(most)
        .min(window / 4)
        .max(1)
}
