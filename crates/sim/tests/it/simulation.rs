//! The simulation: the same seed gives the same log, and a fixed share of seeds breaks no promise.

use tenure_core::event::EventBody;
use tenure_sim::simulation::network::CommitFault;
use tenure_sim::simulation::plan::{Action, ActionKind, Fault, FaultKind, When, Which};
use tenure_sim::simulation::{Outcome, Plan, Scenario, mutants, run};
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
    all_clean(3_000_000..3_000_040, Some(Scenario::Edges));
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
    plan.readers = 1;
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
                lingers: false,
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

/// A creation that comes late makes a deleted session again: who asks in it gets an answer all the same.
#[test]
fn a_session_that_a_late_creation_makes_again_comes_to_rest() {
    let mut asked = 0;
    for seed in 1..25 {
        let mut plan = quiet_plan(seed);
        plan.model.calls = 100;
        let late = FaultKind::Commit(CommitFault::Late(13 * SECOND));
        plan.faults = vec![fault(When::At(0), Which::Node(0), late)];
        let act = |at, kind| Action {
            when: When::At(at),
            session: 0,
            kind,
        };
        plan.actions = vec![
            act(12 * SECOND, ActionKind::Delete),
            act(18 * SECOND, ActionKind::Admit { queue: false }),
        ];
        let outcome = run(&plan, &Mutations::default());
        assert_clean(seed, &outcome);
        let made = outcome.logs.values().flatten();
        asked += made
            .filter(|event| matches!(event.body, EventBody::PermissionAsked(_)))
            .count();
    }
    assert!(
        asked > 0,
        "nothing was asked in a session that was made again"
    );
}

/// The first seed of the mutant's own scenario, if one of so many shows it.
fn shown_by(name: &str, seeds: u64) -> Option<u64> {
    let all = mutants::all();
    let mutant = all.iter().find(|mutant| mutant.name == name);
    let mutant = mutant.expect("a mutant of that name");
    let broken = mutant.mutations();
    (1..seeds).find(|seed| {
        let plan = Plan::of(*seed, mutant.shows_in);
        !run(&plan, &broken).violations.is_empty()
    })
}

fn all_shown(names: &[&str], seeds: u64) {
    let missed = names.iter().filter(|name| shown_by(name, seeds).is_none());
    assert_eq!(
        missed.collect::<Vec<_>>(),
        [""; 0].iter().collect::<Vec<_>>()
    );
}

/// Broken rules that show only where two things meet at the same moment: each within few seeds.
#[test]
fn what_is_broken_at_an_edge_is_found() {
    let at_edges = [
        "R1-no-fence",
        "R1-no-fence-write-no",
        "R3-hook-after-notify",
        "R3-resolve-keeps-write-no",
        "R3-resolve-raises-again",
        "R7-takeover-of-live",
        "R11-adopt-keeps-epoch",
    ];
    all_shown(&at_edges, 150);
}

/// Of a lost owner nothing is left that acts, and what may be left is waited for.
#[test]
fn what_a_lost_owner_leaves_behind_is_found() {
    let left = [
        "R10-spawn-not-delayed",
        "R10-quiet-forgotten",
        "R10-quiet-by-store-clock",
        "R10-effect-forgotten",
        "R10-recovery-runs-calls",
        "R9-continuation-not-derived",
        "R7-no-self-fence",
    ];
    all_shown(&left, 300);
}

/// Nodes that leave, places that change, inputs that rest.
#[test]
fn what_is_given_to_or_done_by_the_wrong_one_is_found() {
    let wrong = [
        "R7-acquire-when-draining",
        "R11-waiting-step-settled",
        "R14-no-generation-check",
        "R14-moved-session-stays",
        "R9-placement-ignored",
        "R5-stale-interrupt",
    ];
    all_shown(&wrong, 300);
}

/// Readers on other nodes, of what one of them streams: what is shown twice or never taken back, and what a node shows
/// that is faster than the log.
#[test]
fn what_a_reader_is_wrongly_shown_is_found() {
    let shown = [
        "P6-superseded-unsaid",
        "P6-live-untracked",
        "P6-live-not-held",
    ];
    all_shown(&shown, 150);
}

/// Each story by itself, as the mixed seeds hold little of each.
#[test]
fn a_fixed_share_of_each_story_breaks_no_promise() {
    for story in [
        Scenario::Silence,
        Scenario::Orphans,
        Scenario::Rests,
        Scenario::Places,
        Scenario::Relays,
    ] {
        all_clean(4_000_000..4_000_020, Some(story));
    }
}

/// A prompt that comes between the owner's last look and its release: the release sees it, or its execution ends well
/// over a prompt that waits.
#[test]
fn a_release_that_does_not_look_at_the_inbox_is_found() {
    let broken = Mutations::only(Mutation::ReleaseIgnoresInbox);
    let meets = |commit: u64, later: u64| {
        let mut plan = quiet_plan(2);
        plan.model.calls = 0;
        plan.actions.push(Action {
            when: When::After(commit, later),
            session: 0,
            kind: ActionKind::Admit { queue: false },
        });
        assert_clean(2, &run(&plan, &Mutations::none()));
        !run(&plan, &broken).violations.is_empty()
    };
    let mut moments = (3..30).flat_map(|commit| (0..8).map(move |n| (commit, n * 300)));
    assert!(moments.any(|(commit, later)| meets(commit, later)));
}

/// Each of the other three, and the write number above all, stands in for a part of the fence that is gone.
#[test]
fn a_part_of_the_fence_that_another_stands_in_for_changes_nothing() {
    for part in [
        Mutation::NoFenceEpoch,
        Mutation::NoFenceOwner,
        Mutation::NoFenceClaim,
    ] {
        for seed in 1..8 {
            let plan = Plan::of(seed, Some(Scenario::Edges));
            let whole = run(&plan, &Mutations::none());
            let broken = run(&plan, &Mutations::only(part));
            assert_eq!(
                whole.export(),
                broken.export(),
                "{} by seed {seed}",
                part.name()
            );
        }
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
