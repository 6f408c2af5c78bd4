//! Clients: programs that ask random nodes, try again under the same key, and remember what they were told.

use super::executor::{Micros, Proc};
use super::plan::{Action, ActionKind, PATIENCE_FOR_COMMITS, When};
use super::screen::Screen;
use super::world::{PROVIDER, World};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody, EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_engine::{Client, EngineError, NewSession, Prompt, Shown};
use tenure_store::{
    Append, AppendError, DeleteError, FollowItem, Interrupt, Interrupted, ReadError, ReplayError,
    Store,
};
use tenure_tools::permission::{Mode, PermissionConfig, Rules};

/// The process of all clients: it never dies.
pub const CLIENTS: Proc = Proc(1);

/// What clients were told, and what they have seen.
#[derive(Debug, Default)]
pub struct Told {
    /// Inputs whose admission was acknowledged, with their seq (0 when only known to be there).
    pub admitted: Vec<(SessionId, MessageId, u64)>,
    /// Answers to interrupts, with the execution that was named.
    pub interrupts: Vec<(SessionId, Option<ExecutionId>, Interrupted)>,
    /// Inputs taken back with success.
    pub cancelled: Vec<(SessionId, MessageId)>,
    /// Sessions somebody tried to delete.
    pub deleted: Vec<SessionId>,
    /// Sessions whose parked inputs somebody woke.
    pub unparked: Vec<SessionId>,
    /// What each reader of a session saw: ids in order, from seq 0.
    pub seen: BTreeMap<(SessionId, usize), Vec<EventId>>,
}

/// The clients of one run.
pub struct Clients {
    world: Arc<World>,
    told: Mutex<Told>,
    sessions: Mutex<Vec<Option<SessionId>>>,
    busy: AtomicUsize,
    over: AtomicBool,
}

/// Why a call is to be made again, or what came of it.
enum Tried<T> {
    Done(T),
    Again,
}

