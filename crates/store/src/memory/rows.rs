//! One transaction's view of the tables: every write can be undone.

use super::tables::{Claim, Input, Row, Session, Tables};
use crate::Switches;
use crate::api::{EffectRow, ProcessId};
use crate::machine::Failure;
use crate::machine::event::{Encoded, Stored};
use crate::machine::head::Head;
use crate::machine::rows::{Kin, NodeFacts, Rows, Setting, Taken};
use std::cell::RefCell;
use tenure_core::event::EventBody;
use tenure_core::event::body::Delivery;
use tenure_core::id::{CallId, EventId, MessageId, SessionId};

/// The open transaction.
pub(super) struct View<'a> {
    tables: RefCell<&'a mut Tables>,
    undo: RefCell<Vec<Undo>>,
    lease_ms: i64,
    wall_ms: i64,
    switches: &'a Switches,
}

/// How a write is taken back.
enum Undo {
    /// The session is new.
    Made,
    /// What the session was before this transaction touched it.
    Session(Box<Before>),
    Receipt(String),
}

struct Before {
    head: Head,
    events: usize,
    claim: Option<Claim>,
    inbox: Vec<Input>,
    effects: Vec<EffectRow>,
    version: u64,
}

impl<'a> View<'a> {
    pub(super) fn new(
        tables: &'a mut Tables,
        lease_ms: i64,
        wall_ms: i64,
        switches: &'a Switches,
    ) -> Self {
        Self {
            tables: RefCell::new(tables),
            undo: RefCell::default(),
            lease_ms,
            wall_ms,
            switches,
        }
    }

    /// Takes everything back.
    pub(super) fn roll_back(self) {
        let mut tables = self.tables.borrow_mut();
        for undo in self.undo.borrow_mut().drain(..).rev() {
            match undo {
                Undo::Made => {
                    let made = tables.sessions.pop();
                    if let Some(session) = made {
                        forget(&mut tables, &session, 0);
                        tables.by_id.remove(&session.head.id);
                    }
                }
                Undo::Session(before) => {
                    let Before {
                        head,
                        events,
                        claim,
                        inbox,
                        effects,
                        version,
                    } = *before;
                    let sid = head.sid;
                    let Some(session) = tables.session_mut(sid) else {
                        continue;
                    };
                    let added = session.events.split_off(events);
                    session.head = head;
                    session.claim = claim;
                    session.inbox = inbox;
                    session.effects = effects;
                    session.version = version;
                    for row in added {
                        if let Some(holders) = tables.by_event.get_mut(&row.event.id) {
                            holders.retain(|(holder, at)| *holder != sid || *at < events);
                        }
                    }
                }
                Undo::Receipt(key) => {
                    tables.receipts.remove(&key);
                }
            }
        }
    }

    /// Changes a session's rows, which are kept as they were first.
    fn change<T>(&self, sid: i64, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut tables = self.tables.borrow_mut();
        let mut undo = self.undo.borrow_mut();
        let made = tables.sessions.len() as i64 == sid
            && undo.iter().any(|undo| matches!(undo, Undo::Made));
        let kept = made
            || undo
                .iter()
                .any(|undo| matches!(undo, Undo::Session(before) if before.head.sid == sid));
        let session = tables.session_mut(sid)?;
        if !kept {
            undo.push(Undo::Session(Box::new(Before {
                head: session.head.clone(),
                events: session.events.len(),
                claim: session.claim.clone(),
                inbox: session.inbox.clone(),
                effects: session.effects.clone(),
                version: session.version,
            })));
        }
        Some(change(session))
    }

    fn claim(&self, sid: i64, change: impl FnOnce(&mut Claim)) {
        self.change(sid, |session| session.claim.as_mut().map(change));
    }
}

/// Takes a session's own events from `from` on out of the index of events.
fn forget(tables: &mut Tables, session: &Session, from: usize) {
    for row in &session.events[from..] {
        if let Some(holders) = tables.by_event.get_mut(&row.event.id) {
            holders.retain(|(holder, _)| *holder != session.head.sid);
        }
    }
}

