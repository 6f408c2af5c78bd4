//! What every taking of a session must look like, judged the moment it is done: from whom, at which epoch, and at
//! whose charge. By the log, and by what the world knows of the nodes.

use super::ledger::Ledger;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{Incarnation, SessionId};
use tenure_store::Tenure;
use tenure_store::memory::Database;

/// What the log says of a session before its new owner has written anything.
#[derive(Default)]
struct Found {
    /// The newest epoch anything was written under.
    epoch: Option<u64>,
    /// The epoch that began the step that is open.
    open_step: Option<u64>,
}

impl Found {
    fn of(events: &[Event]) -> Self {
        let mut found = Self::default();
        for event in events {
            match &event.body {
                // The epochs of a fork are its own.
                EventBody::SessionForked(_) => found = Self::default(),
                EventBody::StepStarted(_) => found.open_step = event.epoch,
                EventBody::StepEnded(_) | EventBody::StepFailed(_) => found.open_step = None,
                _ => {}
            }
            found.epoch = found.epoch.max(event.epoch);
        }
        found
    }
}

/// A taking that was just executed. `holder`: who held it then, and lived.
pub fn judge(
    ledger: &Ledger,
    database: &Database,
    (session, taker): (&SessionId, &Incarnation),
    holder: Option<String>,
    tenure: &Tenure,
) {
    let epoch = tenure.fence.epoch;
    if let Some(holder) = holder.filter(|holder| holder != taker.as_str()) {
        let words = format!("{taker} took {session} from {holder}, which lives");
        ledger.violated("P1", words);
    }
    let log = database.read(session, None, 100_000);
    let found = Found::of(&log.map(|page| page.events).unwrap_or_default());
    if found.epoch >= Some(epoch) {
        let words = format!(
            "{taker} took {session} at epoch {epoch}, and epoch {:?} is in its log",
            found.epoch
        );
        ledger.violated("P1", words);
    }
    let Some(lost) = &tenure.taken_from else {
        return;
    };
    let excused = lost == taker || ledger.has_resigned(lost);
    if tenure.charged && excused {
        let words = format!("{session} was charged, and {lost} did not crash");
        ledger.violated("R8", words);
    }
    let at_work = found.open_step.is_some_and(|opened| opened + 1 == epoch);
    if !tenure.charged && !excused && at_work && ledger.has_crashed(lost) {
        let words = format!("{session} was at work when {lost} crashed, and was not charged");
        ledger.violated("R8", words);
    }
}
