//! P3, always sendable: whatever happened to a session, the next request is one its vendor accepts; the
//! vendor's own blocks are in it byte for byte, and it begins with the bytes of the request before it.

mod census;
mod judge;
mod prefix;

use judge::*;
use prefix::Earlier;
use proptest::prelude::*;
use tenure_core::event::body::*;
use tenure_core::history::build;
use tenure_core::request::Request;
use tenure_core::session::SessionState;
use tenure_core::session::checkpoint::{open, seal};
use tenure_core::turn::settle::{Cause, settle};
use tenure_core::{Event, EventBody, EventId, MessageId, SessionId};
use tenure_sim::randomlog::{Asked, MODELS, RandomLog, Tape};

/// How much of what could be asked is asked.
#[derive(Clone, Copy, PartialEq)]
enum Scope {
    /// The model at hand in a few dialects, and one other model.
    Some,
    /// Every model in every dialect.
    All,
}

/// The request `own` would get next, and those of others after a switch; `n` chooses among what is not
/// always tried.
fn assert_sendable(
    events: &[Event],
    state: &SessionState,
    own: &Asked,
    n: usize,
    scope: Scope,
) -> Result<(), TestCaseError> {
    for (at, asked) in MODELS.iter().enumerate() {
        let mine = asked == own;
        if !mine && scope == Scope::Some && at != n % MODELS.len() {
            continue;
        }
        let ways: &[_] = match (mine, scope) {
            (true, Scope::All) => &[(true, false), (false, false), (true, true)],
            (true, Scope::Some) => &[[(true, false), (true, true), (false, false)][n % 3]],
            _ => &[(!n.is_multiple_of(4), false)],
        };
        for (tools, last) in ways.iter().copied() {
            let request = build(state, &plan(asked, n, tools, last));
            assert_paired(&request);
            for (d, dialect) in dialects(asked).into_iter().enumerate() {
                if scope == Scope::Some && d > 0 && d % 7 != n % 7 {
                    continue;
                }
                let body = body(asked, &request, dialect);
                check(asked, dialect, &body).map_err(TestCaseError::fail)?;
                assert_no_foreign(events, asked, &body).map_err(TestCaseError::fail)?;
                for native in returning(asked, &request, &body) {
                    prop_assert!(
                        body.contains(native),
                        "{asked:?}: {native} is not in {body}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Does `request` begin with the bytes of what `asked` was asked before? In the common dialect, and in one of
/// six others.
fn assert_continued(
    earlier: &[(Asked, Earlier)],
    state: &SessionState,
    asked: &Asked,
    n: usize,
) -> Result<Request, TestCaseError> {
    let request = build(state, &plan(asked, 0, true, false));
    let Some((_, before)) = earlier.iter().find(|(model, _)| model == asked) else {
        return Ok(request);
    };
    for (d, dialect) in dialects(asked).into_iter().enumerate() {
        if d > 0 && d % 6 != n % 6 {
            continue;
        }
        before
            .is_continued_by(&request, state, (asked, dialect))
            .map_err(TestCaseError::fail)?;
    }
    Ok(request)
}

fn add(state: &mut SessionState, seq: u64, body: EventBody) -> Event {
    let event = Event {
        id: EventId::from_bits(u128::from(seq) + 1),
        session: SessionId::from_bits(1),
        seq,
        epoch: Some(2),
        created_ms: 0,
        body,
    };
    state.apply(&event);
    event
}

/// A log that ends at `n` as a crash leaves it, settled as recovery would.
fn settled(log: &RandomLog, n: usize) -> (Vec<Event>, SessionState) {
    let mut events = log.events[..n].to_vec();
    let mut state = log.prefix(n);
    for body in settle(&state.turn, &Cause::Crashed) {
        let event = add(&mut state, events.len() as u64, body);
        events.push(event);
    }
    assert!(state.turn.at_boundary());
    (events, state)
}

/// A child whose prefix ends at `n`, wherever that is, and its first prompt.
fn forked(log: &RandomLog, n: usize) -> (Vec<Event>, SessionState) {
    let mut events = log.events[..n].to_vec();
    let mut state = log.prefix(n);
    let input = MessageId::from_bits(u128::MAX);
    let bodies: [EventBody; 3] = [
        SessionForked {
            parent: SessionId::from_bits(7),
            through: n as u64 - 1,
        }
        .into(),
        InputAdmitted {
            input: input.clone(),
            kind: InputKind::user("the child's"),
            delivery: Delivery::Steer,
        }
        .into(),
        InputPromoted { input }.into(),
    ];
    for body in bodies {
        let event = add(&mut state, events.len() as u64, body);
        events.push(event);
    }
    (events, state)
}

/// Choices for a session of some hundred events.
fn tapes() -> impl Strategy<Value = Tape> {
    prop::collection::vec(any::<u16>(), census::CHOICES).prop_map(Tape::new)
}

fn cases(n: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(n),
        failure_persistence: None,
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn every_request_is_one_its_vendor_accepts(
        tape in tapes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 6),
    ) {
        let log = RandomLog::play(tape);
        let mut state = SessionState::default();
        let mut folded = 0;
        for (n, (at, asked)) in log.requests.iter().enumerate() {
            log.events[folded..*at].iter().for_each(|event| state.apply(event));
            folded = *at;
            assert_sendable(&log.events[..*at], &state, asked, n, Scope::Some)?;
        }
        // Nothing is asked before there are words.
        let first = log.requests.first().map_or(log.events.len(), |first| first.0);
        for (k, cut) in cuts.iter().enumerate() {
            let n = first + cut.index(log.events.len() - first + 1);
            let scope = if k == 0 { Scope::All } else { Scope::Some };
            let (events, state) = settled(&log, n);
            assert_sendable(&events, &state, &log.asked, n, scope)?;
            let (events, state) = forked(&log, n);
            assert_sendable(&events, &state, &log.asked, n + k, Scope::Some)?;
        }
    }

    #[test]
    fn a_request_begins_with_the_bytes_of_the_one_before(
        tape in tapes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        let log = RandomLog::play(tape);
        let mut state = SessionState::default();
        let mut folded = 0;
        // The last request to each model: others may be asked in between.
        let mut earlier: Vec<(Asked, Earlier)> = Vec::new();
        for (n, (at, asked)) in log.requests.iter().copied().enumerate() {
            log.events[folded..at].iter().for_each(|event| state.apply(event));
            folded = at;
            let request = assert_continued(&earlier, &state, &asked, n)?;
            earlier.retain(|(model, _)| *model != asked);
            earlier.push((asked, Earlier::new(at, request, &state)));
        }
        // A crash or a fork anywhere behind the last request ends nothing of it.
        let last = earlier.iter().map(|(_, earlier)| earlier.at).max().unwrap_or(log.events.len());
        for (n, cut) in cuts.iter().enumerate() {
            let at = last + cut.index(log.events.len() - last + 1);
            for (_, state) in [settled(&log, at), forked(&log, at)] {
                assert_continued(&earlier, &state, &log.asked, n)?;
            }
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
