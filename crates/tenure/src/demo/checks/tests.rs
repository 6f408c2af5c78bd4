//! Each check must be able to fail.

use super::*;
use tenure_core::event::body::*;
use tenure_core::{EventId, ExecutionId, InterruptId, ModelRef, SessionId};

fn log(bodies: Vec<(Option<u64>, EventBody)>) -> Vec<Event> {
    bodies
        .into_iter()
        .enumerate()
        .map(|(seq, (epoch, body))| Event {
            id: EventId::from_bits(seq as u128),
            session: SessionId::from_bits(1),
            seq: seq as u64,
            epoch,
            created_ms: 0,
            body,
        })
        .collect()
}

fn admitted(n: u128) -> EventBody {
    InputAdmitted {
        input: MessageId::from_bits(n),
        kind: InputKind::Compaction,
        delivery: Delivery::Steer,
    }
    .into()
}

fn promoted(n: u128) -> EventBody {
    InputPromoted {
        input: MessageId::from_bits(n),
    }
    .into()
}

fn started(call: &str) -> EventBody {
    ToolStarted {
        message: MessageId::from_bits(9),
        call: CallId::new(call),
        generation: 1,
    }
    .into()
}

fn called(call: &str) -> EventBody {
    ToolCalled {
        message: MessageId::from_bits(9),
        part: 0,
        attempt: 1,
        call: CallId::new(call),
        name: "t".into(),
        input: "{}".into(),
        executed: false,
        native: None,
    }
    .into()
}

fn failed(call: &str) -> EventBody {
    ToolFailed {
        message: MessageId::from_bits(9),
        call: CallId::new(call),
        failure: ToolFailure::OutcomeUnknown,
        text: "x".into(),
        cut: None,
        native: None,
    }
    .into()
}

#[test]
fn p1_sees_an_epoch_that_goes_back() {
    let good = log(vec![
        (None, admitted(1)),
        (Some(1), promoted(1)),
        (Some(2), admitted(2)),
    ]);
    assert_eq!(one_owner(&good).broken, Vec::<String>::new());
    let bad = log(vec![(Some(2), promoted(1)), (Some(1), promoted(1))]);
    assert_eq!(one_owner(&bad).broken.len(), 1);
}

#[test]
fn p2_sees_lost_and_repeated_inputs() {
    let events = log(vec![
        (None, admitted(1)),
        (None, admitted(2)),
        (Some(1), promoted(1)),
    ]);
    assert_eq!(
        nothing_lost(&events, &[MessageId::from_bits(2)]).broken,
        Vec::<String>::new()
    );
    assert_eq!(nothing_lost(&events, &[]).broken.len(), 1);
    let twice = log(vec![
        (None, admitted(1)),
        (None, promoted(1)),
        (None, promoted(1)),
        (None, promoted(3)),
    ]);
    assert_eq!(nothing_lost(&twice, &[]).broken.len(), 2);
}

#[test]
fn p4_sees_what_starts_after_an_interrupt() {
    let interrupt = |n| -> EventBody {
        InterruptRequested {
            interrupt: InterruptId::from_bits(n),
            execution: None,
            by: "x".into(),
        }
        .into()
    };
    let stopped: EventBody = ExecutionInterrupted {
        execution: ExecutionId::from_bits(1),
        reason: InterruptReason::User,
    }
    .into();
    let good = log(vec![
        (None, started("a")),
        (None, interrupt(1)),
        (None, stopped.clone()),
    ]);
    assert_eq!(
        cancel_is_an_event(&good, 0, &[]).broken,
        Vec::<String>::new()
    );
    let bad = log(vec![(None, interrupt(1)), (None, started("a"))]);
    assert_eq!(
        cancel_is_an_event(&bad, 1, &["sleep".into()]).broken.len(),
        4
    );
}

#[test]
fn p5_sees_a_second_start_and_a_call_without_an_end() {
    let attempt = || -> EventBody {
        AttemptStarted {
            message: MessageId::from_bits(9),
            attempt: 1,
            model: ModelRef {
                provider: "p".into(),
                model: "m".into(),
            },
            request_hash: String::new(),
            at_most: None,
        }
        .into()
    };
    let good = log(vec![
        (None, attempt()),
        (None, called("a")),
        (None, started("a")),
        (None, failed("a")),
    ]);
    assert_eq!(honest_effects(&good, 1).broken, Vec::<String>::new());
    assert_eq!(honest_effects(&good, 2).broken.len(), 1);
    let bad = log(vec![
        (None, attempt()),
        (None, attempt()),
        (None, called("a")),
        (None, started("a")),
        (None, started("a")),
    ]);
    assert_eq!(honest_effects(&bad, 1).broken.len(), 3);
}
