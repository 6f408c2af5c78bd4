//! When history is compacted, what is summarised, what stays, and that it ends.

use crate::history::{compacted, kinds};
use crate::journal::*;
use proptest::prelude::*;
use tenure_core::compaction::*;
use tenure_core::event::body::*;
use tenure_core::model::ModelLimits;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::{AssistantBlock, Media, RequestMessage, UserPart};
use tenure_core::{CompactionId, SessionError};

pub fn window(tokens: u64) -> ModelLimits {
    ModelLimits {
        context: Some(tokens),
        output: Some(tokens),
    }
}

/// Is a compaction due before the next request, by the estimate that needs no vocabulary?
pub fn is_due(journal: &Journal, limits: &ModelLimits) -> bool {
    let size = size(&journal.state, &journal.request(), &Rough);
    due(&journal.state, limits, &size)
}

/// One exchange whose request the provider counts as `prompt` tokens.
pub fn exchange(journal: &mut Journal, n: usize, words: &str, prompt: u64) {
    journal.user(&format!("u{n}"), &format!("question {n}: {words}"));
    let end = ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: usage(prompt, 10),
    };
    let answer = text("t", &format!("answer {n}: {words}"));
    journal.whole(&format!("a{n}"), [answer, vec![end]].concat());
}

pub fn planned(
    journal: &Journal,
    reason: CompactionReason,
    tokens: u64,
) -> Result<Plan, Unplannable> {
    plan(&Planning {
        state: &journal.state,
        reason,
        model: &model(),
        limits: &window(tokens),
        counter: &Rough,
        fixed: 0,
        cache_key: "k",
        too_large: 0,
        firmly: false,
        effort: None,
    })
}

/// The text a plan asks to summarise.
pub fn asked(plan: &Plan) -> String {
    let [RequestMessage::User { parts }] = &plan.request.messages[..] else {
        panic!("one user message")
    };
    let [UserPart::Text(text)] = &parts[..] else {
        panic!("one text: {parts:?}")
    };
    assert!(text.starts_with(SUMMARY_MARK));
    text.clone()
}

#[test]
fn it_is_due_near_the_window_and_an_output_limit_as_large_does_not_trigger() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 5_000);
    assert!(!is_due(&journal, &window(10_000)));
    exchange(&mut journal, 2, "x", 7_600);
    assert!(is_due(&journal, &window(10_000)));
    let unknown = ModelLimits {
        context: None,
        output: None,
    };
    assert!(
        !is_due(&journal, &unknown),
        "an unknown window is learnt from the provider"
    );
}

#[test]
fn the_estimate_is_the_measurement_and_what_came_after_it() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 1_000);
    assert_eq!(meter(&journal.state).tokens, 1_010);
    // The results of a measured message's calls were not in its request; notes neither.
    journal.user("u2", &"y".repeat(400)).begin("a2");
    // Written while the step was open, before its measurement.
    journal.add(InstructionsChanged {
        text: "n".repeat(40),
        digest: String::new(),
    });
    let end = ProviderEvent::Finish {
        finish: Finish::ToolCalls,
        raw: None,
        usage: usage(2_000, 0),
    };
    journal
        .stream([call("c", "bash", "{}"), vec![end]].concat())
        .unwrap();
    journal.start("c").succeed("c", &"r".repeat(4_000));
    journal.end();
    let newer = rough(&"r".repeat(4_000)) + rough(&"n".repeat(40)) + 2 * 5;
    assert_eq!(
        meter(&journal.state),
        Meter {
            tokens: 2_000 + newer,
            measured: false
        }
    );
}

#[test]
fn a_failed_compaction_is_not_tried_again_before_a_step_has_ended() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 9_000);
    exchange(&mut journal, 2, "x", 9_000);
    assert!(is_due(&journal, &window(10_000)));
    for n in 0..MAX_FUTILE {
        journal.add(CompactionFailed {
            compaction: CompactionId::from_bits(u128::from(n)),
            error: SessionError::new("unusable", "the summary was empty"),
            usage: None,
            cost: None,
        });
    }
    assert!(!is_due(&journal, &window(10_000)));
    assert_eq!(kinds(&journal.request()).len(), 4, "history is as it was");
    exchange(&mut journal, 3, "x", 9_000);
    assert!(is_due(&journal, &window(10_000)));
}

