//! The rules of the protocol, each with a switch, and what the checker must say when it is off.

use crate::state::Violation;

/// What becomes of the protocol without a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Without {
    /// One of these happens.
    Breaks(&'static [Violation]),
    /// Nothing wrong ever happens, but some session can never come to rest again.
    Strands,
    /// Nothing: other rules cover it. Why it exists all the same.
    Covered(&'static str),
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident => $without:expr;)*) => {
        /// A rule that can be switched off, or (at the end) a weaker form of one that can be switched on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Rule { $($(#[$doc])* $name,)* }

        impl Rule {
            pub const ALL: &'static [Rule] = &[$(Rule::$name,)*];

            /// What the checker must find without it.
            pub fn without(self) -> Without {
                use Violation::*;
                use Without::*;
                match self { $(Rule::$name => $without,)* }
            }
        }
    };
}

rules! {
    /// R1: the epoch is compared.
    FenceEpoch => Covered("the parts of the fence cover each other, its own test says which");
    /// R1: the owner is compared.
    FenceOwner => Covered("as the epoch");
    /// R1: the claim is compared.
    FenceClaim => Covered("as the epoch");
    /// R1, R3: the write number is compared.
    FenceWriteNo => Breaks(&[GhostLanded, MemoryIsNotLog]);
    /// R3: resolution raises `write_no`.
    ResolveRaises => Breaks(&[GhostLanded, MemoryIsNotLog]);
    /// R1: a takeover raises the epoch.
    TakeoverRaisesEpoch => Breaks(&[EpochShared]);
    /// R1: an adoption raises the epoch.
    AdoptRaisesEpoch => Breaks(&[EpochShared]);
    /// R11: a hand-over raises the epoch.
    HandOverRaisesEpoch => Breaks(&[EpochShared]);
    /// A draining or dead node acquires nothing.
    AcquireNeedsActive => Breaks(&[OwnerNotActive]);
    /// R7: only what nobody alive owns is taken.
    TakeoverNeedsGone => Breaks(&[LiveRobbed]);
    /// A takeover keeps the phase it finds.
    TakeoverKeepsPhase => Breaks(&[InterruptLost]);
    /// R5: a taker sees the interrupt that came while nobody owned the execution.
    TakeSeesCancel => Breaks(&[InterruptLost]);
    /// R2: nothing starts under `cancelling`.
    StartsStop => Breaks(&[StartedAfterInterrupt, InterruptLost]);
    /// R2: leaving a step keeps `cancelling`.
    LeaveKeepsCancelling => Breaks(&[InterruptLost]);
    /// R2: a release looks at the inbox in its own transaction.
    ReleaseLooks => Breaks(&[ReleasedWithInput]);
    /// R2: promotion takes only what is pending and eligible.
    PromoteCompares => Breaks(&[DeliveredTwice, RestingRan]);
    /// R4, R5: an interrupt parks what was pending.
    InterruptParks => Breaks(&[RestingRan]);
    /// R4: a failed execution parks what is pending.
    FailureParks => Breaks(&[RestingRan]);
    /// R5: an interrupt from before an execution is not of it.
    StartForgetsInterrupt => Breaks(&[RestingRan]);
    /// R9: an unconsumed continuation goes with its execution.
    ContinuationCancelled => Breaks(&[StaleContinuation]);
    /// R8: the loss of an owner at work is charged.
    LossCharged => Breaks(&[NotQuarantined]);
    /// R8: only what was at work is charged.
    IdleNotCharged => Breaks(&[QuarantinedEarly]);
    /// R8: an adoption is not charged.
    AdoptNotCharged => Breaks(&[QuarantinedEarly]);
    /// R8: progress in normal running clears the charge.
    ProgressClears => Breaks(&[QuarantinedEarly]);
    /// R8: what recovery writes is no progress.
    RecoveryIsNoProgress => Breaks(&[NotQuarantined]);
    /// R7: a dead node renews nothing.
    RenewNeedsAlive => Breaks(&[TwoGroups]);
    /// R7: death by time needs the observer's count.
    DeathNeedsObserver => Breaks(&[BuriedAlive]);
    /// R7: what was watched for a whole lease is dead whatever the database's clock says.
    WatchIsEnough => Strands;
    /// R7: death is written under the row's lock after testing again.
    DeathRetests => Breaks(&[BuriedAlive]);
    /// R11: a successor is tested in the transaction that names it.
    SuccessorTested => Breaks(&[OwnerNotActive]);
    /// R9, R11: only a session at a boundary is handed over.
    HandOverAtBoundary => Breaks(&[TwoGroups, CallStartedTwice]);
    /// R11: accepting ends the acceptance deadline.
    AcceptEndsOffer => Breaks(&[LiveRobbed]);
    /// R10: after a fast suspicion the first spawn waits for the old lease's end.
    SpawnWaits => Breaks(&[TwoGroups]);
    /// R10: a guardian kills its group when the lease ends.
    GuardianKills => Breaks(&[TwoGroups]);
    /// R11: every reconciler adopts claims of its own that nobody works on.
    AdoptsOwn => Strands;
    /// R7: a silent node is declared dead.
    SilentDie => Strands;
    /// R7: a node whose renewal is refused fences itself and comes back.
    SelfFences => Strands;
    /// R5: the owner looks at its claim while it works.
    OwnerPolls => Covered("every start is refused under `cancelling`, so it is found at the next one: only slower");
    /// Fast suspicion.
    FastSuspicion => Covered("it is for speed alone: the lease ends anyway");
    /// R11: a hand-over that is not accepted is free after a deadline.
    OfferEnds => Covered("the successor adopts in the end, or dies and is buried: only slower");
    /// Off in the protocol: the first spawn waits for the lease of the owner before only. Not enough: a task that is lost
    /// and adopted, a second takeover or a release forgets it while the tools of the one before still run.
    PredecessorOnly => Breaks(&[TwoGroups]);
}

/// The rules in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules(u64);

impl Rules {
    /// The protocol.
    pub const PROTOCOL: Rules = Rules(!(1 << Rule::PredecessorOnly as u32));

    /// With one rule the other way round.
    #[must_use]
    pub const fn flipped(self, rule: Rule) -> Self {
        Rules(self.0 ^ (1 << rule as u32))
    }

    pub const fn has(self, rule: Rule) -> bool {
        self.0 & (1 << rule as u32) != 0
    }

    /// May two tenures share an epoch?
    pub const fn shares_epochs(self) -> bool {
        !(self.has(Rule::TakeoverRaisesEpoch)
            && self.has(Rule::AdoptRaisesEpoch)
            && self.has(Rule::HandOverRaisesEpoch))
    }
}
