//! What random sessions hold: without this, the properties over them could be empty.

use super::judge::{assert_no_foreign, body, dialects, plan};
use super::prefix::{Continued, Earlier};
use std::collections::BTreeMap;
use std::ops::Range;
use tenure_core::event::body::{FragmentKind, InputKind, Phase};
use tenure_core::history::build;
use tenure_core::request::{Request, RequestMessage, UserPart};
use tenure_core::session::{SessionState, Withheld};
use tenure_core::turn::{CallStatus, OpenPartKind, TurnState};
use tenure_core::{Event, EventBody};
use tenure_provider::Dialect;
use tenure_sim::randomlog::{
    ANTHROPIC, Asked, BEDROCK, CHAT, GEMINI, MODELS, RESPONSES, RandomLog, Tape,
};

/// How many choices make a session.
pub const CHOICES: Range<usize> = 900..2_400;

/// The events that most sessions reach at least.
const LONG: usize = 200;
/// Sessions of the sample.
const SESSIONS: usize = 240;
/// How often what is wanted is to be seen at least.
const OFTEN: usize = 5;

const PROTOCOLS: [&str; 5] = [ANTHROPIC, RESPONSES, CHAT, GEMINI, BEDROCK];

/// What happened, by how often.
#[derive(Default)]
struct Census(BTreeMap<String, usize>);

/// Where a session stood when something came over it.
fn place(turn: &TurnState) -> &'static str {
    if turn.compaction.is_some() {
        return "while compacting";
    }
    let Some(step) = &turn.step else {
        return "at a boundary";
    };
    let of = |wanted: fn(&CallStatus) -> bool| {
        let mut calls = step.calls().filter(|call| !call.executed);
        calls.any(|call| wanted(&call.status))
    };
    let fragment = step.parts.iter().find_map(|part| match &part.kind {
        OpenPartKind::Fragment {
            open: true, kind, ..
        } => Some(*kind),
        _ => None,
    });
    match fragment {
        _ if of(|status| matches!(status, CallStatus::Started { .. })) => "with tools running",
        Some(FragmentKind::Text) => "in a text",
        Some(FragmentKind::Reasoning) => "in a thought",
        None if of(|status| matches!(status, CallStatus::Streaming)) => "in a call's input",
        None if of(|status| matches!(status, CallStatus::Called { .. })) => "with calls waiting",
        None if step.attempt.is_some() => "with a request open",
        None if step.retry.is_some() => "before a retry",
        None => "at a step's end",
    }
}

/// All of [`place`] that a crash, an interrupt and a fork can find.
const PLACES: [&str; 9] = [
    "at a boundary",
    "with tools running",
    "in a text",
    "in a thought",
    "in a call's input",
    "with calls waiting",
    "with a request open",
    "before a retry",
    "at a step's end",
];