#[test]
fn the_step_number_goes_on_after_a_compaction_and_begins_anew_with_the_users_words() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    for n in 0..3 {
        let stream = [call("c", "bash", "{}"), vec![finish(Finish::ToolCalls)]];
        journal.whole(&format!("a{n}"), stream.concat());
    }
    assert_eq!((journal.state.step, journal.state.wants_step), (3, true));
    let from = journal.events.len() as u64 - 3;
    journal.add(compacted(from));
    assert_eq!((journal.state.step, journal.state.wants_step), (3, true));
    journal.user("u2", "and now this");
    assert_eq!(journal.state.step, 0);
    // A control input is no prompt: it changes neither.
    let mut controlled = journal.clone();
    controlled
        .begin("b")
        .settle(&tenure_core::turn::settle::Cause::Crashed);
    controlled.input("c", InputKind::Compaction);
    assert_eq!(
        (controlled.state.step, controlled.state.wants_step),
        (1, false)
    );
}

#[test]
fn an_overflow_asks_for_one_compaction_and_the_step_again() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 100);
    journal.user("u", "go").begin("a");
    let error = ProviderEvent::Error(tenure_core::ProviderError::new(
        tenure_core::ErrorClass::ContextOverflow,
        "too long",
    ));
    journal.stream(vec![error]).unwrap();
    let cause = SessionError::new("context_overflow", "too long");
    journal.settle(&tenure_core::turn::settle::Cause::Failed(cause.clone()));
    assert!(journal.state.overflowed && journal.state.wants_step);
    let from = planned(&journal, CompactionReason::Overflow, 4_000)
        .unwrap()
        .kept_from;
    journal.add(compacted(from));
    assert_eq!(
        (journal.state.overflowed, journal.state.overflow_compactions),
        (false, 1)
    );
    assert!(journal.state.wants_step, "the input is still unanswered");
    journal
        .begin("b")
        .settle(&tenure_core::turn::settle::Cause::Failed(cause));
    assert_eq!(
        journal.state.overflow_compactions, 1,
        "the second overflow is the last"
    );
    let request = format!("{:?}", journal.request().messages);
    assert!(
        request.contains("\"go\""),
        "the last words of the user are never lost: {request}"
    );
}

fn strings() -> impl Strategy<Value = String> {
    (
        0usize..4,
        0usize..3_000,
        prop::sample::select(vec!["a", "é", "\u{1f600}", "x y\n"]),
    )
        .prop_map(|(_, n, s)| s.repeat(n))
}

proptest! {
    #![proptest_config(crate::cases(96))]

    /// Whatever the history: the summarising request fits, the user's last words stay verbatim, and a row
    /// of compactions ends.
    #[test]
    fn a_plan_fits_its_window_and_keeps_the_last_words(
        words in prop::collection::vec((strings(), strings(), any::<bool>()), 1..14),
        tokens in prop::sample::select(vec![3_000u64, 8_000, 33_000]),
        overflow in any::<bool>(),
        repeat in 1usize..60,
    ) {
        let mut journal = Journal::new();
        let mut last = String::new();
        for n in 0..words.len() * repeat / 8 + 1 {
            let (question, output, tool) = &words[n % words.len()];
            last = format!("q{n} {question}");
            journal.user(&format!("u{n}"), &last);
            journal.begin(&format!("a{n}"));
            let answer = if *tool { call("c", "bash", "{}") } else { text("t", output) };
            journal.stream([answer, vec![finish(Finish::Stop)]].concat()).unwrap();
            if *tool { journal.start("c").succeed("c", output); }
            journal.end();
        }
        let reason = if overflow { CompactionReason::Overflow } else { CompactionReason::Manual };
        let mut rounds = 0;
        while let Ok(plan) = planned(&journal, reason, tokens) {
            rounds += 1;
            prop_assert!(rounds <= 8, "planning never ends");
            let text = asked(&plan);
            let output = plan.request.max_output.unwrap();
            let sent = request_tokens(&plan.request, &Rough);
            prop_assert!(sent * 5 / 4 + output <= tokens, "{sent} tokens in {} bytes", text.len());
            let before = journal.state.entries.len();
            journal.add(compacted(plan.kept_from));
            prop_assert!(journal.state.entries.len() < before);
            let request = format!("{:?}", journal.request().messages);
            let wanted = format!("{last:?}");
            prop_assert!(request.contains(wanted.trim_matches('"')));
            prop_assert!(!is_due(&journal, &window(tokens)), "not again before it is measured");
        }
    }
}

