//! Public fault cases that the pure machines answer, named by their number.

use crate::compaction::{asked, exchange, is_due, planned, window};
use crate::history::{blocks, compacted, kinds};
use crate::journal::*;
use tenure_core::compaction::{Unplannable, exhausted, meter};
use tenure_core::event::body::*;
use tenure_core::history::{LENGTH_NOTICE, build};
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::repeat::{SAME_CALL, SAME_TOOL, repeating};
use tenure_core::request::{AssistantBlock, Request, RequestMessage};
use tenure_core::retry::{Retry, RetryPolicy};
use tenure_core::turn::settle::Cause;
use tenure_core::{ErrorClass, EventBody, ModelRef, ProviderError, claim};

/// Every call of the request has its one result directly behind its message.
fn assert_paired(request: &Request) {
    let mut seen = std::collections::HashSet::new();
    for (n, message) in request.messages.iter().enumerate() {
        let RequestMessage::Assistant { blocks } = message else {
            continue;
        };
        let calls: Vec<&String> = blocks
            .iter()
            .filter_map(|b| match b {
                AssistantBlock::ToolCall { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        let results = match request.messages.get(n + 1) {
            Some(RequestMessage::ToolResults { results }) => results.as_slice(),
            _ => &[],
        };
        assert_eq!(calls, results.iter().map(|r| &r.id).collect::<Vec<_>>());
        assert!(
            calls.iter().all(|id| seen.insert((*id).clone())),
            "{calls:?}"
        );
    }
}

fn count(journal: &Journal, name: &str) -> usize {
    journal
        .events
        .iter()
        .filter(|e| e.body.type_name() == name)
        .count()
}

fn called(journal: &mut Journal, message: &str, calls: &[&str]) {
    journal.begin(message);
    let stream = calls.iter().flat_map(|id| call(id, "shell", "{}"));
    journal
        .stream(stream.chain([finish(Finish::ToolCalls)]).collect())
        .unwrap();
}

#[test]
fn bc_s_001_an_interrupted_call_has_one_settlement_and_its_result_in_the_next_request() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    called(&mut journal, "a", &["tc_1"]);
    journal.start("tc_1").interrupted();
    assert_eq!(
        count(&journal, "tool.failed") + count(&journal, "tool.succeeded"),
        1
    );
    journal.user("u2", "hello");
    let request = journal.request();
    assert_paired(&request);
    assert_eq!(
        kinds(&request),
        ["user", "assistant", "results", "system", "user"]
    );
    let RequestMessage::ToolResults { results } = &request.messages[2] else {
        panic!()
    };
    assert!(results[0].is_error && results[0].text == "Tool execution interrupted");
}

#[test]
fn bc_s_002_calls_of_abandoned_attempts_are_settled_and_left_out() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    for attempt in 1..4u32 {
        let starts = (0..3).map(|n| input_start(&format!("tc_{attempt}_{n}"), "shell"));
        journal.stream_as(starts.collect(), true).unwrap();
        assert!(!journal.step().attempt_called(attempt));
        journal.retry(attempt + 1);
    }
    let clean = [text("t", "Done."), vec![finish(Finish::Stop)]].concat();
    journal.stream(clean).unwrap();
    journal.end();
    journal.user("u2", "more");
    assert_eq!(count(&journal, "tool.failed"), 9);
    assert_eq!(count(&journal, "tool.started"), 0);
    assert_eq!(kinds(&journal.request()), ["user", "assistant", "user"]);
}

#[test]
fn bc_s_003_calls_running_at_a_crash_are_unknown_and_every_operation_goes_on() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    called(&mut journal, "a", &["tc_a", "tc_b"]);
    journal.start("tc_a").start("tc_b");
    let mut recovered = journal.prefix(journal.events.len());
    recovered.settle(&Cause::Crashed);
    let unknown = recovered.events.iter().filter(
        |e| matches!(&e.body, EventBody::ToolFailed(f) if f.failure == ToolFailure::OutcomeUnknown),
    );
    assert_eq!(unknown.count(), 2);
    assert!(
        recovered.state.turn.pending().is_empty(),
        "nothing is run again"
    );
    recovered.input(
        "c",
        InputKind::Synthetic {
            text: claim::CONTINUATION_AFTER_CRASH.to_owned(),
        },
    );
    assert_paired(&recovered.request());
    let other = ModelRef {
        provider: "q".to_owned(),
        model: "n".to_owned(),
    };
    assert_paired(&build(&recovered.state, &plan_for("openai-chat", other)));
    assert!(planned(&recovered, CompactionReason::Manual, 8_000).is_ok());
}

