//! One tenure over one session: acquire, recover, drain under supervision, settle, let go.
//!
//! The supervisor may drop the drain at any await: an interrupt, a lost lease or a panic does exactly that.
//! What is then open is read from the turn's memory, which only commits change, and settled in one commit.

pub(crate) mod handing;
pub(crate) mod isolation;

use crate::engine::Shared;
use crate::engine::board::Standing;
use crate::engine::leftovers;
use crate::engine::stopped::Trace;
use crate::error::{DrainError, EngineError};
use crate::load;
use crate::node::Life;
use crate::recover::quiet::{LOCK_DELAY, Quiet};
use crate::recover::{self, Recovered};
use crate::runner::budget::Timed;
use crate::runner::tools::ToolRunner;
use crate::runner::{DrainEnd, Runner};
use crate::writer::{Batch, Writer};
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::claim::{ISOLATE_FROM, MAX_ATTEMPTS};
use tenure_core::error::SessionError;
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{CallId, Incarnation, MessageId, SessionId};
use tenure_core::message::Entry;
use tenure_core::session::SessionState;
use tenure_core::turn::settle::{Cause, settle};
use tenure_store::{Acquire, AppendError, HookOp, SessionRow, SessionState as Claim, Tenure};

/// How long an interrupted tool has to kill its processes and settle by itself: the guardian's own grace
/// (200 ms at most) and a little.
const TOOL_GRACE: Duration = Duration::from_millis(260);
/// How long a hand-over waits for what stopped calls started; then the successor is told to wait instead.
const GONE_WITHIN: Duration = Duration::from_secs(4);
/// Events back from the head within which a recovery counts as recent.
const RECENT: u64 = 512;
/// The wait between tries to settle while the store cannot be written.
const SETTLE_RETRY: Duration = Duration::from_millis(500);

/// What came of an attempt to run a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owned {
    /// It was run; nothing is eligible now, or the execution ended.
    Ended,
    /// Nothing was to be done.
    Idle,
    /// Somebody alive runs it.
    Held {
        /// Who.
        owner: Incarnation,
    },
    /// It is set aside.
    Quarantined {
        /// Why.
        reason: String,
    },
    /// This node lost it, or may not take it now.
    Lost,
    /// This node does not serve its location, or cannot ask its model.
    Unplaceable {
        /// What it needs.
        reason: String,
    },
    /// It runs in a process of its own only (R8): one was started, or will be when that can be tried again.
    Isolated,
}

