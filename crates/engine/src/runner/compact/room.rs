//! Whether the next request fits: how large it is, a compaction before it when it is due, the room for its answer.

use super::Compacted;
use crate::environment::off_thread;
use crate::error::DrainError;
use crate::models::Model;
use crate::runner::{DrainEnd, Runner};
use tenure_core::compaction::{
    self, Rough, Size, TokenCounter, Unmeasured, Unplannable, due, exhausted, may_try,
    output_limit, request_size, trigger,
};
use tenure_core::error::SessionError;
use tenure_core::event::body::CompactionReason;
use tenure_core::model::ModelLimits;
use tenure_core::request::{Request, RequestMessage, UserPart};
use tenure_provider::Tokens;

/// What was found before a step.
pub(in crate::runner) enum Room {
    /// The request fits, or the provider may judge; its answer may have so many tokens.
    Fits(Option<u64>),
    /// History was compacted: look again.
    Compacted,
    /// The turn is over.
    End(DrainEnd),
}

impl Runner {
    /// The limits in force: what is known of the model, and what its provider said of its window since.
    pub(in crate::runner) fn limits(&self, model: &Model) -> ModelLimits {
        let mut limits = model.info.limits.clone();
        if let Some((said_of, window)) = &self.window_said
            && said_of == &model.reference
        {
            let known = limits.context.unwrap_or(u64::MAX);
            limits.context = Some(known.min(*window));
        }
        limits
    }

    /// Looks whether `request` fits the model's window, and compacts when it is due.
    pub(in crate::runner) async fn make_room(
        &mut self,
        model: &Model,
        request: &Request,
    ) -> Result<Room, DrainError> {
        let limits = self.limits(model);
        if let Some(futile) = exhausted(&self.state, &limits) {
            return self.does_not_fit(futile.to_string()).await;
        }
        let size = self.size(model, &limits, request).await;
        let output = output_limit(request.max_output, &limits, &size);
        if !self.shared.config.auto_compaction {
            return Ok(Room::Fits(output));
        }
        let why = if due(&self.state, &limits, &size) {
            match self
                .compact(CompactionReason::Threshold, None, model)
                .await?
            {
                Compacted::Done => return Ok(Room::Compacted),
                Compacted::NothingOld(error) => Some(error),
                Compacted::Failed(error) if error.kind == tenure_core::budget::KIND => {
                    return self.fail(error).await.map(Room::End);
                }
                Compacted::Failed(error) => Some(SessionError::new(
                    error.kind,
                    format!(
                        "The conversation does not fit the model's window, and it could not be compacted: {}",
                        error.message
                    ),
                )),
            }
        } else {
            None
        };
        // Near the limit the provider judges; what is far above it is not sent only to be refused.
        match limits.context.filter(|window| size.surely_above(*window)) {
            None => Ok(Room::Fits(output)),
            Some(window) => {
                let text = match why {
                    Some(error) => error.message,
                    None => self.why_too_large(&size, window),
                };
                self.does_not_fit(text).await
            }
        }
    }

    fn why_too_large(&self, size: &Size, window: u64) -> String {
        if may_try(&self.state) {
            return Unplannable::Futile {
                fixed_tokens: size.likely(),
                window_tokens: window,
            }
            .to_string();
        }
        format!(
            "The conversation takes about {} tokens, the model's window holds {window}, and its summaries could not be \
             used. Compact it by hand (`tenure resume {} --compact`), with another model if need be, or choose a model with \
             a larger window.",
            size.likely(),
            self.session
        )
    }

    async fn does_not_fit(&mut self, text: String) -> Result<Room, DrainError> {
        let error = SessionError::new("context_overflow", text);
        self.fail(error).await.map(Room::End)
    }

    /// The size of the next request: the provider's own count of what it has seen, and an estimate of the rest; a real
    /// count where the estimate would decide and the model's vocabulary is public.
    async fn size(&self, model: &Model, limits: &ModelLimits, request: &Request) -> Size {
        let tokens = Tokens::of(model.provider.protocol(), &model.reference.model);
        let rough = self.estimate(tokens, request).await;
        let near = trigger(limits).is_some_and(|trigger| rough.is_near(trigger));
        let Some(exact) = tokens.exact().filter(|_| near) else {
            return rough;
        };
        self.counted(exact, request).await.unwrap_or(rough)
    }

    /// The estimate; off the threads that serve others when files are in it, whose pages and pixels are looked for.
    async fn estimate(&self, tokens: Tokens, request: &Request) -> Size {
        let files = match Unmeasured::of(&self.state) {
            Some((_, newer)) => newer.has_media(),
            None => has_media(request),
        };
        if files && let Some(size) = self.counted(tokens.rough(), request).await {
            return size;
        }
        // Without a look into files.
        compaction::size(&self.state, request, &Rough)
    }

    /// The size as `counter` sees it, off the threads that serve others; none when counting failed.
    async fn counted(
        &self,
        counter: impl TokenCounter + 'static,
        request: &Request,
    ) -> Option<Size> {
        let env = self.shared.config.env.as_ref();
        match Unmeasured::of(&self.state) {
            Some((measured, newer)) => {
                off_thread(env, move || newer.size(measured, &counter)).await
            }
            None => {
                let request = request.clone();
                off_thread(env, move || request_size(&request, &counter)).await
            }
        }
    }
}

fn has_media(request: &Request) -> bool {
    let media = |part: &UserPart| matches!(part, UserPart::Media(_));
    request
        .messages
        .iter()
        .any(|message| matches!(message, RequestMessage::User { parts } if parts.iter().any(media)))
}
