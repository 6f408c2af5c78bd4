//! One step of a random session: its attempts, its tools, its end.

use super::{RandomLog, refusal, stream};
use serde_json::Value;
use tenure_core::claim;
use tenure_core::event::body::*;
use tenure_core::retry::RetryPolicy;
use tenure_core::session::SessionState;
use tenure_core::turn::publisher::{AttemptRef, Output, Publisher, StreamEnd};
use tenure_core::turn::settle::{Cause, end_step, settle};
use tenure_core::turn::{CallStatus, Effect};
use tenure_core::*;

enum Flow {
    Retry,
    Tools,
    Over,
}

impl RandomLog {
    pub(super) fn step(&mut self) {
        if !self.state.wants_step {
            return self.user();
        }
        if self.state.turn.execution.is_none() {
            self.names += 1;
            let execution = ExecutionId::from_bits(u128::from(self.names));
            self.add(ExecutionStarted { execution });
        }
        self.requests.push((self.events.len(), self.asked));
        let message = self.fresh();
        let model = self.asked.reference();
        let last = self.tape.once_in(12);
        self.unseen();
        self.add(StepStarted {
            message: message.clone(),
            step: self.state.step + 1,
            model,
            last,
        });
        self.attempts = 0;
        self.refused = None;
        loop {
            self.attempts += 1;
            self.add(AttemptStarted {
                message: message.clone(),
                attempt: self.attempts,
                model: self.asked.reference(),
                request_hash: String::new(),
                at_most: None,
            });
            match self.attempt() {
                Flow::Retry => {}
                Flow::Over => return,
                Flow::Tools => break,
            }
        }
        self.tools();
    }

    /// Whoever attached something that the model is known not to see is told so, once.
    fn unseen(&mut self) {
        let (model, blind) = (self.asked.reference(), self.asked.blind);
        let names = self.state.unseen_media(&model, blind);
        if !names.is_empty() {
            self.add(MediaWithheld {
                model,
                blind,
                names,
            });
        }
    }

    /// One attempt's stream, to its end, its cut, a crash or an interrupt.
    fn attempt(&mut self) -> Flow {
        let Some(step) = &self.state.turn.step else {
            return Flow::Over;
        };
        let asked = self.asked;
        let at = AttemptRef {
            message: step.message.clone(),
            attempt: self.attempts,
            model: asked.reference(),
            protocol: asked.protocol.to_owned(),
        };
        let mut publisher = Publisher::new(step, at);
        if self.tape.once_in(12) {
            let error = refusal::refusal(&mut self.tape, &asked);
            self.refused = Some(SessionError::from(&error));
            return self.close(publisher, &StreamEnd::Failed(error));
        }
        let script = stream::script(&mut self.tape, &asked, &mut self.item);
        let mut end = StreamEnd::Failed(ProviderError::new(ErrorClass::Cut, "cut"));
        for batch in script {
            let mut out = Output::default();
            let verdict = publisher.on(batch, &mut out);
            if self.tape.once_in(2) {
                publisher.checkpoint(&mut out);
            }
            self.all(out.durable);
            if let Err(violation) = verdict {
                return self.violated(publisher, &violation.0);
            }
            if let Some(over) = out.end {
                end = over;
                break;
            }
            if self.disturbed() {
                return Flow::Over;
            }
            self.run_some();
        }
        self.close(publisher, &end)
    }

    fn violated(&mut self, mut publisher: Publisher, what: &str) -> Flow {
        let error = ProviderError::new(ErrorClass::Protocol, what);
        let closing = publisher.close(&StreamEnd::Failed(error), false, |_| None);
        self.all(closing);
        self.fail(SessionError::new("violation", what));
        Flow::Over
    }

