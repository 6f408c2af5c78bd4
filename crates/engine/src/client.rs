//! What anybody may do to a session without owning it: create, admit, interrupt, answer, wake. Any process,
//! while another one runs the session.

mod following;
mod reading;
mod riding;

use crate::environment::{Environment, facts};
use crate::error::EngineError;
use crate::peer::owners::Reach;
use crate::peer::{LiveFeed, Peers, UnixPeers, relay};
use futures::StreamExt;
use futures::stream::BoxStream;
use riding::{PATIENCE, Riding};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::event::body::*;
use tenure_core::event::{EventBody, NewEvent};
use tenure_core::id::*;
use tenure_core::model::ModelRef;
use tenure_core::request::{Effort, Media, OutputSchema};
use tenure_store::follow::FollowItem;
use tenure_store::{
    Append, AppendError, Committed, HookOp, Interrupt, Interrupted, ReadError, Store,
};

pub use following::Followed;
pub use reading::Shown;

/// A session to be made.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id; `None` for a fresh one. The same id with another content is refused.
    pub id: Option<SessionId>,
    /// Where its tools run: an absolute, real path.
    pub directory: String,
    /// The model.
    pub model: ModelRef,
    /// Its title; `None` to take one from the first prompt.
    pub title: Option<String>,
    /// What it may take.
    pub limits: Limits,
    /// Permission rules.
    pub permissions: tenure_tools::permission::Rules,
}

/// A prompt to be admitted.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// Its id; repeating it with the same words returns the first admission. `None` for a fresh one.
    pub id: Option<MessageId>,
    /// The words.
    pub text: String,
    /// Attached text files.
    pub files: Vec<AttachedFile>,
    /// Attached images and documents ([`crate::media::attach`]).
    pub media: Vec<Media>,
    /// The form its answer must have.
    pub schema: Option<OutputSchema>,
    /// How hard the model should think about it; none leaves it to the configuration.
    pub effort: Option<Effort>,
    /// When it may enter.
    pub delivery: Delivery,
}

impl Prompt {
    /// A prompt that joins at the next safe boundary.
    pub fn steer(text: impl Into<String>) -> Self {
        Self {
            id: None,
            text: text.into(),
            files: Vec::new(),
            media: Vec::new(),
            schema: None,
            effort: None,
            delivery: Delivery::Steer,
        }
    }

    /// A prompt that waits for the session to be idle.
    pub fn queue(text: impl Into<String>) -> Self {
        Self {
            delivery: Delivery::Queue,
            ..Self::steer(text)
        }
    }
}

/// Proof of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The input.
    pub input: MessageId,
    /// The seq of its admission.
    pub seq: u64,
    /// It was admitted before; nothing was written now.
    pub duplicate: bool,
}

/// A handle on a store for clients.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    env: Arc<dyn Environment>,
    reach: Arc<Reach>,
    patience: Duration,
    /// How long a reader waits for a store that is away.
    reading: Duration,
    /// Rules broken on purpose.
    #[cfg(feature = "testing")]
    mutations: tenure_store::mutation::Mutations,
}

impl Client {
    /// A client of `store` that reaches nodes of this machine by their Unix sockets.
    pub fn new(store: Arc<dyn Store>, env: Arc<dyn Environment>) -> Self {
        Self::with_peers(store, env, Arc::new(UnixPeers::default()))
    }

    /// A client of `store` that reaches its nodes by `peers`.
    pub fn with_peers(
        store: Arc<dyn Store>,
        env: Arc<dyn Environment>,
        peers: Arc<dyn Peers>,
    ) -> Self {
        Self {
            reach: Reach::new(store.clone(), env.clone(), peers),
            store,
            env,
            patience: PATIENCE,
            reading: following::PATIENCE,
            #[cfg(feature = "testing")]
            mutations: tenure_store::mutation::Mutations::default(),
        }
    }

    /// As this, with rules broken on purpose.
    #[cfg(feature = "testing")]
    pub(crate) fn breaking(mut self, mutations: tenure_store::mutation::Mutations) -> Self {
        self.mutations = mutations;
        self
    }

