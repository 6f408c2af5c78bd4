//! The quiet time after a loss, by what one process has seen on its own clock.

use super::*;
use crate::api::{Fence, Tenure};
use tenure_core::event::body::Phase;
use tenure_core::id::{ClaimId, Incarnation};

const LEASE: i64 = 6_000;

fn node(name: &str, renewal_no: i64) -> Suspect {
    Suspect {
        incarnation: name.to_owned(),
        proven_dead: false,
        lease_ms: LEASE,
        expired: false,
        renewal_no,
    }
}

fn lost(renewal_no: i64) -> LostOwner {
    LostOwner {
        incarnation: "lost".to_owned(),
        renewal_no,
        lease_ms: LEASE,
    }
}

/// What a store says whose clock says that so much is left.
fn taken(quiet_ms: u64, lost: Vec<LostOwner>) -> Acquire {
    Acquire::Acquired(Tenure {
        fence: Fence {
            claim: ClaimId::derived(&["a claim"]),
            epoch: 2,
            owner: Incarnation::from_bits(1),
            write_no: 1,
        },
        phase: Phase::Active,
        taken_from: None,
        attempts: 1,
        charged: true,
        head: 9,
        generation: 0,
        continuation: None,
        handed_over: false,
        quiet_ms,
        lost,
        left: Vec::new(),
    })
}

fn left(seen: &mut Observations, now: i64, taken: Acquire) -> u64 {
    match seen.quiet(now, taken, &Switches::default()) {
        Acquire::Acquired(tenure) => tenure.quiet_ms,
        other => panic!("{other:?}"),
    }
}

/// One that has looked at 0, 500 and 1,000, and saw the second renewal of the other at 500; at 1,200 that one is gone.
fn watched() -> Observations {
    let mut seen = Observations::default();
    let own = node("own", 1);
    for (now, renewal_no) in [(0, 1), (500, 2), (1_000, 2)] {
        let all = [own.clone(), node("lost", renewal_no)];
        assert_eq!(
            seen.judge(now, &own, &all, &Switches::default()),
            [""; 0],
            "at {now}"
        );
    }
    seen.judge(
        1_200,
        &own,
        std::slice::from_ref(&own),
        &Switches::default(),
    );
    seen
}

#[test]
fn a_clock_that_jumps_ahead_ends_no_quiet_time() {
    let mut seen = watched();
    // The store's clock says that the lease is over. It was renewed before 500.
    assert_eq!(left(&mut seen, 1_300, taken(0, vec![lost(2)])), 6_200);
    assert_eq!(left(&mut seen, 7_499, taken(0, vec![lost(2)])), 1);
    assert_eq!(left(&mut seen, 7_500, taken(0, vec![lost(2)])), 0);
}

#[test]
fn a_clock_that_is_set_back_lengthens_no_quiet_time() {
    let mut seen = watched();
    let hour = 3_600_000;
    assert_eq!(left(&mut seen, 1_300, taken(hour, vec![lost(2)])), 6_200);
    assert_eq!(left(&mut seen, 7_500, taken(hour, vec![lost(2)])), 0);
    // Not even for one that has seen nothing.
    let mut fresh = Observations::default();
    assert_eq!(left(&mut fresh, 50, taken(hour, vec![lost(2)])), 7_000);
    // Where the store does not keep whose loss it is, its clock is this machine's own.
    assert_eq!(left(&mut seen, 9_000, taken(10, Vec::new())), 10);
    assert_eq!(left(&mut seen, 9_000, taken(0, Vec::new())), 0);
}

/// At 500 it saw the last renewal. A lease later, and not before, it may say so; by its own clock alone, a moment later.
#[test]
fn a_watched_lease_and_a_moment_are_enough_whatever_the_stores_clock_says() {
    for (expired, dead_at) in [(true, 6_500), (false, 7_500)] {
        let mut seen = Observations::default();
        let own = node("own", 1);
        let found = (0..40).map(|n| n * 250).find(|now| {
            let silent = Suspect {
                expired,
                ..node("lost", 1 + i64::from(*now >= 500))
            };
            let all = [own.clone(), silent];
            !seen
                .judge(*now, &own, &all, &Switches::default())
                .is_empty()
        });
        assert_eq!(found, Some(dead_at), "expired: {expired}");
    }
}

#[test]
fn what_was_not_seen_counts_from_when_it_is_heard_of() {
    // It renewed again before it died.
    let mut seen = watched();
    assert_eq!(left(&mut seen, 1_300, taken(0, vec![lost(3)])), 7_000);
    assert_eq!(left(&mut seen, 2_300, taken(0, vec![lost(3)])), 6_000);
    // A process that has just begun, and one that knows of no number.
    let mut fresh = Observations::default();
    assert_eq!(left(&mut fresh, 50, taken(0, vec![lost(2)])), 7_000);
    assert_eq!(left(&mut fresh, 7_050, taken(0, vec![lost(2)])), 0);
    let mut seen = watched();
    assert_eq!(left(&mut seen, 1_300, taken(0, vec![lost(-1)])), 7_000);
}

/// Two were lost one after the other: the one that may live longer counts.
#[test]
fn each_of_several_lost_owners_is_waited_for() {
    let mut seen = watched();
    let other = LostOwner {
        incarnation: "other".to_owned(),
        ..lost(0)
    };
    let both = taken(0, vec![lost(2), other]);
    assert_eq!(left(&mut seen, 3_000, both), 7_000);
}

/// A pause ends what was watched, and makes nothing untrue that was seen.
#[test]
fn what_was_seen_before_a_pause_still_counts() {
    let mut seen = watched();
    let own = node("own", 1);
    let all = [own.clone(), node("lost", 2)];
    let mut again = Observations::default();
    again.judge(0, &own, &all, &Switches::default());
    again.judge(
        60_000,
        &own,
        std::slice::from_ref(&own),
        &Switches::default(),
    );
    assert_eq!(left(&mut again, 60_000, taken(0, vec![lost(2)])), 0);
    // It is remembered for minutes, not for ever.
    let later = 500 + REMEMBERED_MS;
    seen.judge(
        later,
        &own,
        std::slice::from_ref(&own),
        &Switches::default(),
    );
    assert_eq!(left(&mut seen, later, taken(0, vec![lost(2)])), 7_000);
}
