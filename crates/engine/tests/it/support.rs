//! A store in a temporary folder, a model that says what it is told, and an engine over both.

use crate::stores::{Hurtable, Place};
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::error::ProviderError;
use tenure_core::event::body::ToolFailure;
use tenure_core::event::{Event, EventBody};
use tenure_core::facts::IdSource;
use tenure_core::id::{Incarnation, MessageId, SessionId};
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::{AssistantBlock, Request, RequestMessage};
use tenure_core::retry::RetryPolicy;
use tenure_core::usage::Usage;
use tenure_engine::*;
use tenure_provider::{AttemptKey, Catalogue, Encoded, EventStream, ModelSettings, Provider};
use tenure_store::ProcessId;
use tenure_store::{Interrupted, NodeInfo, OpenOptions, Store};
use tenure_tools::guardian::GuardianCommand;
use tenure_tools::permission::Rules;
use tenure_tools::{Tool, ToolSet};

/// One answer of the model: batches of events, as network chunks bring them.
pub type Answer = Vec<Result<Vec<ProviderEvent>, ProviderError>>;

/// A provider that plays answers in order and records the requests.
#[derive(Default)]
pub struct Scripted {
    answers: Mutex<VecDeque<Play>>,
    pub requests: Mutex<Vec<Request>>,
    pending: Mutex<VecDeque<Request>>,
}

/// How an answer is played.
pub enum Play {
    /// At once.
    Answer(Answer),
    /// These batches, then silence for ever.
    Hang(Answer),
    /// The first batches, then, once the gate is open, the others.
    Gated(Answer, Gate, Answer),
    /// Refused before any stream.
    Refuse(ProviderError),
}

/// Holds a model back until the test opens it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<tokio::sync::watch::Sender<bool>>);

