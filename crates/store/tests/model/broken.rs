//! Each rule is there for a reason: without it, the checker finds what it prevents.

use crate::checker::{explore, explore_for, print_run};
use crate::nodes::{Model, Trouble};
use crate::rules::{Rule, Rules, Without};
use crate::state::{Left, Violation};

/// The least trouble in which the rule matters: prompts, how much trouble, of which kinds.
fn trouble(rule: Rule) -> (u8, u8, &'static [Trouble]) {
    use Rule::*;
    use Trouble::*;
    match rule {
        TakeoverNeedsGone | PromoteCompares => (1, 0, &[]),
        FenceEpoch | FenceClaim | FenceOwner => (1, 2, &[Pauses, Delays]),
        FenceWriteNo | ResolveRaises | AdoptsOwn => (1, 1, &[Delays]),
        TakeoverRaisesEpoch | AdoptRaisesEpoch | SilentDie => (1, 1, &[Crashes]),
        HandOverRaisesEpoch => (1, 1, &[Drains]),
        AcquireNeedsActive | HandOverAtBoundary | AcceptEndsOffer => (1, 1, &[Drains]),
        SuccessorTested => (1, 2, &[Drains]),
        OfferEnds => (1, 3, &[Drains, Crashes, Delays]),
        TakeoverKeepsPhase | ContinuationCancelled | OwnerPolls => (1, 2, &[Interrupts, Crashes]),
        TakeSeesCancel => (1, 2, &[Interrupts, Drains]),
        StartsStop | LeaveKeepsCancelling | InterruptParks => (1, 1, &[Interrupts]),
        ReleaseLooks | FailureParks => (2, 0, &[]),
        StartForgetsInterrupt => (2, 1, &[Interrupts]),
        LossCharged | IdleNotCharged | AdoptNotCharged | ProgressClears | RecoveryIsNoProgress => {
            (1, 2, &[Crashes])
        }
        RenewNeedsAlive | DeathRetests | GuardianKills => (1, 1, &[Pauses]),
        DeathNeedsObserver => (1, 1, &[Lies]),
        WatchIsEnough => (1, 2, &[Lies, Crashes]),
        SpawnWaits => (1, 1, &[Suspicions]),
        FastSuspicion | PredecessorOnly => (1, 2, &[Suspicions, Crashes]),
        SelfFences => (1, 3, &[Suspicions]),
    }
}

fn without(rule: Rule) -> Model {
    let (inputs, troubles, kinds) = trouble(rule);
    let left = Left { inputs, troubles };
    Model {
        rules: Rules::PROTOCOL.flipped(rule),
        left,
        kinds,
        max_attempts: 2,
    }
}

/// What the checker says without the rule, and the run that shows it.
fn found(rule: Rule) -> (Result<(), String>, String) {
    let model = without(rule);
    let explored = explore(&model, true);
    let run = |id: u32| {
        let run = explored.run_to(&model, id);
        let shown = run.last().map(|(_, _, state)| state.canonical());
        assert_eq!(
            shown,
            Some(explored.states[id as usize]),
            "a run shows what was found"
        );
        print_run(&run)
    };
    let count = explored.states.len();
    if let Some((id, violation)) = explored.violated {
        let told = run(id);
        let fine = matches!(rule.without(), Without::Breaks(kinds) if kinds.contains(&violation));
        let said = format!(
            "{violation:?} after {} steps, {count} states",
            told.lines().count() / 2
        );
        return (fine.then_some(()).ok_or(format!("{said}\n{told}")), said);
    }
    if let Some(id) = explored.stranded() {
        let said = format!("a session strands, {count} states");
        let fine = rule.without() == Without::Strands;
        return (
            fine.then_some(()).ok_or(format!("{said}\n{}", run(id))),
            said,
        );
    }
    match rule.without() {
        Without::Covered(why) => (Ok(()), format!("nothing: {why}; {count} states")),
        expected => (
            Err(format!(
                "nothing was found in {count} states, expected {expected:?}"
            )),
            String::new(),
        ),
    }
}

#[test]
fn each_rule_prevents_what_it_is_there_for() {
    let mut blind = Vec::new();
    for rule in Rule::ALL {
        // The protocol itself stands under the same trouble.
        let whole = Model {
            rules: Rules::PROTOCOL,
            ..without(*rule)
        };
        let explored = explore(&whole, true);
        assert_eq!(
            explored.violated, None,
            "the protocol with the trouble for {rule:?}"
        );
        assert_eq!(
            explored.stranded(),
            None,
            "the protocol with the trouble for {rule:?}"
        );
        let (verdict, said) = found(*rule);
        println!("without {rule:?}: {said}");
        if let Err(wrong) = verdict {
            blind.push(format!("without {rule:?}: {wrong}"));
        }
    }
    assert!(blind.is_empty(), "{}", blind.join("\n"));
}

const PARTS: [Rule; 4] = [
    Rule::FenceEpoch,
    Rule::FenceOwner,
    Rule::FenceClaim,
    Rule::FenceWriteNo,
];

/// Is such a thing kept out when only these parts of the fence are compared?
fn kept_out(parts: &[Rule], what: fn(Violation) -> bool) -> bool {
    let rules = PARTS
        .iter()
        .filter(|part| !parts.contains(part))
        .fold(Rules::PROTOCOL, |rules, part| rules.flipped(*part));
    use Trouble::*;
    let troubles: [&'static [Trouble]; 2] = [&[Pauses, Delays], &[Drains, Delays]];
    troubles.iter().all(|kinds| {
        let left = Left {
            inputs: 2,
            troubles: 2,
        };
        let model = Model {
            rules,
            left,
            kinds,
            max_attempts: 2,
        };
        explore_for(&model, false, what).violated.is_none()
    })
}

/// The write number alone would do. The claim's id, which is made of taker and epoch, keeps a deposed owner out, and
/// so do these two together, neither alone; but only the write number keeps out a late ghost of the tenure in force.
#[test]
fn the_parts_of_the_fence_cover_each_other() {
    for set in 0..16_u8 {
        let parts: Vec<Rule> = (0..4)
            .filter(|i| set & (1 << i) != 0)
            .map(|i| PARTS[i])
            .collect();
        let numbered = parts.contains(&Rule::FenceWriteNo);
        let safe = kept_out(&parts, |_| true);
        let owners = safe || kept_out(&parts, |found| found == Violation::DeposedWrote);
        println!("{parts:?}: everything {safe}, deposed owners {owners}");
        assert_eq!(safe, numbered, "{parts:?}");
        let has = |part| parts.contains(&part);
        let pair = has(Rule::FenceEpoch) && has(Rule::FenceOwner);
        assert_eq!(
            owners,
            numbered || has(Rule::FenceClaim) || pair,
            "{parts:?}"
        );
    }
}
