//! A session as people read it: events, and live text ahead of them, to terminal lines.

mod fragment;
mod tool;

pub use tool::{failure_words, input_summary};

use super::escape::safe_line;
use super::human;
use super::markdown::Look;
use super::spans::Style;
use fragment::Fragment;
use std::collections::{HashMap, HashSet};
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody};
use tenure_core::request::Media;
use tenure_core::usage::Usage;
use tenure_core::{CallId, MessageId};
use tenure_engine::LiveItem;

/// What stands under text that was shown and then given up.
const SUPERSEDED: &str = "↑ superseded: that attempt failed, the model begins again";

/// How much to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// One line for a tool call.
    Brief,
    /// A few lines of its output.
    Some,
    /// All of its input and output.
    Full,
}

/// How to draw.
#[derive(Debug, Clone, Copy)]
pub struct Drawing {
    /// Columns and colours.
    pub look: Look,
    /// Render Markdown; otherwise text stays as it was written, made safe.
    pub markdown: bool,
    /// How much to say of tools.
    pub detail: Detail,
}

/// What stood last, so that different things get an empty line between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Prompt,
    Text,
    Thought,
    Tool,
    Mark,
}

/// Sums over what was seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Steps that ended.
    pub steps: u64,
    /// Tokens.
    pub usage: Usage,
    /// Millionths of a dollar.
    pub cost: u64,
    /// A part's cost is unknown.
    pub incomplete: bool,
}

impl Totals {
    /// Adds what an event spent.
    pub fn event(&mut self, body: &EventBody) {
        let (usage, cost, step) = match body {
            EventBody::StepEnded(end) => (Some(end.usage), end.cost, 1),
            EventBody::StepFailed(end) => (Some(end.usage), end.cost, 1),
            EventBody::CompactionEnded(end) => (end.usage, end.cost, 0),
            EventBody::CompactionFailed(end) => (end.usage, end.cost, 0),
            _ => return,
        };
        self.steps += step;
        self.cost = self.cost.saturating_add(cost.unwrap_or(0));
        self.incomplete |= cost.is_none();
        self.usage.add(&usage.unwrap_or_default());
    }

    /// The sums in words.
    pub fn words(&self) -> String {
        let steps = if self.steps == 1 { "step" } else { "steps" };
        if self.nothing() {
            // Nothing was spent that is known of: what is under way has no price yet.
            return format!("{} {steps}", self.steps);
        }
        format!(
            "{} {steps} · {} · {}",
            self.steps,
            human::tokens(&self.usage),
            human::cost(self.cost, self.incomplete)
        )
    }

    fn nothing(&self) -> bool {
        self.usage == Usage::default() && self.cost == 0 && !self.incomplete
    }
}

/// The parts of messages that do not count, learned from a log's events before they are drawn.
#[derive(Debug, Default)]
pub struct Superseded {
    /// Those of steps that are not over.
    open: HashMap<MessageId, Vec<u32>>,
    parts: HashSet<(MessageId, u32)>,
}

impl Superseded {
    /// Learns from an event.
    pub fn event(&mut self, body: &EventBody) {
        match body {
            EventBody::FragmentStarted(start) => {
                let parts = self.open.entry(start.message.clone()).or_default();
                parts.push(start.part);
            }
            EventBody::FragmentEnded(end) if end.superseded => {
                self.parts.insert((end.message.clone(), end.part));
            }
            // Also what was complete before the attempt failed.
            EventBody::RetryScheduled(retry) => {
                let given_up = self.open.remove(&retry.message).unwrap_or_default();
                let given_up = given_up.into_iter();
                self.parts
                    .extend(given_up.map(|part| (retry.message.clone(), part)));
            }
            EventBody::StepEnded(end) => drop(self.open.remove(&end.message)),
            EventBody::StepFailed(end) => drop(self.open.remove(&end.message)),
            _ => {}
        }
    }
}

/// Turns events into lines, one after the other.
pub struct Transcript {
    drawing: Drawing,
    fragments: HashMap<(MessageId, u32), Fragment>,
    inputs: HashMap<MessageId, InputKind>,
    calls: HashMap<(MessageId, CallId), tool::Call>,
    hidden: HashSet<MessageId>,
    superseded: HashSet<(MessageId, u32)>,
    /// Messages with complete text of an attempt that may still be given up.
    undecided: HashSet<MessageId>,
    last_error: Option<String>,
    /// Whoever looks has asked for the interrupt, and is told of its end elsewhere.
    own_interrupt: bool,
    last: Last,
    totals: Totals,
}

