//! Whatever a provider sends, the publisher stays whole: properties over random streams.

use crate::journal::*;
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use tenure_core::EventBody;
use tenure_core::provider::{Finish, ProviderEvent};
use tenure_core::session::SessionState;
use tenure_core::turn::publisher::{Output, has_open_fragment};
use tenure_core::turn::settle::Cause;
use tenure_core::turn::{CallStatus, short_hash};

fn events() -> impl Strategy<Value = Vec<ProviderEvent>> {
    prop::collection::vec(event(), 0..40)
}

/// Few ids and names, so that events meet.
fn event() -> impl Strategy<Value = ProviderEvent> {
    let id = || prop::sample::select(vec!["a", "b", "a_a1", "a_a2", "a\0"]);
    let name = || prop::sample::select(vec!["bash", "bash", "read", "re\0ad"]);
    let words = || {
        prop::sample::select(vec![
            "",
            " ",
            "x",
            "é\u{1f600}",
            "{}",
            "{\"a\":1}",
            "{\"a",
            "\0",
        ])
    };
    let native = || {
        prop::option::of(prop::sample::select(vec![
            "{\"n\": 1}",
            "{}",
            "{\"n\": \"\0\"}",
        ]))
    };
    let long = any::<bool>();
    prop_oneof![
        id().prop_map(|id| ProviderEvent::TextStart { id: id.into() }),
        id().prop_map(|id| ProviderEvent::ReasoningStart { id: id.into() }),
        (id(), words(), long).prop_map(|(id, text, long)| ProviderEvent::TextDelta {
            id: id.into(),
            text: text.repeat(if long { 900 } else { 1 }),
        }),
        (id(), words()).prop_map(|(id, text)| ProviderEvent::ReasoningDelta {
            id: id.into(),
            text: text.into(),
        }),
        (id(), native()).prop_map(|(id, native)| ProviderEvent::TextEnd {
            id: id.into(),
            native: native.map(Into::into),
        }),
        (id(), native()).prop_map(|(id, native)| ProviderEvent::ReasoningEnd {
            id: id.into(),
            native: native.map(Into::into),
        }),
        (id(), name()).prop_map(|(id, name)| input_start(id, name)),
        (id(), prop::option::of(name()), words()).prop_map(|(id, n, t)| input_delta(id, n, t)),
        (id(), prop::option::of(name())).prop_map(|(id, n)| input_end(id, n)),
        (id(), name(), words(), any::<bool>(), native()).prop_map(
            |(id, name, input, executed, native)| ProviderEvent::ToolCall {
                id: id.into(),
                name: name.into(),
                input: input.into(),
                executed,
                native: native.map(Into::into),
            }
        ),
        (id(), words(), any::<bool>(), native()).prop_map(|(id, text, is_error, native)| {
            ProviderEvent::ToolResult {
                id: id.into(),
                text: text.into(),
                is_error,
                native: native.map(Into::into),
            }
        }),
        Just(ProviderEvent::Opaque {
            native: "{\"type\":\"x\"}".into()
        }),
        Just(ProviderEvent::Usage(usage(3, 1))),
        Just(ProviderEvent::Error(cut_error())),
        Just(finish(Finish::Stop)),
    ]
}

/// One attempt, split into batches, with checkpoints in between where asked.
fn play(journal: &mut Journal, stream: Vec<ProviderEvent>, batch: usize, superseded: bool) {
    let mut publisher = journal.publisher();
    let mut failed = None;
    let mut end = None;
    for part in stream.chunks(batch) {
        let mut out = Output::default();
        let verdict = publisher.on(part.to_vec(), &mut out);
        if batch.is_multiple_of(2) {
            publisher.checkpoint(&mut out);
        }
        journal.all(out.durable);
        end = out.end;
        failed = verdict.err();
        if failed.is_some() || end.is_some() {
            break;
        }
    }
    use tenure_core::turn::publisher::StreamEnd;
    let end = match (failed, end) {
        (None, Some(end)) => end,
        _ => StreamEnd::Failed(cut_error()),
    };
    let superseded = superseded && !journal.step().attempt_called(journal.step().attempts);
    let closing = publisher.close(&end, superseded, |_| None);
    journal.all(closing);
}

fn check_log(journal: &Journal) {
    let mut parts = 0;
    let mut text: HashMap<u32, String> = HashMap::new();
    let mut settled: HashMap<String, u32> = HashMap::new();
    let mut called: HashMap<String, u32> = HashMap::new();
    for event in &journal.events {
        let stored = event.body.encode();
        assert!(
            !stored.contains("\\u0000"),
            "no store takes a NUL: {stored}"
        );
        let part = match &event.body {
            EventBody::FragmentStarted(e) => Some(e.part),
            EventBody::ToolInputStarted(e) => Some(e.part),
            EventBody::BlockRecorded(e) => Some(e.part),
            EventBody::ToolCalled(e) => {
                *called.entry(e.call.as_str().to_owned()).or_insert(0) += 1;
                (e.part >= parts).then_some(e.part)
            }
            EventBody::ToolSucceeded(e) => {
                *settled.entry(e.call.as_str().to_owned()).or_insert(0) += 1;
                None
            }
            EventBody::ToolFailed(e) => {
                *settled.entry(e.call.as_str().to_owned()).or_insert(0) += 1;
                None
            }
            EventBody::FragmentChunk(e) => {
                text.entry(e.part).or_default().push_str(&e.text);
                None
            }
            EventBody::FragmentEnded(e) => {
                let whole = text.remove(&e.part).unwrap_or_default();
                assert_eq!(e.bytes, whole.len() as u64);
                assert_eq!(e.hash, short_hash(Sha256::new_with_prefix(&whole)));
                None
            }
            _ => None,
        };
        if let Some(part) = part {
            assert_eq!(part, parts, "ordinals are dense");
            parts += 1;
        }
    }
    assert!(text.is_empty(), "chunks without an end");
    assert!(called.values().all(|n| *n == 1), "{called:?}");
    assert!(settled.values().all(|n| *n == 1), "{settled:?}");
}

proptest! {
    #![proptest_config(crate::cases(512))]

    #[test]
    fn any_stream_leaves_a_whole_log(
        first in events(),
        second in events(),
        batch in 1usize..8,
        supersede in any::<bool>(),
    ) {
        let mut journal = Journal::new();
        journal.user("u", "go").begin("a");
        play(&mut journal, first, batch, supersede);
        prop_assert!(!has_open_fragment(journal.step()));
        prop_assert!(journal.step().attempt.is_none());
        if !journal.step().attempt_called(1) {
            journal.retry(2);
            play(&mut journal, second, batch, supersede);
        }
        for call in journal.step().calls() {
            let open = matches!(call.status, CallStatus::Called { .. }) && !call.executed;
            prop_assert!(open || call.status == CallStatus::Settled, "{call:?}");
        }
        // A crash anywhere is settled by the same code.
        for n in (0..=journal.events.len()).rev().step_by(3) {
            let mut crashed = journal.prefix(n);
            crashed.settle(&Cause::Crashed);
            prop_assert!(crashed.state.turn.at_boundary());
            check_log(&crashed);
        }
        // The fold: a prefix and the rest give the whole, and nothing is applied twice.
        let middle = journal.events.len() / 2;
        let mut halves = SessionState::fold(&journal.events[..middle]);
        journal.events.iter().for_each(|e| halves.apply(e));
        prop_assert_eq!(&halves.entries, &journal.state.entries);
        prop_assert_eq!(halves.turn.pending(), journal.state.turn.pending());
        prop_assert_eq!(halves.totals, journal.state.totals);
    }
}