/// Takes the session if nobody alive has it, and runs it until nothing is eligible.
pub(crate) async fn own(shared: &Arc<Shared>, session: &SessionId) -> Result<Owned, EngineError> {
    let life = shared.node.life();
    // Hundreds may come at once. The semaphore is never closed.
    let Ok(place) = shared.starts.acquire().await else {
        return Ok(Owned::Lost);
    };
    if life.fenced.is_cancelled() || !shared.node.may_start() {
        return Ok(Owned::Lost);
    }
    let row = shared.store.session(session).await?;
    if row.as_ref().is_some_and(|row| isolated(shared, row)) {
        return Ok(Owned::Isolated);
    }
    // Given by a hand-over: there is nobody to take it from.
    let given = row.is_some_and(
        |row| matches!(row.state, Claim::Owned { owner, .. } if owner == life.incarnation),
    );
    let tenure = match take(shared, session, &life.incarnation, given).await? {
        Acquire::Acquired(tenure) => tenure,
        Acquire::Held { owner, .. } => return Ok(Owned::Held { owner }),
        Acquire::Quarantined { reason } => return Ok(Owned::Quarantined { reason }),
        Acquire::Idle => return Ok(Owned::Idle),
        Acquire::NotAllowed => return Ok(Owned::Lost),
        Acquire::Unplaceable { reason } => return Ok(Owned::Unplaceable { reason }),
    };
    tracing::info!(%session, epoch = tenure.fence.epoch, phase = ?tenure.phase, "took tenure");
    if let Some(from) = tenure.taken_from.as_ref().filter(|_| !tenure.handed_over) {
        let attempts = tenure.attempts;
        tracing::warn!(%session, %from, attempts, "taken over from a node that is gone");
    }
    shared.holds(session, tenure.fence.epoch);
    let writer = Writer::new(
        shared.store.clone(),
        shared.config.env.clone(),
        session.clone(),
        tenure.fence.clone(),
    )
    .patient_until(life.fenced.clone(), shared.unwritten.clone());
    let mut tenure = tenure;
    if is_for_alone(shared, &tenure) {
        match let_go_alone(shared, session, &writer).await? {
            LetGo::Done => return Ok(Owned::Isolated),
            LetGo::Lost => return Ok(Owned::Lost),
            LetGo::Cancelling => tenure.phase = Phase::Cancelling,
        }
    }
    let mut place = Some(place);
    // The claim is ours: whatever goes wrong from here on, it must end settled, lost or set aside.
    loop {
        match begin(shared, session, life.clone(), &tenure, &writer).await {
            Ok((mut runner, true)) => {
                drop(place);
                return runner.supervise().await;
            }
            Ok((_, false)) => return Ok(Owned::Ended),
            Err(DrainError::Lost) => return Ok(Owned::Lost),
            // An interrupt between the takeover and its settlement: that decides now.
            Err(DrainError::Cancelling) => {
                tenure.phase = Phase::Cancelling;
                continue;
            }
            Err(DrainError::LookAgain) => continue,
            Err(DrainError::Store(error)) if error.is_unavailable() => {
                tracing::error!(%session, %error, "cannot begin yet");
            }
            Err(DrainError::Store(error)) => return set_aside(&writer, &error).await,
        }
        drop(place.take());
        tokio::select! {
            biased;
            () = life.fenced.cancelled() => return Ok(Owned::Lost),
            () = shared.config.env.sleep(SETTLE_RETRY) => {}
        }
    }
}

/// Acquires. A session runs once in a process, so a claim of this very node has nobody behind it: it is adopted, at
/// once where it was seen to be `given` to this node.
async fn take(
    shared: &Arc<Shared>,
    session: &SessionId,
    incarnation: &Incarnation,
    given: bool,
) -> Result<Acquire, AppendError> {
    let store = shared.store.as_ref();
    if given {
        return store.adopt(session, incarnation).await;
    }
    match store.acquire(session, incarnation, false).await? {
        Acquire::Held { owner, .. } if &owner == incarnation => {
            store.adopt(session, incarnation).await
        }
        other => Ok(other),
    }
}

/// After two charges a session runs alone in its own process, when this one has others (R8): then it is not taken.
fn isolated(shared: &Arc<Shared>, row: &SessionRow) -> bool {
    if shared.config.isolate.is_none() {
        return false;
    }
    let session = &row.id;
    // The charge of the takeover itself comes on top of what is stored.
    let free = matches!(row.state, Claim::Claimable { .. });
    // A process of this node's serves no more than this node does.
    let served = shared
        .config
        .serves
        .check(&row.location, &row.model)
        .is_ok();
    if !(free && served && row.attempts > 0 && row.attempts + 1 >= ISOLATE_FROM) {
        shared.isolations.forget(session);
        return false;
    }
    start_alone(shared, session);
    true
}

/// Starts a process of its own for the session, unless that was tried a while ago. Beside others it does not run even
/// when that fails: it could take them along, and only what it suffers alone is its own doing.
fn start_alone(shared: &Arc<Shared>, session: &SessionId) {
    let Some(isolate) = &shared.config.isolate else {
        return;
    };
    if !shared.isolations.due(session, shared.config.env.boot_ms()) {
        return;
    }
    match isolate(session) {
        Ok(()) => {
            tracing::warn!(%session, "it crashed its node twice; a process of its own was started for it")
        }
        Err(error) => {
            tracing::error!(%session, %error, "cannot start a process of its own; the session waits for another try");
        }
    }
}

