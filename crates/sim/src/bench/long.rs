//! A session of 100,000 events: imported once, then opened again and again up to its first request.

use super::server::Server;
use super::usage::measure;
use crate::checker;
use crate::place::Place;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, EventRecord};
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;
use tenure_core::*;
use tenure_store::{OpenOptions, SqliteStore};

/// Events of the log.
const EVENTS: usize = 100_000;
/// Turns between two compactions, as a window of 200,000 tokens brings them about.
const TURNS_BETWEEN: usize = 250;

/// The imported session and the model it asks.
pub(super) struct Session {
    server: std::cell::RefCell<Server>,
    place: Place,
    session: SessionId,
}

/// How long one opening took.
pub(super) struct Opened {
    /// From the start of the process to the model's having read the request.
    pub request: Duration,
    /// The engine's load alone, within a process that runs.
    pub load: Duration,
}

impl Session {
    /// Writes the log, imports it, and runs it once, as a session that has grown would have been.
    pub fn import(tenure: &Path) -> Result<Self> {
        let script =
            json!({"version": 1, "turns": [], "fallback": {"parts": [{"text": "It is done."}]}});
        let server = Server::start(&script)?;
        let place = Place::new(tenure, &server.base_url, "openai-chat")?;
        let events = log(&place);
        let wrong = checker::check(&events);
        ensure!(wrong.is_empty(), "the made-up log is wrong: {}", wrong[0]);
        let file = place.workspace().join("long.jsonl");
        let head = json!({
            "tenure_export": 1, "session": events[0].session, "events": events.len(), "masked": false, "created_ms": 0
        });
        let mut text = format!("{head}\n");
        for event in &events {
            text.push_str(&serde_json::to_string(&EventRecord::from(event))?);
            text.push('\n');
        }
        std::fs::write(&file, text)?;
        let path = file.to_str().context("a temporary path is text")?;
        measure(&place.blocking(&["import", path])).context("the import")?;
        let session = Self {
            server: server.into(),
            place,
            session: events[0].session.clone(),
        };
        session.open()?;
        Ok(session)
    }

    /// One prompt in a process of its own.
    pub fn open(&self) -> Result<Opened> {
        let load = self.load()?;
        let id = self.session.as_str();
        let ran =
            measure(
                &self
                    .place
                    .blocking(&["run", "--allow-all", "--session", id, "And now?"]),
            )?;
        let seen = self.server.borrow_mut().requests()?;
        let last = seen.last().context("the run sent a request")?;
        let request = Duration::from_nanos(last.started_ns.saturating_sub(ran.started_ns));
        Ok(Opened { request, load })
    }

    fn load(&self) -> Result<Duration> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let store = SqliteStore::open(&self.place.store(), OpenOptions::default())?;
        let began = Instant::now();
        let loaded = runtime.block_on(tenure_engine::load::load(store.as_ref(), &self.session))?;
        let took = began.elapsed();
        let at = loaded.state.cursor.unwrap_or(0) as usize;
        ensure!(at + 1 >= EVENTS, "only {at} events were folded");
        Ok(took)
    }
}

/// Makes the log, turn by turn.
struct Maker {
    events: Vec<Event>,
    session: SessionId,
    next: u128,
}