    fn close(&mut self, mut publisher: Publisher, end: &StreamEnd) -> Flow {
        let attempt = self.attempts;
        let called = |s: &SessionState| {
            let step = s.turn.step.as_ref();
            step.is_some_and(|step| step.attempt_called(attempt))
        };
        let StreamEnd::Failed(error) = end else {
            let closing = publisher.close(end, false, |_| None);
            self.all(closing);
            return Flow::Tools;
        };
        let retry = self.refused.is_none()
            && !called(&self.state)
            && attempt <= RetryPolicy::default().max_retries;
        let closing = publisher.close(end, retry, |_| None);
        self.all(closing);
        if !retry {
            return Flow::Tools;
        }
        let Some(message) = self.state.turn.step.as_ref().map(|s| s.message.clone()) else {
            return Flow::Over;
        };
        self.add(RetryScheduled {
            message,
            attempt: attempt + 1,
            at_ms: 0,
            delay_ms: 0,
            error: error.clone(),
        });
        if self.disturbed() {
            return Flow::Over;
        }
        Flow::Retry
    }

    /// Some of the calls that wait begin, some that run end.
    fn run_some(&mut self) {
        let Some(step) = &self.state.turn.step else {
            return;
        };
        let message = step.message.clone();
        let open: Vec<(CallId, bool)> = step
            .calls()
            .filter(|c| !c.executed)
            .filter_map(|c| match c.status {
                CallStatus::Called { .. } => Some((c.call.clone(), false)),
                CallStatus::Started { .. } => Some((c.call.clone(), true)),
                _ => None,
            })
            .collect();
        for (call, started) in open {
            if !self.tape.once_in(2) {
                continue;
            }
            if started {
                self.end_call(&message, call);
            } else {
                self.add(ToolStarted {
                    message: message.clone(),
                    call,
                    generation: 0,
                });
            }
        }
    }

    fn end_call(&mut self, message: &MessageId, call: CallId) {
        let text = self
            .tape
            .of(&["out", "", " \n", "\u{0}\u{1b}[0m"])
            .to_owned();
        if self.tape.once_in(3) {
            self.add(ToolFailed {
                message: message.clone(),
                call,
                failure: ToolFailure::Failed,
                text,
                cut: None,
                native: None,
            });
        } else {
            self.add(ToolSucceeded {
                message: message.clone(),
                call,
                text,
                title: String::new(),
                metadata: Value::Null,
                cut: None,
                native: None,
            });
        }
    }

    /// Waits for the tools and ends the step.
    fn tools(&mut self) {
        for _ in 0..64 {
            if self.disturbed() {
                return;
            }
            let Some(step) = &self.state.turn.step else {
                return;
            };
            let message = step.message.clone();
            let clean = step.ended.as_ref().is_some_and(|end| end.clean);
            let last = step.last;
            match self.state.turn.pending().first().cloned() {
                Some(Effect::RunTool { call, .. }) if last || self.tape.once_in(4) => {
                    self.add(ToolFailed {
                        message,
                        call,
                        failure: ToolFailure::Denied,
                        text: "Denied".to_owned(),
                        cut: None,
                        native: None,
                    });
                }
                Some(Effect::RunTool { call, .. }) => self.add(ToolStarted {
                    message,
                    call,
                    generation: 0,
                }),
                Some(Effect::AwaitTool { call }) => self.end_call(&message, call),
                Some(Effect::EndStep) if clean => {
                    let body = self.state.turn.step.as_ref().map(end_step);
                    self.all(body.into_iter().collect());
                    return;
                }
                _ => {
                    let kind = self.tape.of(&["cut", "context_overflow", "server"]);
                    let lost = || SessionError::new(kind, "the attempt failed");
                    let error = self.refused.take().unwrap_or_else(lost);
                    return self.fail(error);
                }
            }
        }
    }

    /// The step fails; the turn goes on after a cut or an overflow, else the execution ends.
    fn fail(&mut self, error: SessionError) {
        let bodies = settle(&self.state.turn, &Cause::Failed(error.clone()));
        self.all(bodies);
        match error.kind.as_str() {
            "context_overflow" => self.compact(),
            "cut" => self.promote_new(InputKind::Synthetic {
                text: claim::CONTINUATION_AFTER_CUT.to_owned(),
            }),
            // Tried again without what was refused.
            _ if self.state.wants_step => {}
            _ => {
                if let Some(execution) = self.state.turn.execution.clone() {
                    self.add(ExecutionFailed { execution, error });
                }
            }
        }
    }
}
