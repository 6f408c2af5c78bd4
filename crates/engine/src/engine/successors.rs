//! To whom a draining node gives its sessions (R11): nodes that live, take any session and serve the location and
//! the model, the one with the least to do first, so that arrivals are spread.

use super::rank::{takes, weight};
use crate::environment::Environment;
use std::sync::{Mutex, PoisonError};
use tenure_core::event::body::Location;
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;
use tenure_store::{NodeRow, Store};

/// How long the nodes of one look are believed, in milliseconds.
const BELIEVED_MS: u64 = 500;

/// The nodes as they were last read, with what was given to each since.
#[derive(Debug, Default)]
pub(crate) struct Successors {
    plan: Mutex<Option<Plan>>,
    /// Held while they are read: a second reading would forget what was given since the first.
    reading: tokio::sync::Mutex<()>,
}

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
        (location, model): (&Location, &ModelRef),
    ) -> Option<Incarnation> {
        if !self.is_fresh(env.boot_ms()) {
            let _reading = self.reading.lock().await;
            let now = env.boot_ms();
            // Others may have waited for the same.
            if !self.is_fresh(now) {
                match store.nodes().await {
                    Ok(rows) => self.renew(now, own, rows),
                    Err(error) => tracing::warn!(%error, "cannot look for a successor"),
                }
            }
        }
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = plan
            .as_mut()?
            .nodes
            .iter_mut()
            .filter(|node| node.serves.check(location, model).is_ok())
            .min_by_key(|node| (node.sessions, weight(session, &node.incarnation)))?;
        chosen.sessions += 1;
        Some(chosen.incarnation.clone())
    }

    fn is_fresh(&self, now_ms: u64) -> bool {
        let plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.as_ref()
            .is_some_and(|plan| now_ms.saturating_sub(plan.read_ms) < BELIEVED_MS)
    }

    fn renew(&self, now_ms: u64, own: &Incarnation, rows: Vec<NodeRow>) {
        let nodes = rows
            .into_iter()
            .filter(|row| &row.incarnation != own && takes(row))
            .map(Candidate::from)
            .collect();
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        *plan = Some(Plan {
            read_ms: now_ms,
            nodes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Bed;

    /// All of a node's sessions let go at the same boundary: each asks while the nodes are being read.
    #[tokio::test]
    async fn those_that_ask_at_once_are_given_to_each_in_turn() {
        let bed = Bed::new([]);
        let own = bed.raw_node().await;
        let heirs = [bed.raw_node().await, bed.raw_node().await];
        let successors = Successors::default();
        let env = bed.config.env.as_ref();
        let anywhere = Location::at(String::new());
        let any = ModelRef {
            provider: String::new(),
            model: String::new(),
        };
        let sessions: Vec<SessionId> = (1..=24).map(SessionId::from_bits).collect();
        let chosen = futures::future::join_all(sessions.iter().map(|session| {
            successors.choose(bed.store.as_ref(), env, &own, session, (&anywhere, &any))
        }))
        .await;
        for heir in &heirs {
            let given = chosen.iter().filter(|to| to.as_ref() == Some(heir));
            assert_eq!(given.count(), 12, "{chosen:?}");
        }
    }
    /// However little a node has to do, a session whose model it cannot ask is not for it.
    #[tokio::test]
    async fn a_session_is_given_to_one_that_can_ask_its_model() {
        let bed = Bed::new([]);
        let own = bed.raw_node().await;
        let able = bed
            .raw_node_serving(Serves::everywhere().asking(["p"]))
            .await;
        for other in [vec!["q"], Vec::new()] {
            bed.raw_node_serving(Serves::everywhere().asking(other))
                .await;
        }
        let successors = Successors::default();
        let env = bed.config.env.as_ref();
        let anywhere = Location::at(String::new());
        for n in 1..=12 {
            let session = SessionId::from_bits(n);
            let needs = (&anywhere, &Bed::model_ref());
            let chosen = successors.choose(bed.store.as_ref(), env, &own, &session, needs);
            assert_eq!(chosen.await.as_ref(), Some(&able));
        }
    }
}
