//! The simulation: the same seed gives the same log, and a fixed share of seeds breaks no promise.

use tenure_sim::simulation::plan::{Action, ActionKind, Fault, FaultKind, When, Which};
use tenure_sim::simulation::{Outcome, Plan, Scenario, run};
use tenure_store::mutation::{Mutation, Mutations};

const SECOND: u64 = 1_000_000;

fn assert_clean(seed: u64, outcome: &Outcome) {
    assert_eq!(
        outcome.violations,
        [],
        "again: cargo xtask sim --seed {seed}"
    );
}

/// Runs seeds on two threads; every one must be clean.
fn all_clean(seeds: std::ops::Range<u64>, scenario: Option<Scenario>) {
    let half = seeds.start + (seeds.end - seeds.start) / 2;
    std::thread::scope(|scope| {
        for part in [seeds.start..half, half..seeds.end] {
            scope.spawn(move || {
                for seed in part {
                    let plan = Plan::of(seed, scenario);
                    assert_clean(seed, &run(&plan, &Mutations::default()));
                }
            });
        }
    });
}

#[test]
fn the_same_seed_gives_a_byte_identical_log() {
    for seed in [3, 11, 42, 77, 190] {
        let plan = Plan::of(seed, None);
        let (one, two) = (
            run(&plan, &Mutations::default()),
            run(&plan, &Mutations::default()),
        );
        assert!(!one.export().is_empty());
        assert_eq!(one.export(), two.export(), "seed {seed}");
        assert_eq!((one.polls, one.took), (two.polls, two.took), "seed {seed}");
    }
}

#[test]
fn other_seeds_give_other_logs() {
    let logs = [1, 2, 3].map(|seed| run(&Plan::of(seed, None), &Mutations::default()).export());
    assert!(logs[0] != logs[1] && logs[1] != logs[2]);
}

#[test]
fn a_fixed_share_of_seeds_breaks_no_promise() {
    all_clean(1_000_000..1_000_120, None);
}

/// Against claim, step start, step end, completion and takeover: none lost, none applied to a later turn, no
/// claim left.
#[test]
fn interrupts_at_every_moment_are_neither_lost_nor_applied_to_a_later_turn() {
    all_clean(2_000_000..2_000_150, Some(Scenario::Interrupts));
}

/// Nothing but what a test asks for.
fn quiet_plan(seed: u64) -> Plan {
    let mut plan = Plan::of(seed, Some(Scenario::Mixed));
    plan.nodes = 2;
    plan.sessions = 1;
    plan.follow = true;
    (plan.model.refusals, plan.model.cuts) = (0, 0);
    plan.faults.clear();
    plan.actions = vec![Action {
        when: When::At(SECOND / 2),
        session: 0,
        kind: ActionKind::Admit { queue: false },
    }];
    plan
}

fn fault(when: When, node: Which, kind: FaultKind) -> Fault {
    Fault { when, node, kind }
}

/// Every node stops its work when no renewal gets through, and all come back when the database does.
#[test]
fn nodes_that_fenced_themselves_in_an_outage_come_back() {
    for seed in 1..6 {
        let mut plan = quiet_plan(seed);
        plan.faults = vec![fault(
            When::Commit(8),
            Which::Actor,
            FaultKind::StoreOut(20 * SECOND),
        )];
        assert_clean(seed, &run(&plan, &Mutations::default()));
    }
}

#[test]
fn an_owner_that_dies_at_any_of_its_commits_is_followed_by_another() {
    for commit in 3..40 {
        let mut plan = quiet_plan(commit);
        plan.faults = vec![fault(
            When::Commit(commit),
            Which::Actor,
            FaultKind::Crash {
                noticed: commit % 2 == 0,
                back: 30 * SECOND,
            },
        )];
        assert_clean(commit, &run(&plan, &Mutations::default()));
    }
}

/// What it had made durable before the pause is settled by its successor: it must not begin afterwards.
#[test]
fn a_paused_owner_begins_nothing_once_another_owns_the_session() {
    for commit in 3..40 {
        let mut plan = quiet_plan(commit);
        plan.model.calls = 90;
        plan.faults = vec![fault(
            When::Commit(commit),
            Which::Actor,
            FaultKind::Pause(24 * SECOND),
        )];
        assert_clean(commit, &run(&plan, &Mutations::default()));
    }
}

/// What the simulation is for: a broken rule is found.
#[test]
fn a_start_under_an_interrupt_is_found() {
    let broken = Mutations::only(Mutation::NoGuardCancelling);
    let found = (1..400).find(|seed| {
        let plan = Plan::of(*seed, Some(Scenario::Interrupts));
        !run(&plan, &broken).violations.is_empty()
    });
    assert!(found.is_some(), "no seed shows it");
}
