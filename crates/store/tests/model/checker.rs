//! A breadth-first checker: every reachable state, the shortest way to a bad one, and from which states the
//! session can no longer come to rest.
//!
//! `stateright` was weighed and left: what liveness needs here is "from every reachable state, with no
//! further trouble, rest can be reached", a search backwards over the whole graph. Its properties are judged
//! along forward paths, and `eventually` is not judged on cycles, of which renewals and retries make many.

use crate::nodes::{Action, Model};
use crate::state::{State, Violation};
use crate::store::Verdict;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{BuildHasherDefault, Hasher};

/// States are small and trusted: a multiply-and-rotate hash, for speed in unoptimised builds.
#[derive(Default)]
struct Quick(u64);

impl Quick {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }
    fn write_u8(&mut self, byte: u8) {
        self.mix(u64::from(byte));
    }
    fn write_isize(&mut self, word: isize) {
        self.mix(word as u64);
    }
}

type Known = HashMap<State, u32, BuildHasherDefault<Quick>>;

/// Every state that was reached.
pub struct Explored {
    pub states: Vec<State>,
    /// How each was reached first: from which, by what, in the canonical naming of nodes.
    from: Vec<Option<(u32, Action)>>,
    /// Steps that need no further trouble, as (to, from).
    healing: Vec<(u32, u32)>,
    pub transitions: u64,
    pub violated: Option<(u32, Violation)>,
    pub longest: u32,
}

/// Visits all states, or those up to the first violation. `graph`: keep what [`Explored::stranded`] needs.
pub fn explore(model: &Model, graph: bool) -> Explored {
    explore_for(model, graph, |_| true)
}

/// As [`explore`], going on past other violations than those looked for as if nothing were wrong.
pub fn explore_for(model: &Model, graph: bool, wanted: fn(Violation) -> bool) -> Explored {
    let first = model.first().canonical();
    let mut known = Known::default();
    known.insert(first, 0);
    let mut explored = Explored {
        states: vec![first],
        from: vec![None],
        healing: Vec::new(),
        transitions: 0,
        violated: None,
        longest: 0,
    };
    let mut depth = vec![0_u32];
    let mut at = 0;
    while at < explored.states.len() {
        let state = explored.states[at];
        let here = at as u32;
        for action in model.actions(&state) {
            let (mut next, _) = model.step(&state, action);
            next.facts.violation = next.facts.violation.filter(|found| wanted(*found));
            if next == state {
                continue;
            }
            explored.transitions += 1;
            let next = next.canonical();
            let new = explored.states.len() as u32;
            let id = *known.entry(next).or_insert(new);
            if id == new {
                explored.states.push(next);
                explored.from.push(Some((here, action)));
                depth.push(depth[at] + 1);
                explored.longest = explored.longest.max(depth[at] + 1);
                if let Some(violation) = next.facts.violation {
                    explored.violated = Some((id, violation));
                    return explored;
                }
            }
            if graph && !action.is_trouble() && id != here {
                explored.healing.push((id, here));
            }
        }
        at += 1;
    }
    explored
}

impl Explored {
    /// A state from which rest cannot be reached any more without further trouble; the nearest one.
    pub fn stranded(&self) -> Option<u32> {
        let count = self.states.len();
        let mut starts = vec![0_u32; count + 1];
        for (to, _) in &self.healing {
            starts[*to as usize + 1] += 1;
        }
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut sorted = vec![0_u32; self.healing.len()];
        let mut fill = starts.clone();
        for (to, from) in &self.healing {
            sorted[fill[*to as usize] as usize] = *from;
            fill[*to as usize] += 1;
        }
        let mut fine = vec![false; count];
        let mut queue: Vec<u32> = (0..count as u32)
            .filter(|i| self.states[*i as usize].settled())
            .collect();
        for i in &queue {
            fine[*i as usize] = true;
        }
        while let Some(to) = queue.pop() {
            let to = to as usize;
            for from in &sorted[starts[to] as usize..starts[to + 1] as usize] {
                if !std::mem::replace(&mut fine[*from as usize], true) {
                    queue.push(*from);
                }
            }
        }
        fine.iter().position(|fine| !fine).map(|i| i as u32)
    }

    /// The shortest run to `target`, with names of nodes that stay the same from line to line.
    pub fn run_to(&self, model: &Model, target: u32) -> Vec<(Action, Verdict, State)> {
        let mut path = vec![target];
        while let Some((from, _)) = self.from[path[path.len() - 1] as usize] {
            path.push(from);
        }
        path.reverse();
        let mut state = model.first();
        let mut run = Vec::new();
        for id in &path[1..] {
            let wanted = self.states[*id as usize];
            let step = model.actions(&state).into_iter().find_map(|action| {
                let (next, verdict) = model.step(&state, action);
                (next.canonical() == wanted).then_some((action, verdict, next))
            });
            let Some(step) = step else { break };
            state = step.2;
            run.push(step);
        }
        run
    }
}

/// A run in words, one line for each action.
pub fn print_run(run: &[(Action, Verdict, State)]) -> String {
    let mut text = String::new();
    for (i, (action, verdict, state)) in run.iter().enumerate() {
        let _ = writeln!(text, "{:3}. {action:?} -> {verdict:?}\n     {state}", i + 1);
        if let Some(violation) = state.facts.violation {
            let _ = writeln!(text, "     VIOLATION: {violation:?}");
        }
    }
    text
}
