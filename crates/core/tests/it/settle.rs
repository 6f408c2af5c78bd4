//! Interrupts and crashes at every point of a rich turn: afterwards nothing is open and every call has
//! exactly one settlement.

use crate::journal::*;
use std::collections::HashMap;
use tenure_core::claim::recover;
use tenure_core::event::body::*;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::turn::settle::{Cause, fail_unsettled_tools};
use tenure_core::turn::{CallStatus, Effect};
use tenure_core::{CallId, CompactionId, EventBody, MessageId, SessionError};

/// A turn with everything: a retry, hosted and local calls in all states, a malformed one, open text.
fn rich() -> Journal {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    let cut = [
        text("t", "lost"),
        vec![input_start("c1", "bash"), input_delta("c1", None, "{")],
    ];
    journal.stream_as(cut.concat(), true).unwrap();
    journal.retry(2);
    let stream = [
        reasoning("r", "hm", Some("{\"sig\":1}")),
        text("t", "so"),
        vec![
            complete("h1", "search", "{}", true),
            result("h1", "found"),
            complete("h2", "search", "{}", true),
        ],
        call("c1", "bash", "{}"),
        call("c2", "bash", "{\"x\":"),
        call("c3", "read", "{}"),
        vec![ProviderEvent::Opaque {
            native: "{\"type\":\"x\"}".to_owned(),
        }],
        vec![finish(Finish::ToolCalls)],
    ];
    journal.stream(stream.concat()).unwrap();
    journal
        .start("c1_a2")
        .start("c3")
        .succeed("c3", "ok")
        .succeed("c1_a2", "ok");
    journal.end();
    journal.add(CompactionStarted {
        compaction: CompactionId::from_bits(1),
        reason: CompactionReason::Threshold,
        input: None,
        model: model(),
        request_hash: String::new(),
        at_most: None,
    });
    journal
}

/// Settlements by message and call.
fn settlements(journal: &Journal) -> HashMap<(MessageId, CallId), u32> {
    let mut all = HashMap::new();
    for event in &journal.events {
        let (key, settled) = match &event.body {
            EventBody::ToolInputStarted(e) => ((e.message.clone(), e.call.clone()), 0),
            EventBody::ToolCalled(e) => ((e.message.clone(), e.call.clone()), 0),
            EventBody::ToolSucceeded(e) => ((e.message.clone(), e.call.clone()), 1),
            EventBody::ToolFailed(e) => ((e.message.clone(), e.call.clone()), 1),
            _ => continue,
        };
        *all.entry(key).or_insert(0) += settled;
    }
    all
}

fn causes() -> Vec<Cause> {
    vec![
        Cause::Interrupted,
        Cause::InterruptedAndLost,
        Cause::Shutdown,
        Cause::Crashed,
        Cause::Replaced,
        Cause::Failed(SessionError::new("violation", "no")),
    ]
}

#[test]
fn settling_after_any_prefix_reaches_the_boundary_with_one_settlement_each() {
    let whole = rich();
    for n in 0..=whole.events.len() {
        for cause in causes() {
            let mut journal = whole.prefix(n);
            let open = !journal.state.turn.at_boundary();
            let before = journal.events.len();
            journal.settle(&cause);
            assert_eq!(open, journal.events.len() > before, "prefix {n}");
            assert!(journal.state.turn.at_boundary(), "prefix {n}, {cause:?}");
            assert!(journal.state.turn.pending().is_empty());
            for (call, count) in settlements(&journal) {
                assert_eq!(count, 1, "{call:?} after prefix {n}, {cause:?}");
            }
            // The terminal is last, and settling again adds nothing.
            if let Some(event) = journal.events.get(before..).and_then(<[_]>::last) {
                let name = event.body.type_name();
                assert!(
                    name == "step.failed" || name == "compaction.failed",
                    "{name}"
                );
            }
            let settled = journal.events.len();
            journal.settle(&cause);
            assert_eq!(journal.events.len(), settled);
            // Attempts that began have ended: usage is counted, or known to be unknown.
            let count = |name: &str| {
                journal
                    .events
                    .iter()
                    .filter(|e| e.body.type_name() == name)
                    .count()
            };
            assert_eq!(
                count("attempt.started"),
                count("attempt.ended"),
                "prefix {n}"
            );
            assert_eq!(
                count("fragment.started"),
                count("fragment.ended"),
                "prefix {n}"
            );
        }
    }
}

