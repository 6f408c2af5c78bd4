//! Calls that were stopped and left something at work: the log moves on, the next call waits (R10, R11).

use crate::fakes::*;
use crate::support::*;
use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::event::EventBody;
use tenure_core::facts::IdSource;
use tenure_core::id::{Incarnation, SessionId};
use tenure_engine::*;
use tenure_store::{Acquire, ProcessId, Tenure};
use tenure_tools::permission::Access;
use tenure_tools::{AtWork, Tool, ToolCx, ToolError, ToolOutput, ToolSpec};

/// What calls of [`Leaves`] left at work, and whether anything began beside it.
#[derive(Debug, Clone, Default)]
pub struct Left {
    at_work: Arc<Mutex<Vec<AtWork>>>,
    overlapped: Arc<AtomicBool>,
}

impl Left {
    /// How many calls have left something at work.
    pub fn count(&self) -> usize {
        self.at_work.lock().unwrap().len()
    }

    /// The last of it is gone.
    pub fn ends(&self) {
        self.at_work.lock().unwrap().clear();
    }

    /// Did a call of [`After`] begin while something was at work?
    pub fn overlapped(&self) -> bool {
        self.overlapped.load(Ordering::SeqCst)
    }
}

/// Starts something that is at work also after the call was stopped.
pub struct Leaves(pub Left);

#[async_trait]
impl Tool for Leaves {
    fn spec(&self) -> ToolSpec {
        spec("leaves")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, cx: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        let at_work = cx.at_work.clone().expect("given to every call");
        self.0.at_work.lock().unwrap().push(at_work);
        std::future::pending().await
    }
}

/// Notes whether it began while something was at work.
pub struct After(pub Left);

#[async_trait]
impl Tool for After {
    fn spec(&self) -> ToolSpec {
        spec("after")
    }

    fn access(&self, _: &ToolCx, _: &Value) -> Result<Vec<Access>, ToolError> {
        Ok(Vec::new())
    }

    async fn run(&self, _: ToolCx, _: Value) -> Result<ToolOutput, ToolError> {
        self.0
            .overlapped
            .fetch_or(self.0.count() > 0, Ordering::SeqCst);
        Ok(ToolOutput::default())
    }
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: "A tool of the tests.".to_owned(),
        input_schema: json!({"type": "object"}),
    }
}

/// What waits for longer than this waits for ever here, so that nothing goes on by time.
const LONG: Duration = Duration::from_secs(3);
/// As long as a hand-over waits for what stopped calls started.
const HAND_OVER: Duration = Duration::from_secs(4);

/// The system's world, in which no long wait ever ends.
#[derive(Default)]
struct Endless(Mutex<Vec<Duration>>);

impl Endless {
    /// Does somebody wait for so long?
    fn waits(&self, duration: Duration) -> bool {
        self.0.lock().unwrap().contains(&duration)
    }
}

impl IdSource for Endless {
    fn next_bits(&self) -> u128 {
        SystemEnvironment.next_bits()
    }
}

impl Environment for Endless {
    fn now_ms(&self) -> i64 {
        SystemEnvironment.now_ms()
    }

    fn boot_ms(&self) -> u64 {
        SystemEnvironment.boot_ms()
    }

    fn random(&self) -> u64 {
        SystemEnvironment.random()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration < LONG {
            return SystemEnvironment.sleep(duration);
        }
        self.0.lock().unwrap().push(duration);
        Box::pin(std::future::pending())
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        SystemEnvironment.spawn(future);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        SystemEnvironment.blocking(work)
    }

    fn end_leftover(&self, process: ProcessId) -> BoxFuture<'static, Result<(), String>> {
        SystemEnvironment.end_leftover(process)
    }

    fn as_ids(&self) -> &dyn IdSource {
        self
    }
}

/// A model that calls a tool which leaves something, then one that must not run beside that; and a lease so long that
/// nothing here goes on by time.
fn bed() -> (Bed, Left) {
    let left = Left::default();
    let mut bed = Bed::new([
        Play::Answer(calls([call("a", "leaves", "{}")])),
        Play::Answer(calls([call("b", "after", "{}")])),
        Play::Answer(text("done")),
    ])
    .with_tool(Leaves(left.clone()))
    .with_tool(After(left.clone()));
    bed.config.scope = Scope::Any;
    bed.config.lease = Duration::from_secs(60);
    (bed, left)
}

