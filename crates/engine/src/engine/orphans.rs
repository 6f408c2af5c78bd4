//! Claims that name this node and that nothing here works on (R11): handed over to it, a task that panicked, an
//! acquisition whose answer was lost, a session that could not even be set aside.

use super::{Shared, wake};
use crate::config::Scope;
use crate::error::EngineError;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tenure_core::id::{ClaimId, SessionId};
use tenure_store::HeldClaim;

/// How often this life adopts one session. What comes back each time is for another life, where a crash is
/// charged, and in the end the session is set aside (R8).
const ADOPTIONS: u32 = 3;

/// What is remembered of them from pass to pass.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Seen in the last pass. A task may be between its claim and its place in the map: two passes decide.
    seen: BTreeSet<ClaimId>,
    /// Adoptions of sessions this node has held ever since.
    adopted: BTreeMap<SessionId, u32>,
}

impl Orphans {
    /// One pass: runs each of them again, which adopts its claim; the node's other sessions are left alone.
    /// `polled`: this pass came by the poll, not by a hint close behind another.
    pub(super) async fn look(
        &mut self,
        shared: &Arc<Shared>,
        held: &[HeldClaim],
        polled: bool,
    ) -> Result<(), EngineError> {
        if broken!(shared.config, OrphansIgnored) {
            return Ok(());
        }
        let idle: Vec<&HeldClaim> = {
            let running = shared.running();
            held.iter()
                .filter(|claim| !running.contains_key(&claim.session))
                .collect()
        };
        // What was handed over is nobody's fault and waits for nothing.
        for claim in idle.iter().filter(|claim| claim.handed) {
            if shared.config.scope == Scope::Any || shared.asked().contains(&claim.session) {
                wake(shared, &claim.session);
            }
        }
        if !polled {
            return Ok(());
        }
        self.adopted.retain(|session, _| {
            held.binary_search_by(|claim| claim.session.cmp(session))
                .is_ok()
        });
        let lost: Vec<&HeldClaim> = idle.into_iter().filter(|claim| !claim.handed).collect();
        let seen = lost.iter().map(|claim| claim.claim.clone()).collect();
        let before = std::mem::replace(&mut self.seen, seen);
        for claim in lost.iter().filter(|claim| before.contains(&claim.claim)) {
            let times = self.adopted.entry(claim.session.clone()).or_default();
            *times += 1;
            if *times > ADOPTIONS {
                let life = shared.node.life();
                tracing::error!(incarnation = %life.incarnation, session = %claim.session, "a session fails here each time; starting a new life");
                *self = Self::default();
                // Nothing of this life may be at work when others take what it held.
                life.fenced.cancel();
                shared.store.leave(&life.incarnation).await?;
                return Ok(());
            }
            tracing::error!(session = %claim.session, "a claim of this node has nobody working on it; adopting it");
            wake(shared, &claim.session);
        }
        Ok(())
    }
}
