//! How many tokens a request takes: what the provider counted, and a count or an estimate of what came since.

use crate::event::body::InputKind;
use crate::history::input_parts;
use crate::message::*;
use crate::request::{AssistantBlock, Media, Request, RequestMessage, UserPart};
use crate::session::SessionState;
use std::sync::Arc;

/// Tokens that frame one message: role, separators.
const PER_MESSAGE: u64 = 5;
/// Tokens that frame one tool definition or one call.
const PER_TOOL: u64 = 12;
/// Tokens of an image where no vendor's rule is known: above what any of them counts for one at full size.
const IMAGE: u64 = 5_000;
/// Bytes of a document for which one token is counted where no vendor's rule is known, and the least.
const DOCUMENT_BYTES_PER_TOKEN: u64 = 20;
const DOCUMENT_LEAST: u64 = 5_000;

/// Counts tokens as a model's own tokenizer does, or estimates them.
pub trait TokenCounter: Send + Sync {
    /// Tokens of a text, in time (nearly) proportional to its length, whatever it says.
    fn text(&self, text: &str) -> u64;

    /// Tokens of an image or a document by the vendor's rules, or more.
    fn media(&self, media: &Media) -> u64 {
        media_bound(media)
    }

    /// Percent by which a count may be too low.
    fn margin(&self) -> u64;
}

/// The estimate that needs no vocabulary: classes of characters, as byte-pair tokenizers cut them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rough;

impl TokenCounter for Rough {
    fn text(&self, text: &str) -> u64 {
        rough(text)
    }

    fn margin(&self) -> u64 {
        25
    }
}

/// More tokens than any vendor counts for it, as far as its size tells.
pub fn media_bound(media: &Media) -> u64 {
    if media.media_type.starts_with("image/") {
        IMAGE
    } else {
        let bytes = media.data.len() as u64 / 4 * 3;
        (bytes / DOCUMENT_BYTES_PER_TOKEN).max(DOCUMENT_LEAST)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    Blank,
    Line,
    Mark,
    Wide,
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' => Class::Lower,
        'A'..='Z' => Class::Upper,
        '0'..='9' => Class::Digit,
        '\n' | '\r' => Class::Line,
        c if c.is_ascii_whitespace() => Class::Blank,
        c if c.is_ascii() => Class::Mark,
        _ => Class::Wide,
    }
}

/// Tenths of a token of a run of `n` characters of one class.
fn run(class: Class, n: u64) -> u64 {
    match class {
        // Words are one or two tokens; a long run is no word, and is cut in small pieces.
        Class::Lower | Class::Upper if n > 24 => n * 6,
        Class::Lower | Class::Upper => 10 + (n - 1) * 10 / 7,
        Class::Digit => n.div_ceil(3) * 10,
        // One blank belongs to the word behind it.
        Class::Blank if n == 1 => 0,
        Class::Blank => 10 + n / 2,
        Class::Line => 8 + n / 2,
        Class::Mark => 4 + n * 6,
        Class::Wide => 0,
    }
}

/// Tokens of `text`, estimated in one pass; never more than its bytes.
pub fn rough(text: &str) -> u64 {
    let mut tenths = 0u64;
    let mut last = None;
    let mut length = 0u64;
    for c in text.chars() {
        let now = class(c);
        if now == Class::Wide {
            tenths += match c.len_utf8() {
                2 => 6,
                3 => 10,
                _ => 25,
            };
        }
        if last == Some(now) {
            length += 1;
            continue;
        }
        if let Some(class) = last {
            // A capital letter begins the word that goes on in small ones.
            let joins = class == Class::Upper && now == Class::Lower && length == 1;
            if joins {
                last = Some(now);
                length += 1;
                continue;
            }
            tenths += run(class, length);
        }
        last = Some(now);
        length = 1;
    }
    if let Some(class) = last {
        tenths += run(class, length);
    }
    tenths.div_ceil(10).min(text.len() as u64)
}

/// What the next request takes of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    /// Tokens that the provider itself counted; 0 where nothing of it was counted.
    pub measured: u64,
    /// Tokens of the rest, counted or estimated here.
    pub counted: u64,
    /// Percent by which `counted` may be too low.
    pub margin: u64,
    /// The part of `counted` that nothing but the bytes of files and of results from outside tells. It may be wrong
    /// by any factor, so it never decides that a request is not sent.
    pub guessed: u64,
}