async fn begins(bed: &Bed, left: &Left) -> SessionId {
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("leave something")).await;
    eventually("the first call", async || left.count() == 1).await;
    session
}

async fn taken(bed: &Bed, session: &SessionId, by: &Incarnation) -> Tenure {
    match bed.store.acquire(session, by, true).await.unwrap() {
        Acquire::Acquired(tenure) => tenure,
        other => panic!("{other:?}"),
    }
}

/// Gives what should not happen the chance to.
async fn some_looks(bed: &Bed, session: &SessionId) {
    for _ in 0..50 {
        bed.log(session).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_call_waits_until_nothing_of_a_stopped_one_is_at_work() {
    let (mut bed, left) = bed();
    bed.config.env = Arc::<Endless>::default();
    let engine = bed.engine().await;
    let session = begins(&bed, &left).await;
    bed.interrupt(&session).await;
    // The log does not wait.
    bed.until(&session, "execution.interrupted").await;
    assert_eq!(left.count(), 1);
    let next = bed.admit(&session, Prompt::steer("go on")).await;
    bed.until_nth(&session, "tool.called", 2).await;
    some_looks(&bed, &session).await;
    assert_eq!(bed.count(&session, "tool.started").await, 1);
    left.ends();
    assert_eq!(outcome(&engine, &session, &next).await, Outcome::Succeeded);
    assert!(!left.overlapped());
    engine.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_is_told_to_wait_for_what_a_stopped_call_left() {
    let (bed, left) = bed();
    let engine = bed.engine().await;
    let session = begins(&bed, &left).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    let other = bed.raw_node().await;
    let tenure = taken(&bed, &session, &other).await;
    assert_eq!(tenure.taken_from, None);
    assert!(
        (1..=61_000).contains(&tenure.quiet_ms),
        "{} ms",
        tenure.quiet_ms
    );
    left.ends();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_call_that_left_nothing() {
    let (mut bed, _) = bed();
    let (tool, hold) = Held::new(Manner::Ignores);
    bed = bed.with_tool(tool);
    bed.model.clear();
    bed.model
        .push(Play::Answer(calls([call("a", "hold", "{}")])));
    let engine = bed.engine().await;
    let session = bed.session().await;
    bed.admit(&session, Prompt::steer("hold")).await;
    eventually("the call", async || hold.begun() == 1).await;
    bed.interrupt(&session).await;
    bed.until(&session, "execution.interrupted").await;
    engine.idle().await;
    let other = bed.raw_node().await;
    assert_eq!(taken(&bed, &session, &other).await.quiet_ms, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_waits_until_nothing_of_the_stopped_calls_is_at_work() {
    let (mut bed, left) = bed();
    let env = Arc::<Endless>::default();
    bed.config.env = env.clone();
    let a = bed.engine().await;
    let session = begins(&bed, &left).await;
    let b = bed.engine().await;
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.shutdown_now().await }
    });
    let waits = async || env.waits(HAND_OVER);
    eventually("the hand-over to wait", waits).await;
    some_looks(&bed, &session).await;
    let row = bed.store.session(&session).await.unwrap().unwrap();
    assert_eq!(row.epoch, 1, "not given away yet");
    left.ends();
    leaving.await.unwrap().unwrap();
    bed.until(&session, "execution.succeeded").await;
    assert!(!left.overlapped());
    let stopped = settlements(&bed.log(&session).await);
    assert!(stopped[0].1.is_some(), "{stopped:?}");
    b.idle().await;
    bed.assert_at_rest(&session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_is_told_to_wait_for_what_does_not_end() {
    let (bed, left) = bed();
    let engine = bed.engine().await;
    let session = begins(&bed, &left).await;
    let leaving = tokio::spawn({
        let engine = engine.clone();
        async move { engine.shutdown_now().await }
    });
    // There is nobody to give it to.
    bed.until_event(&session, "the settlement", |event| {
        matches!(event.body, EventBody::ToolFailed(_))
    })
    .await;
    let other = bed.raw_node().await;
    assert!(taken(&bed, &session, &other).await.quiet_ms > 0);
    // Nor does the node say that it is gone before that is.
    let nodes = bed.store.nodes().await.unwrap();
    assert!(
        nodes
            .iter()
            .any(|node| node.incarnation == engine.incarnation())
    );
    left.ends();
    leaving.await.unwrap().unwrap();
    let gone = bed.store.renew(&engine.incarnation()).await.unwrap();
    assert_eq!(gone, tenure_store::Renewal::Dead);
}
