//! Whole turns as the log holds them.

use crate::journal::*;
use insta::assert_snapshot;
use tenure_core::event::body::*;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::turn::Effect;
use tenure_core::turn::publisher::{Output, StreamEnd};
use tenure_core::turn::settle::Cause;
use tenure_core::{CallId, EventBody, Usage};

fn begun() -> Journal {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    journal
}

fn join(parts: Vec<Vec<ProviderEvent>>) -> Vec<ProviderEvent> {
    parts.into_iter().flatten().collect()
}

/// Everything from `step.started` on.
fn turn(journal: &Journal) -> String {
    journal.render(5)
}

#[test]
fn text_only() {
    let mut journal = begun();
    let stream = vec![text("t", "Hello."), vec![finish(Finish::Stop)]];
    journal.stream(join(stream)).unwrap();
    journal.end();
    assert_snapshot!(turn(&journal));
}

#[test]
fn reasoning_keeps_its_native_state_byte_for_byte() {
    let native = r#"{"type":"thinking","thinking":"h\u00e4","signature":"c2ln" }"#;
    let mut journal = begun();
    let stream = vec![
        reasoning("r", "hä", Some(native)),
        text("t", "Yes."),
        vec![finish(Finish::Stop)],
    ];
    journal.stream(join(stream)).unwrap();
    journal.end();
    assert_snapshot!(turn(&journal));
    let EventBody::FragmentEnded(ended) = &journal.events[9].body else {
        panic!("the reasoning's end: {}", turn(&journal))
    };
    assert_eq!(ended.native.as_ref().unwrap().native, native);
}

#[test]
fn text_and_two_parallel_calls() {
    let mut journal = begun();
    let stream = vec![
        text("t", "Looking."),
        // Interleaved, as some vendors stream them.
        vec![input_start("c1", "read"), input_start("c2", "bash")],
        vec![
            input_delta("c2", None, "{\"command\":"),
            input_delta("c1", Some("read"), "{}"),
        ],
        vec![input_end("c1", None), complete("c1", "read", "{}", false)],
        vec![input_delta("c2", None, "\"ls\"}"), input_end("c2", None)],
        vec![complete("c2", "bash", "{\"command\":\"ls\"}", false)],
        vec![finish(Finish::ToolCalls)],
    ];
    journal.stream(join(stream)).unwrap();
    // Settled in another order than called.
    journal.start("c1").start("c2").succeed("c2", "a.txt");
    assert_eq!(
        journal.state.turn.pending(),
        [Effect::AwaitTool {
            call: CallId::new("c1")
        }]
    );
    journal.succeed("c1", "text");
    journal.end();
    assert_snapshot!(turn(&journal));
    assert!(
        journal.state.wants_step,
        "the model has not seen the results"
    );
}

#[test]
fn malformed_input_is_a_failure_the_model_sees_and_the_turn_goes_on() {
    let mut journal = begun();
    let stream = vec![
        call("c1", "write", "{\"path\":\"a"),
        call("c2", "write", "[1]"),
        call("c3", "write", ""),
        text("t", "So."),
        vec![finish(Finish::ToolCalls)],
    ];
    journal.stream(join(stream)).unwrap();
    journal.run_tools();
    journal.end();
    assert_snapshot!(turn(&journal));
}

#[test]
fn tokens_that_were_not_told_whole_are_not_counted_as_what_was_said_before() {
    let mut journal = begun();
    let end = ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: usage(0, 0),
    };
    let stream = vec![
        vec![ProviderEvent::Usage(usage(10, 1))],
        text("t", "A long answer."),
        vec![end],
    ];
    journal.stream(join(stream)).unwrap();
    journal.end();
    assert_eq!(costs(&journal), [None]);
    assert_eq!(journal.state.totals.usage, usage(0, 0));
    assert!(journal.state.totals.incomplete);
    assert_eq!(journal.state.context_tokens, None);
}

#[test]
fn hosted_calls_are_never_run_here() {
    let mut journal = begun();
    let stream = vec![
        vec![
            input_start("h1", "web_search"),
            complete("h1", "web_search", "{\"q\":1}", true),
        ],
        vec![
            complete("h2", "web_search", "", true),
            result("h1", "found"),
        ],
        text("t", "Found."),
        vec![finish(Finish::Stop)],
    ];
    journal.stream(join(stream)).unwrap();
    journal.end();
    assert_snapshot!(turn(&journal));
    assert!(!journal.state.wants_step);
    assert_eq!(costs(&journal), [None], "its fees are not known");
}