    /// Rides out a store that is away, or loses answers, for `patience` instead of ten seconds. Zero: each write is
    /// tried once.
    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Waits for a store that is away while a session is followed or read for `patience` instead of ten minutes;
    /// [`Duration::MAX`] for as long as it takes. Zero: the first read that fails ends it.
    #[must_use]
    pub fn reading_for(mut self, patience: Duration) -> Self {
        self.reading = patience;
        self
    }

    /// The ways to other nodes.
    pub(crate) fn reach(&self) -> Arc<Reach> {
        self.reach.clone()
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn event(&self, id: EventId, body: impl Into<EventBody>) -> NewEvent {
        NewEvent {
            id,
            created_ms: self.env.now_ms(),
            body: body.into(),
        }
    }

    /// Appends, and rides out what passes: the same events under the same ids, of which the store keeps one.
    /// `again` is the id that a caller repeats the request with.
    async fn append(
        &self,
        session: &SessionId,
        again: Option<&str>,
        events: Vec<NewEvent>,
        ops: Vec<HookOp>,
    ) -> Result<Committed, EngineError> {
        self.ride(session, again, || {
            let mut append = Append::unfenced(session.clone(), events.clone());
            append.ops.clone_from(&ops);
            self.store.append(append)
        })
        .await
    }

    /// Writes under one id until the store says what became of it.
    async fn ride<T, F: Future<Output = Result<T, AppendError>>>(
        &self,
        session: &SessionId,
        again: Option<&str>,
        write: impl FnMut() -> F,
    ) -> Result<T, EngineError> {
        let riding = Riding {
            env: self.env.as_ref(),
            patience: self.patience,
            session,
            again,
        };
        riding.write(write).await
    }

    /// Makes a session. A lost answer is ridden out: the same id with the same content is one session.
    ///
    /// # Errors
    /// `SessionExists` when the id is taken by another; `Unconfirmed` when nobody could say in time whether it was
    /// made.
    pub async fn create(&self, new: NewSession) -> Result<SessionId, EngineError> {
        self.create_requiring(new, Vec::new()).await
    }

    /// As [`Client::create`], for nodes alone that have all of these labels.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub async fn create_requiring(
        &self,
        new: NewSession,
        requires: Vec<String>,
    ) -> Result<SessionId, EngineError> {
        let session = new
            .id
            .unwrap_or_else(|| SessionId::from_bits(self.env.next_bits()));
        let created = SessionCreated {
            title: new.title,
            location: Location {
                requires,
                ..Location::at(new.directory)
            },
            model: new.model,
            limits: new.limits,
            permissions: serde_json::to_value(&new.permissions).unwrap_or_default(),
        };
        // One creation event per session, whoever repeats it.
        let id = EventId::derived(&["session.created", session.as_str()]);
        let created = vec![self.event(id, created)];
        let again = Some(session.as_str());
        match self.append(&session, again, created, Vec::new()).await {
            Ok(_) => Ok(session),
            // Its creation is there, with another content.
            Err(EngineError::Append(AppendError::Conflict { session, .. })) => {
                Err(AppendError::SessionExists(session).into())
            }
            Err(error) => Err(error),
        }
    }

    /// Admits a prompt: durable before anything runs (P2). Repeating an id with the same content returns the first
    /// admission; a lost answer is ridden out that way.
    ///
    /// # Errors
    /// The session does not exist, the text, the media or the schema is not acceptable, `InputExists` when the id was used with another
    /// content, `Unconfirmed` when nobody could say in time whether it was admitted.
    pub async fn admit(
        &self,
        session: &SessionId,
        prompt: Prompt,
    ) -> Result<Admission, EngineError> {
        let input = prompt
            .id
            .clone()
            .unwrap_or_else(|| MessageId::from_bits(self.env.next_bits()));
        crate::media::check(&prompt.media)?;
        prompt.schema.as_ref().map_or(Ok(()), check_schema)?;
        let kind = InputKind::User {
            text: prompt.text,
            files: prompt.files,
            media: prompt.media,
            schema: prompt.schema,
            effort: prompt.effort,
        };
        self.admit_kind(session, input, kind, prompt.delivery).await
    }