#[test]
fn bc_s_004_a_stopped_turn_leaves_a_mark_before_the_next_words() {
    let mut journal = Journal::new();
    journal.user("u", "count the files");
    called(&mut journal, "a", &["tc"]);
    journal.start("tc").succeed("tc", "7").end();
    journal.interrupted();
    assert!(
        !journal.state.wants_step,
        "the old chain is not gone on with"
    );
    journal.user("u2", "what is 2+2?");
    let request = journal.request();
    assert_eq!(
        kinds(&request),
        ["user", "assistant", "results", "system", "user"]
    );
    assert!(format!("{:?}", request.messages[3]).contains("stopped the turn"));
}

#[test]
fn bc_s_005_a_call_cut_in_its_arguments_is_never_a_success() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    journal
        .stream_as(
            vec![input_start("c", "shell"), input_delta("c", None, "{\"a\":")],
            true,
        )
        .unwrap();
    journal.retry(2);
    let empty = ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: tenure_core::Usage::default(),
    };
    let mut publisher = journal.publisher();
    let mut out = tenure_core::turn::publisher::Output::default();
    publisher.on(vec![empty], &mut out).unwrap();
    // What the runner decides by: nothing came, and nobody knows what it cost.
    assert!(!publisher.has_content());
    assert_eq!(publisher.usage(), None);
    assert!(journal.step().attempt_produced(1) && !journal.step().attempt_produced(2));
}

#[test]
fn bc_s_006_a_call_whose_arguments_never_came_is_failed_and_not_run() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    journal.stream(vec![input_start("c", "shell")]).unwrap();
    assert_eq!(
        journal.state.turn.pending(),
        [tenure_core::turn::Effect::EndStep]
    );
    let failed = journal.events.iter().find_map(|e| match &e.body {
        EventBody::ToolFailed(e) => Some(e),
        _ => None,
    });
    let failed = failed.expect("settled");
    assert_eq!(failed.failure, ToolFailure::NotExecuted);
    assert!(failed.text.contains("0 bytes"), "{}", failed.text);
}

#[test]
fn bc_s_007_only_the_open_call_is_settled_and_the_rest_is_the_same_bytes() {
    let mut journal = Journal::new();
    for n in 1..4 {
        journal.user(&format!("u{n}"), "go");
        let stream = [
            call("tc", "shell", "{\"n\":1}"),
            vec![finish(Finish::ToolCalls)],
        ];
        journal.whole(&format!("a{n}"), stream.concat());
    }
    journal.user("u4", "go");
    let before = journal.request();
    called(&mut journal, "a4", &["tc"]);
    let logged = journal.render(0);
    journal.settle(&Cause::Crashed);
    assert!(journal.render(0).starts_with(&logged));
    assert_eq!(count(&journal, "tool.failed"), 1);
    let after = journal.request();
    assert_eq!(after.messages[..before.messages.len()], before.messages[..]);
    assert_paired(&after);
}

#[test]
fn bc_s_008_a_call_id_used_again_is_renamed_with_its_result() {
    let mut journal = Journal::new();
    for n in 0..4 {
        journal.user(&format!("u{n}"), "go");
        let stream = [call("tc_1", "shell", "{}"), vec![finish(Finish::ToolCalls)]];
        journal.whole(&format!("a{n}"), stream.concat());
        // Renamed the same way in every later request.
        let ids: Vec<String> = blocks(&journal.request())
            .iter()
            .map(|b| match b {
                AssistantBlock::ToolCall { id, .. } => id.clone(),
                other => panic!("{other:?}"),
            })
            .collect();
        let all = ["tc_1", "tc_1_2", "tc_1_3", "tc_1_4"];
        assert_eq!(ids, all[..=n]);
    }
    assert_paired(&journal.request());
}

