//! What later requests leave out because a provider refused the request it was in: a picture over a limit
//! nobody knew, thinking whose signature no longer holds. Without this, one such block would make every
//! later request of the session fail.
//!
//! What a model is known not to see is left out before anybody refuses it (`RequestPlan::blind`); here stands only what
//! the user was told of that.

mod refusal;

use super::{SessionState, Summary};
use crate::error::SessionError;
use crate::event::body::{InputKind, MediaWithheld};
use crate::message::{Entry, PartKind};
use crate::model::{Blind, ModelRef};
use crate::request::Media;
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
    /// What the user was told that a model does not see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen: Option<Unseen>,
}

/// A model that is known not to see what inputs up to a place hold, and of which the user was told that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unseen {
    /// The model.
    pub model: ModelRef,
    /// What it does not see.
    pub blind: Blind,
    /// The place, by seq.
    pub through: u64,
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
    /// The images and documents that `model` is known not to see, by name, as far as the user was not told so yet.
    pub fn unseen_media(&self, model: &ModelRef, blind: Blind) -> Vec<String> {
        self.media()
            .filter(|(seq, media)| blind.is_to(media) && !self.withheld.hides_media(*seq))
            .filter(|(seq, media)| !self.told_unseen(model, *seq, media))
            .map(|(_, media)| media.name.clone())
            .collect()
    }

    /// Remembers at `seq` that the user was told what a model does not see.
    pub(super) fn note_unseen(&mut self, told: &MediaWithheld, seq: u64) {
        self.withheld.unseen = Some(Unseen {
            model: told.model.clone(),
            blind: told.blind,
            through: seq,
        });
    }

    /// Was the user told that `model` does not see `media` of an input promoted at `seq`?
    fn told_unseen(&self, model: &ModelRef, seq: u64, media: &Media) -> bool {
        let told = self.withheld.unseen.as_ref();
        told.is_some_and(|told| {
            told.model == *model && seq <= told.through && told.blind.is_to(media)
        })
    }

    /// All media that requests hold or tell of, with the place of their input.
    fn media(&self) -> impl Iterator<Item = (u64, &Media)> {
        let pinned = self.summary.as_ref().and_then(Summary::pinned);
        let inputs = self
            .entries
            .iter()
            .filter_map(|entry| match entry.as_ref() {
                Entry::Input { seq, input, .. } => Some((input, *seq)),
                _ => None,
            });
        pinned
            .into_iter()
            .chain(inputs)
            .flat_map(|(input, seq)| match input {
                InputKind::User { media, .. } => media.iter().map(move |m| (seq, m)).collect(),
                _ => Vec::new(),
            })
    }

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
        let model = self.settings.as_ref().map(|settings| &settings.model);
        // What the model is known not to see was not in the request.
        let shown = |input: &InputKind, seq: u64| {
            let InputKind::User { media, .. } = input else {
                return false;
            };
            let unseen = |one| model.is_some_and(|model| self.told_unseen(model, seq, one));
            !self.withheld.hides_media(seq) && media.iter().any(|one| !unseen(one))
        };
        for entry in self.entries.iter().rev() {
            match entry.as_ref() {
                Entry::Input { seq, input, .. } if shown(input, *seq) => return true,
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
            .is_some_and(|(input, seq)| shown(input, seq))
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
