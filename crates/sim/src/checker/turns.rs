//! P3 and P5: executions, steps, attempts, fragments and compactions begin and end once, in their order.

use super::settling::Call;
use super::{Findings, Promise};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::usage::Usage;
use tenure_core::{CallId, CompactionId, Event, ExecutionId, MessageId};

/// A streamed fragment that is open.
struct Fragment {
    bytes: u64,
    hash: Sha256,
}

/// The open step.
pub(super) struct Step {
    pub(super) message: MessageId,
    /// The epoch that opened it.
    pub(super) epoch: Option<u64>,
    /// A recovery has begun since: what is open can only be settled.
    pub(super) recovering: bool,
    attempt: Option<u32>,
    attempts: u32,
    usage: Usage,
    fragments: BTreeMap<u32, Fragment>,
    parts: HashSet<u32>,
    pub(super) calls: BTreeMap<CallId, Call>,
}

/// Everything that begins and ends within one session.
#[derive(Default)]
pub(super) struct Turns {
    execution: Option<ExecutionId>,
    executions: HashSet<ExecutionId>,
    compaction: Option<CompactionId>,
    compactions: HashSet<CompactionId>,
    step: Option<Step>,
    messages: HashSet<MessageId>,
}

impl Turns {
    /// A step or a compaction is open.
    pub(super) fn is_open(&self) -> bool {
        self.step.is_some() || self.compaction.is_some()
    }

    /// Something is open that only a recovery may touch under a new epoch. A step whose stream has ended and whose
    /// calls have not begun may be handed over as it is (R11).
    pub(super) fn needs_recovery(&self) -> bool {
        self.compaction.is_some() || self.step.as_ref().is_some_and(|step| !step.waits())
    }

    pub(super) fn execution(&self) -> Option<&ExecutionId> {
        self.execution.as_ref()
    }

    pub(super) fn on(&mut self, event: &Event, out: &mut Findings) {
        let recovery = matches!(event.body, EventBody::RecoveryStarted(_));
        if let Some(step) = &mut self.step
            && event.epoch > step.epoch
            && !recovery
            && !step.recovering
            && step.waits()
        {
            // Handed over as it is: its new owner goes on with it.
            step.epoch = event.epoch;
        }
        match &event.body {
            EventBody::ExecutionStarted(e) => self.execution_started(&e.execution, out),
            EventBody::ExecutionSucceeded(e) => self.execution_over(&e.execution, out),
            EventBody::ExecutionFailed(e) => self.execution_over(&e.execution, out),
            EventBody::ExecutionInterrupted(e) => self.execution_over(&e.execution, out),
            // A fork shares the words of its parent and none of its work.
            EventBody::SessionForked(_) => {
                self.execution = None;
                self.compaction = None;
                self.step = None;
            }
            EventBody::SessionQuarantined(_) => self.nothing_open("a quarantine", out),
            EventBody::RecoveryStarted(_) => {
                if let Some(step) = &mut self.step {
                    step.recovering = true;
                }
            }
            EventBody::CompactionStarted(e) => self.compaction_started(&e.compaction, out),
            EventBody::CompactionEnded(e) => self.compaction_over(&e.compaction, out),
            EventBody::CompactionFailed(e) => self.compaction_over(&e.compaction, out),
            EventBody::StepStarted(e) => self.step_started(e, event.epoch, out),
            EventBody::StepEnded(e) => self.step_over(&e.message, &e.usage, true, out),
            EventBody::StepFailed(e) => self.step_over(&e.message, &e.usage, false, out),
            body => {
                if let Some(message) = body.message() {
                    self.within_step(event, message.clone(), out);
                }
            }
        }
    }

    fn execution_started(&mut self, execution: &ExecutionId, out: &mut Findings) {
        out.unless(
            self.executions.insert(execution.clone()),
            Promise::Order,
            || format!("execution {execution} started twice"),
        );
        if let Some(open) = self.execution.replace(execution.clone()) {
            out.add(
                Promise::Order,
                format!("execution {execution} started while {open} was open"),
            );
        }
    }

    fn execution_over(&mut self, execution: &ExecutionId, out: &mut Findings) {
        self.nothing_open("the end of an execution", out);
        let open = self.execution.take();
        out.unless(open.as_ref() == Some(execution), Promise::Order, || {
            format!("execution {execution} ended, and was not open")
        });
    }

    fn nothing_open(&self, when: &str, out: &mut Findings) {
        if let Some(step) = &self.step {
            out.add(
                Promise::AlwaysSendable,
                format!("step {} was open at {when}", step.message),
            );
        }
        if let Some(compaction) = &self.compaction {
            out.add(
                Promise::AlwaysSendable,
                format!("compaction {compaction} was open at {when}"),
            );
        }
    }

    fn compaction_started(&mut self, compaction: &CompactionId, out: &mut Findings) {
        out.unless(
            self.compactions.insert(compaction.clone()),
            Promise::HonestEffects,
            || format!("compaction {compaction} started twice"),
        );
        out.unless(!self.is_open(), Promise::Order, || {
            format!("compaction {compaction} started while a step or compaction was open")
        });
        self.compaction = Some(compaction.clone());
    }

    fn compaction_over(&mut self, compaction: &CompactionId, out: &mut Findings) {
        let open = self.compaction.take();
        out.unless(open.as_ref() == Some(compaction), Promise::Order, || {
            format!("compaction {compaction} ended, and was not open")
        });
    }

