//! Rows in memory: one session read beforehand, and what a piece of work changes of it.
//!
//! For backends that read first, decide here, and write only if nothing moved meanwhile. What the work may ask
//! for is put in before; a work that is refused is undone by taking a copy first (`Clone`).

use super::Failure;
use super::event::{Encoded, Stored};
use super::head::Head;
use super::rows::{Kin, NodeFacts, Rows, Setting, Taken};
use crate::Switches;
use crate::api::{EffectRow, ProcessId};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::event::body::Delivery;
use tenure_core::id::{CallId, EventId, MessageId, SessionId};

/// A claim row beside the head row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) message: Option<String>,
    pub(crate) message_seq: Option<u64>,
    pub(crate) continuation: Option<String>,
    pub(crate) recovery_error: Option<String>,
    pub(crate) wake_pending: bool,
    pub(crate) created_ms: i64,
}

/// The state of an inbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InboxState {
    Pending,
    Promoted,
    Cancelled,
}

/// An inbox row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InboxRow {
    pub(crate) seq: u64,
    pub(crate) delivery: Delivery,
    pub(crate) state: InboxState,
    pub(crate) fenced: bool,
}

/// An effect row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    pub(crate) process: Option<ProcessId>,
}

/// A step's message and a call of it.
pub(crate) type CallKey = (String, String);

/// An event written by the work.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    pub(crate) seq: u64,
    pub(crate) epoch: Option<u64>,
    pub(crate) event: Encoded,
}

/// Everything of one session that the rules may look at or change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    /// None while there is no such session.
    pub(crate) head: Option<Head>,
    pub(crate) claim: Option<Claim>,
    /// The pending rows, and those of the inputs the work names.
    pub(crate) inbox: BTreeMap<String, InboxRow>,
    pub(crate) effects: BTreeMap<CallKey, Effect>,
}

/// What changed, to be written: keys, whose values are in the session now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// The row was made by this work.
    pub(crate) created: bool,
    /// The head row is to be written.
    pub(crate) head: bool,
    /// It moves to the front of the order of user activity.
    pub(crate) touched: bool,
    pub(crate) claim: bool,
    pub(crate) inbox: BTreeSet<String>,
    pub(crate) inbox_cleared: bool,
    pub(crate) effects: BTreeSet<CallKey>,
    pub(crate) events: Vec<Written>,
    pub(crate) receipts: Vec<(String, String)>,
    /// Nodes whose state the work looked at: its verdict holds only while they are as they were.
    pub(crate) nodes: BTreeSet<String>,
}

/// What else the rules may ask about, read beforehand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Around {
    /// The number a new session gets.
    pub(crate) new_sid: i64,
    /// Events of the ids the work names, own ones before those of other sessions.
    pub(crate) events: BTreeMap<String, Vec<Stored>>,
    pub(crate) nodes: BTreeMap<String, NodeFacts>,
    pub(crate) receipts: BTreeMap<String, (i64, String)>,
    /// Other sessions, for forks: their head rows by id.
    pub(crate) heads: BTreeMap<String, Head>,
    /// For a replay: the stored events from its first seq on.
    pub(crate) stored: Vec<Stored>,
    /// For a fork: who holds the last shared event, and the settings in force there.
    pub(crate) holder: Option<i64>,
    pub(crate) settings: Vec<Setting>,
    /// For a replay: who the sessions are that hold events of the same ids.
    pub(crate) kin: BTreeMap<i64, Kin>,
    /// The server's clock, in milliseconds since 1970.
    pub(crate) lease_ms: i64,
}

/// One session in memory under the rules. Several pieces of work may run on it, one after the other.
pub(crate) struct Loaded<'a> {
    id: &'a SessionId,
    around: &'a Around,
    switches: &'a Switches,
    session: RefCell<Session>,
    changes: RefCell<Changes>,
}

impl<'a> Loaded<'a> {
    pub(crate) fn new(
        id: &'a SessionId,
        session: Session,
        changes: Changes,
        around: &'a Around,
        switches: &'a Switches,
    ) -> Self {
        Self {
            id,
            around,
            switches,
            session: RefCell::new(session),
            changes: RefCell::new(changes),
        }
    }

    /// The session as it is now, and what is to be written of it.
    pub(crate) fn into_parts(self) -> (Session, Changes) {
        (self.session.into_inner(), self.changes.into_inner())
    }

    fn claim(&self, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = &mut self.session.borrow_mut().claim {
            change(claim);
            self.changes.borrow_mut().claim = true;
        }
    }

    fn is_this(&self, sid: i64) -> bool {
        self.session
            .borrow()
            .head
            .as_ref()
            .is_some_and(|head| head.sid == sid)
    }
}

fn call_key(message: &MessageId, call: &CallId) -> CallKey {
    (message.as_str().to_owned(), call.as_str().to_owned())
}

