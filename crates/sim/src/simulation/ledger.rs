//! What physically happened outside the log: processes started, requests sent. Kept by the world, not by nodes.
//!
//! Each entry is judged when it is made, against the log as it is at that moment: a start or a request that no
//! promise allows is a violation then and there.

use super::environment::Machine;
use super::executor::{Executor, Micros, Proc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::event::EventBody;
use tenure_core::id::{CallId, Incarnation, MessageId, SessionId};
use tenure_store::memory::Database;
use tenure_tools::guardian::LeaseDeadline;

/// A promise broken, in words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// `P1`…`P7`, or what the checker calls it.
    pub promise: String,
    /// How.
    pub message: String,
}

/// How a start ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Done,
    /// It was killed, by whomever.
    Killed,
}

/// One physical start.
#[derive(Debug)]
struct Start {
    session: SessionId,
    message: MessageId,
    call: CallId,
    proc: Proc,
    pid: u32,
    machine: Arc<Machine>,
    /// A guardian watches over it; else it lives and dies with the node's own tasks.
    lease: Option<LeaseDeadline>,
    ended: Option<Ended>,
}

/// What a tool says of itself as it starts.
pub struct Starting {
    /// The session.
    pub session: SessionId,
    /// The step's message.
    pub message: MessageId,
    /// The call.
    pub call: CallId,
    /// The process that starts it.
    pub proc: Proc,
    /// Where.
    pub machine: Arc<Machine>,
    /// Its pid.
    pub pid: u32,
    /// The deadline its guardian watches, if it has one.
    pub lease: Option<LeaseDeadline>,
}

/// The world's book.
pub struct Ledger {
    executor: Executor,
    database: Arc<Database>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: Vec<Start>,
    sent: BTreeSet<String>,
    violations: Vec<Violation>,
    counts: BTreeMap<&'static str, u64>,
    pids: u32,
    crashed: BTreeSet<Incarnation>,
    resigned: BTreeSet<Incarnation>,
    notes: Vec<(Micros, String)>,
}

