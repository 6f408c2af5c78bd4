//! P2: every admitted input is promoted once or cancelled once, or it is pending; none is left at an idle end.

use super::{Findings, Promise};
use std::collections::BTreeMap;
use tenure_core::event::EventBody;
use tenure_core::{Event, MessageId};

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
}

impl Inputs {
    pub(super) fn on(&mut self, event: &Event, out: &mut Findings) {
        match &event.body {
            EventBody::InputAdmitted(e) => {
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
            EventBody::SessionForked(_) => self.fates.retain(|_, fate| *fate != Fate::Pending),
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
