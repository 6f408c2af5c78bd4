//! One attempt: sends the request once, publishes its stream, starts tools as their calls become durable.

use super::Runner;
use super::silence::{Heard, Reply, close_reply};
use super::step::AttemptOutcome;
use crate::error::DrainError;
use crate::hub::LiveItem;
use crate::models::Model;
use crate::writer::Batch;
use futures::StreamExt;
use std::time::Duration;
use tenure_core::compaction::LEAST_OUTPUT;
use tenure_core::error::{ErrorClass, ProviderError, SessionError};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::fragment::CHECKPOINT_MS;
use tenure_core::id::MessageId;
use tenure_core::retry::Retry;
use tenure_core::turn::publisher::{AttemptRef, Output, Publisher, StreamEnd};
use tenure_provider::{AttemptKey, Encoded, EventStream, output_that_fits, window_said};

/// How an attempt's stream ended.
struct Ended {
    end: StreamEnd,
    /// Well, and without a word.
    silent: bool,
}

impl From<ProviderError> for Ended {
    fn from(error: ProviderError) -> Self {
        Self {
            end: StreamEnd::Failed(error),
            silent: false,
        }
    }
}

impl Runner {
    /// Runs an attempt whose `attempt.started` is durable (R11).
    pub(super) async fn attempt(
        &mut self,
        model: &Model,
        message: &MessageId,
        attempt: u32,
        encoded: Encoded,
    ) -> Result<AttemptOutcome, DrainError> {
        let at = AttemptRef {
            message: message.clone(),
            attempt,
            model: model.reference.clone(),
            protocol: model.provider.protocol().to_owned(),
        };
        let publisher = self
            .writer
            .turn()
            .step
            .as_ref()
            .map(|step| Publisher::new(step, at));
        let Some(mut publisher) = publisher else {
            return Err(DrainError::Lost);
        };
        if !self.shared.node.may_go_on(&self.life).await {
            return Err(DrainError::Lost);
        }
        let key = AttemptKey(format!("{message}-{attempt}"));
        let end = match model.provider.send(encoded, &key).await {
            Ok(stream) => self.publish(stream, &mut publisher).await?,
            Err(error) => Ok(Ended::from(error)),
        };
        match end {
            Ok(ended) => self.close(&mut publisher, ended, attempt, model).await,
            Err(violation) => {
                let error = ProviderError::new(ErrorClass::Protocol, violation.clone());
                let end = StreamEnd::Failed(error);
                let events = publisher.close(&end, false, |u| price(model, u));
                self.writer
                    .append(Batch::settle(events, Vec::new()))
                    .await?;
                self.tools
                    .launch_pending(&self.call_context(), &self.writer);
                Ok(AttemptOutcome::Violated(violation))
            }
        }
    }

    /// Reads the stream to its end. The inner `Err` is a violation.
    async fn publish(
        &mut self,
        mut stream: EventStream,
        publisher: &mut Publisher,
    ) -> Result<Result<Ended, String>, DrainError> {
        let env = self.shared.config.env.clone();
        let interval = Duration::from_millis(CHECKPOINT_MS);
        let mut checkpoint = None;
        let mut heard = Heard::default();
        loop {
            let timer = checkpoint.get_or_insert_with(|| env.sleep(interval));
            let item = tokio::select! {
                biased;
                fault = self.tools.fault() => return Err(fault),
                item = stream.next() => Some(item),
                () = timer, if publisher.has_draft() => None,
            };
            let mut out = Output::default();
            let mut failed = None;
            match item {
                None => publisher.checkpoint(&mut out),
                Some(None) => {
                    failed = Some(ProviderError::new(
                        ErrorClass::Cut,
                        "The response ended without its protocol's end",
                    ));
                }
                Some(Some(Err(error))) => failed = Some(error),
                Some(Some(Ok(events))) => {
                    heard.listen(&events);
                    if let Err(violation) = publisher.on(events, &mut out) {
                        self.record(std::mem::take(&mut out)).await?;
                        return Ok(Err(violation.to_string()));
                    }
                }
            }
            if item_is_checkpoint(&out) || !publisher.has_draft() {
                checkpoint = None;
            }
            let end = out.end.take().or(failed.map(StreamEnd::Failed));
            if let Some(end) = end {
                // What the last chunk brought goes into the same commit as the attempt's end.
                self.show(&mut out);
                self.held = std::mem::take(&mut out.durable);
                return Ok(Ok(refuse_nothing(end, publisher, &heard)));
            }
            self.record(out).await?;
        }
    }

    fn show(&self, out: &mut Output) {
        if !out.live.is_empty() && self.shared.hub.has_readers(&self.session) {
            for delta in out.live.drain(..) {
                self.shared.hub.send(&self.session, LiveItem::from(delta));
            }
        }
    }

    async fn record(&mut self, mut out: Output) -> Result<(), DrainError> {
        self.show(&mut out);
        if out.durable.is_empty() {
            return Ok(());
        }
        let only_text = out
            .durable
            .iter()
            .all(|event| matches!(event, EventBody::FragmentChunk(_)));
        let batch = if only_text {
            Batch::text(out.durable)
        } else {
            Batch::settle(out.durable, Vec::new())
        };
        self.writer.append(batch).await?;
        if !only_text {
            self.tools
                .launch_pending(&self.call_context(), &self.writer);
        }
        Ok(())
    }

