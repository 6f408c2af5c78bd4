//! Keeps readers of this process behind the after-commit hooks: nobody sees a commit before its hook ran.

use super::writer::APPENDERS;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tenure_core::id::SessionId;
use tokio::sync::watch;

/// Longer than any flush may take; a gate that stays shut beyond it is an error, and readers go on.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Default)]
struct State {
    shut: bool,
    turn: u64,
    sessions: HashSet<SessionId>,
}

/// Shut from before a batch is sent until its hooks ran, for whoever reads one of its sessions. One for each writer.
pub(super) struct Gate {
    wings: [Wing; APPENDERS],
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            wings: std::array::from_fn(|_| Wing {
                state: Mutex::default(),
                opened: watch::channel(0).0,
            }),
        }
    }
}

impl Gate {
    /// The wing that a writer of appends shuts and opens.
    pub(super) fn wing(&self, writer: usize) -> &Wing {
        &self.wings[writer % APPENDERS]
    }

    /// Waits until the batches in flight, those of `session` (or all, with none named), have run their hooks. Called
    /// once what was read is here: whatever it holds was committed by those or by earlier ones.
    pub(super) async fn pass(&self, session: Option<&SessionId>) {
        for wing in &self.wings {
            wing.pass(session).await;
        }
    }
}

/// What one writer of appends shuts.
pub(super) struct Wing {
    state: Mutex<State>,
    opened: watch::Sender<u64>,
}

impl Wing {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self, sessions: impl Iterator<Item = SessionId>) {
        let mut state = self.state();
        state.shut = true;
        state.sessions = sessions.collect();
    }

    pub(super) fn open(&self) {
        let mut state = self.state();
        if state.shut {
            state.shut = false;
            state.sessions.clear();
            state.turn += 1;
            let turn = state.turn;
            drop(state);
            self.opened.send_replace(turn);
        }
    }

    async fn pass(&self, session: Option<&SessionId>) {
        let turn = {
            let state = self.state();
            let concerned =
                state.shut && session.is_none_or(|session| state.sessions.contains(session));
            if !concerned {
                return;
            }
            state.turn
        };
        let mut opened = self.opened.subscribe();
        let waited = opened.wait_for(|now| *now > turn);
        if tokio::time::timeout(PATIENCE, waited).await.is_err() {
            tracing::error!("a batch has not come back; readers go on without it");
        }
    }
}