impl Transcript {
    /// An empty transcript.
    pub fn new(drawing: Drawing) -> Self {
        Self {
            drawing,
            fragments: HashMap::new(),
            inputs: HashMap::new(),
            calls: HashMap::new(),
            hidden: HashSet::new(),
            superseded: HashSet::new(),
            undecided: HashSet::new(),
            last_error: None,
            own_interrupt: false,
            last: Last::Nothing,
            totals: Totals::default(),
        }
    }

    /// Leaves a prompt out: whoever looks has just typed it.
    pub fn hide_input(&mut self, input: MessageId) {
        self.hidden.insert(input);
    }

    /// Leaves an interrupt out from here on: whoever looks has asked for it.
    pub fn leave_out_interrupt(&mut self) {
        self.own_interrupt = true;
    }

    /// Leaves text out that is known to be superseded, for a reader that has the whole log before it.
    pub fn leave_out(&mut self, superseded: Superseded) {
        self.superseded = superseded.parts;
    }

    /// What was spent so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Bytes of text that wait to be drawn.
    pub fn held(&self) -> usize {
        self.fragments.values().map(Fragment::held).sum()
    }

    /// What waits to be drawn, as it would be now: the last `most` lines of it, of at most `columns` each.
    pub fn preview(&self, columns: usize, most: usize) -> Vec<String> {
        let newest = self
            .fragments
            .iter()
            .filter(|(_, fragment)| fragment.held() > 0)
            .max_by_key(|(key, _)| *key);
        let Some((_, fragment)) = newest else {
            return Vec::new();
        };
        let mut lines = fragment.preview(columns);
        if !lines.is_empty() && self.stands_apart(kind_of(fragment.kind())) {
            lines.insert(0, String::new());
        }
        lines.split_off(lines.len().saturating_sub(most))
    }

    /// The lines an event adds.
    pub fn event(&mut self, event: &Event) -> Vec<String> {
        self.totals.event(&event.body);
        match &event.body {
            EventBody::InputAdmitted(input) => {
                self.inputs.insert(input.input.clone(), input.kind.clone());
                Vec::new()
            }
            EventBody::InputPromoted(input) => self.promoted(&input.input),
            EventBody::InputCancelled(input) => match self.inputs.remove(&input.input) {
                Some(_) => self.mark(
                    Style::dim(),
                    &format!("· an input was taken back by {}", input.by),
                ),
                None => Vec::new(),
            },
            EventBody::FragmentStarted(start) => {
                self.fragment(&start.message, start.part, start.kind);
                Vec::new()
            }
            EventBody::FragmentChunk(chunk) => self.chunk(chunk),
            EventBody::FragmentEnded(end) => self.fragment_ended(end),
            EventBody::ToolInputStarted(_)
            | EventBody::ToolCalled(_)
            | EventBody::ToolStarted(_)
            | EventBody::ToolSucceeded(_)
            | EventBody::ToolFailed(_)
            | EventBody::PermissionAsked(_) => self.tool(event),
            _ => self.other(event),
        }
    }

    /// The lines a live item adds.
    pub fn live(&mut self, item: &LiveItem) -> Vec<String> {
        if let LiveItem::Superseded {
            message,
            part,
            from,
            ..
        } = item
        {
            return self.taken_back(message, *part, *from);
        }
        let LiveItem::Delta {
            message,
            part,
            kind,
            offset,
            text,
            ..
        } = item
        else {
            return Vec::new();
        };
        let lines = self
            .fragment(message, *part, *kind)
            .map(|f| f.live(*offset, text));
        self.block(kind_of(*kind), lines.unwrap_or_default())
    }

    /// What was drawn cannot be undrawn: it is drawn to its end, and said not to count.
    fn taken_back(&mut self, message: &MessageId, part: u32, from: u64) -> Vec<String> {
        let Some(fragment) = self.fragments.get_mut(&(message.clone(), part)) else {
            return Vec::new();
        };
        let Some(lost) = fragment.beyond(from) else {
            return Vec::new();
        };
        let kind = kind_of(fragment.kind());
        let lines = fragment.draw();
        let mut out = self.block(kind, lines);
        let words = format!(
            "↑ the last {} of this text did not become part of the session",
            human::bytes(lost)
        );
        out.extend(self.mark(Style::dim(), &words));
        out
    }

    /// Everything that is held back, when nothing more will come.
    pub fn finish(&mut self) -> Vec<String> {
        let mut keys: Vec<_> = self.fragments.keys().cloned().collect();
        keys.sort();
        let mut out = Vec::new();
        for key in keys {
            if let Some(fragment) = self.fragments.remove(&key) {
                let kind = kind_of(fragment.kind());
                out.extend(self.block(kind, fragment.finish()));
            }
        }
        out
    }