/// Came a session here that has to run alone, by a hand-over, an adoption or a takeover that was not foreseen?
fn is_for_alone(shared: &Shared, tenure: &Tenure) -> bool {
    shared.config.isolate.is_some()
        && (ISOLATE_FROM..MAX_ATTEMPTS).contains(&tenure.attempts)
        && tenure.phase != Phase::Cancelling
}

/// What came of letting a session go that has to run alone.
enum LetGo {
    Done,
    Lost,
    /// It is interrupted: that is settled here.
    Cancelling,
}

/// Gives the session to nobody, as it is, and starts a process for it.
async fn let_go_alone(
    shared: &Arc<Shared>,
    session: &SessionId,
    writer: &Writer,
) -> Result<LetGo, EngineError> {
    let give = HookOp::HandOver {
        to: None,
        accept_ms: 0,
    };
    match writer.append(Batch::start(Vec::new(), vec![give])).await {
        Ok(_) => {}
        Err(AppendError::StaleClaim { .. } | AppendError::Rewound { .. }) => {
            return Ok(LetGo::Lost);
        }
        Err(AppendError::Cancelling { .. }) => return Ok(LetGo::Cancelling),
        Err(error) => return Err(error.into()),
    }
    start_alone(shared, session);
    Ok(LetGo::Done)
}

/// Loads the fold, sees to leftovers, settles what a lost owner left open. False when nothing is left to do.
async fn begin(
    shared: &Arc<Shared>,
    session: &SessionId,
    life: Life,
    tenure: &Tenure,
    writer: &Writer,
) -> Result<(Runner, bool), DrainError> {
    let store = shared.store.as_ref();
    let load::Loaded { state, sealed } = load::load(store, session).await?;
    writer.load(state.turn.clone());
    let mut runner = Runner {
        shared: shared.clone(),
        session: session.clone(),
        writer: writer.clone(),
        life,
        tools: ToolRunner::new(
            shared.config.tool_concurrency,
            state.todos.as_ref(),
            shared.calls_of(session),
        ),
        rules: Arc::new(Mutex::new(tenure_tools::permission::Rules::default())),
        quiet: Quiet::clear(),
        waiting: false,
        resume: None,
        alone: false,
        cut_in_a_row: 0,
        window_said: None,
        output_cut: false,
        timed: Timed::default(),
        held: Vec::new(),
        fresh: false,
        sealed,
        state,
    };
    let turn = &runner.state.turn;
    let open = !turn.at_boundary();
    // Nobody was lost: it was given to this node, or let go when there was nobody to give it to.
    let orderly = tenure.taken_from.is_none() && (!open || handing::can_go_on(turn));
    let broken = broken!(shared.config, RecoveryRunsCalls) && handing::can_go_on(turn);
    // Calls of a place that is not served here are not run here: it was taken to be moved.
    let served = !open || runner.has_place();
    let goes_on = (orderly || broken) && served && tenure.phase != Phase::Cancelling;
    // Before a settlement removes what it is judged by.
    runner.quiet = quiet(shared, session, tenure, goes_on).await?;
    if goes_on {
        runner.go_on(tenure);
        // The calls of a step that waits come first, and they change the log.
        runner.fresh = !runner.waiting;
        return Ok((runner, true));
    }
    let go = runner.recover(tenure).await?;
    Ok((runner, go))
}

