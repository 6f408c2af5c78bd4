//! Long sessions: what it takes to open one does not grow with its log, and large outputs are kept beside it.
//!
//! A usual run makes a log of 60,000 events; `TENURE_LONG_EVENTS=300000 TENURE_LONG_KB=72` makes one of 2 GB.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::error::ProviderError;
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, EventRecord};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::{Request, RequestMessage};
use tenure_core::usage::Usage;
use tenure_core::*;
use tenure_engine::*;
use tenure_provider::{AttemptKey, Catalogue, Encoded, EventStream, Provider};
use tenure_store::{OpenOptions, SessionQuery, SqliteStore, Store};
use tenure_tools::guardian::GuardianCommand;
use tenure_tools::permission::{Access, Rules};
use tenure_tools::{Tool, ToolCx, ToolError, ToolOutput, ToolSet, ToolSpec};

/// Most memory that a process takes over a session of any length, in bytes.
const MEMORY: u64 = 300 << 20;
/// What a log ten times as long may add to it: less than a tenth of the log itself would be too much to load.
const GROWTH: u64 = 24 << 20;
/// The last screen is there within this time, whatever comes before it.
const FIRST_SCREEN: Duration = Duration::from_secs(2);
/// Turns between two compactions.
const TURNS_BETWEEN: usize = 100;
/// Where the child finds its store.
const STORE: &str = "TENURE_LONG_STORE";

fn named(name: &str, usual: usize) -> usize {
    let number = std::env::var(name).ok().and_then(|n| n.parse().ok());
    number.unwrap_or(usual)
}

fn model() -> ModelRef {
    ModelRef {
        provider: "local".to_owned(),
        model: "m1".to_owned(),
    }
}

/// Makes a log turn by turn and hands it out in pieces.
struct Maker {
    session: SessionId,
    piece: Vec<EventRecord>,
    next: u128,
    seq: u64,
    output: String,
}

impl Maker {
    fn id(&mut self) -> u128 {
        self.next += 1;
        self.next
    }

    fn add(&mut self, epoch: Option<u64>, body: impl Into<EventBody>) -> u64 {
        let seq = self.seq;
        self.seq += 1;
        let event = Event {
            id: EventId::from_bits(self.id()),
            session: self.session.clone(),
            seq,
            epoch,
            created_ms: 1_700_000_000_000 + seq as i64 * 50,
            body: body.into(),
        };
        self.piece.push(EventRecord::from(&event));
        seq
    }

    fn own(&mut self, body: impl Into<EventBody>) {
        self.add(Some(1), body);
    }

    fn created(&mut self, directory: &Path) {
        self.add(
            None,
            SessionCreated {
                title: Some("A long session".to_owned()),
                location: Location::at(directory.display().to_string()),
                model: model(),
                limits: Limits::default(),
                permissions: serde_json::to_value(Rules::allow_all()).unwrap(),
            },
        );
    }

    /// An input and the execution it starts; the execution and the seq it begins at.
    fn begin(&mut self, kind: InputKind) -> (ExecutionId, MessageId, u64) {
        let input = MessageId::from_bits(self.id());
        let execution = ExecutionId::from_bits(self.id());
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
        self.own(InputPromoted {
            input: input.clone(),
        });
        (execution, input, first)
    }

    /// A prompt, and a step with one call.
    fn turn(&mut self, number: usize) -> u64 {
        let text = format!("Prompt {number}: look at the next file.");
        let files = Vec::new();
        let (execution, _, first) = self.begin(InputKind::with_files(text, files));
        let message = MessageId::from_bits(self.id());
        let call = CallId::new(format!("call_{number}"));
        let usage = Usage {
            input: 900,
            output: 80,
            ..Usage::default()
        };
        self.own(StepStarted {
            message: message.clone(),
            step: 1,
            model: model(),
            last: false,
        });
        self.own(AttemptStarted {
            message: message.clone(),
            attempt: 1,
            model: model(),
            request_hash: format!("{number:064x}"),
            at_most: None,
        });
        self.own(ToolCalled {
            message: message.clone(),
            part: 0,
            attempt: 1,
            call: call.clone(),
            name: "read".to_owned(),
            input: format!("{{\"path\":\"src/file_{number}.rs\"}}"),
            executed: false,
            native: None,
        });
        self.own(AttemptEnded {
            message: message.clone(),
            attempt: 1,
            finish: Finish::ToolCalls,
            raw_finish: None,
            usage: Some(usage),
            cost: None,
            error: None,
        });
        self.own(ToolStarted {
            message: message.clone(),
            call: call.clone(),
            generation: 0,
        });
        self.own(ToolSucceeded {
            message: message.clone(),
            call,
            text: self.output.clone(),
            title: "read".to_owned(),
            metadata: Value::Null,
            cut: None,
            native: None,
        });
        self.own(StepEnded {
            message,
            finish: Finish::ToolCalls,
            usage,
            cost: None,
        });
        self.own(ExecutionSucceeded { execution });
        first
    }

