//! P7 while a run goes on: no session waits for an owner longer than a node that nothing disturbs needs to take it.

use super::executor::Micros;
use super::world::World;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::event::body::Location;
use tenure_core::id::SessionId;
use tenure_core::model::ModelRef;
use tenure_store::SessionState;

/// A request that vanished before the node was sound again is given up after eight seconds at most; then come its
/// poll, the time it leaves to another node, and the taking itself.
const WITHIN: Micros = 20_000_000;

/// Who has been waiting, and since when. It looks on from outside: it takes no part in what happens.
#[derive(Debug, Default)]
pub struct Stranded {
    claimable: BTreeMap<SessionId, Micros>,
    told: BTreeSet<SessionId>,
}

impl Stranded {
    /// One look, to be had a few times a second.
    pub fn look(&mut self, world: &World) {
        let now = world.executor.now();
        let rows = world.database.sessions(&Default::default());
        let waiting: BTreeMap<SessionId, (Location, ModelRef)> = rows
            .unwrap_or_default()
            .into_iter()
            .filter(|row| matches!(row.state, SessionState::Claimable { .. }))
            .map(|row| (row.id, (row.location, row.model)))
            .collect();
        self.claimable
            .retain(|session, _| waiting.contains_key(session));
        world.mark_disturbed();
        for (session, (place, model)) in waiting {
            let since = *self.claimable.entry(session.clone()).or_insert(now);
            let Some(sound) = world.undisturbed_since(&place, &model) else {
                continue;
            };
            let waited = now.saturating_sub(since.max(sound));
            if waited > WITHIN && self.told.insert(session.clone()) {
                let seconds = waited / 1_000_000;
                let words = format!("{session} could be taken for {seconds} s, and nobody did");
                world.ledger.violated("P7", words);
            }
        }
    }
}
