//! Checkpoints say what the fold of the log says, or nothing.

use crate::history::compacted;
use crate::journal::*;
use proptest::prelude::*;
use tenure_core::event::body::*;
use tenure_core::provider::Finish;
use tenure_core::session::FOLD_VERSION;
use tenure_core::session::SessionState;
use tenure_core::session::checkpoint::{open, seal};

/// A log with everything a segment may hold, notes and a compaction among it.
fn log() -> Journal {
    let mut journal = Journal::new();
    for n in 0..12 {
        journal.user(&format!("u{n}"), "go");
        let stream = [
            reasoning("r", "hm", Some("{\"s\" :1}")),
            text("t", "é"),
            call("c", "bash", "{}"),
            vec![complete("h", "search", "{}", true), result("h", "x")],
            vec![tenure_core::provider::ProviderEvent::Opaque {
                native: "{\"o\":1}".to_owned(),
            }],
            vec![finish(Finish::ToolCalls)],
        ];
        journal.whole(&format!("a{n}"), stream.concat());
        if n % 4 == 3 {
            let from = journal.state.entries[journal.state.entries.len() - 3].seq();
            journal.add(compacted(from));
        }
        if n % 3 == 0 {
            journal.interrupted();
            journal.add(ExecutionStarted {
                execution: tenure_core::ExecutionId::from_bits(n + 2),
            });
        }
        journal.add(InputAdmitted {
            input: msg(&format!("w{n}")),
            kind: InputKind::Compaction,
            delivery: Delivery::Queue,
        });
    }
    journal
}

fn same(left: &SessionState, right: &SessionState) {
    assert_eq!(left.entries, right.entries);
    assert_eq!(
        serde_json::to_value(left).unwrap(),
        serde_json::to_value(right).unwrap()
    );
    assert_eq!(left.turn.cursor, right.turn.cursor);
    assert_eq!(left.turn.execution, right.turn.execution);
    assert_eq!(left.turn.pending(), right.turn.pending());
    assert_eq!(left.turn.at_boundary(), right.turn.at_boundary());
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn segments_and_the_tail_are_the_whole(
        mut places in prop::collection::vec(0usize..230, 1..8),
        overlap in 0usize..4,
    ) {
        let journal = log();
        places.sort_unstable();
        let mut state = SessionState::default();
        let mut segments: Vec<Vec<u8>> = Vec::new();
        let mut sealed_seq = None;
        let mut cursor = 0;
        for (n, event) in journal.events.iter().enumerate() {
            state.apply(event);
            if !places.contains(&n) {
                continue;
            }
            // The first entry no earlier segment holds, or a few before it.
            let new = state.entries.iter().position(|e| sealed_seq.is_none_or(|s| e.seq() > s));
            let from = new.unwrap_or(state.entries.len()).saturating_sub(overlap);
            if let Some(segment) = seal(&state, from) {
                segments.push(segment);
                sealed_seq = state.entries.last().map(|e| e.seq()).or(sealed_seq);
                cursor = n + 1;
            } else {
                prop_assert!(!state.turn.at_boundary());
            }
        }
        let opened = open(segments.iter().map(Vec::as_slice));
        prop_assert_eq!(opened.is_some(), !segments.is_empty());
        let mut opened = opened.unwrap_or_default();
        same(&opened, &SessionState::fold(&journal.events[..cursor]));
        journal.events.iter().for_each(|e| opened.apply(e));
        same(&opened, &journal.state);
    }
}

#[test]
fn nothing_is_sealed_inside_a_step_or_beyond_the_end() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    assert!(seal(&journal.state, 0).is_some());
    assert!(seal(&journal.state, 2).is_none());
    journal.begin("a");
    assert!(seal(&journal.state, 0).is_none());
}

#[test]
fn what_is_damaged_missing_or_of_another_version_opens_nothing() {
    let mut journal = Journal::new();
    journal.user("u", "go");
    let first = seal(&journal.state, 0).unwrap();
    journal.user("u2", "more");
    let second = seal(&journal.state, 1).unwrap();
    let all = [first.as_slice(), second.as_slice()];
    assert_eq!(open(all).unwrap().entries.len(), 2);
    assert!(
        open([second.as_slice()]).is_none(),
        "the first segment is missing"
    );
    assert!(open([]).is_none());
    assert!(open([&first[..first.len() - 1]]).is_none());
    let other = String::from_utf8(first)
        .unwrap()
        .replace(&format!("\"fold\":{FOLD_VERSION}"), "\"fold\":0");
    assert!(other.contains("\"fold\":0"));
    assert!(open([other.as_bytes()]).is_none());
}
