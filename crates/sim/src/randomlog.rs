//! Random plausible logs of a session: what users, models, networks, crashes and people who press Ctrl-C do
//! to it, in any order. Pure: the same tape of choices gives the same log.
//!
//! Everything durable is decided by the production machines (publisher, settlement, fold, compaction plan);
//! only what comes from outside is made up here.

mod model;
mod native;
mod prompt;
mod refusal;
mod step;
mod stream;

pub use model::{ANTHROPIC, Asked, BEDROCK, CHAT, GEMINI, MODELS, RESPONSES};
pub use native::{seal, seals};

use serde_json::Value;
use std::collections::HashSet;
use tenure_core::claim;
use tenure_core::compaction::{Planning, Rough, plan};
use tenure_core::event::body::*;
use tenure_core::model::ModelLimits;
use tenure_core::session::SessionState;
use tenure_core::turn::settle::{Cause, settle};
use tenure_core::*;

/// Choices, read from the front. An empty tape chooses 0 for ever, and the log comes to its end.
#[derive(Clone)]
pub struct Tape {
    choices: Vec<u16>,
    at: usize,
}

impl Tape {
    /// A tape of `choices`.
    pub fn new(choices: Vec<u16>) -> Self {
        Self { choices, at: 0 }
    }

    /// The next choice, below `n`.
    pub fn pick(&mut self, n: usize) -> usize {
        let choice = self.choices.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(choice) % n.max(1)
    }

    /// One of `all`.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.pick(all.len())]
    }

    /// Yes, once in `n`; never when the tape is over.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.pick(n) == n - 1
    }

    fn is_over(&self) -> bool {
        self.at >= self.choices.len()
    }
}

/// On one line, in hexadecimal digits: thousands of choices are read by programs only.
impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tape(")?;
        let mut choices = self.choices.iter();
        choices.try_for_each(|choice| write!(f, "{choice:04x}"))?;
        write!(f, ")")
    }
}

/// The log, its fold, and where requests were made.
#[derive(Debug)]
pub struct RandomLog {
    /// The events, `seq` dense from 0.
    pub events: Vec<Event>,
    /// Their fold.
    pub state: SessionState,
    /// Lengths of the log at which a step's request was built, and who was asked.
    pub requests: Vec<(usize, Asked)>,
    /// The model asked now.
    pub asked: Asked,
    tape: Tape,
    names: u64,
    item: u64,
    attempts: u32,
    /// What the open step's request was refused for, before a word of an answer.
    refused: Option<SessionError>,
}

impl RandomLog {
    /// Plays the tape to its end. The log may end inside a step, as after a crash.
    pub fn play(tape: Tape) -> Self {
        let mut log = Self {
            events: Vec::new(),
            state: SessionState::default(),
            requests: Vec::new(),
            asked: MODELS[0],
            tape,
            names: 0,
            item: 0,
            attempts: 0,
            refused: None,
        };
        log.create();
        while !log.tape.is_over() {
            log.act();
        }
        log
    }

    /// The first `n` events and their fold.
    pub fn prefix(&self, n: usize) -> SessionState {
        SessionState::fold(&self.events[..n])
    }

