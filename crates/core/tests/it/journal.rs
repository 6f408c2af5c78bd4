//! A session's log under test: numbers events, folds them, and plays a provider's stream through the
//! publisher the way a runner does.

use serde_json::Value;
use tenure_core::event::body::*;
use tenure_core::history::RequestPlan;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::session::SessionState;
use tenure_core::turn::publisher::{AttemptRef, Output, Publisher, StreamEnd};
use tenure_core::turn::{Effect, OpenStep, Violation, settle};
use tenure_core::*;

pub const PROTOCOL: &str = "anthropic-messages";

pub fn model() -> ModelRef {
    ModelRef {
        provider: "p".to_owned(),
        model: "m".to_owned(),
    }
}

pub fn msg(name: &str) -> MessageId {
    MessageId::parse(&format!("msg_{name}")).unwrap()
}

/// The log and its fold.
#[derive(Clone, Default)]
pub struct Journal {
    pub events: Vec<Event>,
    pub state: SessionState,
}

impl Journal {
    /// A session that exists and has one execution open.
    pub fn new() -> Self {
        let mut journal = Self::default();
        journal.add(SessionCreated {
            title: None,
            location: Location::at("/w".to_owned()),
            model: model(),
            limits: Limits::default(),
            permissions: Value::Null,
        });
        journal.add(InstructionsSet {
            parts: vec!["Be brief.".to_owned()],
            digest: "d".to_owned(),
        });
        journal.add(ExecutionStarted {
            execution: ExecutionId::from_bits(1),
        });
        journal
    }

    pub fn add(&mut self, body: impl Into<EventBody>) -> &mut Self {
        let seq = self.events.len() as u64;
        let event = Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: Some(1),
            created_ms: seq as i64,
            body: body.into(),
        };
        self.state.apply(&event);
        self.events.push(event);
        self
    }

    pub fn all(&mut self, bodies: Vec<EventBody>) -> &mut Self {
        for body in bodies {
            self.add(body);
        }
        self
    }

    /// Admits and promotes the user's words.
    pub fn user(&mut self, name: &str, text: &str) -> &mut Self {
        self.input(name, InputKind::user(text.to_owned()))
    }

    pub fn input(&mut self, name: &str, kind: InputKind) -> &mut Self {
        self.add(InputAdmitted {
            input: msg(name),
            kind,
            delivery: Delivery::Steer,
        });
        self.add(InputPromoted { input: msg(name) })
    }

    pub fn begin(&mut self, name: &str) -> &mut Self {
        let step = self.state.step + 1;
        self.add(StepStarted {
            message: msg(name),
            step,
            model: model(),
            last: false,
        });
        self.attempt(1)
    }

    pub fn attempt(&mut self, attempt: u32) -> &mut Self {
        let message = self.step().message.clone();
        self.add(AttemptStarted {
            message,
            attempt,
            model: model(),
            request_hash: "h".to_owned(),
            at_most: None,
        })
    }

    pub fn step(&self) -> &OpenStep {
        self.state.turn.step.as_ref().expect("a step is open")
    }

    pub fn publisher(&self) -> Publisher {
        let step = self.step();
        let at = AttemptRef {
            message: step.message.clone(),
            attempt: step.attempt.expect("an attempt is open"),
            model: step.model.clone(),
            protocol: PROTOCOL.to_owned(),
        };
        Publisher::new(step, at)
    }

    /// Plays a stream that is cut when it does not end by itself.
    pub fn stream(&mut self, events: Vec<ProviderEvent>) -> Result<(), Violation> {
        self.stream_as(events, false)
    }

    pub fn stream_as(
        &mut self,
        events: Vec<ProviderEvent>,
        superseded: bool,
    ) -> Result<(), Violation> {
        let mut publisher = self.publisher();
        let mut out = Output::default();
        let verdict = publisher.on(events, &mut out);
        self.all(std::mem::take(&mut out.durable));
        let end = match (&verdict, out.end) {
            (Err(violation), _) => StreamEnd::Failed(ProviderError::new(
                ErrorClass::Protocol,
                violation.to_string(),
            )),
            (Ok(()), Some(end)) => end,
            (Ok(()), None) => StreamEnd::Failed(cut_error()),
        };
        let closing = publisher.close(&end, superseded, |usage| Some(usage.output));
        self.all(closing);
        verdict
    }

    pub fn retry(&mut self, attempt: u32) -> &mut Self {
        let message = self.step().message.clone();
        self.add(RetryScheduled {
            message,
            attempt,
            at_ms: 5_000,
            delay_ms: 2_000,
            error: cut_error(),
        });
        self.attempt(attempt)
    }

    pub fn start(&mut self, call: &str) -> &mut Self {
        let message = self.step().message.clone();
        self.add(ToolStarted {
            message,
            call: CallId::new(call),
            generation: 0,
        })
    }

    pub fn succeed(&mut self, call: &str, text: &str) -> &mut Self {
        let message = self.step().message.clone();
        self.add(ToolSucceeded {
            message,
            call: CallId::new(call),
            text: text.to_owned(),
            title: String::new(),
            metadata: Value::Null,
            cut: None,
            native: None,
        })
    }

    /// Runs every local call that waits, each with the output `out of ID`.
    pub fn run_tools(&mut self) -> &mut Self {
        for effect in self.state.turn.pending() {
            if let Effect::RunTool { call, .. } = effect {
                self.start(call.as_str());
                self.succeed(call.as_str(), &format!("out of {call}"));
            }
        }
        self
    }

    pub fn end(&mut self) -> &mut Self {
        assert_eq!(self.state.turn.pending(), [Effect::EndStep]);
        let body = settle::end_step(self.step());
        self.add(body)
    }

    /// One whole step.
    pub fn whole(&mut self, name: &str, events: Vec<ProviderEvent>) -> &mut Self {
        self.begin(name);
        self.stream(events).expect("a valid stream");
        self.run_tools();
        self.end()
    }

    pub fn settle(&mut self, cause: &settle::Cause) -> &mut Self {
        let bodies = settle::settle(&self.state.turn, cause);
        self.all(bodies)
    }

    pub fn interrupted(&mut self) -> &mut Self {
        self.settle(&settle::Cause::Interrupted);
        self.add(ExecutionInterrupted {
            execution: ExecutionId::from_bits(1),
            reason: InterruptReason::User,
        })
    }

    /// The first `n` events, folded.
    pub fn prefix(&self, n: usize) -> Self {
        let events = self.events[..n].to_vec();
        Self {
            state: SessionState::fold(&events),
            events,
        }
    }

    pub fn request(&self) -> request::Request {
        history::build(&self.state, &plan_for(PROTOCOL, model()))
    }

    /// Events from `seq` on, one a line.
    pub fn render(&self, from: usize) -> String {
        let line = |e: &Event| format!("{} {}\n", e.body.type_name(), e.body.encode());
        self.events[from..].iter().map(line).collect()
    }
}

