//! The tables of the store in memory.

use crate::api::{Checkpoint, EffectRow};
use crate::machine::event::{Encoded, Stored};
use crate::machine::head::Head;
use crate::machine::rows::NodeState;
use std::collections::{BTreeMap, HashMap};
use tenure_core::event::Event;
use tenure_core::event::body::Delivery;
use tenure_core::id::{EventId, MessageId, SessionId};
use tenure_core::placement::Serves;

/// Everything there is.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    /// By `sid - 1`.
    pub(super) sessions: Vec<Session>,
    /// Sessions that are not deleted.
    pub(super) by_id: HashMap<SessionId, i64>,
    /// Who holds an event of that id.
    pub(super) by_event: HashMap<EventId, Vec<(i64, usize)>>,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) receipts: HashMap<String, (i64, String)>,
    /// Grows with each change of a session.
    pub(super) version: u64,
    /// The order in which nodes joined.
    pub(super) joins: u64,
}

/// A session's rows.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) head: Head,
    pub(super) deleted: bool,
    /// Own events, from `head.base` on.
    pub(super) events: Vec<Row>,
    pub(super) claim: Option<Claim>,
    pub(super) inbox: Vec<Input>,
    pub(super) effects: Vec<EffectRow>,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// The version of its last change.
    pub(super) version: u64,
}

/// An event row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) epoch: Option<u64>,
    pub(super) event: Encoded,
}

/// What the claim table holds beside the head row.
#[derive(Debug, Clone, Default)]
pub(super) struct Claim {
    pub(super) wake_pending: bool,
    pub(super) created_ms: i64,
    pub(super) message: Option<MessageId>,
    pub(super) seq: Option<u64>,
    pub(super) continuation: Option<MessageId>,
    pub(super) error: Option<String>,
}

/// An input that was admitted.
#[derive(Debug, Clone)]
pub(super) struct Input {
    pub(super) input: MessageId,
    pub(super) seq: u64,
    pub(super) delivery: Delivery,
    /// Written by an owner.
    pub(super) fenced: bool,
    pub(super) pending: bool,
}

/// A node row.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) serves: Serves,
    pub(super) state: NodeState,
    pub(super) lease_ms: i64,
    pub(super) lease_until: i64,
    pub(super) renewal_no: i64,
    pub(super) join: u64,
    pub(super) ended_ms: i64,
    /// Its connections are gone and its address refuses: its process is dead.
    pub(super) gone: bool,
    /// Nobody says that what it had started is gone, too.
    pub(super) lingers: bool,
    /// It said by itself that it is dead.
    pub(super) resigned: bool,
}

impl Node {
    /// What is left of its lease: never more than a whole one, whatever became of the clock since it renewed.
    pub(super) fn lease_left(&self, now: i64) -> i64 {
        self.lease_until.saturating_sub(now).min(self.lease_ms)
    }
}

impl Session {
    pub(super) fn new(head: Head) -> Self {
        Self {
            head,
            deleted: false,
            events: Vec::new(),
            claim: None,
            inbox: Vec::new(),
            effects: Vec::new(),
            checkpoints: Vec::new(),
            version: 0,
        }
    }
}

impl Row {
    pub(super) fn stored(&self, sid: i64) -> Stored {
        Stored {
            sid,
            seq: self.seq,
            id: self.event.id.as_str().to_owned(),
            epoch: self.epoch,
            created_ms: self.event.created_ms,
            type_name: self.event.body.type_name().to_owned(),
            version: self.event.body.version(),
            body: self.event.text.clone(),
        }
    }

    /// The event as readers of `session` see it.
    pub(super) fn event(&self, session: &SessionId) -> Event {
        Event {
            id: self.event.id.clone(),
            session: session.clone(),
            seq: self.seq,
            epoch: self.epoch,
            created_ms: self.event.created_ms,
            body: self.event.body.clone(),
        }
    }
}

/// A stretch of a session's log and who holds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) sid: i64,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Tables {
    pub(super) fn session(&self, sid: i64) -> Option<&Session> {
        self.sessions.get(usize::try_from(sid - 1).ok()?)
    }

    pub(super) fn session_mut(&mut self, sid: i64) -> Option<&mut Session> {
        self.sessions.get_mut(usize::try_from(sid - 1).ok()?)
    }

    /// A session that is not deleted.
    pub(super) fn find(&self, id: &SessionId) -> Option<&Session> {
        self.session(*self.by_id.get(id)?)
    }

    /// Notes that a session's readers may have news.
    pub(super) fn changed(&mut self, sid: i64) {
        self.version += 1;
        let version = self.version;
        if let Some(session) = self.session_mut(sid) {
            session.version = version;
        }
    }

    /// The stretches of a session's log, oldest first: shared prefixes, then its own events.
    pub(super) fn segments(&self, head: &Head) -> Vec<Segment> {
        let mut chain = Vec::new();
        if let Some(last) = head.head
            && last >= head.base
        {
            chain.push(Segment {
                sid: head.sid,
                from: head.base,
                to: last,
            });
        }
        let (mut parent, mut below) = (head.parent, head.base);
        while let Some(holder) = parent.and_then(|sid| self.session(sid)) {
            if below > holder.head.base {
                chain.push(Segment {
                    sid: holder.head.sid,
                    from: holder.head.base,
                    to: below - 1,
                });
            }
            below = below.min(holder.head.base);
            parent = holder.head.parent;
        }
        chain.reverse();
        chain
    }

    /// Rows of the session's log from `from` on, in order, with who holds them.
    pub(super) fn rows<'a>(
        &'a self,
        segments: &'a [Segment],
        from: u64,
    ) -> impl Iterator<Item = (i64, &'a Row)> + 'a {
        segments.iter().flat_map(move |segment| {
            let rows = self.session(segment.sid).map_or(&[][..], |s| &s.events[..]);
            let start = rows.partition_point(|row| row.seq < segment.from.max(from));
            let to = segment.to;
            rows[start..]
                .iter()
                .take_while(move |row| row.seq <= to)
                .map(move |row| (segment.sid, row))
        })
    }

    /// Drops what no fork needs of a deleted session; how many events.
    pub(super) fn purge(&mut self, harm_forks: bool) -> u64 {
        let mut removed = 0;
        for at in (0..self.sessions.len()).rev() {
            if !self.sessions[at].deleted {
                continue;
            }
            let sid = self.sessions[at].head.sid;
            let needed = self.sessions.iter().filter(|s| s.head.parent == Some(sid));
            let needed = needed.map(|s| s.head.base).max().filter(|_| !harm_forks);
            let needed = needed.unwrap_or(0);
            let session = &mut self.sessions[at];
            session.checkpoints.retain(|kept| kept.through < needed);
            let keep = session.events.partition_point(|row| row.seq < needed);
            for row in session.events.drain(keep..) {
                removed += 1;
                if let Some(holders) = self.by_event.get_mut(&row.event.id) {
                    holders.retain(|(holder, _)| *holder != sid);
                }
            }
        }
        removed
    }
}