impl Census {
    fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_insert(0) += 1;
    }

    /// What `event` says, when `asked` is talked to and `state` is what came before it.
    fn event(&mut self, event: &Event, asked: &Asked, state: &SessionState) {
        let protocol = asked.protocol;
        match &event.body {
            EventBody::ToolFailed(e) => self.count(format!("tool.failed {:?}", e.failure)),
            EventBody::AttemptEnded(e) => self.count(format!("attempt.ended {:?}", e.finish)),
            EventBody::StepFailed(e) => self.count(format!("step.failed {}", e.error.kind)),
            EventBody::ToolCalled(e) => {
                let side = if e.executed { "hosted" } else { "local" };
                let own = e.native.as_ref().map_or("none", |n| n.protocol.as_str());
                self.count(format!("call {side}, own form {own}"));
                self.count(format!("call {side}, {protocol}"));
            }
            EventBody::FragmentEnded(e) => {
                let own = e.native.as_ref().map_or("none", |n| n.protocol.as_str());
                self.count(format!("fragment, own form {own}"));
            }
            EventBody::BlockRecorded(e) => self.count(format!("block {}", e.native.protocol)),
            EventBody::InputAdmitted(e) => self.input(&e.kind),
            // Recovery settles behind it: what was open is open still.
            EventBody::RecoveryStarted(e) => {
                let place = place(&state.turn);
                assert_eq!(e.phase == Phase::Safe, place == "at a boundary", "{place}");
                self.count(format!("crash {place}, {protocol}"));
                self.count(format!("crash {place}"));
            }
            EventBody::InterruptRequested(_) => {
                let place = place(&state.turn);
                self.count(format!("interrupt {place}"));
                self.count(format!("interrupt, {protocol}"));
            }
            EventBody::SessionForked(_) => {
                let place = place(&state.turn);
                self.count(format!("fork {place}"));
                self.count(format!("fork, {protocol}"));
            }
            EventBody::CompactionEnded(_) => self.count(format!("compaction, {protocol}")),
            _ => {}
        }
        self.count(event.body.type_name());
    }

    fn input(&mut self, kind: &InputKind) {
        let InputKind::User {
            media,
            schema,
            effort,
            ..
        } = kind
        else {
            return;
        };
        media
            .iter()
            .for_each(|m| self.count(format!("media {}", m.media_type)));
        schema.iter().for_each(|_| self.count("prompt with a form"));
        effort.iter().for_each(|_| self.count("prompt with effort"));
    }

    /// What a refusal left out.
    fn withheld(&mut self, before: &Withheld, after: &Withheld, protocol: &str) {
        if before.reasoning != after.reasoning {
            self.count(format!("refused state left out, {protocol}"));
        }
        if before.media != after.media {
            self.count(format!("refused media left out, {protocol}"));
        }
        if before.thoughts != after.thoughts {
            self.count("refused thoughts left out");
        }
    }

    fn session(&mut self, log: &RandomLog) {
        let mut state = SessionState::default();
        let mut requests = log.requests.iter().peekable();
        let mut asked = log.requests[0].1;
        let mut earlier: Vec<(Asked, Earlier)> = Vec::new();
        for (at, event) in log.events.iter().enumerate() {
            if let Some((_, next)) = requests.next_if(|(n, _)| *n == at) {
                if *next != asked {
                    self.count(format!("switch {} to {}", asked.protocol, next.protocol));
                }
                asked = *next;
                self.request(&log.events[..at], &state, &asked, &mut earlier);
            }
            self.event(event, &asked, &state);
            let before = state.withheld.clone();
            state.apply(event);
            self.withheld(&before, &state.withheld, asked.protocol);
        }
    }

    fn request(
        &mut self,
        events: &[Event],
        state: &SessionState,
        asked: &Asked,
        earlier: &mut Vec<(Asked, Earlier)>,
    ) {
        let request = build(state, &plan(asked, 0, true, false));
        let body = body(asked, &request, Dialect::Openrouter);
        // It looks through the whole log each time.
        if events.len().is_multiple_of(4) {
            let states = assert_no_foreign(events, asked, &body).expect("own state");
            let word = if states > 0 { "with" } else { "without" };
            self.count(format!("request {word} own state, {}", asked.protocol));
        }
        if shows_media(&request) && body.contains("iVBORw0KGgo") {
            self.count(format!("request with a picture, {}", asked.protocol));
        }
        let last = dialects(asked).len() - 1;
        let before = earlier.iter().find(|(model, _)| model == asked);
        for (at, dialect) in dialects(asked).into_iter().enumerate() {
            let Some((_, before)) = before.filter(|_| at == 0 || at == last) else {
                continue;
            };
            let continued = before.is_continued_by(&request, state, (asked, dialect));
            match continued.expect("a continuation") {
                Continued::Byte => self.count(format!("continued, {}", asked.protocol)),
                Continued::Anew => self.count(format!("begun anew, {}", asked.protocol)),
            }
        }
        earlier.retain(|(model, _)| model != asked);
        earlier.push((*asked, Earlier::new(events.len(), request, state)));
    }
}

