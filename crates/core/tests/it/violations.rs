//! Every thing a stream may not do, with the exact words: the ids, and both names where one changed. Each
//! ends the attempt, leaves nothing unsettled, and takes no process down.

use crate::journal::*;
use tenure_core::event::body::FragmentKind;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::turn::publisher::has_open_fragment;
use tenure_core::turn::settle::{Cause, fail_step};
use tenure_core::turn::{CallStatus, Effect};
use tenure_core::{EventBody, SessionError};

fn start(kind: FragmentKind, id: &str) -> ProviderEvent {
    let id = id.to_owned();
    match kind {
        FragmentKind::Text => ProviderEvent::TextStart { id },
        FragmentKind::Reasoning => ProviderEvent::ReasoningStart { id },
    }
}

fn delta(kind: FragmentKind, id: &str) -> ProviderEvent {
    let (id, text) = (id.to_owned(), "x".to_owned());
    match kind {
        FragmentKind::Text => ProviderEvent::TextDelta { id, text },
        FragmentKind::Reasoning => ProviderEvent::ReasoningDelta { id, text },
    }
}

fn end(kind: FragmentKind, id: &str) -> ProviderEvent {
    let (id, native) = (id.to_owned(), None);
    match kind {
        FragmentKind::Text => ProviderEvent::TextEnd { id, native },
        FragmentKind::Reasoning => ProviderEvent::ReasoningEnd { id, native },
    }
}

/// Plays `before` (valid), then `bad`, and returns what was said. The step then fails whole.
fn refused(before: Vec<ProviderEvent>, bad: ProviderEvent) -> String {
    let mut journal = Journal::new();
    journal.user("u", "go");
    journal.begin("a");
    let mut stream = text("before", "kept");
    stream.extend(before);
    stream.push(bad);
    // What follows a violation is not looked at.
    stream.push(ProviderEvent::TextDelta {
        id: "never started".to_owned(),
        text: String::new(),
    });
    let violation = journal.stream(stream).expect_err("a violation");
    assert!(!has_open_fragment(journal.step()));
    assert!(journal.step().attempt.is_none());
    let waiting = |c: &CallStatus| !matches!(c, CallStatus::Settled | CallStatus::Called { .. });
    assert!(!journal.step().calls().any(|c| waiting(&c.status)));
    let error = SessionError::new("violation", violation.to_string());
    let bodies = fail_step(journal.step(), &Cause::Failed(error.clone()));
    journal.all(bodies);
    assert!(journal.state.turn.at_boundary());
    let Some(EventBody::StepFailed(failed)) = journal.events.last().map(|e| &e.body) else {
        panic!("the terminal is last")
    };
    assert_eq!(failed.error, error);
    violation.to_string()
}

#[test]
fn fragments_start_once_and_carry_nothing_before_start_or_after_end() {
    for (kind, word) in [
        (FragmentKind::Text, "text"),
        (FragmentKind::Reasoning, "reasoning"),
    ] {
        let open = || vec![start(kind, "f7")];
        let closed = || vec![start(kind, "f7"), delta(kind, "f7"), end(kind, "f7")];
        for (before, bad, said) in [
            (vec![], delta(kind, "f7"), "delta before start: f7"),
            (vec![], end(kind, "f7"), "end before start: f7"),
            (closed(), delta(kind, "f7"), "delta after end: f7"),
        ] {
            assert_eq!(refused(before, bad), format!("{word} {said}"));
        }
        for (before, bad, said) in [
            (open(), start(kind, "f7"), "start"),
            (closed(), start(kind, "f7"), "start"),
            (closed(), end(kind, "f7"), "end"),
        ] {
            assert_eq!(refused(before, bad), format!("Duplicate {word} {said}: f7"));
        }
    }
}

#[test]
fn text_and_reasoning_are_numbered_apart() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    let mut stream = reasoning("0", "hm", None);
    stream.extend(text("0", "yes"));
    stream.push(finish(Finish::Stop));
    journal.stream(stream).expect("no clash");
    assert_eq!(
        refused(
            vec![start(FragmentKind::Reasoning, "1")],
            delta(FragmentKind::Text, "1")
        ),
        "text delta before start: 1"
    );
}

#[test]
fn tool_input_keeps_its_order() {
    let open = || vec![input_start("c1", "bash")];
    let closed = || vec![input_start("c1", "bash"), input_end("c1", Some("bash"))];
    for (before, bad, said) in [
        (
            vec![],
            input_delta("c1", None, "{"),
            "tool input delta before start: c1",
        ),
        (
            vec![],
            input_end("c1", None),
            "tool input end before start: c1",
        ),
        (
            open(),
            input_start("c1", "bash"),
            "Duplicate tool input start: c1",
        ),
        (
            closed(),
            input_delta("c1", None, "{"),
            "tool input delta after end: c1",
        ),
        (
            closed(),
            input_end("c1", None),
            "Duplicate tool input end: c1",
        ),
    ] {
        assert_eq!(refused(before, bad), said);
    }
}

#[test]
fn a_changed_name_is_refused_with_both_names() {
    let open = || vec![input_start("c1", "bash")];
    for (bad, said) in [
        (
            input_delta("c1", Some("read"), "{"),
            "Tool input name changed for c1: bash -> read",
        ),
        (
            input_end("c1", Some("read")),
            "Tool input name changed for c1: bash -> read",
        ),
        (
            complete("c1", "read", "{}", false),
            "Tool call name changed for c1: bash -> read",
        ),
        (
            complete("c1", "read", "{}", true),
            "Tool call name changed for c1: bash -> read",
        ),
    ] {
        assert_eq!(refused(open(), bad), said);
    }
}

#[test]
fn a_call_comes_once_and_before_its_one_result() {
    let called = |executed| vec![complete("c1", "bash", "{}", executed)];
    let answered = || vec![complete("c1", "search", "{}", true), result("c1", "ok")];
    for (before, bad, said) in [
        (
            called(false),
            complete("c1", "bash", "{}", false),
            "Duplicate tool call: c1 (bash)",
        ),
        (
            answered(),
            complete("c1", "search", "{}", true),
            "Duplicate tool call: c1 (search)",
        ),
        (
            called(false),
            input_start("c1", "bash"),
            "Duplicate tool input start: c1",
        ),
        (
            vec![],
            result("c1", "ok"),
            "tool result before its call: c1",
        ),
        (
            vec![input_start("c1", "search")],
            result("c1", "ok"),
            "tool result before its call: c1 (search)",
        ),
        (
            answered(),
            result("c1", "again"),
            "Duplicate tool result: c1 (search)",
        ),
        (
            called(false),
            result("c1", "ok"),
            "tool result from the provider for a local call: c1 (bash)",
        ),
        (
            vec![complete("c1", "bash", "{ broken", false)],
            result("c1", "ok"),
            "Duplicate tool result: c1 (bash)",
        ),
    ] {
        assert_eq!(refused(before, bad), said);
    }
}

#[test]
fn a_violation_behind_a_complete_call_leaves_the_call_to_be_run_or_settled() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    let mut stream = call("c1", "bash", "{}");
    stream.push(input_delta("c1", None, "x"));
    journal.stream(stream).expect_err("a violation");
    assert!(journal.step().attempt_called(1));
    assert!(matches!(
        journal.state.turn.pending()[..],
        [Effect::RunTool { .. }]
    ));
    assert!(!journal.step().ended.as_ref().expect("ended").clean);
}
