//! Wakes: at once for this process's commits, by polling for those of others.

use super::SharedState;
use super::open::{Role, connect};
use super::tx::first;
use rusqlite::Connection;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tenure_core::id::SessionId;
use tokio::sync::watch;

/// Between looks while somebody watches a session.
const FAST: Duration = Duration::from_millis(15);
/// Between looks while only the whole store is watched.
const SLOW: Duration = Duration::from_secs(1);
/// Rest after a look, in the time the look took.
const REST: u32 = 15;

struct Watched {
    sender: watch::Sender<u64>,
    /// The head row's `rev` when it was last looked at; none when it must be looked at.
    rev: Option<i64>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<SessionId, Watched>,
    all: Option<watch::Sender<u64>>,
    polling: bool,
    closed: bool,
}

/// Who waits for what.
pub(super) struct Watchers {
    switches: crate::Switches,
    state: Mutex<State>,
    hurry: Condvar,
}

fn bump(sender: &watch::Sender<u64>) {
    sender.send_modify(|count| *count += 1);
}

impl Watchers {
    pub(super) fn new(switches: crate::Switches) -> Self {
        Self {
            switches,
            state: Mutex::default(),
            hurry: Condvar::new(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the watchers of `sessions`, and those of everything.
    pub(super) fn wake<'a>(&self, sessions: impl Iterator<Item = &'a SessionId>) {
        let state = self.state();
        for session in sessions {
            if let Some(watched) = state.sessions.get(session) {
                bump(&watched.sender);
            }
        }
        if let Some(all) = &state.all {
            bump(all);
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.hurry.notify_all();
    }

    pub(super) fn session(
        &self,
        session: &SessionId,
        shared: &Arc<SharedState>,
    ) -> watch::Receiver<u64> {
        let mut state = self.state();
        let watched = state
            .sessions
            .entry(session.clone())
            .or_insert_with(|| Watched {
                sender: watch::channel(0).0,
                rev: None,
            });
        let receiver = watched.sender.subscribe();
        self.poll(&mut state, shared);
        receiver
    }

    pub(super) fn all(&self, shared: &Arc<SharedState>) -> watch::Receiver<u64> {
        let mut state = self.state();
        let receiver = state
            .all
            .get_or_insert_with(|| watch::channel(0).0)
            .subscribe();
        self.poll(&mut state, shared);
        receiver
    }

    /// Makes sure that the one polling thread runs, and looks soon.
    fn poll(&self, state: &mut State, shared: &Arc<SharedState>) {
        if state.polling || state.closed {
            self.hurry.notify_all();
            return;
        }
        let weak = Arc::downgrade(shared);
        let thread = std::thread::Builder::new().name("store-poll".to_owned());
        state.polling = thread.spawn(move || poll(&weak)).is_ok();
    }

    /// Forgets who no longer watches. How long to sleep, or none when nobody watches.
    fn tidy(&self) -> Option<Duration> {
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
        if state.closed || (state.sessions.is_empty() && state.all.is_none()) {
            state.polling = false;
            return None;
        }
        Some(if !state.sessions.is_empty() {
            FAST
        } else {
            SLOW
        })
    }

    fn sleep(&self, time: Duration) {
        let state = self.state();
        drop(
            self.hurry
                .wait_timeout(state, time)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Wakes the watched sessions whose row moved. `everything`: another process committed something.
    fn compare(&self, conn: &Connection, everything: bool) -> rusqlite::Result<()> {
        let look: Vec<(SessionId, Option<i64>)> = self
            .state()
            .sessions
            .iter()
            .filter(|(_, watched)| everything || watched.rev.is_none())
            .map(|(session, watched)| (session.clone(), watched.rev))
            .collect();
        for (session, known) in look {
            let sql = "SELECT rev FROM session WHERE id = ?1 AND deleted = 0";
            let rev =
                first(conn, sql, [session.as_str()], |row| row.get::<_, i64>(0))?.unwrap_or(-1);
            if known != Some(rev)
                && let Some(watched) = self.state().sessions.get_mut(&session)
            {
                let baseline = watched.rev.replace(rev).is_none();
                // What came between a reader's subscription and this look is not known: wake it once.
                if !(baseline && broken!(self.switches, FollowSubscribesLate)) {
                    bump(&watched.sender);
                }
            }
        }
        if everything && let Some(all) = &self.state().all {
            bump(all);
        }
        Ok(())
    }
}

/// The polling thread: one connection, one pragma per look. It ends when nobody watches any more.
fn poll(weak: &Weak<SharedState>) {
    let mut conn = None;
    let mut version: Option<i64> = None;
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let Some(sleep) = shared.watchers.tidy() else {
            return;
        };
        let began = Instant::now();
        if conn.is_none() {
            conn = connect(&shared.path, Role::Read).ok();
            version = None;
        }
        if let Some(open) = &conn {
            match look(&shared.watchers, open, version) {
                Ok(now) => version = Some(now),
                Err(error) => {
                    tracing::debug!(%error, "the poll for other processes' commits failed");
                    conn = None;
                }
            }
        }
        let watchers = Arc::clone(&shared.watchers);
        drop(shared);
        // Where thousands are watched, looking at each takes time: it stays a small part of all.
        watchers.sleep(sleep.max(began.elapsed() * REST));
    }
}

fn look(watchers: &Watchers, conn: &Connection, known: Option<i64>) -> rusqlite::Result<i64> {
    // Also moves with this process's own commits: the rows' `rev` tells who has news.
    let version = first(conn, "PRAGMA data_version", [], |row| row.get::<_, i64>(0))?.unwrap_or(0);
    watchers.compare(conn, known.is_some_and(|known| known != version))?;
    Ok(version)
}
