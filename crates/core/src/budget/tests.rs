//! Tests of budgets: what counts, what is refused, and that nothing unknown is free.

use super::*;
use crate::error::ErrorClass;
use crate::event::Event;
use crate::event::body::*;
use crate::id::{CompactionId, EventId, MessageId, SessionId};
use crate::price::{Rate, Rates};
use crate::provider::Finish;
use crate::session::SessionState;
use proptest::prelude::*;

fn model(name: &str) -> ModelRef {
    ModelRef {
        provider: "p".to_owned(),
        model: name.to_owned(),
    }
}

fn message() -> MessageId {
    MessageId::parse("msg_1").unwrap()
}

/// One dollar a million tokens in, ten out.
fn price() -> Price {
    Price::flat(Rates {
        input: Rate::from_pico(1_000_000),
        output: Rate::from_pico(10_000_000),
        ..Rates::default()
    })
}

fn known(_: &ModelRef) -> Option<Price> {
    Some(price())
}

fn unknown(_: &ModelRef) -> Option<Price> {
    None
}

fn started(name: &str, at_most: Option<AtMost>) -> EventBody {
    AttemptStarted {
        message: message(),
        attempt: 1,
        model: model(name),
        request_hash: String::new(),
        at_most,
    }
    .into()
}

fn ended(usage: Option<Usage>, cost: Option<u64>) -> EventBody {
    AttemptEnded {
        message: message(),
        attempt: 1,
        finish: Finish::Stop,
        raw_finish: None,
        usage,
        cost,
        error: None,
    }
    .into()
}

fn most(cost: Option<u64>) -> Option<AtMost> {
    Some(AtMost {
        prompt: 1_000,
        output: 100,
        cost,
    })
}

fn fold(bodies: Vec<EventBody>) -> SessionState {
    let events: Vec<Event> = bodies
        .into_iter()
        .enumerate()
        .map(|(seq, body)| Event {
            id: EventId::from_bits(seq as u128 + 1),
            session: SessionId::from_bits(1),
            seq: seq as u64,
            epoch: Some(1),
            created_ms: 0,
            body,
        })
        .collect();
    SessionState::fold(&events)
}

fn check(
    state: &SessionState,
    limits: &Limits,
    price: impl Fn(&ModelRef) -> Option<Price>,
) -> Result<(), OverBudget> {
    state
        .ledger
        .check(limits, &state.totals, &model("m"), price)
}

fn cost(limit: u64) -> Limits {
    Limits {
        max_cost: Some(limit),
        ..Limits::default()
    }
}

fn tokens(limit: u64) -> Limits {
    Limits {
        max_tokens: Some(limit),
        ..Limits::default()
    }
}

fn used(input: u64, output: u64) -> Option<Usage> {
    Some(Usage::from_net(input, 0, 0, output, 0))
}

#[test]
fn no_limit_asks_for_nothing() {
    let state = fold(vec![started("m", None), ended(None, None)]);
    assert_eq!(check(&state, &Limits::default(), unknown), Ok(()));
}

#[test]
fn a_limit_holds_from_the_request_that_reaches_it() {
    let state = fold(vec![started("m", None), ended(used(600, 40), Some(1_000))]);
    assert_eq!(check(&state, &cost(1_001), known), Ok(()));
    let over = check(&state, &cost(1_000), known).unwrap_err();
    assert_eq!(
        SessionError::from(&over),
        SessionError::new(
            "budget",
            "The limit on cost is reached: $0.001 of $0.001 are spent. Allow more with --max-cost; then another \
             prompt goes on."
        )
    );
    assert_eq!(check(&state, &tokens(641), unknown), Ok(()));
    assert!(matches!(
        check(&state, &tokens(640), unknown),
        Err(OverBudget::Tokens { used: 640, .. })
    ));
}

#[test]
fn cached_tokens_count_as_tokens() {
    let usage = Usage::from_net(1, 10, 100, 1_000, 500);
    let state = fold(vec![started("m", None), ended(Some(usage), Some(1))]);
    assert_eq!(check(&state, &tokens(1_112), known), Ok(()));
    assert!(check(&state, &tokens(1_111), known).is_err());
}