impl Clients {
    /// For a world that has not begun.
    pub fn new(world: Arc<World>) -> Arc<Self> {
        let sessions = vec![None; world.plan.sessions];
        Arc::new(Self {
            world,
            told: Mutex::default(),
            sessions: Mutex::new(sessions),
            busy: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// What they were told so far.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<Option<SessionId>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Clients that have not got their answer yet.
    pub fn busy(&self) -> usize {
        self.busy.load(Ordering::Relaxed)
    }

    /// Nothing is left to be followed.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.busy.fetch_add(1, Ordering::Relaxed);
        let clients = self.clone();
        self.world.executor.spawn(CLIENTS, async move {
            work.await;
            clients.busy.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Starts every client of the plan.
    pub fn begin(self: &Arc<Self>) {
        for session in 0..self.world.plan.sessions {
            let clients = self.clone();
            self.spawn(async move { clients.create(session).await });
        }
        for (number, action) in self.world.plan.actions.iter().enumerate() {
            let (clients, action) = (self.clone(), action.clone());
            self.spawn(async move {
                clients.wait(action.when).await;
                clients.act(number, &action).await;
            });
        }
    }

    async fn wait(&self, when: When) {
        let executor = &self.world.executor;
        match when {
            When::At(at) => executor.sleep_until(at).await,
            When::Commit(number) => self.commit(number).await,
            When::After(number, later) => {
                self.commit(number).await;
                executor.sleep_micros(later).await;
            }
        }
    }

    /// Waits for the n-th committing request, not for ever.
    async fn commit(&self, number: u64) {
        let mut commits = self.world.commits.subscribe();
        let latest = self.world.executor.sleep_until(PATIENCE_FOR_COMMITS);
        tokio::select! {
            biased;
            // The sender lives in the world.
            _ = commits.wait_for(|n| *n >= number) => {}
            () = latest => {}
        }
    }

    /// Asks random nodes until one has answered for good.
    async fn until<T, F>(&self, mut ask: impl FnMut(Client, Arc<dyn Store>) -> F + Send) -> T
    where
        T: Send + 'static,
        F: Future<Output = Tried<T>> + Send + 'static,
    {
        loop {
            let node = self.world.below(self.world.plan.nodes as u64) as usize;
            let answer = self
                .world
                .on_some_node(node, |client, store| ask(client, store));
            if let Some(Tried::Done(done)) = answer.await {
                return done;
            }
            let pause = 50_000 + self.world.below(400_000);
            self.world.executor.sleep_micros(pause).await;
        }
    }

    fn id(&self, what: u64, number: usize) -> u128 {
        u128::from(self.world.plan.seed) << 64 | u128::from(what) << 32 | number as u128
    }

    async fn create(self: &Arc<Self>, number: usize) {
        let id = SessionId::from_bits(self.id(1, number));
        let (wanted, here) = (id.clone(), self.world.plan.place(0));
        let made = self.until(move |client, _| {
            let requires = here.requires.clone();
            let new = new_session(wanted.clone(), here.directory.clone());
            async move {
                match client.create_requiring(new, requires).await {
                    Ok(_) => Tried::Done(true),
                    // A first try was executed after all.
                    Err(EngineError::Append(
                        AppendError::SessionExists(_) | AppendError::Conflict { .. },
                    )) => Tried::Done(true),
                    Err(error) if is_passing(&error) => Tried::Again,
                    Err(_) => Tried::Done(false),
                }
            }
        });
        if !made.await {
            self.world
                .ledger
                .violated("P2", format!("{id} could not be made"));
            return;
        }
        self.attend(&id);
        if let Some(slot) = self.sessions().get_mut(number) {
            *slot = Some(id);
        }
    }

    /// Answers questions of the session, and follows it where the plan says so.
    fn attend(self: &Arc<Self>, session: &SessionId) {
        let (clients, asked) = (self.clone(), session.clone());
        self.world
            .executor
            .spawn(CLIENTS, async move { clients.approve(asked).await });
        for reader in 0..self.world.plan.readers {
            let (clients, followed) = (self.clone(), session.clone());
            self.world.executor.spawn(CLIENTS, async move {
                clients.follow(followed, reader).await;
            });
        }
    }

    /// The session of that number once it is made.
    async fn session(&self, number: usize) -> Option<SessionId> {
        for _ in 0..2_000 {
            if let Some(Some(session)) = self.sessions().get(number).cloned() {
                return Some(session);
            }
            self.world.executor.sleep_micros(50_000).await;
        }
        None
    }

    async fn act(self: &Arc<Self>, number: usize, action: &Action) {
        let Some(session) = self.session(action.session).await else {
            return;
        };
        self.world
            .ledger
            .note(|| format!("client: {:?} of {session}", action.kind));
        match action.kind {
            ActionKind::Admit { queue } => {
                self.admit(&session, self.id(2, number), queue).await;
            }
            ActionKind::Interrupt { named } => self.interrupt(&session, number, named).await,
            ActionKind::CancelInput => self.cancel(&session).await,
            ActionKind::Fork => self.fork(&session, number).await,
            ActionKind::Delete => self.delete(&session).await,
            ActionKind::Move => {
                let there = self.world.plan.place(1 + number);
                self.change(&session, action.kind, there).await;
            }
            ActionKind::Rebuild => self.rebuild(&session, number).await,
            ActionKind::Import => self.import(number).await,
            ActionKind::Unpark | ActionKind::Compact | ActionKind::Rename | ActionKind::Release => {
                let here = self.world.plan.place(0);
                self.change(&session, action.kind, here).await;
            }
        }
    }

    async fn admit(&self, session: &SessionId, id: u128, queue: bool) {
        let input = MessageId::from_bits(id);
        let (to, key) = (session.clone(), input.clone());
        let seq = self.until(move |client, _| {
            let mut prompt = Prompt::steer(format!("prompt {key}"));
            prompt.id = Some(key.clone());
            if queue {
                prompt.delivery = Delivery::Queue;
            }
            let to = to.clone();
            async move {
                match client.admit(&to, prompt).await {
                    Ok(admission) => Tried::Done(Some(admission.seq)),
                    Err(error) if is_passing(&error) => Tried::Again,
                    Err(_) => Tried::Done(None),
                }
            }
        });
        if let Some(seq) = seq.await {
            self.told().admitted.push((session.clone(), input, seq));
        }
    }

    async fn interrupt(&self, session: &SessionId, number: usize, named: bool) {
        let execution = match named {
            true => self.open_execution(session),
            false => None,
        };
        let key = InterruptId::from_bits(self.id(3, number));
        let (of, wanted) = (session.clone(), execution.clone());
        let answer = self.until(move |client, store| {
            let asked = Interrupt {
                session: of.clone(),
                interrupt: key.clone(),
                execution: wanted.clone(),
                by: "client".to_owned(),
                now_ms: 0,
            };
            async move {
                match store.interrupt(asked.clone()).await {
                    Ok(answer) => {
                        if let Interrupted::Accepted { .. } = &answer {
                            client.wake_owner(&asked.session).await;
                        }
                        Tried::Done(Some(answer))
                    }
                    Err(error) if is_passing(&error.clone().into()) => Tried::Again,
                    Err(_) => Tried::Done(None),
                }
            }
        });
        if let Some(answer) = answer.await {
            self.world
                .ledger
                .note(|| format!("client: {session} answered {answer:?}"));
            self.told()
                .interrupts
                .push((session.clone(), execution, answer));
        }
    }

    fn open_execution(&self, session: &SessionId) -> Option<ExecutionId> {
        let row = self.world.database.session(session).ok()??;
        row.execution
    }

    async fn cancel(&self, session: &SessionId) {
        let last = {
            let told = self.told();
            let mut own = told.admitted.iter().rev();
            own.find(|(of, _, _)| of == session)
                .map(|(_, input, _)| input.clone())
        };
        let Some(input) = last else { return };
        let (of, what) = (session.clone(), input.clone());
        let done = self.until(move |client, _| {
            let (of, what) = (of.clone(), what.clone());
            async move {
                match client.cancel_input(&of, &what, "client").await {
                    Ok(()) => Tried::Done(true),
                    Err(error) if is_passing(&error) => Tried::Again,
                    Err(_) => Tried::Done(false),
                }
            }
        });
        if done.await {
            self.told().cancelled.push((session.clone(), input));
        }
    }

    async fn fork(self: &Arc<Self>, session: &SessionId, number: usize) {
        let parent = session.clone();
        let child = self.until(move |client, _| {
            let parent = parent.clone();
            async move {
                match client.fork(&parent, None).await {
                    Ok(child) => Tried::Done(Some(child)),
                    // A fork that was made after all is one that nobody asks anything of.
                    Err(error) if is_passing(&error) => Tried::Again,
                    Err(_) => Tried::Done(None),
                }
            }
        });
        if let Some(child) = child.await {
            self.attend(&child);
            self.admit(&child, self.id(4, number), false).await;
        }
    }

    async fn delete(&self, session: &SessionId) {
        let of = session.clone();
        let done = self.until(move |_, store| {
            let of = of.clone();
            async move {
                match store.delete(&of).await {
                    Err(DeleteError::Unavailable { .. }) => Tried::Again,
                    _ => Tried::Done(()),
                }
            }
        });
        // Whatever is answered: a try whose answer was lost may be executed later.
        self.told().deleted.push(session.clone());
        done.await;
    }

    /// An export in which an event is missing is refused, and the whole one is taken.
    async fn import(&self, number: usize) {
        let id = SessionId::from_bits(self.id(5, number));
        let whole = export_of(&id, self.world.plan.place(0));
        for lacks in [Some(2), None] {
            let mut lines = whole.clone();
            lacks.map(|line| lines.remove(line));
            let into = id.clone();
            let taken = self.until(move |_, store| {
                let (into, lines) = (into.clone(), lines.clone());
                async move {
                    match store.replay(&into, lines).await {
                        Err(ReplayError::Unavailable { .. }) => Tried::Again,
                        answer => Tried::Done(answer),
                    }
                }
            });
            let answer = taken.await;
            if answer.is_ok() == lacks.is_some() {
                let words = format!("{id}: an import that lacks {lacks:?} was answered {answer:?}");
                self.world.ledger.violated("log", words);
                return;
            }
        }
    }

    /// Whoever looks after sandboxes says that this one was rebuilt: what still runs there is of the old one.
    async fn rebuild(&self, session: &SessionId, number: usize) {
        let of = session.clone();
        let done = self.until(move |_, store| {
            let of = of.clone();
            async move {
                let row = match store.session(&of).await {
                    Ok(Some(row)) => row,
                    Ok(None) => return Tried::Done(()),
                    Err(_) => return Tried::Again,
                };
                let generation = row.generation + 1;
                let event = NewEvent {
                    id: EventId::derived(&[of.as_str(), &format!("rebuilt {number} {generation}")]),
                    created_ms: 0,
                    body: AttachmentReplaced {
                        location: row.location,
                        generation,
                        reason: "rebuilt".to_owned(),
                    }
                    .into(),
                };
                match store.append(Append::unfenced(of, vec![event])).await {
                    Err(AppendError::Unavailable { .. } | AppendError::Unknown { .. }) => {
                        Tried::Again
                    }
                    // Another change of the place came first: it is not what was to be said.
                    _ => Tried::Done(()),
                }
            }
        });
        done.await;
    }

    async fn change(&self, session: &SessionId, kind: ActionKind, place: Location) {
        if kind == ActionKind::Unpark {
            self.told().unparked.push(session.clone());
        }
        let of = session.clone();
        let done = self.until(move |client, _| {
            let (of, place) = (of.clone(), place.clone());
            async move {
                let result = match kind {
                    ActionKind::Compact => client.compact(&of).await.map(|_| ()),
                    ActionKind::Move => client.relocate_to(&of, place).await.map(|_| ()),
                    ActionKind::Rename => client.rename(&of, "another title".to_owned()).await,
                    ActionKind::Release => client.release(&of, "client").await,
                    _ => client.unpark(&of).await,
                };
                match result {
                    Err(error) if is_passing(&error) => Tried::Again,
                    _ => Tried::Done(()),
                }
            }
        });
        done.await;
    }

    /// Answers each question once, or lets two people answer it.
    async fn approve(self: Arc<Self>, session: SessionId) {
        let mut commits = self.world.commits.subscribe();
        let mut cursor = None;
        while !self.over() {
            commits.borrow_and_update();
            // Deleted. A creation that comes late may make it again, and what is asked then wants its answer, too.
            let page = self.world.database.read(&session, cursor, 10_000);
            if page.is_err() {
                cursor = None;
            }
            for event in page.map(|page| page.events).unwrap_or_default() {
                cursor = Some(event.seq);
                if let EventBody::PermissionAsked(asked) = event.body {
                    for _ in 0..1 + self.world.below(2) {
                        let (clients, session) = (self.clone(), session.clone());
                        let (message, call) = (asked.message.clone(), asked.call.clone());
                        self.spawn(async move { clients.answer(session, message, call).await });
                    }
                }
            }
            if commits.changed().await.is_err() {
                return;
            }
        }
    }

    async fn answer(self: Arc<Self>, session: SessionId, message: MessageId, call: CallId) {
        let think = self.world.below(3_000_000);
        self.world.executor.sleep_micros(think).await;
        let answer = match self.world.below(4) {
            0 => PermissionAnswer::No {
                note: None,
                nobody: false,
            },
            _ => PermissionAnswer::Once,
        };
        let done = self.until(move |client, _| {
            let (session, message) = (session.clone(), message.clone());
            let (call, answer) = (call.clone(), answer.clone());
            async move {
                let answered = client
                    .answer(&session, &message, &call, answer, "client")
                    .await;
                match answered {
                    Err(error) if is_passing(&error) => Tried::Again,
                    _ => Tried::Done(()),
                }
            }
        });
        done.await;
    }

    /// Follows the session through one node after the other, and checks that no event is missed or repeated.
    async fn follow(self: Arc<Self>, session: SessionId, reader: usize) {
        let mut cursor: Option<u64> = None;
        let named = (session.clone(), reader);
        while !self.over() {
            let node = self.world.below(self.world.plan.nodes as u64) as usize;
            let patience = 200_000 + self.world.below(8_000_000);
            let (of, after, clients) = (named.clone(), cursor, self.clone());
            let followed = self.world.on_some_node(node, move |client, _| async move {
                clients.read_on(client, of, after, patience).await
            });
            match followed.await {
                Some(Some(reached)) => cursor = reached,
                // It was deleted.
                Some(None) => return,
                // The node is gone. What it had shown is shown already.
                None => {
                    cursor = self.seen_through(&named);
                    self.world.executor.sleep_micros(200_000).await;
                }
            }
        }
    }

    fn seen_through(&self, reader: &(SessionId, usize)) -> Option<u64> {
        let told = self.told();
        let seen = told.seen.get(reader)?.len() as u64;
        seen.checked_sub(1)
    }

    /// A reader that has not seen the whole log, in words; none when all have.
    pub fn behind(&self) -> Option<String> {
        let told = self.told();
        told.seen.iter().find_map(|((session, reader), seen)| {
            let head = self.world.database.session(session).ok()??.head;
            let whole = seen.len() as u64 > head || told.deleted.contains(session);
            let words = || format!("reader {reader} of {session} saw {} events", seen.len());
            (!whole).then(words)
        })
    }

    async fn read_on(
        self: Arc<Self>,
        client: Client,
        reader: (SessionId, usize),
        after: Option<u64>,
        patience: Micros,
    ) -> Option<Option<u64>> {
        use futures::StreamExt;
        let session = &reader.0;
        let mut items = client.read(session, after);
        let (ledger, database) = (&self.world.ledger, &self.world.database);
        let mut screen = Screen::new(session.clone(), ledger.clone(), database.clone());
        let mut cursor = after;
        let end = self.world.executor.sleep_micros(patience);
        tokio::pin!(end);
        loop {
            let item = tokio::select! {
                biased;
                () = &mut end => return Some(cursor),
                item = items.next() => item,
            };
            match item {
                Some(Ok(Shown::Log(FollowItem::Event(event)))) => {
                    self.saw(&reader, &event, cursor);
                    screen.event(&event);
                    cursor = Some(event.seq);
                }
                Some(Ok(Shown::Log(FollowItem::Synced { .. }))) => {}
                Some(Ok(Shown::Live(item))) => {
                    screen.live(&item);
                    self.dawdle().await;
                }
                Some(Err(ReadError::UnknownSession(_))) => return None,
                // Made again behind this reader's back: another log.
                Some(Err(ReadError::CursorBeyondHead { .. }))
                    if self.told().deleted.contains(session) =>
                {
                    return None;
                }
                Some(Err(ReadError::CursorBeyondHead { head, .. })) => {
                    let words = format!(
                        "{session}: the reader is at {cursor:?}, and the log ends at {head}"
                    );
                    self.world.ledger.violated("P6", words);
                    return None;
                }
                Some(Err(_)) | None => return Some(cursor),
            }
        }
    }

    /// Where texts are long, a reader does something else now and then.
    async fn dawdle(&self) {
        if self.world.plan.model.talk > 100 && self.world.below(60) == 0 {
            let rest = 1_000_000 + self.world.below(2_000_000);
            self.world.executor.sleep_micros(rest).await;
        }
    }

    fn saw(&self, reader: &(SessionId, usize), event: &Event, cursor: Option<u64>) {
        let session = &reader.0;
        // A creation that came late may have made it again.
        if self.told().deleted.contains(session) {
            return;
        }
        let due = cursor.map_or(0, |seq| seq + 1);
        if event.seq != due {
            let words = format!("{session}: seq {} was read where {due} was due", event.seq);
            self.world.ledger.violated("P6", words);
        }
        let mut told = self.told();
        let seen = told.seen.entry(reader.clone()).or_default();
        match seen.get(event.seq as usize) {
            None => seen.push(event.id.clone()),
            Some(before) if *before == event.id => {}
            Some(before) => {
                let words = format!(
                    "{session}: seq {} was {before} and is {}",
                    event.seq, event.id
                );
                drop(told);
                self.world.ledger.violated("P6", words);
            }
        }
    }
}

/// What only takes time needs no leave; `ask` does.
fn rules() -> Rules {
    let mut config = PermissionConfig::default();
    for tool in ["work", "note", "watch", "nothing"] {
        config
            .set(tool, "*", Mode::Allow)
            .expect("invariant: `*` is a pattern of every tool");
    }
    Rules::from_config(&config)
}

/// What some other store exported of a session.
fn export_of(id: &SessionId, location: Location) -> Vec<EventRecord> {
    let made = EventBody::from(SessionCreated {
        title: None,
        location,
        model: model(),
        limits: Limits::steps(6),
        permissions: serde_json::json!({}),
    });
    let renamed = (1..4).map(|n| {
        EventBody::from(SessionRenamed {
            title: format!("title {n}"),
            automatic: false,
        })
    });
    let bodies = std::iter::once(made).chain(renamed).enumerate();
    let events = bodies.map(|(seq, body)| Event {
        id: EventId::derived(&[id.as_str(), &seq.to_string()]),
        session: id.clone(),
        seq: seq as u64,
        epoch: None,
        created_ms: 0,
        body,
    });
    events.map(|event| EventRecord::from(&event)).collect()
}

fn model() -> ModelRef {
    ModelRef {
        provider: PROVIDER.to_owned(),
        model: "m1".to_owned(),
    }
}

fn new_session(id: SessionId, directory: String) -> NewSession {
    NewSession {
        id: Some(id),
        directory,
        model: model(),
        title: None,
        limits: Limits::steps(6),
        permissions: rules(),
    }
}

/// Is it worth asking again?
fn is_passing(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Append(AppendError::Unavailable { .. } | AppendError::Unknown { .. })
            | EngineError::Unconfirmed { .. }
            | EngineError::Read(ReadError::Unavailable { .. })
            | EngineError::Node(_)
    )
}
