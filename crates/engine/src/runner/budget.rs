//! Budgets of a session, kept at every point where a request would be sent: by the log alone, so that a takeover, a
//! hand-over or another process counts the same. What is judged, and the words for it, are `tenure_core::budget`.
//!
//! Cost and tokens are looked at before a step, a retry and a compaction's request: the request under way is let
//! finish. Time counts from the durable start of the execution on, each owner's share by its own clock; when it is over, what runs is stopped,
//! and the supervisor settles it as a failure.

use super::{DrainEnd, Runner};
use crate::engine::Shared;
use crate::error::DrainError;
use crate::load;
use crate::models::Model;
use crate::writer::Batch;
use std::sync::Arc;
use std::time::Duration;
use tenure_core::budget::OverBudget;
use tenure_core::error::SessionError;
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::id::{ExecutionId, SessionId};
use tenure_core::request::{Request, RequestMessage, UserPart};
use tenure_core::turn::{Ran, TurnState};
use tenure_provider::Encoded;

/// The most tokens of one image: the dearest rule known counts some 50,000 for a large one.
const IMAGE_AT_MOST: u64 = 65_536;
/// Events read at once when a limit is looked up again.
const PAGE: usize = 512;
/// The wait before a limit is looked up again while the store is away.
const AWAY: Duration = Duration::from_millis(200);

impl Runner {
    /// Why the fold allows no further request, if it does not. For a boundary, where the fold is at the head.
    pub(super) fn over_budget(&self) -> Option<SessionError> {
        let settings = self.state.settings.as_ref()?;
        let price = |model: &_| self.shared.models.price(model);
        let (limits, totals) = (&settings.limits, &self.state.totals);
        let checked = self
            .state
            .ledger
            .check(limits, totals, &settings.model, price);
        if let Err(over) = checked {
            return Some(SessionError::from(&over));
        }
        let model = &settings.model;
        let fees = limits.max_cost.is_some() && self.shared.models.has_fees(model);
        fees.then(|| {
            let model = model.clone();
            SessionError::from(&OverBudget::Fees { model })
        })
    }

    /// As [`Runner::over_budget`] in the middle of a step or of compactions: the fold is brought up to the head first.
    pub(super) async fn over_budget_now(&mut self) -> Result<Option<SessionError>, DrainError> {
        if self
            .state
            .settings
            .as_ref()
            .is_none_or(|s| s.limits.max_cost.is_none() && s.limits.max_tokens.is_none())
        {
            return Ok(None);
        }
        load::catch_up(self.shared.store.as_ref(), &self.session, &mut self.state).await?;
        Ok(self.over_budget())
    }

    /// Ends the execution because of a budget; one is begun when none is open, so that the log says why what waits
    /// stays where it is.
    pub(super) async fn end_over_budget(
        &mut self,
        error: SessionError,
    ) -> Result<DrainEnd, DrainError> {
        let start: Vec<EventBody> = self.execution_start();
        if !start.is_empty() {
            self.writer.append(Batch::start(start, Vec::new())).await?;
        }
        self.fail(error).await
    }

    /// The most that a request can take, for when its end is lost; none when nothing bounds it.
    pub(super) fn at_most(model: &Model, encoded: &Encoded, request: &Request) -> Option<AtMost> {
        // A provider that runs tools asks its model again for each of their results.
        if !request.hosted_tools.is_empty() {
            return None;
        }
        let output = encoded
            .output_allowed()
            .or(request.max_output)
            .or(model.info.most_output())?;
        let window = model.info.limits.context;
        let prompt = match prompt_at_most(encoded, request) {
            Some(bound) => window.map_or(bound, |window| bound.min(window)),
            None => window?,
        };
        let price = model.info.price.as_ref();
        Some(AtMost {
            prompt,
            output,
            cost: price.map(|price| price.at_most(prompt, output)),
        })
    }

    /// Resolves when the execution has lasted as long as it may. It borrows nothing, and may be dropped at any time.
    pub(super) fn out_of_time(&mut self) -> impl Future<Output = SessionError> + Send + use<> {
        let limits = self.state.settings.as_ref().map(|s| s.limits.clone());
        let watch = WallWatch {
            shared: self.shared.clone(),
            session: self.session.clone(),
            ran: self.ran_ms(),
            cursor: self.state.cursor,
            limit: limits.and_then(|limits| limits.max_wall_ms),
        };
        watch.wait()
    }

    /// How long the execution has run by now, in milliseconds; nothing before it has begun.
    fn ran_ms(&mut self) -> u64 {
        let now = self.shared.config.env.boot_ms();
        let turn = self.writer.turn();
        self.timed.look(&turn, now)
    }
}