#[test]
fn a_limit_on_cost_wants_a_known_price_before_the_first_request() {
    let state = fold(vec![]);
    assert_eq!(
        check(&state, &cost(5), unknown),
        Err(OverBudget::NoPrice { model: model("m") })
    );
    assert_eq!(check(&state, &cost(5), known), Ok(()));
}

#[test]
fn a_request_whose_end_was_lost_counts_as_the_most_it_can_have_taken() {
    let state = fold(vec![started("m", most(Some(2_000))), ended(None, None)]);
    assert_eq!(check(&state, &cost(2_001), known), Ok(()));
    assert_eq!(
        check(&state, &cost(2_000), known),
        Err(OverBudget::Cost {
            spent: 0,
            unknown: 2_000,
            requests: 1,
            limit: 2_000
        })
    );
    assert_eq!(check(&state, &tokens(1_101), known), Ok(()));
    assert!(check(&state, &tokens(1_100), known).is_err());
}

#[test]
fn what_had_no_price_is_priced_when_there_is_one_and_refused_before() {
    for lost in [false, true] {
        let end = if lost {
            ended(None, None)
        } else {
            ended(used(1_000, 100), None)
        };
        let state = fold(vec![started("other", most(None)), end]);
        assert_eq!(
            check(&state, &cost(10_000), |m| (m == &model("m")).then(price)),
            Err(OverBudget::NoPrice {
                model: model("other")
            }),
            "{lost}"
        );
        assert_eq!(check(&state, &cost(2_001), known), Ok(()), "{lost}");
        assert!(check(&state, &cost(2_000), known).is_err(), "{lost}");
    }
}

fn cut(usage: Option<Usage>) -> EventBody {
    let EventBody::AttemptEnded(mut end) = ended(usage, None) else {
        unreachable!("made as one")
    };
    end.finish = Finish::Error;
    end.into()
}

#[test]
fn what_a_cut_answer_reported_is_a_lower_bound() {
    // 1,000 and 100 at most; 900 and a placeholder of 1 were said.
    let state = fold(vec![started("m", most(Some(2_000))), cut(used(900, 1))]);
    assert_eq!(state.totals.usage.total(), 901);
    assert!(state.totals.incomplete);
    assert_eq!(check(&state, &cost(2_001), unknown_of_others), Ok(()));
    assert!(check(&state, &cost(2_000), known).is_err());
    assert_eq!(check(&state, &tokens(1_101), known), Ok(()));
    assert!(check(&state, &tokens(1_100), known).is_err());
}

fn unknown_of_others(of: &ModelRef) -> Option<Price> {
    (of == &model("m")).then(price)
}

#[test]
fn a_cut_answer_that_took_more_than_was_thought_counts_as_what_it_took() {
    let state = fold(vec![started("m", most(Some(2_000))), cut(used(5_000, 10))]);
    // 5,000 in and 100 out.
    assert_eq!(check(&state, &cost(6_001), known), Ok(()));
    assert!(check(&state, &cost(6_000), known).is_err());
    assert_eq!(check(&state, &tokens(5_101), known), Ok(()));
    assert!(check(&state, &tokens(5_100), known).is_err());
    let boundless = fold(vec![started("m", None), cut(used(5, 1))]);
    assert_eq!(
        check(&boundless, &tokens(1_000), known),
        Err(OverBudget::NoUsage { requests: 1 })
    );
}

#[test]
fn fees_of_a_providers_own_tools_are_not_taken_as_nothing() {
    let search = ToolCalled {
        message: message(),
        part: 0,
        attempt: 1,
        call: crate::id::CallId::new("srv"),
        name: "web_search".to_owned(),
        input: "{}".to_owned(),
        executed: true,
        native: None,
    };
    let state = fold(vec![
        started("m", most(Some(2_000))),
        search.into(),
        ended(used(10, 5), None),
    ]);
    assert_eq!(
        check(&state, &cost(1_000_000), known),
        Err(OverBudget::NoCost { requests: 1 })
    );
    assert_eq!(check(&state, &tokens(16), known), Ok(()));
    let json = serde_json::to_string(&state.ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), state.ledger);
}

