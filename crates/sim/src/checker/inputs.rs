//! P2: every admitted input is promoted once or cancelled once, or it is pending; none is left at an idle end. What an
//! owner itself admits is named after the step it follows, so that saying it again says nothing new (R9).

use super::{Findings, Promise};
use std::collections::BTreeMap;
use tenure_core::event::EventBody;
use tenure_core::event::body::InputKind;
use tenure_core::{Event, MessageId, SessionId};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pending,
    Promoted(u64),
    Cancelled(u64),
}

/// The inputs of one session.
#[derive(Default)]
pub(super) struct Inputs {
    fates: BTreeMap<MessageId, Fate>,
    /// The last step that ended.
    ended: Option<MessageId>,
    /// What owners admitted: where, and after which step. In whose name, only a fork or the end of the log tells.
    own: Vec<(u64, MessageId, Option<MessageId>)>,
    session: Option<SessionId>,
}

impl Inputs {
    pub(super) fn on(&mut self, event: &Event, out: &mut Findings) {
        self.session = Some(event.session.clone());
        match &event.body {
            EventBody::StepEnded(e) => self.ended = Some(e.message.clone()),
            EventBody::StepFailed(e) => self.ended = Some(e.message.clone()),
            EventBody::InputAdmitted(e) => {
                if event.epoch.is_some() && matches!(e.kind, InputKind::Synthetic { .. }) {
                    let own = (event.seq, e.input.clone(), self.ended.clone());
                    self.own.push(own);
                }
                let before = self.fates.insert(e.input.clone(), Fate::Pending);
                out.unless(before.is_none(), Promise::NothingLost, || {
                    format!("input {} was admitted twice", e.input)
                });
            }
            EventBody::InputPromoted(e) => {
                self.decide(&e.input, Fate::Promoted(event.seq), "promoted", out);
            }
            EventBody::InputCancelled(e) => {
                self.decide(&e.input, Fate::Cancelled(event.seq), "cancelled", out);
            }
            EventBody::InputDeliveryChanged(e) => {
                let pending = self.fates.get(&e.input) == Some(&Fate::Pending);
                out.unless(pending, Promise::NothingLost, || {
                    format!(
                        "the delivery of {} changed while it was not pending",
                        e.input
                    )
                });
            }
            // What waited in the parent is the parent's.
            EventBody::SessionForked(e) => {
                self.fates.retain(|_, fate| *fate != Fate::Pending);
                self.named_in(&e.parent, out);
            }
            // An execution that ran had nothing parked before it, so that nothing may wait at its good end.
            EventBody::ExecutionSucceeded(e) => {
                for input in self.pending() {
                    out.add(
                        Promise::NothingLost,
                        format!(
                            "execution {} ended well while input {input} was pending",
                            e.execution
                        ),
                    );
                }
            }
            _ => {}
        }
    }

    /// The log is over.
    pub(super) fn finish(&mut self, out: &mut Findings) {
        if let Some(session) = self.session.take() {
            self.named_in(&session, out);
        }
    }

    /// Is everything that owners admitted in `session` named after what it follows?
    fn named_in(&mut self, session: &SessionId, out: &mut Findings) {
        let here = out.seq;
        for (seq, input, after) in std::mem::take(&mut self.own) {
            let step = after.as_ref().map_or("", MessageId::as_str);
            let due = MessageId::derived(&["continuation", session.as_str(), step]);
            out.seq = seq;
            out.unless(input == due, Promise::NothingLost, || {
                format!("{input} goes on after step {step}, and {due} would be its name")
            });
        }
        out.seq = here;
    }

    fn decide(&mut self, input: &MessageId, fate: Fate, word: &str, out: &mut Findings) {
        match self.fates.insert(input.clone(), fate) {
            Some(Fate::Pending) => {}
            Some(Fate::Promoted(at)) => out.add(
                Promise::NothingLost,
                format!("input {input} was {word}, and had been promoted at seq {at}"),
            ),
            Some(Fate::Cancelled(at)) => out.add(
                Promise::NothingLost,
                format!("input {input} was {word}, and had been cancelled at seq {at}"),
            ),
            None => out.add(
                Promise::NothingLost,
                format!("input {input} was {word}, and had never been admitted"),
            ),
        }
    }

    pub(super) fn pending(&self) -> Vec<MessageId> {
        let pending = self
            .fates
            .iter()
            .filter(|(_, fate)| **fate == Fate::Pending);
        pending.map(|(input, _)| input.clone()).collect()
    }
}