/// An exchange at a provider that never counts.
fn uncounted(journal: &mut Journal, n: usize, bytes: usize) {
    journal.user(&format!("u{n}"), &"w".repeat(bytes));
    let end = ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: tenure_core::Usage::default(),
    };
    let name = format!("a{n}");
    journal.whole(&name, [text("t", "ok"), vec![end]].concat());
}

#[test]
fn without_counts_the_estimate_decides_and_what_is_fixed_never_loops() {
    let limits = window(10_000);
    let mut journal = Journal::new();
    uncounted(&mut journal, 1, 31_000);
    uncounted(&mut journal, 2, 100);
    assert!(is_due(&journal, &limits));
    journal.add(compacted(journal.state.entries[2].seq()));
    assert!(!is_due(&journal, &limits));
    uncounted(&mut journal, 3, 31_000);
    assert!(is_due(&journal, &limits), "history grew again");
    let mut fixed = Journal::new();
    uncounted(&mut fixed, 1, 100);
    fixed.add(InstructionsSet {
        parts: vec!["x".repeat(40_000)],
        digest: String::new(),
    });
    assert!(
        !is_due(&fixed, &limits),
        "no compaction makes instructions shorter"
    );
}

fn failed(kind: &str) -> CompactionFailed {
    CompactionFailed {
        compaction: CompactionId::from_bits(7),
        error: SessionError::new(kind, "as told"),
        usage: None,
        cost: None,
    }
}

fn another_model() -> tenure_core::ModelRef {
    tenure_core::ModelRef {
        provider: "q".to_owned(),
        model: "small".to_owned(),
    }
}

#[test]
fn bc_s_030_unusable_summaries_are_counted_over_turns_and_restarts() {
    let limits = window(10_000);
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 9_000);
    for n in 0..MAX_UNUSABLE as usize {
        assert!(is_due(&journal, &limits), "try {n}");
        journal.add(failed(UNUSABLE_SUMMARY));
        assert!(!is_due(&journal, &limits), "not twice before a step");
        exchange(&mut journal, n + 2, "x", 9_000);
    }
    assert!(!is_due(&journal, &limits), "finished steps do not renew it");
    let bytes = tenure_core::session::checkpoint::seal(&journal.state, 0).unwrap();
    let reopened = tenure_core::session::checkpoint::open([bytes.as_slice()]).unwrap();
    assert_eq!(reopened.unusable_summaries, MAX_UNUSABLE);
    assert_eq!(kinds(&journal.request()).len(), 8, "history is as it was");
    // A compaction by hand that works, or another model, gives it back.
    let mut by_hand = journal.clone();
    by_hand.add(compacted(1));
    assert!(may_try(&by_hand.state));
    journal.add(ModelSelected {
        model: another_model(),
    });
    assert!(may_try(&journal.state));
}

#[test]
fn what_was_stopped_from_outside_is_no_failed_try() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 9_000);
    for kind in ["crashed", "interrupted", "shutdown", "stale_attachment"] {
        journal.add(failed(kind));
        assert!(is_due(&journal, &window(10_000)), "{kind}");
    }
    journal.add(failed("server"));
    assert!(!is_due(&journal, &window(10_000)));
}