impl Size {
    /// The best guess.
    pub fn likely(&self) -> u64 {
        self.measured.saturating_add(self.counted)
    }

    /// The guess with its margin.
    pub fn at_most(&self) -> u64 {
        let margin = self.counted.saturating_mul(self.margin).div_ceil(100);
        self.likely().saturating_add(margin)
    }

    /// Is it certain, as far as a count can be, that this is more than `tokens`?
    pub fn surely_above(&self, tokens: u64) -> bool {
        self.at_least() > tokens
    }

    /// What it takes even when every estimate is too high.
    pub fn at_least(&self) -> u64 {
        let told = self.counted.saturating_sub(self.guessed);
        let doubt = told.saturating_mul(self.margin * 2).div_ceil(100);
        self.measured.saturating_add(told).saturating_sub(doubt)
    }

    /// May a real count instead of an estimate change what is decided at `tokens`?
    pub fn is_near(&self, tokens: u64) -> bool {
        self.counted > 0
            && self.measured <= tokens
            && self.measured.saturating_add(self.counted.saturating_mul(2)) > tokens
    }
}

/// The part of the conversation that the last measurement did not count: everything behind it, and the results
/// of the calls in the measured message. Shares the entries; it may be counted on another thread.
#[derive(Debug, Clone, Default)]
pub struct Unmeasured {
    entries: Vec<Arc<Entry>>,
    answered: Option<Arc<Entry>>,
}

impl Unmeasured {
    /// What `state`'s last measurement did not count, and the measurement; none when nothing is measured.
    pub fn of(state: &SessionState) -> Option<(u64, Self)> {
        let (tokens, seq) = state.context_tokens?;
        let mut out = Self::default();
        for entry in state.entries.iter().rev() {
            match entry.as_ref() {
                // A note written while the measured step was open was not in its request either.
                Entry::Note { .. } => out.entries.push(entry.clone()),
                newer if newer.seq() > seq => out.entries.push(entry.clone()),
                Entry::Assistant(_) => {
                    out.answered = Some(entry.clone());
                    break;
                }
                Entry::Input { .. } => break,
            }
        }
        Some((tokens, out))
    }

    /// Its tokens.
    pub fn tokens(&self, counter: &dyn TokenCounter) -> u64 {
        let newer: u64 = self.entries.iter().map(|e| entry_tokens(e, counter)).sum();
        let results = match self.answered.as_deref() {
            Some(Entry::Assistant(message)) => message
                .parts
                .iter()
                .map(|part| result_tokens(part, counter))
                .sum(),
            _ => 0,
        };
        newer + results
    }

    /// The size of a request of which `measured` tokens are counted, and this is the rest.
    pub fn size(&self, measured: u64, counter: &dyn TokenCounter) -> Size {
        Size {
            measured,
            counted: self.tokens(counter),
            margin: counter.margin(),
            guessed: self.entries.iter().map(|e| entry_guess(e, counter)).sum(),
        }
    }

    /// Are files in it? To count them takes a while.
    pub fn has_media(&self) -> bool {
        let files =
            |input: &InputKind| matches!(input, InputKind::User { media, .. } if !media.is_empty());
        self.entries
            .iter()
            .any(|e| matches!(e.as_ref(), Entry::Input { input, .. } if files(input)))
    }
}

/// The size of a request of which nothing is counted.
pub fn request_size(request: &Request, counter: &dyn TokenCounter) -> Size {
    let guess = |message: &RequestMessage| match message {
        RequestMessage::User { parts } => parts
            .iter()
            .map(|part| match part {
                UserPart::Text(_) => 0,
                UserPart::Media(media) => counter.media(media),
            })
            .sum::<u64>(),
        RequestMessage::Assistant { blocks } => blocks
            .iter()
            .filter(|block| matches!(block, AssistantBlock::Hosted { .. }))
            .map(|block| block_tokens(block, counter))
            .sum(),
        RequestMessage::System { .. } | RequestMessage::ToolResults { .. } => 0,
    };
    Size {
        measured: 0,
        counted: request_tokens(request, counter),
        margin: counter.margin(),
        guessed: request.messages.iter().map(guess).sum(),
    }
}

