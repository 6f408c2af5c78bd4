//! Failovers and restored copies that rewound the log: what this process owns is compared with what the server has,
//! whenever a writer connects, and is fenced when it went back, or when the server's timeline is not the one seen before.

use super::cache::Cache;
use super::conn::{Conn, Use};
use super::sql::{int, params, uint};
use super::trouble::Trouble;
use crate::machine::head::Head;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use tenure_core::id::{Incarnation, SessionId};
use tokio_postgres::error::SqlState;

/// The server's system identifier and timeline, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline(String);

/// What a session was when this process last wrote it.
#[derive(Debug, Clone)]
struct Last {
    owner: String,
    head: i64,
    epoch: i64,
    write_no: i64,
}

#[derive(Default)]
struct State {
    nodes: HashSet<String>,
    sessions: HashMap<SessionId, Last>,
    /// The newest that any writer saw: every session was fenced when it changed.
    current: Option<Timeline>,
    /// As each writer last saw it: what one of them noticed, the other has yet to find out about its own connection.
    timelines: HashMap<Writer, Timeline>,
    /// Written over a connection older than `current`: the server that took it may be the one that is gone.
    doubtful: HashSet<SessionId>,
    rewound: Vec<String>,
}

/// A writer: its purpose and number.
pub(super) type Writer = (Use, usize);

/// The sessions this process owns, as it last wrote them.
#[derive(Default)]
pub(super) struct Owned {
    state: Mutex<State>,
    /// Held by the one that fences: the others find it done.
    fencing: tokio::sync::Mutex<()>,
}

/// Rewound sessions remembered for `health`.
const REMEMBERED: usize = 100;
/// How far `write_no` and `rev` go up at a failover: further than any writes that were lost can have raised them, so
/// that nothing remembered of those can ever be taken for what is there now.
const LEAP: i64 = 1 << 32;

impl Owned {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process is that node.
    pub(super) fn join(&self, node: &Incarnation) {
        self.state().nodes.insert(node.as_str().to_owned());
    }

    /// Is that node this process?
    pub(super) fn is_own(&self, node: &str) -> bool {
        self.state().nodes.contains(node)
    }

    /// That node is gone, and with it what it owned.
    pub(super) fn leave(&self, node: &str) {
        let mut state = self.state();
        state.nodes.remove(node);
        state.sessions.retain(|_, last| last.owner != node);
    }

    /// A head row was written by this writer.
    pub(super) fn note(&self, head: &Head, writer: Writer) {
        let mut state = self.state();
        if state.timelines.get(&writer) != state.current.as_ref() {
            state.doubtful.insert(head.id.clone());
        }
        let ours = head
            .owner
            .as_ref()
            .filter(|owner| state.nodes.contains(*owner));
        let Some(owner) = ours else {
            state.sessions.remove(&head.id);
            return;
        };
        let (seq, epoch) = (super::session::head_number(head), int(head.epoch));
        let write_no = int(head.write_no);
        match state.sessions.get_mut(&head.id) {
            // Almost every write: nothing is allocated for it.
            Some(last) if last.owner == *owner => {
                (last.head, last.epoch, last.write_no) = (seq, epoch, write_no);
            }
            _ => {
                let last = Last {
                    owner: owner.clone(),
                    head: seq,
                    epoch,
                    write_no,
                };
                state.sessions.insert(head.id.clone(), last);
            }
        }
    }

    /// What is known of rewound sessions, for people.
    pub(super) fn rewound(&self) -> Vec<String> {
        self.state().rewound.clone()
    }