#[test]
fn another_model_has_measured_nothing_yet() {
    let mut journal = Journal::new();
    for n in 0..20 {
        exchange(&mut journal, n, &"word ".repeat(400), 1_000);
    }
    let measured = meter(&journal.state);
    assert_eq!((measured.tokens, measured.measured), (1_010, true));
    let own = journal.state.settings.as_ref().unwrap().model.clone();
    journal.add(ModelSelected { model: own });
    assert_eq!(meter(&journal.state), measured, "it is the same model");
    journal.add(ModelSelected {
        model: another_model(),
    });
    let estimate = meter(&journal.state);
    assert!(
        !estimate.measured && estimate.tokens > 16_000,
        "{estimate:?}"
    );
    assert!(is_due(&journal, &window(16_000)), "its window is smaller");
    let plan = planned(&journal, CompactionReason::Threshold, 16_000).unwrap();
    assert!(request_tokens(&plan.request, &Rough) < 16_000);
}

#[test]
fn everything_that_is_sent_counts() {
    use tenure_core::request::{Media, ToolDef, UserPart};
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 0);
    let mut request = journal.request();
    let mut last = request_tokens(&request, &Rough);
    let mut grows = |request: &tenure_core::request::Request, by: u64, what: &str| {
        let now = request_tokens(request, &Rough);
        assert!(now >= last + by, "{what}: {last}, {now}");
        last = now;
    };
    request.system.push("word ".repeat(500));
    grows(&request, 500, "instructions");
    request.tools.push(ToolDef {
        name: "tool".to_owned(),
        description: "word ".repeat(300),
        input_schema: serde_json::json!({"type": "object", "description": "word ".repeat(200)}),
    });
    grows(&request, 500, "tool definitions");
    assert!(fixed_tokens(&request, &Rough) > 1_000, "both are fixed");
    request.messages.push(RequestMessage::User {
        parts: vec![UserPart::Media(Media {
            name: "a.png".to_owned(),
            media_type: "image/png".to_owned(),
            data: "AAAA".into(),
        })],
    });
    grows(&request, 1_000, "images");
    request.messages.push(RequestMessage::Assistant {
        blocks: vec![tenure_core::request::AssistantBlock::Reasoning {
            text: String::new(),
            native: Some("c2VjcmV0".repeat(500)),
        }],
    });
    grows(&request, 1_000, "opaque state");
    request.hosted_tools = vec![tenure_core::request::HostedTool::WebSearch];
    grows(&request, 100, "hosted tools");
}

#[test]
fn attachments_of_old_history_are_named_and_not_sent() {
    let mut journal = Journal::new();
    let media = tenure_core::request::Media {
        name: "plan.pdf".to_owned(),
        media_type: "application/pdf".to_owned(),
        data: "AAAA".repeat(100).into(),
    };
    journal.input(
        "u1",
        InputKind::User {
            text: "look at this".to_owned(),
            files: Vec::new(),
            media: vec![media],
            schema: None,
            effort: None,
        },
    );
    journal.whole("a1", text("t", "seen"));
    exchange(&mut journal, 2, "y", 100);
    let plan = planned(&journal, CompactionReason::Manual, 100_000).unwrap();
    let asked = asked(&plan);
    assert!(
        asked.contains("plan.pdf (application/pdf, 300 bytes)"),
        "{asked}"
    );
    assert!(!asked.contains("AAAA") && asked.contains("look at this"));
}