impl Rows for View<'_> {
    fn switches(&self) -> &Switches {
        self.switches
    }

    fn wall_ms(&self) -> i64 {
        self.wall_ms
    }

    fn lease_ms(&self) -> i64 {
        self.lease_ms
    }

    fn head(&self, session: &SessionId) -> Result<Option<Head>, Failure> {
        Ok(self.tables.borrow().find(session).map(|s| s.head.clone()))
    }

    fn new_head(&self, session: &SessionId) -> Result<Head, Failure> {
        let mut tables = self.tables.borrow_mut();
        let sid = tables.sessions.len() as i64 + 1;
        let head = Head::fresh(sid, session.clone());
        tables.sessions.push(Session::new(head.clone()));
        tables.by_id.insert(session.clone(), sid);
        self.undo.borrow_mut().push(Undo::Made);
        Ok(head)
    }

    fn save(&self, head: &mut Head) -> Result<(), Failure> {
        head.rev += 1;
        self.change(head.sid, |session| session.head = head.clone());
        self.tables.borrow_mut().changed(head.sid);
        Ok(())
    }

    fn next_activity(&self, now: i64) -> Result<i64, Failure> {
        let tables = self.tables.borrow();
        let live = tables.sessions.iter().filter(|s| !s.deleted);
        let newest = live.map(|s| s.head.activity).max().unwrap_or(0);
        Ok(if newest != now || newest == 0 {
            newest + 1
        } else {
            now
        })
    }

    fn event(&self, sid: i64, id: &EventId) -> Result<Option<Stored>, Failure> {
        let tables = self.tables.borrow();
        let Some(holders) = tables.by_event.get(id) else {
            return Ok(None);
        };
        let own = holders.iter().find(|(holder, _)| *holder == sid);
        let found = own.or(holders.first()).and_then(|(holder, at)| {
            let row = tables.session(*holder)?.events.get(*at)?;
            Some(row.stored(*holder))
        });
        Ok(found)
    }

    fn put_event(
        &self,
        sid: i64,
        seq: u64,
        epoch: Option<u64>,
        event: &Encoded,
    ) -> Result<(), Failure> {
        let row = Row {
            seq,
            epoch,
            event: event.clone(),
        };
        let at = self.change(sid, |session| {
            session.events.push(row);
            session.events.len() - 1
        });
        if let Some(at) = at {
            let mut tables = self.tables.borrow_mut();
            let holders = tables.by_event.entry(event.id.clone()).or_default();
            holders.push((sid, at));
        }
        Ok(())
    }

    fn events_from(&self, head: &Head, from: u64, limit: usize) -> Result<Vec<Stored>, Failure> {
        let tables = self.tables.borrow();
        let segments = tables.segments(head);
        let rows = tables.rows(&segments, from).take(limit);
        Ok(rows.map(|(sid, row)| row.stored(sid)).collect())
    }

    fn holder(&self, head: &Head, seq: u64) -> Result<Option<i64>, Failure> {
        let segments = self.tables.borrow().segments(head);
        let holder = segments.iter().find(|s| s.from <= seq && seq <= s.to);
        Ok(holder.map(|segment| segment.sid))
    }

    fn settings(&self, head: &Head, through: u64) -> Result<Vec<Setting>, Failure> {
        let tables = self.tables.borrow();
        let segments = tables.segments(head);
        let rows = tables
            .rows(&segments, 0)
            .take_while(|(_, row)| row.seq <= through)
            .filter(|(_, row)| is_setting(&row.event.body));
        let setting = |row: &Row| {
            let body = &row.event.body;
            let name = body.type_name().to_owned();
            (name, body.version(), row.event.text.clone())
        };
        Ok(rows.map(|(_, row)| setting(row)).collect())
    }

    fn kin(&self, sid: i64) -> Result<Option<Kin>, Failure> {
        let tables = self.tables.borrow();
        let Some(session) = tables.session(sid) else {
            return Ok(None);
        };
        let parents = session
            .events
            .iter()
            .filter_map(|row| match &row.event.body {
                EventBody::SessionForked(forked) => Some(forked.parent.to_string()),
                _ => None,
            });
        Ok(Some(Kin {
            id: session.head.id.to_string(),
            parents: parents.collect(),
        }))
    }

    fn open_claim(&self, sid: i64, created_ms: i64) -> Result<Option<String>, Failure> {
        let continuation = self.change(sid, |session| {
            let claim = session.claim.get_or_insert_default();
            claim.wake_pending = false;
            claim.created_ms = created_ms;
            claim.continuation.as_ref().map(ToString::to_string)
        });
        Ok(continuation.flatten())
    }

    fn close_claim(&self, sid: i64) -> Result<(), Failure> {
        self.change(sid, |session| session.claim = None);
        Ok(())
    }

    fn set_wake_pending(&self, sid: i64) -> Result<bool, Failure> {
        let news = self.change(sid, |session| match &mut session.claim {
            Some(claim) => !std::mem::replace(&mut claim.wake_pending, true),
            None => false,
        });
        Ok(news == Some(true))
    }

    fn set_step(
        &self,
        sid: i64,
        message: Option<&MessageId>,
        seq: Option<u64>,
    ) -> Result<(), Failure> {
        self.claim(sid, |claim| {
            claim.message = message.cloned();
            claim.seq = seq;
        });
        Ok(())
    }

    fn set_continuation(&self, sid: i64, input: &MessageId) -> Result<(), Failure> {
        self.claim(sid, |claim| claim.continuation = Some(input.clone()));
        Ok(())
    }

    fn set_recovery_error(&self, sid: i64, message: &str) -> Result<(), Failure> {
        self.claim(sid, |claim| claim.error = Some(message.to_owned()));
        Ok(())
    }

    fn admit(
        &self,
        sid: i64,
        input: &MessageId,
        seq: u64,
        delivery: Delivery,
        fenced: bool,
    ) -> Result<bool, Failure> {
        let fresh = self.change(sid, |session| {
            if session.inbox.iter().any(|row| &row.input == input) {
                return false;
            }
            session.inbox.push(Input {
                input: input.clone(),
                seq,
                delivery,
                fenced,
                pending: true,
            });
            true
        });
        Ok(fresh == Some(true))
    }

    fn take_input(
        &self,
        sid: i64,
        input: &MessageId,
        _taken: Taken,
    ) -> Result<Option<u64>, Failure> {
        let taken = self.change(sid, |session| {
            let mut rows = session.inbox.iter_mut();
            let row = rows.find(|row| &row.input == input && row.pending)?;
            row.pending = false;
            Some(row.seq)
        });
        Ok(taken.flatten())
    }

    fn redeliver(&self, sid: i64, input: &MessageId, delivery: Delivery) -> Result<bool, Failure> {
        let changed = self.change(sid, |session| {
            let mut rows = session.inbox.iter_mut();
            let row = rows.find(|row| &row.input == input && row.pending);
            row.map(|row| row.delivery = delivery).is_some()
        });
        Ok(changed == Some(true))
    }

    fn is_pending(&self, sid: i64, after: Option<u64>, by_users: bool) -> Result<bool, Failure> {
        let tables = self.tables.borrow();
        let inbox = tables.session(sid).map_or(&[][..], |s| &s.inbox[..]);
        Ok(inbox.iter().any(|row| {
            row.pending && after.is_none_or(|after| row.seq > after) && !(by_users && row.fenced)
        }))
    }

    fn clear_inbox(&self, sid: i64) -> Result<(), Failure> {
        self.change(sid, |session| session.inbox.clear());
        Ok(())
    }

    fn start_effect(
        &self,
        sid: i64,
        message: &MessageId,
        call: &CallId,
        epoch: u64,
        generation: u64,
    ) -> Result<bool, Failure> {
        let fresh = self.change(sid, |session| {
            let mut rows = session.effects.iter();
            if rows.any(|row| &row.message == message && &row.call == call) {
                return false;
            }
            session.effects.push(EffectRow {
                message: message.clone(),
                call: call.clone(),
                epoch,
                generation,
                process: None,
            });
            true
        });
        Ok(fresh == Some(true))
    }

    fn set_process(
        &self,
        sid: i64,
        message: &MessageId,
        call: &CallId,
        process: &ProcessId,
    ) -> Result<(), Failure> {
        self.change(sid, |session| {
            let mut rows = session.effects.iter_mut();
            if let Some(row) = rows.find(|row| &row.message == message && &row.call == call) {
                row.process = Some(process.clone());
            }
        });
        Ok(())
    }

    fn end_effect(&self, sid: i64, message: &MessageId, call: &CallId) -> Result<(), Failure> {
        self.change(sid, |session| {
            let other = |row: &EffectRow| &row.message != message || &row.call != call;
            session.effects.retain(other);
        });
        Ok(())
    }

    fn effects(&self, sid: i64) -> Result<Vec<EffectRow>, Failure> {
        let tables = self.tables.borrow();
        Ok(tables
            .session(sid)
            .map_or_else(Vec::new, |session| session.effects.clone()))
    }

    fn node(&self, incarnation: &str) -> Result<Option<NodeFacts>, Failure> {
        let tables = self.tables.borrow();
        Ok(tables.nodes.get(incarnation).map(|node| NodeFacts {
            state: node.state,
            leased: node.lease_until > self.lease_ms,
            lease_until: node.lease_until,
            lease_ms: node.lease_ms,
            renewal_no: node.renewal_no,
            resigned: node.resigned,
            serves: node.serves.clone(),
        }))
    }

    fn receipt(&self, key: &str) -> Result<Option<(i64, String)>, Failure> {
        Ok(self.tables.borrow().receipts.get(key).cloned())
    }

    fn put_receipt(&self, key: &str, sid: i64, answer: &str) -> Result<(), Failure> {
        let mut tables = self.tables.borrow_mut();
        let receipt = (sid, answer.to_owned());
        if tables.receipts.insert(key.to_owned(), receipt).is_none() {
            self.undo.borrow_mut().push(Undo::Receipt(key.to_owned()));
        }
        Ok(())
    }
}

fn is_setting(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::SessionCreated(_)
            | EventBody::SessionRenamed(_)
            | EventBody::ModelSelected(_)
            | EventBody::AttachmentReplaced(_)
            | EventBody::SessionForked(_)
    )
}
