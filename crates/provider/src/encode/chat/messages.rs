//! The conversation as messages, in the order of roles that the server wants.

use super::super::media::Shown;
use super::super::shape::{self, Json, Said, Turn, visible};
use super::assistant::{self, Assistant};
use super::content::{self, Marks, Piece};
use super::ids::Issued;
use super::limits;
use crate::dialect::{Facts, Order};
use std::collections::HashMap;
use tenure_core::request::{Request, ToolResult};

/// How the messages of one request are written.
pub(super) struct Settings {
    pub facts: &'static Facts,
    pub marks: Marks,
    /// Calls and results have their own place; without, they are told in words.
    pub tools: bool,
    /// Every assistant message needs reasoning.
    pub reasoning: bool,
}

/// Stands where a server refuses a conversation that the model begins.
const OPENING: &str = "(The conversation begins here.)";
/// Most servers either refuse a final assistant message or go on writing inside it.
const GO_ON: &str = "Continue.";
/// Stands between results and the user where only the model may speak there.
const BRIDGE: &str = "Noted.";
/// Answers a call whose result is not in the history.
const NO_RESULT: &str = "No result was recorded for this call.";

#[derive(Clone, Copy, PartialEq)]
enum Role {
    None,
    User,
    Assistant,
    Tool,
}

/// The messages without the system message; `None` when nothing is left.
pub(super) fn of(request: &Request, settings: &Settings) -> Option<Vec<Json>> {
    let mut out = Out {
        settings,
        shown: Shown::of(request, &limits::of(settings.facts.dialect)),
        ids: Issued::new(settings.facts.ids),
        entries: Vec::new(),
        pending: Vec::new(),
        last: Role::None,
    };
    let turns = shape::turns(request);
    let mut at = 0;
    while let Some(turn) = turns.get(at) {
        at += 1;
        match turn {
            Turn::User(said) => out.say(said),
            Turn::Assistant(blocks) => {
                let results: &[&ToolResult] = match turns.get(at) {
                    Some(Turn::Results(results)) => {
                        at += 1;
                        results
                    }
                    _ => &[],
                };
                out.assistant(assistant::of(blocks, settings), results);
            }
            // Results without their calls: no server takes them.
            Turn::Results(_) => {}
        }
    }
    out.finish()
}

/// A message still to be written: which one carries a cache mark is known at the end.
enum Entry {
    Ready(Json),
    User(Vec<Piece>),
    Result { id: String, text: String },
}

struct Out<'s> {
    settings: &'s Settings,
    shown: Shown,
    ids: Issued,
    entries: Vec<Entry>,
    /// What the user said since the last other message: one message for all of it, since templates want
    /// alternation.
    pending: Vec<Piece>,
    last: Role,
}

impl Out<'_> {
    fn say(&mut self, said: &[Said<'_>]) {
        for said in said {
            let piece = match said {
                Said::System(note) if self.settings.facts.notes_anywhere => {
                    self.flush();
                    let note = content::plain("system", note, self.settings.marks, false);
                    self.entries.push(Entry::Ready(note));
                    continue;
                }
                Said::System(note) => Piece::Text(shape::note(note)),
                Said::User(text) => Piece::Text((*text).to_owned()),
                Said::Media(media) => content::media(media, self.settings.facts, &self.shown),
            };
            self.pending.push(piece);
        }
    }

    fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if self.last == Role::Tool && self.settings.facts.order == Order::Bridged {
            self.ready(assistant::words(BRIDGE, self.settings), Role::Assistant);
        }
        let pieces = std::mem::take(&mut self.pending);
        self.entries.push(Entry::User(pieces));
        self.last = Role::User;
    }

    fn ready(&mut self, message: Json, role: Role) {
        self.entries.push(Entry::Ready(message));
        self.last = role;
    }

    fn assistant(&mut self, message: Option<Assistant<'_>>, results: &[&ToolResult]) {
        let Some(mut message) = message else { return };
        let strict = self.settings.facts.order != Order::Free;
        if self.pending.is_empty() {
            if self.last == Role::None && strict {
                self.pending.push(Piece::Text(OPENING.to_owned()));
            } else if self.last == Role::Assistant {
                self.pending.push(Piece::Text(GO_ON.to_owned()));
            }
        }
        self.flush();
        if !self.settings.tools {
            let told = told(&message, results);
            self.ready(message.into_json(self.settings), Role::Assistant);
            if !told.is_empty() {
                self.pending.push(Piece::Text(told));
            }
            return;
        }
        let mut answers = answers(results);
        let mut pairs = Vec::new();
        for call in &mut message.tool_calls {
            let text = answers
                .get_mut(call.id.as_str())
                .and_then(|list| (!list.is_empty()).then(|| list.remove(0)))
                .unwrap_or(NO_RESULT);
            call.id = self.ids.issue(&call.id);
            pairs.push((call.id.clone(), text.to_owned()));
        }
        self.ready(message.into_json(self.settings), Role::Assistant);
        for (id, text) in pairs {
            self.entries.push(Entry::Result { id, text });
            self.last = Role::Tool;
        }
    }

    fn finish(mut self) -> Option<Vec<Json>> {
        self.flush();
        if self.entries.is_empty() {
            return None;
        }
        if self.last == Role::Assistant {
            self.entries
                .push(Entry::User(vec![Piece::Text(GO_ON.to_owned())]));
        }
        let marks = self.settings.marks;
        let marked = self.marked();
        let written = self
            .entries
            .into_iter()
            .enumerate()
            .map(|(at, entry)| match entry {
                Entry::Ready(message) => message,
                Entry::User(pieces) => content::user(&pieces, marks, marked.contains(&at)),
                Entry::Result { id, text } => {
                    content::result(&id, &text, marks, marked.contains(&at))
                }
            });
        Some(written.collect())
    }

    /// The last two places that can carry a mark: one for this step to write, one that the step before wrote.
    fn marked(&self) -> Vec<usize> {
        if self.settings.marks == Marks::None {
            return Vec::new();
        }
        let markable = self.entries.iter().enumerate().rev();
        markable
            .filter(|(_, entry)| match entry {
                Entry::Ready(_) => false,
                Entry::User(pieces) => matches!(pieces.last(), Some(Piece::Text(_))),
                Entry::Result { .. } => true,
            })
            .map(|(at, _)| at)
            .take(2)
            .collect()
    }
}

/// The results by the id they answer, each in its order.
fn answers<'r>(results: &[&'r ToolResult]) -> HashMap<&'r str, Vec<&'r str>> {
    let mut answers: HashMap<&str, Vec<&str>> = HashMap::new();
    for result in results {
        let text = if visible(&result.text) {
            result.text.as_str()
        } else {
            "(no output)"
        };
        answers.entry(result.id.as_str()).or_default().push(text);
    }
    answers
}

/// The results of calls in words, for a server without tools.
fn told(message: &Assistant<'_>, results: &[&ToolResult]) -> String {
    let mut answers = answers(results);
    message
        .tool_calls
        .iter()
        .map(|call| {
            let text = answers
                .get_mut(call.id.as_str())
                .and_then(|list| (!list.is_empty()).then(|| list.remove(0)))
                .unwrap_or(NO_RESULT);
            format!("[{} gave:]\n{text}", call.function.name)
        })
        .collect::<Vec<_>>()
        .join("\n\n")
}
