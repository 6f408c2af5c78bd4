//! Tests of the transcript: order, live text ahead of the log, and nothing shown twice.

use super::*;
use tenure_core::{CallId, EventId, SessionId};

fn event(seq: u64, body: impl Into<EventBody>) -> Event {
    Event {
        id: EventId::from_bits(u128::from(seq)),
        session: SessionId::from_bits(1),
        seq,
        epoch: Some(1),
        created_ms: i64::try_from(seq).unwrap() * 1000,
        body: body.into(),
    }
}

fn message() -> MessageId {
    MessageId::from_bits(7)
}

fn transcript(detail: Detail) -> Transcript {
    Transcript::new(Drawing {
        look: Look {
            width: 60,
            colour: false,
        },
        markdown: true,
        detail,
    })
}

fn chunk(seq: u64, text: &str) -> Event {
    event(
        seq,
        FragmentChunk {
            message: message(),
            part: 0,
            text: text.into(),
        },
    )
}

fn started(seq: u64) -> Event {
    event(
        seq,
        FragmentStarted {
            message: message(),
            part: 0,
            attempt: 1,
            kind: FragmentKind::Text,
        },
    )
}

fn ended(seq: u64, superseded: bool) -> Event {
    event(
        seq,
        FragmentEnded {
            message: message(),
            part: 0,
            bytes: 0,
            hash: String::new(),
            native: None,
            partial: superseded,
            superseded,
        },
    )
}

fn delta(offset: u64, text: &str) -> LiveItem {
    LiveItem::Delta {
        message: message(),
        attempt: 1,
        part: 0,
        kind: FragmentKind::Text,
        offset,
        text: text.into(),
    }
}

fn superseded(events: &[Event]) -> Superseded {
    let mut superseded = Superseded::default();
    events
        .iter()
        .for_each(|event| superseded.event(&event.body));
    superseded
}

#[test]
fn live_text_and_its_durable_chunks_are_shown_once() {
    let mut t = transcript(Detail::Brief);
    let mut out = Vec::new();
    out.extend(t.live(&delta(0, "one\n\ntw")));
    out.extend(t.event(&started(1)));
    out.extend(t.event(&chunk(2, "one\n\n")));
    out.extend(t.live(&delta(7, "o\n\nthr")));
    out.extend(t.event(&chunk(3, "two\n\nthree")));
    out.extend(t.live(&delta(99, "a gap is left to the log")));
    out.extend(t.event(&ended(4, false)));
    assert_eq!(out, ["one", "", "two", "", "three"]);
}

#[test]
fn live_text_that_is_taken_back_is_drawn_and_said_not_to_count() {
    let mut t = transcript(Detail::Brief);
    let mut out = t.event(&started(1));
    out.extend(t.event(&chunk(2, "durable ")));
    out.extend(t.live(&delta(8, "and lost")));
    out.extend(t.live(&LiveItem::Superseded {
        message: message(),
        attempt: 1,
        part: 0,
        from: 8,
    }));
    assert_eq!(out[0], "durable and lost");
    assert!(out[2].contains("the last 8 B"), "{out:?}");
    let rest = t.event(&ended(3, false));
    assert!(!rest.iter().any(|line| line.contains("lost")), "{rest:?}");
}

#[test]
fn superseded_text_is_said_to_be_so_or_left_out() {
    let events = [started(1), chunk(2, "half\n"), ended(3, true)];
    let mut t = transcript(Detail::Brief);
    let out: Vec<_> = events.iter().flat_map(|e| t.event(e)).collect();
    assert_eq!(out[0], "half");
    assert!(out[2].contains("superseded"), "{out:?}");
    let mut t = transcript(Detail::Brief);
    t.leave_out(superseded(&events));
    assert!(events.iter().flat_map(|e| t.event(e)).next().is_none());
}

fn call(seq: u64, input: &str) -> Event {
    event(
        seq,
        ToolCalled {
            message: message(),
            part: 1,
            attempt: 1,
            call: CallId::new("c1"),
            name: "bash".into(),
            input: input.into(),
            executed: false,
            native: None,
        },
    )
}

