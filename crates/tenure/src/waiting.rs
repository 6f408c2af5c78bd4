//! The permission questions of a session that wait for an answer, read from its log.

use crate::commands::show::each_event;
use crate::exit::CliResult;
use futures::StreamExt;
use std::collections::HashMap;
use tenure_core::event::body::{PermissionAsked, Phase};
use tenure_core::{CallId, EventBody, MessageId, SessionId};
use tenure_store::{ClaimRow, SessionRow, Store};

/// Logs looked at at the same time.
const READS_AT_ONCE: usize = 8;

/// Questions that wait, in the order they were asked.
#[derive(Debug, Default)]
pub struct Waiting {
    open: Vec<PermissionAsked>,
}

impl Waiting {
    /// Learns from an event of the session.
    fn event(&mut self, body: EventBody) {
        match body {
            EventBody::PermissionAsked(asked) => self.open.push(asked),
            // A question is about a call of the open step, and goes with it; a fork leaves it to its parent.
            EventBody::StepStarted(_)
            | EventBody::StepEnded(_)
            | EventBody::StepFailed(_)
            | EventBody::SessionForked(_) => self.open.clear(),
            body => {
                if let Some(over) = settled(&body) {
                    self.open
                        .retain(|asked| (&asked.message, &asked.call) != over);
                }
            }
        }
    }
}

/// The call whose question, if there is one, this event ends.
pub fn settled(body: &EventBody) -> Option<(&MessageId, &CallId)> {
    match body {
        EventBody::PermissionAnswered(e) => Some((&e.message, &e.call)),
        EventBody::ToolFailed(e) => Some((&e.message, &e.call)),
        EventBody::ToolSucceeded(e) => Some((&e.message, &e.call)),
        _ => None,
    }
}

/// What a session asks, as far as `row` knows its log.
///
/// # Errors
/// The log cannot be read.
pub async fn questions(store: &dyn Store, row: &SessionRow) -> CliResult<Vec<PermissionAsked>> {
    behind(store, row, None).await
}

/// What a session asked at `seq`, and had no answer to by then.
///
/// # Errors
/// The store cannot be read.
pub async fn open_at(
    store: &dyn Store,
    session: &SessionId,
    seq: u64,
) -> CliResult<Vec<PermissionAsked>> {
    let claims = store.claims().await?;
    let claim = claims.iter().find(|claim| &claim.session == session);
    let step = claim.and_then(|claim| claim.assistant_seq);
    let (Some(step), Some(mut row)) = (step, store.session(session).await?) else {
        return Ok(Vec::new());
    };
    // A question goes with its step: only what is behind the beginning of the open one is read.
    row.head = row.head.min(seq);
    behind(store, &row, step.checked_sub(1)).await
}

async fn behind(
    store: &dyn Store,
    row: &SessionRow,
    after: Option<u64>,
) -> CliResult<Vec<PermissionAsked>> {
    let mut waiting = Waiting::default();
    each_event(store, row, after, |event| {
        waiting.event(event.body);
        Ok(())
    })
    .await?;
    Ok(waiting.open)
}

/// How many questions wait in each of these sessions that has an owner and asks anything. Only what is behind the
/// beginning of each open step is read.
pub async fn counts(
    store: &dyn Store,
    claims: &[ClaimRow],
    rows: &[SessionRow],
) -> HashMap<SessionId, usize> {
    let steps: HashMap<&SessionId, u64> = claims
        .iter()
        .filter(|claim| claim.phase != Phase::Cancelling)
        .filter_map(|claim| Some((&claim.session, claim.assistant_seq?)))
        .collect();
    let reads = rows.iter().filter_map(|row| {
        let step = *steps.get(&row.id)?;
        Some(async move {
            match behind(store, row, step.checked_sub(1)).await {
                Ok(open) => (!open.is_empty()).then(|| (row.id.clone(), open.len())),
                Err(error) => {
                    // It was deleted meanwhile, or cannot be read: the list shows it all the same.
                    tracing::debug!(session = %row.id, %error, "what it asks is not known");
                    None
                }
            }
        })
    });
    let reads = futures::stream::iter(reads.collect::<Vec<_>>());
    let found: Vec<_> = reads.buffer_unordered(READS_AT_ONCE).collect().await;
    found.into_iter().flatten().collect()
}

/// The command that answers a question, without the answer; `several` wait in the session.
pub fn command(session: &SessionId, asked: &PermissionAsked, several: bool) -> String {
    if several {
        format!("tenure answer {session} --call {}", asked.call)
    } else {
        format!("tenure answer {session}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::body::*;

    fn asked(call: &str) -> PermissionAsked {
        PermissionAsked {
            message: MessageId::from_bits(1),
            call: CallId::new(call),
            question: "q".into(),
            proposals: Vec::new(),
        }
    }

    #[test]
    fn a_question_waits_until_it_is_answered_or_its_call_is_settled() {
        let mut waiting = Waiting::default();
        for call in ["a", "b", "c"] {
            waiting.event(asked(call).into());
        }
        let answered = |message, call: &str| PermissionAnswered {
            message: MessageId::from_bits(message),
            call: CallId::new(call),
            answer: PermissionAnswer::Once,
            by: "x".into(),
        };
        // Another message's call of the same name is another one.
        waiting.event(answered(2, "a").into());
        waiting.event(answered(1, "b").into());
        let open: Vec<&str> = waiting.open.iter().map(|q| q.call.as_str()).collect();
        assert_eq!(open, ["a", "c"]);
        let end = SessionForked {
            parent: SessionId::from_bits(1),
            through: 1,
        };
        waiting.event(end.into());
        assert!(waiting.open.is_empty());
    }
}