    fn step_started(&mut self, e: &StepStarted, epoch: Option<u64>, out: &mut Findings) {
        let message = &e.message;
        out.unless(
            self.messages.insert(message.clone()),
            Promise::HonestEffects,
            || format!("step {message} started twice"),
        );
        out.unless(!self.is_open(), Promise::Order, || {
            format!("step {message} started while a step or compaction was open")
        });
        out.unless(self.execution.is_some(), Promise::Order, || {
            format!("step {message} started outside an execution")
        });
        self.step = Some(Step {
            message: message.clone(),
            epoch,
            recovering: false,
            attempt: None,
            attempts: 0,
            usage: Usage::default(),
            fragments: BTreeMap::new(),
            parts: HashSet::new(),
            calls: BTreeMap::new(),
        });
    }

    fn step_over(&mut self, message: &MessageId, usage: &Usage, well: bool, out: &mut Findings) {
        let Some(step) = self.step.take().filter(|step| step.message == *message) else {
            out.add(
                Promise::Order,
                format!("step {message} ended, and was not open"),
            );
            return;
        };
        out.unless(step.attempt.is_none(), Promise::HonestEffects, || {
            format!(
                "step {message} ended while its attempt {} was open",
                step.attempts
            )
        });
        out.unless(!(well && step.recovering), Promise::HonestEffects, || {
            format!(
                "step {message} was open when its owner was lost, and is said to have ended well"
            )
        });
        for part in step.fragments.keys() {
            out.add(
                Promise::AlwaysSendable,
                format!("step {message} ended while fragment {part} was open"),
            );
        }
        for call in step
            .calls
            .iter()
            .filter(|(_, call)| !call.is_settled())
            .map(|(id, _)| id)
        {
            out.add(
                Promise::AlwaysSendable,
                format!("step {message} ended while call {call} had no result"),
            );
        }
        out.unless(step.usage == *usage, Promise::HonestEffects, || {
            format!(
                "step {message} says {usage:?} and its attempts add up to {:?}",
                step.usage
            )
        });
    }

    fn within_step(&mut self, event: &Event, message: MessageId, out: &mut Findings) {
        let Some(step) = self.step.as_mut().filter(|step| step.message == message) else {
            out.add(
                Promise::Order,
                format!(
                    "{} of {message}, whose step is not open",
                    event.body.type_name()
                ),
            );
            return;
        };
        match &event.body {
            EventBody::AttemptStarted(e) => step.attempt_started(e.attempt, out),
            EventBody::AttemptEnded(e) => step.attempt_ended(e.attempt, e.usage.as_ref(), out),
            EventBody::FragmentStarted(e) => step.fragment_started(e, out),
            EventBody::FragmentChunk(e) => step.fragment_chunk(e, out),
            EventBody::FragmentEnded(e) => step.fragment_ended(e, out),
            _ => step.call(event, out),
        }
    }
}

impl Step {
    /// Its stream has ended, and what is left of it has not begun.
    fn waits(&self) -> bool {
        self.attempts > 0 && self.attempt.is_none() && self.calls.values().all(Call::waits)
    }

    fn attempt_started(&mut self, attempt: u32, out: &mut Findings) {
        let message = &self.message;
        out.unless(attempt == self.attempts + 1, Promise::HonestEffects, || {
            format!(
                "attempt {attempt} of {message} started behind attempt {}",
                self.attempts
            )
        });
        out.unless(self.attempt.is_none(), Promise::HonestEffects, || {
            format!("attempt {attempt} of {message} started before the one before it had ended")
        });
        out.unless(!self.recovering, Promise::HonestEffects, || {
            format!("attempt {attempt} of {message} started for a step whose owner was lost")
        });
        self.attempts = self.attempts.max(attempt);
        self.attempt = Some(attempt);
    }

    fn attempt_ended(&mut self, attempt: u32, usage: Option<&Usage>, out: &mut Findings) {
        let open = self.attempt.take();
        out.unless(open == Some(attempt), Promise::HonestEffects, || {
            format!(
                "attempt {attempt} of {} ended, and was not open",
                self.message
            )
        });
        if let Some(usage) = usage {
            self.usage.add(usage);
        }
    }

    /// A part's number is used once.
    pub(super) fn part(&mut self, part: u32, out: &mut Findings) {
        out.unless(self.parts.insert(part), Promise::AlwaysSendable, || {
            format!("part {part} of {} began twice", self.message)
        });
    }

    fn fragment_started(&mut self, e: &FragmentStarted, out: &mut Findings) {
        self.part(e.part, out);
        let empty = Fragment {
            bytes: 0,
            hash: Sha256::new(),
        };
        self.fragments.insert(e.part, empty);
    }

    fn fragment_chunk(&mut self, e: &FragmentChunk, out: &mut Findings) {
        match self.fragments.get_mut(&e.part) {
            Some(fragment) => {
                fragment.bytes += e.text.len() as u64;
                fragment.hash.update(e.text.as_bytes());
            }
            None => out.add(
                Promise::AlwaysSendable,
                format!(
                    "text for part {} of {}, which is not open",
                    e.part, e.message
                ),
            ),
        }
    }

    fn fragment_ended(&mut self, e: &FragmentEnded, out: &mut Findings) {
        let Some(fragment) = self.fragments.remove(&e.part) else {
            out.add(
                Promise::AlwaysSendable,
                format!("part {} of {} ended, and was not open", e.part, e.message),
            );
            return;
        };
        let digest = fragment.hash.finalize();
        let hash: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        out.unless(
            fragment.bytes == e.bytes && hash == e.hash,
            Promise::AlwaysSendable,
            || {
                format!(
                    "part {} of {} says {} bytes ({}), and its chunks are {} bytes ({hash})",
                    e.part, e.message, e.bytes, e.hash, fragment.bytes
                )
            },
        );
    }
}
