//! Follows one session on behalf of a person or a program: shows what happens, asks what is to be asked, and
//! turns signals into durable wishes.

mod absence;
mod questions;
mod reader;
mod signals;
mod unasked;
mod unserved;

use crate::commands::show::each_event;
use crate::exit::{CliError, CliResult, Kind};
use crate::render::escape::safe_line;
use crate::render::json::ErrorWords;
use crate::render::view::View;
use absence::Owed;
use futures::StreamExt;
use futures::future::BoxFuture;
use questions::Questions;
use reader::Reader;
use signals::Signal;
pub use signals::Signals;
use std::time::Duration;
use tenure_core::budget;
use tenure_core::event::body::InterruptReason;
use tenure_core::event::{Event, EventBody};
use tenure_core::{Incarnation, MessageId, SessionId};
use tenure_engine::{
    Client, Engine, EngineError, Followed, LiveFeed, LiveItem, LiveTracker, Outcome,
    OutcomeTracker, Owned,
};
use tenure_store::{FollowItem, Interrupted, ReadError, SessionRow, SessionState, Store};
use tokio::sync::broadcast;
use unasked::Unasked;
use unserved::Unserved;

/// When to stop following.
#[derive(Debug, Clone)]
pub enum Until {
    /// The work on this input has ended.
    Input(MessageId),
    /// The session has nothing more to do.
    Idle,
    /// Never by itself.
    Forever,
}

/// Why following ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The work ended so.
    Outcome(Outcome),
    /// Nothing was, or is, to be done.
    Idle,
    /// Whoever follows wants to leave; the work is not ended.
    Left,
    /// The terminal has gone.
    HangUp,
    /// The process is to end.
    Terminate,
    /// Whoever followed left, and this node goes on with the work.
    Elsewhere(String),
}

/// What to follow, and how.
pub struct Follow<'a> {
    /// The store.
    pub client: &'a Client,
    /// The engine, when this process may run the session.
    pub engine: Option<&'a Engine>,
    /// The session.
    pub session: SessionId,
    /// Only events after this seq.
    pub after: Option<u64>,
    /// When to stop.
    pub until: Until,
    /// Questions may be asked on the terminal.
    pub interactive: bool,
}

/// How long a store is waited for, that may not answer at all, where that keeps signals waiting.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How often the status line moves.
const TICK: Duration = Duration::from_millis(120);