/// When calls may be spawned under this tenure (R10).
async fn quiet(
    shared: &Arc<Shared>,
    session: &SessionId,
    tenure: &Tenure,
    goes_on: bool,
) -> Result<Quiet, DrainError> {
    // What this node said last itself, for others: what it stopped is waited for here until it is gone.
    let own_word =
        tenure.taken_from.is_none() && shared.behind.was_told(session, tenure.fence.epoch);
    let nothing = tenure.quiet_ms == 0 && tenure.left.is_empty();
    if (goes_on && (nothing || own_word)) || broken!(shared.config, SpawnNotDelayed) {
        return Ok(Quiet::clear());
    }
    let store = shared.store.as_ref();
    if tenure.left.is_empty() && tenure.quiet_ms > 0 {
        // Nothing was at work when the owner was lost; but the one before may have been lost too, and its traces
        // are gone with its settlement.
        let from = tenure.head.checked_sub(RECENT);
        let recent = store.read(session, from, RECENT as usize).await?.events;
        let recovered = |event: &Event| matches!(event.body, EventBody::RecoveryStarted(_));
        if tenure.taken_from.is_some() && !recent.iter().any(recovered) {
            return Ok(Quiet::clear());
        }
    }
    if tenure.lost.is_empty() {
        // An owner's own word, by the store's clock: one that was set back does not lengthen it, and one that was set
        // ahead does not shorten it for what is left.
        let longest = (shared.config.lease + LOCK_DELAY).as_millis() as u64;
        let told = tenure.quiet_ms > 0 && !tenure.left.is_empty();
        let tenure = Tenure {
            quiet_ms: if told {
                longest
            } else {
                tenure.quiet_ms.min(longest)
            },
            ..tenure.clone()
        };
        return Ok(Quiet::after(shared, session, &tenure));
    }
    Ok(Quiet::after(shared, session, tenure))
}

/// The log cannot be folded, or its settlement is refused each time: an operational write that runs no
/// projector sets the session aside (R12).
async fn set_aside(writer: &Writer, error: &EngineError) -> Result<Owned, EngineError> {
    tracing::error!(session = %writer.session, %error, "quarantined: it cannot be used as it is");
    let reason = format!("{error}. Export what can be read, or fork from an earlier point.");
    let quarantine = || HookOp::Quarantine {
        reason: reason.clone(),
    };
    let told = SessionQuarantined {
        error: SessionError::new("unusable", reason.clone()),
        attempts: 0,
    };
    let batch = Batch::settle(vec![told.into()], vec![quarantine()]);
    if writer.append(batch).await.is_err() {
        writer
            .append(Batch::settle(Vec::new(), vec![quarantine()]))
            .await?;
    }
    Ok(Owned::Quarantined { reason })
}

impl Runner {
    /// Settles what the log says is open. False when nothing is left to do.
    async fn recover(&mut self, tenure: &Tenure) -> Result<bool, DrainError> {
        let pending = self.synthetic();
        let state: &SessionState = &self.state;
        let consumed = |input: &MessageId| {
            state
                .entries
                .iter()
                .any(|e| matches!(e.as_ref(), Entry::Input { id, .. } if id == input))
        };
        let here = self.left_calls();
        // What ran inside a process that is known to be gone is over; anything else is looked for.
        let started = |message: &MessageId, call: &CallId| {
            let mut rows = tenure.left.iter();
            rows.find(|row| &row.message == message && &row.call == call)
                .is_some_and(|row| row.process.is_some() || tenure.quiet_ms > 0)
        };
        let takeover = recover::Takeover {
            config: &self.shared.config,
            session: &self.session,
            tenure,
            pending: &pending,
            left: &|message, call| started(message, call) || is_of(&here, message, call),
            done: &consumed,
        };
        let recovered = recover::settle_takeover(&self.writer, &takeover).await?;
        self.alone = recovered == Recovered::GoOn
            && tenure
                .continuation
                .as_ref()
                .is_some_and(|own| self.is_next_alone(own));
        tracing::info!(session = %self.session, ?recovered, "recovered");
        if recovered == Recovered::Over
            && tenure.attempts >= MAX_ATTEMPTS
            && tenure.phase != Phase::Cancelling
        {
            tracing::error!(session = %self.session, "quarantined: it took its process down each time");
        }
        match recovered {
            Recovered::GoOn => Ok(true),
            Recovered::Continue(input) => {
                self.resume = Some(input);
                Ok(true)
            }
            Recovered::Over => Ok(false),
        }
    }

