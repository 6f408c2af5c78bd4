//! What a vendor's prompt cache compares: the bytes of two requests, without the marks that tell it what to keep.

use super::judge::body;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use tenure_core::request::{Request, RequestMessage};
use tenure_core::session::{SessionState, Withheld};
use tenure_provider::Dialect;
use tenure_sim::randomlog::{Asked, BEDROCK, GEMINI, RESPONSES};

/// One request's bytes: the conversation, and everything around it.
struct Bytes {
    around: String,
    conversation: String,
}

impl Bytes {
    fn of(asked: &Asked, body: &str) -> Self {
        let key = match asked.protocol {
            RESPONSES => "input",
            GEMINI => "contents",
            _ => "messages",
        };
        let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(body).expect("an object");
        let conversation = fields[key].get();
        Self {
            around: unmarked(&body.replacen(conversation, "…", 1)),
            conversation: unmarked(conversation),
        }
    }

    /// Anthropic's models may not be asked to think while a tool loop is under way that began without a thought.
    fn forget_thinking(&mut self) {
        for (field, end) in [
            ("\"additionalModelRequestFields\":{\"thinking\":{", "}},"),
            ("\"thinking\":{", "},"),
        ] {
            if let Some(at) = self.around.find(field)
                && let Some(length) = self.around[at..].find(end)
            {
                self.around.replace_range(at..at + length + end.len(), "");
            }
        }
    }

    /// Where a later request may go on: behind the last word.
    fn beginning(&self, asked: &Asked) -> &str {
        let mut all = self.conversation.as_str();
        // The form of an answer in words stands behind the last cache mark, and moves on with it.
        if asked.protocol == BEDROCK
            && let Some(form) = all.rfind("final answer must be JSON alone")
            && let Some(block) = all[..form].rfind("{\"text\":\"")
        {
            all = all[..block].trim_end_matches(',');
        }
        let all = all.trim_end_matches(['}', ']', '"']);
        all.strip_suffix("\",\"type\":\"text").unwrap_or(all)
    }

    fn begins_with(&self, before: &Self, asked: &Asked) -> bool {
        let beginning = before.beginning(asked);
        self.conversation.starts_with(beginning)
            || self.conversation.starts_with(&listed(beginning))
    }
}

/// Without the marks: where they stand is no part of what is kept.
fn unmarked(text: &str) -> String {
    text.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
        .replace("\"cache_control\":{\"type\":\"ephemeral\"},", "")
        .replace(",{\"cachePoint\":{\"type\":\"default\"}}", "")
}

/// The same with its last text as the first part of a list: the model reads the same when a picture follows.
fn listed(beginning: &str) -> String {
    let field = "\"content\":\"";
    match beginning.rfind(field) {
        Some(at) => format!(
            "{}\"content\":[{{\"text\":\"{}",
            &beginning[..at],
            &beginning[at + field.len()..]
        ),
        None => beginning.to_owned(),
    }
}

/// A request of which a later one to the same model is to be the continuation.
pub struct Earlier {
    /// The length of the log it was built from.
    pub at: usize,
    request: Request,
    epoch: Epoch,
}

/// What ends all that a vendor could have kept of a session's requests: a summary, and what is left out anew.
#[derive(Debug, Clone, PartialEq)]
struct Epoch {
    summary: Option<u64>,
    withheld: Withheld,
}

impl Epoch {
    fn of(state: &SessionState) -> Self {
        Self {
            summary: state.summary.as_ref().map(|summary| summary.seq),
            withheld: state.withheld.clone(),
        }
    }
}

impl Earlier {
    /// The request that was built from the first `at` events, whose fold is `state`.
    pub fn new(at: usize, request: Request, state: &SessionState) -> Self {
        Self {
            at,
            request,
            epoch: Epoch::of(state),
        }
    }

    /// Do both belong to one tool loop, of which the earlier one is not the beginning?
    fn is_one_loop_with(&self, later: &Request) -> bool {
        // An answer without calls ends the loop.
        let goes_on = |pair: &[RequestMessage]| {
            matches!(
                pair,
                [
                    RequestMessage::Assistant { .. },
                    RequestMessage::ToolResults { .. }
                ]
            )
        };
        let last = self.request.messages.last();
        let more = later.messages.get(self.request.messages.len()..);
        matches!(last, Some(RequestMessage::ToolResults { .. }))
            && more.is_some_and(|more| more.chunks(2).all(goes_on))
    }

    /// Is `later`, built from `state`, the same with more behind it, in the dialect it is sent in?
    pub fn is_continued_by(
        &self,
        later: &Request,
        state: &SessionState,
        (asked, dialect): (&Asked, Dialect),
    ) -> Result<Continued, String> {
        if self.epoch != Epoch::of(state) {
            return Ok(Continued::Anew);
        }
        // A paused turn goes on inside its last message.
        if matches!(
            self.request.messages.last(),
            Some(RequestMessage::Assistant { .. })
        ) {
            return Ok(Continued::Anew);
        }
        // The newest prompt wishes for something else.
        let wishes = |r: &Request| (r.effort, r.output_schema.clone());
        if wishes(&self.request) != wishes(later) {
            return Ok(Continued::Anew);
        }
        let (first, second) = (
            body(asked, &self.request, dialect),
            body(asked, later, dialect),
        );
        let (mut before, mut after) = (Bytes::of(asked, &first), Bytes::of(asked, &second));
        if !self.is_one_loop_with(later) {
            before.forget_thinking();
            after.forget_thinking();
        }
        if before.around != after.around {
            return Err(format!(
                "{asked:?} {dialect:?}: around the conversation\n{}\nbecame\n{}\nin\n{first}\nand\n{second}",
                before.around, after.around
            ));
        }
        if !after.begins_with(&before, asked) {
            let at = common(&before.conversation, &after.conversation);
            if shows_fewer(&before.conversation, &after.conversation) {
                return Ok(Continued::Anew);
            }
            return Err(format!(
                "{asked:?} {dialect:?}: the conversation is another one from byte {at} on:\n…{}\nbecame\n…{}\nin\n{first}\nand\n{second}",
                shown(&before.conversation, at),
                shown(&after.conversation, at)
            ));
        }
        Ok(Continued::Byte)
    }
}

/// What two requests have to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Continued {
    /// The later one begins with all bytes of the earlier.
    Byte,
    /// Something ended that: a summary, a repair, another wish, more pictures or documents than one request holds.
    Anew,
}

/// Are there pictures or documents in the later conversation that gave way to newer ones? One request holds few.
fn shows_fewer(before: &str, after: &str) -> bool {
    let told = |text: &str| {
        let gone = text.matches("there are newer ones").count();
        gone + text
            .matches(", which cannot be shown to this model.]")
            .count()
    };
    told(after) > told(before)
}

fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Some of a text around a byte.
fn shown(text: &str, at: usize) -> String {
    let (from, to) = (at.saturating_sub(80), text.len().min(at + 200));
    String::from_utf8_lossy(&text.as_bytes()[from..to]).into_owned()
}
