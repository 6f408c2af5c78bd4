//! Compaction: asks the model for a summary and puts it in place of old history.

mod room;

pub(super) use room::Room;

use super::boundary::promoted;
use super::step::ENDED_WELL;
use super::{DrainEnd, Runner};
use crate::environment::{facts, off_thread};
use crate::error::DrainError;
use crate::models::Model;
use crate::writer::Batch;
use futures::StreamExt;
use std::time::Duration;
use tenure_core::Usage;
use tenure_core::budget::refused;
use tenure_core::compaction::{
    MAX_UNUSABLE, Plan, Planning, TokenCounter, UNUSABLE_SUMMARY, Unplannable, fixed_tokens, plan,
    usable_summary,
};
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{CompactionId, MessageId};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::{Effort, Request};
use tenure_core::retry::Retry;
use tenure_provider::catalogue::Ability;
use tenure_provider::{AttemptKey, Encoded, Tokens};
use tenure_store::HookOp;

/// Tries whose summarising request was too large for the provider; each is half as large as the one before.
const TOO_LARGE: u32 = 3;
/// Tries in one compaction whose answer was no summary.
const UNUSABLE: u32 = 2;
/// Bytes of an answer after which nobody reads on: no summary is as long.
const ANSWER_MAX: usize = 512 * 1024;

/// What a compaction came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Compacted {
    /// The summary is in place.
    Done,
    /// Nothing could be summarised; says what is fixed.
    NothingOld(SessionError),
    /// It failed; history is as it was.
    Failed(SessionError),
}

/// Why one request for a summary gave none.
enum Failure {
    /// The provider failed or refused.
    Provider(ProviderError),
    /// It answered with what is no summary.
    Unusable(SessionError),
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        Self::Provider(error)
    }
}

impl Failure {
    fn error(&self) -> SessionError {
        match self {
            Self::Provider(error) => error.into(),
            Self::Unusable(error) => error.clone(),
        }
    }
}

/// The failed tries of one compaction.
#[derive(Debug, Default, Clone, Copy)]
struct Tries {
    too_large: u32,
    unusable: u32,
    /// Summaries in a row that could not be used, before this compaction.
    unusable_before: u32,
    transient: u32,
    /// It was refused when it was told how hard to think: from then on it is not told.
    untold: bool,
}

impl Runner {
    /// The last step did not fit: one compaction, then the step again; a second overflow is the end.
    pub(super) async fn compact_after_overflow(&mut self) -> Result<Option<DrainEnd>, DrainError> {
        let model = match self
            .state
            .settings
            .as_ref()
            .map(|s| self.shared.models.resolve(&s.model))
        {
            Some(Ok(model)) => model,
            Some(Err(error)) => return self.fail(error).await.map(Some),
            None => return Err(DrainError::Lost),
        };
        let overflow = |what: String| SessionError::new("context_overflow", what);
        if !self.shared.config.auto_compaction {
            let text = format!(
                "The conversation does not fit the model's window, and automatic compaction is off. Compact it by hand \
                 (`tenure resume {} --compact`), or choose a model with a larger window.",
                self.session
            );
            return self.fail(overflow(text)).await.map(Some);
        }
        if self.state.unusable_summaries >= MAX_UNUSABLE {
            let text = format!(
                "The conversation does not fit the model's window, and {MAX_UNUSABLE} summaries in a row could not be \
                 used. Compact it by hand (`tenure resume {} --compact`), with another model if need be.",
                self.session
            );
            return self.fail(overflow(text)).await.map(Some);
        }
        if self.state.overflow_compactions > 0 {
            let text = "The conversation still does not fit the model's window after a compaction. Choose a \
                        model with a larger window, or fork the session from an earlier point.";
            return self.fail(overflow(text.to_owned())).await.map(Some);
        }
        match self
            .compact(CompactionReason::Overflow, None, &model)
            .await?
        {
            Compacted::Done => Ok(None),
            Compacted::Failed(error) if error.kind == tenure_core::budget::KIND => {
                self.fail(error).await.map(Some)
            }
            Compacted::NothingOld(error) | Compacted::Failed(error) => {
                let text = format!(
                    "The conversation does not fit the model's window, and it could not be compacted: {}",
                    error.message
                );
                self.fail(overflow(text)).await.map(Some)
            }
        }
    }