#[test]
fn searches_that_the_provider_counts_are_known_fees_and_other_runs_of_its_own_are_not() {
    let counted = |searches| Usage {
        searches,
        ..usage(10, 5)
    };
    for (tool, searches, known) in [
        ("web_search", Some(1), true),
        ("web_search", Some(0), true),
        ("web_search", None, false),
        ("code_execution", Some(1), false),
    ] {
        let mut journal = begun();
        let end = ProviderEvent::Finish {
            finish: Finish::Stop,
            raw: None,
            usage: counted(searches),
        };
        let stream = vec![
            vec![complete("h1", tool, "{}", true), result("h1", "found")],
            text("t", "Found."),
            vec![end],
        ];
        journal.stream(join(stream)).unwrap();
        journal.end();
        assert_eq!(costs(&journal), [known.then_some(5)], "{tool} {searches:?}");
    }
}

fn costs(journal: &Journal) -> Vec<Option<u64>> {
    let costs = journal.events.iter().filter_map(|event| match &event.body {
        EventBody::AttemptEnded(ended) => Some(ended.cost),
        _ => None,
    });
    costs.collect()
}

#[test]
fn a_cut_stream_is_superseded_and_the_step_keeps_its_message() {
    let mut journal = begun();
    let cut = vec![
        vec![ProviderEvent::Usage(usage(10, 1))],
        text("t", "Half a thou"),
        vec![ProviderEvent::ReasoningStart { id: "r".to_owned() }],
        vec![
            input_start("c1", "bash"),
            input_delta("c1", None, "{\"comm"),
        ],
    ];
    journal.stream_as(join(cut), true).unwrap();
    assert!(!journal.step().attempt_called(1) && journal.step().attempt_produced(1));
    journal.retry(2);
    // The second attempt uses the id again: it is another call.
    let whole = vec![
        text("t", "A thought."),
        call("c1", "bash", "{}"),
        vec![finish(Finish::ToolCalls)],
    ];
    journal.stream(join(whole)).unwrap();
    journal.run_tools();
    journal.end();
    assert_snapshot!(turn(&journal));
    let step = &journal.state.totals;
    assert_eq!(
        (step.attempts, step.usage.input, step.usage.output),
        (2, 20, 6)
    );
    // What the cut attempt had reported is a lower bound: it has no cost, and the sum says so.
    assert_eq!(costs(&journal), [None, Some(5)]);
    assert!(step.incomplete);
    let request = format!("{:?}", journal.request().messages);
    assert!(!request.contains("Half"), "{request}");
}

#[test]
fn a_stream_cut_behind_a_complete_call_keeps_what_came() {
    let mut journal = begun();
    let cut = vec![
        text("t", "Listing."),
        call("c1", "bash", "{}"),
        vec![ProviderEvent::TextStart {
            id: "t2".to_owned(),
        }],
        vec![ProviderEvent::TextDelta {
            id: "t2".to_owned(),
            text: "and th".to_owned(),
        }],
    ];
    journal.stream(join(cut)).unwrap();
    assert!(journal.step().attempt_called(1));
    journal.run_tools();
    let error = tenure_core::SessionError::from(&cut_error());
    journal.settle(&Cause::Failed(error));
    assert_snapshot!(turn(&journal));
    let request = format!("{:?}", journal.request().messages);
    assert!(
        request.contains("out of c1") && request.contains("and th"),
        "{request}"
    );
}

#[test]
fn the_message_is_opened_by_the_first_event_that_needs_it_and_stamped_on_all() {
    let journal = begun();
    let mut publisher = journal.publisher();
    let mut out = Output::default();
    let started = ProviderEvent::Started {
        response_id: Some("r".to_owned()),
        model: None,
    };
    publisher.on(vec![started], &mut out).unwrap();
    assert!(out.durable.is_empty() && !publisher.has_content());
    publisher.on(text("t", "x"), &mut out).unwrap();
    assert!(publisher.has_content());
    let closing = publisher.close(&StreamEnd::Finished, false, |_| None);
    for body in out.durable.iter().chain(&closing) {
        assert_eq!(body.message(), Some(&msg("a")), "{}", body.type_name());
    }
}