#[test]
fn bc_s_029_a_compaction_that_cannot_help_is_made_once_and_named() {
    let limits = window(33_000);
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 43_000);
    exchange(&mut journal, 2, "x", 43_000);
    assert!(is_due(&journal, &limits));
    let plan = planned(&journal, CompactionReason::Threshold, 33_000).unwrap();
    journal.add(compacted(plan.kept_from));
    assert!(!is_due(&journal, &limits) && exhausted(&journal.state, &limits).is_none());
    // The next request is counted, and is as large as before.
    exchange(&mut journal, 3, "x", 43_000);
    assert!(
        !is_due(&journal, &limits),
        "no second compaction without progress"
    );
    let stop = exhausted(&journal.state, &limits)
        .expect("the turn stops")
        .to_string();
    // As counted, without the words that came since.
    let fixed = journal.state.after_compaction.expect("counted");
    assert!((42_900..=43_000).contains(&fixed), "{fixed}");
    assert!(
        stop.contains(&fixed.to_string()) && stop.contains("33000"),
        "{stop}"
    );
    assert!(
        exhausted(&journal.state, &window(200_000)).is_none(),
        "a larger window would do"
    );
    // An empty conversation whose fixed part is too large: nothing to compact.
    let mut empty = Journal::new();
    empty.user("u", &"word ".repeat(40_000));
    for reason in [CompactionReason::Threshold, CompactionReason::Overflow] {
        let Err(Unplannable::NothingOld {
            fixed_tokens,
            window_tokens,
        }) = planned(&empty, reason, 33_000)
        else {
            panic!("the only message is the one that must stay")
        };
        assert!(fixed_tokens > 33_000 && window_tokens == 33_000);
    }
}

#[test]
fn bc_s_032_a_huge_result_is_cut_first_and_named_so_that_the_request_fits() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "keep these words", 100);
    journal.user("u", "go");
    called(&mut journal, "a", &["tc"]);
    journal
        .start("tc")
        .succeed("tc", &"huge ".repeat(8_000))
        .end();
    for reason in [CompactionReason::Manual, CompactionReason::Threshold] {
        let plan = planned(&journal, reason, 8_000).unwrap();
        let text = asked(&plan);
        assert!(text.len() < 8_000 * 4 / 2 + 1_000, "{}", text.len());
        assert!(
            text.contains("keep these words") && text.contains("bytes cut]"),
            "{text}"
        );
    }
    journal.user("u2", "next");
    assert_paired(&journal.request());
}

#[test]
fn bc_s_034_every_message_is_in_a_summary_in_force_or_kept() {
    let mut journal = Journal::new();
    let words = "word ".repeat(300);
    for n in 1..4 {
        exchange(&mut journal, n, &words, 100);
    }
    let mut summarised = Vec::new();
    for n in 4..9 {
        let plan = planned(&journal, CompactionReason::Threshold, 4_000).unwrap();
        summarised.push(asked(&plan));
        let mut ended = compacted(plan.kept_from);
        // The summary in force stands for all earlier ones: their text is part of its input.
        ended.summary = format!("summary {}", summarised.len());
        journal.add(ended);
        if let Some(earlier) = summarised.len().checked_sub(1).filter(|n| *n > 0) {
            assert!(asked(&plan).contains(&format!("summary {earlier}")));
        }
        let kept = format!("{:?}", journal.request().messages);
        for m in 1..n {
            for who in ["question", "answer"] {
                let mark = format!("{who} {m}:");
                let told = summarised.iter().any(|s| s.contains(&mark));
                assert!(told || kept.contains(&mark), "{mark} is lost");
            }
        }
        exchange(&mut journal, n, &words, 100);
    }
}

