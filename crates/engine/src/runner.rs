//! The runner: promotes input, runs steps, settles tools, until nothing is eligible (design §7).
//!
//! ```text
//!   boundary: catch the fold up ─▶ control input? ─▶ promote ─▶ step needed? ─▶ compact if due ─▶ step
//!       ▲                                                                                          │
//!       └────────────────────────── all calls settled, step's terminal ◀───────────────────────────┘
//! ```
//!
//! A [`Runner`] owns no truth: its fold is caught up from the log at each boundary, and the turn's memory is
//! changed by commits only. Its future may be dropped at any await; `owner` then settles what is open.

mod attempt;
mod boundary;
pub(crate) mod budget;
mod compact;
mod permission;
mod silence;
mod step;
pub(crate) mod tools;

use crate::config::Scope;
use crate::engine::Shared;
use crate::error::DrainError;
use crate::load;
use crate::node::Life;
use crate::recover::{self, quiet::Quiet};
use crate::writer::{Batch, Writer};
use boundary::Admitted;
use compact::Room;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure_core::error::SessionError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::history::build;
use tenure_core::id::{MessageId, SessionId};
use tenure_core::inbox::Boundary;
use tenure_core::model::ModelRef;
use tenure_core::placement::Unserved;
use tenure_core::session::SessionState;
use tenure_store::{AppendError, HookOp};
use tenure_tools::permission::Rules;
use tools::ToolRunner;

/// The wait between looks while the store is away.
const AWAY: Duration = Duration::from_millis(200);

/// How a drain ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DrainEnd {
    /// Nothing is eligible; the claim is released.
    Idle,
    /// The execution failed; the claim is released and what waits is parked.
    Failed,
    /// This node drains, or does not serve the session's place or model; another has it, or may take it.
    HandedOver,
    /// The execution has lasted as long as it may; what is open is to be settled as failed.
    OutOfTime(SessionError),
}

/// One session being run.
pub(crate) struct Runner {
    pub shared: Arc<Shared>,
    pub session: SessionId,
    pub writer: Writer,
    pub life: Life,
    pub state: SessionState,
    /// The fold was just read to the head of the log: the first boundary need not ask again.
    pub fresh: bool,
    /// The last seq the stored checkpoints cover.
    pub sealed: Option<u64>,
    pub tools: ToolRunner,
    pub rules: Arc<Mutex<Rules>>,
    /// When calls may be spawned.
    pub quiet: Quiet,
    /// The step is open and was taken up as it is: its calls come first.
    pub waiting: bool,
    /// Recovery's own input: the first boundary takes nothing else.
    pub resume: Option<MessageId>,
    /// The next step is recovery's: nothing else is promoted before it has begun.
    pub alone: bool,
    /// Attempts in a row that failed behind a complete call: they share the retry budget.
    pub cut_in_a_row: u32,
    /// The window of a model as its provider named it in a refusal.
    pub window_said: Option<(ModelRef, u64)>,
    /// This step was asked for again with a smaller output limit: that is tried once.
    pub output_cut: bool,
    /// How long the execution has run.
    pub timed: budget::Timed,
    /// Events of the last chunk of a stream, to be committed together with its attempt's end.
    pub held: Vec<EventBody>,
}

