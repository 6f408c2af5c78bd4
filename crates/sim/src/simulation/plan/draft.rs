//! What happens in a run of no special story: actions of clients and faults, drawn one by one.

use super::{Action, ActionKind, Fault, FaultKind, ModelPlan, SECOND, Scenario, When, Which};
use crate::chance::Chance;
use crate::simulation::executor::Micros;
use crate::simulation::network::CommitFault;
use crate::simulation::provider::SPOKEN;

/// A plan being drawn.
pub(super) struct Draft {
    pub(super) chance: Chance,
    pub(super) scenario: Scenario,
}

impl Draft {
    pub(super) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.chance.below(to - from + 1)
    }

    pub(super) fn model(&mut self, seed: u64) -> ModelPlan {
        let rough = self.chance.percent(40);
        let protocol = SPOKEN[self.chance.below(SPOKEN.len() as u64) as usize];
        let mut model = ModelPlan {
            seed,
            protocol,
            refusals: if rough { 15 } else { 2 },
            cuts: if rough { 15 } else { 2 },
            fatal: u64::from(rough),
            calls: self.within(30, 70),
            asks: 10,
            inside: 8,
            deaf: 0,
            validated: 25,
            first_byte: 1 + self.within(1, 600) * 1_000,
            delta: 1 + self.within(1, 300) * 1_000,
            work_ms: 1 + self.within(1, 4_000),
            talk: 4,
        };
        self.suit(&mut model);
        model
    }

    /// A model that brings about what the scenario is about.
    fn suit(&mut self, model: &mut ModelPlan) {
        match self.scenario {
            Scenario::Drains => model.asks = self.within(10, 60),
            // Work that outlasts a lease: the model's, or the calls'.
            Scenario::Silence => {
                model.asks = 2;
                if self.chance.percent(50) {
                    model.first_byte = self.within(1, 9) * SECOND;
                    model.delta = self.within(100, 3_000) * 1_000;
                    model.work_ms = self.within(4_000, 20_000);
                    model.inside = 30;
                } else {
                    model.first_byte = self.within(20, 300) * 1_000;
                    model.delta = self.within(1, 100) * 1_000;
                    model.work_ms = self.within(10_000, 18_000);
                    model.calls = 80;
                    model.inside = 70;
                }
            }
            // A new owner that is at its first call long before the lease of the one before is over.
            Scenario::Orphans => {
                (model.refusals, model.cuts, model.fatal) = (0, 0, 0);
                model.first_byte = self.within(5, 100) * 1_000;
                model.delta = self.within(1, 30) * 1_000;
                model.work_ms = self.within(1_000, 9_000);
                model.calls = 90;
                (model.inside, model.asks) = (0, 2);
            }
            Scenario::Rests => {
                model.fatal = 35;
                model.calls = self.within(10, 40);
            }
            // Long texts: for a slow reader now and then longer than any buffer on the way.
            Scenario::Relays => {
                model.calls = self.within(10, 50);
                model.asks = 2;
                model.first_byte = self.within(5, 100) * 1_000;
                model.work_ms = self.within(100, 2_000);
                (model.talk, model.delta) = match self.chance.percent(8) {
                    true => (700, 1 + self.within(1, 4) * 1_000),
                    false => (self.within(5, 40), 1 + self.within(5, 150) * 1_000),
                };
            }
            Scenario::Places => {
                model.calls = self.within(60, 90);
                model.inside = 25;
            }
            _ => {}
        }
    }

    /// What clients do, and what goes wrong.
    pub(super) fn events(&mut self, nodes: usize, sessions: usize) -> (Vec<Action>, Vec<Fault>) {
        match self.scenario {
            Scenario::Edges => self.edges(nodes, sessions),
            Scenario::Silence => self.silence(nodes, sessions),
            Scenario::Orphans => self.orphans(nodes),
            Scenario::Rests => self.rests(nodes),
            Scenario::Places => self.places(nodes, sessions),
            Scenario::Relays => self.relays(nodes, sessions),
            _ => {
                let actions = self.actions(sessions);
                (actions, self.faults(nodes))
            }
        }
    }

    pub(super) fn when(&mut self, horizon: Micros, commits: u64) -> When {
        if self.chance.percent(60) {
            When::Commit(1 + self.chance.below(commits))
        } else {
            When::At(self.chance.below(horizon))
        }
    }

    /// A prompt for each session.
    pub(super) fn prompts(&mut self, sessions: usize) -> Vec<Action> {
        let prompt = |session| Action {
            when: When::At(self.chance.below(SECOND)),
            session,
            kind: ActionKind::Admit { queue: false },
        };
        (0..sessions).map(prompt).collect()
    }

    pub(super) fn actions(&mut self, sessions: usize) -> Vec<Action> {
        let mut actions = self.prompts(sessions);
        let more = match self.scenario {
            Scenario::Interrupts => self.within(1, 5),
            Scenario::Drains => self.within(2, 8),
            _ => self.within(1, 7),
        };
        for _ in 0..more {
            let session = self.chance.below(sessions as u64) as usize;
            let when = self.when(8 * SECOND, 90);
            let kind = self.action();
            actions.push(Action {
                when,
                session,
                kind,
            });
        }
        actions
    }

    pub(super) fn action(&mut self) -> ActionKind {
        use ActionKind as A;
        let interrupts = match self.scenario {
            Scenario::Interrupts => 60,
            Scenario::Mixed => 20,
            _ => 10,
        };
        if self.chance.percent(interrupts) {
            return A::Interrupt {
                named: self.chance.percent(40),
            };
        }
        match self.chance.below(21) {
            0..=8 => A::Admit { queue: false },
            9..=11 => A::Admit { queue: true },
            12 => A::CancelInput,
            13 => A::Unpark,
            14 => A::Compact,
            15 => A::Move,
            16 => A::Rename,
            17 => A::Fork,
            18 => A::Delete,
            19 => A::Import,
            _ => A::Release,
        }
    }

    pub(super) fn faults(&mut self, nodes: usize) -> Vec<Fault> {
        let count = match self.scenario {
            Scenario::Interrupts => self.within(0, 2),
            Scenario::Drains => self.within(nodes as u64, nodes as u64 + 2),
            _ => self.within(0, 5),
        };
        let mut faults = Vec::new();
        for n in 0..count {
            let (when, node) = if self.chance.percent(50) {
                let when = When::Commit(1 + self.chance.below(110));
                let actor = self.chance.percent(75);
                (
                    when,
                    if actor {
                        Which::Actor
                    } else {
                        self.node(nodes)
                    },
                )
            } else {
                (When::At(self.chance.below(10 * SECOND)), self.node(nodes))
            };
            let kind = self.fault();
            let fault = match (self.scenario, n < nodes as u64) {
                (Scenario::Drains, true) => Fault {
                    when: When::At((2 + 3 * n) * SECOND + self.chance.below(2 * SECOND)),
                    node: Which::Node(n as usize),
                    kind: FaultKind::Drain {
                        back: self.chance.below(3 * SECOND),
                    },
                },
                _ => Fault { when, node, kind },
            };
            faults.push(fault);
        }
        if self.scenario == Scenario::Drains {
            self.drains_that_meet(nodes, &mut faults);
        }
        faults
    }

    pub(super) fn node(&mut self, nodes: usize) -> Which {
        Which::Node(self.chance.below(nodes as u64) as usize)
    }

    /// A short time mostly, a long one now and then.
    pub(super) fn lasts(&mut self) -> Micros {
        match self.chance.below(10) {
            0..=4 => self.within(100, 2_000) * 1_000,
            5..=8 => self.within(2, 12) * SECOND,
            _ => self.within(12, 60) * SECOND,
        }
    }

    pub(super) fn fault(&mut self) -> FaultKind {
        use FaultKind as F;
        let lasts = self.lasts();
        let kind = self.chance.below(100);
        let crash = |chance: &mut Chance| F::Crash {
            noticed: chance.percent(70),
            lingers: false,
            back: chance.below(15 * SECOND),
        };
        match self.scenario {
            Scenario::Crashes if kind < 70 => return crash(&mut self.chance),
            Scenario::Outages if kind < 25 => {
                let long = self.chance.percent(5);
                return F::StoreOut(if long { 300 * SECOND } else { lasts });
            }
            Scenario::Outages if kind < 60 => return F::Commit(self.commit_fault()),
            Scenario::Outages if kind < 70 => return F::StoreFull(lasts),
            Scenario::Outages if kind < 80 => {
                let by = self.within(10, 2_000) * 1_000;
                return F::SlowStore { by, lasts };
            }
            _ => {}
        }
        match self.chance.below(20) {
            0..=3 => crash(&mut self.chance),
            4..=6 => F::Pause(lasts),
            7 => F::Drain {
                back: self.chance.below(5 * SECOND),
            },
            8..=9 => F::Cut(lasts),
            10 => F::Slow {
                by: self.within(10, 2_000) * 1_000,
                lasts,
            },
            11 => F::LateAnswers {
                by: self.within(10, 3_900) * 1_000,
                lasts,
            },
            12..=13 => F::Commit(self.commit_fault()),
            14 => F::HookPanics,
            15 => F::Deaf(lasts),
            16 => F::LateHints {
                by: self.within(1, 10) * SECOND,
                lasts,
            },
            17 => {
                let day = 86_400_000;
                F::WallJump(self.chance.below(2 * day) as i64 - day as i64)
            }
            18 => F::StoreOut(lasts),
            _ => F::DatabaseJump(self.chance.below(86_400_000) as i64),
        }
    }

    pub(super) fn commit_fault(&mut self) -> CommitFault {
        match self.chance.below(3) {
            0 => CommitFault::Lost,
            1 => CommitFault::AnswerLost,
            _ => CommitFault::Late(self.within(4, 20) * SECOND),
        }
    }
}
