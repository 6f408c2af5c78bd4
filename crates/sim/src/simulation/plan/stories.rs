//! Stories: plans in which the parts meet on purpose, with chance in when and how closely they do.

use super::draft::Draft;
use super::{Action, ActionKind, Fault, FaultKind, SECOND, When, Which};
use crate::simulation::network::CommitFault;

impl Draft {
    /// Meetings at the edge: each of a write that is resolved and then arrives, and of what happens meanwhile.
    pub(super) fn edges(&mut self, nodes: usize, sessions: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(sessions);
        let mut faults = Vec::new();
        for _ in 0..self.within(1, 2) {
            let commit = self.within(5, 60);
            faults.push(Fault {
                when: When::Commit(commit),
                node: Which::Actor,
                kind: FaultKind::Commit(self.edge_of_a_commit()),
            });
            let later = When::After(commit, self.chance.below(6 * SECOND));
            match self.chance.below(10) {
                0..=5 => actions.push(Action {
                    when: later,
                    session: self.chance.below(sessions as u64) as usize,
                    kind: ActionKind::Interrupt { named: false },
                }),
                6..=7 => faults.push(Fault {
                    when: later,
                    node: self.node(nodes),
                    kind: FaultKind::Drain { back: SECOND },
                }),
                _ => {}
            }
        }
        // A few round trips behind a commit: perhaps just when the owner has looked and lets go.
        for _ in 0..self.within(1, 5) {
            actions.push(Action {
                when: When::After(self.within(8, 80), self.chance.below(3_000)),
                session: self.chance.below(sessions as u64) as usize,
                kind: ActionKind::Admit {
                    queue: self.chance.percent(30),
                },
            });
        }
        if self.chance.percent(40) {
            actions.push(Action {
                when: When::After(self.within(8, 60), self.chance.below(3_000)),
                session: 0,
                kind: ActionKind::CancelInput,
            });
        }
        if self.chance.percent(20) {
            actions.push(Action {
                when: When::At(self.chance.below(4 * SECOND)),
                session: 0,
                kind: ActionKind::Import,
            });
        }
        if self.chance.percent(20) {
            faults.push(Fault {
                when: When::Commit(self.within(4, 40)),
                node: Which::Actor,
                kind: FaultKind::HookPanics,
            });
        }
        if self.chance.percent(50) {
            faults.push(self.strange_link(nodes));
        }
        if self.chance.percent(30) {
            self.taking_unheard(nodes, sessions, &mut faults);
        }
        (actions, faults)
    }

    fn edge_of_a_commit(&mut self) -> CommitFault {
        match self.chance.below(10) {
            0..=5 => CommitFault::Behind,
            6..=7 => CommitFault::Unresolved,
            _ => self.commit_fault(),
        }
    }

    /// A link or a clock that is wrong without being down.
    fn strange_link(&mut self, nodes: usize) -> Fault {
        let kind = match self.chance.below(5) {
            0 => FaultKind::Mute(self.within(1, 20) * SECOND),
            1 => FaultKind::DatabaseJump(-(self.chance.below(60_000) as i64)),
            // Renewals are slow, and the node is alive.
            2 => FaultKind::Slow {
                by: self.within(500, 2_000) * 1_000,
                lasts: self.within(2, 12) * SECOND,
            },
            3 => FaultKind::LateAnswers {
                by: self.within(500, 3_900) * 1_000,
                lasts: self.within(2, 12) * SECOND,
            },
            _ => FaultKind::LateHints {
                by: self.within(1, 10) * SECOND,
                lasts: self.within(2, 12) * SECOND,
            },
        };
        Fault {
            when: When::At(self.chance.below(8 * SECOND)),
            node: self.node(nodes),
            kind,
        }
    }

    /// Whoever takes a session first is not told that it has it.
    fn taking_unheard(&mut self, nodes: usize, sessions: usize, faults: &mut Vec<Fault>) {
        // Each session is made and prompted by a commit each.
        let commit = self.within(2, 2 * sessions as u64);
        faults.extend((0..nodes).map(|node| Fault {
            when: When::Commit(commit),
            node: Which::Node(node),
            kind: FaultKind::Commit(CommitFault::AnswerLost),
        }));
    }