/// The part of an entry's tokens that is a guess: see [`Size::guessed`].
fn entry_guess(entry: &Entry, counter: &dyn TokenCounter) -> u64 {
    match entry {
        Entry::Input { input, .. } => input_guess(input, counter),
        Entry::Note { .. } => 0,
        Entry::Assistant(message) => message
            .parts
            .iter()
            .filter(|part| !part.superseded && part.is_hosted())
            .map(|part| part_tokens(part, counter))
            .sum(),
    }
}

/// The part of an input's tokens that is a guess: its files.
pub(super) fn input_guess(input: &InputKind, counter: &dyn TokenCounter) -> u64 {
    match input {
        InputKind::User { media, .. } => media.iter().map(|m| counter.media(m)).sum(),
        _ => 0,
    }
}

/// Tokens of a hosted tool's block as the vendor wrote it. What is sealed in it is the text of pages: about four
/// bytes a token, four characters of base64 for three bytes.
fn hosted_tokens(native: &str, counter: &dyn TokenCounter) -> u64 {
    const SEALED: &str = "\"encrypted_content\"";
    let mut tokens = 0;
    let mut rest = native;
    while let Some(at) = rest.find(SEALED) {
        let (before, behind) = rest.split_at(at + SEALED.len());
        let value = behind.trim_start_matches([' ', ':', '\n']);
        let Some(value) = value.strip_prefix('"') else {
            tokens += counter.text(before);
            rest = behind;
            continue;
        };
        let (sealed, after) = value.split_at(value.find('"').unwrap_or(value.len()));
        tokens += counter.text(before) + (sealed.len() as u64).div_ceil(5);
        rest = after;
    }
    tokens + counter.text(rest)
}

fn result_tokens(part: &Part, counter: &dyn TokenCounter) -> u64 {
    match &part.kind {
        PartKind::Tool(tool) if !tool.executed && !part.superseded => tool
            .outcome
            .as_ref()
            .map_or(0, |outcome| counter.text(&outcome.text) + PER_MESSAGE),
        _ => 0,
    }
}

/// Tokens of everything a request sends: instructions, tool definitions, messages, media, opaque state.
pub fn request_tokens(request: &Request, counter: &dyn TokenCounter) -> u64 {
    let system: u64 = request.system.iter().map(|p| counter.text(p)).sum();
    let schema = request
        .output_schema
        .as_ref()
        .map_or(0, |s| counter.text(&s.schema.to_string()));
    let messages: u64 = request
        .messages
        .iter()
        .map(|message| PER_MESSAGE + message_tokens(message, counter))
        .sum();
    PER_MESSAGE + system + schema + tools_tokens(request, counter) + messages
}

/// Tokens of what no compaction changes: instructions and tool definitions.
pub fn fixed_tokens(request: &Request, counter: &dyn TokenCounter) -> u64 {
    let system: u64 = request.system.iter().map(|p| counter.text(p)).sum();
    PER_MESSAGE + system + tools_tokens(request, counter)
}

fn tools_tokens(request: &Request, counter: &dyn TokenCounter) -> u64 {
    let own: u64 = request
        .tools
        .iter()
        .map(|tool| {
            PER_TOOL
                + counter.text(&tool.name)
                + counter.text(&tool.description)
                + counter.text(&tool.input_schema.to_string())
        })
        .sum();
    // What a vendor says to its model about a hosted tool is its own, and not small.
    own + request.hosted_tools.len() as u64 * 500
}

fn message_tokens(message: &RequestMessage, counter: &dyn TokenCounter) -> u64 {
    match message {
        RequestMessage::User { parts } => parts
            .iter()
            .map(|part| match part {
                UserPart::Text(text) => counter.text(text),
                UserPart::Media(media) => counter.media(media),
            })
            .sum(),
        RequestMessage::System { text } => counter.text(text),
        RequestMessage::ToolResults { results } => results
            .iter()
            .map(|r| PER_MESSAGE + counter.text(&r.id) + counter.text(&r.text))
            .sum(),
        RequestMessage::Assistant { blocks } => {
            blocks.iter().map(|b| block_tokens(b, counter)).sum()
        }
    }
}

