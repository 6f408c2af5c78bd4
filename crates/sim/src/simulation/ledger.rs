//! What physically happened outside the log: processes started, requests sent. Kept by the world, not by nodes.
//!
//! Each entry is judged when it is made, against the log as it is at that moment: a start or a request that no
//! promise allows is a violation then and there.

use super::environment::Machine;
use super::executor::{Executor, Micros, Proc};
use super::registry::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::event::EventBody;
use tenure_core::event::body::FragmentKind;
use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_core::placement::Serves;
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
    /// Its guardian is stopped: the deadline ends nothing.
    deaf: bool,
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
    /// Which places are served there.
    pub serves: Serves,
    /// Its pid.
    pub pid: u32,
    /// The deadline its guardian watches, if it has one.
    pub lease: Option<LeaseDeadline>,
    /// The guardian is stopped, and watches nothing.
    pub deaf: bool,
}

/// A request under way.
#[derive(Debug)]
struct Request {
    key: String,
    session: SessionId,
    proc: Proc,
    open: bool,
}

/// A request that was sent; dropping it is what ends it.
pub struct Sending {
    ledger: Arc<Ledger>,
    number: Option<usize>,
}

impl Drop for Sending {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        let request = self.number.and_then(|n| state.requests.get_mut(n));
        if let Some(request) = request {
            request.open = false;
        }
    }
}

/// The world's book.
pub struct Ledger {
    /// What is known of nodes and tenures.
    pub registry: Registry,
    executor: Executor,
    database: Arc<Database>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: Vec<Start>,
    sent: BTreeSet<String>,
    requests: Vec<Request>,
    /// Processes that were paused: what runs in them goes on before they can know that they are late.
    paused: BTreeSet<Proc>,
    /// Dead processes whose guardians have not noticed.
    lingering: BTreeSet<Proc>,
    violations: Vec<Violation>,
    counts: BTreeMap<&'static str, u64>,
    pids: u32,
    notes: Vec<(Micros, String)>,
    /// What the model says in each attempt, part by part.
    says: BTreeMap<String, Vec<(FragmentKind, String)>>,
}

impl Ledger {
    /// An empty book.
    pub fn new(executor: Executor, database: Arc<Database>) -> Self {
        Self {
            registry: Registry::default(),
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
        self.note(|| {
            let Starting {
                proc,
                pid,
                call,
                deaf,
                ..
            } = &starting;
            format!("{call} begins in {proc:?} with pid {pid}, deaf: {deaf}")
        });
        let Starting {
            session,
            message,
            call,
            proc,
            machine,
            pid,
            lease,
            deaf,
            serves: _,
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
            deaf,
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
        let row = self.database.session(&new.session).ok().flatten();
        if let Some(Err(why)) = row.map(|row| new.serves.check(&row.location, &row.model)) {
            let words =
                format!("call {call} of {message} began where its session is not served: {why}");
            self.violated("R14", words);
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
                    && (start.lease.is_some() || !state.paused.contains(&start.proc))
                    && self.is_alive(start)
                    // Of another machine nobody can end it, and time is all there is.
                    && (self.is_leased(start) || Arc::ptr_eq(&start.machine, &new.machine))
            });
            (again, beside.map(|start| start.call.clone()))
        };
        if again {
            self.violated("P5", format!("call {call} of {message} was spawned twice"));
        }
        if let Some(other) = beside {
            self.violated(
                "P5",
                format!(
                    "call {call} of {message} began while {other} of a lost owner was still alive"
                ),
            );
        }
    }

    fn is_alive(&self, start: &Start) -> bool {
        start.ended.is_none() && (start.deaf || self.is_leased(start))
    }

    fn is_leased(&self, start: &Start) -> bool {
        start.lease.as_ref().is_none_or(|lease| {
            lease.get().as_millis() as u64 > start.machine.boot_ms(&self.executor)
        })
    }

    /// Is what began under this number alive?
    pub fn lives(&self, start: usize) -> bool {
        let state = self.state();
        state
            .starts
            .get(start)
            .is_some_and(|start| self.is_alive(start))
    }

