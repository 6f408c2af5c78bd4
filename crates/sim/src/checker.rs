//! Reads one session's exported events, and nothing else, and names every promise that the log breaks.
//!
//! A log may end anywhere: what is open at its end is not a finding, what was left open at a terminal is.
//! The rules are written here a second time on purpose, with no help from the folds that they judge.

mod cancel;
mod inputs;
mod order;
mod settling;
mod turns;

use std::fmt;
use tenure_core::Event;

/// A promise of the design that a log can show broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// The log is dense, of one session, with each event once, each start before its end.
    Order,
    /// P1: one owner at a time; a takeover says so before it does anything.
    OneOwner,
    /// P2: every admitted input is promoted once, cancelled, or pending.
    NothingLost,
    /// P3: every call has exactly one result, every fragment is whole, before its step is over.
    AlwaysSendable,
    /// P4: nothing starts behind an accepted interrupt, which ends its execution.
    CancelIsAnEvent,
    /// P5: a call is started at most once, an attempt sent at most once, and what was open at a crash is not
    /// said to have succeeded.
    HonestEffects,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Order => "order",
            Self::OneOwner => "P1",
            Self::NothingLost => "P2",
            Self::AlwaysSendable => "P3",
            Self::CancelIsAnEvent => "P4",
            Self::HonestEffects => "P5",
        })
    }
}

/// One place where a log breaks a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The event that shows it.
    pub seq: u64,
    /// What is broken.
    pub promise: Promise,
    /// How, naming the ids.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at seq {}: {}", self.promise, self.seq, self.message)
    }
}

/// Collects findings while one event is looked at.
struct Findings {
    seq: u64,
    all: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, promise: Promise, message: impl Into<String>) {
        self.all.push(Finding {
            seq: self.seq,
            promise,
            message: message.into(),
        });
    }

    fn unless(&mut self, holds: bool, promise: Promise, message: impl FnOnce() -> String) {
        if !holds {
            self.add(promise, message());
        }
    }
}

/// Checks the events of one session, in the order of the log from its first. Empty when every promise holds
/// as far as this log can show.
pub fn check(events: &[Event]) -> Vec<Finding> {
    let mut out = Findings {
        seq: 0,
        all: Vec::new(),
    };
    let mut order = order::Order::default();
    let mut inputs = inputs::Inputs::default();
    let mut cancel = cancel::Cancel::default();
    let mut turns = turns::Turns::default();
    for event in events {
        out.seq = event.seq;
        order.on(event, turns.needs_recovery(), &mut out);
        inputs.on(event, &mut out);
        cancel.on(event, turns.execution(), &mut out);
        turns.on(event, &mut out);
    }
    inputs.finish(&mut out);
    out.all
}

/// Inputs that are neither promoted nor cancelled at the end of the log.
pub fn pending(events: &[Event]) -> Vec<tenure_core::MessageId> {
    let mut out = Findings {
        seq: 0,
        all: Vec::new(),
    };
    let mut inputs = inputs::Inputs::default();
    events.iter().for_each(|event| inputs.on(event, &mut out));
    inputs.pending()
}
