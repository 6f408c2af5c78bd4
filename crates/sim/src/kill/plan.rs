//! What is done to one point: when its processes are killed, what else happens, who finishes. A function of the seed.

use crate::chance::Chance;
use std::time::Duration;

/// One SIGKILL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killing {
    /// After so many durable events were seen from this process.
    pub after_events: u64,
    /// And then so much later.
    pub delay: Duration,
}

/// How a session is gone on with after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `tenure resume SESSION`.
    Resume,
    /// `tenure run --session SESSION` with another prompt.
    Run,
}

/// One point of a kill run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its number in the run.
    pub number: u64,
    /// The seed of the run.
    pub seed: u64,
    /// The wire form.
    pub protocol: &'static str,
    /// One for each process that is killed; the one after them runs to its end.
    pub kills: Vec<Killing>,
    /// How each later process goes on.
    pub ways: Vec<Way>,
    /// A second prompt is admitted after so many events of the first process.
    pub prompt_after: Option<u64>,
}

impl Plan {
    /// The plan of point `number`. `length`: durable events of the undisturbed task; `spoken`: what can be spoken,
    /// taken in turns, so that a short run goes through all of it.
    pub fn of(seed: u64, number: u64, length: u64, spoken: &[&'static str]) -> Self {
        let mut chance = Chance::of(seed, number);
        let protocol = spoken[(seed.wrapping_add(number) % spoken.len() as u64) as usize];
        let kills = kills(&mut chance, length);
        let mut ways = Vec::new();
        for _ in 0..=kills.len() {
            ways.push(if chance.percent(70) {
                Way::Resume
            } else {
                Way::Run
            });
        }
        let prompt_after = chance.percent(30).then(|| 3 + chance.below(length - 3));
        Self {
            number,
            seed,
            protocol,
            kills,
            ways,
            prompt_after,
        }
    }

    /// Nothing is done to it.
    pub fn undisturbed(protocol: &'static str) -> Self {
        Self {
            number: 0,
            seed: 0,
            protocol,
            kills: Vec::new(),
            ways: vec![Way::Resume],
            prompt_after: None,
        }
    }
}

/// One kill anywhere in the task, three times in ten followed by one or two more. One point in ten is killed while
/// it starts, and one in ten again and again before it gets anywhere, until it is set aside (R8).
fn kills(chance: &mut Chance, length: u64) -> Vec<Killing> {
    match chance.below(10) {
        0 => vec![Killing {
            after_events: 0,
            delay: Duration::from_micros(chance.below(60_000)),
        }],
        1 => {
            let few = 3 + chance.below(3);
            let early = |chance: &mut Chance| Killing {
                after_events: 5 + chance.below(10),
                delay: delay(chance),
            };
            (0..few).map(|_| early(chance)).collect()
        }
        _ => {
            let more = if chance.percent(30) {
                1 + chance.below(2)
            } else {
                0
            };
            let mut kills = vec![Killing {
                after_events: chance.below(length + 2),
                delay: delay(chance),
            }];
            for _ in 0..more {
                kills.push(Killing {
                    after_events: chance.below(length / 3),
                    delay: delay(chance),
                });
            }
            kills
        }
    }
}

/// At once, within 5 ms, or within 30 ms: windows between commits are short, tools and streams longer.
fn delay(chance: &mut Chance) -> Duration {
    let micros = match chance.below(3) {
        0 => 0,
        1 => chance.below(5_000),
        _ => chance.below(30_000),
    };
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::PROTOCOLS;

    #[test]
    fn plans_depend_on_seed_and_number_only_and_reach_the_whole_task() {
        let of = |number| Plan::of(7, number, 200, &PROTOCOLS);
        assert_eq!(of(3), of(3));
        let plans: Vec<Plan> = (0..300).map(of).collect();
        let firsts: Vec<u64> = plans
            .iter()
            .map(|plan| plan.kills[0].after_events)
            .collect();
        assert!(firsts.iter().any(|after| *after < 10) && firsts.iter().any(|after| *after > 190));
        assert!(plans.iter().any(|plan| plan.kills.len() > 3));
        assert!(plans.iter().all(|plan| plan.ways.len() > plan.kills.len()));
        for five in plans.chunks(PROTOCOLS.len()) {
            let all = PROTOCOLS.iter();
            let mut all = all.map(|p| five.iter().any(|plan| plan.protocol == *p));
            assert!(all.all(|spoken| spoken));
        }
    }
}