impl Rows for Loaded<'_> {
    fn switches(&self) -> &Switches {
        self.switches
    }

    fn wall_ms(&self) -> i64 {
        // The server's: what is shown of one session is by one clock, whichever node wrote it.
        self.around.lease_ms
    }

    fn lease_ms(&self) -> i64 {
        self.around.lease_ms
    }

    fn head(&self, session: &SessionId) -> Result<Option<Head>, Failure> {
        if session == self.id {
            return Ok(self.session.borrow().head.clone());
        }
        Ok(self.around.heads.get(session.as_str()).cloned())
    }

    fn new_head(&self, session: &SessionId) -> Result<Head, Failure> {
        let head = Head::fresh(self.around.new_sid, session.clone());
        self.session.borrow_mut().head = Some(head.clone());
        let mut changes = self.changes.borrow_mut();
        changes.created = true;
        changes.head = true;
        Ok(head)
    }

    fn save(&self, head: &mut Head) -> Result<(), Failure> {
        head.rev += 1;
        head.stored = Some(head.place());
        self.session.borrow_mut().head = Some(head.clone());
        self.changes.borrow_mut().head = true;
        Ok(())
    }

    fn next_activity(&self, now: i64) -> Result<i64, Failure> {
        // The backend numbers it when it writes.
        self.changes.borrow_mut().touched = true;
        Ok(now)
    }

    fn event(&self, sid: i64, id: &EventId) -> Result<Option<Stored>, Failure> {
        let changes = self.changes.borrow();
        let written = changes
            .events
            .iter()
            .find(|written| &written.event.id == id && self.is_this(sid));
        if let Some(written) = written {
            return Ok(Some(Stored {
                sid,
                seq: written.seq,
                id: id.as_str().to_owned(),
                epoch: written.epoch,
                created_ms: written.event.created_ms,
                type_name: written.event.body.type_name().to_owned(),
                version: written.event.body.version(),
                body: written.event.text.clone(),
            }));
        }
        let Some(rows) = self.around.events.get(id.as_str()) else {
            return Ok(None);
        };
        let own = rows.iter().find(|row| row.sid == sid);
        Ok(own.or(rows.first()).cloned())
    }

    fn put_event(
        &self,
        _sid: i64,
        seq: u64,
        epoch: Option<u64>,
        event: &Encoded,
    ) -> Result<(), Failure> {
        self.changes.borrow_mut().events.push(Written {
            seq,
            epoch,
            event: event.clone(),
        });
        Ok(())
    }

    fn events_from(&self, _head: &Head, from: u64, limit: usize) -> Result<Vec<Stored>, Failure> {
        let stored = self.around.stored.iter().filter(|row| row.seq >= from);
        Ok(stored.take(limit).cloned().collect())
    }

    fn holder(&self, _head: &Head, _seq: u64) -> Result<Option<i64>, Failure> {
        Ok(self.around.holder)
    }

    fn settings(&self, _head: &Head, _through: u64) -> Result<Vec<Setting>, Failure> {
        Ok(self.around.settings.clone())
    }

    fn kin(&self, sid: i64) -> Result<Option<Kin>, Failure> {
        Ok(self.around.kin.get(&sid).cloned())
    }

    fn open_claim(&self, _sid: i64, created_ms: i64) -> Result<Option<String>, Failure> {
        let mut session = self.session.borrow_mut();
        let claim = session.claim.get_or_insert_default();
        claim.wake_pending = false;
        claim.created_ms = created_ms;
        self.changes.borrow_mut().claim = true;
        Ok(claim.continuation.clone())
    }

    fn close_claim(&self, _sid: i64) -> Result<(), Failure> {
        self.session.borrow_mut().claim = None;
        self.changes.borrow_mut().claim = true;
        Ok(())
    }

    fn set_wake_pending(&self, _sid: i64) -> Result<bool, Failure> {
        let mut news = false;
        let set = self
            .session
            .borrow()
            .claim
            .as_ref()
            .is_some_and(|claim| !claim.wake_pending);
        if set {
            self.claim(|claim| claim.wake_pending = true);
            news = true;
        }
        Ok(news)
    }

    fn set_step(
        &self,
        _sid: i64,
        message: Option<&MessageId>,
        seq: Option<u64>,
    ) -> Result<(), Failure> {
        self.claim(|claim| {
            claim.message = message.map(|message| message.as_str().to_owned());
            claim.message_seq = seq;
        });
        Ok(())
    }

    fn set_continuation(&self, _sid: i64, input: &MessageId) -> Result<(), Failure> {
        self.claim(|claim| claim.continuation = Some(input.as_str().to_owned()));
        Ok(())
    }

    fn set_recovery_error(&self, _sid: i64, message: &str) -> Result<(), Failure> {
        self.claim(|claim| claim.recovery_error = Some(message.to_owned()));
        Ok(())
    }

    fn admit(
        &self,
        _sid: i64,
        input: &MessageId,
        seq: u64,
        delivery: Delivery,
        fenced: bool,
    ) -> Result<bool, Failure> {
        let mut session = self.session.borrow_mut();
        if session.inbox.contains_key(input.as_str()) {
            return Ok(false);
        }
        let row = InboxRow {
            seq,
            delivery,
            state: InboxState::Pending,
            fenced,
        };
        session.inbox.insert(input.as_str().to_owned(), row);
        self.changes
            .borrow_mut()
            .inbox
            .insert(input.as_str().to_owned());
        Ok(true)
    }

    fn take_input(
        &self,
        _sid: i64,
        input: &MessageId,
        taken: Taken,
    ) -> Result<Option<u64>, Failure> {
        let mut session = self.session.borrow_mut();
        let row = session.inbox.get_mut(input.as_str());
        let Some(row) = row.filter(|row| row.state == InboxState::Pending) else {
            return Ok(None);
        };
        row.state = match taken {
            Taken::Promoted => InboxState::Promoted,
            Taken::Cancelled => InboxState::Cancelled,
        };
        self.changes
            .borrow_mut()
            .inbox
            .insert(input.as_str().to_owned());
        Ok(Some(row.seq))
    }

    fn redeliver(&self, _sid: i64, input: &MessageId, delivery: Delivery) -> Result<bool, Failure> {
        let mut session = self.session.borrow_mut();
        let row = session.inbox.get_mut(input.as_str());
        let Some(row) = row.filter(|row| row.state == InboxState::Pending) else {
            return Ok(false);
        };
        row.delivery = delivery;
        self.changes
            .borrow_mut()
            .inbox
            .insert(input.as_str().to_owned());
        Ok(true)
    }

    fn is_pending(&self, _sid: i64, after: Option<u64>, by_users: bool) -> Result<bool, Failure> {
        let session = self.session.borrow();
        let found = session.inbox.values().any(|row| {
            row.state == InboxState::Pending
                && after.is_none_or(|after| row.seq > after)
                && !(by_users && row.fenced)
        });
        Ok(found)
    }

    fn clear_inbox(&self, _sid: i64) -> Result<(), Failure> {
        self.session.borrow_mut().inbox.clear();
        let mut changes = self.changes.borrow_mut();
        changes.inbox.clear();
        changes.inbox_cleared = true;
        Ok(())
    }

    fn start_effect(
        &self,
        _sid: i64,
        message: &MessageId,
        call: &CallId,
        epoch: u64,
        generation: u64,
    ) -> Result<bool, Failure> {
        let key = call_key(message, call);
        let mut session = self.session.borrow_mut();
        if session.effects.contains_key(&key) {
            return Ok(false);
        }
        let effect = Effect {
            epoch,
            generation,
            process: None,
        };
        session.effects.insert(key.clone(), effect);
        self.changes.borrow_mut().effects.insert(key);
        Ok(true)
    }

    fn set_process(
        &self,
        _sid: i64,
        message: &MessageId,
        call: &CallId,
        process: &ProcessId,
    ) -> Result<(), Failure> {
        let key = call_key(message, call);
        if let Some(effect) = self.session.borrow_mut().effects.get_mut(&key) {
            effect.process = Some(process.clone());
            self.changes.borrow_mut().effects.insert(key);
        }
        Ok(())
    }

    fn end_effect(&self, _sid: i64, message: &MessageId, call: &CallId) -> Result<(), Failure> {
        let key = call_key(message, call);
        if self.session.borrow_mut().effects.remove(&key).is_some() {
            self.changes.borrow_mut().effects.insert(key);
        }
        Ok(())
    }

    fn effects(&self, _sid: i64) -> Result<Vec<EffectRow>, Failure> {
        let session = self.session.borrow();
        let rows = session.effects.iter();
        let rows = rows.filter_map(|((message, call), effect)| {
            Some(EffectRow {
                // One that is damaged names no call.
                message: MessageId::parse(message).ok()?,
                call: CallId::new(call.clone()),
                epoch: effect.epoch,
                generation: effect.generation,
                process: effect.process.clone(),
            })
        });
        Ok(rows.collect())
    }

    fn node(&self, incarnation: &str) -> Result<Option<NodeFacts>, Failure> {
        self.changes
            .borrow_mut()
            .nodes
            .insert(incarnation.to_owned());
        Ok(self.around.nodes.get(incarnation).cloned())
    }

    fn receipt(&self, key: &str) -> Result<Option<(i64, String)>, Failure> {
        let changes = self.changes.borrow();
        let written = changes.receipts.iter().find(|(known, _)| known == key);
        if let Some((_, answer)) = written {
            let sid = self
                .session
                .borrow()
                .head
                .as_ref()
                .map_or(0, |head| head.sid);
            return Ok(Some((sid, answer.clone())));
        }
        Ok(self.around.receipts.get(key).cloned())
    }

    fn put_receipt(&self, key: &str, _sid: i64, answer: &str) -> Result<(), Failure> {
        self.changes
            .borrow_mut()
            .receipts
            .push((key.to_owned(), answer.to_owned()));
        Ok(())
    }
}