#[test]
fn what_nobody_can_know_any_more_is_never_taken_as_nothing() {
    let state = fold(vec![started("m", None), ended(None, None)]);
    assert_eq!(
        check(&state, &cost(u64::MAX), known),
        Err(OverBudget::NoCost { requests: 1 })
    );
    assert_eq!(
        check(&state, &tokens(u64::MAX), known),
        Err(OverBudget::NoUsage { requests: 1 })
    );
}

#[test]
fn a_compaction_counts_as_a_request() {
    let compaction = CompactionId::from_bits(1);
    let state = fold(vec![
        CompactionStarted {
            compaction: compaction.clone(),
            reason: CompactionReason::Manual,
            input: None,
            model: model("m"),
            request_hash: String::new(),
            at_most: most(Some(700)),
        }
        .into(),
        CompactionFailed {
            compaction,
            error: SessionError::new("cut", "cut"),
            usage: None,
            cost: None,
        }
        .into(),
    ]);
    assert_eq!(check(&state, &cost(701), known), Ok(()));
    assert!(check(&state, &cost(700), known).is_err());
}

#[test]
fn a_refused_request_costs_nothing_and_a_broken_one_is_unknown() {
    let error = |class| ProviderError::new(class, "x");
    assert!(refused(&error(ErrorClass::RateLimit)).is_some());
    assert!(refused(&error(ErrorClass::Unsent)).is_some());
    assert!(refused(&error(ErrorClass::Transport)).is_none());
    assert!(refused(&error(ErrorClass::Cut)).is_none());
    let gateway = |status| ProviderError {
        status: Some(status),
        ..error(ErrorClass::Server)
    };
    assert!(refused(&gateway(500)).is_some());
    assert!(refused(&gateway(504)).is_none());
}

#[test]
fn words_say_what_was_reached_and_what_to_do() {
    let words = OverBudget::Cost {
        spent: 1_000_000,
        unknown: 250_000,
        requests: 1,
        limit: 1_200_000,
    };
    let words = words.to_string();
    assert!(words.contains(
        "$1.00 of $1.20 are spent, and up to $0.25 more by one request whose end was lost"
    ));
    let wall = OverBudget::Wall { limit_ms: 900_000 }.to_string();
    assert!(wall.contains("lasted 15 min") && wall.contains("--max-time"));
}

proptest! {
    /// The sum over a session is the sum of its requests, and what is unknown never lowers what a budget counts.
    #[test]
    fn sums_are_the_sums_of_their_parts(
        requests in proptest::collection::vec((0u64..10_000, 0u64..10_000, 0u8..4), 0..40),
        limit in 1u64..400_000,
    ) {
        let mut bodies = Vec::new();
        let (mut exact, mut worst, mut incomplete) = (0, 0, false);
        for (input, output, how) in requests {
            let usage = Usage::from_net(input, 0, 0, output, 0);
            let cost = price().micro_dollars(&usage).unwrap();
            let bound = price().at_most(input, output);
            prop_assert!(bound >= cost);
            let at_most = AtMost { prompt: input, output, cost: (how != 3).then_some(bound) };
            bodies.push(started("m", Some(at_most)));
            bodies.push(match how {
                0 => ended(Some(usage), Some(cost)),
                1 => ended(Some(usage), None),
                _ => ended(None, None),
            });
            if how == 0 {
                exact += cost;
            } else {
                incomplete = true;
            }
            worst += bound;
        }
        let state = fold(bodies);
        prop_assert_eq!(state.totals.cost, exact);
        prop_assert_eq!(state.totals.incomplete, incomplete);
        let allowed = check(&state, &cost(limit), known).is_ok();
        // Refused at the exact sum at the latest; allowed whenever even the worst is below the limit.
        prop_assert!(!(allowed && exact >= limit));
        prop_assert!(allowed || worst >= limit);
        // A checkpoint loses none of it.
        let json = serde_json::to_string(&state.ledger).unwrap();
        prop_assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), state.ledger);
    }
}
