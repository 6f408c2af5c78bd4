//! To whom a draining node gives its sessions (R11): nodes that live, take any session and serve the location, the
//! one with the least to do first, so that arrivals are spread.

use super::rank::{takes, weight};
use crate::environment::Environment;
use std::sync::{Mutex, PoisonError};
use tenure_core::event::body::Location;
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::placement::Serves;
use tenure_store::{NodeRow, Store};

/// How long the nodes of one look are believed, in milliseconds.
const BELIEVED_MS: u64 = 500;

/// The nodes as they were last read, with what was given to each since.
#[derive(Debug, Default)]
pub(crate) struct Successors(Mutex<Option<Plan>>);

#[derive(Debug)]
struct Plan {
    read_ms: u64,
    nodes: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    incarnation: Incarnation,
    serves: Serves,
    sessions: u32,
}

impl From<NodeRow> for Candidate {
    fn from(row: NodeRow) -> Self {
        Self {
            incarnation: row.incarnation,
            serves: Serves {
                labels: row.labels,
                roots: row.roots,
            },
            sessions: row.sessions,
        }
    }
}

impl Successors {
    /// Who is to have the session next; none when nobody can.
    pub async fn choose(
        &self,
        store: &dyn Store,
        env: &dyn Environment,
        own: &Incarnation,
        session: &SessionId,
        location: &Location,
    ) -> Option<Incarnation> {
        let now = env.boot_ms();
        if !self.is_fresh(now) {
            match store.nodes().await {
                Ok(rows) => self.renew(now, own, rows),
                Err(error) => tracing::warn!(%error, "cannot look for a successor"),
            }
        }
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = plan
            .as_mut()?
            .nodes
            .iter_mut()
            .filter(|node| node.serves.check(location).is_ok())
            .min_by_key(|node| (node.sessions, weight(session, &node.incarnation)))?;
        chosen.sessions += 1;
        Some(chosen.incarnation.clone())
    }

    fn is_fresh(&self, now_ms: u64) -> bool {
        let plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plan.as_ref()
            .is_some_and(|plan| now_ms.saturating_sub(plan.read_ms) < BELIEVED_MS)
    }

    fn renew(&self, now_ms: u64, own: &Incarnation, rows: Vec<NodeRow>) {
        let nodes = rows
            .into_iter()
            .filter(|row| &row.incarnation != own && takes(row))
            .map(Candidate::from)
            .collect();
        let mut plan = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *plan = Some(Plan {
            read_ms: now_ms,
            nodes,
        });
    }
}