#[test]
fn bc_s_035_summary_then_kept_messages_then_the_new_input() {
    let mut journal = Journal::new();
    for n in 1..6 {
        exchange(&mut journal, n, &"w".repeat(1_500), 100);
    }
    let plan = planned(&journal, CompactionReason::Threshold, 8_000).unwrap();
    journal.add(compacted(plan.kept_from));
    journal.user("u9", "new input");
    let request = format!("{:?}", journal.request().messages);
    let place = |mark: &str| {
        request
            .find(mark)
            .unwrap_or_else(|| panic!("{mark}: {request}"))
    };
    assert!(place("Summary of") < place("question 5:"));
    assert!(place("question 5:") < place("answer 5:"));
    assert!(place("answer 5:") < place("new input"));
    let seqs: Vec<u64> = journal.state.entries.iter().map(|e| e.seq()).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
}

#[test]
fn bc_s_036_one_compaction_then_an_estimate_then_the_measured_size() {
    let limits = window(10_000);
    let mut journal = Journal::new();
    for n in 1..4 {
        exchange(&mut journal, n, &"w".repeat(4_000), 8_000);
    }
    assert!(is_due(&journal, &limits));
    let plan = planned(&journal, CompactionReason::Threshold, 10_000).unwrap();
    journal.add(compacted(plan.kept_from));
    assert_eq!(
        journal.state.context_tokens, None,
        "what is shown is an estimate"
    );
    let estimated = meter(&journal.state).tokens;
    assert!(estimated > 0 && estimated < 8_000, "{estimated}");
    assert!(!is_due(&journal, &limits));
    exchange(&mut journal, 5, "ok", 1_000);
    assert_eq!(journal.state.context_tokens.map(|c| c.0), Some(1_010));
    assert!(!is_due(&journal, &limits));
    let reopened = journal.prefix(journal.events.len()).state;
    assert_eq!(reopened.context_tokens, journal.state.context_tokens);
}

#[test]
fn bc_s_041_delays_and_attempts_are_bounded() {
    let policy = RetryPolicy {
        max_retries: 19,
        ..RetryPolicy::default()
    };
    let error = ProviderError::new(ErrorClass::Server, "502");
    for failed in 1..=20 {
        for random in [0, 12_345, u64::MAX] {
            match policy.decide(&error, failed, random) {
                Retry::After(ms) => assert!(failed < 20 && ms <= 30_000, "{failed}: {ms}"),
                Retry::GiveUp(why) => assert!(failed == 20 && why.is_some()),
            }
        }
    }
}

#[test]
fn bc_s_051_no_arguments_are_an_empty_object() {
    for nothing in ["", "{}", " ", "\n\t"] {
        let mut journal = Journal::new();
        journal.user("u", "go").begin("a");
        journal
            .stream(vec![complete("c", "ls", nothing, false)])
            .unwrap();
        let [tenure_core::turn::Effect::RunTool { input, .. }] = &journal.state.turn.pending()[..]
        else {
            panic!("{nothing:?} is run")
        };
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(input).unwrap(),
            serde_json::json!({})
        );
    }
}

#[test]
fn bc_s_052_cut_arguments_are_not_run_and_the_model_learns_how_much_came() {
    let cut = "{\"path\":\"a.txt\",\"content\":\"line 1\\nline 2";
    for reason in [Finish::Length, Finish::ToolCalls] {
        let mut journal = Journal::new();
        journal.user("u", "go").begin("a");
        journal
            .stream(vec![complete("c", "write", cut, false), finish(reason)])
            .unwrap();
        journal.end();
        let request = journal.request();
        assert_paired(&request);
        let RequestMessage::ToolResults { results } = &request.messages[2] else {
            panic!()
        };
        assert!(results[0].is_error);
        assert!(
            results[0].text.contains(&format!("{} bytes", cut.len())),
            "{}",
            results[0].text
        );
    }
}

