//! One step: its attempts, its tools, its one terminal.

use super::tools::Rest;
use super::{DrainEnd, Runner};
use crate::environment::facts;
use crate::error::DrainError;
use crate::models::Model;
use crate::owner::is_of;
use crate::writer::Batch;
use tenure_core::claim::{CONTINUATION_AFTER_CUT, continuation_id};
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::history::RequestPlan;
use tenure_core::id::{CallId, MessageId};
use tenure_core::request::Request;
use tenure_core::retry::Retry;
use tenure_core::turn::TurnState;
use tenure_core::turn::settle::{Cause, end_step, fail_step};
use tenure_provider::Encoded;
use tenure_store::HookOp;

/// How the stream of an attempt, and with it perhaps the step, ended.
#[derive(Debug)]
pub(super) enum AttemptOutcome {
    /// Everything of the step is settled and its terminal written.
    StepOver,
    /// As `StepOver`, and the execution has failed with it: the claim is released.
    ExecutionOver,
    /// The stream ended well; local calls are running.
    AwaitTools,
    /// Given up for another attempt, which is planned.
    Retry {
        /// Wait so long.
        delay_ms: u64,
        /// Ask for so many tokens at most: with more, the request did not fit.
        output: Option<u64>,
    },
    /// The stream failed for good; calls that arrived whole are running.
    Failed(ProviderError, Option<String>),
    /// The stream did what no turn allows.
    Violated(String),
}

impl Runner {
    /// Runs one step to its terminal.
    pub(super) async fn step(
        &mut self,
        model: &Model,
        request: Request,
        number: u32,
        last: bool,
    ) -> Result<Option<DrainEnd>, DrainError> {
        let encoded = match model.provider.encode(&request) {
            Ok(encoded) => encoded,
            Err(error) => return self.fail((&error).into()).await.map(Some),
        };
        let message = facts(self.shared.config.env.as_ref()).message();
        let mut events = self.execution_start();
        events.extend(self.unseen(model));
        events.push(
            StepStarted {
                message: message.clone(),
                step: number,
                model: model.reference.clone(),
                last,
            }
            .into(),
        );
        events.push(attempt_started(&message, 1, model, &encoded, &request));
        let enter = HookOp::Enter {
            message: Some(message.clone()),
        };
        if broken!(self.shared.config, AttemptSentEarly) {
            let key = tenure_provider::AttemptKey(format!("{message}-1"));
            drop(model.provider.send(encoded.clone(), &key).await);
        }
        self.writer
            .append(Batch::start(events, vec![enter]))
            .await?;
        self.alone = false;
        self.output_cut = false;
        self.tools.begin_step();
        self.attempts(model, message, request, encoded).await
    }

    /// What the user is told when the model is known not to see something that was attached: once for each of them.
    fn unseen(&self, model: &Model) -> Option<EventBody> {
        let blind = model.info.blind();
        let names = self.state.unseen_media(&model.reference, blind);
        let told = MediaWithheld {
            model: model.reference.clone(),
            blind,
            names,
        };
        (!told.names.is_empty()).then(|| told.into())
    }

    /// The number of the next step, and whether it is the last one allowed. A step that did not fit keeps its number
    /// when it is asked for again.
    pub(super) fn next_number(&self) -> (u32, bool) {
        let number = if self.state.step_again {
            self.state.step.max(1)
        } else {
            self.state.step + 1
        };
        (number, number >= self.max_steps())
    }

    fn max_steps(&self) -> u32 {
        match self
            .state
            .settings
            .as_ref()
            .map_or(0, |s| s.limits.max_steps)
        {
            0 => self.shared.config.max_steps,
            limit => limit,
        }
    }

    fn output_to_ask(&self, model: &Model) -> Option<u64> {
        model.info.output_to_ask(model.provider.protocol())
    }

