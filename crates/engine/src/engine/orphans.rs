//! Claims that name this node and that nothing here works on (R11): a task panicked, an acquisition's answer was
//! lost, a session could not even be set aside.

use super::{Shared, wake};
use crate::error::EngineError;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tenure_core::id::{ClaimId, Incarnation, SessionId};

/// How often this life adopts one session. What comes back each time is for another life, where a crash is
/// charged, and in the end the session is set aside (R8).
const ADOPTIONS: u32 = 3;

/// What the reconciler remembers of them from pass to pass.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Seen in the last pass. A task may be between its claim and its place in the map: two passes decide.
    seen: HashSet<ClaimId>,
    /// Adoptions of sessions this node has held ever since.
    adopted: HashMap<SessionId, u32>,
}

impl Orphans {
    /// One pass: runs each of them again, which adopts its claim; the node's other sessions are left alone.
    pub(super) async fn look(
        &mut self,
        shared: &Arc<Shared>,
        incarnation: &Incarnation,
    ) -> Result<(), EngineError> {
        let mut claims = shared.store.claims().await?;
        claims.retain(|claim| &claim.owner == incarnation);
        self.adopted
            .retain(|session, _| claims.iter().any(|claim| &claim.session == session));
        {
            let running = shared.running();
            claims.retain(|claim| !running.contains_key(&claim.session));
        }
        let seen: HashSet<ClaimId> = claims.iter().map(|claim| claim.id.clone()).collect();
        let before = std::mem::replace(&mut self.seen, seen);
        for claim in claims.iter().filter(|claim| before.contains(&claim.id)) {
            let times = self.adopted.entry(claim.session.clone()).or_default();
            *times += 1;
            if *times > ADOPTIONS {
                tracing::error!(%incarnation, session = %claim.session, "a session fails here each time; starting a new life");
                *self = Self::default();
                shared.store.leave(incarnation).await?;
                return Ok(());
            }
            tracing::error!(session = %claim.session, "a claim of this node has nobody working on it; adopting it");
            wake(shared, &claim.session);
        }
        Ok(())
    }
}
