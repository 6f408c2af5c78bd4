//! What later requests leave out because a provider refused the request it was in: a picture over a limit
//! nobody knew, thinking whose signature no longer holds. Without this, one such block would make every
//! later request of the session fail.

mod refusal;

use super::{SessionState, Summary};
use crate::error::SessionError;
use crate::event::body::InputKind;
use crate::message::{Entry, PartKind};
use refusal::Refused;
use serde::{Deserialize, Serialize};

/// Where what is left out ends, by seq. Each of the two moves on only when something newer was refused, so
/// that every repair is tried once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    /// Images and documents of inputs up to here are told, not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<u64>,
    /// Messages up to here go without their provider's own state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Summaries of what the model thinks are not asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thoughts: bool,
}

impl Withheld {
    /// Are the media of an input promoted at `seq` left out?
    pub fn hides_media(&self, seq: u64) -> bool {
        self.media.is_some_and(|through| seq <= through)
    }

    /// Does a message that began at `seq` go without its provider's own state?
    pub fn hides_reasoning(&self, seq: u64) -> bool {
        self.reasoning.is_some_and(|through| seq <= through)
    }
}

/// What to leave out after a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    Media,
    Reasoning,
    Thoughts,
}

impl SessionState {
    /// Would leaving something out be worth another try after a step failed with `error`?
    pub fn can_repair(&self, error: &SessionError) -> bool {
        self.repair(error).is_some()
    }

    /// Remembers at `seq` what is left out after `error`. True when there is something, and the step is to be
    /// tried again.
    pub(super) fn withhold(&mut self, error: &SessionError, seq: u64) -> bool {
        match self.repair(error) {
            Some(Repair::Media) => self.withheld.media = Some(seq),
            Some(Repair::Reasoning) => self.withheld.reasoning = Some(seq),
            Some(Repair::Thoughts) => self.withheld.thoughts = true,
            None => return false,
        }
        true
    }

    fn repair(&self, error: &SessionError) -> Option<Repair> {
        match refusal::of(error)? {
            Refused::Thoughts => (!self.withheld.thoughts).then_some(Repair::Thoughts),
            Refused::State => self.has_state().then_some(Repair::Reasoning),
            Refused::Media => self.new_media(true).then_some(Repair::Media),
            // Without a word of it: only what no answer has been given to yet is suspected.
            Refused::Unsaid => self.new_media(false).then_some(Repair::Media),
        }
    }

    /// Is there a provider's own state that would still go back? Signatures stand on thinking, on calls and on
    /// text, as the vendor likes.
    fn has_state(&self) -> bool {
        self.entries.iter().any(|entry| match entry.as_ref() {
            Entry::Assistant(message) if !self.withheld.hides_reasoning(message.seq) => message
                .parts
                .iter()
                .any(|part| !part.superseded && holds_state(&part.kind)),
            _ => false,
        })
    }

    /// Are there media that are still shown: any, or only such as no step has succeeded with?
    fn new_media(&self, any: bool) -> bool {
        for entry in self.entries.iter().rev() {
            match entry.as_ref() {
                Entry::Input {
                    seq,
                    input: InputKind::User { media, .. },
                    ..
                } if !media.is_empty() && !self.withheld.hides_media(*seq) => return true,
                Entry::Assistant(message)
                    if !any && message.end.as_ref().is_some_and(|end| end.error.is_none()) =>
                {
                    return false;
                }
                _ => {}
            }
        }
        let summary = self.summary.as_ref().filter(|_| any);
        summary
            .and_then(Summary::pinned)
            .is_some_and(|(input, seq)| {
                !self.withheld.hides_media(seq)
                    && matches!(input, InputKind::User { media, .. } if !media.is_empty())
            })
    }
}

fn holds_state(part: &PartKind) -> bool {
    match part {
        PartKind::Text(text) | PartKind::Reasoning(text) => text.native.is_some(),
        PartKind::Tool(tool) => {
            let result = tool.outcome.as_ref().and_then(|o| o.native.as_ref());
            tool.native.is_some() || result.is_some()
        }
        PartKind::Opaque { .. } => true,
    }
}