    /// Drains until the end, an interrupt, a shutdown or the loss of tenure.
    async fn supervise(&mut self) -> Result<Owned, EngineError> {
        loop {
            let ended = self.drain_watched().await;
            if let Some(owned) = self.conclude(ended).await? {
                return Ok(owned);
            }
        }
    }

    /// Stops the tools and settles what a drain left open. `None` when the session goes on here.
    async fn conclude(
        &mut self,
        ended: Result<DrainEnd, Stopped>,
    ) -> Result<Option<Owned>, EngineError> {
        let env = self.shared.config.env.clone();
        let stopped = match ended {
            Ok(DrainEnd::Idle | DrainEnd::Failed | DrainEnd::HandedOver) => {
                return Ok(Some(Owned::Ended));
            }
            Ok(DrainEnd::OutOfTime(error)) => Stopped::OutOfTime(error),
            Err(stopped) => stopped,
        };
        let lost = matches!(stopped, Stopped::Drain(DrainError::Lost));
        if lost && broken!(self.shared.config, ChildrenOutliveNode) {
            self.tools.forget();
        }
        let grace = if lost { Duration::ZERO } else { TOOL_GRACE };
        self.tools.stop(env.as_ref(), grace).await;
        if matches!(stopped, Stopped::Shutdown) {
            self.tools.gone(GONE_WITHIN, &self.life.fenced).await;
        }
        let what = match stopped {
            Stopped::Drain(DrainError::Lost) => {
                tracing::warn!(session = %self.session, "lost tenure; nothing more is written");
                return Ok(Some(Owned::Lost));
            }
            // A drain looks again by itself: this does not come here.
            Stopped::Drain(DrainError::LookAgain) => Settlement::InPlace,
            Stopped::Drain(DrainError::Cancelling) => Settlement::Interrupt,
            Stopped::Shutdown => Settlement::Shutdown,
            Stopped::OutOfTime(error) => Settlement::Fail(error),
            Stopped::Panicked => Settlement::Fail(SessionError::new(
                "internal",
                "Tenure failed by a fault of its own while running this session; see the log of the \
                 process. The session can be used again.",
            )),
            Stopped::Drain(DrainError::Store(error)) => {
                tracing::error!(session = %self.session, %error, "the store refused a write");
                if error.is_unavailable() {
                    Settlement::InPlace
                } else {
                    Settlement::Fail(SessionError::new("internal", error.to_string()))
                }
            }
        };
        match (self.until_settled(what.clone()).await?, what) {
            (Owned::Ended, Settlement::InPlace) => Ok(None),
            (owned, _) => Ok(Some(owned)),
        }
    }

    /// One drain, dropped when the claim turns `cancelling`, the lease is lost or the node must stop.
    async fn drain_watched(&mut self) -> Result<DrainEnd, Stopped> {
        let shared = self.shared.clone();
        let session = self.session.clone();
        let writer = self.writer.clone();
        let fenced = self.life.fenced.clone();
        let drain = AssertUnwindSafe(self.drain()).catch_unwind();
        tokio::pin!(drain);
        let ended = |result: std::thread::Result<Result<DrainEnd, DrainError>>| match result {
            Ok(result) => result.map_err(Stopped::Drain),
            Err(_) => Err(Stopped::Panicked),
        };
        tokio::select! {
            biased;
            () = fenced.cancelled() => Err(Stopped::Drain(DrainError::Lost)),
            result = &mut drain => ended(result),
            why = claim_changes(&shared, &session, &writer) => {
                if why == DrainError::Lost {
                    // The claim may be gone because this very drain has just released it.
                    tokio::select! {
                        biased;
                        result = &mut drain => return ended(result),
                        () = shared.config.env.sleep(Duration::from_millis(100)) => {}
                    }
                }
                Err(Stopped::Drain(why))
            }
            () = shared.stop_now.cancelled() => Err(Stopped::Shutdown),
        }
    }

