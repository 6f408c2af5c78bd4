//! Switches that break one rule each, so that the suite can prove that it would notice.
//!
//! They exist only with the feature `testing`, are set per store instance, and do nothing until set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

macro_rules! mutations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $witness:literal;)*) => {
        /// A rule that can be broken on purpose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutation { $($(#[$doc])* $variant,)* }

        impl Mutation {
            /// Every switch.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$variant,)*];

            /// The switch's name: the rule it breaks, then how. `log` is the contract of the log itself.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The switch of that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|mutation| mutation.name() == name)
            }

            /// The test that shows the rule, as `package test`: it fails when the switch is set.
            pub fn witness(self) -> &'static str {
                match self { $(Self::$variant => $witness,)* }
            }

            /// The rule of the ownership protocol, `R1`…, or the promise it breaks.
            pub fn rule(self) -> &'static str {
                self.name().split('-').next().unwrap_or_default()
            }
        }
    };
}

mutations! {
    /// The after-commit hook moves behind reply and notification, where a dropped future loses it.
    HookAfterNotify = "R3-hook-after-notify", "tenure-store conformance::the_hook_runs_wherever_the_caller_is_dropped";
    /// The epoch is not compared.
    NoFenceEpoch = "R1-no-fence-epoch", "tenure-store conformance::each_part_of_the_fence_is_compared";
    /// The owner is not compared.
    NoFenceOwner = "R1-no-fence-owner", "tenure-store conformance::each_part_of_the_fence_is_compared";
    /// The claim is not compared.
    NoFenceClaim = "R1-no-fence-claim", "tenure-store conformance::each_part_of_the_fence_is_compared";
    /// The write number is not compared.
    NoFenceWriteNo = "R1-no-fence-write-no", "tenure-store conformance::each_part_of_the_fence_is_compared";
    /// Resolution does not raise `write_no`.
    ResolveKeepsWriteNo = "R3-resolve-keeps-write-no", "tenure-store conformance::a_ghost_fails_after_resolution";
    /// Resolution does not see that the log was set back.
    ResolveOverLost = "R3-resolve-over-lost", "tenure-store conformance::a_log_that_was_set_back_is_not_written_over_from_memory";
    /// Each resolution of the same write raises `write_no` again.
    ResolveRaisesAgain = "R3-resolve-raises-again", "tenure-store conformance::resolving_again_says_the_same";
    /// A write that was given up looks like one that happened.
    ResolveLooksDone = "R3-resolve-looks-done", "tenure-store conformance::a_write_without_events_is_resolved_either_way";
    /// What was decided on an older log is stored all the same: an answer to a call that is settled.
    OldHeadDecides = "R11-old-head-decides", "tenure-store conformance::what_was_decided_on_an_older_log_is_refused";
    /// An input that is gone or rests is promoted all the same.
    NoCasPromote = "R2-no-cas-promote", "tenure-store conformance::promotion_takes_each_input_once";
    /// Starts pass while an interrupt is settled.
    NoGuardCancelling = "R2-no-guard-cancelling", "tenure-store conformance::nothing_starts_while_it_is_settled";
    /// A release does not look at the inbox.
    ReleaseIgnoresInbox = "R2-release-ignores-inbox", "tenure-store conformance::release_looks_at_the_inbox";
    /// Leaving a step ends `cancelling` too.
    LeaveClearsCancelling = "R2-leave-clears-cancelling", "tenure-store conformance::nothing_starts_while_it_is_settled";
    /// An interrupted or failed execution does not park what waits.
    NoPark = "R4-no-park", "tenure-store conformance::an_interrupted_execution_parks_what_waits";
    /// An interrupt from before an execution counts as its own.
    StaleInterrupt = "R5-stale-interrupt", "tenure-store conformance::an_earlier_interrupt_is_not_of_a_later_execution";
    /// A repeated interrupt is a new one.
    InterruptNotKeyed = "R5-interrupt-not-keyed", "tenure-store conformance::a_running_session_is_cancelled_once_per_key";
    /// `follow` reads before it subscribes.
    FollowSubscribesLate = "P6-follow-subscribes-late", "tenure-store conformance::follow_misses_nothing_between_replay_and_tail";
    /// What a reader was shown ahead of the log is not taken back.
    SupersededUnsaid = "P6-superseded-unsaid", "tenure-engine reading::what_a_lost_owner_showed_is_taken_back_before_anything_of_the_next";
    /// Live text of an owner is shown before the log has told of it.
    LiveNotHeld = "P6-live-not-held", "tenure-engine reading::what_a_lost_owner_showed_is_taken_back_before_anything_of_the_next";
    /// Live text is shown as it comes.
    LiveUntracked = "P6-live-untracked", "tenure-engine reading::live_text_is_shown_once_and_in_place";
    /// A crash is not charged.
    NoCharge = "R8-no-charge", "tenure-store conformance::only_sessions_at_work_are_charged";
    /// A live owner's session can be taken.
    TakeoverOfLive = "R7-takeover-of-live", "tenure-store conformance::one_of_many_takers_wins";
    /// A takeover keeps the epoch.
    TakeoverKeepsEpoch = "R1-takeover-keeps-epoch", "tenure-store conformance::a_takeover_keeps_the_phase_and_raises_the_epoch";
    /// A takeover forgets the phase it found.
    TakeoverForgetsPhase = "R9-takeover-forgets-phase", "tenure-store conformance::a_takeover_keeps_the_phase_and_raises_the_epoch";
    /// An adoption keeps the epoch.
    AdoptKeepsEpoch = "R11-adopt-keeps-epoch", "tenure-store conformance::an_own_claim_is_adopted_uncharged_and_the_lost_task_refused";
    /// An adoption is charged as a crash.
    AdoptCharges = "R8-adopt-charges", "tenure-store conformance::an_own_claim_is_adopted_uncharged_and_the_lost_task_refused";
    /// A dead node may renew.
    RenewWhenDead = "R7-renew-when-dead", "tenure-store conformance::death_is_final";
    /// A draining or dead node may acquire.
    AcquireWhenDraining = "R7-acquire-when-draining", "tenure-store conformance::a_draining_or_dead_node_takes_nothing";
    /// A silent node is dead without having been watched for a whole lease.
    ReapUnobserved = "R7-reap-unobserved", "tenure-store conformance::a_silent_node_is_dead_only_after_a_watched_lease";
    /// The attachment's generation is not compared.
    NoGenerationCheck = "R14-no-generation-check", "tenure-store conformance::a_replaced_attachment_refuses_late_work";
    /// A session that moved to a place its node does not serve stays there.
    MovedSessionStays = "R14-moved-session-stays", "tenure-engine moving::a_session_that_moves_away_goes_on_where_its_place_is_served";
    /// A process that holds the write lock beyond its lease is not looked at.
    HolderNotJudged = "R6-holder-not-judged", "tenure-store processes::a_stopped_holder_of_the_write_lock_is_ended_after_a_lease";
    /// A free incarnation lock proves nothing.
    LockNotAsked = "R13-lock-not-asked", "tenure-store conformance::a_node_that_crashed_is_dead_at_once";
    /// Only the direct successor of a lost owner waits for what that one started.
    QuietForgotten = "R10-quiet-forgotten", "tenure-store conformance::whoever_comes_waits_for_what_a_lost_owner_started";
    /// A silent node lives for as long as the store's clock says that its lease does.
    SilenceByStoreClock = "R7-silence-by-store-clock", "tenure-store machine::lapse::tests::a_watched_lease_and_a_moment_are_enough_whatever_the_stores_clock_says";
    /// Whether what a lost owner started is over is judged by the store's clock alone.
    QuietByStoreClock = "R10-quiet-by-store-clock", "tenure-store machine::lapse::tests::a_clock_that_jumps_ahead_ends_no_quiet_time";
    /// A settlement removes the effect row of a call that left something at work.
    EffectForgotten = "R10-effect-forgotten", "tenure-store conformance::an_effect_row_outlives_its_settlement_until_nothing_is_left";
    /// A refused append in a batch takes its neighbours along.
    RefusalHarmsBatch = "R12-refusal-harms-batch", "tenure-store conformance::one_refused_append_harms_no_neighbour";
    /// A known event id is appended again.
    NotIdempotent = "R3-not-idempotent", "tenure-store conformance::a_known_id_returns_what_is_stored";
    /// A replay with a missing seq is accepted.
    ReplayAcceptsGap = "log-replay-accepts-gap", "tenure-store conformance::a_gap_is_refused";
    /// Deleting a parent removes what its forks need.
    DeleteHarmsForks = "log-delete-harms-forks", "tenure-store conformance::deleting_the_parent_keeps_what_forks_need";
    /// Deleting a parent removes the checkpoints its forks open from.
    DeleteForgetsCheckpoints = "log-delete-forgets-checkpoints", "tenure-store conformance::checkpoints_outlive_a_parent_as_long_as_forks_open_from_them";
    /// A successor is named without a look at whether it is active and live.
    HandOverUntested = "R11-hand-over-untested", "tenure-store conformance::who_cannot_take_it_leaves_it_claimable";
    /// A hand-over keeps the epoch.
    HandOverKeepsEpoch = "R11-hand-over-keeps-epoch", "tenure-store conformance::a_named_successor_goes_on_at_the_next_epoch";
    /// A node takes sessions of locations it does not serve.
    PlacementIgnored = "R9-placement-ignored", "tenure-store conformance::a_location_is_for_nodes_that_serve_it";
    /// A panicking after-commit hook is only logged.
    HookPanicSilent = "R3-hook-panic-silent", "tenure-store conformance::a_panicking_hook_harms_nobody_and_is_told";
    /// A node that stopped by itself, and says so, is charged as one that crashed.
    ResignCharges = "R8-resign-charges", "tenure-store conformance::a_node_that_resigns_is_not_charged_and_leaves_nothing_behind";
    /// A node whose renewal is late goes on.
    NoSelfFence = "R7-no-self-fence", "tenure-engine fencing::an_outage_longer_than_the_lease_stops_all_work_and_is_no_crash";
    /// The lease counts from the renewal's answer, not from before it was sent.
    RenewalMeasuredLate = "R7-renewal-measured-late", "tenure-engine node::tests::the_lease_counts_from_before_the_renewal_was_sent";
    /// A request is sent before its `attempt.started` is durable.
    AttemptSentEarly = "R11-attempt-sent-early", "tenure-engine ordering::a_request_leaves_after_its_attempt_is_durable";
    /// A tool begins before its `tool.started` is durable.
    ToolSpawnedEarly = "R10-tool-spawned-early", "tenure-engine ordering::a_tool_begins_after_its_start_is_durable";
    /// A tool's start is not refused after an interrupt.
    ToolStartUnguarded = "R10-tool-start-unguarded", "tenure-engine ordering::no_tool_starts_behind_an_interrupt";
    /// The first spawn after a takeover waits for nothing.
    SpawnNotDelayed = "R10-spawn-not-delayed", "tenure-engine takeover::the_first_spawn_waits_for_the_old_lease_and_the_log_does_not";
    /// Claims that name this node and that nothing works on are left alone.
    OrphansIgnored = "R11-orphans-ignored", "tenure-engine engine::tests::an_orphaned_claim_is_adopted_and_harms_no_other_session";
    /// Recovery ends the step and leaves its tools open.
    RecoveryForgetsTools = "R9-recovery-forgets-tools", "tenure-engine recovery::killed_while_tools_run_and_wait";
    /// Recovery runs calls that were recorded and not begun.
    RecoveryRunsCalls = "R10-recovery-runs-calls", "tenure-engine takeover::a_call_that_had_not_begun_is_settled_and_not_run";
    /// Each recovery writes a continuation of its own.
    ContinuationNotDerived = "R9-continuation-not-derived", "tenure-engine recovery::killed_while_text_streams";
    /// A step that waits for approvals is settled by a hand-over.
    WaitingStepSettled = "R11-waiting-step-settled", "tenure-engine handing::a_step_that_waits_for_an_answer_is_handed_over_as_it_is";
    /// A node learns of interrupts and losses by hints alone.
    ClaimPollOff = "R5-claim-poll-off", "tenure-engine ordering::with_every_hint_lost_the_poll_tells";
    /// What a node runs outlives its lease.
    ChildrenOutliveNode = "R10-children-outlive-node", "tenure-engine fencing::an_outage_longer_than_the_lease_stops_all_work_and_is_no_crash";
}

