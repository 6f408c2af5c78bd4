//! Switches that break one rule each, so that the suite can prove that it would notice.
//!
//! They exist only with the feature `testing`, are set per store instance, and do nothing until set.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! mutations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A rule that can be broken on purpose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutation { $($(#[$doc])* $variant,)* }

        impl Mutation {
            /// Every switch.
            pub const ALL: &'static [Mutation] = &[$(Mutation::$variant,)*];

            /// The switch's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

mutations! {
    /// The after-commit hook moves behind reply and notification, where a dropped future loses it.
    HookAfterNotify = "hook-after-notify";
    /// The epoch is not compared (R1).
    NoFenceEpoch = "no-fence-epoch";
    /// The owner is not compared (R1).
    NoFenceOwner = "no-fence-owner";
    /// The claim is not compared (R1).
    NoFenceClaim = "no-fence-claim";
    /// The write number is not compared (R1, R3).
    NoFenceWriteNo = "no-fence-write-no";
    /// Resolution does not raise `write_no` (R3).
    ResolveKeepsWriteNo = "resolve-keeps-write-no";
    /// Each resolution of the same write raises `write_no` again (R3).
    ResolveRaisesAgain = "resolve-raises-again";
    /// A write that was given up looks like one that happened (R3).
    ResolveLooksDone = "resolve-looks-done";
    /// An input that is gone or rests is promoted all the same (R2).
    NoCasPromote = "no-cas-promote";
    /// Starts pass while an interrupt is settled (R2).
    NoGuardCancelling = "no-guard-cancelling";
    /// A release does not look at the inbox (R2).
    ReleaseIgnoresInbox = "release-ignores-inbox";
    /// Leaving a step ends `cancelling` too (R2).
    LeaveClearsCancelling = "leave-clears-cancelling";
    /// An interrupted or failed execution does not park what waits (R4).
    NoPark = "no-park";
    /// An interrupt from before an execution counts as its own (R5).
    StaleInterrupt = "stale-interrupt";
    /// A repeated interrupt is a new one (R5).
    InterruptNotKeyed = "interrupt-not-keyed";
    /// `follow` reads before it subscribes.
    FollowSubscribesLate = "follow-subscribes-late";
    /// A crash is not charged (R8).
    NoCharge = "no-charge";
    /// A live owner's session can be taken (R7).
    TakeoverOfLive = "takeover-of-live";
    /// A takeover keeps the epoch (R1).
    TakeoverKeepsEpoch = "takeover-keeps-epoch";
    /// A takeover forgets the phase it found.
    TakeoverForgetsPhase = "takeover-forgets-phase";
    /// An adoption keeps the epoch (R1).
    AdoptKeepsEpoch = "adopt-keeps-epoch";
    /// An adoption is charged as a crash (R8).
    AdoptCharges = "adopt-charges";
    /// A dead node may renew (R7).
    RenewWhenDead = "renew-when-dead";
    /// A draining or dead node may acquire (R7).
    AcquireWhenDraining = "acquire-when-draining";
    /// A silent node is dead without having been watched for a whole lease (R7).
    ReapUnobserved = "reap-unobserved";
    /// The attachment's generation is not compared (R14).
    NoGenerationCheck = "no-generation-check";
    /// A refused append in a batch takes its neighbours along (R12).
    RefusalHarmsBatch = "refusal-harms-batch";
    /// A known event id is appended again.
    NotIdempotent = "not-idempotent";
    /// A replay with a missing seq is accepted.
    ReplayAcceptsGap = "replay-accepts-gap";
    /// Deleting a parent removes what its forks need.
    DeleteHarmsForks = "delete-harms-forks";
    /// Deleting a parent removes the checkpoints its forks open from.
    DeleteForgetsCheckpoints = "delete-forgets-checkpoints";
    /// A successor is named without a look at whether it is active and live (R11).
    HandOverUntested = "hand-over-untested";
    /// A hand-over keeps the epoch (R11).
    HandOverKeepsEpoch = "hand-over-keeps-epoch";
    /// A node takes sessions of locations it does not serve.
    PlacementIgnored = "placement-ignored";
    /// A panicking after-commit hook is only logged (R3).
    HookPanicSilent = "hook-panic-silent";
}

/// The switches of one store; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Mutations(Arc<AtomicU64>);

impl Mutations {
    /// With `mutation` set.
    pub fn only(mutation: Mutation) -> Self {
        let all = Self::default();
        all.set(mutation, true);
        all
    }

    /// Sets or clears a switch, at once for every clone.
    pub fn set(&self, mutation: Mutation, on: bool) {
        let bit = 1_u64 << (mutation as u32);
        if on {
            self.0.fetch_or(bit, Ordering::SeqCst);
        } else {
            self.0.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Is the switch set?
    pub fn on(&self, mutation: Mutation) -> bool {
        self.0.load(Ordering::Relaxed) & (1 << (mutation as u32)) != 0
    }
}
