//! What is durable before what begins (R10, R11), and that the poll alone is enough.

use crate::fakes::*;
use crate::stores::Hurtable;
use crate::support::*;
use crate::weather::Weather;
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::error::ProviderError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::SessionId;
use tenure_core::request::Request;
use tenure_engine::*;
use tenure_provider::{AttemptKey, Encoded, EventStream, Provider};
use tenure_store::Interrupted;
use tenure_tools::permission::{Access, Rules};
use tenure_tools::{Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

/// Looks into the log at the moment something begins.
#[derive(Clone)]
struct Witness {
    store: Arc<dyn Hurtable>,
    session: Arc<Mutex<Option<SessionId>>>,
    /// The last event of the log, by type, at each beginning.
    seen: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Witness {
    fn new(bed: &Bed) -> Self {
        Self {
            store: bed.store.clone(),
            session: Arc::default(),
            seen: Arc::default(),
        }
    }

    async fn look(&self) {
        let session = self.session.lock().unwrap().clone();
        let Some(session) = session else { return };
        let log = self
            .store
            .read(&session, None, 10_000)
            .await
            .unwrap()
            .events;
        let types = log.iter().map(|e| e.body.type_name().to_owned()).collect();
        self.seen.lock().unwrap().push(types);
    }

    /// How many events of `type_name` were in the log at each beginning.
    fn counts(&self, type_name: &str) -> Vec<usize> {
        let seen = self.seen.lock().unwrap();
        let count = |types: &Vec<String>| types.iter().filter(|t| *t == type_name).count();
        seen.iter().map(count).collect()
    }
}

struct Watched(Arc<Scripted>, Witness);

#[async_trait]
impl Provider for Watched {
    fn protocol(&self) -> &'static str {
        self.0.protocol()
    }

    fn encode(&self, request: &Request) -> Result<Encoded, ProviderError> {
        self.0.encode(request)
    }

    async fn send(&self, encoded: Encoded, key: &AttemptKey) -> Result<EventStream, ProviderError> {
        self.1.look().await;
        self.0.send(encoded, key).await
    }
}

struct Looks(Witness);

#[async_trait]
impl Tool for Looks {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "looks".to_owned(),
            description: "A tool of the tests.".to_owned(),
            input_schema: json!({"type": "object"}),
        }
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        self.0.look().await;
        Ok(ToolOutput::default())
    }
}

#[tokio::test]
async fn a_request_leaves_after_its_attempt_is_durable() {
    let bed = Bed::new([
        Play::Answer(half("cut")),
        Play::Answer(text("whole")),
        Play::Answer(text("again")),
    ]);
    let witness = Witness::new(&bed);
    let watched = Arc::new(Watched(bed.model.clone(), witness.clone()));
    let models = Models::new(bed.catalogue.clone()).with("p", watched);
    let engine = Engine::start(
        bed.store.clone(),
        models,
        bed.tools.clone(),
        bed.config.clone(),
    );
    let engine = engine.await.unwrap();
    let session = bed.session().await;
    *witness.session.lock().unwrap() = Some(session.clone());
    ask(&engine, &session, "hi").await;
    ask(&engine, &session, "and?").await;
    engine.idle().await;
    assert_eq!(witness.counts("attempt.started"), [1, 2, 3]);
    assert_eq!(witness.counts("attempt.ended"), [0, 1, 2]);
}

#[tokio::test]
async fn a_tool_begins_after_its_start_is_durable() {
    let mut bed = Bed::new([Play::Answer(calls([call("a", "looks", "{}")]))]);
    let witness = Witness::new(&bed);
    bed = bed.with_tool(Looks(witness.clone()));
    let engine = bed.engine().await;
    let session = bed.session().await;
    *witness.session.lock().unwrap() = Some(session.clone());
    ask(&engine, &session, "hi").await;
    assert_eq!(witness.counts("tool.called"), [1]);
    assert_eq!(witness.counts("tool.started"), [1]);
}

