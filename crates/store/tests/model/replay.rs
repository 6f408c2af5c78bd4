//! The model and a real store side by side: the same random walk, the same answers, the same rows.

use crate::nodes::{Action, Model, Trouble};
use crate::real::Real;
use crate::rules::Rules;
use crate::sqlite_backend::{fresh, mutated};
use crate::state::*;
use crate::store::Verdict;
use std::collections::BTreeMap;
use tenure_store::conformance::World;
use tenure_store::mutation::{Mutation, Mutations};

/// A small generator, so that a failing walk repeats.
pub struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed + 1) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        dice
    }

    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % below as u64) as usize
    }
}

/// What a real store cannot be made to do is left out: its clock does not lie.
const KINDS: &[Trouble] = &[
    Trouble::Interrupts,
    Trouble::Crashes,
    Trouble::Pauses,
    Trouble::Suspicions,
    Trouble::Drains,
    Trouble::Delays,
];

const LENGTH: usize = 60;
const WALKS: u64 = 150;

fn model() -> Model {
    Model {
        rules: Rules::PROTOCOL,
        left: Left {
            inputs: 12,
            troubles: 12,
        },
        kinds: KINDS,
        max_attempts: 2,
    }
}

/// Something the protocol would not do by itself: to be refused by both, mostly.
fn probe(state: &State, dice: &mut Dice) -> Option<Action> {
    let n = dice.roll(NODES) as u8;
    let node = &state.nodes[usize::from(n)];
    let waits = node.flight.is_some_and(|flight| flight.awaited);
    if node.process != Process::Runs || waits {
        return None;
    }
    let Some(memory) = node.memory else {
        return Some(match dice.roll(3) {
            0 => Action::Acquire(n),
            1 => Action::Adopt(n),
            _ => Action::Renew(n),
        });
    };
    let writes = [
        Write::Begin,
        Write::StartStep,
        Write::EndStep,
        Write::Finish,
        Write::Interrupted,
        Write::HandOver { to: None },
    ];
    // What a deposed owner may think of, it may send.
    (!memory.fence.tenure).then(|| Action::Append(n, writes[dice.roll(writes.len())]))
}

/// A node sends what it saw: nothing is promoted that was not there.
fn sends_blindly(state: &State, action: Action) -> bool {
    matches!(
        action,
        Action::Send(_, Write::Begin | Write::Promote { own: false }) if state.head.pending == 0
    )
}

/// Any action, but seldom one that is refused; trouble when there is something to trouble.
fn pick(model: &Model, state: &State, actions: &[Action], dice: &mut Dice) -> Action {
    let busy = state.head.turn.execution;
    loop {
        let action = actions[dice.roll(actions.len())];
        let refused = model.step(state, action).0 == *state;
        let patience = match action {
            _ if refused => 12,
            Action::Admit if state.head.pending > 1 => 12,
            Action::Interrupt if busy => 2,
            Action::Admit | Action::Drain(_) => 3,
            _ if !action.is_trouble() => 1,
            _ if busy => 5,
            _ => 25,
        };
        if dice.roll(patience) == 0 {
            return action;
        }
    }
}

/// Walks both; what differs first, with the way there.
async fn walk(world: &World, seed: u64, seen: &mut BTreeMap<String, u32>) -> Result<(), String> {
    let model = model();
    let mut dice = Dice::new(seed);
    let mut state = model.first();
    let mut real = Real::new(world).await;
    let mut told = format!("seed {seed}\n");
    for _ in 0..LENGTH {
        let actions = model.actions(&state);
        let probed = (dice.roll(6) == 0)
            .then(|| probe(&state, &mut dice))
            .flatten();
        let action = probed.unwrap_or_else(|| pick(&model, &state, &actions, &mut dice));
        if sends_blindly(&state, action) {
            continue;
        }
        let (next, expected) = model.step(&state, action);
        assert_eq!(next.facts.violation, None, "{told}{action:?}");
        let answer = real.act(&state, &next, action, expected).await;
        told += &format!("{action:?} -> {expected:?}\n     {next}\n");
        *seen.entry(format!("{expected:?}")).or_default() += 1;
        if answer != expected {
            return Err(format!("{told}     the store answered {answer:?}"));
        }
        real.compare(&next)
            .await
            .map_err(|differs| format!("{told}     {differs}"))?;
        state = next;
    }
    real.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_and_store_agree() {
    let world = World::new(fresh());
    let mut seen = BTreeMap::new();
    for seed in 0..WALKS {
        if let Err(differs) = walk(&world, seed, &mut seen).await {
            panic!("{differs}");
        }
    }
    println!("{WALKS} walks of {LENGTH} actions: {seen:?}");
    for verdict in [
        Verdict::Done,
        Verdict::StaleClaim,
        Verdict::Cancelling,
        Verdict::InboxChanged,
        Verdict::NotIdle,
        Verdict::Held,
        Verdict::Quarantined,
        Verdict::Idle,
        Verdict::NotAllowed,
        Verdict::Accepted,
        Verdict::StoppedBeforeStart,
        Verdict::Dead,
    ] {
        assert!(
            seen.contains_key(&format!("{verdict:?}")),
            "{verdict:?} never came up"
        );
    }
}

/// A store with a broken rule does not agree with the model: the comparison can fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_store_is_noticed() {
    use Mutation as M;
    let broken = [
        M::ResolveKeepsWriteNo,
        M::NoGuardCancelling,
        M::ReleaseIgnoresInbox,
        M::LeaveClearsCancelling,
        M::NoPark,
        M::NoCharge,
        M::TakeoverOfLive,
        M::TakeoverKeepsEpoch,
        M::TakeoverForgetsPhase,
        M::AdoptKeepsEpoch,
        M::AdoptCharges,
        M::RenewWhenDead,
        M::AcquireWhenDraining,
        M::HandOverUntested,
        M::HandOverKeepsEpoch,
        M::StaleInterrupt,
    ];
    let mut blind = Vec::new();
    for mutation in broken {
        let world = World::new(mutated(Mutations::only(mutation)));
        let mut noticed = None;
        for seed in 0..80 {
            if walk(&world, seed, &mut BTreeMap::new()).await.is_err() {
                noticed = Some(seed);
                break;
            }
        }
        println!("{}: noticed by walk {noticed:?}", mutation.name());
        if noticed.is_none() {
            blind.push(mutation.name());
        }
    }
    assert_eq!(blind, [""; 0]);
}
