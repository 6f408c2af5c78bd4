//! When history is compacted, what is summarised, what stays, and that it ends.

use crate::history::{compacted, kinds};
use crate::journal::*;
use proptest::prelude::*;
use tenure_core::compaction::*;
use tenure_core::event::body::*;
use tenure_core::model::ModelLimits;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::request::{RequestMessage, UserPart};
use tenure_core::{CompactionId, SessionError};

pub fn window(tokens: u64) -> ModelLimits {
    ModelLimits {
        context: Some(tokens),
        output: Some(tokens),
    }
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
    plan(&journal.state, reason, &model(), &window(tokens), "k")
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
    assert!(!due(&journal.state, &window(10_000)));
    exchange(&mut journal, 2, "x", 7_600);
    assert!(due(&journal.state, &window(10_000)));
    let unknown = ModelLimits {
        context: None,
        output: None,
    };
    assert!(
        !due(&journal.state, &unknown),
        "an unknown window is learnt from the provider"
    );
}

#[test]
fn the_estimate_is_the_measurement_and_what_came_after_it() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 1_000);
    assert_eq!(estimate(&journal.state), 1_010);
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
    assert_eq!(estimate(&journal.state), 2_000 + 1_000 + 10);
}

#[test]
fn a_failed_compaction_is_not_tried_again_before_a_step_has_ended() {
    let mut journal = Journal::new();
    exchange(&mut journal, 1, "x", 9_000);
    exchange(&mut journal, 2, "x", 9_000);
    assert!(due(&journal.state, &window(10_000)));
    for n in 0..MAX_FUTILE {
        journal.add(CompactionFailed {
            compaction: CompactionId::from_bits(u128::from(n)),
            error: SessionError::new("unusable", "the summary was empty"),
            usage: None,
            cost: None,
        });
    }
    assert!(!due(&journal.state, &window(10_000)));
    assert_eq!(kinds(&journal.request()).len(), 4, "history is as it was");
    exchange(&mut journal, 3, "x", 9_000);
    assert!(due(&journal.state, &window(10_000)));
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
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

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
            prop_assert!(text.len() as u64 / 4 + output + 300 <= tokens * 9 / 10, "{} bytes", text.len());
            let before = journal.state.entries.len();
            journal.add(compacted(plan.kept_from));
            prop_assert!(journal.state.entries.len() < before);
            let request = format!("{:?}", journal.request().messages);
            let wanted = format!("{last:?}");
            prop_assert!(request.contains(wanted.trim_matches('"')));
            prop_assert!(!due(&journal.state, &window(tokens)), "not again before it is measured");
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
    assert!(due(&journal.state, &limits));
    journal.add(compacted(journal.state.entries[2].seq()));
    assert!(!due(&journal.state, &limits));
    uncounted(&mut journal, 3, 31_000);
    assert!(due(&journal.state, &limits), "history grew again");
    let mut fixed = Journal::new();
    uncounted(&mut fixed, 1, 100);
    fixed.add(InstructionsSet {
        parts: vec!["x".repeat(40_000)],
        digest: String::new(),
    });
    assert!(
        !due(&fixed.state, &limits),
        "no compaction makes instructions shorter"
    );
}
