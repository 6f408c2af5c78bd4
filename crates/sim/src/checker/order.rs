//! The log's own shape and P1: dense seqs, unique ids, epochs that never fall, takeovers that say so.

use super::{Findings, Promise};
use std::collections::HashSet;
use tenure_core::event::EventBody;
use tenure_core::{Event, EventId, SessionId};

/// What came before.
#[derive(Default)]
pub(super) struct Order {
    next: u64,
    session: Option<SessionId>,
    ids: HashSet<EventId>,
    epoch: Option<u64>,
}

impl Order {
    /// `open`: a step or compaction is open before this event.
    pub(super) fn on(&mut self, event: &Event, open: bool, out: &mut Findings) {
        self.shape(event, out);
        let Some(epoch) = event.epoch else {
            out.unless(is_open_to_all(&event.body), Promise::OneOwner, || {
                format!("{} was written without a fence", event.body.type_name())
            });
            return;
        };
        if let Some(before) = self.epoch {
            out.unless(epoch >= before, Promise::OneOwner, || {
                format!("an event of epoch {epoch} follows one of epoch {before}")
            });
            let taken_over = epoch > before && open;
            let says_so = matches!(event.body, EventBody::RecoveryStarted(_));
            out.unless(!taken_over || says_so, Promise::OneOwner, || {
                format!(
                    "epoch {epoch} took over what was open and began with {} instead of a recovery",
                    event.body.type_name()
                )
            });
        }
        self.epoch = self.epoch.max(Some(epoch));
    }

    fn shape(&mut self, event: &Event, out: &mut Findings) {
        out.unless(event.seq == self.next, Promise::Order, || {
            format!("seq {} where {} was due", event.seq, self.next)
        });
        self.next = event.seq + 1;
        out.unless(self.ids.insert(event.id.clone()), Promise::Order, || {
            format!("event {} is there twice", event.id)
        });
        let first = self.session.is_none();
        let session = self.session.get_or_insert_with(|| event.session.clone());
        if matches!(event.body, EventBody::SessionForked(_)) {
            *session = event.session.clone();
        }
        out.unless(*session == event.session, Promise::Order, || {
            format!("an event of {} in the log of {session}", event.session)
        });
        let creates = matches!(event.body, EventBody::SessionCreated(_));
        out.unless(creates == first, Promise::Order, || {
            format!(
                "{} at seq {}: a log begins with its one creation",
                event.body.type_name(),
                event.seq
            )
        });
    }
}

/// May anybody write it, without owning the session?
fn is_open_to_all(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::SessionCreated(_)
            | EventBody::SessionForked(_)
            | EventBody::SessionRenamed(_)
            | EventBody::ModelSelected(_)
            | EventBody::LimitsChanged(_)
            | EventBody::PermissionsChanged(_)
            | EventBody::InputAdmitted(_)
            | EventBody::InputCancelled(_)
            | EventBody::InputDeliveryChanged(_)
            | EventBody::InterruptRequested(_)
            | EventBody::PermissionAnswered(_)
            // Whoever looks after a place may say that it was rebuilt (R14).
            | EventBody::AttachmentReplaced(_)
            | EventBody::SessionReleased(_)
            | EventBody::SessionQuarantined(_)
            | EventBody::Unknown(_)
    )
}
