//! P3, always sendable: whatever happened to a session, the next request is one its vendor accepts; the
//! vendor's own blocks are in it byte for byte, and it begins with the bytes of the request before it.

use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use tenure_core::history::{RequestPlan, build};
use tenure_core::model::ModelLimits;
use tenure_core::provider::NativeState;
use tenure_core::request::{AssistantBlock, Request, RequestMessage, ToolDef};
use tenure_core::session::SessionState;
use tenure_core::session::checkpoint::{open, seal};
use tenure_core::turn::settle::{Cause, settle};
use tenure_core::{Event, EventBody, EventId, SessionId};
use tenure_provider::{Dialect, Protocol, encode};
use tenure_scripted::validate;
use tenure_sim::randomlog::{Asked, MODELS, RandomLog, Tape};

fn plan(asked: &Asked, tools: bool, last_step: bool) -> RequestPlan {
    let tool = |name: &str| ToolDef {
        name: name.to_owned(),
        description: "A tool.".to_owned(),
        input_schema: serde_json::json!({"type": "object", "properties": {}}),
    };
    RequestPlan {
        model: asked.reference(),
        protocol: asked.protocol.to_owned(),
        tools: if tools {
            vec![tool("bash"), tool("read")]
        } else {
            Vec::new()
        },
        last_step,
        max_output: Some(4_000),
        cache_key: "ses_1".to_owned(),
        hosted_tools: Vec::new(),
        effort: None,
    }
}

fn body(asked: &Asked, request: &Request, dialect: Dialect) -> String {
    let limits = ModelLimits {
        context: None,
        output: None,
    };
    let protocol = protocol(asked);
    let encoded = encode(protocol, dialect, &limits, request).expect("something to send");
    String::from_utf8(encoded.body.to_vec()).expect("JSON is UTF-8")
}

fn protocol(asked: &Asked) -> Protocol {
    match asked.protocol {
        "anthropic-messages" => Protocol::AnthropicMessages,
        "openai-responses" => Protocol::OpenaiResponses,
        _ => Protocol::OpenaiChat,
    }
}

fn check(asked: &Asked, body: &str) -> Result<(), String> {
    let value: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let verdict = match protocol(asked) {
        Protocol::AnthropicMessages => validate::anthropic_messages(&value),
        Protocol::OpenaiResponses => validate::openai_responses(&value),
        _ => validate::openai_chat(&value),
    };
    verdict.map_err(|broken| format!("{}: {broken:#?}\n{body}", asked.protocol))
}

/// The provider's own JSON in the request, of blocks that are never changed on their way.
fn natives(request: &Request) -> Vec<&str> {
    request
        .messages
        .iter()
        .flat_map(|message| match message {
            RequestMessage::Assistant { blocks } => blocks.iter(),
            _ => [].iter(),
        })
        .filter_map(|block| match block {
            AssistantBlock::Text { native, .. } | AssistantBlock::Reasoning { native, .. } => {
                native.as_deref()
            }
            AssistantBlock::Opaque { native } => Some(native),
            _ => None,
        })
        .collect()
}

/// Every state of a provider's in the request was made by the protocol, the provider and the family asked, in
/// an attempt that was not given up. (Numbers in it tell the states of one log apart.)
fn assert_own(events: &[Event], request: &Request, asked: &Asked) {
    let mut own: HashSet<&str> = HashSet::new();
    let mut attempt: Vec<&NativeState> = Vec::new();
    let ours = |state: &NativeState| {
        let family = MODELS
            .iter()
            .find(|m| m.model == state.model)
            .map(|m| m.family);
        state.protocol == asked.protocol
            && state.provider == asked.provider
            && family == Some(asked.family)
    };
    for event in events {
        match &event.body {
            EventBody::FragmentEnded(e) => attempt.extend(&e.native),
            EventBody::ToolCalled(e) => attempt.extend(&e.native),
            EventBody::BlockRecorded(e) => attempt.push(&e.native),
            EventBody::StepStarted(_) | EventBody::RetryScheduled(_) => attempt.clear(),
            EventBody::StepEnded(_) | EventBody::StepFailed(_) | EventBody::SessionForked(_) => {
                let kept = attempt.drain(..).filter(|state| ours(state));
                own.extend(kept.map(|state| state.native.as_str()));
            }
            _ => {}
        }
    }
    let numbered = |native: &&str| native.bytes().any(|b| b.is_ascii_digit());
    for native in natives(request).into_iter().filter(numbered) {
        assert!(own.contains(native), "{native} is not {asked:?}'s own");
    }
}

