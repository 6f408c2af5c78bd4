//! What a reader has on its screen: the log, and live text ahead of it; and what must hold of that (P6).
//!
//! It draws what it is shown and lets the log decide, as a person's program does. Whether text is what the attempt said
//! that it is tagged with, and under which epoch that attempt runs, it asks the world, not the engine.

use super::ledger::Ledger;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::event::body::FragmentKind;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{MessageId, SessionId};
use tenure_engine::LiveItem;
use tenure_store::memory::Database;

/// One part of a message as it is drawn.
#[derive(Debug, Default)]
struct Part {
    attempt: Option<u32>,
    /// Where the text that was shown live ends.
    shown: u64,
    /// Where the text that the log holds ends, as far as it was read.
    durable: u64,
    /// Its beginning was read in the log.
    started: bool,
    /// The log was read from its middle on: only its end tells where it stands.
    middle: bool,
}

impl Part {
    fn unconfirmed(&self) -> bool {
        !self.middle && self.shown > self.durable
    }
}

/// The screen of one reader from when it connects.
pub struct Screen {
    session: SessionId,
    ledger: Arc<Ledger>,
    database: Arc<Database>,
    parts: BTreeMap<(MessageId, u32), Part>,
    /// The newest epoch of anything shown: from the log, or live.
    epoch: Option<u64>,
    /// The newest attempt of each message that the log began.
    attempts: BTreeMap<MessageId, u32>,
}

impl Screen {
    /// An empty one.
    pub fn new(session: SessionId, ledger: Arc<Ledger>, database: Arc<Database>) -> Self {
        Self {
            session,
            ledger,
            database,
            parts: BTreeMap::new(),
            epoch: None,
            attempts: BTreeMap::new(),
        }
    }

    fn wrong(&self, words: &str) {
        self.ledger
            .violated("P6", format!("{}: {words}", self.session));
    }

    /// Something shown ahead of the log.
    pub fn live(&mut self, item: &LiveItem) {
        match item {
            LiveItem::Delta {
                message,
                attempt,
                part,
                kind,
                offset,
                text,
            } => {
                self.ledger.count("live shown");
                self.true_to(message, *attempt, *kind, *offset, text);
                self.in_time(message, *attempt);
                self.in_place(message, *attempt, *part, (*offset, text));
            }
            LiveItem::Superseded {
                message,
                attempt,
                part,
                from,
            } => {
                self.ledger.count("live superseded");
                self.superseded(message, *attempt, *part, *from);
            }
            LiveItem::Lagged => self.ledger.count("live lagged"),
            LiveItem::ToolOutput { .. } => {}
        }
    }

    /// The attempt it is tagged with said it, there.
    fn true_to(
        &self,
        message: &MessageId,
        attempt: u32,
        kind: FragmentKind,
        offset: u64,
        text: &str,
    ) {
        if !self
            .ledger
            .has_said(&format!("{message}-{attempt}"), kind, offset, text)
        {
            self.wrong(&format!(
                "{text:?} at {offset} was shown as of attempt {attempt} of {message}, which did not say it"
            ));
        }
    }

    /// It is of the newest owner and of its newest attempt; and nothing of an earlier one is left on the screen.
    fn in_time(&mut self, message: &MessageId, attempt: u32) {
        let begun = self.database.find_event(&self.session, |body| {
            matches!(body, EventBody::AttemptStarted(e) if &e.message == message && e.attempt == attempt)
        });
        let Some((_, epoch)) = begun else {
            // Deleted meanwhile, with all of it.
            return;
        };
        if epoch < self.epoch {
            self.wrong(&format!(
                "live text of epoch {epoch:?} was shown behind something of epoch {:?}",
                self.epoch
            ));
        }
        if self.attempts.get(message) > Some(&attempt) {
            self.wrong(&format!(
                "live text of attempt {attempt} of {message} was shown behind the start of a later one"
            ));
        }
        self.next_epoch(epoch, "live text");
    }