#[test]
fn recovery_is_the_fold_of_any_prefix_and_then_the_same_pending() {
    let whole = rich();
    let mut live = tenure_core::session::SessionState::default();
    for (n, event) in whole.events.iter().enumerate() {
        live.apply(event);
        let recovered = whole.prefix(n + 1).state;
        assert_eq!(live.turn.pending(), recovered.turn.pending(), "prefix {n}");
        assert_eq!(live.entries, recovered.entries);
        let expected = if live.turn.at_boundary() {
            RecoveryDecision::GoOn
        } else {
            RecoveryDecision::Continue
        };
        assert_eq!(recover(Phase::Active, &recovered.turn, 1, true), expected);
        // What is started is awaited, never run a second time.
        for effect in recovered.turn.pending() {
            if let Effect::RunTool { call, .. } = effect {
                let status = &recovered.turn.call(&call).unwrap().status;
                assert!(matches!(status, CallStatus::Called { .. }));
            }
        }
    }
}

/// Three calls: input half there, called, started.
fn three_states() -> Journal {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    let mut publisher = journal.publisher();
    let mut out = tenure_core::turn::publisher::Output::default();
    let stream = [
        call("called", "bash", "{}"),
        call("started", "bash", "{}"),
        vec![
            complete("hosted", "search", "{}", true),
            input_start("half", "bash"),
        ],
    ];
    publisher.on(stream.concat(), &mut out).unwrap();
    journal.all(out.durable);
    journal.start("started");
    journal
}

#[test]
fn each_cause_says_what_is_known_of_each_call() {
    use ToolFailure as F;
    let journal = three_states();
    for (cause, called, started) in [
        (Cause::Interrupted, F::NotExecuted, F::Interrupted),
        (Cause::InterruptedAndLost, F::NotExecuted, F::OutcomeUnknown),
        (Cause::Shutdown, F::NotExecuted, F::Interrupted),
        (Cause::Crashed, F::NotExecuted, F::OutcomeUnknown),
        (Cause::Replaced, F::Stale, F::Stale),
        (
            Cause::Failed(SessionError::new("x", "y")),
            F::NotExecuted,
            F::OutcomeUnknown,
        ),
    ] {
        let failures: HashMap<String, (ToolFailure, String)> =
            fail_unsettled_tools(journal.step(), &cause)
                .into_iter()
                .map(|body| match body {
                    EventBody::ToolFailed(e) => (e.call.as_str().to_owned(), (e.failure, e.text)),
                    other => panic!("only failures: {}", other.type_name()),
                })
                .collect();
        assert_eq!(failures.len(), 4);
        assert_eq!(failures["called"].0, called, "{cause:?}");
        assert_eq!(failures["started"].0, started, "{cause:?}");
        assert_eq!(failures["half"].0, F::NotExecuted, "{cause:?}");
        assert_eq!(failures["hosted"].0, F::Failed, "{cause:?}");
        if cause == Cause::Interrupted {
            assert_eq!(failures["started"].1, "Tool execution interrupted");
        }
    }
}

#[test]
fn an_attempt_nobody_saw_the_end_of_has_an_unknown_cost() {
    let mut journal = three_states();
    journal.settle(&Cause::Crashed);
    assert!(journal.state.totals.incomplete);
    let Some(EventBody::StepFailed(failed)) = journal.events.last().map(|e| &e.body) else {
        panic!("the step's terminal is last")
    };
    assert_eq!((failed.error.kind.as_str(), failed.cost), ("crashed", None));
}

#[test]
fn an_attempt_that_was_settled_did_not_end_well() {
    let mut journal = three_states();
    let bodies = tenure_core::turn::settle::settle(&journal.state.turn, &Cause::Crashed);
    // A crash of the recovery itself, behind the attempt's end and before the step's.
    let ended = bodies
        .iter()
        .position(|b| matches!(b, EventBody::AttemptEnded(_)))
        .unwrap();
    journal.all(bodies[..=ended].to_vec());
    assert!(!journal.step().ended.as_ref().unwrap().clean);
    journal.settle(&Cause::Crashed);
    assert!(journal.state.turn.at_boundary());
    assert!(settlements(&journal).values().all(|n| *n == 1));
}