#[test]
fn a_summary_in_force_is_brought_up_to_date_and_its_sections_are_fixed() {
    let mut journal = Journal::new();
    for n in 1..4 {
        exchange(&mut journal, n, "words", 100);
    }
    let first = planned(&journal, CompactionReason::Manual, 100_000).unwrap();
    let text = asked(&first);
    for (heading, _) in SECTIONS {
        assert!(text.contains(&format!("## {heading}\n")), "{heading}");
    }
    assert!(!text.contains("earlier_summary"));
    let mut ended = compacted(first.kept_from);
    ended.summary = "the goal is 42".to_owned();
    journal.add(ended);
    exchange(&mut journal, 5, "more", 100);
    exchange(&mut journal, 6, "more", 100);
    let second = asked(&planned(&journal, CompactionReason::Manual, 100_000).unwrap());
    assert!(second.contains("<earlier_summary>\nthe goal is 42\n</earlier_summary>"));
    assert!(second.contains("Bring it up to date"), "{second}");
    assert_eq!(
        second.matches("the goal is 42").count(),
        1,
        "once, and not as conversation"
    );
}

#[test]
fn a_summary_made_for_a_large_window_is_cut_for_a_small_one() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 100);
    let mut ended = compacted(1);
    ended.summary = "long summary ".repeat(3_000);
    journal.add(ended);
    exchange(&mut journal, 2, "x", 100);
    exchange(&mut journal, 3, "x", 100);
    let plan = planned(&journal, CompactionReason::Threshold, 8_000).unwrap();
    assert!(request_tokens(&plan.request, &Rough) < 8_000);
    assert!(asked(&plan).contains("question 2"));
}

#[test]
fn only_text_that_ends_well_is_a_summary() {
    let judge = |text: &str, finish, called| {
        let verdict = usable_summary(text, finish, called);
        verdict
            .map_err(|error| assert_eq!(error.kind, UNUSABLE_SUMMARY))
            .is_ok()
    };
    assert!(judge("what was done", Finish::Stop, false));
    assert!(judge("what was done", Finish::Other, false));
    assert!(!judge(" \n", Finish::Stop, false));
    assert!(!judge("I will call", Finish::Stop, true));
    assert!(!judge("I will call", Finish::ToolCalls, false));
    assert!(!judge("half of", Finish::Length, false));
    assert!(!judge("no", Finish::ContentFilter, false));
    assert!(!judge("wait", Finish::Pause, false));
    assert!(!judge(&"x".repeat(1 << 20), Finish::Stop, false));
}

#[test]
fn a_summary_that_is_no_shorter_is_refused() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, &"word ".repeat(300), 100);
    exchange(&mut journal, 2, "x", 100);
    let plan = planned(&journal, CompactionReason::Manual, 100_000).unwrap();
    assert!(plan.shrinks("short").is_ok());
    let refused = plan.shrinks(&"word ".repeat(5_000)).unwrap_err();
    assert_eq!(refused.kind, UNUSABLE_SUMMARY);
}

#[test]
fn a_request_too_large_for_the_provider_is_halved_each_time() {
    let mut journal = Journal::new();
    for n in 0..60 {
        exchange(&mut journal, n, &"word ".repeat(400), 100);
    }
    let sent = |too_large| {
        let limits = window(20_000);
        let plan = plan(&Planning {
            state: &journal.state,
            reason: CompactionReason::Overflow,
            model: &model(),
            limits: &limits,
            counter: &Rough,
            fixed: 0,
            cache_key: "k",
            too_large,
            firmly: false,
            effort: None,
        });
        request_tokens(&plan.unwrap().request, &Rough)
    };
    let sizes: Vec<u64> = (0..4).map(sent).collect();
    assert!(sizes[0] < 20_000 / 2, "{sizes:?}");
    assert!(
        sizes.windows(2).all(|pair| pair[1] < pair[0] * 3 / 4),
        "{sizes:?}"
    );
}

#[test]
fn what_stays_may_be_too_much_for_the_window() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 100);
    exchange(&mut journal, 2, "x", 100);
    let limits = window(10_000);
    let refused = plan(&Planning {
        state: &journal.state,
        reason: CompactionReason::Threshold,
        model: &model(),
        limits: &limits,
        counter: &Rough,
        fixed: 43_000,
        cache_key: "k",
        too_large: 0,
        firmly: false,
        effort: None,
    })
    .unwrap_err();
    let Unplannable::Futile {
        fixed_tokens,
        window_tokens: 10_000,
    } = refused
    else {
        panic!("{refused:?}")
    };
    assert!(fixed_tokens >= 43_000);
}

