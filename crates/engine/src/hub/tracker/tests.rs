//! Live text against the log: once, contiguous, and confirmed or taken back.

use super::*;
use proptest::prelude::*;
use tenure_core::error::SessionError;
use tenure_core::event::body::*;
use tenure_core::id::{EventId, SessionId};
use tenure_core::model::ModelRef;
use tenure_core::usage::Usage;

fn message(n: u128) -> MessageId {
    MessageId::from_bits(n)
}

fn event(seq: u64, epoch: u64, body: impl Into<EventBody>) -> Event {
    Event {
        session: SessionId::from_bits(1),
        seq,
        id: EventId::from_bits(u128::from(seq)),
        created_ms: 0,
        epoch: Some(epoch),
        body: body.into(),
    }
}

fn attempt(n: u32) -> AttemptStarted {
    AttemptStarted {
        message: message(1),
        attempt: n,
        model: ModelRef {
            provider: "p".into(),
            model: "m".into(),
        },
        request_hash: String::new(),
        at_most: None,
    }
}

fn started(part: u32, attempt: u32) -> FragmentStarted {
    FragmentStarted {
        message: message(1),
        part,
        attempt,
        kind: FragmentKind::Text,
    }
}

fn chunk(part: u32, text: &str) -> FragmentChunk {
    FragmentChunk {
        message: message(1),
        part,
        text: text.into(),
    }
}

fn ended(part: u32, bytes: u64) -> FragmentEnded {
    FragmentEnded {
        message: message(1),
        part,
        bytes,
        hash: String::new(),
        native: None,
        partial: true,
        superseded: false,
    }
}

fn failed() -> StepFailed {
    StepFailed {
        message: message(1),
        error: SessionError::new("crashed", "it was lost"),
        usage: Usage::default(),
        cost: None,
    }
}

fn recovery() -> RecoveryStarted {
    RecoveryStarted {
        execution: None,
        phase: Phase::Active,
        attempts: 1,
        decision: RecoveryDecision::Continue,
    }
}

fn delta(attempt: u32, offset: u64, text: &str) -> LiveItem {
    LiveItem::Delta {
        message: message(1),
        attempt,
        part: 0,
        kind: FragmentKind::Text,
        offset,
        text: text.into(),
    }
}

fn superseded(from: u64) -> LiveItem {
    LiveItem::Superseded {
        message: message(1),
        attempt: 1,
        part: 0,
        from,
    }
}

/// A tracker behind the start of attempt 1 and of part 0, both under epoch 1.
fn begun() -> LiveTracker {
    let mut tracker = LiveTracker::new();
    assert!(tracker.event(&event(1, 1, attempt(1))).is_empty());
    assert!(tracker.event(&event(2, 1, started(0, 1))).is_empty());
    tracker
}

#[test]
fn text_is_shown_once_whatever_the_network_does_to_it() {
    let mut tracker = begun();
    assert_eq!(tracker.live(delta(1, 0, "one ")), Some(delta(1, 0, "one ")));
    assert_eq!(tracker.live(delta(1, 0, "one ")), None, "twice");
    assert_eq!(tracker.live(delta(1, 8, "late")), None, "a gap");
    let joined = tracker.live(delta(1, 2, "e two "));
    assert_eq!(joined, Some(delta(1, 4, "two ")), "half of it is known");
    // The log fills the gap, and live text joins on behind it.
    assert!(
        tracker
            .event(&event(3, 1, chunk(0, "one two three ")))
            .is_empty()
    );
    assert_eq!(tracker.live(delta(1, 8, "three ")), None);
    assert_eq!(
        tracker.live(delta(1, 14, "four")),
        Some(delta(1, 14, "four"))
    );
    assert!(
        tracker.event(&event(4, 1, ended(0, 18))).is_empty(),
        "confirmed"
    );
    assert_eq!(tracker.live(delta(1, 18, "more")), None, "it has ended");
}

