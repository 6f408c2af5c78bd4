//! Who waits for news of which session. Wakes are hints: local commits, notifications of others, and the poll.

use super::conn::Conn;
use super::sql::params;
use super::trouble::Trouble;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tenure_core::id::SessionId;
use tokio::sync::watch;

struct Watched {
    sender: watch::Sender<u64>,
    /// What the poll last saw of its row; none when it must be looked at.
    seen: Option<Mark>,
}

/// What moves with a session: its row's `rev`, and whether its owner is dead.
type Mark = (i64, bool);

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Watched>,
    all: Option<watch::Sender<u64>>,
    /// How much was written to the store's tables, as the server's statistics say.
    written: Option<i64>,
}

/// Who waits for what.
pub(super) struct Watchers {
    switches: crate::Switches,
    state: Mutex<State>,
}

fn bump(sender: &watch::Sender<u64>) {
    sender.send_modify(|count| *count += 1);
}

impl Watchers {
    pub(super) fn new(switches: crate::Switches) -> Self {
        Self {
            switches,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the watchers of `sessions`, and those of everything.
    pub(super) fn wake(&self, sessions: &[SessionId]) {
        let state = self.state();
        for session in sessions {
            if let Some(watched) = state.sessions.get(session) {
                bump(&watched.sender);
            }
        }
        if !sessions.is_empty()
            && let Some(all) = &state.all
        {
            bump(all);
        }
    }

    /// Wakes everybody: nobody knows what was missed.
    pub(super) fn wake_everybody(&self) {
        let state = self.state();
        state
            .sessions
            .values()
            .for_each(|watched| bump(&watched.sender));
        if let Some(all) = &state.all {
            bump(all);
        }
    }

    pub(super) fn session(&self, session: &SessionId) -> watch::Receiver<u64> {
        let mut state = self.state();
        let watched = state
            .sessions
            .entry(session.clone())
            .or_insert_with(|| Watched {
                sender: watch::channel(0).0,
                seen: None,
            });
        watched.sender.subscribe()
    }

    pub(super) fn all(&self) -> watch::Receiver<u64> {
        let mut state = self.state();
        let all = state.all.get_or_insert_with(|| watch::channel(0).0);
        all.subscribe()
    }

    /// Forgets who no longer watches; the sessions still watched, or none when nobody watches anything.
    pub(super) fn watched(&self) -> Option<Vec<SessionId>> {
        let mut state = self.state();
        state
            .sessions
            .retain(|_, watched| watched.sender.receiver_count() > 0);
        if state
            .all
            .as_ref()
            .is_some_and(|all| all.receiver_count() == 0)
        {
            state.all = None;
        }
        let any = !state.sessions.is_empty() || state.all.is_some();
        any.then(|| state.sessions.keys().cloned().collect())
    }

    /// One look at the watched rows: wakes whose row moved since the last one.
    pub(super) async fn poll(&self, conn: &Conn, watched: &[SessionId]) -> Result<(), Trouble> {
        let ids: Vec<&str> = watched.iter().map(SessionId::as_str).collect();
        let rows = conn.rows(REVS, params![TEXT_ARRAY: ids]).await?;
        let written = conn
            .first(
                WRITTEN,
                params![TEXT: conn.dialect().schema().trim_matches('"')],
            )
            .await?
            .and_then(|row| row.get::<_, Option<i64>>(0));
        let marks: HashMap<&str, Mark> = rows
            .iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect();
        let mut state = self.state();
        let mut moved = written.is_none() || state.written != written;
        state.written = written;
        for session in watched {
            let mark = marks.get(session.as_str()).copied().unwrap_or((-1, false));
            if let Some(watched) = state.sessions.get_mut(session)
                && watched.seen != Some(mark)
            {
                let baseline = watched.seen.replace(mark).is_none();
                moved = true;
                // What came between a reader's subscription and this look is not known: wake it once.
                if !(baseline && broken!(self.switches, FollowSubscribesLate)) {
                    bump(&watched.sender);
                }
            }
        }
        if moved && let Some(all) = &state.all {
            bump(all);
        }
        Ok(())
    }
}

const REVS: &str = "SELECT s.id, s.rev, coalesce(n.state > 1, s.owner IS NOT NULL) FROM unnest($1) u(id) \
     JOIN @.session s ON s.id = u.id LEFT JOIN @.node n ON n.incarnation = s.owner";
const WRITTEN: &str = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::INT8 FROM pg_stat_user_tables \
     WHERE schemaname = $1 AND relname IN ('session', 'claim')";