    /// Asks for a compaction at the next boundary.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn compact(&self, session: &SessionId) -> Result<Admission, EngineError> {
        let input = MessageId::from_bits(self.env.next_bits());
        self.admit_kind(session, input, InputKind::Compaction, Delivery::Steer)
            .await
    }

    /// Asks to move the session to another folder at the next boundary (R14).
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn relocate(
        &self,
        session: &SessionId,
        directory: String,
    ) -> Result<Admission, EngineError> {
        self.relocate_to(session, Location::at(directory)).await
    }

    /// As [`Client::relocate`], with what the new place requires of a node.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn relocate_to(
        &self,
        session: &SessionId,
        location: Location,
    ) -> Result<Admission, EngineError> {
        let input = MessageId::from_bits(self.env.next_bits());
        self.admit_kind(
            session,
            input,
            InputKind::Move { location },
            Delivery::Steer,
        )
        .await
    }

    async fn admit_kind(
        &self,
        session: &SessionId,
        input: MessageId,
        kind: InputKind,
        delivery: Delivery,
    ) -> Result<Admission, EngineError> {
        let other = match delivery {
            Delivery::Steer => Delivery::Queue,
            Delivery::Queue => Delivery::Steer,
        };
        // Said again in another manner is still said once: the first manner counts.
        for delivery in [delivery, other] {
            let id = EventId::derived(&["input.admitted", session.as_str(), input.as_str()]);
            let admitted = InputAdmitted {
                input: input.clone(),
                kind: kind.clone(),
                delivery,
            };
            let event = self.event(id, admitted);
            let again = Some(input.as_str());
            match self.append(session, again, vec![event], Vec::new()).await {
                Ok(committed) => {
                    self.reach.hint_later(session);
                    return Ok(Admission {
                        input,
                        seq: committed.events.first().map_or(committed.head, |e| e.seq),
                        duplicate: committed.duplicate,
                    });
                }
                Err(EngineError::Append(AppendError::Conflict { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        // Who repeats a request says the same: this is another one, and it must not be dropped in silence.
        Err(EngineError::InputExists {
            session: session.clone(),
            input,
        })
    }

    /// Takes a pending input back.
    ///
    /// # Errors
    /// `InboxChanged` when it is no longer pending.
    pub async fn cancel_input(
        &self,
        session: &SessionId,
        input: &MessageId,
        by: &str,
    ) -> Result<(), EngineError> {
        let id = EventId::derived(&["input.cancelled", session.as_str(), input.as_str()]);
        let event = self.event(
            id,
            InputCancelled {
                input: input.clone(),
                by: by.to_owned(),
            },
        );
        self.append(session, None, vec![event], Vec::new()).await?;
        Ok(())
    }

    /// Stops what runs (R5). The answer comes once the interrupt is durable; a lost one is ridden out.
    ///
    /// # Errors
    /// The session does not exist, the store cannot be written, or `Unconfirmed` when nobody could say in time
    /// whether it was accepted; [`Client::interrupt_as`] repeats it then.
    pub async fn interrupt(
        &self,
        session: &SessionId,
        execution: Option<ExecutionId>,
        by: &str,
    ) -> Result<Interrupted, EngineError> {
        let interrupt = InterruptId::from_bits(self.env.next_bits());
        self.interrupt_as(session, interrupt, execution, by).await
    }

    /// As [`Client::interrupt`], under an id of the caller's: whoever repeats it gets the first answer.
    ///
    /// # Errors
    /// As [`Client::interrupt`].
    pub async fn interrupt_as(
        &self,
        session: &SessionId,
        interrupt: InterruptId,
        execution: Option<ExecutionId>,
        by: &str,
    ) -> Result<Interrupted, EngineError> {
        let asked = Interrupt {
            session: session.clone(),
            interrupt: interrupt.clone(),
            execution,
            by: by.to_owned(),
            now_ms: self.env.now_ms(),
        };
        let interrupted = self
            .ride(session, Some(interrupt.as_str()), || {
                self.store.interrupt(asked.clone())
            })
            .await?;
        if let Interrupted::Accepted { owner, .. } = &interrupted {
            self.reach.hint(session, owner.as_ref()).await;
        }
        Ok(interrupted)
    }

    /// Makes the owner look at the session at once, if it can be reached. A hint: its poll finds out anyway.
    pub async fn wake_owner(&self, session: &SessionId) -> bool {
        self.reach.wake(session).await
    }

    /// Live items of a session, whichever node runs it, across changes of owner. See [`Client::read`] for
    /// them laid against the log.
    pub fn follow_live(&self, session: &SessionId) -> LiveFeed {
        relay::follow(self.reach.clone(), session.clone())
    }

    /// Wakes parked inputs.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn unpark(&self, session: &SessionId) -> Result<(), EngineError> {
        self.append(session, None, Vec::new(), vec![HookOp::Unpark])
            .await?;
        Ok(())
    }

    /// Ends a quarantine.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn release(&self, session: &SessionId, by: &str) -> Result<(), EngineError> {
        let id = facts(self.env.as_ref()).event();
        let event = self.event(id, SessionReleased { by: by.to_owned() });
        self.append(
            session,
            None,
            vec![event],
            vec![HookOp::Unquarantine, HookOp::Unpark],
        )
        .await?;
        Ok(())
    }

    /// Answers a permission question; the first answer counts, and the same answer again is that one. Only an answer
    /// that comes before its call is settled is stored (R11).
    ///
    /// # Errors
    /// `AlreadyAnswered` when another answer came first, `NotAsked` when the call does not wait for one.
    pub async fn answer(
        &self,
        session: &SessionId,
        message: &MessageId,
        call: &CallId,
        answer: PermissionAnswer,
        by: &str,
    ) -> Result<(), EngineError> {
        let id = EventId::derived(&[
            "permission.answered",
            session.as_str(),
            message.as_str(),
            call.as_str(),
        ]);
        let event = self.event(
            id,
            PermissionAnswered {
                message: message.clone(),
                call: call.clone(),
                answer,
                by: by.to_owned(),
            },
        );
        let mut state = crate::load::load(self.store.as_ref(), session).await?.state;
        loop {
            let step = state.turn.step.as_ref();
            let waits = step.is_some_and(|step| step.message == *message && step.asks(call));
            // Where nothing waits, it may still be the answer that was given before.
            let seen = HookOp::HeadAt {
                seq: state.cursor.filter(|_| waits),
            };
            let appended = self
                .append(session, None, vec![event.clone()], vec![seen])
                .await;
            match appended {
                Ok(_) => {
                    self.reach.hint_later(session);
                    return Ok(());
                }
                Err(EngineError::Append(AppendError::Conflict { .. })) => {
                    return Err(EngineError::AlreadyAnswered {
                        session: session.clone(),
                    });
                }
                Err(EngineError::Append(AppendError::HeadMoved { .. })) if waits => {
                    crate::load::catch_up(self.store.as_ref(), session, &mut state).await?;
                }
                Err(EngineError::Append(AppendError::HeadMoved { .. })) => {
                    return Err(EngineError::NotAsked {
                        session: session.clone(),
                        call: call.clone(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Another model from the next step on.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn select_model(
        &self,
        session: &SessionId,
        model: ModelRef,
    ) -> Result<(), EngineError> {
        self.setting(session, ModelSelected { model }).await
    }

    /// The limits in force.
    ///
    /// # Errors
    /// The session does not exist, or its log cannot be read.
    pub async fn limits(&self, session: &SessionId) -> Result<Limits, EngineError> {
        let loaded = crate::load::load(self.store.as_ref(), session).await?;
        Ok(loaded.state.settings.map(|s| s.limits).unwrap_or_default())
    }

    /// Other limits from the next request on; a longer time counts at once.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn set_limits(&self, session: &SessionId, limits: Limits) -> Result<(), EngineError> {
        self.setting(session, LimitsChanged { limits }).await
    }

    /// Other permission rules from the next call on.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn set_permissions(
        &self,
        session: &SessionId,
        rules: &tenure_tools::permission::Rules,
    ) -> Result<(), EngineError> {
        let permissions = serde_json::to_value(rules).unwrap_or_default();
        self.setting(session, PermissionsChanged { permissions })
            .await
    }

    /// Another title.
    ///
    /// # Errors
    /// The session does not exist.
    pub async fn rename(&self, session: &SessionId, title: String) -> Result<(), EngineError> {
        let renamed = SessionRenamed {
            title,
            automatic: false,
        };
        self.setting(session, renamed).await
    }

    async fn setting(
        &self,
        session: &SessionId,
        body: impl Into<EventBody>,
    ) -> Result<(), EngineError> {
        let id = facts(self.env.as_ref()).event();
        self.append(session, None, vec![self.event(id, body)], Vec::new())
            .await?;
        Ok(())
    }

    /// Makes a session that shares this one's log up to `through` (none: its head).
    ///
    /// # Errors
    /// The session does not exist, or `through` is beyond its head.
    pub async fn fork(
        &self,
        parent: &SessionId,
        through: Option<u64>,
    ) -> Result<SessionId, EngineError> {
        let through = match through {
            Some(through) => through,
            None => {
                let row = self.store.session(parent).await?;
                row.ok_or_else(|| ReadError::UnknownSession(parent.clone()))?
                    .head
            }
        };
        let child = SessionId::from_bits(self.env.next_bits());
        let id = facts(self.env.as_ref()).event();
        let forked = SessionForked {
            parent: parent.clone(),
            through,
        };
        let event = self.event(id, forked);
        self.ride(parent, None, || {
            self.store.fork(parent, through, &child, event.clone())
        })
        .await?;
        Ok(child)
    }

    /// The session's events from `after` on, for ever (P6).
    ///
    /// A store that is away ([`ReadError::Unavailable`]) after it has answered once is asked again from the last event
    /// delivered, with growing waits of up to two seconds, for ten minutes of one absence or what
    /// [`Client::reading_for`] says: no event is missed, none comes twice. Then, and at once for every other error and
    /// for a store that does not answer the first read, the error ends the stream. Whoever wants to be told of an
    /// absence uses [`Client::follow_telling`]; here it is a line in the log. Dropping the stream at any point loses
    /// nothing; follow again from the last seq seen.
    pub fn follow(
        &self,
        session: &SessionId,
        after: Option<u64>,
    ) -> BoxStream<'static, Result<FollowItem, ReadError>> {
        let followed = session.clone();
        self.follow_telling(session, after)
            .filter_map(move |item| {
                let item = match item {
                    Ok(Followed::Item(item)) => Some(Ok(item)),
                    Ok(Followed::Away { reason }) => {
                        tracing::warn!(session = %followed, reason, "the store is away; a reader waits for it");
                        None
                    }
                    Ok(Followed::Back { away_ms }) => {
                        tracing::warn!(session = %followed, away_ms, "the store is back; a reader goes on");
                        None
                    }
                    Err(error) => Some(Err(error)),
                };
                std::future::ready(item)
            })
            .boxed()
    }
}

/// The longest JSON Schema of an answer, in bytes.
const MAX_SCHEMA: usize = 256 * 1024;

fn check_schema(schema: &OutputSchema) -> Result<(), EngineError> {
    let refuse = |reason: &str| {
        Err(EngineError::Schema {
            reason: reason.to_owned(),
        })
    };
    if !schema.schema.is_object() {
        return refuse("give a JSON Schema that is a JSON object");
    }
    if schema.schema.to_string().len() > MAX_SCHEMA {
        return refuse("it is longer than 256 KiB; give a smaller one");
    }
    Ok(())
}