#[test]
fn what_the_end_does_not_confirm_is_superseded_from_there() {
    let mut tracker = begun();
    tracker.live(delta(1, 0, "seen live"));
    let markers = tracker.event(&event(3, 1, ended(0, 4)));
    assert_eq!(markers, [superseded(4)]);
    assert!(
        tracker.event(&event(4, 1, failed())).is_empty(),
        "said once"
    );
}

#[test]
fn a_new_owner_supersedes_what_the_old_one_did_not_make_durable() {
    let mut tracker = begun();
    tracker.event(&event(3, 1, chunk(0, "durable ")));
    tracker.live(delta(1, 8, "and shown"));
    let recovery = event(4, 2, ended(0, 8));
    assert_eq!(tracker.event(&recovery), [superseded(8)]);
    // What the deposed owner still sends is not shown.
    assert_eq!(tracker.live(delta(1, 8, "from the grave")), None);
    assert!(tracker.event(&event(5, 2, failed())).is_empty());
    assert_eq!(tracker.live(delta(1, 0, "from the grave")), None);
}

#[test]
fn the_owner_may_change_before_the_log_has_anything_of_what_was_shown() {
    let mut tracker = LiveTracker::new();
    tracker.event(&event(1, 1, attempt(1)));
    assert!(tracker.live(delta(1, 0, "ahead")).is_some());
    assert_eq!(tracker.event(&event(2, 2, recovery())), [superseded(0)]);
    assert!(tracker.event(&event(3, 2, failed())).is_empty());
    assert_eq!(tracker.live(delta(1, 5, "late")), None);
}

/// It came with a cursor: live text was there before any event.
#[test]
fn a_reader_that_saw_no_event_of_the_lost_owner_is_told_by_the_recovery() {
    let mut tracker = LiveTracker::new();
    assert!(tracker.live(delta(1, 0, "and lost")).is_some());
    assert_eq!(tracker.event(&event(9, 2, recovery())), [superseded(0)]);
    assert!(tracker.event(&event(10, 2, ended(0, 0))).is_empty());
}

#[test]
fn a_retry_supersedes_the_attempt_before_it() {
    let mut tracker = begun();
    tracker.live(delta(1, 0, "first try"));
    assert_eq!(tracker.event(&event(3, 1, attempt(2))), [superseded(0)]);
    assert_eq!(tracker.live(delta(1, 9, "late")), None);
    let again = LiveItem::Delta {
        message: message(1),
        attempt: 2,
        part: 1,
        kind: FragmentKind::Text,
        offset: 0,
        text: "second".into(),
    };
    assert_eq!(tracker.live(again.clone()), Some(again));
}

#[test]
fn a_reader_from_the_middle_is_told_at_the_end_of_the_part() {
    let mut tracker = LiveTracker::new();
    tracker.event(&event(7, 1, chunk(0, "unseen start")));
    assert_eq!(
        tracker.live(delta(1, 40, "from the middle")),
        Some(delta(1, 40, "from the middle"))
    );
    // Where the log ends is not known here yet: the marker waits for the part's end.
    assert!(tracker.event(&event(8, 2, recovery())).is_empty());
    assert_eq!(tracker.event(&event(9, 2, ended(0, 44))), [superseded(44)]);
}

/// The new owner's node is faster than the log: nothing of it is shown before what the lost one showed is taken back.
#[test]
fn text_of_an_owner_that_the_log_has_not_told_of_is_held() {
    let mut tracker = begun();
    assert!(tracker.live(delta(1, 0, "and lost")).is_some());
    let next = |offset, text: &str| LiveItem::Delta {
        message: message(2),
        attempt: 1,
        part: 0,
        kind: FragmentKind::Text,
        offset,
        text: text.into(),
    };
    assert_eq!(tracker.live(next(0, "again")), None);
    assert_eq!(tracker.live(next(5, ", live")), None);
    // The old one is still the one that is shown.
    assert!(tracker.live(delta(1, 8, " more")).is_some());
    assert_eq!(tracker.event(&event(3, 2, recovery())), [superseded(0)]);
    assert_eq!(tracker.released(), None);
    assert!(tracker.event(&event(4, 2, failed())).is_empty());
    assert_eq!(tracker.released(), None);
    let begins = AttemptStarted {
        message: message(2),
        ..attempt(1)
    };
    assert!(tracker.event(&event(5, 2, begins)).is_empty());
    assert_eq!(tracker.released(), Some(next(0, "again")));
    assert_eq!(tracker.released(), Some(next(5, ", live")));
    assert_eq!(tracker.released(), None);
    assert_eq!(tracker.live(next(11, ".")), Some(next(11, ".")));
}