/// How long an execution has run: under earlier owners by the log, and from then on by the boot clock, which nobody sets.
#[derive(Debug, Default)]
pub(crate) struct Timed(Option<Since>);

#[derive(Debug)]
struct Since {
    /// None while there was none.
    execution: Option<ExecutionId>,
    before_ms: u64,
    boot_ms: u64,
}

impl Timed {
    /// Milliseconds by `boot_ms`. For every boundary, also where nothing has begun.
    fn look(&mut self, turn: &TurnState, boot_ms: u64) -> u64 {
        let open = turn.execution.clone();
        let since = match self.0.take() {
            // It is the same, or has begun since the last look.
            Some(since)
                if open.is_some() && (since.execution == open || since.execution.is_none()) =>
            {
                Since {
                    execution: open,
                    ..since
                }
            }
            _ => Since {
                execution: open,
                before_ms: turn.ran.as_ref().map_or(0, Ran::ms),
                boot_ms,
            },
        };
        let here = boot_ms.saturating_sub(since.boot_ms);
        let ran = since.before_ms.saturating_add(here);
        self.0 = Some(since);
        ran
    }
}

/// The most tokens of a request's prompt by what is sent: text has no more of them than bytes. None where that says
/// nothing: a small document can hold any number of pages.
fn prompt_at_most(encoded: &Encoded, request: &Request) -> Option<u64> {
    let mut most = encoded.body.len() as u64;
    for message in &request.messages {
        let RequestMessage::User { parts } = message else {
            continue;
        };
        for part in parts {
            match part {
                UserPart::Text(_) => {}
                UserPart::Media(media) if media.media_type.starts_with("image/") => {
                    most = most.saturating_add(IMAGE_AT_MOST);
                }
                UserPart::Media(_) => return None,
            }
        }
    }
    Some(most)
}

/// Watches the time of one execution.
struct WallWatch {
    shared: Arc<Shared>,
    session: SessionId,
    /// How long it has run before, in milliseconds; from here on the boot clock counts, which nobody sets.
    ran: u64,
    cursor: Option<u64>,
    limit: Option<u64>,
}

impl WallWatch {
    async fn wait(mut self) -> SessionError {
        let env = self.shared.config.env.clone();
        let began = env.boot_ms();
        loop {
            let Some(limit) = self.limit else {
                return std::future::pending().await;
            };
            let here = env.boot_ms().saturating_sub(began);
            let ran = self.ran.saturating_add(here);
            let Some(left) = limit.checked_sub(ran).filter(|left| *left > 0) else {
                let over = OverBudget::Wall { limit_ms: limit };
                return SessionError::from(&over);
            };
            env.sleep(Duration::from_millis(left)).await;
            self.limit = latest_limit(&self.shared, &self.session, &mut self.cursor, limit).await;
        }
    }
}

/// The limit in force now: somebody may have changed it while a step ran.
async fn latest_limit(
    shared: &Shared,
    session: &SessionId,
    cursor: &mut Option<u64>,
    known: u64,
) -> Option<u64> {
    let mut limit = Some(known);
    loop {
        let page = match shared.store.read(session, *cursor, PAGE).await {
            Ok(page) => page,
            Err(error) if error.is_unreadable() => {
                shared.config.env.sleep(AWAY).await;
                continue;
            }
            Err(_) => return limit,
        };
        for event in &page.events {
            *cursor = Some(event.seq);
            if let EventBody::LimitsChanged(changed) = &event.body {
                limit = changed.limits.max_wall_ms;
            }
        }
        if page.events.is_empty() || *cursor >= page.head {
            return limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_core::model::ModelRef;
    use tenure_core::request::Media;

    fn sent(media_type: Option<&str>) -> Option<u64> {
        let media = media_type.map(|media_type| {
            UserPart::Media(Media {
                name: "a".to_owned(),
                media_type: media_type.to_owned(),
                data: Arc::from("eA=="),
            })
        });
        let mut parts = vec![UserPart::from("look")];
        parts.extend(media);
        let model = ModelRef {
            provider: "p".to_owned(),
            model: "m".to_owned(),
        };
        let request = Request {
            messages: vec![RequestMessage::User { parts }],
            ..Request::new(model)
        };
        let encoded = Encoded {
            body: vec![b'x'; 100].into(),
            hash: String::new(),
            model: "m".to_owned(),
        };
        prompt_at_most(&encoded, &request)
    }

    #[test]
    fn only_text_has_no_more_tokens_than_bytes() {
        assert_eq!(sent(None), Some(100));
        assert_eq!(sent(Some("image/png")), Some(100 + IMAGE_AT_MOST));
        assert_eq!(sent(Some("application/pdf")), None);
        assert_eq!(sent(Some("audio/wav")), None);
    }
}