    /// Compacts once. Every physical request is durable before it is sent, as in a step.
    pub(super) async fn compact(
        &mut self,
        reason: CompactionReason,
        input: Option<MessageId>,
        model: &Model,
    ) -> Result<Compacted, DrainError> {
        let mut input = input;
        let mut tries = Tries {
            unusable_before: self.state.unusable_summaries,
            ..Tries::default()
        };
        loop {
            let (planned, encoded) = match self.planned(reason, model, tries).await? {
                Ok(planned) => planned,
                Err(outcome) => {
                    if let (Some(input), Compacted::NothingOld(error) | Compacted::Failed(error)) =
                        (input, &outcome)
                    {
                        self.refuse_manual(&input, error, model).await?;
                    }
                    return Ok(outcome);
                }
            };
            if let Some(error) = self.over_budget_now().await? {
                if let Some(input) = input {
                    self.refuse_manual(&input, &error, model).await?;
                }
                return Ok(Compacted::Failed(error));
            }
            let at_most = Self::at_most(model, &encoded, &planned.request);
            let compaction = self
                .begin_compaction(reason, input.take(), model, &encoded, at_most)
                .await?;
            if !self.shared.node.may_go_on(&self.life).await {
                return Err(DrainError::Lost);
            }
            let mut heard = Heard::default();
            let result = self
                .summarise(model, &compaction, encoded, &mut heard)
                .await;
            let result = result.and_then(|summary| {
                planned.shrinks(&summary).map_err(Failure::Unusable)?;
                Ok(summary)
            });
            let mut usage = heard.usage;
            let mut cost = heard
                .whole_usage()
                .and_then(|u| super::attempt::price(model, u));
            let failure = match result {
                Ok(summary) => {
                    self.end_compaction(compaction, summary, &planned, usage, cost)
                        .await?;
                    return Ok(Compacted::Done);
                }
                Err(failure) => failure,
            };
            if let (true, Failure::Provider(error)) = (heard.is_nothing(), &failure)
                && let Some((nothing, free)) = refused(error)
            {
                (usage, cost) = (Some(nothing), Some(free));
            }
            let error = failure.error();
            self.fail_compaction(compaction, &error, usage, cost)
                .await?;
            let told = planned.request.effort.is_some();
            match self.try_again(&mut tries, &failure, told) {
                Some(wait) => self.shared.config.env.sleep(wait).await,
                None => return Ok(Compacted::Failed(error)),
            }
        }
    }

    /// The request for a summary, planned off the threads that serve others: counting a long history takes time. The
    /// inner error is the outcome when there is none.
    async fn planned(
        &self,
        reason: CompactionReason,
        model: &Model,
        tries: Tries,
    ) -> Result<Result<(Plan, Encoded), Compacted>, DrainError> {
        let state = self.state.clone();
        let limits = self.limits(model);
        let reference = model.reference.clone();
        let cache_key = self.session.to_string();
        let tokens = Tokens::of(model.provider.protocol(), &reference.model);
        let effort = summary_effort(model).filter(|_| !tries.untold);
        let fixed = Request {
            system: state
                .instructions
                .as_ref()
                .map_or_else(Vec::new, |i| i.parts.clone()),
            tools: self.shared.tool_defs(),
            ..Request::new(reference.clone())
        };
        let work = move || {
            let with = |counter: &dyn TokenCounter| {
                plan(&Planning {
                    state: &state,
                    reason,
                    model: &reference,
                    limits: &limits,
                    counter,
                    fixed: fixed_tokens(&fixed, counter),
                    cache_key: &cache_key,
                    too_large: tries.too_large,
                    firmly: tries.unusable > 0,
                    effort,
                })
            };
            match tokens.exact() {
                Some(exact) => with(&exact),
                None => with(&tokens.rough()),
            }
        };
        let planned = off_thread(self.shared.config.env.as_ref(), work)
            .await
            .ok_or(DrainError::Lost)?;
        let nothing = |why: Unplannable| {
            Compacted::NothingOld(SessionError::new("nothing_to_compact", why.to_string()))
        };
        Ok(planned.map_err(nothing).and_then(|planned| {
            let encoded = model.provider.encode(&planned.request);
            let encoded = encoded.map_err(|error| Compacted::Failed((&error).into()))?;
            Ok((planned, encoded))
        }))
    }