#[test]
fn the_output_limit_leaves_the_prompt_its_room() {
    let limits = |context, output| ModelLimits { context, output };
    let size = |counted| Size {
        counted,
        ..Size::default()
    };
    let known = limits(Some(32_000), Some(8_000));
    assert_eq!(
        output_limit(Some(8_000), &known, &size(10_000)),
        Some(8_000)
    );
    assert_eq!(
        output_limit(Some(8_000), &known, &size(30_000)),
        Some(2_000)
    );
    assert_eq!(
        output_limit(Some(8_000), &known, &size(40_000)),
        Some(LEAST_OUTPUT)
    );
    assert_eq!(output_limit(Some(100), &known, &size(40_000)), Some(100));
    assert_eq!(output_limit(None, &known, &size(1)), None);
    assert_eq!(
        output_limit(Some(9), &limits(None, None), &size(1)),
        Some(9)
    );
}

#[test]
fn an_estimate_alone_takes_no_answer_its_room() {
    let limits = |context| ModelLimits {
        context: Some(context),
        output: Some(64_000),
    };
    let room = |window, size: Size| output_limit(Some(64_000), &limits(window), &size);
    let guess = Size {
        counted: 207_000,
        margin: 25,
        ..Size::default()
    };
    assert_eq!(
        room(200_000, guess),
        Some(8_192),
        "enough to think and answer"
    );
    assert_eq!(
        room(
            16_000,
            Size {
                counted: 15_900,
                ..guess
            }
        ),
        Some(4_000)
    );
    let half = Size {
        counted: 150_000,
        ..guess
    };
    assert_eq!(
        room(200_000, half),
        Some(50_000),
        "its margin is not taken away"
    );
    let measured = Size {
        measured: 197_000,
        counted: 1_000,
        ..guess
    };
    assert_eq!(
        room(200_000, measured),
        Some(2_500),
        "what was counted is so"
    );
}

fn input_with(media: Media) -> InputKind {
    InputKind::User {
        text: "look".to_owned(),
        files: Vec::new(),
        media: vec![media],
        schema: None,
        effort: None,
    }
}

#[test]
fn what_only_the_bytes_of_a_file_tell_never_decides_that_a_request_is_not_sent() {
    // By its size alone a document of 20 MB is a million tokens.
    let media = Media {
        name: "plan.pdf".to_owned(),
        media_type: "application/pdf".to_owned(),
        data: "A".repeat(28_000_000).into(),
    };
    let mut journal = Journal::new();
    journal.input("u1", input_with(media.clone()));
    let whole = size(&journal.state, &journal.request(), &Rough);
    assert!(whole.likely() > 1_000_000 && !whole.surely_above(200_000));
    journal.whole(
        "a1",
        [text("t", "seen"), vec![finish(Finish::Stop)]].concat(),
    );
    journal.input("u2", input_with(media));
    let newer = size(&journal.state, &journal.request(), &Rough);
    assert!(newer.likely() > 1_000_000 && newer.measured > 0);
    assert!(!newer.surely_above(200_000));
    // Words are told from: so many surely do not fit.
    let words = journal.user("u3", &"word ".repeat(600_000)).clone();
    assert!(size(&words.state, &words.request(), &Rough).surely_above(200_000));
    // Nor is such a file the reason why nothing can be compacted.
    exchange(&mut journal, 4, "x", 100);
    journal.input(
        "u5",
        input_with(Media {
            name: "b.pdf".to_owned(),
            media_type: "application/pdf".to_owned(),
            data: "A".repeat(28_000_000).into(),
        }),
    );
    planned(&journal, CompactionReason::Overflow, 200_000).unwrap();
}