fn failed(seq: u64, failure: ToolFailure, text: &str) -> Event {
    event(
        seq,
        ToolFailed {
            message: message(),
            call: CallId::new("c1"),
            failure,
            text: text.into(),
            cut: None,
            native: None,
        },
    )
}

#[test]
fn a_tool_is_one_line_with_its_outcome_and_time() {
    let mut t = transcript(Detail::Brief);
    assert!(
        t.event(&call(1, r#"{"command":"cargo \u001b[2Jtest"}"#))
            .is_empty()
    );
    let out = t.event(&failed(3, ToolFailure::Denied, "a rule says no"));
    assert_eq!(
        out,
        ["✗ bash  cargo ␛[2Jtest  denied: a rule says no  2.0s"]
    );
    let mut t = transcript(Detail::Some);
    t.event(&call(1, "{}"));
    let out = t.event(&failed(3, ToolFailure::Failed, "1\n2\n3\n4\n5\n6\n7\n8"));
    assert_eq!(out.len(), 8);
    assert!(out[7].contains("2 more lines"), "{out:?}");
}

#[test]
fn prompts_are_shown_when_the_model_gets_them_and_own_ones_are_hidden() {
    let admitted = |seq, id: u128, text: &str| {
        event(
            seq,
            InputAdmitted {
                input: MessageId::from_bits(id),
                kind: InputKind::user(text),
                delivery: Delivery::Steer,
            },
        )
    };
    let promoted = |seq, id: u128| {
        event(
            seq,
            InputPromoted {
                input: MessageId::from_bits(id),
            },
        )
    };
    let mut t = transcript(Detail::Brief);
    t.hide_input(MessageId::from_bits(1));
    let events = [
        admitted(0, 1, "mine"),
        admitted(1, 2, "other\nline"),
        promoted(2, 1),
        promoted(3, 2),
    ];
    let out: Vec<_> = events.iter().flat_map(|e| t.event(e)).collect();
    assert_eq!(out, ["› other", "  line"]);
}

#[test]
fn totals_count_steps_and_never_hide_an_unknown_price() {
    let mut totals = Totals::default();
    let usage = Usage {
        input: 10,
        output: 5,
        ..Usage::default()
    };
    let step = |cost| StepEnded {
        message: message(),
        finish: tenure_core::provider::Finish::Stop,
        usage,
        cost,
    };
    totals.event(&step(Some(20_000)).into());
    assert!(totals.words().ends_with("$0.0200"), "{}", totals.words());
    totals.event(&step(None).into());
    assert_eq!(totals.words(), "2 steps · 20 in, 10 out · ≥ $0.0200");
}

fn retry(seq: u64) -> Event {
    event(
        seq,
        RetryScheduled {
            message: message(),
            attempt: 2,
            at_ms: 0,
            delay_ms: 0,
            error: tenure_core::ProviderError::new(tenure_core::ErrorClass::Transport, "cut"),
        },
    )
}

#[test]
fn text_that_was_complete_before_its_attempt_failed_is_superseded_too() {
    let events = [started(1), chunk(2, "draft\n"), ended(3, false), retry(4)];
    let mut t = transcript(Detail::Brief);
    let out: Vec<_> = events.iter().flat_map(|e| t.event(e)).collect();
    let mark = out.iter().position(|l| l.contains("superseded")).unwrap();
    let again = out.iter().position(|l| l.contains('⟳')).unwrap();
    assert!(out[0] == "draft" && mark < again, "{out:?}");
    let mut t = transcript(Detail::Brief);
    t.leave_out(superseded(&events));
    let out: Vec<_> = events.iter().flat_map(|e| t.event(e)).collect();
    assert!(!out.join("\n").contains("draft"), "{out:?}");
    assert!(!out.join("\n").contains("superseded"), "{out:?}");
}

#[test]
fn a_label_is_not_said_twice_and_a_tool_line_fits_the_terminal() {
    let mut t = transcript(Detail::Brief);
    t.event(&call(1, r#"{"command":"ls"}"#));
    let out = t.event(&failed(3, ToolFailure::Denied, "Denied: a rule says no"));
    assert_eq!(out, ["✗ bash  ls  denied: a rule says no  2.0s"]);
    let text = "Not executed: the input is not JSON (expected value at line 1 column 1)";
    for input in ["ls".to_owned(), "long ".repeat(60)] {
        let mut t = transcript(Detail::Brief);
        t.event(&call(1, &format!(r#"{{"command":"{input}"}}"#)));
        let out = t.event(&failed(3, ToolFailure::NotExecuted, text));
        let width = t.drawing.look.width;
        assert!(
            out.len() == 1 && super::super::width::of(&out[0]) <= width,
            "{out:?}"
        );
        assert!(!out[0].contains("Not executed"), "{out:?}");
        assert!(
            out[0].contains("not exec") && out[0].ends_with("2.0s"),
            "{out:?}"
        );
    }
}

#[test]
fn a_command_that_failed_has_no_tick() {
    let done = |seq, metadata: serde_json::Value| {
        event(
            seq,
            ToolSucceeded {
                message: message(),
                call: CallId::new("c1"),
                text: "(no output)".into(),
                title: "exit 3".into(),
                metadata,
                cut: None,
                native: None,
            },
        )
    };
    let cases = [
        (
            serde_json::json!({"exit_code": 3}),
            "! bash  exit 3  exit code 3  2.0s",
        ),
        (
            serde_json::json!({"exit_code": null, "signal": 9}),
            "! bash  exit 3  ended by signal 9  2.0s",
        ),
        (serde_json::json!({"exit_code": 0}), "✓ bash  exit 3  2.0s"),
        (serde_json::Value::Null, "✓ bash  exit 3  2.0s"),
    ];
    for (metadata, line) in cases {
        let mut t = transcript(Detail::Brief);
        t.event(&call(1, "{}"));
        assert_eq!(t.event(&done(3, metadata)), [line]);
    }
}

#[test]
fn open_calls_and_questions_are_shown_with_how_far_they_came() {
    let mut t = transcript(Detail::Some);
    t.event(&call(1, r#"{"command":"sleep 600"}"#));
    let asked = event(
        2,
        PermissionAsked {
            message: message(),
            call: CallId::new("c1"),
            question: "bash: sleep 600".into(),
            proposals: Vec::new(),
        },
    );
    t.event(&asked);
    let now = event(5, SessionReleased { by: "x".into() }).created_ms;
    assert_eq!(
        t.open_calls(now, true),
        [
            "⋯ bash  sleep 600  waits for an answer  4.0s",
            "  ? bash: sleep 600",
            "    `tenure answer ses_00000000000000000000000001 y`  once",
            "      (always is not offered: no single rule would cover this)",
            "    `tenure answer ses_00000000000000000000000001 n`  no (words after it are told to the model)",
        ]
    );
    let answered = PermissionAnswered {
        message: message(),
        call: CallId::new("c1"),
        answer: PermissionAnswer::Once,
        by: "the terminal".into(),
    };
    t.event(&event(3, answered));
    let started = ToolStarted {
        message: message(),
        call: CallId::new("c1"),
        generation: 0,
    };
    t.event(&event(4, started));
    let running = t.open_calls(now, true).pop().unwrap();
    assert_eq!(running, "⋯ bash  sleep 600  running  1.0s");
    let left = t.open_calls(now, false).pop().unwrap();
    assert!(left.contains("nobody runs the session now"), "{left}");
    t.event(&failed(6, ToolFailure::Interrupted, "x"));
    assert!(t.open_calls(now, true).is_empty());
}

#[test]
fn what_has_no_finished_attempt_has_no_price() {
    assert_eq!(Totals::default().words(), "0 steps");
}