impl Runner {
    /// Runs until nothing is eligible.
    pub async fn drain(&mut self) -> Result<DrainEnd, DrainError> {
        loop {
            let out_of_time = self.out_of_time();
            let look = tokio::select! {
                biased;
                look = self.look() => look,
                error = out_of_time => {
                    if self.writer.turn().execution.is_none() {
                        // Nothing has begun that could have lasted too long.
                        continue;
                    }
                    return Ok(DrainEnd::OutOfTime(error));
                }
            };
            match look {
                Ok(None) => {}
                // A step that is open here is for whoever settles.
                Err(DrainError::LookAgain) if self.writer.turn().at_boundary() => {}
                Ok(Some(end)) => return Ok(end),
                Err(DrainError::Store(error))
                    if error.is_unavailable() && self.writer.turn().at_boundary() =>
                {
                    // Nothing is open that could be lost: wait for the store.
                    tracing::warn!(session = %self.session, %error, "waiting for the store");
                    self.shared.config.env.sleep(AWAY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The calls of a step that was taken up open, then boundaries. `None`: look again.
    async fn look(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        if std::mem::take(&mut self.waiting) {
            return self.go_on_waiting().await;
        }
        self.boundary().await
    }

    /// One look at a safe boundary, and what follows from it. `None`: look again.
    async fn boundary(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        let store = self.shared.store.as_ref();
        if !std::mem::take(&mut self.fresh) {
            load::catch_up(store, &self.session, &mut self.state).await?;
        }
        load::seal(store, &self.session, &self.state, &mut self.sealed).await;
        self.load_rules();
        if self.shared.let_go.is_cancelled() {
            return self.let_go().await;
        }
        if !self.is_served_here().await? {
            return match self.move_first().await? {
                true => Ok(None),
                false => self.let_go().await,
            };
        }
        if (self.state.overflowed || self.state.wants_step)
            && let Some(error) = self.over_budget()
        {
            return self.end_over_budget(error).await.map(Some);
        }
        if self.state.overflowed {
            return self.compact_after_overflow().await;
        }
        let boundary = match (&self.resume, self.state.wants_step) {
            (Some(_), _) => Boundary::Recovering,
            (None, true) => Boundary::Continuing,
            (None, false) => Boundary::Idle,
        };
        if !self.alone {
            match self.admit_from_inbox(boundary).await? {
                Admitted::Nothing => {}
                Admitted::LookAgain => return Ok(None),
                Admitted::OverBudget(error) => return self.end_over_budget(error).await.map(Some),
            }
        }
        if self.state.wants_step {
            self.next_step().await
        } else {
            self.finish().await
        }
    }

    /// Does this node serve the place where the session works now, whatever model it asks?
    pub(crate) fn has_place(&self) -> bool {
        let Some(settings) = &self.state.settings else {
            return true;
        };
        let serves = &self.shared.config.serves;
        let served = serves.check(&settings.location, &settings.model);
        matches!(served, Ok(()) | Err(Unserved::Provider(_)))
    }

    /// Does this node serve the place where the session works now (R14), and the model it asks now? Both may have
    /// changed since it was taken.
    async fn is_served_here(&self) -> Result<bool, DrainError> {
        let Some(settings) = &self.state.settings else {
            return Ok(true);
        };
        if broken!(self.shared.config, MovedSessionStays) {
            return Ok(true);
        }
        let config = &self.shared.config;
        let (location, model) = (&settings.location, &settings.model);
        let Err(why) = config.serves.check(location, model) else {
            return Ok(true);
        };
        // Who asked this very process for it waits here: what the process lacks is said at once, by the step, unless
        // there is a node that has it.
        if config.scope == Scope::Asked
            && matches!(why, Unserved::Provider(_))
            && !self
                .shared
                .is_taken_elsewhere(location, model)
                .await
                .map_err(|error| DrainError::Store(error.into()))?
        {
            return Ok(true);
        }
        tracing::warn!(session = %self.session, %why, "no longer served here; letting it go");
        Ok(false)
    }

    fn load_rules(&mut self) {
        let Some(settings) = &self.state.settings else {
            return;
        };
        // Rules nobody can read must not widen anything: the defaults ask, and headless denies.
        let rules = serde_json::from_value(settings.permissions.clone()).unwrap_or_default();
        *self
            .rules
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = rules;
    }

    /// Compacts if it is due, then runs one step.
    async fn next_step(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        let Some(settings) = self.state.settings.clone() else {
            let error = SessionError::new(
                "unusable",
                "The session's log does not begin with its creation",
            );
            return self.fail(error).await.map(Some);
        };
        let model = match self.shared.models.resolve(&settings.model) {
            Ok(model) => model,
            Err(error) => return self.fail(error).await.map(Some),
        };
        if let Some(repeating) = tenure_core::repeat::repeating(&self.state) {
            let error = SessionError::new("repeating_failure", repeating.to_string());
            return self.fail(error).await.map(Some);
        }
        let (number, last) = self.next_number();
        let mut request = build(&self.state, &self.request_plan(&model, last));
        match self.make_room(&model, &request).await? {
            Room::Compacted => return Ok(None),
            Room::End(end) => return Ok(Some(end)),
            Room::Fits(output) => request.max_output = output,
        }
        self.step(&model, request, number, last).await
    }

    /// Ends the execution well and releases the claim; `None` when there is more to do.
    async fn finish(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        if self.state.limit_reached && self.writer.turn().execution.is_some() {
            let limit = self.state.step;
            let error = SessionError::new(
                "step_limit",
                format!(
                    "The limit of {limit} steps was reached before the model was done. Send another prompt to go on, or \
                     allow more with --max-steps."
                ),
            );
            return self.fail(error).await.map(Some);
        }
        let execution = self.writer.turn().execution.clone();
        let events: Vec<EventBody> = execution
            .into_iter()
            .map(|execution| ExecutionSucceeded { execution }.into())
            .collect();
        let release = HookOp::Release {
            only_when_idle: true,
            park: false,
        };
        match self
            .writer
            .append(Batch::start(events, vec![release]))
            .await
        {
            Ok(_) => Ok(Some(DrainEnd::Idle)),
            Err(AppendError::NotIdle { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the execution as failed and releases the claim; what waits is parked (R4).
    pub(crate) async fn fail(&mut self, error: SessionError) -> Result<DrainEnd, DrainError> {
        let execution = self.writer.turn().execution.clone();
        let own = self.own_inputs().await?;
        let mut events: Vec<EventBody> = own.iter().map(recover::cancelled).collect();
        events.extend(execution.map(|execution| {
            ExecutionFailed {
                execution,
                error: error.clone(),
            }
            .into()
        }));
        let release = HookOp::Release {
            only_when_idle: false,
            // The terminal itself parks what waits; without one, nothing else would.
            park: self.writer.turn().execution.is_none(),
        };
        self.writer
            .append(Batch::start(events, vec![release]))
            .await?;
        Ok(DrainEnd::Failed)
    }

    /// At a safe boundary of a node that drains, or that does not serve the session's place or model: what is done is
    /// released, what is not goes to another node.
    async fn let_go(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        let inbox = self.shared.store.inbox(&self.session).await?;
        let more = self.state.wants_step
            || self.state.overflowed
            || self.resume.is_some()
            || inbox.iter().any(|input| input.eligible);
        if more {
            return self.hand_over().await.map(Some);
        }
        self.finish().await
    }
}
