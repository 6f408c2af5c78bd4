//! One seed from its beginning to its verdict.

use super::clients::Clients;
use super::executor::{Micros, Step};
use super::judge::{Logs, judge, unrest};
use super::ledger::Violation;
use super::plan::Plan;
use super::stranded::Stranded;
use super::world::World;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::event::EventRecord;
use tenure_store::mutation::Mutations;

/// Within this time after the last fault everything must be at rest.
const REST_WITHIN: Micros = 240_000_000;
/// How often somebody looks whether all is well, or at rest.
const LOOK_EVERY: Micros = 500_000;
/// A run of more polls than this does not come to an end.
const MOST_POLLS: u64 = 3_000_000;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Broken promises; none in a good run.
    pub violations: Vec<Violation>,
    /// The exported logs.
    pub logs: Logs,
    /// What happened, with the time.
    pub notes: Vec<(Micros, String)>,
    /// Numbers for the summary.
    pub counts: BTreeMap<&'static str, u64>,
    /// Tasks polled.
    pub polls: u64,
    /// The time at the end.
    pub took: Micros,
}

impl Outcome {
    /// The exported logs as text, a line for each event.
    pub fn export(&self) -> String {
        let mut text = String::new();
        for events in self.logs.values() {
            for event in events {
                let record = EventRecord::from(event);
                text.push_str(&serde_json::to_string(&record).unwrap_or_default());
                text.push('\n');
            }
        }
        text
    }
}

/// Runs a plan.
pub fn run(plan: &Plan, mutations: &Mutations) -> Outcome {
    let world = World::new(plan.clone(), mutations.clone());
    let clients = Clients::new(world.clone());
    world.begin();
    clients.begin();
    let restless = drive(&world, &clients);
    if let Some(why) = restless {
        world.ledger.violated("P7", why);
    }
    clients.end();
    let (logs, violations) = judge(&world, &clients);
    let outcome = Outcome {
        violations,
        logs,
        notes: world.ledger.notes(),
        counts: world.ledger.counts(),
        polls: world.executor.polls(),
        took: world.executor.now(),
    };
    world.end();
    outcome
}

/// Lets the plan happen, heals everything, and waits for rest. Why there is none, if so.
fn drive(world: &Arc<World>, clients: &Arc<Clients>) -> Option<String> {
    let horizon = world.plan.horizon();
    let mut stranded = Stranded::default();
    let mut next = 0;
    while next < horizon {
        next = horizon.min(next + LOOK_EVERY);
        if let Some(stuck) = until(world, next) {
            return Some(stuck);
        }
        stranded.look(world);
    }
    world.heal();
    let mut next = world.executor.now();
    loop {
        next += LOOK_EVERY;
        if let Some(stuck) = until(world, next) {
            return Some(stuck);
        }
        stranded.look(world);
        match unrest(world, clients) {
            None => return None,
            Some(why) if next > horizon + REST_WITHIN => {
                return Some(format!(
                    "not at rest {} s after the last fault: {why}",
                    REST_WITHIN / 1_000_000
                ));
            }
            Some(_) => {}
        }
    }
}

/// Steps until the time has come. Words when it never does.
fn until(world: &World, at: Micros) -> Option<String> {
    while world.executor.now() < at {
        if world.executor.step() == Step::Stuck {
            return Some("nothing is left to happen".to_owned());
        }
        if world.executor.polls() > MOST_POLLS {
            return Some(format!("{MOST_POLLS} polls and no end: something spins"));
        }
    }
    None
}