/// The switches of one store; clones share them.
#[derive(Debug, Clone)]
pub struct Mutations(Arc<[AtomicU64; 2]>);

/// The environment variable that names a switch for everything a test opens by default.
pub const VARIABLE: &str = "TENURE_MUTATION";

impl Default for Mutations {
    /// None, or the one that [`VARIABLE`] names: so any test can be run under a broken rule.
    fn default() -> Self {
        static NAMED: OnceLock<Option<Mutation>> = OnceLock::new();
        let named = *NAMED.get_or_init(|| {
            let name = std::env::var(VARIABLE).ok()?;
            let mutation = Mutation::named(&name);
            assert!(mutation.is_some(), "{VARIABLE} names no switch: {name}");
            mutation
        });
        match named {
            Some(mutation) => Self::only(mutation),
            None => Self::none(),
        }
    }
}

impl Mutations {
    /// No switch, whatever the environment says.
    pub fn none() -> Self {
        Self(Arc::default())
    }

    /// With `mutation` set.
    pub fn only(mutation: Mutation) -> Self {
        let all = Self::none();
        all.set(mutation, true);
        all
    }

    /// Sets or clears a switch, at once for every clone.
    pub fn set(&self, mutation: Mutation, on: bool) {
        let (word, bit) = self.place(mutation);
        if on {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Is the switch set?
    pub fn on(&self, mutation: Mutation) -> bool {
        let (word, bit) = self.place(mutation);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn place(&self, mutation: Mutation) -> (&AtomicU64, u64) {
        let number = mutation as usize;
        (&self.0[number / 64], 1 << (number % 64))
    }
}
