//! A session of one provider turn, as a runner makes it durable, and as another process reads it back.

use serde_json::json;
use tenure_core::event::body::*;
use tenure_core::history::{self, RequestPlan};
use tenure_core::provider::ProviderEvent;
use tenure_core::request::{Request, ToolDef};
use tenure_core::session::SessionState;
use tenure_core::turn::publisher::{AttemptRef, Output, Publisher, StreamEnd};
use tenure_core::turn::{Effect, settle};
use tenure_core::*;
use tenure_provider::Protocol;

/// The log and its fold.
pub struct Session {
    protocol: Protocol,
    model: String,
    events: Vec<Event>,
    state: SessionState,
    inputs: u32,
}

/// The model `name` of a protocol's one provider.
fn model(protocol: Protocol, name: &str) -> ModelRef {
    ModelRef {
        provider: format!("the {} provider", protocol.as_str()),
        model: name.to_owned(),
    }
}

fn message(name: &str) -> MessageId {
    MessageId::parse(&format!("msg_{name}")).unwrap()
}

impl Session {
    /// A session that exists and has one execution open.
    pub fn begin(protocol: Protocol, name: &str) -> Self {
        let mut session = Self {
            protocol,
            model: name.to_owned(),
            events: Vec::new(),
            state: SessionState::default(),
            inputs: 0,
        };
        session.add(SessionCreated {
            title: None,
            location: Location::at("/w".to_owned()),
            model: model(protocol, name),
            limits: serde_json::from_value(json!({})).unwrap(),
            permissions: serde_json::Value::Null,
        });
        session.add(InstructionsSet {
            parts: vec!["Be brief.".to_owned()],
            digest: "d".to_owned(),
        });
        session.add(ExecutionStarted {
            execution: ExecutionId::from_bits(1),
        });
        session
    }

    fn add(&mut self, body: impl Into<EventBody>) {
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
    }

    fn all(&mut self, bodies: Vec<EventBody>) {
        bodies.into_iter().for_each(|body| self.add(body));
    }

    /// The user says something, and it is promoted.
    pub fn user(&mut self, text: &str) {
        self.inputs += 1;
        let input = message(&format!("input{}", self.inputs));
        self.add(InputAdmitted {
            input: input.clone(),
            kind: InputKind::Synthetic {
                text: text.to_owned(),
            },
            delivery: Delivery::Steer,
        });
        self.add(InputPromoted { input });
    }

    /// One step: its stream in batches, its tools, its terminal.
    pub fn step(&mut self, batches: Vec<Vec<ProviderEvent>>) {
        let answer = message("answer");
        self.add(StepStarted {
            message: answer.clone(),
            step: 1,
            model: model(self.protocol, &self.model),
            last: false,
        });
        self.add(AttemptStarted {
            message: answer.clone(),
            attempt: 1,
            model: model(self.protocol, &self.model),
            request_hash: "h".to_owned(),
            at_most: None,
        });
        let end = self.publish(&answer, batches);
        self.run_tools(&answer);
        let step = self.state.turn.step.clone().expect("the step is open");
        match end {
            StreamEnd::Finished => self.add(settle::end_step(&step)),
            StreamEnd::Failed(error) => {
                let cause = settle::Cause::Failed((&error).into());
                self.all(settle::fail_step(&step, &cause));
            }
        }
    }

    fn publish(&mut self, answer: &MessageId, batches: Vec<Vec<ProviderEvent>>) -> StreamEnd {
        let step = self.state.turn.step.clone().expect("the step is open");
        let at = AttemptRef {
            message: answer.clone(),
            attempt: 1,
            model: model(self.protocol, &self.model),
            protocol: self.protocol.as_str().to_owned(),
        };
        let mut publisher = Publisher::new(&step, at);
        let mut end = None;
        for batch in batches {
            let mut out = Output::default();
            publisher.on(batch, &mut out).expect("no violation");
            publisher.checkpoint(&mut out);
            self.all(out.durable);
            end = end.or(out.end);
        }
        let end = end.expect("a decoded stream ends");
        let closing = publisher.close(&end, false, |usage| Some(usage.output));
        self.all(closing);
        end
    }

    /// Runs every local call that waits.
    fn run_tools(&mut self, answer: &MessageId) {
        for effect in self.state.turn.pending() {
            let Effect::RunTool { call, .. } = effect else {
                continue;
            };
            self.add(ToolStarted {
                message: answer.clone(),
                call: call.clone(),
                generation: 0,
            });
            self.add(ToolSucceeded {
                message: answer.clone(),
                text: format!("ran {call}"),
                call,
                title: String::new(),
                metadata: serde_json::Value::Null,
                cut: None,
                native: None,
            });
        }
    }

    /// The ids of the calls that ran here.
    pub fn ran(&self) -> Vec<String> {
        let ran = self.events.iter().filter_map(|event| match &event.body {
            EventBody::ToolStarted(started) => Some(started.call.to_string()),
            _ => None,
        });
        ran.collect()
    }

    /// The log as the store keeps it: type, version, data.
    pub fn stored(&self) -> Vec<(String, u32, String)> {
        let row = |event: &Event| {
            let body = &event.body;
            (body.type_name().to_owned(), body.version(), body.encode())
        };
        self.events.iter().map(row).collect()
    }

    /// The session that another process makes of what was stored.
    pub fn read_back(protocol: Protocol, name: &str, stored: &[(String, u32, String)]) -> Self {
        let mut session = Self {
            protocol,
            model: name.to_owned(),
            events: Vec::new(),
            state: SessionState::default(),
            inputs: 1,
        };
        for (name, version, data) in stored {
            session.add(EventBody::decode(name, *version, data).unwrap());
        }
        session
    }

    /// The next request, in a protocol that may be another than the one before.
    pub fn request(&self, protocol: Protocol, tools: impl Iterator<Item = String>) -> Request {
        let mut names: Vec<String> = tools.filter(|name| !name.is_empty()).collect();
        names.sort();
        names.dedup();
        let tools = names.into_iter().map(|name| ToolDef {
            description: format!("runs {name}"),
            name,
            input_schema: json!({"type": "object", "properties": {}}),
        });
        let name = if protocol == self.protocol {
            &self.model
        } else {
            "another-model"
        };
        let plan = RequestPlan {
            model: model(protocol, name),
            protocol: protocol.as_str().to_owned(),
            tools: tools.collect(),
            last_step: false,
            max_output: None,
            cache_key: "k".to_owned(),
            hosted_tools: Vec::new(),
            effort: None,
            blind: Default::default(),
        };
        history::build(&self.state, &plan)
    }
}