    /// Looks at the server behind a new connection of `writer`. On another timeline than any writer saw before, every
    /// session of this process is fenced before anything is written: also what no fence covers (an admission, an
    /// answer, an interrupt) may have been lost, while its owner's memory still has it. So it is on the timeline that
    /// was known, where a session is behind what was written there: the server was started from a copy, or lost what
    /// it had confirmed. A writer that comes to it later finds that done; only what its old connection took after that
    /// is fenced again. They are returned, to be woken. Errors also say that it is a standby. Dropped on its way, it
    /// is done again by the next connection.
    pub(super) async fn compare(
        &self,
        conn: &Conn,
        writer: Writer,
        cache: &Cache,
    ) -> Result<Vec<SessionId>, Trouble> {
        let now = timeline(conn).await?;
        if self.is_known(&now, writer) && !self.is_set_back(conn).await? {
            return Ok(Vec::new());
        }
        let _fencing = self.fencing.lock().await;
        // Another writer may have fenced it meanwhile.
        let known = self.is_known(&now, writer);
        if known && !self.is_set_back(conn).await? {
            return Ok(Vec::new());
        }
        let (before, nodes, doubtful, mut sessions) = {
            let mut state = self.state();
            let before = state.current.get_or_insert_with(|| now.clone()).clone();
            let nodes: Vec<String> = state.nodes.iter().cloned().collect();
            (
                before,
                nodes,
                state.doubtful.clone(),
                state.sessions.clone(),
            )
        };
        let first = known || before != now;
        if !first {
            sessions.retain(|session, _| doubtful.contains(session));
        }
        if !first && sessions.is_empty() {
            // Its old connection may have put there what the new server never had.
            cache.clear();
            let mut state = self.state();
            state.doubtful.retain(|session| !doubtful.contains(session));
            state.timelines.insert(writer, now);
            return Ok(Vec::new());
        }
        match known {
            true => tracing::warn!(?now, "the server went back on its timeline"),
            false => tracing::warn!(
                ?before,
                ?now,
                "the server is on another timeline: a failover"
            ),
        }
        cache.clear();
        let stored = stored(conn, &sessions).await?;
        let only = (!first).then(|| sessions.keys().map(SessionId::as_str).collect());
        let mut fenced = fence(conn, writer.0, &nodes, only).await?;
        tracing::warn!(
            sessions = fenced.len(),
            "the sessions of this process are taken up anew, from the log as it is now"
        );
        let mut state = self.state();
        for (session, last) in sessions {
            let found = stored.get(session.as_str()).copied();
            if last.is_kept(found) {
                continue;
            }
            state.sessions.remove(&session);
            state.lost(&session, &last, found);
            if !fenced.contains(&session) {
                fenced.push(session);
            }
        }
        state.doubtful.retain(|session| !doubtful.contains(session));
        state.timelines.insert(writer, now.clone());
        state.current = Some(now);
        drop(state);
        // What was put there while the old server still answered the other writer.
        cache.clear();
        Ok(fenced)
    }

    /// Is a session behind what this process wrote to it? One that is not there was deleted, as far as anybody knows.
    async fn is_set_back(&self, conn: &Conn) -> Result<bool, Trouble> {
        // What is written from here on is in what is read.
        let sessions = self.state().sessions.clone();
        if sessions.is_empty() {
            return Ok(false);
        }
        let stored = stored(conn, &sessions).await?;
        let mut there = sessions
            .iter()
            .filter_map(|(session, last)| Some((last, *stored.get(session.as_str())?)));
        Ok(there.any(|(last, found)| !last.is_kept(Some(found))))
    }

    /// Nothing to do for this writer: it saw this timeline before, as the last of all.
    fn is_known(&self, now: &Timeline, writer: Writer) -> bool {
        let state = self.state();
        state.current.as_ref() == Some(now) && state.timelines.get(&writer) == Some(now)
    }
}

/// A session's last seq (-1: none), epoch and `write_no` as they are stored.
type Found = (i64, i64, i64);

impl Last {
    /// Others may have gone on since; only what is behind was rewound.
    fn is_kept(&self, found: Option<Found>) -> bool {
        found.is_some_and(|(head, epoch, write_no)| {
            (epoch, head) >= (self.epoch, self.head)
                && (epoch > self.epoch || write_no >= self.write_no)
        })
    }
}