/// Every call has its one result directly behind its message, and no id is used twice.
fn assert_paired(request: &Request) {
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let mut messages = request.messages.iter().peekable();
    while let Some(message) = messages.next() {
        let RequestMessage::Assistant { blocks } = message else {
            assert!(
                !matches!(message, RequestMessage::ToolResults { .. }),
                "results without calls"
            );
            continue;
        };
        let calls: Vec<&str> = blocks
            .iter()
            .filter_map(|b| match b {
                AssistantBlock::ToolCall { id, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        for id in &calls {
            *seen.entry(id).or_insert(0) += 1;
        }
        if calls.is_empty() {
            continue;
        }
        let Some(RequestMessage::ToolResults { results }) = messages.next() else {
            panic!("{calls:?} have no results")
        };
        let answered: Vec<&str> = results.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(calls, answered);
    }
    assert!(seen.values().all(|n| *n == 1), "{seen:?}");
}

fn assert_sendable(state: &SessionState, own: &Asked) -> Result<(), TestCaseError> {
    for asked in MODELS {
        let ways = [(true, false), (false, false), (true, true)];
        let ways = if asked == own { &ways[..] } else { &ways[..1] };
        for (tools, last) in ways.iter().copied() {
            let request = build(state, &plan(asked, tools, last));
            assert_paired(&request);
            for dialect in [Dialect::Common, Dialect::Openai, Dialect::Mistral] {
                let body = body(asked, &request, dialect);
                check(asked, &body).map_err(TestCaseError::fail)?;
                if asked == own && asked.protocol != "openai-chat" {
                    for native in natives(&request) {
                        prop_assert!(body.contains(native), "{native} is not in {body}");
                    }
                }
                if asked.protocol != "openai-chat" {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// The pieces of a body's messages in order, without cache marks: what a vendor's prompt cache compares.
fn pieces(asked: &Asked, body: &str) -> Vec<String> {
    let mut value: serde_json::Value = serde_json::from_str(body).expect("JSON");
    strip(&mut value);
    let key = if protocol(asked) == Protocol::OpenaiResponses {
        "input"
    } else {
        "messages"
    };
    let mut pieces = Vec::new();
    for message in value[key].as_array().expect("messages") {
        let role = message["role"].as_str().unwrap_or_default();
        match &message["content"] {
            serde_json::Value::Array(blocks) => {
                pieces.extend(blocks.iter().map(|block| format!("{role} {block}")));
            }
            content => pieces.push(format!("{role} {content}")),
        }
        let mut rest = message.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("content");
        }
        pieces.push(rest.to_string());
    }
    // The last message may go on: its frame is not yet the last word.
    pieces.pop();
    pieces
}

/// The last piece of the shorter one may have been a text that went on.
fn begins_with(now: &[String], before: &[String]) -> bool {
    let Some((last, whole)) = before.split_last() else {
        return true;
    };
    now.starts_with(whole)
        && now
            .get(whole.len())
            .is_some_and(|p| p.starts_with(last.trim_end_matches('"')))
}

fn strip(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(strip);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Does the epoch of requests go on between two of them: the same model, no summary, no new instructions?
fn same_epoch(events: &[Event]) -> bool {
    !events.iter().any(|e| {
        matches!(
            e.body,
            EventBody::ModelSelected(_)
                | EventBody::CompactionEnded(_)
                | EventBody::InstructionsSet(_)
                | EventBody::SessionForked(_)
        )
    })
}

/// The log settled as recovery would, from any prefix.
fn settled(log: &RandomLog, n: usize) -> SessionState {
    let mut state = log.prefix(n);
    let bodies = settle(&state.turn, &Cause::Crashed);
    for (i, body) in bodies.into_iter().enumerate() {
        let seq = (n + i) as u64;
        state.apply(&Event {
            id: EventId::from_bits(u128::from(seq) + 1),
            session: SessionId::from_bits(1),
            seq,
            epoch: Some(2),
            created_ms: 0,
            body,
        });
    }
    assert!(state.turn.at_boundary());
    state
}

fn tapes() -> impl Strategy<Value = Tape> {
    prop::collection::vec(any::<u16>(), 1..600).prop_map(Tape::new)
}

fn cases(n: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(n),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn every_request_is_one_its_vendor_accepts(tape in tapes(), crash in any::<prop::sample::Index>()) {
        let log = RandomLog::play(tape);
        for (at, asked) in &log.requests {
            let state = log.prefix(*at);
            assert_sendable(&state, asked)?;
            assert_own(&log.events[..*at], &build(&state, &plan(asked, true, false)), asked);
        }
        // Nothing is asked before there are words.
        let first = log.requests.first().map_or(log.events.len(), |first| first.0);
        let n = first + crash.index(log.events.len() - first + 1);
        assert_sendable(&settled(&log, n), &log.asked)?;
        assert_sendable(&settled(&log, log.events.len()), &log.asked)?;
    }

    #[test]
    fn a_request_begins_with_the_bytes_of_the_one_before(tape in tapes()) {
        let log = RandomLog::play(tape);
        let mut before: Option<(usize, Asked, Vec<String>)> = None;
        for (at, asked) in log.requests.iter().copied() {
            let state = log.prefix(at);
            let request = build(&state, &plan(&asked, true, false));
            // A paused turn goes on inside its last message.
            let open_ended = matches!(request.messages.last(), Some(RequestMessage::Assistant { .. }));
            let now = pieces(&asked, &body(&asked, &request, Dialect::Common));
            if let Some((from, earlier, prefix)) = &before
                && same_epoch(&log.events[*from..at])
                && *earlier == asked
            {
                prop_assert!(begins_with(&now, prefix), "{prefix:#?}\n is not the beginning of\n{now:#?}");
            }
            before = (!open_ended).then_some((at, asked, now));
        }
    }

    /// Memory is the fold of the log, however it is cut: page by page, twice, or from checkpoints.
    #[test]
    fn folds_and_checkpoints_agree(tape in tapes(), places in prop::collection::vec(any::<prop::sample::Index>(), 1..6)) {
        let log = RandomLog::play(tape);
        let places: Vec<usize> = places.iter().map(|p| p.index(log.events.len())).collect();
        let mut state = SessionState::default();
        let mut segments: Vec<Vec<u8>> = Vec::new();
        let mut last = None;
        for (n, event) in log.events.iter().enumerate() {
            state.apply(event);
            state.apply(event);
            if places.contains(&n) {
                let new = state.entries.iter().position(|e| last.is_none_or(|seq| e.seq() > seq));
                if let Some(segment) = seal(&state, new.unwrap_or(state.entries.len())) {
                    segments.push(segment);
                    last = state.entries.last().map(|e| e.seq()).or(last);
                }
            }
        }
        let mut opened = open(segments.iter().map(Vec::as_slice)).unwrap_or_default();
        prop_assert_eq!(opened.cursor.is_some(), !segments.is_empty());
        log.events.iter().for_each(|e| opened.apply(e));
        for other in [&state, &opened] {
            prop_assert_eq!(&other.entries, &log.state.entries);
            let value = |s: &SessionState| serde_json::to_value(s).expect("JSON");
            prop_assert_eq!(value(other), value(&log.state));
            prop_assert_eq!(other.turn.pending(), log.state.turn.pending());
            prop_assert_eq!(&other.turn.execution, &log.state.turn.execution);
        }
    }
}

/// The generator reaches what it is meant to reach; without this, the properties above could be empty.
#[test]
fn random_logs_hold_everything_that_can_happen() {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut number = 7u64;
    let mut requests = 0;
    for _ in 0..300 {
        let mut next = || {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (number >> 33) as u16
        };
        let log = RandomLog::play(Tape::new((0..400).map(|_| next()).collect()));
        requests += log.requests.len();
        for event in &log.events {
            let key = match &event.body {
                EventBody::ToolFailed(e) => format!("tool.failed {:?}", e.failure),
                EventBody::AttemptEnded(e) => format!("attempt.ended {:?}", e.finish),
                EventBody::StepFailed(e) => format!("step.failed {}", e.error.kind),
                other => other.type_name().to_owned(),
            };
            *seen.entry(key).or_insert(0) += 1;
        }
        if log.state.turn.at_boundary()
            && !log
                .events
                .iter()
                .any(|e| matches!(e.body, EventBody::SessionForked(_)))
        {
            assert!(log.unsettled().is_empty(), "{:?}", log.unsettled());
        }
    }
    assert!(requests > 1_500, "{requests}");
    for wanted in [
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
        "retry.scheduled",
        "compaction.ended",
        "compaction.failed",
        "session.forked",
        "model.selected",
        "block.recorded",
        "instructions.changed",
        "execution.interrupted",
        "input.cancelled",
        "recovery.started",
    ] {
        assert!(
            seen.get(wanted).is_some_and(|n| *n >= 5),
            "{wanted}: {seen:#?}"
        );
    }
}