    /// How long to wait before the next try; none when there is no next one.
    fn try_again(&self, tries: &mut Tries, failure: &Failure, told: bool) -> Option<Duration> {
        match failure {
            // Some models that think take no word, or only some, on how hard.
            Failure::Provider(error) if told && error.class == ErrorClass::InvalidRequest => {
                tries.untold = true;
                Some(Duration::ZERO)
            }
            Failure::Unusable(_) => {
                tries.unusable += 1;
                let so_far = tries.unusable_before + tries.unusable;
                (tries.unusable < UNUSABLE && so_far < MAX_UNUSABLE).then_some(Duration::ZERO)
            }
            Failure::Provider(error)
                if matches!(
                    error.class,
                    ErrorClass::ContextOverflow | ErrorClass::RequestTooLarge
                ) =>
            {
                tries.too_large += 1;
                (tries.too_large <= TOO_LARGE).then_some(Duration::ZERO)
            }
            Failure::Provider(error) => {
                tries.transient += 1;
                let random = self.shared.config.env.random();
                match self
                    .shared
                    .config
                    .retry
                    .decide(error, tries.transient, random)
                {
                    Retry::After(ms) => Some(Duration::from_millis(ms)),
                    Retry::GiveUp(_) => None,
                }
            }
        }
    }

    async fn fail_compaction(
        &self,
        compaction: CompactionId,
        error: &SessionError,
        usage: Option<Usage>,
        cost: Option<u64>,
    ) -> Result<(), DrainError> {
        let event = CompactionFailed {
            compaction,
            error: error.clone(),
            usage,
            cost,
        };
        self.writer
            .append(Batch::settle(vec![event.into()], vec![HookOp::Leave]))
            .await?;
        Ok(())
    }

    async fn begin_compaction(
        &mut self,
        reason: CompactionReason,
        input: Option<MessageId>,
        model: &Model,
        encoded: &Encoded,
        at_most: Option<AtMost>,
    ) -> Result<CompactionId, DrainError> {
        let compaction = facts(self.shared.config.env.as_ref()).compaction();
        let mut events = self.execution_start();
        let mut ops = Vec::new();
        if let Some(input) = &input {
            events.push(promoted(input));
            ops.push(HookOp::Promote {
                input: input.clone(),
            });
        }
        events.push(
            CompactionStarted {
                compaction: compaction.clone(),
                reason,
                input,
                model: model.reference.clone(),
                request_hash: encoded.hash.clone(),
                at_most,
            }
            .into(),
        );
        ops.push(HookOp::Enter { message: None });
        self.writer.append(Batch::start(events, ops)).await?;
        Ok(compaction)
    }

    /// The new epoch gets fresh baseline instructions in the commit that ends the old one.
    async fn end_compaction(
        &mut self,
        compaction: CompactionId,
        summary: String,
        planned: &Plan,
        usage: Option<Usage>,
        cost: Option<u64>,
    ) -> Result<(), DrainError> {
        let mut events: Vec<EventBody> = vec![
            CompactionEnded {
                compaction,
                summary,
                kept_from: planned.kept_from,
                usage,
                cost,
            }
            .into(),
        ];
        if let Some(assembled) = self.assemble().await {
            events.push(
                InstructionsSet {
                    parts: assembled.parts,
                    digest: assembled.digest,
                }
                .into(),
            );
        }
        self.writer
            .append(Batch::settle(events, ENDED_WELL.to_vec()))
            .await?;
        Ok(())
    }

