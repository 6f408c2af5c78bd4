//! The suite every backend must pass: cases over the trait alone, one world each.
//!
//! A backend's tests call [`conformance_tests!`](crate::conformance_tests) with a function that makes a
//! fresh [`Backend`]. [`CASES`] lists the same cases for suites that run them under a broken rule.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "a test suite: a case fails by panicking, and its name says what it shows"
)]

pub mod appending;
pub mod claiming;
pub mod dropping;
pub mod forking;
pub mod handing;
pub mod hooking;
pub mod interrupting;
pub mod lapsing;
pub mod parking;
pub mod placing;
pub mod reading;
pub mod replaying;
pub mod world;

use futures::future::BoxFuture;
pub use world::{Backend, World};

/// A case by name.
pub struct Case {
    /// `module::case`.
    pub name: &'static str,
    /// Runs it in a fresh world; panics when the rule does not hold.
    pub run: fn(World) -> BoxFuture<'static, ()>,
}

/// The list of cases, handed to a macro.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ([$($then:tt)*] $($args:tt)*) => {
        $($then)*! { [$($args)*]
            appending::seqs_are_dense_and_events_come_back_as_written,
            appending::a_known_id_returns_what_is_stored,
            appending::a_known_id_with_another_content_is_a_conflict,
            appending::an_unknown_session_and_a_second_creation_are_refused,
            appending::each_part_of_the_fence_is_compared,
            appending::what_a_runner_writes_needs_a_fence,
            appending::bodies_that_cannot_be_stored_are_refused_before_queueing,
            appending::one_refused_append_harms_no_neighbour,
            appending::an_id_is_in_one_log_however_many_ask_at_once,
            appending::appends_of_one_session_keep_their_order,
            appending::an_unknown_commit_is_resolved_either_way,
            appending::resolution_runs_the_hook_wherever_its_caller_is_dropped,
            appending::a_log_that_was_set_back_is_not_written_over_from_memory,
            appending::a_ghost_fails_after_resolution,
            appending::resolving_again_says_the_same,
            appending::a_write_without_events_is_resolved_either_way,
            appending::a_release_whose_answer_was_lost_is_known_as_one,
            appending::a_hand_over_whose_answer_was_lost_is_known_as_one,
            appending::a_takeover_is_not_taken_for_a_hand_over,
            dropping::the_hook_runs_wherever_the_caller_is_dropped,
            dropping::no_observer_sees_a_commit_before_its_hook,
            dropping::the_hook_runs_once_and_not_for_a_duplicate,
            dropping::a_panicking_hook_harms_nobody_and_is_told,
            dropping::a_refused_append_drops_its_hook_unrun,
            hooking::enter_and_leave_move_the_phase,
            hooking::promotion_takes_each_input_once,
            hooking::what_was_decided_on_an_older_log_is_refused,
            hooking::release_looks_at_the_inbox,
            hooking::effects_are_recorded_once_and_end,
            hooking::an_effect_row_outlives_its_settlement_until_nothing_is_left,
            hooking::a_clock_that_is_set_ahead_ends_no_word_about_what_is_left,
            hooking::what_a_call_left_is_of_its_session_alone,
            hooking::a_replaced_attachment_refuses_late_work,
            hooking::quarantine_ends_the_claim_until_released,
            hooking::a_failed_operation_undoes_the_events_beside_it,
            hooking::continuation_and_recovery_error_are_kept,
            claiming::one_of_many_takers_wins,
            claiming::a_held_session_is_refused_and_marked,
            claiming::an_idle_session_is_not_taken_unless_asked,
            claiming::a_draining_or_dead_node_takes_nothing,
            claiming::a_takeover_keeps_the_phase_and_raises_the_epoch,
            claiming::a_deposed_owner_changes_nothing,
            claiming::only_sessions_at_work_are_charged,
            claiming::loading_is_charged_until_a_step_begins,
            claiming::progress_clears_the_charge,
            claiming::an_own_claim_is_adopted_uncharged_and_the_lost_task_refused,
            claiming::only_an_own_claim_is_adopted,
            handing::a_named_successor_goes_on_at_the_next_epoch,
            handing::a_step_that_waits_is_handed_over_as_it_is,
            handing::who_cannot_take_it_leaves_it_claimable,
            handing::what_is_not_accepted_in_time_is_for_anybody,
            handing::a_clock_that_is_set_back_strands_no_hand_over,
            handing::a_successor_that_dies_first_is_not_charged_to_the_session,
            handing::an_interrupt_comes_before_a_hand_over,
            handing::a_location_is_for_nodes_that_serve_it,
            handing::a_model_is_for_nodes_that_can_ask_it,
            handing::a_session_that_waits_to_be_moved_is_for_the_nodes_of_its_new_place,
            interrupting::a_running_session_is_cancelled_once_per_key,
            interrupting::nothing_starts_while_it_is_settled,
            interrupting::waiting_input_is_stopped_before_it_starts,
            interrupting::idle_and_finished_say_so,
            interrupting::a_dead_owners_interrupt_waits_for_the_takeover,
            interrupting::it_never_applies_to_later_input,
            parking::an_interrupted_execution_parks_what_waits,
            parking::a_later_input_wakes_the_parked,
            parking::resume_wakes_the_parked,
            parking::a_failed_execution_parks_what_waits,
            parking::an_earlier_interrupt_is_not_of_a_later_execution,
            parking::a_continuation_is_eligible_and_wakes_nobody_else,
            lapsing::a_node_that_crashed_is_dead_at_once,
            lapsing::a_silent_node_is_dead_only_after_a_watched_lease,
            lapsing::a_renewing_node_stays_alive,
            lapsing::an_observer_back_from_a_pause_starts_over,
            lapsing::death_is_final,
            lapsing::leaving_frees_the_sessions,
            lapsing::a_node_that_resigns_is_not_charged_and_leaves_nothing_behind,
            lapsing::what_a_silent_node_started_is_given_its_lease_and_a_second,
            lapsing::whoever_comes_waits_for_what_a_lost_owner_started,
            lapsing::whoever_starts_something_has_waited_for_all_who_come,
            lapsing::a_clock_that_is_set_back_keeps_no_silent_node_alive,
            lapsing::a_clock_that_is_set_kills_no_node_that_renews,
            lapsing::a_clock_that_is_set_moves_no_quiet_time,
            lapsing::whoever_comes_waits_for_what_an_owner_says_it_leaves,
            handing::the_poll_reads_all_that_a_node_holds,
            placing::every_session_is_in_one_state_and_acquire_agrees,
            placing::lists_show_what_the_log_says,
            reading::pages_follow_the_cursor_and_refuse_what_is_beyond,
            reading::follow_has_no_gap_and_no_repeat_under_writers,
            reading::follow_misses_nothing_between_replay_and_tail,
            reading::follow_says_once_where_the_replay_ends,
            reading::follow_ends_when_the_session_is_deleted,
            reading::checkpoints_come_back_in_order,
            replaying::an_export_rebuilds_the_same_session,
            replaying::a_log_that_cannot_have_happened_is_refused,
            replaying::a_gap_is_refused,
            replaying::divergence_unknown_types_and_foreign_ids_are_refused,
            replaying::a_replayed_session_rests,
            replaying::a_fork_and_its_parent_go_into_one_store,
            replaying::a_shared_event_is_told_from_a_forged_one,
            forking::a_fork_reads_its_parents_prefix,
            forking::deleting_the_parent_keeps_what_forks_need,
            forking::checkpoints_outlive_a_parent_as_long_as_forks_open_from_them,
            forking::a_hundred_forks_add_little,
            forking::an_owned_session_is_not_deleted,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_functions {
    ([$make:path] $($module:ident :: $case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let backend: Option<Box<dyn $crate::conformance::Backend>> = $make().into();
                // A server that is not there has said so, or failed the test where it must be.
                let Some(backend) = backend else { return };
                let world = $crate::conformance::World::new(backend);
                $crate::conformance::$module::$case(world).await;
            }
        )*
    };
}

/// One `#[tokio::test]` per case; `$make` is a function that returns a fresh `Box<dyn Backend>`, or none where there
/// is nothing to run it on.
#[macro_export]
macro_rules! conformance_tests {
    ($make:path) => {
        $crate::conformance_cases! { [$crate::conformance_test_functions] $make }
    };
}

macro_rules! case_table {
    ([] $($module:ident :: $case:ident,)*) => {
        /// Every case.
        pub static CASES: &[Case] = &[$(Case {
            name: concat!(stringify!($module), "::", stringify!($case)),
            run: |world| Box::pin($module::$case(world)),
        },)*];
    };
}
conformance_cases! { [case_table] }
