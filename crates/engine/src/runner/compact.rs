//! Compaction: asks the model for a summary and puts it in place of old history.

use super::boundary::promoted;
use super::step::ENDED_WELL;
use super::{DrainEnd, Runner};
use crate::environment::facts;
use crate::error::DrainError;
use crate::models::Model;
use crate::writer::Batch;
use futures::StreamExt;
use tenure_core::Usage;
use tenure_core::budget::refused;
use tenure_core::compaction::{Plan, plan};
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{CompactionId, MessageId};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::retry::Retry;
use tenure_provider::{AttemptKey, Encoded};
use tenure_store::HookOp;

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
            let text = "The conversation does not fit the model's window, and automatic compaction is off. \
                        Compact it by hand (`tenure run --compact`), or choose a model with a larger window.";
            return self.fail(overflow(text.to_owned())).await.map(Some);
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
            Compacted::Done => {
                self.again = true;
                Ok(None)
            }
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
        let planned = plan(
            &self.state,
            reason,
            &model.reference,
            &model.info.limits,
            self.session.as_str(),
        );
        let planned = match planned {
            Ok(planned) => planned,
            Err(unplannable) => {
                let error = SessionError::new("nothing_to_compact", unplannable.to_string());
                if let Some(input) = input {
                    self.refuse_manual(&input, &error, model).await?;
                }
                return Ok(Compacted::NothingOld(error));
            }
        };
        let encoded = match model.provider.encode(&planned.request) {
            Ok(encoded) => encoded,
            Err(error) => {
                let error = SessionError::from(&error);
                if let Some(input) = input {
                    self.refuse_manual(&input, &error, model).await?;
                }
                return Ok(Compacted::Failed(error));
            }
        };
        let mut input = input;
        let mut failed = 0;
        loop {
            if let Some(error) = self.over_budget_now().await? {
                if let Some(input) = input {
                    self.refuse_manual(&input, &error, model).await?;
                }
                return Ok(Compacted::Failed(error));
            }
            let compaction = self
                .begin_compaction(reason, input.take(), model, &encoded)
                .await?;
            if !self.shared.node.may_go_on(&self.life).await {
                return Err(DrainError::Lost);
            }
            let (result, usage) = self.summarise(model, &compaction, encoded.clone()).await;
            let cost = usage.as_ref().and_then(|u| super::attempt::price(model, u));
            let error = match result {
                Ok(summary) => {
                    self.end_compaction(compaction, summary, &planned, usage, cost)
                        .await?;
                    return Ok(Compacted::Done);
                }
                Err(error) => error,
            };
            failed += 1;
            let free = usage.is_none().then(|| refused(&error)).flatten();
            let event = CompactionFailed {
                compaction,
                error: (&error).into(),
                usage: usage.or(free.map(|(usage, _)| usage)),
                cost: cost.or(free.map(|(_, cost)| cost)),
            };
            self.writer
                .append(Batch::settle(vec![event.into()], vec![HookOp::Leave]))
                .await?;
            let random = self.shared.config.env.random();
            match self.shared.config.retry.decide(&error, failed, random) {
                Retry::After(ms) => {
                    let wait = std::time::Duration::from_millis(ms);
                    self.shared.config.env.sleep(wait).await;
                }
                Retry::GiveUp(_) => return Ok(Compacted::Failed((&error).into())),
            }
        }
    }

    async fn begin_compaction(
        &mut self,
        reason: CompactionReason,
        input: Option<MessageId>,
        model: &Model,
        encoded: &Encoded,
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
                at_most: Self::at_most(model, encoded, None),
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
    ) -> (Result<String, ProviderError>, Option<Usage>) {
        let mut usage = None;
        let result = async {
            let key = AttemptKey(compaction.to_string());
            let mut stream = model.provider.send(encoded, &key).await?;
            let mut text = String::new();
            let mut finish = None;
            while let Some(events) = stream.next().await {
                for event in events? {
                    match event {
                        ProviderEvent::TextDelta { text: more, .. } => text.push_str(&more),
                        ProviderEvent::Usage(so_far) => usage = Some(so_far),
                        ProviderEvent::Finish {
                            finish: why,
                            usage: all,
                            ..
                        } => {
                            usage = Some(all);
                            finish = Some(why);
                        }
                        ProviderEvent::Error(error) => return Err(error),
                        _ => {}
                    }
                }
            }
            usable_summary(text, finish)
        }
        .await;
        (result, usage)
    }
}

fn usable_summary(text: String, finish: Option<Finish>) -> Result<String, ProviderError> {
    let refuse = |what: &str| Err(ProviderError::new(ErrorClass::InvalidRequest, what));
    match finish {
        None => Err(ProviderError::new(
            ErrorClass::Cut,
            "The summary was cut off by the connection",
        )),
        Some(Finish::Length) => refuse("The summary ran into its output limit"),
        Some(Finish::ContentFilter) => {
            refuse("The summary was stopped by the provider's content policy")
        }
        Some(_) if text.trim().is_empty() => refuse("The model returned an empty summary"),
        Some(_) => Ok(text),
    }
}