impl Maker {
    fn id(&mut self) -> u128 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, epoch: Option<u64>, body: impl Into<EventBody>) -> u64 {
        let seq = self.events.len() as u64;
        let id = EventId::from_bits(self.id());
        self.events.push(Event {
            id,
            session: self.session.clone(),
            seq,
            epoch,
            created_ms: 1_700_000_000_000 + seq as i64 * 50,
            body: body.into(),
        });
        seq
    }

    fn own(&mut self, body: impl Into<EventBody>) -> u64 {
        self.add(Some(1), body)
    }

    /// A prompt, a step with a call, a step with the answer.
    fn turn(&mut self, number: usize) -> u64 {
        let input = MessageId::from_bits(self.id());
        let execution = ExecutionId::from_bits(self.id());
        let text = format!("Prompt {number}: please look at the next file and tell what is in it.");
        let kind = InputKind::user(text);
        let first = self.add(
            None,
            InputAdmitted {
                input: input.clone(),
                kind,
                delivery: Delivery::Steer,
            },
        );
        self.own(ExecutionStarted {
            execution: execution.clone(),
        });
        self.own(InputPromoted { input });
        self.step(1, number, true);
        self.step(2, number, false);
        self.own(ExecutionSucceeded { execution });
        first
    }

    fn step(&mut self, step: u32, number: usize, calls: bool) {
        let message = MessageId::from_bits(self.id());
        let usage = Usage {
            input: 900,
            output: 80,
            ..Usage::default()
        };
        self.own(StepStarted {
            message: message.clone(),
            step,
            model: model(),
            last: false,
        });
        let request_hash = format!("{number:064x}");
        self.own(AttemptStarted {
            message: message.clone(),
            attempt: 1,
            model: model(),
            request_hash,
            at_most: None,
        });
        self.text(&message, number);
        let call = CallId::new(format!("call_{number}"));
        if calls {
            let input = format!("{{\"path\":\"src/file_{number}.rs\"}}");
            self.own(ToolCalled {
                message: message.clone(),
                part: 1,
                attempt: 1,
                call: call.clone(),
                name: "read".to_owned(),
                input,
                executed: false,
                native: None,
            });
        }
        let finish = if calls {
            Finish::ToolCalls
        } else {
            Finish::Stop
        };
        self.own(AttemptEnded {
            message: message.clone(),
            attempt: 1,
            finish,
            raw_finish: None,
            usage: Some(usage),
            cost: None,
            error: None,
        });
        if calls {
            self.own(ToolStarted {
                message: message.clone(),
                call: call.clone(),
                generation: 0,
            });
            let line = format!("fn number_{number}() -> usize {{ {number} }}\n");
            self.own(ToolSucceeded {
                message: message.clone(),
                call,
                text: line.repeat(12),
                title: "read".to_owned(),
                metadata: serde_json::Value::Null,
                cut: None,
                native: None,
            });
        }
        self.own(StepEnded {
            message,
            finish,
            usage,
            cost: None,
        });
    }

    fn text(&mut self, message: &MessageId, number: usize) {
        use sha2::{Digest, Sha256};
        let kind = FragmentKind::Text;
        self.own(FragmentStarted {
            message: message.clone(),
            part: 0,
            attempt: 1,
            kind,
        });
        let chunks = [
            format!("Looking at file {number}. "),
            "It holds one function that gives its number.".to_owned(),
        ];
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        for text in chunks {
            hash.update(&text);
            bytes += text.len() as u64;
            self.own(FragmentChunk {
                message: message.clone(),
                part: 0,
                text,
            });
        }
        let hash = hash.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        self.own(FragmentEnded {
            message: message.clone(),
            part: 0,
            bytes,
            hash,
            native: None,
            partial: false,
            superseded: false,
        });
    }

    /// Replaces all before the last turn by a summary, within an execution of its own.
    fn compact(&mut self, kept_from: u64) {
        let input = MessageId::from_bits(self.id());
        let execution = ExecutionId::from_bits(self.id());
        let compaction = CompactionId::from_bits(self.id());
        let kind = InputKind::Compaction;
        self.add(
            None,
            InputAdmitted {
                input: input.clone(),
                kind,
                delivery: Delivery::Steer,
            },
        );
        self.own(ExecutionStarted {
            execution: execution.clone(),
        });
        self.own(InputPromoted {
            input: input.clone(),
        });
        self.own(CompactionStarted {
            compaction: compaction.clone(),
            reason: CompactionReason::Manual,
            input: Some(input),
            model: model(),
            request_hash: "0".repeat(64),
            at_most: None,
        });
        self.own(CompactionEnded {
            compaction,
            summary: "Many files were read; each holds one function that gives its number. "
                .repeat(20),
            kept_from,
            usage: None,
            cost: None,
        });
        self.own(ExecutionSucceeded { execution });
    }
}

fn model() -> ModelRef {
    ModelRef {
        provider: "local".to_owned(),
        model: "m1".to_owned(),
    }
}

fn log(place: &Place) -> Vec<Event> {
    let mut maker = Maker {
        events: Vec::with_capacity(EVENTS + 64),
        session: SessionId::from_bits(77),
        next: 0,
    };
    maker.add(
        None,
        SessionCreated {
            title: Some("A long session".to_owned()),
            location: Location::at(place.workspace().display().to_string()),
            model: model(),
            limits: Limits::default(),
            permissions: serde_json::to_value(tenure_tools::permission::Rules::allow_all())
                .unwrap_or_default(),
        },
    );
    let mut number = 0;
    while maker.events.len() < EVENTS {
        number += 1;
        let first = maker.turn(number);
        if number % TURNS_BETWEEN == 0 {
            maker.compact(first);
        }
    }
    maker.events
}