    pub(super) fn request_plan(&self, model: &Model, last_step: bool) -> RequestPlan {
        RequestPlan {
            model: model.reference.clone(),
            protocol: model.provider.protocol().to_owned(),
            tools: self.shared.tool_defs(),
            last_step,
            max_output: self.output_to_ask(model),
            cache_key: self.session.to_string(),
            hosted_tools: model.info.asks.hosted.clone(),
            effort: model.info.asks.effort,
            blind: model.info.blind(),
        }
    }

    async fn attempts(
        &mut self,
        model: &Model,
        message: MessageId,
        mut request: Request,
        mut encoded: Encoded,
    ) -> Result<Option<DrainEnd>, DrainError> {
        let mut attempt = 1;
        loop {
            match self
                .attempt(model, &message, attempt, encoded.clone())
                .await?
            {
                AttemptOutcome::StepOver => return Ok(None),
                AttemptOutcome::ExecutionOver => return Ok(Some(DrainEnd::Failed)),
                AttemptOutcome::AwaitTools => return self.await_tools().await,
                AttemptOutcome::Retry { delay_ms, output } => {
                    if let Some(output) = output {
                        request.max_output = Some(output);
                        // What could be sent with a larger limit can be sent with a smaller one.
                        if let Ok(smaller) = model.provider.encode(&request) {
                            encoded = smaller;
                        }
                    }
                    // Before the wait: nobody is kept waiting for what would be refused. The limits can be lowered
                    // meanwhile, so after it, too.
                    let wait = std::time::Duration::from_millis(delay_ms);
                    let mut over = self.over_budget_now().await?;
                    if over.is_none() {
                        self.shared.config.env.sleep(wait).await;
                        over = self.over_budget_now().await?;
                    }
                    if let Some(error) = over {
                        self.fail_step(&error, Vec::new()).await?;
                        return self.fail(error).await.map(Some);
                    }
                    attempt += 1;
                    let started = attempt_started(&message, attempt, model, &encoded, &request);
                    self.writer
                        .append(Batch::start(vec![started], Vec::new()))
                        .await?;
                }
                AttemptOutcome::Failed(error, why) => {
                    self.tools.wait_idle().await?;
                    return self.after_failure(&message, attempt, error, why).await;
                }
                AttemptOutcome::Violated(what) => {
                    self.tools.wait_idle().await?;
                    let error = SessionError::new("violation", what);
                    self.fail_step(&error, Vec::new()).await?;
                    return self.fail(error).await.map(Some);
                }
            }
        }
    }

    /// Waits for the calls of a step whose stream ended well, then ends it; or, where all of them wait for answers
    /// and this node drains, gives it away as it is (R11).
    async fn await_tools(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        let env = self.shared.config.env.clone();
        let let_go = self.shared.let_go.clone();
        match self.tools.rest(&let_go).await? {
            Rest::Idle => {
                self.end_step().await?;
                Ok(None)
            }
            Rest::AllAsk if broken!(self.shared.config, WaitingStepSettled) => {
                self.shared.stop_now.cancel();
                std::future::pending().await
            }
            Rest::AllAsk => {
                self.tools.drop_calls(env.as_ref()).await;
                self.hand_over_waiting().await.map(Some)
            }
        }
    }

    /// Goes on with an open step that was taken up as it is: its calls, and its end.
    pub(super) async fn go_on_waiting(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        self.load_rules();
        self.tools.begin_step();
        self.tools
            .launch_pending(&self.call_context(), &self.writer);
        self.await_tools().await
    }

    async fn end_step(&mut self) -> Result<(), DrainError> {
        self.writer
            .append_with(|turn| {
                turn.step
                    .as_ref()
                    .map(|step| Batch::settle(vec![end_step(step)], ENDED_WELL.to_vec()))
            })
            .await?;
        self.cut_in_a_row = 0;
        Ok(())
    }