fn shows_media(request: &Request) -> bool {
    request.messages.iter().any(|message| match message {
        RequestMessage::User { parts } => parts.iter().any(|p| matches!(p, UserPart::Media(_))),
        _ => false,
    })
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
    let mut providers = 0;
    for _ in 0..SESSIONS {
        let log = RandomLog::play(tape(&mut number));
        lengths.push(log.events.len());
        requests += log.requests.len();
        census.session(&log);
        let mut spoken: Vec<_> = log.requests.iter().map(|r| r.1.provider).collect();
        spoken.sort_unstable();
        spoken.dedup();
        providers += usize::from(spoken.len() >= 3);
        let forked = |e: &Event| matches!(e.body, EventBody::SessionForked(_));
        if log.state.turn.at_boundary() && !log.events.iter().any(forked) {
            assert!(log.unsettled().is_empty(), "{:?}", log.unsettled());
        }
    }
    lengths.sort_unstable();
    let long = lengths.iter().filter(|n| **n >= LONG).count();
    println!(
        "{} sessions of {} to {} events, half of them above {}; {long} of {LONG} or more; {providers} over three \
         providers or more; {requests} requests",
        lengths.len(),
        lengths[0],
        lengths[lengths.len() - 1],
        lengths[lengths.len() / 2],
    );
    for (what, n) in &census.0 {
        println!("{n:>7} {what}");
    }
    let most = |n: usize| n * 10 >= SESSIONS * 9;
    assert!(most(long), "{long} of {SESSIONS} are long");
    assert!(most(providers), "{providers} of {SESSIONS} switch enough");
    assert!(requests > SESSIONS * 12, "{requests}");
    let wanted = wanted();
    let seen = |what: &String| census.0.get(what).copied().unwrap_or(0);
    let rare: Vec<_> = wanted.iter().filter(|what| seen(what) < OFTEN).collect();
    assert!(rare.is_empty(), "hardly ever: {rare:#?}");
    for from in PROTOCOLS {
        for to in PROTOCOLS {
            let wanted = format!("switch {from} to {to}");
            assert!(census.0.contains_key(&wanted), "{wanted}");
        }
    }
}

#[test]
fn every_protocol_and_model_is_one_the_sample_asks() {
    let spoken: Vec<&str> = tenure_provider::Protocol::ALL.map(|p| p.as_str()).to_vec();
    for protocol in spoken {
        assert!(PROTOCOLS.contains(&protocol), "{protocol}");
        assert!(MODELS.iter().any(|m| m.protocol == protocol), "{protocol}");
    }
}

/// What each protocol has to go through.
const EACH: [&str; 18] = [
    "crash at a boundary, ",
    "crash with tools running, ",
    "crash in a text, ",
    "crash in a thought, ",
    "crash with calls waiting, ",
    "crash with a request open, ",
    "interrupt, ",
    "fork, ",
    "compaction, ",
    "block ",
    "fragment, own form ",
    "call local, ",
    "call hosted, ",
    "request with own state, ",
    "request with a picture, ",
    "refused state left out, ",
    "refused media left out, ",
    "continued, ",
];

fn wanted() -> Vec<String> {
    let each = EACH
        .iter()
        .flat_map(|what| PROTOCOLS.map(|protocol| format!("{what}{protocol}")));
    let places = ["crash", "interrupt", "fork"]
        .iter()
        .flat_map(|what| PLACES.map(|place| format!("{what} {place}")));
    let once = WANTED.iter().map(|what| (*what).to_owned());
    each.chain(places).chain(once).collect()
}

/// What has to happen whoever is asked.
const WANTED: &[&str] = &[
    "crash while compacting",
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
    "step.failed server",
    "step.failed invalid_request",
    "refused thoughts left out",
    "retry.scheduled",
    "compaction.ended",
    "compaction.failed",
    "media.withheld",
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
    "call local, own form anthropic-messages",
    "call local, own form openai-responses",
    "call local, own form openai-chat",
    "call local, own form gemini",
    "call hosted, own form anthropic-messages",
    "call hosted, own form openai-responses",
    "call hosted, own form gemini",
    "call hosted, own form bedrock-converse",
];
