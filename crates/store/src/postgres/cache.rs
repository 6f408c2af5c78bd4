//! Sessions as this process last wrote them: what it writes next needs no reading. A stale one costs a second try.

use crate::machine::loaded::{InboxState, Session};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tenure_core::id::SessionId;

/// Sessions kept at most.
const MOST: usize = 16_384;

/// The cache. Every use is tested by the write itself, through the head row's `rev`.
#[derive(Default)]
pub(super) struct Cache(Mutex<HashMap<SessionId, Session>>);

impl Cache {
    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a session out: whoever writes it puts it back as it then is.
    pub(super) fn take(&self, id: &SessionId) -> Option<Session> {
        self.sessions().remove(id)
    }

    pub(super) fn put(&self, mut session: Session) {
        let Some(head) = &session.head else { return };
        let id = head.id.clone();
        // What is over is not asked about again, except by whoever reads it anew.
        session
            .inbox
            .retain(|_, input| input.state == InboxState::Pending);
        let mut sessions = self.sessions();
        if sessions.len() >= MOST && !sessions.contains_key(&id) {
            // Half of them, whichever come first: those at work come back with their next write.
            let mut keep = false;
            sessions.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        sessions.insert(id, session);
    }

    pub(super) fn forget<'a>(&self, ids: impl Iterator<Item = &'a SessionId>) {
        let mut sessions = self.sessions();
        ids.for_each(|id| drop(sessions.remove(id)));
    }

    pub(super) fn clear(&self) {
        self.sessions().clear();
    }
}