impl State {
    /// Says what the server lost of a session.
    fn lost(&mut self, session: &SessionId, last: &Last, found: Option<Found>) {
        let (head, epoch, _) = found.unwrap_or((-1, 0, 0));
        tracing::error!(
            %session, had_head = last.head, has_head = head, had_epoch = last.epoch, has_epoch = epoch,
            "the server lost acknowledged events of this session; it goes on from what is left"
        );
        if self.rewound.len() < REMEMBERED {
            self.rewound.push(format!(
                "the server took {session} back from seq {} to {}",
                uint(last.head),
                if head < 0 {
                    "nothing".to_owned()
                } else {
                    head.to_string()
                }
            ));
        }
    }
}

/// What the server has of these sessions.
async fn stored(
    conn: &Conn,
    sessions: &HashMap<SessionId, Last>,
) -> Result<HashMap<String, Found>, Trouble> {
    let ids: Vec<&str> = sessions.keys().map(SessionId::as_str).collect();
    let rows = conn
        .rows(
            "SELECT s.id, s.head, s.epoch, s.write_no FROM unnest($1) u(id) \
             CROSS JOIN LATERAL (SELECT x.* FROM @.session x WHERE x.id = u.id LIMIT 1) s",
            params![TEXT_ARRAY: ids],
        )
        .await?;
    let found = rows
        .iter()
        .map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3))));
    Ok(found.collect())
}

/// Takes what these nodes own, or `only` these sessions of it, out of the hands of whoever holds it in memory: every
/// fence is another from here on. A node takes its own up again as what it has lost sight of, which charges nobody.
async fn fence(
    conn: &Conn,
    purpose: Use,
    nodes: &[String],
    only: Option<Vec<&str>>,
) -> Result<Vec<SessionId>, Trouble> {
    const FENCE: &str = "WITH mine AS MATERIALIZED (SELECT sid FROM @.session WHERE owner = ANY($1) \
         AND ($3::TEXT[] IS NULL OR id = ANY($3)) ORDER BY sid FOR UPDATE) \
         UPDATE @.session SET epoch = epoch + 1, write_no = write_no + $2, rev = rev + $2 \
         WHERE sid = ANY(ARRAY(SELECT sid FROM mine)) RETURNING id";
    let params = params![TEXT_ARRAY: nodes, INT8: LEAP, TEXT_ARRAY: only];
    conn.ready(FENCE, params).await?;
    let begin = conn.begin(purpose);
    // R6: in one flush, so that no answer is waited for under the locks.
    let (begun, rows, ended) = futures::join!(
        conn.batch(&begin),
        conn.rows(FENCE, params),
        conn.batch("COMMIT"),
    );
    begun?;
    let rows = rows?;
    ended?;
    let ids = rows.iter().map(|row| SessionId::parse(row.get(0)));
    Ok(ids.filter_map(Result::ok).collect())
}

/// Which history the server writes. A standby is refused: owner decisions are made where they are written.
async fn timeline(conn: &Conn) -> Result<Timeline, Trouble> {
    let row = conn.first("SELECT pg_is_in_recovery()", &[]).await?;
    if row.is_some_and(|row| row.get(0)) {
        return Err(Trouble::Refused {
            code: SqlState::READ_ONLY_SQL_TRANSACTION.code().to_owned(),
            words: "the server is a standby".to_owned(),
        });
    }
    let system = conn
        .first(
            "SELECT system_identifier::TEXT FROM pg_control_system()",
            &[],
        )
        .await;
    let system = match system {
        Ok(row) => row.map(|row| row.get::<_, String>(0)),
        Err(Trouble::Lost(words)) => return Err(Trouble::Lost(words)),
        // Without the right to look, the timeline alone has to do.
        Err(_) => None,
    };
    let row = conn
        .first(
            "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)",
            &[],
        )
        .await?;
    let line: String = row.map(|row| row.get(0)).unwrap_or_default();
    Ok(Timeline(format!("{}/{line}", system.unwrap_or_default())))
}