    async fn refuse_manual(
        &mut self,
        input: &MessageId,
        error: &SessionError,
        model: &Model,
    ) -> Result<(), DrainError> {
        let compaction = facts(self.shared.config.env.as_ref()).compaction();
        let mut events = self.execution_start();
        events.extend([
            promoted(input),
            CompactionStarted {
                compaction: compaction.clone(),
                reason: CompactionReason::Manual,
                input: Some(input.clone()),
                model: model.reference.clone(),
                request_hash: String::new(),
                at_most: None,
            }
            .into(),
            CompactionFailed {
                compaction,
                error: error.clone(),
                usage: Some(Usage::default()),
                cost: Some(0),
            }
            .into(),
        ]);
        let promote = HookOp::Promote {
            input: input.clone(),
        };
        self.writer
            .append(Batch::start(events, vec![promote]))
            .await?;
        Ok(())
    }

    async fn summarise(
        &mut self,
        model: &Model,
        compaction: &CompactionId,
        encoded: Encoded,
        heard: &mut Heard,
    ) -> Result<String, Failure> {
        let key = AttemptKey(compaction.to_string());
        let mut stream = model.provider.send(encoded, &key).await?;
        while let Some(events) = stream.next().await {
            for event in events? {
                heard.on(event)?;
            }
        }
        heard.summary()
    }
}

/// How hard a model is asked to think about a summary: a little where it is known to think, since what vendors take for
/// usual leaves a summary little room. Of others nothing is asked that they may not know.
fn summary_effort(model: &Model) -> Option<Effort> {
    let known = model.info.abilities.as_ref()?;
    known.has(Ability::Reasoning).then_some(Effort::Low)
}

/// What came of an answer so far.
#[derive(Default)]
struct Heard {
    text: String,
    called: bool,
    /// The model was at work.
    began: bool,
    finish: Option<Finish>,
    usage: Option<Usage>,
}

impl Heard {
    fn on(&mut self, event: ProviderEvent) -> Result<(), Failure> {
        match event {
            ProviderEvent::Started { .. } => {}
            ProviderEvent::Usage(so_far) => self.usage = Some(so_far),
            ProviderEvent::Error(error) => return Err(error.into()),
            ProviderEvent::Finish { finish, usage, .. } => {
                // A vendor that reports nothing, or not all, is not a vendor that charges nothing, or only that.
                self.usage = Some(usage).filter(|usage| *usage != Usage::default());
                self.finish = Some(finish);
            }
            event => {
                self.began = true;
                self.content(event)?;
            }
        }
        Ok(())
    }

    fn content(&mut self, event: ProviderEvent) -> Result<(), Failure> {
        match event {
            ProviderEvent::TextDelta { text, .. } if self.text.len() > ANSWER_MAX => {
                let what = format!(
                    "The summary was given up after {} bytes",
                    self.text.len() + text.len()
                );
                return Err(Failure::Unusable(SessionError::new(UNUSABLE_SUMMARY, what)));
            }
            ProviderEvent::TextDelta { text, .. } => self.text.push_str(&text),
            ProviderEvent::ToolInputStart { .. } | ProviderEvent::ToolCall { .. } => {
                self.called = true;
            }
            _ => {}
        }
        Ok(())
    }

    /// Nothing that could have cost anything.
    fn is_nothing(&self) -> bool {
        !self.began && self.usage.is_none()
    }

    /// The tokens, if the answer ended: before that they are a lower bound.
    fn whole_usage(&self) -> Option<&Usage> {
        self.usage.as_ref().filter(|_| self.finish.is_some())
    }

    fn summary(&mut self) -> Result<String, Failure> {
        let Some(finish) = self.finish else {
            let what = "The summary was cut off by the connection";
            return Err(ProviderError::new(ErrorClass::Cut, what).into());
        };
        usable_summary(&self.text, finish, self.called).map_err(Failure::Unusable)?;
        Ok(std::mem::take(&mut self.text))
    }
}