#[test]
fn bc_s_057_the_output_limit_is_named_and_is_no_bad_call() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    for n in 0..5 {
        journal.begin(&format!("a{n}"));
        let stream = vec![
            input_start("c", "write"),
            input_delta("c", None, &"x".repeat(200)),
            // Some decoders give the cut input out as a call.
            complete("d", "write", "{\"content\":\"cut", false),
            finish(Finish::Length),
        ];
        journal.stream(stream).unwrap();
        journal.end();
        assert!(journal.state.wants_step);
    }
    let Some(EventBody::StepEnded(ended)) = journal.events.last().map(|e| &e.body) else {
        panic!()
    };
    assert_eq!(ended.finish, Finish::Length);
    let notice = RequestMessage::System {
        text: LENGTH_NOTICE.to_owned(),
    };
    assert_eq!(journal.request().messages.last(), Some(&notice));
    assert_eq!(repeating(&journal.state), None);
}

fn fail(journal: &mut Journal, n: u32, input: &str) {
    let message = format!("a{n}");
    journal.begin(&message);
    let stream = vec![
        complete("c", "write", input, false),
        finish(Finish::ToolCalls),
    ];
    journal.stream(stream).unwrap();
    journal.start("c");
    journal.add(ToolFailed {
        message: msg(&message),
        call: tenure_core::CallId::new("c"),
        failure: ToolFailure::Failed,
        text: "`content` is missing".to_owned(),
        cut: None,
        native: None,
    });
    journal.end();
}

#[test]
fn bc_s_058_the_same_failing_call_stops_the_turn() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    for n in 1..=SAME_CALL {
        assert_eq!(repeating(&journal.state), None);
        fail(&mut journal, n, "{\"path\":\"a\"}");
    }
    let stop = repeating(&journal.state).expect("stopped");
    assert_eq!((stop.tool.as_str(), stop.times), ("write", SAME_CALL));
    assert!(stop.to_string().contains("`content` is missing"), "{stop}");
    journal.user("u2", "try again");
    assert_eq!(
        repeating(&journal.state),
        None,
        "the user's words begin anew"
    );
}

#[test]
fn bc_s_059_one_tool_failing_in_a_row_stops_the_turn_whatever_its_input() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    for n in 1..=SAME_TOOL {
        assert_eq!(repeating(&journal.state), None);
        fail(&mut journal, n, &format!("{{\"path\":\"{n}\"}}"));
    }
    assert_eq!(repeating(&journal.state).map(|r| r.times), Some(SAME_TOOL));
    let stream = [call("ok", "write", "{}"), vec![finish(Finish::ToolCalls)]];
    journal.whole("good", stream.concat());
    assert_eq!(repeating(&journal.state), None, "a success begins anew");
}

#[test]
fn bc_s_060_unsigned_reasoning_is_shown_and_not_sent() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    let deltas = ["a", "b", "c"].map(|t| ProviderEvent::ReasoningDelta {
        id: "r".to_owned(),
        text: t.to_owned(),
    });
    let start = ProviderEvent::ReasoningStart { id: "r".to_owned() };
    journal
        .stream([vec![start], deltas.to_vec()].concat())
        .unwrap();
    journal.interrupted();
    journal.user("u2", "next");
    assert!(format!("{:?}", journal.state.entries).contains("abc"));
    assert_eq!(kinds(&journal.request()), ["user", "system", "user"]);
}

#[test]
fn bc_s_062_parallel_calls_stay_in_one_message_in_order_with_their_own_state() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    let with = |id: &str, native: Option<&str>| ProviderEvent::ToolCall {
        id: id.to_owned(),
        name: "read".to_owned(),
        input: "{}".to_owned(),
        executed: false,
        native: native.map(str::to_owned),
    };
    let stream = vec![
        with("c1", Some("{\"thoughtSignature\":\"s\"}")),
        with("c2", None),
        with("c3", None),
        finish(Finish::ToolCalls),
    ];
    journal.whole("a", stream);
    let request = journal.prefix(journal.events.len()).request();
    assert_eq!(kinds(&request), ["user", "assistant", "results"]);
    let own: Vec<bool> = blocks(&request)
        .iter()
        .map(|b| {
            matches!(
                b,
                AssistantBlock::ToolCall {
                    native: Some(_),
                    ..
                }
            )
        })
        .collect();
    assert_eq!(own, [true, false, false]);
    assert_paired(&request);
}

