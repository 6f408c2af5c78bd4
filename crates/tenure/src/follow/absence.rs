//! What a command that follows says of a store that is away, and what it owes the store until it is back.

use super::questions::Answered;
use crate::render::escape::safe_line;
use futures::future::BoxFuture;
use std::time::{Duration, Instant};
use tenure_core::SessionId;
use tenure_engine::{Client, EngineError};
use tenure_store::{Interrupted, ReadError};

/// How often that is tried which the store did not take or tell.
pub(super) const AGAIN: Duration = Duration::from_millis(500);

/// What is known of the store's absence, and what could not be done in it.
#[derive(Default)]
pub(super) struct Owed {
    /// When it was found away, while it is: nothing is tried before somebody finds it back.
    away: Option<Instant>,
    /// Has the session anything left to do?
    pub rest: bool,
    /// Questions to settle.
    pub questions: bool,
    /// An answer that was typed.
    pub answer: Option<Answered>,
}

impl Owed {
    /// Is there anything that can be tried now?
    pub(super) fn is_due(&self) -> bool {
        self.away.is_none() && (self.rest || self.questions || self.answer.is_some())
    }

    /// The store was found away: what to say of it, once for each absence.
    pub(super) fn away(&mut self, session: &SessionId, reason: &str) -> Option<String> {
        if self.away.is_some() {
            return None;
        }
        self.away = Some(Instant::now());
        let reason = safe_line(reason);
        Some(format!(
            "the store is away: {reason}; {session} is followed from where it was once the store is back \
             (Ctrl-C leaves)"
        ))
    }

    /// It was found back: what to say of that, if it was away.
    pub(super) fn back(&mut self) -> Option<String> {
        let away = self.away.take()?.elapsed();
        Some(format!(
            "the store is back after {} s",
            away.as_secs().max(1)
        ))
    }
}

/// Could it go well once the store is back?
pub(super) fn may_pass(error: &EngineError) -> bool {
    // No waiting mends a store that a newer version has changed.
    error.is_unavailable() && !matches!(error, EngineError::Read(ReadError::Outdated { .. }))
}

/// Stops what runs, however long the store is away: it keeps one of what is asked again.
pub(super) fn interrupt(
    client: &Client,
    session: &SessionId,
) -> BoxFuture<'static, Result<Interrupted, EngineError>> {
    let (client, session) = (client.clone().patient(Duration::MAX), session.clone());
    let by = "the terminal (Ctrl-C)";
    Box::pin(async move { client.interrupt(&session, None, by).await })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absence_is_told_once_and_nothing_is_tried_in_it() {
        let session = SessionId::from_bits(1);
        let mut owed = Owed::default();
        assert_eq!(owed.back(), None);
        assert!(!owed.is_due());
        owed.rest = true;
        assert!(owed.is_due());
        for _ in 0..2 {
            let told = owed.away(&session, "gone\x1b[2J").unwrap();
            assert!(told.contains("away: gone"), "{told}");
            assert!(!told.contains('\x1b'), "{told:?}");
            assert!(!owed.is_due());
            assert_eq!(owed.away(&session, "still gone"), None);
            assert!(owed.back().is_some());
            assert_eq!(owed.back(), None);
            assert!(owed.is_due());
        }
    }

    #[test]
    fn no_waiting_mends_a_store_of_a_newer_version() {
        let reason = String::from("x");
        let away = ReadError::Unavailable {
            reason: reason.clone(),
        };
        assert!(may_pass(&away.into()));
        assert!(!may_pass(&ReadError::Outdated { reason }.into()));
    }
}