    /// It ended; false when it had been killed before.
    pub fn end(&self, start: usize, how: Ended) -> bool {
        let mut state = self.state();
        let Some(entry) = state.starts.get(start) else {
            return false;
        };
        // A command that lives on does not end with the task that looks after it.
        if entry.lease.is_some() && state.lingering.contains(&entry.proc) {
            return false;
        }
        let alive = self.is_alive(entry);
        let how = if alive { how } else { Ended::Killed };
        if let Some(entry) = state.starts.get_mut(start) {
            entry.ended.get_or_insert(how);
        }
        alive
    }

    /// A process is about to be paused.
    pub fn pauses(&self, proc: Proc) {
        self.state().paused.insert(proc);
    }

    /// A process is about to die: guardians end what it had started, or, when it `lingers`, notice only that its lease
    /// is not kept up.
    pub fn dies(&self, proc: Proc, lingers: bool) {
        let mut state = self.state();
        if lingers {
            state.lingering.insert(proc);
        }
        for start in &mut state.starts {
            if start.proc == proc && !(lingers && start.lease.is_some()) {
                start.ended.get_or_insert(Ended::Killed);
            }
        }
    }

    /// The session was deleted: what was started for it is nobody's any more.
    pub fn forget(&self, session: &SessionId) {
        self.registry.forget(session);
        for start in &mut self.state().starts {
            if &start.session == session {
                start.ended.get_or_insert(Ended::Killed);
            }
        }
    }

    /// Ends a leftover.
    pub fn end_process(&self, pid: u32) {
        self.note(|| format!("pid {pid} is ended"));
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

    /// The model says this in the attempt, as one part of its answer, if it is not cut.
    pub fn says(&self, key: &str, kind: FragmentKind, text: String) {
        let mut state = self.state();
        let parts = state.says.entry(key.to_owned()).or_default();
        parts.push((kind, text));
    }

    /// Did the model say `text` in the attempt, `offset` bytes into some part of its answer?
    pub fn has_said(&self, key: &str, kind: FragmentKind, offset: u64, text: &str) -> bool {
        let state = self.state();
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = |whole: &str| whole.get(from..).is_some_and(|rest| rest.starts_with(text));
        let parts = state.says.get(key).into_iter().flatten();
        parts
            .filter(|part| part.0 == kind)
            .any(|(_, whole)| there(whole))
    }

    /// A request leaves `proc` for a model. `key` names the attempt or the compaction, `hash` the body.
    pub fn send(self: &Arc<Self>, proc: Proc, key: &str, hash: &str) -> Sending {
        self.count("request sent");
        let number = self
            .judge_request(key, hash)
            .map(|session| self.open_request(proc, key, session));
        Sending {
            ledger: self.clone(),
            number,
        }
    }

    /// A request is under way from now on. No other process may have one for the session: whoever lost it has stopped.
    fn open_request(&self, proc: Proc, key: &str, session: SessionId) -> usize {
        let mut state = self.state();
        let beside = state.requests.iter().find(|other| {
            other.open
                && other.session == session
                && other.proc != proc
                && !state.paused.contains(&other.proc)
        });
        let beside = beside.map(|other| other.key.clone());
        state.requests.push(Request {
            key: key.to_owned(),
            session,
            proc,
            open: true,
        });
        let number = state.requests.len() - 1;
        drop(state);
        if let Some(other) = beside {
            let words =
                format!("attempt {key} was sent while {other} of a lost owner was under way");
            self.violated("P5", words);
        }
        number
    }

    /// The session it is sent for, if it may be sent.
    fn judge_request(&self, key: &str, hash: &str) -> Option<SessionId> {
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
            return None;
        };
        let now = self.database.epoch(&session);
        if now > epoch {
            let words = format!("attempt {key} of epoch {epoch:?} was sent under epoch {now:?}");
            self.violated("P1", words);
        }
        Some(session)
    }
}
