//! What random sessions hold: without this, the properties over them could be empty.

use super::judge::{assert_no_foreign, body, plan};
use std::collections::BTreeMap;
use std::ops::Range;
use tenure_core::event::body::InputKind;
use tenure_core::history::build;
use tenure_core::{Event, EventBody};
use tenure_provider::Dialect;
use tenure_sim::randomlog::{RandomLog, Tape};

/// How many choices make a session.
pub const CHOICES: Range<usize> = 900..2_400;

/// The events that most sessions reach at least.
const LONG: usize = 200;

/// What happened, by how often.
#[derive(Default)]
struct Census(BTreeMap<String, usize>);

impl Census {
    fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_insert(0) += 1;
    }

    fn event(&mut self, event: &Event) {
        match &event.body {
            EventBody::ToolFailed(e) => self.count(format!("tool.failed {:?}", e.failure)),
            EventBody::AttemptEnded(e) => self.count(format!("attempt.ended {:?}", e.finish)),
            EventBody::StepFailed(e) => self.count(format!("step.failed {}", e.error.kind)),
            EventBody::ToolCalled(e) => {
                let side = if e.executed { "hosted" } else { "local" };
                let own = e.native.as_ref().map_or("none", |n| n.protocol.as_str());
                self.count(format!("call {side}, own form {own}"));
            }
            EventBody::FragmentEnded(e) => {
                let own = e.native.as_ref().map_or("none", |n| n.protocol.as_str());
                self.count(format!("fragment, own form {own}"));
            }
            EventBody::BlockRecorded(e) => self.count(format!("block {}", e.native.protocol)),
            EventBody::InputAdmitted(e) => {
                if let InputKind::User {
                    media,
                    schema,
                    effort,
                    ..
                } = &e.kind
                {
                    media
                        .iter()
                        .for_each(|m| self.count(format!("media {}", m.media_type)));
                    schema.iter().for_each(|_| self.count("prompt with a form"));
                    effort.iter().for_each(|_| self.count("prompt with effort"));
                }
                self.count("input.admitted");
            }
            other => self.count(other.type_name()),
        }
    }

    fn session(&mut self, log: &RandomLog) {
        log.events.iter().for_each(|event| self.event(event));
        for pair in log.requests.windows(2) {
            let (from, to) = (&pair[0].1, &pair[1].1);
            if from != to {
                self.count(format!("switch {} to {}", from.protocol, to.protocol));
            }
        }
        for (at, asked) in log.requests.iter().skip(3).step_by(5) {
            let request = build(&log.prefix(*at), &plan(asked, 0, true, false));
            let body = body(asked, &request, Dialect::Openrouter);
            let states = assert_no_foreign(&log.events[..*at], asked, &body).expect("own state");
            let word = if states > 0 { "with" } else { "without" };
            self.count(format!("request {word} own state, {}", asked.protocol));
        }
    }
}

/// Tapes by a plain generator: the same ones in every run.
fn tape(number: &mut u64) -> Tape {
    let mut next = || {
        *number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (*number >> 33) as u16
    };
    let length = CHOICES.start + usize::from(next()) % CHOICES.len();
    Tape::new((0..length).map(|_| next()).collect())
}

#[test]
fn random_sessions_are_long_and_hold_everything_that_can_happen() {
    let mut census = Census::default();
    let mut number = 7u64;
    let mut lengths = Vec::new();
    let mut requests = 0;
    for _ in 0..120 {
        let log = RandomLog::play(tape(&mut number));
        lengths.push(log.events.len());
        requests += log.requests.len();
        census.session(&log);
        let forked = |e: &Event| matches!(e.body, EventBody::SessionForked(_));
        if log.state.turn.at_boundary() && !log.events.iter().any(forked) {
            assert!(log.unsettled().is_empty(), "{:?}", log.unsettled());
        }
    }
    lengths.sort_unstable();
    let long = lengths.iter().filter(|n| **n >= LONG).count();
    println!(
        "{} sessions of {} to {} events, half of them above {}; {long} of {LONG} or more; {requests} requests",
        lengths.len(),
        lengths[0],
        lengths[lengths.len() - 1],
        lengths[lengths.len() / 2],
    );
    for (what, n) in &census.0 {
        println!("{n:>7} {what}");
    }
    assert!(
        long * 10 >= lengths.len() * 9,
        "{long} of {}",
        lengths.len()
    );
    assert!(requests > 1_500, "{requests}");
    for wanted in WANTED {
        let seen = census.0.get(*wanted).copied().unwrap_or(0);
        assert!(seen >= 5, "{wanted}: {seen} times");
    }
    let protocols = [
        "anthropic-messages",
        "openai-responses",
        "openai-chat",
        "gemini",
        "bedrock-converse",
    ];
    for from in protocols {
        for to in protocols {
            let wanted = format!("switch {from} to {to}");
            assert!(census.0.contains_key(&wanted), "{wanted}");
        }
    }
}

const WANTED: &[&str] = &[
    "tool.failed NotExecuted",
    "tool.failed Failed",
    "tool.failed Denied",
    "tool.failed Interrupted",
    "tool.failed OutcomeUnknown",
    "tool.failed Stale",
    "tool.succeeded",
    "attempt.ended Pause",
    "attempt.ended Length",
    "attempt.ended ToolCalls",
    "attempt.ended Stop",
    "attempt.ended Error",
    "step.failed violation",
    "step.failed crashed",
    "step.failed interrupted",
    "step.failed shutdown",
    "step.failed context_overflow",
    "step.failed cut",
    "step.failed invalid_request",
    "retry.scheduled",
    "compaction.ended",
    "compaction.failed",
    "session.forked",
    "model.selected",
    "instructions.changed",
    "execution.interrupted",
    "input.cancelled",
    "recovery.started",
    "media image/png",
    "media application/pdf",
    "media image/bmp",
    "prompt with a form",
    "prompt with effort",
    "block anthropic-messages",
    "block openai-responses",
    "block openai-chat",
    "block gemini",
    "block bedrock-converse",
    "fragment, own form anthropic-messages",
    "fragment, own form openai-responses",
    "fragment, own form openai-chat",
    "fragment, own form gemini",
    "fragment, own form bedrock-converse",
    "call local, own form anthropic-messages",
    "call local, own form openai-responses",
    "call local, own form openai-chat",
    "call local, own form gemini",
    "call hosted, own form anthropic-messages",
    "call hosted, own form openai-responses",
    "call hosted, own form gemini",
    "call hosted, own form bedrock-converse",
    "request with own state, anthropic-messages",
    "request with own state, openai-responses",
    "request with own state, openai-chat",
    "request with own state, gemini",
    "request with own state, bedrock-converse",
];