    fn add(&mut self, body: impl Into<EventBody>) {
        let seq = self.events.len() as u64;
        let event = Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: Some(1),
            created_ms: seq as i64 * 10,
            body: body.into(),
        };
        self.state.apply(&event);
        self.events.push(event);
    }

    fn all(&mut self, bodies: Vec<EventBody>) {
        for body in bodies {
            self.add(body);
        }
    }

    fn fresh(&mut self) -> MessageId {
        self.names += 1;
        MessageId::from_bits(u128::from(self.names))
    }

    fn create(&mut self) {
        self.asked = self.tape.of(MODELS);
        let model = self.asked.reference();
        self.add(SessionCreated {
            title: None,
            location: Location::at("/w".to_owned()),
            model,
            limits: Limits::default(),
            permissions: Value::Null,
        });
        self.add(InstructionsSet {
            parts: vec!["You are an agent.".to_owned(), String::new()],
            digest: "1".to_owned(),
        });
        self.user();
    }

    /// One thing that happens at a boundary.
    fn act(&mut self) {
        match self.tape.pick(18) {
            0..=6 => self.step(),
            7 | 8 => self.user(),
            9 => self.admit_only(),
            10 => {
                self.asked = self.tape.of(MODELS);
                let model = self.asked.reference();
                self.add(ModelSelected { model });
            }
            11 => self.instructions(),
            12 => self.compact(),
            13 => self.fork(),
            14 => self.end_execution(),
            15 => self.crash_at_boundary(),
            16 => self.interrupt(),
            _ => self.replace(),
        }
    }

    fn promote_new(&mut self, kind: InputKind) {
        let input = self.fresh();
        let delivery = self.tape.of(&[Delivery::Steer, Delivery::Queue]);
        self.add(InputAdmitted {
            input: input.clone(),
            kind,
            delivery,
        });
        self.add(InputPromoted { input });
    }

    /// An input that waits, is changed, or is taken back.
    fn admit_only(&mut self) {
        let input = self.fresh();
        let text = "later".to_owned();
        self.add(InputAdmitted {
            input: input.clone(),
            kind: InputKind::user(text),
            delivery: Delivery::Queue,
        });
        match self.tape.pick(3) {
            0 => self.add(InputCancelled {
                input,
                by: "user".to_owned(),
            }),
            1 => self.add(InputDeliveryChanged {
                input,
                delivery: Delivery::Steer,
            }),
            _ => {}
        }
    }

    fn instructions(&mut self) {
        let text = self.tape.of(&["AGENTS.md changed", " "]).to_owned();
        let digest = format!("{}", self.events.len());
        self.add(InstructionsChanged { text, digest });
    }

    fn end_execution(&mut self) {
        let Some(execution) = self.state.turn.execution.clone() else {
            return;
        };
        match self.tape.pick(3) {
            0 => self.add(ExecutionSucceeded { execution }),
            1 => self.add(ExecutionInterrupted {
                execution,
                reason: InterruptReason::User,
            }),
            _ => self.add(ExecutionFailed {
                execution,
                error: SessionError::new("step_limit", "enough"),
            }),
        }
    }

    fn replace(&mut self) {
        let generation = self.state.settings.as_ref().map_or(0, |s| s.generation) + 1;
        let bodies = settle(&self.state.turn, &Cause::Replaced);
        self.all(bodies);
        self.add(AttachmentReplaced {
            location: Location::at("/w2".to_owned()),
            generation,
            reason: "moved".to_owned(),
        });
    }

    fn fork(&mut self) {
        self.add(SessionForked {
            parent: SessionId::from_bits(7),
            through: self.events.len() as u64 - 1,
        });
    }

    fn compact(&mut self) {
        let asked = self.asked;
        let limits = ModelLimits {
            context: self.tape.of(&[None, Some(1_000), Some(100_000)]),
            output: None,
        };
        let reasons = [
            CompactionReason::Manual,
            CompactionReason::Threshold,
            CompactionReason::Overflow,
        ];
        let reason = self.tape.of(&reasons);
        let planned = plan(&Planning {
            state: &self.state,
            reason,
            model: &asked.reference(),
            limits: &limits,
            counter: &Rough,
            fixed: 0,
            cache_key: "k",
            too_large: 0,
            firmly: false,
            effort: None,
        });
        let Ok(planned) = planned else {
            return;
        };
        self.names += 1;
        let compaction = CompactionId::from_bits(u128::from(self.names));
        self.add(CompactionStarted {
            compaction: compaction.clone(),
            reason,
            input: None,
            model: asked.reference(),
            request_hash: String::new(),
            at_most: None,
        });
        match self.tape.pick(4) {
            0 => self.crash(),
            1 => self.add(CompactionFailed {
                compaction,
                error: SessionError::new("unusable", "the summary was empty"),
                usage: None,
                cost: None,
            }),
            _ => {
                self.add(CompactionEnded {
                    compaction,
                    summary: "What was done.".to_owned(),
                    kept_from: planned.kept_from,
                    usage: None,
                    cost: None,
                });
                // A new epoch of instructions begins with the summary.
                self.add(InstructionsSet {
                    parts: vec!["You are an agent.".to_owned()],
                    digest: "2".to_owned(),
                });
            }
        }
    }

    /// Sometimes: a crash, an interrupt, a shutdown, a fork or new instructions in the middle of things.
    /// True when the step is over by it.
    fn disturbed(&mut self) -> bool {
        match self.tape.pick(40) {
            33 => self.instructions(),
            34 => self.fork(),
            35 => self.replace(),
            36 => self.interrupt(),
            37 => self.shutdown(),
            38 | 39 => self.crash(),
            _ => {}
        }
        self.state.turn.step.is_none()
    }

    fn interrupt(&mut self) {
        let execution = self.state.turn.execution.clone();
        self.add(InterruptRequested {
            interrupt: InterruptId::from_bits(u128::from(self.names)),
            execution: execution.clone(),
            by: "user".to_owned(),
        });
        let bodies = settle(&self.state.turn, &Cause::Interrupted);
        self.all(bodies);
        if let Some(execution) = execution {
            self.add(ExecutionInterrupted {
                execution,
                reason: InterruptReason::User,
            });
        }
    }

    fn shutdown(&mut self) {
        let bodies = settle(&self.state.turn, &Cause::Shutdown);
        self.all(bodies);
        self.promote_new(InputKind::Synthetic {
            text: claim::CONTINUATION_AFTER_SHUTDOWN.to_owned(),
        });
    }

    /// What recovery writes: the fold, its settlement, a continuation.
    fn crash(&mut self) {
        let recovered = SessionState::fold(&self.events);
        let bodies = settle(&recovered.turn, &Cause::Crashed);
        self.add(RecoveryStarted {
            execution: recovered.turn.execution,
            phase: Phase::Active,
            attempts: 1,
            decision: RecoveryDecision::Continue,
        });
        self.all(bodies);
        self.promote_new(InputKind::Synthetic {
            text: claim::CONTINUATION_AFTER_CRASH.to_owned(),
        });
    }

    /// The owner of an execution dies between two steps: nothing is ambiguous, and its heir goes on.
    fn crash_at_boundary(&mut self) {
        if self.state.turn.execution.is_none() {
            return;
        }
        let recovered = SessionState::fold(&self.events);
        let bodies = settle(&recovered.turn, &Cause::Crashed);
        self.add(RecoveryStarted {
            execution: recovered.turn.execution,
            phase: Phase::Safe,
            attempts: 1,
            decision: RecoveryDecision::GoOn,
        });
        self.all(bodies);
    }

    /// Every call of the log with the number of its settlements: each settled log has 1 everywhere.
    pub fn unsettled(&self) -> Vec<CallId> {
        let mut open: Vec<(MessageId, CallId)> = Vec::new();
        let mut seen = HashSet::new();
        for event in &self.events {
            match &event.body {
                EventBody::ToolInputStarted(ToolInputStarted { message, call, .. })
                | EventBody::ToolCalled(ToolCalled { message, call, .. }) => {
                    let key = (message.clone(), call.clone());
                    open.extend(seen.insert(key.clone()).then_some(key));
                }
                EventBody::ToolSucceeded(ToolSucceeded { message, call, .. })
                | EventBody::ToolFailed(ToolFailed { message, call, .. }) => {
                    open.retain(|o| (&o.0, &o.1) != (message, call));
                }
                _ => {}
            }
        }
        open.into_iter().map(|(_, call)| call).collect()
    }
}