    fn fragment(
        &mut self,
        message: &MessageId,
        part: u32,
        kind: FragmentKind,
    ) -> Option<&mut Fragment> {
        let key = (message.clone(), part);
        if self.superseded.contains(&key) {
            return None;
        }
        let drawing = self.drawing;
        Some(
            self.fragments
                .entry(key)
                .or_insert_with(|| Fragment::new(kind, &drawing)),
        )
    }

    fn chunk(&mut self, chunk: &FragmentChunk) -> Vec<String> {
        let key = (chunk.message.clone(), chunk.part);
        let Some(fragment) = self.fragments.get_mut(&key) else {
            return Vec::new();
        };
        let kind = kind_of(fragment.kind());
        let lines = fragment.durable(&chunk.text);
        self.block(kind, lines)
    }

    fn fragment_ended(&mut self, end: &FragmentEnded) -> Vec<String> {
        let Some(fragment) = self.fragments.remove(&(end.message.clone(), end.part)) else {
            return Vec::new();
        };
        let shown = fragment.shown();
        let kind = kind_of(fragment.kind());
        let mut out = self.block(kind, fragment.finish());
        if end.superseded && shown {
            self.undecided.remove(&end.message);
            out.extend(self.mark(Style::dim(), SUPERSEDED));
        } else if shown {
            self.undecided.insert(end.message.clone());
            if end.partial {
                out.extend(self.mark(Style::dim(), "↑ cut short"));
            }
        }
        out
    }

    fn promoted(&mut self, input: &MessageId) -> Vec<String> {
        let Some(kind) = self.inputs.remove(input) else {
            return Vec::new();
        };
        if self.hidden.contains(input) {
            return Vec::new();
        }
        match &kind {
            InputKind::User {
                text, files, media, ..
            } => {
                let lines = prompt_lines(text, files, media, &self.drawing);
                self.block(Last::Prompt, lines)
            }
            InputKind::Synthetic { text } => self.mark(
                Style::dim(),
                &format!("· told the model: {}", safe_line(text)),
            ),
            InputKind::Compaction | InputKind::Move { .. } => Vec::new(),
        }
    }

    fn other(&mut self, event: &Event) -> Vec<String> {
        let red = Style::colour(Style::RED);
        let yellow = Style::colour(Style::YELLOW);
        match &event.body {
            EventBody::RetryScheduled(retry) => {
                let text = format!(
                    "⟳ {}; attempt {} in {}",
                    safe_line(&retry.error.message),
                    retry.attempt,
                    human::elapsed(std::time::Duration::from_millis(retry.delay_ms))
                );
                let mut out = Vec::new();
                if self.undecided.remove(&retry.message) {
                    out = self.mark(Style::dim(), SUPERSEDED);
                }
                out.extend(self.mark(yellow, &text));
                out
            }
            EventBody::StepEnded(end) => {
                self.undecided.remove(&end.message);
                Vec::new()
            }
            EventBody::RecoveryStarted(recovery) => self.mark(
                yellow,
                &format!("↻ {}", recovery_words(recovery, event.epoch)),
            ),
            EventBody::MediaWithheld(unseen) => {
                self.mark(yellow, &format!("! {}", safe_line(&unseen_words(unseen))))
            }
            EventBody::InterruptRequested(_) | EventBody::ExecutionInterrupted(_) => {
                self.interrupt(&event.body)
            }
            EventBody::StepFailed(end) if end.error.kind != "interrupted" => {
                self.last_error = Some(end.error.message.clone());
                self.mark(red, &format!("✗ {}", safe_line(&end.error.message)))
            }
            EventBody::ExecutionFailed(end)
                if self.last_error.as_deref() != Some(&end.error.message) =>
            {
                self.mark(red, &format!("✗ {}", safe_line(&end.error.message)))
            }
            EventBody::SessionQuarantined(end) => {
                let text = format!("✗ set aside: {}", safe_line(&end.error.message));
                self.mark(red, &text)
            }
            EventBody::SessionReleased(by) => self.mark(
                Style::dim(),
                &format!("· released by {}", safe_line(&by.by)),
            ),
            EventBody::CompactionEnded(_) => self.mark(Style::dim(), "· the history was compacted"),
            EventBody::CompactionFailed(end) => {
                let text = format!(
                    "· the history was not compacted: {}",
                    safe_line(&end.error.message)
                );
                self.mark(Style::dim(), &text)
            }
            EventBody::ModelSelected(model) => self.mark(
                Style::dim(),
                &format!("· model {} from here on", model.model),
            ),
            EventBody::AttachmentReplaced(place) => {
                let text = format!("· moved to {}", safe_line(&place.location.directory));
                self.mark(Style::dim(), &text)
            }
            EventBody::SessionForked(fork) => self.mark(
                Style::dim(),
                &format!(
                    "· forked from {} at {}: what was open or waiting there stayed with it",
                    fork.parent, fork.through
                ),
            ),
            EventBody::PermissionAnswered(answer) => {
                self.answered(&answer.message, &answer.call);
                let word = match &answer.answer {
                    PermissionAnswer::Once => "allowed once",
                    PermissionAnswer::Always { .. } => "allowed from now on",
                    PermissionAnswer::No { .. } => "not allowed",
                };
                self.mark(
                    Style::dim(),
                    &format!("· {word} by {}", safe_line(&answer.by)),
                )
            }
            _ => Vec::new(),
        }
    }