/// A step in which the vendor searched, and billed `prompt` tokens for all it asked its model.
fn searched(journal: &mut Journal, n: usize, prompt: u64) {
    journal.user(&format!("u{n}"), "search for it");
    journal.begin(&format!("a{n}"));
    let found = r#"{"type":"web_search_tool_result","content":[{"encrypted_content":"SEALED"}]}"#
        .replace("SEALED", &"xY7".repeat(50_000));
    let mut stream = vec![complete("s", "web_search", "{}", true)];
    stream.push(ProviderEvent::ToolResult {
        id: "s".to_owned(),
        text: "ten pages".to_owned(),
        is_error: false,
        native: Some(found),
    });
    stream.extend(text("t", "it is so"));
    stream.push(ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: usage(prompt, 100),
    });
    journal.stream(stream).unwrap();
    journal.end();
}

#[test]
fn what_a_search_brought_is_a_guess_that_never_decides_that_a_request_is_not_sent() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 5_000);
    searched(&mut journal, 2, 278_000);
    let newer = size(&journal.state, &journal.request(), &Rough);
    assert!(newer.measured > 0 && newer.likely() > 20_000, "{newer:?}");
    assert!(!newer.surely_above(10_000), "{newer:?}");
    // The same where nothing was measured.
    let mut request = Journal::new().request();
    let found = format!("{{\"encrypted_content\":\"{}\"}}", "xY7".repeat(50_000));
    request.messages.push(RequestMessage::Assistant {
        blocks: vec![AssistantBlock::Hosted {
            id: "s".to_owned(),
            name: "web_search".to_owned(),
            input: "{}".to_owned(),
            call: Some("{}".to_owned()),
            result: Some(found),
            text: "ten pages".to_owned(),
        }],
    });
    let whole = request_size(&request, &Rough);
    assert!(
        whole.likely() > 20_000 && !whole.surely_above(10_000),
        "{whole:?}"
    );
}

#[test]
fn what_is_billed_for_searches_is_not_the_size_of_the_context() {
    let limits = window(200_000);
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 50_000);
    exchange(&mut journal, 2, "x", 50_000);
    searched(&mut journal, 3, 278_000);
    let now = meter(&journal.state);
    assert!(!now.measured, "the rest is an estimate: {now:?}");
    // What was measured before, and the pages as they are held: 150,000 characters of base64.
    assert!((75_000..95_000).contains(&now.tokens), "{now:?}");
    assert!(!is_due(&journal, &limits) && exhausted(&journal.state, &limits).is_none());
    assert_eq!(
        journal.state.totals.usage.input, 378_000,
        "billed is billed"
    );
    // The first step after a compaction searches: that says nothing of what the compaction left.
    let from = journal.state.entries[2].seq();
    journal.add(compacted(from));
    searched(&mut journal, 4, 278_000);
    assert_eq!(journal.state.after_compaction, None);
    assert!(exhausted(&journal.state, &limits).is_none());
    let next = size(&journal.state, &journal.request(), &Rough);
    assert!(!next.surely_above(200_000), "{next:?}");
    exchange(&mut journal, 5, "x", 60_000);
    assert_eq!(journal.state.context_tokens.map(|c| c.0), Some(60_010));
}

#[test]
fn a_failed_attempt_does_not_measure_what_a_searching_one_brought() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 1_000);
    journal.user("u2", "search").begin("a2");
    journal
        .stream(vec![
            ProviderEvent::Usage(usage(2_000, 1)),
            ProviderEvent::Error(cut_error()),
        ])
        .unwrap();
    journal.retry(2).attempt(2);
    let end = ProviderEvent::Finish {
        finish: Finish::Stop,
        raw: None,
        usage: usage(90_000, 10),
    };
    journal
        .stream(
            [
                vec![
                    complete("s", "web_search", "{}", true),
                    result("s", "pages"),
                ],
                vec![end],
            ]
            .concat(),
        )
        .unwrap();
    journal.end();
    assert_eq!(
        journal.state.context_tokens, None,
        "nothing measured holds it"
    );
}