    /// Settles, again and again until the store takes it or tenure is lost.
    async fn until_settled(&mut self, what: Settlement) -> Result<Owned, EngineError> {
        let mut what = what;
        loop {
            let error = match self.settle_once(&what).await {
                Ok(()) => return Ok(Owned::Ended),
                Err(DrainError::Lost) => return Ok(Owned::Lost),
                // An interrupt came on top: its settlement covers the other.
                Err(DrainError::Cancelling) if what != Settlement::Interrupt => {
                    what = Settlement::Interrupt;
                    continue;
                }
                Err(DrainError::Cancelling) => return Ok(Owned::Lost),
                Err(DrainError::LookAgain) => continue,
                Err(DrainError::Store(error)) => error,
            };
            tracing::error!(session = %self.session, %error, "cannot settle yet");
            if !error.is_unavailable() {
                match set_aside(&self.writer, &error).await {
                    Ok(owned) => return Ok(owned),
                    Err(error) if error.is_unavailable() => {}
                    Err(error) => return Err(error),
                }
            }
            tokio::select! {
                biased;
                () = self.life.fenced.cancelled() => return Ok(Owned::Lost),
                () = self.shared.config.env.sleep(SETTLE_RETRY) => {}
            }
        }
    }

    async fn settle_once(&mut self, what: &Settlement) -> Result<(), DrainError> {
        match what {
            Settlement::Interrupt => {
                let own = self.own_inputs().await?;
                let (quiet, here) = (self.left_behind(), self.left_calls());
                let left = |message: &MessageId, call: &CallId| is_of(&here, message, call);
                recover::settle_interrupt(&self.writer, &own, &left, op_of(quiet)).await?;
                self.said(quiet);
                Ok(())
            }
            Settlement::Shutdown => {
                let (op, to) = self.hand_over_op().await;
                let (quiet, here) = (op_of(self.left_behind()), self.left_calls());
                let left = |message: &MessageId, call: &CallId| is_of(&here, message, call);
                recover::settle_shutdown(&self.writer, &self.session, &left, quiet, op).await?;
                self.tell_successor(to).await;
                Ok(())
            }
            Settlement::Fail(error) => self.settle_failed(error).await,
            Settlement::InPlace => self.recover_in_place().await,
        }
    }

    /// Waiting inputs that Tenure itself wrote. Whatever ends the execution takes them along: they speak of it, and
    /// a later input must not wake them (R9).
    pub(crate) async fn own_inputs(&self) -> Result<Vec<MessageId>, DrainError> {
        let inbox = self.shared.store.inbox(&self.session).await?;
        Ok(inbox
            .into_iter()
            .filter(|pending| matches!(pending.kind, InputKind::Synthetic { .. }))
            .map(|pending| pending.input)
            .collect())
    }

    /// How long something that stopped calls started may be at work yet; none when it is known to be gone.
    fn left_behind(&self) -> Option<Duration> {
        self.tools
            .quiet()
            .filter(|_| !broken!(self.shared.config, SpawnNotDelayed))
    }

    /// The calls of which something may be at work yet. Their rows stay, and go when nothing is.
    pub(crate) fn left_calls(&self) -> Vec<Trace> {
        let left = self.tools.left();
        leftovers::see_to(&self.shared, &self.session, &left);
        left
    }

    /// Others were told to wait. This node knows better, unless it waits itself for what another left.
    fn said(&self, quiet: Option<Duration>) {
        if let Some(quiet) = quiet
            && self.quiet.token().is_cancelled()
        {
            let (env, epoch) = (self.shared.config.env.as_ref(), self.writer.fence().epoch);
            self.shared.behind.told(env, &self.session, epoch, quiet);
        }
    }

