//! Makes a failing plan small: leaves out what the failure does not need, one part after the other.

use super::plan::Plan;
use super::run::{Outcome, run};
use tenure_store::mutation::Mutations;

/// Runs a shrink may take.
const MOST_RUNS: usize = 300;

/// The smallest plan found that breaks the same promise, with its outcome.
pub fn shrink(plan: &Plan, outcome: Outcome, mutations: &Mutations) -> (Plan, Outcome) {
    let promise = outcome.violations.first().map(|v| v.promise.clone());
    let (mut best, mut shown) = (plan.clone(), outcome);
    let mut runs = 0;
    loop {
        let mut smaller = None;
        for candidate in candidates(&best) {
            runs += 1;
            if runs > MOST_RUNS {
                return (best, shown);
            }
            let outcome = run(&candidate, mutations);
            let same = outcome.violations.first().map(|v| v.promise.clone()) == promise;
            if same {
                smaller = Some((candidate, outcome));
                break;
            }
        }
        match smaller {
            Some(found) => (best, shown) = found,
            None => return (best, shown),
        }
    }
}

/// The plan with one part less, the biggest parts first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    for fault in 0..plan.faults.len() {
        let mut less = plan.clone();
        less.faults.remove(fault);
        all.push(less);
    }
    for action in 0..plan.actions.len() {
        let mut less = plan.clone();
        less.actions.remove(action);
        all.push(less);
    }
    if plan.readers > 0 {
        let mut less = plan.clone();
        less.readers -= 1;
        all.push(less);
    }
    let mut model = plan.clone();
    (model.model.refusals, model.model.cuts) = (0, 0);
    if (plan.model.refusals, plan.model.cuts) != (0, 0) {
        all.push(model);
    }
    if plan.sessions > 1 {
        let mut less = plan.clone();
        less.sessions -= 1;
        let last = less.sessions;
        less.actions.retain(|action| action.session < last);
        all.push(less);
    }
    all
}