    fn compact(&mut self, kept_from: u64) {
        let (execution, input, _) = self.begin(InputKind::Compaction);
        let compaction = CompactionId::from_bits(self.id());
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
            summary: "Many files were read.".repeat(20),
            kept_from,
            usage: None,
            cost: None,
        });
        self.own(ExecutionSucceeded { execution });
    }
}

/// A store with one session of at least so many events, and how many there are.
async fn written(folder: &Path, events: usize) -> u64 {
    let store = SqliteStore::open(&folder.join("t.db"), OpenOptions::default()).unwrap();
    let mut maker = Maker {
        session: SessionId::from_bits(77),
        piece: Vec::new(),
        next: 0,
        seq: 0,
        output: "fn one() -> usize { 1 } // and so on\n"
            .repeat(named("TENURE_LONG_KB", 8) * 1024 / 37),
    };
    maker.created(folder);
    for number in 1.. {
        let first = maker.turn(number);
        if number % TURNS_BETWEEN == 0 {
            maker.compact(first);
        }
        let over = maker.seq >= events as u64;
        if over || maker.piece.len() > 2_000 {
            let piece = std::mem::take(&mut maker.piece);
            store.replay(&maker.session, piece).await.unwrap();
        }
        if over {
            break;
        }
    }
    maker.seq
}

/// What the child says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    peak: u64,
    events: u64,
    first_screen: Duration,
    prompt: Duration,
}

/// The largest resident set of this process so far, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Opens the session in a process of its own.
fn opened(folder: &Path) -> Measured {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "long::in_a_process_of_its_own"])
        .arg("--nocapture")
        .env(STORE, folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.split_once("MEASURED "));
    let Some((_, line)) = line else {
        panic!("{said}\n{}", String::from_utf8_lossy(&output.stderr))
    };
    serde_json::from_str(line).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that another test starts and measures"]
async fn in_a_process_of_its_own() {
    let Some(folder) = std::env::var_os(STORE) else {
        return;
    };
    let folder = Path::new(&folder);
    let began = Instant::now();
    let store = SqliteStore::open(&folder.join("t.db"), OpenOptions::default()).unwrap();
    let rows = store.sessions(SessionQuery::default()).await.unwrap();
    let (session, head) = (rows[0].id.clone(), rows[0].head);
    let screen = store.read(&session, Some(head - 200), 200).await.unwrap();
    let first_screen = began.elapsed();
    assert_eq!(screen.events.last().unwrap().seq, head);
    let before = store.read(&session, Some(head - 400), 200).await.unwrap();
    assert_eq!(before.events.last().unwrap().seq + 1, screen.events[0].seq);
    drop((screen, before));
    let began = Instant::now();
    let engine = engine(&store, folder, Arc::new(Says), ToolSet::empty()).await;
    assert_eq!(ask(&engine, &session).await, Outcome::Succeeded);
    let prompt = began.elapsed();
    // Somebody reads it all, a page at a time.
    let (mut after, mut events) = (None, 0);
    loop {
        let page = store.read(&session, after, 2_048).await.unwrap();
        let Some(last) = page.events.last() else {
            break;
        };
        after = Some(last.seq);
        events += page.events.len() as u64;
    }
    let measured = Measured {
        peak: peak(),
        events,
        first_screen,
        prompt,
    };
    println!("MEASURED {}", serde_json::to_string(&measured).unwrap());
}

/// A model that says one word, or calls the one tool there is when it has no result yet.
struct Says;

#[async_trait]
impl Provider for Says {
    fn protocol(&self) -> &'static str {
        "openai-chat"
    }

    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError> {
        let answered = request
            .messages
            .iter()
            .any(|m| matches!(m, RequestMessage::ToolResults { .. }));
        let body = if answered || request.tools.is_empty() {
            "say"
        } else {
            "call"
        };
        Ok(Encoded {
            body: body.as_bytes().into(),
            hash: "0".repeat(64),
            model: request.model.model.clone(),
        })
    }

    async fn send(&self, encoded: Encoded, _: &AttemptKey) -> Result<EventStream, ProviderError> {
        let id = || "t".to_owned();
        let call = encoded.body.as_ref() == b"call";
        let mut events = if call {
            vec![ProviderEvent::ToolCall {
                id: "call_x".to_owned(),
                name: "much".to_owned(),
                input: "{}".to_owned(),
                executed: false,
                native: None,
            }]
        } else {
            let text = "done".to_owned();
            vec![
                ProviderEvent::TextStart { id: id() },
                ProviderEvent::TextDelta { id: id(), text },
                ProviderEvent::TextEnd {
                    id: id(),
                    native: None,
                },
            ]
        };
        events.push(ProviderEvent::Finish {
            finish: if call {
                Finish::ToolCalls
            } else {
                Finish::Stop
            },
            raw: None,
            usage: Usage {
                input: 10,
                output: 5,
                ..Usage::default()
            },
        });
        Ok(Box::pin(futures::stream::iter([Ok(events)])))
    }
}