#[test]
fn what_is_held_is_bounded_and_what_is_over_is_let_go() {
    let mut tracker = begun();
    for n in 0..10 * HELD as u64 {
        let of = |message| LiveItem::Delta {
            message,
            attempt: 1,
            part: 0,
            kind: FragmentKind::Text,
            offset: n,
            text: "x".into(),
        };
        assert_eq!(tracker.live(of(message(2))), None);
    }
    assert_eq!(tracker.held.len(), HELD);
    let mut end = failed();
    end.message = message(2);
    tracker.event(&event(3, 1, end));
    assert_eq!(tracker.released(), None);
    assert_eq!(tracker.held.len(), 0);
}

#[test]
fn the_memory_of_attempts_that_are_over_is_bounded() {
    let mut tracker = LiveTracker::new();
    for n in 0..10_000 {
        let mut end = failed();
        end.message = message(n);
        tracker.event(&event(n as u64, 1, end));
    }
    assert!(tracker.floors.len() <= REMEMBERED && tracker.parts.is_empty());
}

/// What a client holds that draws what it is shown and nothing else.
#[derive(Default)]
struct Screen {
    live: Vec<u8>,
    confirmed: usize,
}

proptest! {
    /// Items in any order, repeated and dropped, between the events of a log that ends anywhere: at the end
    /// everything shown is confirmed or was taken back, and what is confirmed is the text.
    #[test]
    fn shown_text_is_confirmed_or_taken_back(
        text in "[a-z é]{1,40}",
        cuts in proptest::collection::vec((0usize..40, 1usize..12, 0usize..8), 0..24),
        durable in 0usize..40,
        owner_changes in any::<bool>(),
    ) {
        let at = |n: usize| (0..=n.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let durable = at(durable);
        let mut tracker = begun();
        let mut screen = Screen::default();
        let live = |tracker: &mut LiveTracker, screen: &mut Screen, from: usize, len: usize| -> Result<(), TestCaseError> {
            let (from, to) = (at(from), at(from + len));
            if from >= to { return Ok(()); }
            if let Some(LiveItem::Delta { offset, text: new, .. }) = tracker.live(delta(1, from as u64, &text[from..to])) {
                let reach = screen.live.len().max(screen.confirmed);
                prop_assert_eq!(offset as usize, reach, "contiguous");
                screen.live.resize(reach, b'?');
                screen.live.extend(new.as_bytes());
            }
            Ok(())
        };
        let half = cuts.len() / 2;
        for (from, len, _) in &cuts[..half] {
            live(&mut tracker, &mut screen, *from, *len)?;
        }
        tracker.event(&event(3, 1, chunk(0, &text[..durable])));
        screen.confirmed = durable;
        for (from, len, _) in &cuts[half..] {
            live(&mut tracker, &mut screen, *from, *len)?;
        }
        let epoch = if owner_changes { 2 } else { 1 };
        let mut markers = tracker.event(&event(4, epoch, ended(0, durable as u64)));
        markers.extend(tracker.event(&event(5, epoch, failed())));
        for marker in &markers {
            let LiveItem::Superseded { from, .. } = marker else { panic!("{marker:?}") };
            screen.live.truncate(*from as usize);
        }
        prop_assert!(screen.live.len() <= durable, "{} shown, {durable} durable", screen.live.len());
        prop_assert!(markers.len() <= 1);
        for (from, len, _) in &cuts {
            let before = screen.live.len();
            live(&mut tracker, &mut screen, *from, *len)?;
            prop_assert_eq!(screen.live.len(), before, "nothing after the end");
        }
    }
}
