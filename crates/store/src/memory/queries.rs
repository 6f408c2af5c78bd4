//! Rows as readers of the store in memory see them, with exactly one state for every session (R4, P7).

use super::tables::{Session, Tables};
use crate::api::*;
use crate::machine::head::Head;
use crate::machine::rows::{NodeState, shown_left};
use crate::machine::status::{self, LiveOwner};
use tenure_core::event::EventBody;
use tenure_core::event::body::Phase;
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;

/// The tables at one moment.
pub(super) struct Queries<'a> {
    pub(super) tables: &'a Tables,
    pub(super) lease_ms: i64,
    pub(super) wall_ms: i64,
}

impl Queries<'_> {
    fn found(&self, id: &SessionId) -> Result<&Session, ReadError> {
        let unknown = || ReadError::UnknownSession(id.clone());
        self.tables.find(id).ok_or_else(unknown)
    }

    fn alive(&self, owner: &str) -> Option<&super::tables::Node> {
        let node = self.tables.nodes.get(owner)?;
        (node.state != NodeState::Dead && !node.gone).then_some(node)
    }

    fn eligible(head: &Head, session: &Session) -> bool {
        let mut pending = session.inbox.iter().filter(|row| row.pending);
        pending.any(|row| head.eligible(row.seq))
    }

    fn state(&self, session: &Session) -> Result<SessionState, ReadError> {
        let head = &session.head;
        let owner = head.owner.as_deref();
        let live = owner.and_then(|owner| self.alive(owner));
        let live = live.map(|node| LiveOwner {
            name: &node.name,
            lease_until: node.lease_until,
        });
        let eligible = Self::eligible(head, session);
        status::state(head, live, eligible, self.lease_ms).map_err(|bad| damaged(head, &bad))
    }

    /// Why no node that takes sessions serves this one; none when one does, or when there is no node to ask.
    fn unserved(&self, head: &Head) -> Option<String> {
        let nodes = self.tables.nodes.values();
        let active = nodes.filter(|node| node.state == NodeState::Active && !node.gone);
        status::unserved(head, active.map(|node| &node.serves))
    }

    fn row(&self, session: &Session) -> Result<SessionRow, ReadError> {
        let head = &session.head;
        let mut state = self.state(session)?;
        let settles = head.cancel || head.phase == Some(Phase::Cancelling);
        if matches!(state, SessionState::Claimable { .. })
            && !settles
            && let Some(reason) = self.unserved(head)
        {
            state = SessionState::Unplaceable { reason };
        }
        let bad = |bad: BadId| damaged(head, &bad);
        let execution = head.execution.as_deref().map(ExecutionId::parse);
        let parent = head.forked_from.as_deref().map(SessionId::parse);
        Ok(SessionRow {
            id: head.id.clone(),
            title: head.title.clone(),
            location: head.location(),
            moving: head.goes_to().cloned(),
            model: head.model(),
            head: head.last(),
            epoch: head.epoch,
            state,
            cancelling: settles,
            execution: execution.transpose().map_err(bad)?,
            last_outcome: head.last_outcome.clone(),
            pending: head.pending,
            usage: head.usage,
            cost: head.cost,
            cost_incomplete: head.cost_incomplete,
            last_line: head.last_line.clone(),
            generation: head.generation,
            attempts: head.attempts,
            forked_from: parent.transpose().map_err(bad)?.zip(head.forked_through),
            created_ms: head.created_ms,
            updated_ms: head.updated_ms,
        })
    }

    pub(super) fn session(&self, id: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        self.tables.find(id).map(|s| self.row(s)).transpose()
    }

    pub(super) fn sessions(&self, wanted: &SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        let has = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        let shown = |session: &&Session| {
            let head = &session.head;
            let there = wanted
                .directory
                .as_ref()
                .is_none_or(|d| d == &head.directory);
            let said = wanted.text.as_ref().is_none_or(|text| {
                head.title.as_deref().is_some_and(|title| has(title, text))
                    || has(&head.last_line, text)
            });
            !session.deleted && there && said
        };
        let mut found: Vec<&Session> = self.tables.sessions.iter().filter(shown).collect();
        found.sort_by_key(|session| -session.head.activity);
        let limit = if wanted.limit == 0 { 100 } else { wanted.limit };
        let page = found.into_iter().skip(wanted.offset).take(limit);
        page.map(|session| self.row(session)).collect()
    }

    pub(super) fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        let mut busy: Vec<&Session> = self
            .tables
            .sessions
            .iter()
            .filter(|s| !s.deleted && s.head.quarantine.is_none() && s.head.place().1)
            .collect();
        busy.sort_by_key(|session| session.head.activity);
        let mut rows = Vec::new();
        for session in busy {
            if rows.len() >= limit {
                break;
            }
            if !matches!(self.state(session)?, SessionState::Claimable { .. }) {
                continue;
            }
            let row = self.row(session)?;
            if matches!(row.state, SessionState::Claimable { .. }) {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    pub(super) fn read(
        &self,
        id: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        let session = self.found(id)?;
        let head = &session.head;
        if let Some(after) = after
            && head.head.is_none_or(|last| after > last)
        {
            return Err(ReadError::CursorBeyondHead {
                session: id.clone(),
                after,
                head: head.last(),
            });
        }
        let from = after.map_or(0, |after| after + 1);
        let segments = self.tables.segments(head);
        let rows = self.tables.rows(&segments, from).take(limit);
        let events: Vec<_> = rows.map(|(_, row)| row.event(id)).collect();
        let due = events.last().map_or(from, |event| event.seq + 1);
        let missing = events.len() < limit && head.head.is_some_and(|last| due <= last);
        if missing && events.is_empty() {
            return Err(ReadError::Damaged {
                session: id.clone(),
                seq: due,
                detail: "it is missing".to_owned(),
            });
        }
        Ok(Page {
            events,
            head: head.head,
        })
    }

    pub(super) fn inbox(&self, id: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        let session = self.found(id)?;
        let mut pending = Vec::new();
        for row in session.inbox.iter().filter(|row| row.pending) {
            let at = session.events.partition_point(|e| e.seq < row.seq);
            let admitted = session.events.get(at).map(|e| (&e.event.body, &e.event));
            let Some((EventBody::InputAdmitted(data), event)) = admitted else {
                return Err(ReadError::Damaged {
                    session: id.clone(),
                    seq: row.seq,
                    detail: "it is not the input its inbox row says".to_owned(),
                });
            };
            pending.push(PendingInput {
                input: row.input.clone(),
                kind: data.kind.clone(),
                delivery: row.delivery,
                seq: row.seq,
                eligible: session.head.eligible(row.seq),
                admitted_ms: event.created_ms,
            });
        }
        Ok(pending)
    }

    pub(super) fn effects(&self, id: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        Ok(self.found(id)?.effects.clone())
    }

    pub(super) fn leftovers(&self, limit: usize) -> Vec<(SessionId, EffectRow)> {
        let over = self.tables.sessions.iter().flat_map(|session| {
            let head = &session.head;
            let rows = session.effects.iter();
            let over = rows.filter(|row| {
                head.owner.is_none() || head.open_step.as_deref() != Some(row.message.as_str())
            });
            over.map(|row| (head.id.clone(), row.clone()))
        });
        over.take(limit).collect()
    }

    pub(super) fn claim_phase(
        &self,
        id: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        let session = self.found(id)?;
        let head = &session.head;
        let holds = head.epoch == fence.epoch
            && head.owner.as_deref() == Some(fence.owner.as_str())
            && head.claim_id.as_deref() == Some(fence.claim.as_str());
        let wake_pending = session.claim.as_ref().is_some_and(|c| c.wake_pending);
        Ok(head.phase.filter(|_| holds).map(|phase| ClaimView {
            phase,
            wake_pending,
        }))
    }

    pub(super) fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        let mut rows = Vec::new();
        for session in &self.tables.sessions {
            let head = &session.head;
            let (Some(claim), Some(owner)) = (&session.claim, &head.owner) else {
                continue;
            };
            let bad = |bad: BadId| damaged(head, &bad);
            let node = self.tables.nodes.get(owner);
            let left = node.map_or(0, |node| shown_left(node.lease_left(self.lease_ms)));
            rows.push(ClaimRow {
                id: ClaimId::parse(head.claim_id.as_deref().unwrap_or_default()).map_err(bad)?,
                session: head.id.clone(),
                owner: Incarnation::parse(owner).map_err(bad)?,
                epoch: head.epoch,
                phase: head.phase.unwrap_or(Phase::Safe),
                assistant_message_id: claim.message.clone(),
                assistant_seq: claim.seq,
                recovery_input_id: claim.continuation.clone(),
                recovery_error: claim.error.clone(),
                wake_pending: claim.wake_pending,
                attempts: head.attempts,
                expires_at: self.wall_ms.saturating_add(left),
                time_created: claim.created_ms,
                held_ms: u64::try_from(self.wall_ms.saturating_sub(claim.created_ms)).unwrap_or(0),
            });
        }
        rows.sort_by_key(|row| row.time_created);
        Ok(rows)
    }

    pub(super) fn held(&self, owner: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        let mut held = Vec::new();
        for session in &self.tables.sessions {
            let head = &session.head;
            if head.owner.as_deref() != Some(owner.as_str()) {
                continue;
            }
            let (Some(claim), Some(phase)) = (&head.claim_id, head.phase) else {
                continue;
            };
            held.push(HeldClaim {
                session: head.id.clone(),
                claim: ClaimId::parse(claim).map_err(|bad| damaged(head, &bad))?,
                epoch: head.epoch,
                phase,
                head: head.last(),
                handed: head.handed_until.is_some(),
            });
        }
        held.sort_by(|a, b| a.session.cmp(&b.session));
        Ok(held)
    }

    pub(super) fn nodes(&self) -> Vec<NodeRow> {
        let alive = self.tables.nodes.iter();
        let mut alive: Vec<_> = alive
            .filter(|(_, node)| node.state != NodeState::Dead)
            .collect();
        alive.sort_by_key(|(_, node)| node.join);
        let owned = |name: &str| {
            let sessions = self.tables.sessions.iter();
            let of = sessions.filter(|s| s.head.owner.as_deref() == Some(name));
            of.count() as u32
        };
        alive
            .into_iter()
            .filter_map(|(name, node)| {
                Some(NodeRow {
                    incarnation: Incarnation::parse(name).ok()?,
                    name: node.name.clone(),
                    address: node.address.clone(),
                    draining: node.state == NodeState::Draining,
                    pid: 0,
                    lease_ms: node.lease_left(self.lease_ms),
                    labels: node.serves.labels.clone(),
                    roots: node.serves.roots.clone(),
                    sessions: owned(name),
                })
            })
            .collect()
    }

    pub(super) fn checkpoints(
        &self,
        id: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        let session = self.found(id)?;
        let mut found = Vec::new();
        // A fork may use its parent's, as far as the shared events reach.
        for segment in self.tables.segments(&session.head) {
            let kept = self.tables.session(segment.sid);
            let kept = kept.map_or(&[][..], |s| &s.checkpoints[..]);
            let covered = |c: &&Checkpoint| {
                c.version == version && (segment.from..=segment.to).contains(&c.through)
            };
            found.extend(kept.iter().filter(covered).cloned());
        }
        Ok(found)
    }
}

fn damaged(head: &Head, bad: &BadId) -> ReadError {
    ReadError::Damaged {
        session: head.id.clone(),
        seq: head.last(),
        detail: bad.to_string(),
    }
}