async fn engine(
    store: &Arc<SqliteStore>,
    folder: &Path,
    model: Arc<dyn Provider>,
    tools: ToolSet,
) -> Engine {
    let config = EngineConfig::new(
        "test",
        folder.join("outputs"),
        GuardianCommand::new("/nonexistent"),
    );
    let models = Models::new(Catalogue::new()).with("local", model);
    Engine::start(store.clone(), models, tools, config)
        .await
        .unwrap()
}

async fn ask(engine: &Engine, session: &SessionId) -> Outcome {
    let admission = engine
        .client()
        .admit(session, Prompt::steer("And now?"))
        .await
        .unwrap();
    engine.run(session);
    let outcome = engine.outcome(session, &admission.input, Some(admission.seq));
    let outcome = tokio::time::timeout(Duration::from_secs(300), outcome).await;
    let outcome = outcome.expect("an outcome").unwrap();
    engine.idle().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_076_opening_a_long_session_takes_what_a_short_one_takes() {
    let many = named("TENURE_LONG_EVENTS", 60_000);
    let mut measured = Vec::new();
    for events in [many / 10, many] {
        let dir = tempfile::tempdir().unwrap();
        let written = written(dir.path(), events).await;
        let one = opened(dir.path());
        assert!(
            one.events > written,
            "{one:?}: the prompt is part of the log"
        );
        assert!(one.peak < MEMORY, "{one:?}");
        assert!(one.first_screen < FIRST_SCREEN, "{one:?}");
        measured.push(one);
    }
    let (short, long) = (&measured[0], &measured[1]);
    println!("{short:?}\n{long:?}");
    assert!(long.events > short.events * 9);
    assert!(long.peak < short.peak + GROWTH, "{short:?} {long:?}");
}

/// Gives more than anybody can look at.
struct Much(usize);

#[async_trait]
impl Tool for Much {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "much".to_owned(),
            description: "A tool of the tests.".to_owned(),
            input_schema: json!({"type": "object"}),
        }
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput {
            text: "0123456789abcde\n".repeat(self.0 / 16),
            ..ToolOutput::default()
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bc_s_078_a_huge_output_is_in_the_log_by_reference() {
    let bytes = named("TENURE_OUTPUT_MB", 32) << 20;
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("t.db"), OpenOptions::default()).unwrap();
    let tools = ToolSet::empty().with(Arc::new(Much(bytes)));
    let engine = engine(&store, dir.path(), Arc::new(Says), tools).await;
    let new = NewSession {
        id: None,
        directory: dir.path().display().to_string(),
        model: model(),
        title: None,
        limits: tenure_core::event::body::Limits::default(),
        permissions: Rules::allow_all(),
    };
    let session = engine.client().create(new).await.unwrap();
    assert_eq!(ask(&engine, &session).await, Outcome::Succeeded);
    let log = store.read(&session, None, 1_000).await.unwrap().events;
    let size: usize = log.iter().map(|e| e.body.encode().len()).sum();
    assert!(size < 128 << 10, "the log holds {size} bytes");
    let result = log.iter().find_map(|e| match &e.body {
        EventBody::ToolSucceeded(e) => Some(e),
        _ => None,
    });
    let cut = result.unwrap().cut.as_ref().unwrap();
    assert_eq!(cut.total_bytes, bytes as u64);
    let kept = std::fs::metadata(&cut.full_path).unwrap().len();
    let most = tenure_tools::output::OutputLimits::default().file_bytes;
    assert_eq!(kept, most.min(bytes as u64));
    // The file is gone: the session opens and goes on all the same.
    std::fs::remove_file(&cut.full_path).unwrap();
    let loaded = tenure_engine::load::load(store.as_ref(), &session)
        .await
        .unwrap();
    assert_eq!(loaded.state.cursor, Some(log.len() as u64 - 1));
    assert_eq!(ask(&engine, &session).await, Outcome::Succeeded);
}