#[test]
fn bc_s_063_blank_texts_are_left_out_and_pairs_stay() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    let stream = [
        text("t1", ""),
        text("t2", " "),
        call("c", "read", "{}"),
        text("t3", "\n\n"),
        vec![finish(Finish::ToolCalls)],
    ];
    journal.whole("a", stream.concat());
    journal.whole("b", [text("t", " \n"), vec![finish(Finish::Stop)]].concat());
    let request = journal.request();
    assert_eq!(kinds(&request), ["user", "assistant", "results"]);
    assert_eq!(blocks(&request).len(), 1);
    assert_paired(&request);
}

#[test]
fn bc_s_064_no_output_is_said_and_reasoning_alone_is_left_out() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    called(&mut journal, "a", &["c"]);
    journal.start("c").succeed("c", "  ").end();
    let stream = [
        reasoning("r", "hm", Some("{\"s\":1}")),
        vec![finish(Finish::Stop)],
    ];
    journal.whole("b", stream.concat());
    journal.user("u2", "next");
    let request = journal.request();
    assert_eq!(kinds(&request), ["user", "assistant", "results", "user"]);
    assert!(format!("{request:?}").contains("(no output)"));
}

#[test]
fn bc_s_065_foreign_state_rests_while_another_model_is_asked_and_returns_with_its_own() {
    let mut journal = Journal::new();
    for n in 0..5 {
        journal.user(&format!("u{n}"), "go");
        let native = format!("{{\"id\":\"rs_{n}\",\"encrypted_content\":\"e\"}}");
        let stream = [reasoning("r", "", Some(&native)), text("t", "x")];
        journal.whole(
            &format!("a{n}"),
            [stream.concat(), vec![finish(Finish::Stop)]].concat(),
        );
    }
    let own = crate::history::natives(&journal.request());
    assert_eq!(own.len(), 5);
    let other = ModelRef {
        provider: "q".to_owned(),
        model: "n".to_owned(),
    };
    let foreign = build(&journal.state, &plan_for("openai-chat", other));
    assert!(crate::history::natives(&foreign).is_empty());
    assert!(!format!("{foreign:?}").contains("rs_"));
    assert_eq!(crate::history::natives(&journal.request()), own);
}

#[test]
fn bc_s_069_an_unknown_price_is_not_zero() {
    let mut journal = Journal::new();
    journal.user("u", "go").begin("a");
    let mut publisher = journal.publisher();
    let mut out = tenure_core::turn::publisher::Output::default();
    publisher.on(vec![finish(Finish::Stop)], &mut out).unwrap();
    let closing = publisher.close(&out.end.unwrap(), false, |_| None);
    journal.all(closing);
    journal.end();
    assert!(
        journal.state.totals.incomplete,
        "what is shown is a lower bound"
    );
    let Some(EventBody::StepEnded(ended)) = journal.events.last().map(|e| &e.body) else {
        panic!()
    };
    assert_eq!((ended.cost, ended.usage.output), (None, 5));
}

#[test]
fn calls_made_at_once_fail_once_since_the_model_has_seen_no_result_yet() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    journal.begin("a");
    let ids: Vec<String> = (0..SAME_TOOL + 1).map(|n| format!("c{n}")).collect();
    let mut stream: Vec<_> = ids
        .iter()
        .map(|id| complete(id, "write", "{}", false))
        .collect();
    stream.push(finish(Finish::ToolCalls));
    journal.stream(stream).unwrap();
    for id in &ids {
        journal.start(id);
        journal.add(ToolFailed {
            message: msg("a"),
            call: tenure_core::CallId::new(id.as_str()),
            failure: ToolFailure::Failed,
            text: "no".to_owned(),
            cut: None,
            native: None,
        });
    }
    journal.end();
    assert_eq!(repeating(&journal.state), None);
}