    /// Writes the end of the attempt, decides about a retry, and ends the step at once when nothing of it is
    /// open any more.
    async fn close(
        &mut self,
        publisher: &mut Publisher,
        ended: Ended,
        attempt: u32,
        model: &Model,
    ) -> Result<AttemptOutcome, DrainError> {
        let mut events = std::mem::take(&mut self.held);
        let Ended { end, silent } = ended;
        let StreamEnd::Failed(error) = &end else {
            events.extend(publisher.close(&end, false, |u| price(model, u)));
            return self.close_well(events, silent).await;
        };
        let called = events
            .iter()
            .any(|e| matches!(e, EventBody::ToolCalled(call) if !call.executed))
            || self
                .writer
                .turn()
                .step
                .as_ref()
                .is_some_and(|s| s.attempt_called(attempt));
        let error = error.clone();
        let output = self.smaller_output(&error, called, model);
        // The same request would be refused again: the step is tried anew, without what was refused.
        let refused = self.state.can_repair(&SessionError::from(&error));
        let verdict = if called || refused {
            Retry::GiveUp(None)
        } else if output.is_some() {
            Retry::After(0)
        } else {
            let random = self.shared.config.env.random();
            self.shared
                .config
                .retry
                .decide(&error, attempt + self.cut_in_a_row, random)
        };
        let retry = matches!(verdict, Retry::After(_));
        events.extend(publisher.close(&end, retry, |u| price(model, u)));
        if let Retry::After(delay_ms) = verdict {
            events.push(self.retry_scheduled(attempt + 1, delay_ms, error));
            // What happened is recorded even under an interrupt; the next attempt is not started then.
            self.writer
                .append(Batch::settle(events, Vec::new()))
                .await?;
            return Ok(AttemptOutcome::Retry { delay_ms, output });
        }
        self.writer
            .append(Batch::settle(events, Vec::new()))
            .await?;
        self.tools
            .launch_pending(&self.call_context(), &self.writer);
        let why = match verdict {
            Retry::GiveUp(why) => why,
            Retry::After(_) => None,
        };
        Ok(AttemptOutcome::Failed(error, why))
    }

    /// The output limit with which the request would have fitted, when the provider says by its numbers that only the
    /// sum was too large: that is tried once before anything is compacted.
    fn smaller_output(
        &mut self,
        error: &ProviderError,
        called: bool,
        model: &Model,
    ) -> Option<u64> {
        if error.class != ErrorClass::ContextOverflow {
            return None;
        }
        if let Some(window) = window_said(error) {
            self.window_said = Some((model.reference.clone(), window));
        }
        let output = output_that_fits(error).filter(|room| *room >= LEAST_OUTPUT)?;
        (!called && !std::mem::replace(&mut self.output_cut, true)).then_some(output)
    }

    async fn close_well(
        &mut self,
        events: Vec<EventBody>,
        silent: bool,
    ) -> Result<AttemptOutcome, DrainError> {
        let reply = self.judge_reply(silent);
        let empty = matches!(reply, Reply::Empty(_));
        let over = self
            .writer
            .append_with(|turn| Some(close_reply(turn, events, reply)))
            .await?
            .is_some_and(|committed| {
                committed
                    .events
                    .iter()
                    .any(|event| matches!(event.body, EventBody::StepEnded(_)))
            });
        if over {
            self.cut_in_a_row = 0;
            return Ok(if empty {
                AttemptOutcome::ExecutionOver
            } else {
                AttemptOutcome::StepOver
            });
        }
        self.tools
            .launch_pending(&self.call_context(), &self.writer);
        Ok(AttemptOutcome::AwaitTools)
    }

    fn retry_scheduled(&self, attempt: u32, delay_ms: u64, error: ProviderError) -> EventBody {
        let message = self
            .writer
            .turn()
            .step
            .as_ref()
            .map(|step| step.message.clone())
            .expect("invariant: an attempt closes inside its step");
        RetryScheduled {
            message,
            attempt,
            at_ms: self.shared.config.env.now_ms() + delay_ms as i64,
            delay_ms,
            error,
        }
        .into()
    }
}

/// After a checkpoint of all drafts the interval begins anew.
fn item_is_checkpoint(out: &Output) -> bool {
    out.durable
        .iter()
        .any(|event| matches!(event, EventBody::FragmentChunk(_)))
}

/// A response of nothing at all is not an answer: it would end the turn as if the work were done.
fn refuse_nothing(end: StreamEnd, publisher: &Publisher, heard: &Heard) -> Ended {
    let silent = publisher.usage().is_none_or(|usage| usage.output == 0);
    if end != StreamEnd::Finished || publisher.has_content() || !(silent || heard.filtered()) {
        let silent = end == StreamEnd::Finished && heard.silent();
        return Ended { end, silent };
    }
    Ended::from(if heard.filtered() {
        ProviderError::new(
            ErrorClass::ContentFilter,
            "The provider's content policy stopped the answer before its first word",
        )
    } else {
        ProviderError::new(
            ErrorClass::Protocol,
            "The model answered with nothing: no text, no call, no tokens",
        )
    })
}

pub(super) fn price(model: &Model, usage: &tenure_core::Usage) -> Option<u64> {
    model
        .info
        .price
        .as_ref()
        .and_then(|price| price.micro_dollars(usage))
}
