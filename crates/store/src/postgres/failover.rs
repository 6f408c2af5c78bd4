//! Failovers that rewound the log: what this process owns is compared with what the server has, whenever the
//! server's timeline is not the one seen before.

use super::cache::Cache;
use super::conn::Conn;
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
#[derive(Debug, Clone, Copy)]
struct Last {
    head: i64,
    epoch: i64,
    write_no: i64,
}

#[derive(Default)]
struct State {
    nodes: HashSet<String>,
    sessions: HashMap<SessionId, Last>,
    timeline: Option<Timeline>,
    rewound: Vec<String>,
}

/// The sessions this process owns, as it last wrote them.
#[derive(Default)]
pub(super) struct Owned(Mutex<State>);

/// Rewound sessions remembered for `health`.
const REMEMBERED: usize = 100;

impl Owned {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.state().nodes.remove(node);
    }

    /// A head row was written.
    pub(super) fn note(&self, head: &Head) {
        let mut state = self.state();
        let ours = head
            .owner
            .as_ref()
            .is_some_and(|owner| state.nodes.contains(owner));
        if ours {
            let last = Last {
                head: super::session::head_number(head),
                epoch: int(head.epoch),
                write_no: int(head.write_no),
            };
            state.sessions.insert(head.id.clone(), last);
        } else {
            state.sessions.remove(&head.id);
        }
    }

    /// What is known of rewound sessions, for people.
    pub(super) fn rewound(&self) -> Vec<String> {
        self.state().rewound.clone()
    }

    /// Looks at the server behind a new connection. Sessions whose log went back are let go: their owner's next write
    /// finds another fence than its own. They are returned, to be woken. Errors also say that it is a standby.
    pub(super) async fn compare(
        &self,
        conn: &Conn,
        cache: &Cache,
    ) -> Result<Vec<SessionId>, Trouble> {
        let now = timeline(conn).await?;
        let (before, sessions) = {
            let state = self.state();
            (state.timeline.clone(), state.sessions.clone())
        };
        if before.as_ref() == Some(&now) {
            return Ok(Vec::new());
        }
        let Some(before) = before else {
            self.state().timeline = Some(now);
            return Ok(Vec::new());
        };
        tracing::warn!(
            ?before,
            ?now,
            "the server is on another timeline: a failover"
        );
        cache.clear();
        let ids: Vec<&str> = sessions.keys().map(SessionId::as_str).collect();
        let rows = conn
            .rows(
                "SELECT s.id, s.head, s.epoch, s.write_no FROM unnest($1) u(id) \
                 CROSS JOIN LATERAL (SELECT x.* FROM @.session x WHERE x.id = u.id LIMIT 1) s",
                params![TEXT_ARRAY: ids],
            )
            .await?;
        let stored: HashMap<String, (i64, i64, i64)> = rows
            .iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3))))
            .collect();
        let mut rewound = Vec::new();
        let mut state = self.state();
        for (session, last) in sessions {
            let found = stored.get(session.as_str()).copied();
            let kept = found.is_some_and(|(head, epoch, write_no)| {
                // Others may have gone on since; only what is behind was rewound.
                (epoch, head) >= (last.epoch, last.head)
                    && (epoch > last.epoch || write_no >= last.write_no)
            });
            if kept {
                continue;
            }
            let (head, epoch, _) = found.unwrap_or((-1, 0, 0));
            tracing::error!(
                %session, had_head = last.head, has_head = head, had_epoch = last.epoch, has_epoch = epoch,
                "the failover lost acknowledged events of this session; it stops here"
            );
            if state.rewound.len() < REMEMBERED {
                state.rewound.push(format!(
                    "a failover took {session} back from seq {} to {}",
                    uint(last.head),
                    if head < 0 {
                        "nothing".to_owned()
                    } else {
                        head.to_string()
                    }
                ));
            }
            state.sessions.remove(&session);
            rewound.push(session);
        }
        state.timeline = Some(now);
        Ok(rewound)
    }
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
