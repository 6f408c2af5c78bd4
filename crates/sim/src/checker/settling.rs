//! The life of one tool call: called, started at most once, settled once, and honestly.

use super::turns::Step;
use super::{Findings, Promise};
use tenure_core::event::EventBody;
use tenure_core::event::body::*;
use tenure_core::{CallId, Event};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Streaming,
    Called,
    Started,
    Settled,
}

/// A tool call as far as the log tells.
#[derive(Debug)]
pub(super) struct Call {
    name: String,
    stage: Stage,
    was_started: bool,
    /// The provider runs it.
    hosted: bool,
    /// A question about it waits for an answer.
    asks: bool,
}

impl Call {
    pub(super) fn is_settled(&self) -> bool {
        self.stage == Stage::Settled
    }

    /// Settled, or called and not begun.
    pub(super) fn waits(&self) -> bool {
        self.is_settled() || (self.stage == Stage::Called && !self.hosted)
    }
}

impl Step {
    /// An event of a call of this step.
    pub(super) fn call(&mut self, event: &Event, out: &mut Findings) {
        match &event.body {
            EventBody::ToolInputStarted(e) => self.input_started(e, out),
            EventBody::ToolCalled(e) => self.called(e, out),
            EventBody::ToolStarted(e) => self.started(&e.call, event.epoch, out),
            EventBody::ToolSucceeded(e) => self.settled(&e.call, None, event.epoch, out),
            EventBody::ToolFailed(e) => self.settled(&e.call, Some(e.failure), event.epoch, out),
            EventBody::BlockRecorded(e) => self.part(e.part, out),
            EventBody::PermissionAsked(e) => self.asked(&e.call, out),
            EventBody::PermissionAnswered(e) => self.answered(&e.call, out),
            _ => {}
        }
    }

    fn input_started(&mut self, e: &ToolInputStarted, out: &mut Findings) {
        self.part(e.part, out);
        let call = Call {
            name: e.name.clone(),
            stage: Stage::Streaming,
            was_started: false,
            hosted: false,
            asks: false,
        };
        let before = self.calls.insert(e.call.clone(), call);
        out.unless(before.is_none(), Promise::AlwaysSendable, || {
            format!("call {} began twice in {}", e.call, e.message)
        });
    }

    fn called(&mut self, e: &ToolCalled, out: &mut Findings) {
        match self.calls.get_mut(&e.call) {
            Some(call) if call.stage == Stage::Streaming => {
                out.unless(call.name == e.name, Promise::AlwaysSendable, || {
                    format!(
                        "call {} began as {} and was made as {}",
                        e.call, call.name, e.name
                    )
                });
                call.stage = Stage::Called;
                call.hosted = e.executed;
            }
            Some(_) => out.add(
                Promise::AlwaysSendable,
                format!("call {} was made twice", e.call),
            ),
            None => {
                self.part(e.part, out);
                let call = Call {
                    name: e.name.clone(),
                    stage: Stage::Called,
                    was_started: false,
                    hosted: e.executed,
                    asks: false,
                };
                self.calls.insert(e.call.clone(), call);
            }
        }
    }

    fn started(&mut self, id: &CallId, epoch: Option<u64>, out: &mut Findings) {
        let same_owner = epoch == self.epoch && !self.recovering;
        out.unless(same_owner, Promise::HonestEffects, || {
            format!("call {id} was started by another owner than the one its step began under")
        });
        let Some(call) = self.calls.get_mut(id) else {
            out.add(
                Promise::HonestEffects,
                format!("call {id} was started and never made"),
            );
            return;
        };
        out.unless(!call.was_started, Promise::HonestEffects, || {
            format!("call {id} was started twice")
        });
        out.unless(!call.hosted, Promise::HonestEffects, || {
            format!("call {id} is run by the provider and was started here")
        });
        out.unless(
            call.stage == Stage::Called || call.was_started,
            Promise::HonestEffects,
            || format!("call {id} was started while it was {:?}", call.stage),
        );
        call.was_started = true;
        if call.stage == Stage::Called {
            call.stage = Stage::Started;
        }
    }

    /// `failure`: none when it succeeded.
    fn settled(
        &mut self,
        id: &CallId,
        failure: Option<ToolFailure>,
        epoch: Option<u64>,
        out: &mut Findings,
    ) {
        let lost = self.recovering || epoch != self.epoch;
        let Some(call) = self.calls.get_mut(id) else {
            out.add(
                Promise::AlwaysSendable,
                format!("a result for call {id}, which was never made"),
            );
            return;
        };
        if call.stage == Stage::Settled {
            out.add(
                Promise::AlwaysSendable,
                format!("call {id} has a second result"),
            );
            return;
        }
        let honest = call.hosted
            || match failure {
                None => call.was_started && !lost,
                Some(failure) => is_honest(failure, call.was_started, lost),
            };
        out.unless(honest, Promise::HonestEffects, || {
            let how = failure.map_or("succeeded".to_owned(), |failure| format!("{failure:?}"));
            let begun = if call.was_started {
                "begun"
            } else {
                "not begun"
            };
            let owner = if lost { ", and its owner was lost" } else { "" };
            format!("call {id} is settled as {how}, though it had {begun}{owner}")
        });
        call.stage = Stage::Settled;
    }

    fn asked(&mut self, id: &CallId, out: &mut Findings) {
        let waits = self
            .calls
            .get_mut(id)
            .filter(|call| call.stage == Stage::Called)
            .map(|call| call.asks = true);
        out.unless(waits.is_some(), Promise::Order, || {
            format!("a question about call {id}, which does not wait to be started")
        });
    }

    /// Whoever answered was told that it counts (R11).
    fn answered(&mut self, id: &CallId, out: &mut Findings) {
        let call = self.calls.get_mut(id);
        let counts = call.is_some_and(|call| {
            let open = call.stage == Stage::Called;
            std::mem::take(&mut call.asks) && open
        });
        out.unless(counts, Promise::HonestEffects, || {
            format!("an answer to a question about call {id}, which did not wait for it")
        });
    }
}

/// May a call that was not a success be settled so?
fn is_honest(failure: ToolFailure, started: bool, lost: bool) -> bool {
    match failure {
        ToolFailure::NotExecuted => !(started && lost),
        ToolFailure::Denied => !started,
        ToolFailure::Failed | ToolFailure::TimedOut => started && !lost,
        ToolFailure::Interrupted | ToolFailure::OutcomeUnknown => started,
        ToolFailure::Stale => true,
    }
}