impl Gate {
    pub fn shut() -> Self {
        Self(Arc::new(tokio::sync::watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn passed(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

impl Scripted {
    pub fn new(answers: impl IntoIterator<Item = Play>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            ..Self::default()
        })
    }

    pub fn push(&self, play: Play) {
        self.answers.lock().unwrap().push_back(play);
    }

    /// Forgets what was to be played.
    pub fn clear(&self) {
        self.answers.lock().unwrap().clear();
    }

    pub fn sent(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub fn request(&self, index: usize) -> Request {
        self.requests.lock().unwrap()[index].clone()
    }

    pub fn last_request(&self) -> Request {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    /// What is wrong with any request sent so far.
    pub fn faults(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .flat_map(crate::checks::request_faults)
            .collect()
    }
}

#[async_trait]
impl Provider for Scripted {
    fn protocol(&self) -> &'static str {
        "openai-chat"
    }

    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError> {
        self.pending.lock().unwrap().push_back(request.clone());
        let hash = format!("{request:?}").len().to_string();
        Ok(Encoded {
            body: Bytes::from(format!("{request:?}")),
            hash,
            model: request.model.model.clone(),
        })
    }

    async fn send(&self, encoded: Encoded, _: &AttemptKey) -> Result<EventStream, ProviderError> {
        let request = {
            let pending = self.pending.lock().unwrap();
            pending
                .iter()
                .rev()
                .find(|r| format!("{r:?}").as_bytes() == encoded.body)
                .cloned()
                .expect("sent what was encoded")
        };
        self.requests.lock().unwrap().push(request);
        let play = self.answers.lock().unwrap().pop_front();
        match play.unwrap_or_else(|| Play::Answer(text("done"))) {
            Play::Refuse(error) => Err(error),
            Play::Answer(answer) => Ok(Box::pin(futures::stream::iter(answer))),
            Play::Gated(before, gate, after) => {
                let rest = futures::stream::once(async move { gate.passed().await })
                    .flat_map(move |()| futures::stream::iter(after.clone()));
                Ok(Box::pin(futures::stream::iter(before).chain(rest)))
            }
            Play::Hang(answer) => Ok(Box::pin(
                futures::stream::iter(answer).chain(futures::stream::pending()),
            )),
        }
    }
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

/// A plain text answer.
pub fn text(words: &str) -> Answer {
    vec![
        Ok(vec![
            ProviderEvent::TextStart { id: "t".to_owned() },
            ProviderEvent::TextDelta {
                id: "t".to_owned(),
                text: words.to_owned(),
            },
        ]),
        Ok(vec![
            ProviderEvent::TextEnd {
                id: "t".to_owned(),
                native: None,
            },
            finish(Finish::Stop),
        ]),
    ]
}

pub fn call(id: &str, name: &str, input: &str) -> ProviderEvent {
    ProviderEvent::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        input: input.to_owned(),
        executed: false,
        native: None,
    }
}

/// An answer of calls.
pub fn calls(calls: impl IntoIterator<Item = ProviderEvent>) -> Answer {
    let mut events: Vec<ProviderEvent> = calls.into_iter().collect();
    events.push(finish(Finish::ToolCalls));
    vec![Ok(events)]
}

/// Text without an end.
pub fn half(words: &str) -> Answer {
    vec![text(words).remove(0)]
}

/// The system's world, whose tasks can all be ended at once, as a killed process ends them; it counts what is done off
/// the threads that serve others.
#[derive(Default)]
pub struct Mortal {
    dead: AtomicBool,
    /// How far its wall clock is off, in milliseconds.
    pub off_ms: AtomicI64,
    blocking: AtomicUsize,
    tasks: Mutex<Vec<tokio::task::JoinHandle<()>>>,
}

impl Mortal {
    /// How much was done off the threads that serve others.
    pub fn blocked(&self) -> usize {
        self.blocking.load(Ordering::SeqCst)
    }

    /// Ends every task at its next await and waits until it is gone.
    pub async fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        for task in tasks {
            let _ = task.await;
        }
    }
}

impl IdSource for Mortal {
    fn next_bits(&self) -> u128 {
        SystemEnvironment.next_bits()
    }
}

impl Environment for Mortal {
    fn now_ms(&self) -> i64 {
        SystemEnvironment.now_ms() + self.off_ms.load(Ordering::SeqCst)
    }

    fn boot_ms(&self) -> u64 {
        SystemEnvironment.boot_ms()
    }

    fn random(&self) -> u64 {
        SystemEnvironment.random()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemEnvironment.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        let mut tasks = self.tasks.lock().unwrap();
        if !self.dead.load(Ordering::SeqCst) {
            tasks.push(tokio::spawn(future));
        }
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        self.blocking.fetch_add(1, Ordering::SeqCst);
        SystemEnvironment.blocking(work)
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        SystemEnvironment.end_leftover(process)
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}

/// An engine that can be killed.
pub struct Victim {
    pub engine: Engine,
    pub world: Arc<Mortal>,
    store: Arc<dyn Hurtable>,
}

impl Victim {
    /// As SIGKILL: no task goes on, nothing is said to the store, the incarnation's lock is free.
    pub async fn kill(self) {
        self.world.kill().await;
        self.store.crash_node(&self.engine.incarnation());
    }
}

/// A folder in memory where the system has one: these tests drop futures, not disks.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// A store, a model and the folder both live in.
pub struct Bed {
    pub dir: tempfile::TempDir,
    pub store: Arc<dyn Hurtable>,
    pub model: Arc<Scripted>,
    pub config: EngineConfig,
    pub tools: ToolSet,
    pub catalogue: Catalogue,
    // Dropped last: the store must have let go of it.
    place: Place,
}

impl Bed {
    pub fn new(answers: impl IntoIterator<Item = Play>) -> Self {
        Self::with_options(answers, OpenOptions::default())
    }

    pub fn with_options(answers: impl IntoIterator<Item = Play>, options: OpenOptions) -> Self {
        let dir = quick_dir();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let place = Place::new();
        let store = place.open(dir.path(), options);
        let mut config = EngineConfig::new(
            "test",
            dir.path().join("outputs"),
            GuardianCommand::new("/nonexistent"),
        );
        config.retry = RetryPolicy {
            base_ms: 1,
            ..RetryPolicy::default()
        };
        config.poll = Duration::from_millis(200);
        Self {
            dir,
            store,
            model: Scripted::new(answers),
            config,
            tools: ToolSet::empty(),
            catalogue: Catalogue::new(),
            place,
        }
    }

    #[must_use]
    pub fn with_tool(mut self, tool: impl Tool) -> Self {
        self.tools = self.tools.with(Arc::new(tool));
        self
    }

    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("work").canonicalize().unwrap()
    }

    pub async fn engine(&self) -> Engine {
        self.engine_with(&self.store, self.config.clone()).await
    }

    pub async fn engine_with(&self, store: &Arc<dyn Hurtable>, config: EngineConfig) -> Engine {
        self.engine_on(store.clone(), config).await
    }

    pub async fn engine_on(&self, store: Arc<dyn Store>, config: EngineConfig) -> Engine {
        let models = Models::new(self.catalogue.clone()).with("p", self.model.clone());
        Engine::start(store, models, self.tools.clone(), config)
            .await
            .unwrap()
    }

    /// A node that is nobody: it holds claims and does nothing.
    pub async fn raw_node(&self) -> Incarnation {
        self.raw_node_serving(Serves::everywhere()).await
    }

    /// As [`Bed::raw_node`], of which others read that it serves this.
    pub async fn raw_node_serving(&self, serves: Serves) -> Incarnation {
        let incarnation = Incarnation::from_bits(self.config.env.next_bits());
        let node = NodeInfo {
            incarnation: incarnation.clone(),
            name: "nobody".to_owned(),
            address: None,
            serves,
            lease: Duration::from_secs(60),
        };
        self.store.join(node).await.unwrap();
        incarnation
    }

    /// An engine that can be killed.
    pub async fn victim(&self) -> Victim {
        self.victim_on(&self.store).await
    }

    pub async fn victim_on(&self, store: &Arc<dyn Hurtable>) -> Victim {
        self.victim_with(store, self.config.clone()).await
    }

    pub async fn victim_with(&self, store: &Arc<dyn Hurtable>, config: EngineConfig) -> Victim {
        let world = Arc::new(Mortal::default());
        let config = EngineConfig {
            env: world.clone(),
            ..config
        };
        Victim {
            engine: self.engine_with(store, config).await,
            world,
            store: store.clone(),
        }
    }

    /// Another handle on the same store, as another process would have.
    pub fn reopen(&self) -> Arc<dyn Hurtable> {
        self.place.open(self.dir.path(), OpenOptions::default())
    }

    pub fn client(&self) -> Client {
        Client::new(self.store.clone(), self.config.env.clone())
    }

    pub fn model_ref() -> ModelRef {
        ModelRef {
            provider: "p".to_owned(),
            model: "m".to_owned(),
        }
    }

    /// Says how large the model's window is.
    pub fn window(&mut self, context: u64, output: u64) {
        let settings = ModelSettings {
            context: Some(context),
            output: Some(output),
            ..ModelSettings::default()
        };
        self.catalogue.declare(&Self::model_ref(), settings);
    }

    pub async fn session(&self) -> SessionId {
        self.session_with(Rules::allow_all(), 0).await
    }

    pub async fn session_with(&self, permissions: Rules, max_steps: u32) -> SessionId {
        self.client()
            .create(NewSession {
                id: None,
                directory: self.workspace().display().to_string(),
                model: Self::model_ref(),
                title: None,
                limits: tenure_core::event::body::Limits::steps(max_steps),
                permissions,
            })
            .await
            .unwrap()
    }

    pub async fn log(&self, session: &SessionId) -> Vec<Event> {
        self.store
            .read(session, None, 100_000)
            .await
            .unwrap()
            .events
    }

    pub async fn types(&self, session: &SessionId) -> Vec<String> {
        let log = self.log(session).await;
        log.iter().map(|e| e.body.type_name().to_owned()).collect()
    }

    /// How many events of this type the log holds.
    pub async fn count(&self, session: &SessionId, type_name: &str) -> usize {
        let types = self.types(session).await;
        types.iter().filter(|t| *t == type_name).count()
    }

    /// Waits until the log holds an event of this type; fails after ten seconds.
    pub async fn until(&self, session: &SessionId, type_name: &str) -> Event {
        self.until_nth(session, type_name, 1).await
    }

    /// Waits for the `n`-th event of this type, from 1.
    pub async fn until_nth(&self, session: &SessionId, type_name: &str, n: usize) -> Event {
        let mut left = n;
        self.until_event(session, type_name, |event| {
            left -= usize::from(event.body.type_name() == type_name);
            left == 0
        })
        .await
    }

    /// Waits for the first event that `wanted` accepts.
    pub async fn until_event(
        &self,
        session: &SessionId,
        what: &str,
        mut wanted: impl FnMut(&Event) -> bool,
    ) -> Event {
        let found = async {
            let mut items = self.client().follow(session, None);
            while let Some(item) = items.next().await {
                if let tenure_store::FollowItem::Event(event) = item.unwrap()
                    && wanted(&event)
                {
                    return event;
                }
            }
            panic!("the log ended before {what}")
        };
        match tokio::time::timeout(Duration::from_secs(10), found).await {
            Ok(event) => event,
            Err(_) => {
                let log = self.log(session).await;
                panic!("no {what} in\n{}", crate::checks::show(&log))
            }
        }
    }

    pub async fn admit(&self, session: &SessionId, prompt: Prompt) -> Admission {
        self.client().admit(session, prompt).await.unwrap()
    }

    pub async fn interrupt(&self, session: &SessionId) -> Interrupted {
        self.client()
            .interrupt(session, None, "test")
            .await
            .unwrap()
    }

    /// The words of a request's messages, as text.
    pub fn asked(&self, index: usize) -> String {
        words(&self.model.request(index))
    }

    /// The words of the last request.
    pub fn asked_last(&self) -> String {
        words(&self.model.last_request())
    }

    /// The text of every result in the last request, in order.
    pub fn last_results(&self) -> Vec<String> {
        let request = self.model.last_request();
        let results = request.messages.iter().filter_map(|m| match m {
            RequestMessage::ToolResults { results } => Some(results),
            _ => None,
        });
        results.flatten().map(|r| r.text.clone()).collect()
    }

    /// The whole bed is as it must be when nothing runs.
    pub async fn assert_at_rest(&self, session: &SessionId) {
        assert_eq!(self.store.claims().await.unwrap(), []);
        crate::checks::assert_at_rest(&self.log(session).await);
        assert_eq!(self.model.faults(), Vec::<String>::new());
    }
}

/// Everything the messages of a request say, one part a line.
pub fn words(request: &Request) -> String {
    let mut out = String::new();
    for message in &request.messages {
        match message {
            RequestMessage::User { parts } => {
                let texts: Vec<&str> = parts.iter().filter_map(|part| part.as_text()).collect();
                out += &format!("user: {}\n", texts.join("\n"));
            }
            RequestMessage::System { text } => out += &format!("system: {text}\n"),
            RequestMessage::ToolResults { results } => {
                for result in results {
                    out += &format!("result {}: {}\n", result.id, result.text);
                }
            }
            RequestMessage::Assistant { blocks } => {
                for block in blocks {
                    match block {
                        AssistantBlock::Text { text, .. } => out += &format!("said: {text}\n"),
                        AssistantBlock::ToolCall {
                            id, name, input, ..
                        } => {
                            out += &format!("call {id}: {name} {input}\n");
                        }
                        other => out += &format!("{other:?}\n"),
                    }
                }
            }
        }
    }
    out
}

/// Waits until `done`; fails after ten seconds.
pub async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !done().await {
            // tidy: sleep ok because it is the pause between looks at a condition that no event tells of
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), wait).await;
    assert!(waited.is_ok(), "{what} never came");
}

/// Every settlement of a call in the log: call, failure (none: success), text.
pub fn settlements(log: &[Event]) -> Vec<(String, Option<ToolFailure>, String)> {
    log.iter()
        .filter_map(|e| match &e.body {
            EventBody::ToolSucceeded(t) => Some((t.call.to_string(), None, t.text.clone())),
            EventBody::ToolFailed(t) => Some((t.call.to_string(), Some(t.failure), t.text.clone())),
            _ => None,
        })
        .collect()
}

/// Runs the session until the outcome of an admitted input.
pub async fn outcome(engine: &Engine, session: &SessionId, admission: &Admission) -> Outcome {
    engine.run(session);
    let outcome = engine.outcome(session, &admission.input, Some(admission.seq));
    tokio::time::timeout(Duration::from_secs(20), outcome)
        .await
        .expect("an outcome within 20 s")
        .unwrap()
}

/// Admits a prompt and runs the session to the prompt's outcome.
pub async fn ask(engine: &Engine, session: &SessionId, words: &str) -> (MessageId, Outcome) {
    let admission = engine
        .client()
        .admit(session, Prompt::steer(words))
        .await
        .unwrap();
    let outcome = outcome(engine, session, &admission).await;
    (admission.input, outcome)
}