pub fn plan_for(protocol: &str, model: ModelRef) -> RequestPlan {
    RequestPlan {
        model,
        protocol: protocol.to_owned(),
        tools: Vec::new(),
        last_step: false,
        max_output: None,
        cache_key: "k".to_owned(),
        hosted_tools: Vec::new(),
        effort: None,
        blind: Default::default(),
    }
}

pub fn cut_error() -> ProviderError {
    ProviderError::new(ErrorClass::Cut, "the stream was cut")
}

pub fn usage(input: u64, output: u64) -> Usage {
    Usage {
        input,
        output,
        ..Usage::default()
    }
}

pub fn finish(finish: Finish) -> ProviderEvent {
    ProviderEvent::Finish {
        finish,
        raw: None,
        usage: usage(10, 5),
    }
}

pub fn text(id: &str, words: &str) -> Vec<ProviderEvent> {
    vec![
        ProviderEvent::TextStart { id: id.to_owned() },
        ProviderEvent::TextDelta {
            id: id.to_owned(),
            text: words.to_owned(),
        },
        ProviderEvent::TextEnd {
            id: id.to_owned(),
            native: None,
        },
    ]
}

pub fn reasoning(id: &str, words: &str, native: Option<&str>) -> Vec<ProviderEvent> {
    vec![
        ProviderEvent::ReasoningStart { id: id.to_owned() },
        ProviderEvent::ReasoningDelta {
            id: id.to_owned(),
            text: words.to_owned(),
        },
        ProviderEvent::ReasoningEnd {
            id: id.to_owned(),
            native: native.map(str::to_owned),
        },
    ]
}

pub fn input_start(id: &str, name: &str) -> ProviderEvent {
    ProviderEvent::ToolInputStart {
        id: id.to_owned(),
        name: name.to_owned(),
    }
}

pub fn input_delta(id: &str, name: Option<&str>, text: &str) -> ProviderEvent {
    ProviderEvent::ToolInputDelta {
        id: id.to_owned(),
        name: name.map(str::to_owned),
        text: text.to_owned(),
    }
}

pub fn input_end(id: &str, name: Option<&str>) -> ProviderEvent {
    ProviderEvent::ToolInputEnd {
        id: id.to_owned(),
        name: name.map(str::to_owned),
    }
}

pub fn complete(id: &str, name: &str, input: &str, executed: bool) -> ProviderEvent {
    ProviderEvent::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        input: input.to_owned(),
        executed,
        native: None,
    }
}

pub fn result(id: &str, text: &str) -> ProviderEvent {
    ProviderEvent::ToolResult {
        id: id.to_owned(),
        text: text.to_owned(),
        is_error: false,
        native: None,
    }
}

/// A call as vendors stream it: start, one delta, end, call.
pub fn call(id: &str, name: &str, input: &str) -> Vec<ProviderEvent> {
    vec![
        input_start(id, name),
        input_delta(id, None, input),
        input_end(id, None),
        complete(id, name, input, false),
    ]
}
