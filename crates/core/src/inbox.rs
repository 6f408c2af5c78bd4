//! Which waiting inputs may enter the conversation at a boundary, and in which order.

use crate::event::body::{Delivery, InputKind};
use crate::id::MessageId;
use serde::{Deserialize, Serialize};

/// An accepted input that the model has not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingInput {
    /// The input.
    pub input: MessageId,
    /// What it asks for.
    #[serde(flatten)]
    pub kind: InputKind,
    /// When it may enter.
    pub delivery: Delivery,
    /// The seq of its admission: the order of the inbox.
    pub seq: u64,
    /// May it enter, or does it rest because the session was parked (R4)?
    pub eligible: bool,
    /// Wall-clock milliseconds of its admission.
    pub admitted_ms: i64,
}

/// The boundary at which inputs are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// A step follows anyway: only steers may join it.
    Continuing,
    /// Nothing else is to be done: steers, else one queued input.
    Idle,
    /// Recovery's own continuation runs alone: only this input.
    Recovering,
}

/// What to take from the inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// These inputs enter the conversation together, in this order.
    Prompts(Vec<MessageId>),
    /// This control input is carried out alone.
    Control(MessageId),
    /// Nothing is eligible here.
    Nothing,
}

impl InputKind {
    /// Compaction and move: carried out by Tenure, never shown to the model as words.
    pub fn is_control(&self) -> bool {
        matches!(self, Self::Compaction | Self::Move { .. })
    }
}

/// Chooses from `pending` (in admission order). All steers up to the first steered control input enter
/// together, since steers do not cross a control input; at an idle boundary without steers, the first
/// queued input follows. `continuation` is the input recovery wrote.
pub fn take(
    pending: &[PendingInput],
    boundary: Boundary,
    continuation: Option<&MessageId>,
) -> Take {
    let eligible = || pending.iter().filter(|p| p.eligible);
    if boundary == Boundary::Recovering {
        return match continuation.and_then(|c| eligible().find(|p| &p.input == c)) {
            Some(input) => Take::Prompts(vec![input.input.clone()]),
            None => Take::Nothing,
        };
    }
    let mut prompts = Vec::new();
    for input in eligible().filter(|p| p.delivery == Delivery::Steer) {
        if !input.kind.is_control() {
            prompts.push(input.input.clone());
        } else if prompts.is_empty() {
            return Take::Control(input.input.clone());
        } else {
            break;
        }
    }
    if !prompts.is_empty() {
        return Take::Prompts(prompts);
    }
    if boundary == Boundary::Continuing {
        return Take::Nothing;
    }
    match eligible().find(|p| p.delivery == Delivery::Queue) {
        Some(input) if input.kind.is_control() => Take::Control(input.input.clone()),
        Some(input) => Take::Prompts(vec![input.input.clone()]),
        None => Take::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(spec: &[(&str, Delivery, bool)]) -> Vec<PendingInput> {
        spec.iter()
            .enumerate()
            .map(|(i, (id, delivery, eligible))| PendingInput {
                input: MessageId::parse(&format!("msg_{id}")).unwrap(),
                kind: if id.starts_with('c') {
                    InputKind::Compaction
                } else {
                    InputKind::user((*id).to_owned())
                },
                delivery: *delivery,
                seq: i as u64,
                eligible: *eligible,
                admitted_ms: 0,
            })
            .collect()
    }

    fn prompts(take: Take) -> Vec<String> {
        match take {
            Take::Prompts(ids) => ids.iter().map(|i| i.as_str()[4..].to_owned()).collect(),
            other => panic!("expected prompts, got {other:?}"),
        }
    }

    #[test]
    fn all_steers_enter_together_in_admission_order_and_overtake_the_queue() {
        let p = pending(&[
            ("q1", Delivery::Queue, true),
            ("s1", Delivery::Steer, true),
            ("s2", Delivery::Steer, true),
        ]);
        assert_eq!(prompts(take(&p, Boundary::Idle, None)), ["s1", "s2"]);
        assert_eq!(prompts(take(&p, Boundary::Continuing, None)), ["s1", "s2"]);
    }

    #[test]
    fn the_queue_waits_for_the_idle_boundary_and_goes_one_at_a_time() {
        let p = pending(&[("q1", Delivery::Queue, true), ("q2", Delivery::Queue, true)]);
        assert_eq!(take(&p, Boundary::Continuing, None), Take::Nothing);
        assert_eq!(prompts(take(&p, Boundary::Idle, None)), ["q1"]);
    }

    #[test]
    fn steers_do_not_cross_a_control_input() {
        let p = pending(&[
            ("s1", Delivery::Steer, true),
            ("c1", Delivery::Steer, true),
            ("s2", Delivery::Steer, true),
        ]);
        assert_eq!(prompts(take(&p, Boundary::Idle, None)), ["s1"]);
        let Take::Control(control) = take(&p[1..], Boundary::Continuing, None) else {
            panic!("the control input comes next")
        };
        assert_eq!(control.as_str(), "msg_c1");
    }

    #[test]
    fn parked_inputs_rest_and_recovery_takes_only_its_own() {
        let p = pending(&[
            ("s1", Delivery::Steer, false),
            ("s2", Delivery::Steer, true),
        ]);
        assert_eq!(prompts(take(&p, Boundary::Idle, None)), ["s2"]);
        let own = MessageId::parse("msg_s2").unwrap();
        assert_eq!(prompts(take(&p, Boundary::Recovering, Some(&own))), ["s2"]);
        assert_eq!(
            take(&p[..1], Boundary::Recovering, Some(&own)),
            Take::Nothing
        );
    }
}
