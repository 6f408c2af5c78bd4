//! What the world knows of nodes, and of who was given which session at which epoch: kept from outside, for those who
//! judge.

use super::executor::{Micros, Proc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_core::id::{Incarnation, SessionId};

/// The registry of one run.
#[derive(Debug, Default)]
pub struct Registry(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    crashed: BTreeSet<Incarnation>,
    resigned: BTreeSet<Incarnation>,
    retired: BTreeSet<Incarnation>,
    drains: BTreeMap<Proc, Micros>,
    granted: BTreeMap<SessionId, u64>,
    lost: BTreeMap<SessionId, BTreeSet<u64>>,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lives of a process that was killed at its work.
    pub fn crashed(&self, lives: &[Incarnation]) {
        self.state().crashed.extend(lives.iter().cloned());
    }

    /// Was it killed at its work?
    pub fn has_crashed(&self, life: &Incarnation) -> bool {
        self.state().crashed.contains(life)
    }

    /// A node said by itself that it is done.
    pub fn resigned(&self, life: &Incarnation) {
        let mut state = self.state();
        state.resigned.insert(life.clone());
        state.retired.insert(life.clone());
    }

    /// Did it say so?
    pub fn has_resigned(&self, life: &Incarnation) -> bool {
        self.state().resigned.contains(life)
    }

    /// The database knows that a node drains or is dead: from now on it is given nothing (R7).
    pub fn retired(&self, life: &Incarnation) {
        self.state().retired.insert(life.clone());
    }

    /// Does the database know?
    pub fn has_retired(&self, life: &Incarnation) -> bool {
        self.state().retired.contains(life)
    }

    /// A process was asked to shut down, and may take until then to do it in order.
    pub fn drains(&self, proc: Proc, until: Micros) {
        self.state().drains.insert(proc, until);
    }

    /// Until when a process may shut down in order; none when nobody asked it to.
    pub fn drains_until(&self, proc: Proc) -> Option<Micros> {
        self.state().drains.get(&proc).copied()
    }

    /// A session was given to somebody at this epoch. The highest epoch it was given at before.
    pub fn granted(&self, session: &SessionId, epoch: u64) -> Option<u64> {
        let mut state = self.state();
        let before = state.granted.get(session).copied();
        let newest = before.map_or(epoch, |before| before.max(epoch));
        state.granted.insert(session.clone(), newest);
        before
    }

    /// Whoever was given the session at this epoch found a step open that a lost owner had begun.
    pub fn found_lost(&self, session: &SessionId, epoch: u64) {
        let mut state = self.state();
        state.lost.entry(session.clone()).or_default().insert(epoch);
    }

    /// The epochs of which that holds.
    pub fn lost(&self, session: &SessionId) -> BTreeSet<u64> {
        self.state().lost.get(session).cloned().unwrap_or_default()
    }

    /// The session was deleted: one of its name that is made again has a life of its own.
    pub fn forget(&self, session: &SessionId) {
        let mut state = self.state();
        state.granted.remove(session);
        state.lost.remove(session);
    }
}