    async fn fail_step(
        &mut self,
        error: &SessionError,
        after: Vec<EventBody>,
    ) -> Result<(), DrainError> {
        let cause = Cause::Failed(error.clone());
        let here = self.left_calls();
        self.writer
            .append_with(move |turn| {
                turn.step.as_ref().map(|step| {
                    let mut events = fail_step(step, &cause);
                    events.extend(after);
                    let left = |message: &MessageId, call: &CallId| is_of(&here, message, call);
                    let mut ops = crate::recover::end_effects(turn, &left);
                    ops.push(HookOp::Leave);
                    Batch::settle(events, ops)
                })
            })
            .await?;
        Ok(())
    }

    /// A stream that failed for good: the step fails; a cut behind a complete call goes on in a new message,
    /// an overflow goes on after a compaction, anything else ends the execution.
    async fn after_failure(
        &mut self,
        message: &MessageId,
        attempt: u32,
        error: ProviderError,
        why: Option<String>,
    ) -> Result<Option<DrainEnd>, DrainError> {
        let mut session_error = SessionError::from(&error);
        if let Some(why) = why {
            session_error.message = format!("{} ({why})", session_error.message);
        }
        let called = self.called(attempt);
        if called && error.class.retryable() {
            self.cut_in_a_row += 1;
            let random = self.shared.config.env.random();
            match self
                .shared
                .config
                .retry
                .decide(&error, self.cut_in_a_row, random)
            {
                Retry::After(delay_ms) => {
                    let note = InputAdmitted {
                        input: continuation_id(&self.session, message.as_str()),
                        kind: InputKind::Synthetic {
                            text: CONTINUATION_AFTER_CUT.to_owned(),
                        },
                        delivery: Delivery::Steer,
                    };
                    self.fail_step(&session_error, vec![note.into()]).await?;
                    let wait = std::time::Duration::from_millis(delay_ms);
                    self.shared.config.env.sleep(wait).await;
                    return Ok(None);
                }
                Retry::GiveUp(Some(why)) => {
                    session_error.message = format!("{} ({why})", session_error.message);
                }
                Retry::GiveUp(None) => {}
            }
        }
        self.fail_step(&session_error, Vec::new()).await?;
        if matches!(
            error.class,
            ErrorClass::ContextOverflow | ErrorClass::RequestTooLarge
        ) {
            // The fold remembers the overflow: the next boundary compacts, or ends the execution.
            return Ok(None);
        }
        if self.state.can_repair(&session_error) {
            // The fold remembers what was refused: the same step is tried once more without it.
            return Ok(None);
        }
        self.fail(session_error).await.map(Some)
    }

    fn called(&self, attempt: u32) -> bool {
        self.writer
            .turn()
            .step
            .as_ref()
            .is_some_and(|step| step.attempt_called(attempt))
    }
}

fn attempt_started(
    message: &MessageId,
    attempt: u32,
    model: &Model,
    encoded: &Encoded,
    request: &Request,
) -> EventBody {
    AttemptStarted {
        message: message.clone(),
        attempt,
        model: model.reference.clone(),
        request_hash: encoded.hash.clone(),
        at_most: Runner::at_most(model, encoded, request),
    }
    .into()
}

/// What goes with the terminal of a step or compaction that ended well.
pub(super) const ENDED_WELL: [HookOp; 2] = [HookOp::Leave, HookOp::Progress];

/// Records `events`; when they leave nothing of a step open whose stream ended well, its terminal goes into the
/// same commit: one flush less between a tool's end and the next request.
pub(super) fn settle_and_end(turn: &TurnState, events: Vec<EventBody>, ops: Vec<HookOp>) -> Batch {
    let mut after = turn.clone();
    after.preview(&events);
    let mut batch = Batch::settle(events, ops);
    let over = after
        .step
        .as_ref()
        .filter(|step| step.ended.as_ref().is_some_and(|end| end.clean) && nothing_open(&after));
    if let Some(step) = over {
        batch.events.push(end_step(step));
        batch.ops.extend(ENDED_WELL);
    }
    batch
}

/// Is nothing of the step open but its terminal?
pub(super) fn nothing_open(turn: &TurnState) -> bool {
    turn.pending()
        .iter()
        .all(|effect| matches!(effect, tenure_core::turn::Effect::EndStep))
}
