//! Keeps readers of this process behind the after-commit hooks: nobody sees a commit before its hook ran.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Longer than any commit; a gate that stays shut beyond it is a hung disk, and readers go on.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct State {
    shut: bool,
    turn: u64,
}

/// Shut from just before COMMIT until the hooks ran.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

impl Gate {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        self.state().shut = true;
    }

    pub(super) fn open(&self) {
        let mut state = self.state();
        if state.shut {
            state.shut = false;
            state.turn += 1;
            drop(state);
            self.opened.notify_all();
        }
    }

    /// Waits until the commit in flight, if there is one, has run its hooks. Called after a read began its
    /// snapshot: what the snapshot holds has then been told to its hooks.
    pub(super) fn pass(&self) {
        let mut state = self.state();
        let turn = state.turn;
        while state.shut && state.turn == turn {
            let (next, waited) = self
                .opened
                .wait_timeout(state, PATIENCE)
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                return;
            }
        }
    }
}
