//! A fresh store with nodes, sessions and clocks under the test's hand.

use crate::api::*;
use crate::sqlite::Fault;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;
use tenure_core::provider::Finish;
use tenure_core::usage::Usage;

/// The lease of nodes in these worlds.
pub const LEASE: Duration = Duration::from_secs(6);

/// A backend under test and what the suite may do to it.
pub trait Backend: Send + Sync {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;
    /// A second, empty store of the same kind.
    fn other_store(&self) -> Arc<dyn Store>;
    /// The node's process is gone, without a word.
    fn crash(&self, node: &Incarnation);
    /// Time passes on the clock that leases are judged by.
    fn advance(&self, by: Duration);
    /// The clock that leases are judged by is set, while time goes on as before on everybody's own. Nothing happens where
    /// it is this machine's boot-time clock, which nobody sets.
    fn set_clock(&self, _by_ms: i64) {}
    /// Takes a copy of all sessions, as a backup does.
    fn copy(&self) {
        panic!("nothing here can be set back");
    }
    /// Puts them back to where the last copy was taken, under whoever works with them.
    fn set_back(&self) {
        panic!("nothing here can be set back");
    }
    /// The next commit goes wrong.
    fn fail_next_commit(&self, fault: Fault);
    /// Holds the writer back while `then` queues work, so that it lands in one batch.
    fn hold_writer(&self) -> Box<dyn Send>;
    /// Bytes the store takes on disk.
    fn bytes(&self) -> u64;
    /// `follow`, or a follower with the fault under test.
    fn follow(
        &self,
        session: SessionId,
        after: Option<u64>,
    ) -> BoxStream<'static, Result<crate::FollowItem, ReadError>> {
        crate::follow(self.store(), session, after)
    }
}

/// What a case works with.
pub struct World {
    pub backend: Box<dyn Backend>,
    pub store: Arc<dyn Store>,
    next: AtomicU64,
}

impl World {
    pub fn new(backend: Box<dyn Backend>) -> Self {
        Self {
            store: backend.store(),
            backend,
            next: AtomicU64::new(1),
        }
    }

