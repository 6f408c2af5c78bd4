//! What later requests leave out because a provider refused the request it was in: a picture over a limit
//! nobody knew, thinking whose signature no longer holds. Without this, one such block would make every
//! later request of the session fail.

use super::SessionState;
use crate::error::SessionError;
use crate::event::body::InputKind;
use crate::message::{Entry, PartKind};
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
            None => return false,
        }
        true
    }

    fn repair(&self, error: &SessionError) -> Option<Repair> {
        let refused = matches!(error.kind.as_str(), "invalid_request" | "request_too_large");
        if !refused {
            return None;
        }
        let text = error.message.to_ascii_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        // The thinking of a message is named by its signature, or by the kind of block.
        if says(&[
            "signature",
            "thinking",
            "encrypted_content",
            "reasoning item",
            "'reasoning'",
        ]) && self.has_own_state()
        {
            return Some(Repair::Reasoning);
        }
        let about_media = says(&[
            "image", "document", "pdf", "media", "base64", "file", "pixel", "picture",
        ]);
        // Without a word of it: only what no answer has been given to yet is suspected.
        let suspected = self.new_media(about_media || error.kind == "request_too_large");
        suspected.then_some(Repair::Media)
    }

    /// Is there state of a provider's own that would still go back? Some vendors sign text and calls, not the
    /// reasoning before them.
    fn has_own_state(&self) -> bool {
        self.entries.iter().any(|entry| match entry.as_ref() {
            Entry::Assistant(message) if !self.withheld.hides_reasoning(message.seq) => {
                message.parts.iter().any(|part| {
                    let own = match &part.kind {
                        PartKind::Reasoning(text) | PartKind::Text(text) => text.native.is_some(),
                        PartKind::Tool(tool) => tool.native.is_some(),
                        PartKind::Opaque { .. } => true,
                    };
                    own && !part.superseded
                })
            }
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
        let pinned = self.summary.as_ref().filter(|_| any);
        pinned.is_some_and(|summary| {
            !self.withheld.hides_media(summary.seq)
                && matches!(&summary.pinned, Some(InputKind::User { media, .. }) if !media.is_empty())
        })
    }
}
