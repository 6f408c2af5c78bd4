//! A store in a temporary folder, a model that says what it is told, and an engine over both.

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::error::ProviderError;
use tenure_core::event::Event;
use tenure_core::id::{MessageId, SessionId};
use tenure_core::model::ModelRef;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::Request;
use tenure_core::retry::RetryPolicy;
use tenure_core::usage::Usage;
use tenure_engine::*;
use tenure_provider::{AttemptKey, Catalogue, Encoded, EventStream, Provider};
use tenure_store::{OpenOptions, SqliteStore, Store};
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
    /// Refused before any stream.
    Refuse(ProviderError),
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

    pub fn sent(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub fn request(&self, index: usize) -> Request {
        self.requests.lock().unwrap()[index].clone()
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

/// A store, a model and the folder both live in.
pub struct Bed {
    pub dir: tempfile::TempDir,
    pub store: Arc<SqliteStore>,
    pub model: Arc<Scripted>,
    pub config: EngineConfig,
    pub tools: ToolSet,
}

impl Bed {
    pub fn new(answers: impl IntoIterator<Item = Play>) -> Self {
        Self::with_options(answers, OpenOptions::default())
    }

    pub fn with_options(answers: impl IntoIterator<Item = Play>, options: OpenOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let store = SqliteStore::open(&dir.path().join("tenure.db"), options).unwrap();
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
        let models = Models::new(Catalogue::new()).with("p", self.model.clone());
        Engine::start(
            self.store.clone(),
            models,
            self.tools.clone(),
            self.config.clone(),
        )
        .await
        .unwrap()
    }

    pub fn client(&self) -> Client {
        Client::new(self.store.clone(), self.config.env.clone())
    }

    pub async fn session(&self) -> SessionId {
        self.client()
            .create(NewSession {
                id: None,
                directory: self.workspace().display().to_string(),
                model: ModelRef {
                    provider: "p".to_owned(),
                    model: "m".to_owned(),
                },
                title: None,
                max_steps: 0,
                permissions: Rules::allow_all(),
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

    /// Waits until the log holds an event of this type; fails after ten seconds.
    pub async fn until(&self, session: &SessionId, type_name: &str) -> Event {
        let found = async {
            let mut items = self.client().follow(session, None);
            while let Some(item) = items.next().await {
                if let tenure_store::FollowItem::Event(event) = item.unwrap()
                    && event.body.type_name() == type_name
                {
                    return event;
                }
            }
            panic!("the log ended before {type_name}")
        };
        match tokio::time::timeout(Duration::from_secs(10), found).await {
            Ok(event) => event,
            Err(_) => panic!("no {type_name} in {:?}", self.types(session).await),
        }
    }
}

/// Admits a prompt and runs the session to the prompt's outcome.
pub async fn ask(engine: &Engine, session: &SessionId, words: &str) -> (MessageId, Outcome) {
    let admission = engine
        .client()
        .admit(session, Prompt::steer(words))
        .await
        .unwrap();
    engine.run(session);
    let outcome = engine.outcome(session, &admission.input, Some(admission.seq));
    let outcome = tokio::time::timeout(Duration::from_secs(20), outcome)
        .await
        .expect("an outcome within 20 s")
        .unwrap();
    (admission.input, outcome)
}
