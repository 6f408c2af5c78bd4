//! Where a session may be run: at its place, and, where that is served no more, at the place it waits to be moved to.

use super::head::Head;
use serde::{Deserialize, Serialize};
use tenure_core::event::body::{InputAdmitted, InputKind, Location};
use tenure_core::id::MessageId;
use tenure_core::placement::{Serves, Unserved};

/// A move that was admitted and is not carried out yet; of several the last, since that is where the session ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moving {
    /// The seq of its admission.
    pub(crate) seq: u64,
    pub(crate) input: String,
    pub(crate) to: Location,
}

impl Head {
    /// Notes a move that was admitted.
    pub(crate) fn note_move(&mut self, seq: u64, admitted: &InputAdmitted) {
        if let InputKind::Move { location } = &admitted.kind {
            self.moving = Some(Moving {
                seq,
                input: admitted.input.as_str().to_owned(),
                to: location.clone(),
            });
        }
    }

    /// An input waits no more: it was carried out, or taken back.
    pub(crate) fn forget_move(&mut self, input: &MessageId) {
        self.moving.take_if(|moving| moving.input == input.as_str());
    }

    /// Where the session waits to be moved to; none while the move rests with what else is parked (R4).
    pub(crate) fn goes_to(&self) -> Option<&Location> {
        let moving = self.moving.as_ref()?;
        self.eligible(moving.seq).then_some(&moving.to)
    }

    /// May a node have the session: does it serve its place, or the one it moves to?
    pub(crate) fn check_served(&self, serves: &Serves) -> Result<(), Unserved> {
        serves.check_moving(&self.location(), self.goes_to(), &self.model())
    }
}
