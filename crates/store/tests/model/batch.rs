//! The events and operations a node would write for each of the model's writes.

use std::time::Duration;
use tenure_core::SessionError;
use tenure_core::claim::continuation_id;
use tenure_core::event::NewEvent;
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;
use tenure_store::conformance::World;
use tenure_store::*;

/// Longer than anything a walk does otherwise: an acceptance deadline passes only when the model says so.
pub const ACCEPT: Duration = Duration::from_secs(3_600_000);

/// What is open, by its ids.
#[derive(Debug, Clone, Default)]
pub struct Open {
    pub execution: Option<ExecutionId>,
    pub step: Option<MessageId>,
    pub tool: bool,
}

/// Events and operations in the making.
pub struct Batch<'a> {
    pub w: &'a World,
    pub session: &'a SessionId,
    pub open: Open,
    pub events: Vec<NewEvent>,
    pub ops: Vec<HookOp>,
}

impl Batch<'_> {
    fn push(&mut self, body: impl Into<tenure_core::event::EventBody>) {
        let event = self.w.event(body);
        self.events.push(event);
    }

    fn step(&self) -> MessageId {
        self.open.step.clone().unwrap_or_else(|| self.w.message())
    }

    pub fn recovery(&mut self, decision: RecoveryDecision) {
        self.push(RecoveryStarted {
            execution: self.open.execution.clone(),
            phase: Phase::Active,
            attempts: 0,
            decision,
        });
    }

    /// Ends the step, if one is open; with `goes_on`, words to the model follow and the phase is left.
    pub fn settle_step(&mut self, goes_on: bool) {
        let Some(message) = self.open.step.take() else {
            return;
        };
        if self.open.tool {
            self.end_effect(&message, None);
        }
        self.push(StepEnded {
            message: message.clone(),
            finish: Finish::Stop,
            usage: Usage::default(),
            cost: Some(0),
        });
        if goes_on {
            self.push(InputAdmitted {
                input: continuation_id(self.session, message.as_str()),
                kind: InputKind::Synthetic {
                    text: "go on".to_owned(),
                },
                delivery: Delivery::Steer,
            });
            self.ops.push(HookOp::Leave);
        }
    }

    fn cancel(&mut self, own: &[MessageId]) {
        for input in own {
            self.push(InputCancelled {
                input: input.clone(),
                by: "recovery".to_owned(),
            });
        }
    }

    fn failed(&mut self) {
        if let Some(execution) = self.open.execution.take() {
            let error = SessionError::new("model", "it failed");
            self.push(ExecutionFailed { execution, error });
        }
    }

    pub fn quarantine(&mut self, own: &[MessageId]) {
        self.recovery(RecoveryDecision::Quarantine);
        self.settle_step(false);
        self.cancel(own);
        self.failed();
        self.ops.push(HookOp::Quarantine {
            reason: "lost twice".to_owned(),
        });
    }

    pub fn begin(&mut self) {
        let execution = ExecutionId::from_bits(self.w.bits());
        self.open.execution = Some(execution.clone());
        self.push(ExecutionStarted { execution });
    }

    pub fn promote(&mut self, input: MessageId) {
        self.push(InputPromoted {
            input: input.clone(),
        });
        self.ops.push(HookOp::Promote { input });
    }

    pub fn start_step(&mut self) {
        let message = self.w.message();
        self.push(StepStarted {
            message: message.clone(),
            step: 1,
            model: ModelRef {
                provider: "local".to_owned(),
                model: "m1".to_owned(),
            },
            last: false,
        });
        self.open.step = Some(message.clone());
        self.ops.push(HookOp::Enter {
            message: Some(message),
        });
    }

    pub fn start_tool(&mut self) {
        let message = self.step();
        self.push(ToolStarted {
            message: message.clone(),
            call: CallId::new("c"),
            generation: 0,
        });
        self.open.tool = true;
        self.ops.push(HookOp::EffectStart {
            message,
            call: CallId::new("c"),
            generation: 0,
        });
    }

    fn end_effect(&mut self, message: &MessageId, generation: Option<u64>) {
        self.open.tool = false;
        self.push(ToolSucceeded {
            message: message.clone(),
            call: CallId::new("c"),
            text: "done".to_owned(),
            title: String::new(),
            metadata: serde_json::Value::Null,
            cut: None,
            native: None,
        });
        self.ops.push(HookOp::EffectEnd {
            message: message.clone(),
            call: CallId::new("c"),
            generation,
            left: false,
        });
    }

    pub fn end_tool(&mut self) {
        let message = self.step();
        self.end_effect(&message, Some(0));
        self.ops.push(HookOp::Progress);
    }

    fn release(&mut self, only_when_idle: bool) {
        self.ops.push(HookOp::Release {
            only_when_idle,
            park: false,
        });
    }

    pub fn finish(&mut self) {
        if let Some(execution) = self.open.execution.take() {
            self.push(ExecutionSucceeded { execution });
        }
        self.release(true);
    }

    pub fn fail(&mut self, own: &[MessageId]) {
        self.cancel(own);
        self.failed();
        self.release(false);
    }

    pub fn interrupted(&mut self, own: &[MessageId]) {
        self.settle_step(false);
        self.cancel(own);
        if let Some(execution) = self.open.execution.take() {
            let reason = InterruptReason::User;
            self.push(ExecutionInterrupted { execution, reason });
        }
        self.release(false);
    }

    pub fn hand_over(&mut self, to: Option<Incarnation>) {
        self.ops.push(HookOp::HandOver {
            to,
            accept_ms: ACCEPT.as_millis() as u64,
        });
    }
}