    async fn settle_failed(&self, error: &SessionError) -> Result<(), DrainError> {
        let error = error.clone();
        let own = self.own_inputs().await?;
        let (quiet, here) = (self.left_behind(), self.left_calls());
        self.writer
            .append_with(move |turn| {
                let mut events: Vec<EventBody> = settle(turn, &Cause::Failed(error.clone()));
                events.extend(own.iter().map(recover::cancelled));
                if let Some(execution) = turn.execution.clone() {
                    events.push(ExecutionFailed { execution, error }.into());
                }
                let left = |message: &MessageId, call: &CallId| is_of(&here, message, call);
                let mut ops = recover::end_effects(turn, &left);
                ops.extend(op_of(quiet));
                // The terminal itself parks what waits (R4); without one, nothing else would.
                ops.push(HookOp::Release {
                    only_when_idle: false,
                    park: turn.execution.is_none(),
                });
                // Under `cancelling` the terminal is *interrupted* (R2): then this is refused.
                Some(Batch::start(events, ops))
            })
            .await?;
        self.said(quiet);
        Ok(())
    }

    /// The store could not be written for a while. What was open is settled as after a crash, uncharged, and
    /// the session goes on from its last durable event.
    async fn recover_in_place(&mut self) -> Result<(), DrainError> {
        let store = self.shared.store.clone();
        load::catch_up(store.as_ref(), &self.session, &mut self.state).await?;
        let fence = self.writer.fence();
        let Some(view) = store.claim_phase(&self.session, &fence).await? else {
            return Err(DrainError::Lost);
        };
        if view.phase == Phase::Cancelling {
            return Err(DrainError::Cancelling);
        }
        let tenure = Tenure {
            phase: view.phase,
            taken_from: None,
            attempts: 0,
            charged: false,
            head: self.state.cursor.unwrap_or(0),
            generation: self.state.settings.as_ref().map_or(0, |s| s.generation),
            continuation: None,
            handed_over: false,
            quiet_ms: 0,
            lost: Vec::new(),
            left: Vec::new(),
            fence,
        };
        self.recover(&tenure).await.map(|_| ())
    }
}

/// Is the call one of these?
pub(crate) fn is_of(left: &[Trace], message: &MessageId, call: &CallId) -> bool {
    left.iter()
        .any(|trace| &trace.message == message && &trace.call == call)
}

/// Tells whoever takes the session next.
fn op_of(quiet: Option<Duration>) -> Option<HookOp> {
    quiet.map(|quiet| HookOp::Quiet {
        ms: quiet.as_millis() as u64,
    })
}

/// Why a drain was dropped or ended.
enum Stopped {
    Drain(DrainError),
    Shutdown,
    OutOfTime(SessionError),
    Panicked,
}

/// What is to be recorded before letting go.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Settlement {
    Interrupt,
    Shutdown,
    Fail(SessionError),
    InPlace,
}

/// Resolves when the claim is `cancelling` or gone. The board's poll is always on; hints hurry it.
async fn claim_changes(shared: &Shared, session: &SessionId, writer: &Writer) -> DrainError {
    let fence = writer.fence();
    let mut changes = shared.store.watch(session);
    let mut news = shared.board.watch(session, &fence);
    let mut standing = None;
    loop {
        // What the board says is confirmed, and what came before it was asked is found.
        if standing != Some(Standing::Held) {
            match shared.store.claim_phase(session, &fence).await {
                Ok(None) => return DrainError::Lost,
                Ok(Some(view)) if view.phase == Phase::Cancelling => return DrainError::Cancelling,
                Ok(Some(_)) => standing = Some(Standing::Held),
                Err(error) => {
                    tracing::warn!(%session, %error, "the claim cannot be read");
                    shared.config.env.sleep(shared.config.poll).await;
                    continue;
                }
            }
        }
        tokio::select! {
            biased;
            changed = news.changed() => {
                if changed.is_err() {
                    // Forgotten by the board: that only happens when nobody looks.
                    news = shared.board.watch(session, &fence);
                }
                standing = Some(news.borrow_and_update().standing);
            }
            changed = changes.changed() => match changed {
                Ok(()) => shared.board.hint(),
                Err(_) => shared.config.env.sleep(shared.config.poll).await,
            },
        }
    }
}

#[cfg(test)]
mod tests;