/// The answer is heard, and an interrupt before it is not: the start is refused by the store.
#[tokio::test]
async fn no_tool_starts_behind_an_interrupt() {
    let mut bed = Bed::new([Play::Answer(calls([call("a", "asks", "{}")]))]).with_tool(Asks);
    bed.config.approvals = Approvals::Wait;
    let (store, sky) = Weather::over(&bed.store);
    let engine = bed.engine_on(store, bed.config.clone()).await;
    let session = bed.session_with(Rules::default(), 0).await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    let asked = bed.until(&session, "permission.asked").await;
    let EventBody::PermissionAsked(asked) = asked.body else {
        panic!("asked for it")
    };
    sky.blind.store(true, Ordering::SeqCst);
    let receipt = bed.interrupt(&session).await;
    assert!(matches!(receipt, Interrupted::Accepted { .. }));
    let client = bed.client();
    client
        .answer(
            &session,
            &asked.message,
            &asked.call,
            PermissionAnswer::Once,
            "me",
        )
        .await
        .unwrap();
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.started").await, 0);
}

#[tokio::test]
async fn with_every_hint_lost_the_poll_tells() {
    let (tool, hold) = Held::new(Manner::Obeys);
    let mut bed = Bed::new([Play::Answer(calls([call("a", "hold", "{}")]))]).with_tool(tool);
    bed.config.poll = Duration::from_millis(100);
    let (store, sky) = Weather::over(&bed.store);
    sky.deaf.store(true, Ordering::SeqCst);
    let engine = bed.engine_on(store, bed.config.clone()).await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    eventually("the tool", async || hold.begun() == 1).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

/// An answer given anywhere is found by the poll that all waiting sessions share.
#[tokio::test]
async fn an_answer_is_found_without_a_hint() {
    let mut bed = Bed::new([Play::Answer(calls([call("a", "asks", "{}")]))]).with_tool(Asks);
    bed.config.approvals = Approvals::Wait;
    bed.config.poll = Duration::from_millis(100);
    let (store, sky) = Weather::over(&bed.store);
    sky.deaf.store(true, Ordering::SeqCst);
    let engine = bed.engine_on(store, bed.config.clone()).await;
    let session = bed.session_with(Rules::default(), 0).await;
    bed.admit(&session, Prompt::steer("hi")).await;
    engine.run(&session);
    let asked = bed.until(&session, "permission.asked").await;
    let EventBody::PermissionAsked(asked) = asked.body else {
        panic!("asked for it")
    };
    let client = bed.client();
    client
        .answer(
            &session,
            &asked.message,
            &asked.call,
            PermissionAnswer::Once,
            "me",
        )
        .await
        .unwrap();
    bed.until(&session, "execution.succeeded").await;
    engine.idle().await;
    bed.assert_at_rest(&session).await;
    assert_eq!(bed.count(&session, "tool.succeeded").await, 1);
}

/// Sessions that wait cost nothing each: one read and one renewal for all of them.
#[tokio::test]
async fn sessions_that_wait_share_one_poll() {
    const SESSIONS: usize = 40;
    let asks = || Play::Answer(calls([call("a", "asks", "{}")]));
    let mut bed = Bed::new((0..SESSIONS).map(|_| asks())).with_tool(Asks);
    bed.config.approvals = Approvals::Wait;
    bed.config.scope = Scope::Any;
    bed.config.poll = Duration::from_millis(100);
    bed.config.renew_every = Duration::from_millis(100);
    let (store, sky) = Weather::over(&bed.store);
    let engine = bed.engine_on(store, bed.config.clone()).await;
    for _ in 0..SESSIONS {
        let session = bed.session_with(Rules::default(), 0).await;
        bed.admit(&session, Prompt::steer("hi")).await;
    }
    let waiting = async || {
        let claims = bed.store.claims().await.unwrap();
        let asked = claims.iter().filter(|c| c.phase == Phase::Active).count();
        asked == SESSIONS
    };
    eventually("all of them", waiting).await;
    // Ten renewals long.
    let rounds = async || {
        sky.take_asked();
        let mut asked = std::collections::BTreeMap::new();
        eventually("ten renewals", async || {
            for (what, n) in sky.take_asked() {
                *asked.entry(what).or_insert(0) += n;
            }
            asked.get("renew").is_some_and(|n| *n >= 10)
        })
        .await;
        asked
    };
    // Until what led there has settled down.
    let mut asked = rounds().await;
    for _ in 0..20 {
        if !asked.contains_key("read") && !asked.contains_key("append") {
            break;
        }
        asked = rounds().await;
    }
    let per_session = [
        "append",
        "read",
        "claim_phase",
        "session",
        "inbox",
        "effects",
        "acquire",
    ];
    for what in per_session {
        assert_eq!(asked.get(what), None, "{asked:?}");
    }
    assert!(asked["held"] <= 25, "{asked:?}");
    assert!(asked["claimable"] <= 25, "{asked:?}");
    engine.shutdown_now().await.unwrap();
}