impl Ledger {
    /// An empty book.
    pub fn new(executor: Executor, database: Arc<Database>) -> Self {
        Self {
            executor,
            database,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a broken promise.
    pub fn violated(&self, promise: &str, message: impl Into<String>) {
        let message = message.into();
        self.note(|| format!("VIOLATION {promise}: {message}"));
        self.state().violations.push(Violation {
            promise: promise.to_owned(),
            message,
        });
    }

    /// Everything recorded.
    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// Counts something for the summary.
    pub fn count(&self, what: &'static str) {
        *self.state().counts.entry(what).or_default() += 1;
    }

    /// The counts.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.state().counts.clone()
    }

    /// Notes what happened, for whoever reads a failed run.
    pub fn note(&self, what: impl FnOnce() -> String) {
        let at = self.executor.now();
        let mut state = self.state();
        if state.notes.len() < 4_000 {
            state.notes.push((at, what()));
        }
    }

    /// The notes.
    pub fn notes(&self) -> Vec<(Micros, String)> {
        self.state().notes.clone()
    }

    /// Lives of a process that was killed at its work.
    pub fn crashed(&self, lives: &[Incarnation]) {
        self.state().crashed.extend(lives.iter().cloned());
    }

    /// Was it killed at its work?
    pub fn has_crashed(&self, life: &Incarnation) -> bool {
        self.state().crashed.contains(life)
    }

    /// A node said by itself that it is done.
    pub fn resigned(&self, life: &Incarnation) {
        self.state().resigned.insert(life.clone());
    }

    /// Did it say so?
    pub fn has_resigned(&self, life: &Incarnation) -> bool {
        self.state().resigned.contains(life)
    }

    /// A fresh pid.
    pub fn pid(&self) -> u32 {
        let mut state = self.state();
        state.pids += 1;
        state.pids
    }

    /// A tool begins, physically. Its number, for [`Ledger::end`].
    pub fn start(&self, starting: Starting) -> usize {
        self.judge(&starting);
        self.count("tool started");
        let Starting {
            session,
            message,
            call,
            proc,
            machine,
            pid,
            lease,
        } = starting;
        let mut state = self.state();
        state.starts.push(Start {
            session,
            message,
            call,
            proc,
            pid,
            machine,
            lease,
            ended: None,
        });
        state.starts.len() - 1
    }

    fn judge(&self, new: &Starting) {
        let (message, call) = (&new.message, &new.call);
        let logged = self.database.find_event(&new.session, |body| {
            matches!(body, EventBody::ToolStarted(e) if &e.message == message && &e.call == call)
        });
        match logged {
            None => self.violated(
                "P5",
                format!("call {call} of {message} began before its start was durable"),
            ),
            Some((_, epoch)) => {
                let now = self.database.epoch(&new.session);
                if now > epoch {
                    self.violated(
                        "P1",
                        format!("call {call} of {message}, started under epoch {epoch:?}, began under epoch {now:?}"),
                    );
                }
            }
        }
        let (again, beside) = {
            let state = self.state();
            let same = |start: &&Start| {
                start.session == new.session && start.message == *message && start.call == *call
            };
            let again = state.starts.iter().any(|start| same(&start));
            let beside = state.starts.iter().find(|start| {
                start.session == new.session
                    && start.proc != new.proc
                    && start.lease.is_some()
                    && self.is_alive(start)
            });
            (again, beside.map(|start| start.call.clone()))
        };
        if again {
            self.violated("P5", format!("call {call} of {message} was spawned twice"));
        }
        if let (Some(other), true) = (beside, new.lease.is_some()) {
            self.violated(
                "P5",
                format!(
                    "call {call} of {message} began while {other} of a lost owner was still alive"
                ),
            );
        }
    }

    fn is_alive(&self, start: &Start) -> bool {
        let leased = start.lease.as_ref().is_none_or(|lease| {
            lease.get().as_millis() as u64 > start.machine.boot_ms(&self.executor)
        });
        start.ended.is_none() && leased
    }

    /// It ended; false when it had been killed before.
    pub fn end(&self, start: usize, how: Ended) -> bool {
        let mut state = self.state();
        let Some(entry) = state.starts.get(start) else {
            return false;
        };
        let alive = self.is_alive(entry);
        let how = if alive { how } else { Ended::Killed };
        if let Some(entry) = state.starts.get_mut(start) {
            entry.ended.get_or_insert(how);
        }
        alive
    }

    /// A process died: guardians end what it had started.
    pub fn process_died(&self, proc: Proc) {
        for start in &mut self.state().starts {
            if start.proc == proc {
                start.ended.get_or_insert(Ended::Killed);
            }
        }
    }

    /// Ends a leftover.
    pub fn end_process(&self, pid: u32) {
        for start in &mut self.state().starts {
            if start.pid == pid {
                start.ended.get_or_insert(Ended::Killed);
            }
        }
    }

    /// Did the call run to its end by itself?
    pub fn was_done(&self, session: &SessionId, message: &MessageId, call: &CallId) -> bool {
        self.state().starts.iter().any(|start| {
            &start.session == session
                && &start.message == message
                && &start.call == call
                && start.ended == Some(Ended::Done)
        })
    }

    /// A request leaves for a model. `key` names the attempt or the compaction, `hash` the body.
    pub fn send(&self, key: &str, hash: &str) {
        self.count("request sent");
        if !self.state().sent.insert(key.to_owned()) {
            self.violated("P5", format!("attempt {key} was sent twice"));
        }
        let (message, attempt) = key.rsplit_once('-').unwrap_or((key, "0"));
        let durable = self.database.find_event_anywhere(|body| match body {
            EventBody::AttemptStarted(e) => {
                e.message.as_str() == message
                    && e.attempt.to_string() == attempt
                    && e.request_hash == hash
            }
            EventBody::CompactionStarted(e) => {
                e.compaction.as_str() == key && e.request_hash == hash
            }
            _ => false,
        });
        let Some((session, epoch)) = durable else {
            self.violated(
                "P5",
                format!("attempt {key} was sent before it was durable"),
            );
            return;
        };
        let now = self.database.epoch(&session);
        if now > epoch {
            let words = format!("attempt {key} of epoch {epoch:?} was sent under epoch {now:?}");
            self.violated("P1", words);
        }
    }
}
