//! Every rule broken in turn, and what the simulation is expected to make of it: which seeds must catch it, which
//! switch breaks nothing because another part of the rule stands in for it, and which has no place in this world.
//! Whatever cannot be seen here has a test that sees it: its witness, which `cargo xtask mutants` runs.

use super::plan::Scenario;
use tenure_store::mutation::{Mutation, Mutations};

/// What becomes of a mutant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Some seed shows it.
    Caught,
    /// No run can show it: why, and which joint mutant shows that the rule as a whole is needed.
    Redundant(&'static str),
    /// The simulated world lacks what it breaks: why. Its witness in the suite shows it.
    Elsewhere(&'static str),
}

/// One or several rules broken together.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// The switch's name, or the joint one's.
    pub name: &'static str,
    /// What is broken.
    pub switches: Vec<Mutation>,
    /// What is expected of the seeds.
    pub expected: Expected,
    /// The scenario that shows it soonest; none where any does.
    pub shows_in: Option<Scenario>,
    /// The test that shows it, as `package test`; joint ones have none.
    pub witness: Option<&'static str>,
}

impl Mutant {
    /// The switches set.
    pub fn mutations(&self) -> Mutations {
        let all = Mutations::none();
        for switch in &self.switches {
            all.set(*switch, true);
        }
        all
    }
}

/// Rules that stand in for each other, removed together.
const JOINT: &[(&str, &[Mutation])] = &[
    (
        "R1-no-fence",
        &[
            Mutation::NoFenceEpoch,
            Mutation::NoFenceOwner,
            Mutation::NoFenceClaim,
            Mutation::NoFenceWriteNo,
        ],
    ),
    // What is left of the fence, alone, is not enough.
    (
        "R1-fence-of-epoch-only",
        &[
            Mutation::NoFenceOwner,
            Mutation::NoFenceClaim,
            Mutation::NoFenceWriteNo,
        ],
    ),
    (
        "R1-fence-of-owner-only",
        &[
            Mutation::NoFenceEpoch,
            Mutation::NoFenceClaim,
            Mutation::NoFenceWriteNo,
        ],
    ),
];

/// Every switch, and those that are set together.
pub fn all() -> Vec<Mutant> {
    let single = Mutation::ALL.iter().map(|switch| Mutant {
        name: switch.name(),
        switches: vec![*switch],
        expected: expected(*switch),
        shows_in: shows_in(*switch),
        witness: Some(switch.witness()),
    });
    let joint = JOINT.iter().map(|(name, switches)| Mutant {
        name,
        switches: switches.to_vec(),
        expected: Expected::Caught,
        shows_in: Some(Scenario::Edges),
        witness: None,
    });
    single.chain(joint).collect()
}

fn expected(mutation: Mutation) -> Expected {
    use Expected::{Caught, Elsewhere, Redundant};
    const CLAIM: &str = "the claim's id is derived from session, owner and epoch, and `write_no` moves with each; \
         `R1-no-fence` removes all four";
    match mutation {
        Mutation::NoFenceEpoch | Mutation::NoFenceOwner | Mutation::NoFenceClaim => {
            Redundant(CLAIM)
        }
        Mutation::HolderNotJudged | Mutation::LockNotAsked => {
            Elsewhere("locks of processes on one file")
        }
        Mutation::FollowSubscribesLate => Elsewhere("each backend's own way to watch"),
        Mutation::SilenceByStoreClock => {
            Elsewhere("it only delays, for as long as the clock was set back")
        }
        Mutation::ResolveOverLost => Elsewhere(
            "a log that is set back has lost what was promised: nothing is left to judge by",
        ),
        Mutation::DeleteForgetsCheckpoints => Elsewhere("a checkpoint only saves time"),
        _ => Caught,
    }
}

/// Where the parts meet that show it.
fn shows_in(mutation: Mutation) -> Option<Scenario> {
    use Mutation as M;
    match mutation {
        M::HookAfterNotify
        | M::NoFenceWriteNo
        | M::ResolveKeepsWriteNo
        | M::ResolveRaisesAgain
        | M::ResolveLooksDone
        | M::ReleaseIgnoresInbox
        | M::HookPanicSilent
        | M::ReplayAcceptsGap
        | M::AdoptKeepsEpoch
        | M::OrphansIgnored
        | M::TakeoverOfLive => Some(Scenario::Edges),
        M::NoGuardCancelling
        | M::LeaveClearsCancelling
        | M::NoPark
        | M::InterruptNotKeyed
        | M::ClaimPollOff
        | M::ToolStartUnguarded => Some(Scenario::Interrupts),
        M::StaleInterrupt => Some(Scenario::Rests),
        M::NoCharge
        | M::TakeoverKeepsEpoch
        | M::TakeoverForgetsPhase
        | M::RecoveryForgetsTools
        | M::RecoveryRunsCalls
        | M::ContinuationNotDerived => Some(Scenario::Crashes),
        M::AcquireWhenDraining
        | M::HandOverUntested
        | M::OldHeadDecides
        | M::HandOverKeepsEpoch
        | M::WaitingStepSettled => Some(Scenario::Drains),
        M::NoSelfFence | M::RenewalMeasuredLate | M::ChildrenOutliveNode | M::RenewWhenDead => {
            Some(Scenario::Silence)
        }
        M::SpawnNotDelayed | M::QuietForgotten | M::QuietByStoreClock | M::EffectForgotten => {
            Some(Scenario::Orphans)
        }
        M::SupersededUnsaid | M::LiveNotHeld | M::LiveUntracked => Some(Scenario::Relays),
        M::NoGenerationCheck | M::PlacementIgnored | M::MovedSessionStays => Some(Scenario::Places),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = all().iter().map(|mutant| mutant.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
