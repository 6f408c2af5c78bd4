//! What every taking and every giving of a session must look like, judged the moment it is done: by whom, from whom, at
//! which epoch, and at whose charge. By the log, and by what the world knows of the nodes.

use super::executor::{Micros, Proc};
use super::ledger::Ledger;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::placement::Serves;
use tenure_store::memory::Database;
use tenure_store::{Append, HookOp, Tenure};

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

/// Who takes what.
#[derive(Debug, Clone)]
pub struct Taking {
    /// The session.
    pub session: SessionId,
    /// By whom.
    pub taker: Incarnation,
    /// What its node serves.
    pub serves: Serves,
}

/// A taking that was just executed. `holder`: who held it then, and lived.
pub fn judge(
    ledger: &Ledger,
    database: &Database,
    taking: &Taking,
    holder: Option<String>,
    tenure: &Tenure,
) {
    let Taking { session, taker, .. } = taking;
    let epoch = tenure.fence.epoch;
    if ledger.registry.has_retired(taker) {
        let words = format!("{taker} drains or is dead, and took {session}");
        ledger.violated("R7", words);
    }
    // An own claim is taken up wherever the session is by now: its next boundary lets it go.
    if tenure.taken_from.as_ref() != Some(taker) {
        judge_place(ledger, database, taking);
    }
    let before = ledger.registry.granted(session, epoch);
    if before >= Some(epoch) {
        let words = format!("{taker} was given {session} at epoch {epoch}, which was given before");
        ledger.violated("P1", words);
    }
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
    if found.open_step.is_some() {
        ledger.registry.found_lost(session, epoch);
    }
    let excused = lost == taker || ledger.registry.has_resigned(lost);
    if tenure.charged && excused {
        let words = format!("{session} was charged, and {lost} did not crash");
        ledger.violated("R8", words);
    }
    let at_work = found.open_step.is_some_and(|opened| opened + 1 == epoch);
    if !tenure.charged && !excused && at_work && ledger.registry.has_crashed(lost) {
        let words = format!("{session} was at work when {lost} crashed, and was not charged");
        ledger.violated("R8", words);
    }
}

/// Only a node that serves the place takes the session, or the one it waits to be moved to, unless it is just to be
/// settled (R9).
fn judge_place(ledger: &Ledger, database: &Database, taking: &Taking) {
    let Taking {
        session,
        taker,
        serves,
    } = taking;
    let Ok(Some(row)) = database.session(session) else {
        return;
    };
    if !row.cancelling
        && let Err(why) = row.check_served(serves)
    {
        let words = format!("{taker} took {session}, whose place it does not serve: {why}");
        ledger.violated("R9", words);
    }
}

/// What there is to judge of a write once it is executed.
#[derive(Debug)]
pub struct Giving {
    session: SessionId,
    /// Whom it names as the next owner.
    to: Option<Incarnation>,
    /// It settles a step as stopped by a shutdown.
    shut_down: bool,
}

impl Giving {
    /// Of a write; none when it gives nothing away and stops nothing.
    pub fn of(append: &Append) -> Option<Self> {
        let to = append.ops.iter().find_map(|op| match op {
            HookOp::HandOver { to, .. } => to.clone(),
            _ => None,
        });
        let shut_down = append.events.iter().any(
            |event| matches!(&event.body, EventBody::StepFailed(e) if e.error.kind == "shutdown"),
        );
        (to.is_some() || shut_down).then(|| Self {
            session: append.session.clone(),
            to,
            shut_down,
        })
    }

    /// It was just executed for `proc`, at `now`.
    pub fn judge(&self, ledger: &Ledger, database: &Database, proc: Proc, now: Micros) {
        let session = &self.session;
        if self.shut_down {
            let until = ledger.registry.drains_until(proc);
            if until.is_none_or(|until| now < until) {
                let words = format!(
                    "{session}: a step was stopped by a shutdown whose time was not over (till {until:?})"
                );
                ledger.violated("R11", words);
            }
        }
        let Some(to) = self
            .to
            .as_ref()
            .filter(|to| ledger.registry.has_retired(to))
        else {
            return;
        };
        let claims = database.claims().unwrap_or_default();
        if claims
            .iter()
            .any(|claim| &claim.session == session && &claim.owner == to)
        {
            let words = format!("{session} was given to {to}, which drains or is dead");
            ledger.violated("R11", words);
        }
    }
}