#[test]
fn a_summary_has_room_for_the_thoughts_before_it_from_the_first_try() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 100);
    exchange(&mut journal, 2, "x", 100);
    let asked = |tokens, firmly| {
        let limits = window(tokens);
        let planned = plan(&Planning {
            state: &journal.state,
            reason: CompactionReason::Threshold,
            model: &model(),
            limits: &limits,
            counter: &Rough,
            fixed: 0,
            cache_key: "k",
            too_large: 0,
            firmly,
            effort: Some(tenure_core::request::Effort::Low),
        });
        let request = planned.unwrap().request;
        assert_eq!(request.effort, Some(tenure_core::request::Effort::Low));
        request.max_output.unwrap()
    };
    assert_eq!(asked(200_000, false), 16_000);
    assert_eq!(asked(200_000, true), 32_000);
    assert_eq!(asked(32_000, true), 8_000, "never more than a quarter");
}

#[test]
fn a_failed_try_after_an_overflow_keeps_the_overflow_and_the_step_keeps_its_number() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 100);
    journal.user("u", "go").begin("a");
    let cause = SessionError::new("request_too_large", "too long");
    journal.settle(&tenure_core::turn::settle::Cause::Failed(cause));
    assert!(
        journal.state.overflowed,
        "the body's size is the history's, too"
    );
    journal.add(failed("overloaded")).add(failed("crashed"));
    assert!(
        journal.state.overflowed,
        "a failed try is not the end of it"
    );
    journal.add(compacted(1));
    assert_eq!(
        (journal.state.overflow_compactions, journal.state.step_again),
        (1, true)
    );
    let bytes = tenure_core::session::checkpoint::seal(&journal.state, 0).unwrap();
    let reopened = tenure_core::session::checkpoint::open([bytes.as_slice()]).unwrap();
    assert!(
        reopened.step_again,
        "whoever takes over counts on from there"
    );
    journal.begin("b");
    assert!(!journal.state.step_again);
}

#[test]
fn new_words_are_not_held_against_a_compaction() {
    let mut journal = Journal::new();
    for n in 1..4 {
        exchange(&mut journal, n, "x", 9_000);
    }
    journal.add(compacted(journal.state.entries[4].seq()));
    exchange(&mut journal, 5, &"word ".repeat(8_000), 9_500);
    let after = journal.state.after_compaction.unwrap();
    assert!(after < 2_000, "{after}");
    assert!(is_due(&journal, &window(10_000)), "history grew again");
}

proptest! {
    #![proptest_config(crate::cases(64))]

    /// Through any row of compactions: each message is in the text of a summary in force, or kept as it is.
    #[test]
    fn bc_s_034_random_histories_lose_no_message(
        sizes in prop::collection::vec((0usize..900, 1usize..4), 2..12),
        tokens in prop::sample::select(vec![20_000u64, 40_000]),
    ) {
        let mut journal = Journal::new();
        let mut told = String::new();
        let mut n = 0;
        for (size, exchanges) in sizes {
            for _ in 0..exchanges {
                n += 1;
                exchange(&mut journal, n, &"word ".repeat(size), 100);
            }
            if let Ok(plan) = planned(&journal, CompactionReason::Threshold, tokens) {
                told.push_str(&asked(&plan));
                journal.add(compacted(plan.kept_from));
            }
            let kept = format!("{:?}", journal.request().messages);
            for m in 1..=n {
                for who in ["question", "answer"] {
                    let mark = format!("{who} {m}:");
                    prop_assert!(told.contains(&mark) || kept.contains(&mark), "{mark} is lost");
                }
            }
        }
    }

    /// The estimate never exceeds the bytes, and nothing makes it fail.
    #[test]
    fn no_text_has_more_tokens_than_bytes(text in ".{0,200}") {
        prop_assert!(rough(&text) <= text.len() as u64);
    }
}
