//! Each switch that breaks a rule turns the suite red.

use crate::sqlite_backend::mutated;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tenure_store::conformance::{CASES, World};
use tenure_store::mutation::{Mutation, Mutations};

/// The case that shows the rule; the whole suite is not run for each switch.
fn witness(mutation: Mutation) -> &'static str {
    use Mutation as M;
    match mutation {
        M::HookAfterNotify => "dropping::the_hook_runs_wherever_the_caller_is_dropped",
        M::NoFenceEpoch | M::NoFenceOwner | M::NoFenceClaim | M::NoFenceWriteNo => {
            "appending::each_part_of_the_fence_is_compared"
        }
        M::ResolveKeepsWriteNo => "appending::a_ghost_fails_after_resolution",
        M::ResolveRaisesAgain => "appending::resolving_again_says_the_same",
        M::ResolveLooksDone => "appending::a_write_without_events_is_resolved_either_way",
        M::HookPanicSilent => "dropping::a_panicking_hook_harms_nobody_and_is_told",
        M::StaleInterrupt => "parking::an_earlier_interrupt_is_not_of_a_later_execution",
        M::AdoptKeepsEpoch | M::AdoptCharges => {
            "claiming::an_own_claim_is_adopted_uncharged_and_the_lost_task_refused"
        }
        M::DeleteForgetsCheckpoints => {
            "forking::checkpoints_outlive_a_parent_as_long_as_forks_open_from_them"
        }
        M::NoCasPromote => "hooking::promotion_takes_each_input_once",
        M::NoGuardCancelling => "interrupting::nothing_starts_while_it_is_settled",
        M::ReleaseIgnoresInbox => "hooking::release_looks_at_the_inbox",
        M::LeaveClearsCancelling => "interrupting::nothing_starts_while_it_is_settled",
        M::NoPark => "parking::an_interrupted_execution_parks_what_waits",
        M::InterruptNotKeyed => "interrupting::a_running_session_is_cancelled_once_per_key",
        M::FollowSubscribesLate => "reading::follow_misses_nothing_between_replay_and_tail",
        M::NoCharge => "claiming::only_sessions_at_work_are_charged",
        M::TakeoverOfLive => "claiming::one_of_many_takers_wins",
        M::TakeoverKeepsEpoch => "claiming::a_takeover_keeps_the_phase_and_raises_the_epoch",
        M::TakeoverForgetsPhase => "claiming::a_takeover_keeps_the_phase_and_raises_the_epoch",
        M::RenewWhenDead => "lapsing::death_is_final",
        M::AcquireWhenDraining => "claiming::a_draining_or_dead_node_takes_nothing",
        M::ReapUnobserved => "lapsing::a_silent_node_is_dead_only_after_a_watched_lease",
        M::NoGenerationCheck => "hooking::a_replaced_attachment_refuses_late_work",
        M::RefusalHarmsBatch => "appending::one_refused_append_harms_no_neighbour",
        M::NotIdempotent => "appending::a_known_id_returns_what_is_stored",
        M::ReplayAcceptsGap => "replaying::a_gap_is_refused",
        M::HandOverUntested => "handing::who_cannot_take_it_leaves_it_claimable",
        M::HandOverKeepsEpoch => "handing::a_named_successor_goes_on_at_the_next_epoch",
        M::PlacementIgnored => "handing::a_location_is_for_nodes_that_serve_it",
        M::DeleteHarmsForks => "forking::deleting_the_parent_keeps_what_forks_need",
    }
}

/// Does the case hold under these switches? A case that hangs does not.
async fn holds(name: &str, mutations: Mutations) -> bool {
    let case = CASES.iter().find(|case| case.name == name);
    let run = case
        .unwrap_or_else(|| panic!("there is no case {name}"))
        .run;
    let case = tokio::spawn(AssertUnwindSafe(run(World::new(mutated(mutations)))).0);
    match tokio::time::timeout(Duration::from_secs(60), case).await {
        Ok(done) => done.is_ok(),
        Err(_) => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broken_rule_is_noticed() {
    let runs = Mutation::ALL.iter().map(|mutation| async move {
        let name = witness(*mutation);
        let passed = holds(name, Mutations::only(*mutation)).await;
        passed.then(|| format!("{} passes {name}", mutation.name()))
    });
    let blind: Vec<_> = futures::future::join_all(runs)
        .await
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(blind, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_behind_the_notification_is_noticed_by_observers() {
    let broken = Mutations::only(Mutation::HookAfterNotify);
    assert!(
        !holds(
            "dropping::no_observer_sees_a_commit_before_its_hook",
            broken
        )
        .await
    );
}