    fn interrupt(&mut self, body: &EventBody) -> Vec<String> {
        if self.own_interrupt {
            return Vec::new();
        }
        let words = match body {
            EventBody::InterruptRequested(interrupt) => {
                format!("■ interrupt requested by {}", safe_line(&interrupt.by))
            }
            EventBody::ExecutionInterrupted(end) => match end.reason {
                InterruptReason::User => "■ interrupted".to_owned(),
                InterruptReason::Shutdown => "■ interrupted: its node shut down".to_owned(),
                InterruptReason::Superseded => "■ interrupted: replaced by other work".to_owned(),
            },
            _ => return Vec::new(),
        };
        self.mark(Style::colour(Style::YELLOW), &words)
    }

    fn mark(&mut self, style: Style, text: &str) -> Vec<String> {
        let line = style.paint(text, self.drawing.look.colour);
        self.block(Last::Mark, vec![line])
    }

    fn stands_apart(&self, kind: Last) -> bool {
        self.last != Last::Nothing && (self.last != kind || kind == Last::Prompt)
    }

    /// Puts an empty line before lines of another kind than the last ones.
    fn block(&mut self, kind: Last, mut lines: Vec<String>) -> Vec<String> {
        if lines.is_empty() {
            return lines;
        }
        if self.stands_apart(kind) {
            lines.insert(0, String::new());
        }
        self.last = kind;
        lines
    }
}

fn kind_of(kind: FragmentKind) -> Last {
    match kind {
        FragmentKind::Text => Last::Text,
        FragmentKind::Reasoning => Last::Thought,
    }
}

/// A prompt with a mark before it.
pub fn prompt_lines(
    text: &str,
    files: &[AttachedFile],
    media: &[Media],
    drawing: &Drawing,
) -> Vec<String> {
    let colour = drawing.look.colour;
    let safe = super::escape::safe(text.trim_end());
    let mut lines: Vec<String> = safe
        .lines()
        .enumerate()
        .map(|(i, line)| {
            let mark = if i == 0 { "› " } else { "  " };
            Style::bold().paint(&format!("{mark}{line}"), colour)
        })
        .collect();
    for file in files {
        let text = format!(
            "  + {} ({})",
            safe_line(&file.name),
            human::bytes(file.text.len() as u64)
        );
        lines.push(Style::dim().paint(&text, colour));
    }
    for one in media {
        let text = format!("  + {}", media_words(one));
        lines.push(Style::dim().paint(&text, colour));
    }
    lines
}

/// An image or a document by name, type and size.
pub fn media_words(media: &Media) -> String {
    format!(
        "{} ({}, {})",
        safe_line(&media.name),
        safe_line(&media.media_type),
        human::bytes(tenure_engine::media::size(media) as u64)
    )
}

/// What a model is known not to see, in words.
pub fn unseen_words(unseen: &MediaWithheld) -> String {
    format!(
        "{} is known not to see {}: it reads that there was something. If it does see it, say so in the configuration \
         (`abilities`), or choose another model",
        unseen.model,
        unseen.names.join(", ")
    )
}

/// What recovery found and decided, in words.
pub fn recovery_words(recovery: &RecoveryStarted, epoch: Option<u64>) -> String {
    let phase = match recovery.phase {
        Phase::Safe => "at a safe boundary",
        Phase::Active => "in the middle of a step",
        Phase::Cancelling => "being interrupted",
    };
    let decision = match recovery.decision {
        RecoveryDecision::GoOn => "goes on",
        RecoveryDecision::Continue => "settles what was open and continues",
        RecoveryDecision::SettleOnly => "settles the interrupt",
        RecoveryDecision::Quarantine => "sets the session aside",
    };
    let epoch = epoch.map_or(String::new(), |e| format!(" at epoch {e}"));
    let crashes = match recovery.attempts {
        0 => String::new(),
        n => format!(", crash {n}"),
    };
    format!("taken over{epoch}, found {phase}{crashes}; {decision}")
}

#[cfg(test)]
mod tests;