    /// Nodes that leave while others leave or die.
    pub(super) fn drains_that_meet(&mut self, nodes: usize, faults: &mut Vec<Fault>) {
        let first = faults.iter().find_map(|fault| match fault.when {
            When::At(at) => Some(at),
            _ => None,
        });
        if let Some(at) = first
            && self.chance.percent(50)
        {
            let kind = if self.chance.percent(75) {
                FaultKind::Drain {
                    back: self.chance.below(3 * SECOND),
                }
            } else {
                FaultKind::Crash {
                    noticed: true,
                    lingers: false,
                    back: self.chance.below(5 * SECOND),
                }
            };
            faults.push(Fault {
                when: When::At(at + self.chance.below(800_000)),
                node: Which::Node((1 + self.chance.below(nodes as u64 - 1)) as usize),
                kind,
            });
        }
        if self.chance.percent(50) {
            self.leaving_as_it_takes(nodes, faults);
        }
    }

    /// What a node asks for when it is active arrives when it is not any more.
    fn leaving_as_it_takes(&mut self, nodes: usize, faults: &mut Vec<Fault>) {
        let (commit, held) = (self.within(2, 8), self.within(20, 1_500) * 1_000);
        faults.extend((0..nodes).map(|node| Fault {
            when: When::Commit(commit),
            node: Which::Node(node),
            kind: FaultKind::Commit(CommitFault::Late(held)),
        }));
        let back = self.within(1, 3) * SECOND;
        faults.push(Fault {
            when: When::After(commit, 3_000 + self.chance.below(held)),
            node: self.node(nodes),
            kind: FaultKind::Drain { back },
        });
    }

    /// An owner at long work that the database does not hear, or that hears too late that its lease is good.
    pub(super) fn silence(&mut self, nodes: usize, sessions: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(sessions);
        let mut faults = Vec::new();
        for _ in 0..self.within(1, 2) {
            let commit = self.within(4, 30);
            let lasts = self.within(8, 20) * SECOND;
            let fault = |when, kind| Fault {
                when,
                node: Which::Actor,
                kind,
            };
            match self.chance.below(10) {
                0..=3 => faults.push(fault(When::Commit(commit), FaultKind::Cut(lasts))),
                4..=5 => faults.push(fault(When::Commit(commit), FaultKind::Pause(lasts))),
                _ => {
                    let by = self.within(2_500, 3_900) * 1_000;
                    let late = FaultKind::LateAnswers { by, lasts };
                    let cut = When::After(commit, self.chance.below(8 * SECOND));
                    faults.push(fault(When::Commit(commit), late));
                    faults.push(fault(cut, FaultKind::Cut(lasts)));
                }
            }
        }
        for _ in 0..self.chance.below(3) {
            actions.push(Action {
                when: self.when(20 * SECOND, 60),
                session: self.chance.below(sessions as u64) as usize,
                kind: ActionKind::Admit { queue: false },
            });
        }
        if self.chance.percent(20) {
            faults.push(self.strange_link(nodes));
        }
        (actions, faults)
    }

    /// An owner dies at work, and what it had started lives on; what its successors may do meanwhile.
    pub(super) fn orphans(&mut self, nodes: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(1);
        let commit = self.within(6, 26);
        let crash = |draft: &mut Self, when, node| Fault {
            when,
            node,
            kind: FaultKind::Crash {
                noticed: draft.chance.percent(85),
                lingers: true,
                back: draft.chance.below(8 * SECOND),
            },
        };
        let mut faults = vec![crash(self, When::Commit(commit), Which::Actor)];
        // The database's clock is set right while its leases run: by seconds, or by anything up to a day.
        if self.chance.percent(30) {
            let ahead = match self.chance.percent(50) {
                true => self.within(1_000, 12_000),
                false => self.chance.below(86_400_000),
            };
            faults.push(Fault {
                when: When::After(commit, self.chance.below(4 * SECOND)),
                node: Which::Actor,
                kind: FaultKind::DatabaseJump(ahead as i64),
            });
        }
        // Let go and taken again before the first one's lease is over.
        if self.chance.percent(70) {
            let stopped = self.within(30, 1_500) * 1_000;
            actions.push(Action {
                when: When::After(commit, stopped),
                session: 0,
                kind: ActionKind::Interrupt { named: false },
            });
            actions.push(Action {
                when: When::After(commit, stopped + self.within(1, 1_200) * 1_000),
                session: 0,
                kind: ActionKind::Admit { queue: false },
            });
        }
        let later = When::After(commit, self.within(200, 2_500) * 1_000);
        match self.chance.below(10) {
            0..=1 => {
                let back = self.chance.below(3 * SECOND);
                faults.push(Fault {
                    when: later,
                    node: self.node(nodes),
                    kind: FaultKind::Drain { back },
                });
            }
            2..=3 => {
                let node = self.node(nodes);
                faults.push(crash(self, later, node));
            }
            _ => {}
        }
        (actions, faults)
    }