fn block_tokens(block: &AssistantBlock, counter: &dyn TokenCounter) -> u64 {
    let larger = |text: u64, native: Option<&String>| {
        text.max(native.map_or(0, |native| counter.text(native)))
    };
    match block {
        AssistantBlock::Text { text, native } | AssistantBlock::Reasoning { text, native } => {
            larger(counter.text(text), native.as_ref())
        }
        AssistantBlock::ToolCall {
            id,
            name,
            input,
            native,
        } => {
            let own = counter.text(id) + counter.text(name) + counter.text(input);
            PER_TOOL + larger(own, native.as_ref())
        }
        AssistantBlock::Hosted {
            input,
            call,
            result,
            text,
            ..
        } => {
            let native =
                |own: &Option<String>| own.as_ref().map_or(0, |own| hosted_tokens(own, counter));
            PER_TOOL
                + counter.text(input).max(native(call))
                + counter.text(text).max(native(result))
        }
        AssistantBlock::Opaque { native } => counter.text(native),
    }
}

/// Tokens of an input.
pub(super) fn input_tokens(input: &InputKind, counter: &dyn TokenCounter) -> u64 {
    let words: u64 = input_parts(input).iter().map(|p| counter.text(p)).sum();
    let media: u64 = match input {
        InputKind::User { media, .. } => media.iter().map(|m| counter.media(m)).sum(),
        _ => 0,
    };
    PER_MESSAGE + words + media
}

/// Tokens of an entry of the conversation as requests hold it.
pub(super) fn entry_tokens(entry: &Entry, counter: &dyn TokenCounter) -> u64 {
    match entry {
        Entry::Input { input, .. } => input_tokens(input, counter),
        Entry::Note { text, .. } => PER_MESSAGE + counter.text(text),
        Entry::Assistant(message) => {
            let parts = message.parts.iter().filter(|part| !part.superseded);
            PER_MESSAGE + parts.map(|p| part_tokens(p, counter)).sum::<u64>()
        }
    }
}

fn part_tokens(part: &Part, counter: &dyn TokenCounter) -> u64 {
    match &part.kind {
        PartKind::Text(text) => {
            let native = text.native.as_ref().map_or(0, |n| counter.text(&n.native));
            counter.text(&text.text).max(native)
        }
        // Unsigned reasoning is never sent.
        PartKind::Reasoning(text) => text.native.as_ref().map_or(0, |n| counter.text(&n.native)),
        PartKind::Opaque { native } => counter.text(&native.native),
        PartKind::Tool(tool) => {
            let input = tool.input.as_ref().map_or(2, |i| counter.text(i));
            let hosted = match (&tool.native, tool.executed) {
                (Some(native), true) => hosted_tokens(&native.native, counter),
                _ => 0,
            };
            let result = tool.outcome.as_ref().map_or(0, |outcome| {
                let native = outcome
                    .native
                    .as_ref()
                    .map_or(0, |n| hosted_tokens(&n.native, counter));
                counter.text(&outcome.text).max(native)
            });
            PER_TOOL + input.max(hosted) + result + counter.text(&tool.name)
        }
    }
}

/// What is shown of the context's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meter {
    /// Tokens in the context.
    pub tokens: u64,
    /// All of them as the provider counted them, nothing estimated.
    pub measured: bool,
}

/// The size of the context as it is now: measured right after an answer, an estimate where something came since,
/// and right after a compaction or a switch of the model. Tool definitions are in measurements only.
pub fn meter(state: &SessionState) -> Meter {
    let Some((tokens, newer)) = Unmeasured::of(state) else {
        return Meter {
            tokens: conversation_tokens(state, &Rough),
            measured: false,
        };
    };
    let newer = newer.tokens(&Rough);
    Meter {
        tokens: tokens.saturating_add(newer),
        measured: newer == 0,
    }
}

/// Tokens of instructions, summary and conversation: all the fold knows of the next request.
pub(super) fn conversation_tokens(state: &SessionState, counter: &dyn TokenCounter) -> u64 {
    let entries: u64 = state.entries.iter().map(|e| entry_tokens(e, counter)).sum();
    instruction_tokens(state, counter) + summary_tokens(state, counter) + entries
}

/// Tokens of the instructions.
pub(super) fn instruction_tokens(state: &SessionState, counter: &dyn TokenCounter) -> u64 {
    let parts = state.instructions.iter().flat_map(|i| &i.parts);
    parts.map(|p| counter.text(p)).sum()
}

/// Tokens of the summary in force and of the words pinned behind it.
pub(super) fn summary_tokens(state: &SessionState, counter: &dyn TokenCounter) -> u64 {
    state.summary.as_ref().map_or(0, |summary| {
        let pinned = summary.pinned.as_ref();
        counter.text(&summary.text) + pinned.map_or(0, |input| input_tokens(input, counter))
    })
}