    pub fn bits(&self) -> u128 {
        u128::from(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub fn event(&self, body: impl Into<EventBody>) -> NewEvent {
        NewEvent {
            id: EventId::from_bits(self.bits()),
            created_ms: 1_000,
            body: body.into(),
        }
    }

    pub fn message(&self) -> MessageId {
        MessageId::from_bits(self.bits())
    }

    pub fn created(&self) -> NewEvent {
        self.event(SessionCreated {
            title: Some("a title".to_owned()),
            location: Location::at("/work".to_owned()),
            model: model(),
            limits: Limits::default(),
            permissions: serde_json::json!({}),
        })
    }

    pub fn renamed(&self, title: &str) -> NewEvent {
        self.event(SessionRenamed {
            title: title.to_owned(),
            automatic: false,
        })
    }

    /// A session with its first event.
    pub async fn create(&self) -> SessionId {
        let session = SessionId::from_bits(self.bits());
        let append = Append::unfenced(session.clone(), vec![self.created()]);
        self.store.append(append).await.unwrap();
        session
    }

    /// Writes an unfenced event.
    pub async fn write(&self, session: &SessionId, event: NewEvent) -> Committed {
        let append = Append::unfenced(session.clone(), vec![event]);
        self.store.append(append).await.unwrap()
    }

    pub async fn admit(&self, session: &SessionId) -> MessageId {
        let input = self.message();
        let event = self.event(admitted(&input, Delivery::Steer));
        self.write(session, event).await;
        input
    }

    /// What anybody asks who wants it to stop.
    pub fn interrupt(&self, session: &SessionId, execution: Option<&ExecutionId>) -> Interrupt {
        Interrupt {
            session: session.clone(),
            interrupt: InterruptId::from_bits(self.bits()),
            execution: execution.cloned(),
            by: "test".to_owned(),
            now_ms: 5,
        }
    }

    pub async fn join(&self) -> Incarnation {
        self.join_serving(Serves::everywhere()).await
    }

    pub async fn join_serving(&self, serves: Serves) -> Incarnation {
        let incarnation = Incarnation::from_bits(self.bits());
        self.store
            .join(NodeInfo {
                incarnation: incarnation.clone(),
                name: "test".to_owned(),
                address: None,
                serves,
                lease: LEASE,
            })
            .await
            .unwrap();
        incarnation
    }

    pub async fn acquire(&self, session: &SessionId, node: &Incarnation) -> Owner {
        match self.store.acquire(session, node, true).await.unwrap() {
            Acquire::Acquired(tenure) => Owner::new(&self.store, session, tenure),
            other => panic!("{session} was not acquired: {other:?}"),
        }
    }

    /// A session owned by a fresh node, with an open execution and an open step.
    pub async fn running(&self) -> (SessionId, Incarnation, Owner, ExecutionId, MessageId) {
        let session = self.create().await;
        let node = self.join().await;
        let mut owner = self.acquire(&session, &node).await;
        let (execution, message) = (ExecutionId::from_bits(self.bits()), self.message());
        owner.start_execution(self, &execution).await;
        owner.start_step(self, &message).await.unwrap();
        (session, node, owner, execution, message)
    }

    pub async fn state(&self, session: &SessionId) -> SessionState {
        self.store.session(session).await.unwrap().unwrap().state
    }

    pub async fn log(&self, session: &SessionId) -> Vec<tenure_core::event::Event> {
        self.store
            .read(session, None, 100_000)
            .await
            .unwrap()
            .events
    }
}

/// The one model of these worlds.
pub fn model() -> ModelRef {
    ModelRef {
        provider: "local".to_owned(),
        model: "m1".to_owned(),
    }
}

pub fn admitted(input: &MessageId, delivery: Delivery) -> InputAdmitted {
    InputAdmitted {
        input: input.clone(),
        kind: InputKind::user(format!("words of {input}")),
        delivery,
    }
}

pub fn step_started(message: &MessageId) -> StepStarted {
    StepStarted {
        message: message.clone(),
        step: 1,
        model: model(),
        last: false,
    }
}

pub fn step_ended(message: &MessageId) -> StepEnded {
    StepEnded {
        message: message.clone(),
        finish: Finish::Stop,
        usage: Usage::default(),
        cost: Some(0),
    }
}

/// The holder of a session, who counts its own writes.
pub struct Owner {
    pub store: Arc<dyn Store>,
    pub session: SessionId,
    pub tenure: Tenure,
    pub fence: Fence,
}

impl Owner {
    pub fn new(store: &Arc<dyn Store>, session: &SessionId, tenure: Tenure) -> Self {
        Self {
            store: Arc::clone(store),
            session: session.clone(),
            fence: tenure.fence.clone(),
            tenure,
        }
    }

    pub fn fenced(&self, guard: Guard, events: Vec<NewEvent>, ops: Vec<HookOp>) -> Append {
        Append {
            fence: Some(self.fence.clone()),
            guard,
            ops,
            ..Append::unfenced(self.session.clone(), events)
        }
    }

    pub async fn append(
        &mut self,
        guard: Guard,
        events: Vec<NewEvent>,
        ops: Vec<HookOp>,
    ) -> Result<Committed, AppendError> {
        let committed = self.store.append(self.fenced(guard, events, ops)).await?;
        self.fence.write_no = committed.write_no;
        Ok(committed)
    }

    /// Goes on after an unknown commit was resolved.
    pub fn resolved(&mut self, found: Option<&Committed>) {
        self.fence.write_no = match found {
            Some(committed) => committed.write_no,
            None => self.fence.given_up().write_no,
        };
    }

    pub async fn ops(&mut self, ops: Vec<HookOp>) -> Result<Committed, AppendError> {
        self.append(Guard::Settling, Vec::new(), ops).await
    }

    pub async fn start_execution(&mut self, world: &World, execution: &ExecutionId) {
        let event = world.event(ExecutionStarted {
            execution: execution.clone(),
        });
        self.append(Guard::Running, vec![event], Vec::new())
            .await
            .unwrap();
    }

    pub async fn start_step(
        &mut self,
        world: &World,
        message: &MessageId,
    ) -> Result<Committed, AppendError> {
        let event = world.event(step_started(message));
        let enter = HookOp::Enter {
            message: Some(message.clone()),
        };
        self.append(Guard::Running, vec![event], vec![enter]).await
    }

    pub async fn end_step(&mut self, world: &World, message: &MessageId) {
        let event = world.event(step_ended(message));
        self.append(Guard::Settling, vec![event], vec![HookOp::Leave])
            .await
            .unwrap();
    }

    /// Ends the execution as interrupted and gives the session up.
    pub async fn interrupted(&mut self, world: &World, execution: &ExecutionId) {
        let event = world.event(ExecutionInterrupted {
            execution: execution.clone(),
            reason: InterruptReason::User,
        });
        self.append(Guard::Settling, vec![event], vec![RELEASE])
            .await
            .unwrap();
    }

    pub async fn promote(
        &mut self,
        world: &World,
        input: &MessageId,
    ) -> Result<Committed, AppendError> {
        let event = world.event(InputPromoted {
            input: input.clone(),
        });
        let promote = HookOp::Promote {
            input: input.clone(),
        };
        self.append(Guard::Running, vec![event], vec![promote])
            .await
    }
}

/// Gives up whatever waits.
pub const RELEASE: HookOp = HookOp::Release {
    only_when_idle: false,
    park: false,
};

/// Gives up only when there is nothing to do.
pub const RELEASE_IDLE: HookOp = HookOp::Release {
    only_when_idle: true,
    park: false,
};

/// Waits for a condition that another thread brings about; fails loudly when it does not come.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < give_up, "{what} never came");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A waker that says whether it was called.
pub struct Flag(pub std::sync::atomic::AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}