    /// Something of this epoch is shown: what earlier owners showed ahead of the log must be taken back by then.
    fn next_epoch(&mut self, epoch: Option<u64>, what: &str) {
        if epoch <= self.epoch {
            return;
        }
        if self.epoch.is_some()
            && let Some(((message, part), _)) =
                self.parts.iter().find(|(_, part)| part.unconfirmed())
        {
            self.wrong(&format!(
                "{what} of epoch {epoch:?} was shown, and text of part {part} of {message} was not taken back"
            ));
        }
        self.epoch = epoch;
    }

    /// It goes on where the screen ends.
    fn in_place(
        &mut self,
        message: &MessageId,
        attempt: u32,
        number: u32,
        (offset, text): (u64, &str),
    ) {
        let part = self.parts.entry((message.clone(), number)).or_default();
        let due = match (part.middle, part.shown) {
            // It came in the middle: text begins anywhere.
            (true, 0) => offset,
            (true, shown) => shown,
            (false, shown) => shown.max(part.durable),
        };
        let other = part.attempt.is_some_and(|known| known != attempt);
        part.attempt = Some(attempt);
        part.shown = offset + text.len() as u64;
        if offset != due {
            self.wrong(&format!(
                "live text of part {number} of {message} was shown at {offset} where {due} was due"
            ));
        }
        if other {
            self.wrong(&format!(
                "part {number} of {message} was shown as of attempt {attempt}, and is of another"
            ));
        }
    }

    fn superseded(&mut self, message: &MessageId, attempt: u32, number: u32, from: u64) {
        let Some(part) = self.parts.get_mut(&(message.clone(), number)) else {
            self.wrong(&format!(
                "part {number} of {message} was taken back, and nothing of it had been shown"
            ));
            return;
        };
        // Where only its end tells where the log stands, the marker knows it already.
        let due = if part.middle { from } else { part.durable };
        let (shown, known) = (part.shown, part.attempt);
        part.shown = from;
        if from != due || shown <= from || known.is_some_and(|known| known != attempt) {
            self.wrong(&format!(
                "part {number} of {message}, shown to {shown} by attempt {known:?}, was taken back from {from} on \
                 as of attempt {attempt}; the log holds {due}"
            ));
        }
    }

    /// The next event of the log.
    pub fn event(&mut self, event: &Event) {
        if matches!(event.body, EventBody::SessionForked(_)) {
            self.parts.clear();
            return;
        }
        self.next_epoch(event.epoch.max(self.epoch), "an event");
        match &event.body {
            EventBody::AttemptStarted(start) => {
                self.attempts.insert(start.message.clone(), start.attempt);
                let of = |part: &Part| part.attempt.is_some_and(|own| own < start.attempt);
                self.none_left(&start.message, of, "a later attempt began");
            }
            EventBody::FragmentStarted(start) => {
                let key = (start.message.clone(), start.part);
                let part = self.parts.entry(key).or_default();
                part.attempt = Some(start.attempt);
                part.started = true;
            }
            EventBody::FragmentChunk(chunk) => {
                let key = (chunk.message.clone(), chunk.part);
                let part = self.parts.entry(key).or_default();
                part.middle |= !part.started;
                part.durable += chunk.text.len() as u64;
            }
            EventBody::FragmentEnded(end) => {
                let key = (end.message.clone(), end.part);
                let part = self.parts.entry(key).or_default();
                (part.middle, part.durable) = (false, end.bytes);
                if part.unconfirmed() {
                    self.wrong(&format!(
                        "part {} of {} ended at {}, and what was shown beyond was not taken back",
                        end.part, end.message, end.bytes
                    ));
                }
            }
            EventBody::StepEnded(end) => self.over(&end.message),
            EventBody::StepFailed(end) => self.over(&end.message),
            _ => {}
        }
    }

    fn none_left(&self, message: &MessageId, of: impl Fn(&Part) -> bool, why: &str) {
        let parts = self.parts.iter().filter(|(key, _)| &key.0 == message);
        for ((_, number), part) in parts {
            if of(part) && part.unconfirmed() {
                self.wrong(&format!(
                    "{why}, and text of part {number} of {message} was not taken back"
                ));
            }
        }
    }

    fn over(&mut self, message: &MessageId) {
        self.none_left(message, |_| true, "its step ended");
        self.parts.retain(|key, _| &key.0 != message);
    }
}