impl Follow<'_> {
    /// Follows to the end. A store that is away in the middle is told, and waited for as the client does. Cancellation:
    /// dropping it stops following; the session goes on.
    ///
    /// # Errors
    /// The log cannot be read: at the start, or for a reason that no waiting mends.
    pub async fn run(self, view: &mut View) -> CliResult<End> {
        let mut signals = Signals::new()?;
        view.begins_after(self.after);
        let mut items = self.client.follow_telling(&self.session, self.after);
        let mut live = self.live(view);
        let wants_live = view.wants_live();
        let mut results = self.engine.map(Engine::results);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut again = tokio::time::interval(absence::AGAIN);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut unserved = Unserved::new();
        // Who only looks on does so for a reader; work goes on without one.
        let reader = Reader::new(self.engine.is_none());
        let prompt = match &self.until {
            Until::Input(input) => Some(input.clone()),
            _ => None,
        };
        let mut state = Watching {
            tracker: prompt.clone().map(OutcomeTracker::new),
            questions: Questions::new(self.interactive),
            unasked: Unasked::new(!self.interactive, prompt),
            interrupted: false,
            stopping: None,
            looking: None,
            owed: Owed::default(),
            seen: self.after,
            ended: None,
            idle_at: None,
            shown: LiveTracker::new(),
        };
        let found = state.unasked.found(self.client, &self.session, self.after);
        found.await?;
        if let Some(engine) = self.engine {
            engine.run(&self.session);
        }
        loop {
            tokio::select! {
                biased;
                signal = signals.next() => {
                    if let Some(end) = self.signal(signal, &mut state, view).await? {
                        return Ok(end);
                    }
                }
                item = items.next() => {
                    let Some(item) = item else {
                        return Err(CliError::failed("the session's log ended"));
                    };
                    let Some(item) = self.told(item?, &mut state, view) else {
                        continue;
                    };
                    if let FollowItem::Event(event) = &item {
                        unserved.moved();
                        live.saw(event);
                        state.shown.event(event).iter().for_each(|marker| view.live(marker));
                    }
                    if let Some(end) = self.item(item, &mut state, view).await? {
                        return Ok(end);
                    }
                    while let Some(item) = state.shown.released() {
                        view.live(&item);
                    }
                }
                () = reader.gone() => return Ok(End::Left),
                why = outdated(self.engine) => return Err(too_old(why)),
                stopped = next_of(&mut state.stopping) => {
                    stopped?;
                }
                answer = state.questions.answered() => {
                    self.answer(answer, &mut state, view).await?;
                }
                item = live.next() => {
                    state.shown.live(item).iter().for_each(|item| view.live(item));
                }
                result = next_result(&mut results, &self.session) => {
                    // Somebody else runs it: its live items come from there.
                    if wants_live && matches!(result, Owned::Held { .. }) {
                        live.remote = Some(self.client.follow_live(&self.session));
                    }
                    if let Some(end) = self.result(&result, &mut state).await? {
                        return Ok(end);
                    }
                }
                _ = again.tick(), if state.owed.is_due() => {
                    if let Some(end) = self.owed(&mut state, view).await? {
                        return Ok(end);
                    }
                }
                // Not awaited here: a store that does not answer would keep signals waiting.
                () = unserved.due(), if view.is_synced() && state.looking.is_none() => {
                    state.looking = Some(self.look());
                }
                row = next_of(&mut state.looking) => {
                    self.looked(row, &mut unserved, &mut state, view)?;
                }
                _ = ticks.tick(), if view.ticks() => view.tick(),
            }
        }
    }

    /// Says that the store is away or back; any other item is given on.
    fn told(&self, item: Followed, state: &mut Watching, view: &mut View) -> Option<FollowItem> {
        match item {
            Followed::Item(item) => {
                back(state, view);
                return Some(item);
            }
            Followed::Away { reason } => self.away(&reason, state, view),
            Followed::Back { .. } => back(state, view),
        }
        None
    }

    fn away(&self, reason: &str, state: &mut Watching, view: &mut View) {
        if let Some(told) = state.owed.away(&self.session, reason) {
            view.notice(&told);
        }
    }

    /// Looks at a session of which nothing is seen: is it served, and is the store there at all?
    fn look(&self) -> BoxFuture<'static, Result<Option<SessionRow>, ReadError>> {
        let (store, session) = (self.client.store().clone(), self.session.clone());
        Box::pin(async move { store.session(&session).await })
    }

    fn looked(
        &self,
        row: Result<Option<SessionRow>, ReadError>,
        unserved: &mut Unserved,
        state: &mut Watching,
        view: &mut View,
    ) -> CliResult {
        match row {
            Ok(row) => {
                back(state, view);
                if let Some(reason) = unserved.news(row) {
                    view.notice(&waits(&self.session, &reason));
                }
            }
            Err(ReadError::Unavailable { reason }) => self.away(&reason, state, view),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Does what could not be done while the store was away. Gives the end, if that is one.
    async fn owed(&self, state: &mut Watching, view: &mut View) -> CliResult<Option<End>> {
        if let Some(answer) = state.owed.answer.take() {
            self.answer(answer, state, view).await?;
        }
        if std::mem::take(&mut state.owed.questions) {
            self.ask(state, view).await?;
        }
        if std::mem::take(&mut state.owed.rest) {
            return self.idle_now(state).await;
        }
        Ok(None)
    }

    fn live(&self, view: &View) -> Live {
        let local = self.engine.filter(|_| view.wants_live());
        let remote = (view.wants_live() && self.engine.is_none())
            .then(|| self.client.follow_live(&self.session));
        Live {
            local: local.map(|engine| (engine.clone(), engine.live(&self.session))),
            remote,
        }
    }

    async fn item(
        &self,
        item: FollowItem,
        state: &mut Watching,
        view: &mut View,
    ) -> CliResult<Option<End>> {
        let event = match item {
            FollowItem::Synced { head } => {
                view.synced(head);
                state.questions.synced();
                self.ask(state, view).await?;
                state.seen = state.seen.max(head);
                return match self.until {
                    Until::Idle => self.idle_now(state).await,
                    _ => Ok(None),
                };
            }
            FollowItem::Event(event) => event,
        };
        view.event(&event);
        state.seen = Some(event.seq);
        if view.is_gone() && self.engine.is_none() {
            return Ok(Some(End::Left));
        }
        if state.questions.event(&event.body) {
            view.pause(state.questions.asking());
        }
        state.unasked.event(&event.body);
        self.ask(state, view).await?;
        match &self.until {
            Until::Input(_) => {
                let outcome = state.tracker.as_mut().and_then(|t| t.on(&event));
                Ok(outcome.map(End::Outcome))
            }
            Until::Idle => {
                let outcome = terminal(&event);
                let due = outcome.is_some() || state.idle_at.is_some_and(|head| event.seq >= head);
                // Who set the work going is told of its end, however quickly that came; who looks on, of what it sees.
                if outcome.is_some() && (view.is_synced() || self.engine.is_some()) {
                    state.ended = outcome;
                }
                match due && view.is_synced() {
                    true => self.idle_now(state).await,
                    false => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }

    /// The end, when nothing is left to wait for and all that was written is shown.
    async fn idle_now(&self, state: &mut Watching) -> CliResult<Option<End>> {
        state.idle_at = None;
        // A store that does not answer must not keep signals waiting for long.
        let row = match tokio::time::timeout(ANSWERS_WITHIN, self.look()).await {
            Err(_) | Ok(Err(ReadError::Unavailable { .. })) => {
                state.owed.rest = true;
                return Ok(None);
            }
            Ok(row) => row?,
        };
        if let Some(row) = row {
            if has_more(&row.state) {
                return Ok(None);
            }
            if state.seen.is_none_or(|seen| seen < row.head) {
                // It came to rest while its log was read.
                state.idle_at = Some(row.head);
                return Ok(None);
            }
        }
        let ended = state.ended.take();
        Ok(Some(ended.map_or(End::Idle, End::Outcome)))
    }

    /// What came of an attempt to run the session here, where the log alone does not tell.
    async fn result(&self, result: &Owned, state: &mut Watching) -> CliResult<Option<End>> {
        match (result, &self.until) {
            (Owned::Quarantined { reason }, Until::Input(_) | Until::Idle) => {
                let error = tenure_core::SessionError::new("quarantined", reason.clone());
                Ok(Some(End::Outcome(Outcome::Quarantined(error))))
            }
            (Owned::Idle, Until::Idle) if !state.interrupted => self.idle_now(state).await,
            _ => Ok(None),
        }
    }

    async fn signal(
        &self,
        signal: Signal,
        state: &mut Watching,
        view: &mut View,
    ) -> CliResult<Option<End>> {
        match signal {
            Signal::HangUp => Ok(Some(End::HangUp)),
            Signal::Terminate => Ok(Some(End::Terminate)),
            // Who only looks on leaves; who runs the work stops it first.
            Signal::Interrupt if state.interrupted || self.engine.is_none() => Ok(Some(End::Left)),
            Signal::Interrupt => {
                state.interrupted = true;
                state.questions.take_away();
                state.owed.answer = None;
                view.pause(false);
                view.interrupting();
                // Not awaited here: where the store is away, a second Ctrl-C leaves all the same.
                state.stopping = Some(absence::interrupt(self.client, &self.session));
                Ok(None)
            }
        }
    }

    /// Puts the next question on the terminal; without one, settles what is asked.
    async fn ask(&self, state: &mut Watching, view: &mut View) -> CliResult {
        if state.interrupted || !view.is_synced() || state.owed.answer.is_some() {
            return Ok(());
        }
        if state.questions.ask() {
            view.pause(true);
        }
        let settled = state.unasked.settle(self.client, &self.session, view);
        state.owed.questions = !settled.await?;
        Ok(())
    }

    async fn answer(
        &self,
        answer: questions::Answered,
        state: &mut Watching,
        view: &mut View,
    ) -> CliResult {
        view.pause(false);
        let Some(given) = &answer.answer else {
            view.aside("the terminal cannot be read; answer the question elsewhere");
            return Ok(());
        };
        let by = "the terminal";
        match self
            .client
            .answer(
                &self.session,
                &answer.message,
                &answer.call,
                given.clone(),
                by,
            )
            .await
        {
            Ok(()) => {}
            Err(EngineError::AlreadyAnswered { .. }) => {
                view.aside("somebody else answered that question first");
            }
            Err(EngineError::NotAsked { .. }) => {
                view.aside("that question is over: its call was settled before the answer came");
            }
            Err(error) if absence::may_pass(&error) => {
                state.owed.answer = Some(answer);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.ask(state, view).await
    }
}

fn back(state: &mut Watching, view: &mut View) {
    if let Some(told) = state.owed.back() {
        view.notice(&told);
    }
}

/// No node serves the session: what is said of it.
pub fn waits(session: &SessionId, reason: &str) -> String {
    let reason = safe_line(reason);
    format!(
        "{session} waits: {reason}; start `tenure node` where it can run (`tenure nodes` shows what each serves)"
    )
}

/// Shows what was written since following ended.
///
/// # Errors
/// The log cannot be read.
pub async fn catch_up(store: &dyn Store, session: &SessionId, view: &mut View) -> CliResult {
    let Some(row) = store.session(session).await? else {
        return Ok(());
    };
    each_event(store, &row, view.seen(), |event| {
        view.event(&event);
        Ok(())
    })
    .await
}

/// How a session ended for somebody who leaves after an interrupt: the work may be over already.
pub fn left_behind(row: Option<&tenure_store::SessionRow>, own: &Incarnation) -> End {
    let Some(row) = row else {
        return End::Left;
    };
    match (&row.state, row.last_outcome.as_deref()) {
        (SessionState::Idle | SessionState::Parked { .. }, Some("interrupted")) => {
            End::Outcome(Outcome::Interrupted(InterruptReason::User))
        }
        (SessionState::Idle | SessionState::Parked { .. }, Some("succeeded")) => {
            End::Outcome(Outcome::Succeeded)
        }
        (SessionState::Quarantined { reason }, _) => End::Outcome(Outcome::Quarantined(
            tenure_core::SessionError::new("quarantined", reason.clone()),
        )),
        (SessionState::Owned { owner, node, .. }, _) if owner != own => {
            End::Elsewhere(node.clone())
        }
        _ => End::Left,
    }
}

struct Watching {
    tracker: Option<OutcomeTracker>,
    questions: Questions,
    unasked: Unasked,
    interrupted: bool,
    /// An interrupt that the store has not confirmed yet.
    stopping: Option<BoxFuture<'static, Result<Interrupted, EngineError>>>,
    /// A look at its row.
    looking: Option<BoxFuture<'static, Result<Option<SessionRow>, ReadError>>>,
    owed: Owed,
    /// The last seq that was shown.
    seen: Option<u64>,
    /// How the last work seen ended.
    ended: Option<Outcome>,
    /// The session rests; what it wrote up to here is still to be shown.
    idle_at: Option<u64>,
    /// What was shown ahead of the log.
    shown: LiveTracker,
}

/// Is there anything left to wait for?
fn has_more(state: &SessionState) -> bool {
    matches!(
        state,
        SessionState::Owned { .. } | SessionState::Claimable { .. } | SessionState::Waiting { .. }
    )
}

/// The outcome of an execution that this event ends.
fn terminal(event: &Event) -> Option<Outcome> {
    match &event.body {
        EventBody::ExecutionSucceeded(_) => Some(Outcome::Succeeded),
        // `session.quarantined` follows in the same commit and says the same.
        EventBody::ExecutionFailed(e) if e.error.kind == "quarantined" => {
            Some(Outcome::Quarantined(e.error.clone()))
        }
        EventBody::ExecutionFailed(e) => Some(Outcome::Failed(e.error.clone())),
        EventBody::ExecutionInterrupted(e) => Some(Outcome::Interrupted(e.reason)),
        EventBody::SessionQuarantined(e) => Some(Outcome::Quarantined(e.error.clone())),
        _ => None,
    }
}

/// Live items of this process's own run, or of another's.
struct Live {
    local: Option<(Engine, broadcast::Receiver<LiveItem>)>,
    remote: Option<LiveFeed>,
}

impl Live {
    /// An event that was shown: it may tell of a new owner.
    fn saw(&self, event: &Event) {
        if let Some(remote) = &self.remote {
            remote.saw(event);
        }
    }

    /// The next one. Cancellation safe.
    async fn next(&mut self) -> LiveItem {
        loop {
            tokio::select! {
                item = from_here(&mut self.local) => return item,
                item = from_there(&mut self.remote) => match item {
                    // What runs here now comes from here.
                    Some(_) if self.local.as_ref().is_some_and(|(engine, _)| engine.running() > 0) => {}
                    Some(item) => return item,
                    None => self.remote = None,
                },
            }
        }
    }
}

async fn from_here(local: &mut Option<(Engine, broadcast::Receiver<LiveItem>)>) -> LiveItem {
    let Some((_, receiver)) = local else {
        return std::future::pending().await;
    };
    match receiver.recv().await {
        Ok(item) => item,
        Err(broadcast::error::RecvError::Lagged(_)) => LiveItem::Lagged,
        Err(broadcast::error::RecvError::Closed) => {
            *local = None;
            std::future::pending().await
        }
    }
}

async fn from_there(remote: &mut Option<LiveFeed>) -> Option<LiveItem> {
    match remote {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

/// Why this process's own node has stopped for good. Cancellation safe.
async fn outdated(engine: Option<&Engine>) -> String {
    match engine {
        Some(engine) => engine.outdated().await,
        None => std::future::pending().await,
    }
}

/// A newer version of this program has changed the store.
pub fn too_old(why: String) -> CliError {
    CliError::failed(why).hint("nothing more is written by this process; start the newer version")
}

/// What came of what the store was asked, if anything was. Cancellation safe.
async fn next_of<T>(asked: &mut Option<BoxFuture<'static, T>>) -> T {
    let Some(answer) = asked else {
        return std::future::pending().await;
    };
    let told = answer.await;
    *asked = None;
    told
}

async fn next_result(
    results: &mut Option<broadcast::Receiver<(SessionId, Owned)>>,
    session: &SessionId,
) -> Owned {
    loop {
        let Some(receiver) = results else {
            return std::future::pending().await;
        };
        match receiver.recv().await {
            Ok((of, owned)) if &of == session => return owned,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => *results = None,
        }
    }
}

/// How an end is told to a program: a word, the exit code's kind, and why. `input` is the prompt that was given.
pub fn told(
    end: &End,
    session: &SessionId,
    input: Option<&MessageId>,
) -> (&'static str, Option<CliError>, Option<ErrorWords>) {
    let words = |kind: &str, message: &str| {
        Some(ErrorWords {
            kind: kind.to_owned(),
            message: message.to_owned(),
        })
    };
    match end {
        End::Outcome(Outcome::Succeeded) => ("succeeded", None, None),
        End::Outcome(Outcome::Failed(error)) if error.kind == budget::KIND => {
            let told = CliError::new(Kind::Budget, error.message.clone()).hint(format!(
                "`tenure limits {session}` shows and changes what it may take; a prompt that waits is delivered by \
                 `tenure resume {session}`"
            ));
            ("failed", Some(told), words(&error.kind, &error.message))
        }
        End::Outcome(Outcome::Failed(error)) => {
            let mut told = CliError::failed(error.message.clone());
            match error.kind.as_str() {
                "auth" | "permission" | "unsent" | "timeout" => {
                    told = told.hint("`tenure doctor` checks the endpoint and its key");
                }
                "not_found" => {
                    told = told.hint(
                        "check the model's name (`tenure models`) and base_url (`tenure doctor` tries it)",
                    );
                }
                _ => {}
            }
            let told = told.hint(format!("`tenure show {session}` has all of it"));
            ("failed", Some(told), words(&error.kind, &error.message))
        }
        End::Outcome(Outcome::Interrupted(reason)) => {
            let message = match reason {
                InterruptReason::User => "interrupted",
                InterruptReason::Shutdown => "interrupted: the node that ran it shut down",
                InterruptReason::Superseded => "interrupted: replaced by other work",
            };
            let error = CliError::new(Kind::Interrupted, message).hint(format!(
                "`tenure run --session {session} \"…\"` goes on from here"
            ));
            ("interrupted", Some(error), words("interrupted", message))
        }
        End::Outcome(Outcome::StoppedBeforeStart) => {
            let message = "stopped before the prompt was delivered; it still waits";
            let input = input.map_or("INPUT", MessageId::as_str);
            let error = CliError::new(Kind::Interrupted, message).hint(format!(
                "`tenure resume {session}` delivers it, `tenure cancel {session} {input}` takes it back"
            ));
            (
                "stopped_before_start",
                Some(error),
                words("interrupted", message),
            )
        }
        End::Outcome(Outcome::Cancelled { by }) => {
            let message = format!("the prompt was taken back by {by} before it was delivered");
            (
                "cancelled",
                Some(CliError::new(Kind::Interrupted, message.clone())),
                words("cancelled", &message),
            )
        }
        End::Outcome(Outcome::Quarantined(error)) => (
            "quarantined",
            Some(
                CliError::new(
                    Kind::Quarantined,
                    format!("the session is set aside: {}", error.message),
                )
                .hint(format!("`tenure show {session}` tells how it came to that"))
                .hint(format!("`tenure release {session}` lets it go on")),
            ),
            words(&error.kind, &error.message),
        ),
        End::Idle => ("idle", None, None),
        End::Left | End::Terminate => {
            let message = "left; the session is free to be taken over";
            let error = CliError::new(Kind::Interrupted, message)
                .hint(format!("`tenure resume {session}` goes on with it"));
            ("left", Some(error), words("left", message))
        }
        End::Elsewhere(node) => {
            let message = format!("left; node `{}` goes on with the session", safe_line(node));
            let error = CliError::new(Kind::Interrupted, message.clone()).hint(format!(
                "`tenure log --follow {session}` shows it, `tenure interrupt {session}` stops it"
            ));
            ("left", Some(error), words("left", &message))
        }
        End::HangUp => ("detached", None, None),
    }
}