#[test]
fn live_text_runs_ahead_of_the_checkpoint_and_names_its_place() {
    let journal = begun();
    let mut publisher = journal.publisher();
    let mut out = Output::default();
    let delta = |text: &str| ProviderEvent::TextDelta {
        id: "t".to_owned(),
        text: text.to_owned(),
    };
    let start = ProviderEvent::TextStart { id: "t".to_owned() };
    publisher
        .on(vec![start, delta("ab"), delta("c")], &mut out)
        .unwrap();
    assert_eq!(out.durable.len(), 1, "nothing but the start is durable yet");
    assert_eq!((out.live[0].offset, out.live[0].text.as_str()), (0, "abc"));
    assert!(publisher.has_draft());
    let mut out = Output::default();
    publisher
        .on(vec![delta(&"x".repeat(3_000))], &mut out)
        .unwrap();
    assert_eq!(out.live[0].offset, 3);
    let [EventBody::FragmentChunk(chunk)] = &out.durable[..] else {
        panic!("a full draft is checkpointed at once")
    };
    assert_eq!(chunk.text.len(), 3_003);
    publisher.on(vec![delta("y")], &mut out).unwrap();
    publisher.checkpoint(&mut out);
    assert!(!publisher.has_draft());
    assert_eq!(out.durable.len(), 2);
}

#[test]
fn a_retry_waits_with_its_time_and_the_step_ends_only_when_all_is_settled() {
    let mut journal = begun();
    assert_eq!(
        journal.state.turn.pending(),
        [Effect::AwaitStream { attempt: 1 }]
    );
    journal.stream_as(vec![], true).unwrap();
    let message = msg("a");
    journal.add(RetryScheduled {
        message,
        attempt: 2,
        at_ms: 9,
        delay_ms: 2,
        error: cut_error(),
    });
    let send = Effect::SendAttempt {
        attempt: 2,
        not_before_ms: Some(9),
    };
    assert_eq!(journal.state.turn.pending(), [send]);
    journal.attempt(2);
    let stream = vec![call("c1", "bash", "{}"), vec![finish(Finish::ToolCalls)]];
    journal.stream(join(stream)).unwrap();
    assert!(matches!(
        journal.state.turn.pending()[..],
        [Effect::RunTool { .. }]
    ));
    journal.run_tools();
    assert_eq!(journal.state.turn.pending(), [Effect::EndStep]);
}

#[test]
fn an_answer_to_another_messages_call_of_the_same_id_changes_nothing() {
    let mut journal = begun();
    let stream = vec![call("c1", "bash", "{}"), vec![finish(Finish::ToolCalls)]];
    journal.stream(join(stream)).unwrap();
    let answer = |message: &str| PermissionAnswered {
        message: msg(message),
        call: CallId::new("c1"),
        answer: PermissionAnswer::Once,
        by: "x".to_owned(),
    };
    journal.add(answer("older"));
    let open = |j: &Journal| {
        j.state
            .turn
            .call(&CallId::new("c1"))
            .unwrap()
            .answer
            .clone()
    };
    assert_eq!(open(&journal), None);
    journal.add(answer("a"));
    let no = PermissionAnswered {
        answer: PermissionAnswer::No {
            note: None,
            nobody: false,
        },
        ..answer("a")
    };
    journal.add(no);
    assert_eq!(
        open(&journal),
        Some(PermissionAnswer::Once),
        "the first answer counts"
    );
}

#[test]
fn a_call_counts_as_ours_until_the_provider_says_that_it_ran_it() {
    let journal = begun();
    let mut publisher = journal.publisher();
    let mut open = journal.clone();
    let executed = |j: &Journal| j.state.turn.call(&CallId::new("h")).unwrap().executed;
    for (event, expected) in [
        (input_start("h", "search"), false),
        (complete("h", "search", "{}", true), true),
    ] {
        let mut out = Output::default();
        publisher.on(vec![event], &mut out).unwrap();
        open.all(out.durable);
        assert_eq!(executed(&open), expected);
        assert_eq!(
            open.state.turn.pending(),
            [Effect::AwaitStream { attempt: 1 }],
            "never run here"
        );
    }
}

#[test]
fn a_renamed_call_leaves_the_providers_json_with_its_old_name_behind() {
    let mut journal = begun();
    journal
        .stream_as(vec![input_start("c1", "bash")], true)
        .unwrap();
    journal.retry(2);
    let native = |id: &str| Some(format!("{{\"call_id\":\"{id}\"}}"));
    let with = |id: &str| ProviderEvent::ToolCall {
        id: id.to_owned(),
        name: "bash".to_owned(),
        input: "{}".to_owned(),
        executed: false,
        native: native(id),
    };
    let stream = vec![with("c1"), with("c2"), finish(Finish::ToolCalls)];
    journal.stream(stream).unwrap();
    let called: Vec<(String, bool)> = journal
        .events
        .iter()
        .filter_map(|event| match &event.body {
            EventBody::ToolCalled(e) => Some((e.call.as_str().to_owned(), e.native.is_some())),
            _ => None,
        })
        .collect();
    assert_eq!(
        called,
        [("c1_a2".to_owned(), false), ("c2".to_owned(), true)]
    );
}