    /// A call is stopped, and its command goes on: its guardian is stopped, too. Its node dies behind the settlement and
    /// comes back, and the session goes on, there or elsewhere.
    pub(super) fn deaf(&mut self) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(1);
        let commit = self.within(6, 26);
        let stopped = self.within(30, 1_500) * 1_000;
        let dies = stopped + self.within(20, 2_000) * 1_000;
        let act = |later, kind| Action {
            when: When::After(commit, later),
            session: 0,
            kind,
        };
        actions.push(act(stopped, ActionKind::Interrupt { named: false }));
        for _ in 0..self.within(1, 3) {
            let again = dies + self.within(1, 12_000) * 1_000;
            actions.push(act(again, ActionKind::Admit { queue: false }));
        }
        let crash = Fault {
            when: When::After(commit, dies),
            node: Which::Actor,
            kind: FaultKind::Crash {
                noticed: self.chance.percent(85),
                lingers: true,
                back: self.chance.below(2 * SECOND),
            },
        };
        (actions, vec![crash])
    }

    /// A prompt is stopped before it begins; a later one begins, its execution fails by itself, and what was queued
    /// meanwhile rests.
    pub(super) fn rests(&mut self, nodes: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(1);
        let act = |when, kind| Action {
            when,
            session: 0,
            kind,
        };
        // The session is made by the first commit, and prompted by the second.
        let close = When::After(2, self.chance.below(6_000));
        actions.push(act(close, ActionKind::Interrupt { named: false }));
        let again = self.within(100, 2_000) * 1_000;
        let admit = |queue| ActionKind::Admit { queue };
        actions.push(act(When::After(2, again), admit(false)));
        for _ in 0..self.within(1, 3) {
            let queued = again + self.within(5, 2_500) * 1_000;
            actions.push(act(When::After(2, queued), admit(true)));
        }
        for _ in 0..self.chance.below(3) {
            let when = self.when(12 * SECOND, 60);
            let kind = self.action();
            actions.push(act(when, kind));
        }
        let faults = match self.chance.percent(25) {
            true => self.faults(nodes),
            false => Vec::new(),
        };
        (actions, faults)
    }

    /// Sessions move, and what they stand on is rebuilt under them; nodes come and go.
    pub(super) fn places(&mut self, nodes: usize, sessions: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(sessions);
        for _ in 0..self.within(3, 8) {
            let kind = match self.chance.below(10) {
                0..=3 => ActionKind::Move,
                4..=7 => ActionKind::Rebuild,
                _ => self.action(),
            };
            actions.push(Action {
                when: self.when(8 * SECOND, 70),
                session: self.chance.below(sessions as u64) as usize,
                kind,
            });
        }
        let faults = match self.chance.percent(60) {
            true => self.faults(nodes),
            false => Vec::new(),
        };
        (actions, faults)
    }

    /// Whoever streams dies, stands still, is cut off or leaves, and what it sends is not sound either.
    pub(super) fn relays(&mut self, nodes: usize, sessions: usize) -> (Vec<Action>, Vec<Fault>) {
        let mut actions = self.prompts(sessions);
        let mut faults = Vec::new();
        for _ in 0..self.within(1, 3) {
            let commit = self.within(5, 40);
            let lasts = self.within(1, 14) * SECOND;
            let kind = match self.chance.below(10) {
                0..=3 => FaultKind::Crash {
                    noticed: self.chance.percent(70),
                    lingers: false,
                    back: self.chance.below(8 * SECOND),
                },
                4..=5 => FaultKind::Pause(lasts),
                6 => FaultKind::Cut(lasts),
                7 => FaultKind::Drain {
                    back: self.chance.below(2 * SECOND),
                },
                _ => FaultKind::BadWires(lasts),
            };
            faults.push(Fault {
                when: When::After(commit, self.chance.below(300_000)),
                node: Which::Actor,
                kind,
            });
        }
        // A reader whose hints do not come reads the log late, and the next owner's node may be faster.
        for _ in 0..self.chance.below(3) {
            let lasts = self.within(2, 12) * SECOND;
            let kind = match self.chance.percent(70) {
                true => FaultKind::Deaf(lasts),
                false => FaultKind::LateHints {
                    by: self.within(1, 4) * SECOND,
                    lasts,
                },
            };
            faults.push(Fault {
                when: When::Commit(self.within(3, 20)),
                node: self.node(nodes),
                kind,
            });
        }
        for _ in 0..self.chance.below(3) {
            let kind = match self.chance.percent(40) {
                true => ActionKind::Interrupt { named: false },
                false => ActionKind::Admit { queue: false },
            };
            actions.push(Action {
                when: self.when(12 * SECOND, 60),
                session: self.chance.below(sessions as u64) as usize,
                kind,
            });
        }
        (actions, faults)
    }
}
