//! What may happen next: what people ask for, what goes wrong, what time does, what nodes do.

use crate::rules::{Rule, Rules};
use crate::state::*;
use crate::store::{Taken, Verdict};

/// One thing that happens. Numbers are nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    // People.
    Admit,
    Interrupt,
    Drain(u8),
    // Faults.
    Crash(u8),
    Pause(u8),
    /// Others lose the connection to it and find its address refused, rightly or not.
    Suspect(u8),
    Lie(Lie),
    /// Sends an append that lands later, or never.
    Send(u8, Write),
    /// Acquires, and never learns it.
    AcquireUnheard(u8),
    /// The session's task dies, its process does not.
    LoseTask(u8),
    // Time.
    /// A whole lease passes without a renewal.
    Expire(u8),
    OfferOver,
    Resume(u8),
    // Life of nodes.
    Renew(u8),
    /// An observer finds it silent; `Bury` follows. Only where death is not tested again.
    Mark(u8),
    Bury(u8),
    /// Kills its tools and ends.
    SelfFence(u8),
    Rejoin(u8),
    /// A drained node that holds nothing leaves.
    Leave(u8),
    /// The guardian of a process that is gone kills what it started.
    GuardianKills(u8),
    // Tenure.
    Acquire(u8),
    Adopt(u8),
    Append(u8, Write),
    Spawn(u8),
    /// Learns that its tenure is over.
    Forget(u8),
    Land(u8),
    Learn(u8),
    Resolve(u8),
}

impl Action {
    /// Something asked for or gone wrong, of which there may be no more: liveness does not count on it.
    pub fn is_trouble(self) -> bool {
        use Action::*;
        matches!(
            self,
            Admit
                | Interrupt
                | Drain(_)
                | Crash(_)
                | Pause(_)
                | Suspect(_)
                | Lie(_)
                | Send(..)
                | AcquireUnheard(_)
                | LoseTask(_)
        )
    }
}

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Somebody interrupts.
    Interrupts,
    /// A process is killed, or the task of a session dies in it.
    Crashes,
    /// A process stops, or is cut off.
    Pauses,
    /// Fast suspicion, right or wrong.
    Suspicions,
    /// A node is to leave.
    Drains,
    /// An append arrives late, or its answer or that of an acquisition is lost.
    Delays,
    /// The database's clock is set ahead or back.
    Lies,
}

impl Trouble {
    pub const ALL: &'static [Trouble] = &[
        Trouble::Interrupts,
        Trouble::Crashes,
        Trouble::Pauses,
        Trouble::Suspicions,
        Trouble::Drains,
        Trouble::Delays,
        Trouble::Lies,
    ];
}

/// The protocol, with some rules off, and the bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub rules: Rules,
    pub left: Left,
    /// What kinds of trouble there are.
    pub kinds: &'static [Trouble],
    /// Losses after which a session is set aside; 3 in the product.
    pub max_attempts: u8,
}

impl Model {
    pub fn first(&self) -> State {
        State::first(self.left)
    }

    fn on(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    fn may(&self, state: &State, kind: Trouble) -> bool {
        state.left.troubles > 0 && self.kinds.contains(&kind)
    }

    /// Everything that may be tried now; the store may still refuse it.
    pub fn actions(&self, state: &State) -> Vec<Action> {
        let mut all = Vec::with_capacity(32);
        let mut when = |possible: bool, action: Action| {
            if possible {
                all.push(action);
            }
        };
        when(state.left.inputs > 0, Action::Admit);
        when(self.may(state, Trouble::Interrupts), Action::Interrupt);
        let lies = state.lie.is_none() && self.may(state, Trouble::Lies);
        when(lies, Action::Lie(Lie::Ahead));
        when(lies, Action::Lie(Lie::Back));
        when(state.head.offer == Offer::Open, Action::OfferOver);
        for slot in 0..NODES as u8 {
            self.node_actions(state, slot, &mut all);
        }
        all
    }

    fn node_actions(&self, state: &State, n: u8, all: &mut Vec<Action>) {
        use Action::*;
        let node = &state.nodes[usize::from(n)];
        let (dead, gone) = (node.row.dead(), node.process == Process::Gone);
        let runs = node.process == Process::Runs;
        let own = state.head.owner == Some(Incarnation { slot: n, age: 0 });
        let waits = node.flight.is_some_and(|flight| flight.awaited);
        let mut when = |possible: bool, action: Action| {
            if possible {
                all.push(action);
            }
        };
        when(
            self.may(state, Trouble::Drains) && runs && node.row == Row::Active,
            Drain(n),
        );
        when(self.may(state, Trouble::Crashes) && !gone, Crash(n));
        when(self.may(state, Trouble::Pauses) && runs, Pause(n));
        let suspicious =
            self.may(state, Trouble::Suspicions) && !dead && self.on(Rule::FastSuspicion);
        when(suspicious, Suspect(n));
        when(!node.expired && (!runs || dead), Expire(n));
        when(node.process == Process::Paused, Resume(n));
        let renews = !dead || !self.on(Rule::RenewNeedsAlive);
        when(runs && node.expired && renews, Renew(n));
        let silent = if self.on(Rule::DeathNeedsObserver) {
            node.expired && (self.on(Rule::WatchIsEnough) || state.seems_over(node))
        } else {
            state.seems_over(node)
        };
        let mortal = !dead && self.on(Rule::SilentDie);
        if self.on(Rule::DeathRetests) {
            when(mortal && silent, Bury(n));
        } else {
            when(mortal && silent && !node.marked, Mark(n));
            when(!dead && node.marked, Bury(n));
        }
        let late = node.process == Process::Paused && node.expired || runs && dead;
        when(late && self.on(Rule::SelfFences), SelfFence(n));
        when(
            gone && dead && !node.group && node.flight.is_none_or(|f| !f.landed),
            Rejoin(n),
        );
        let empty = node.memory.is_none() && !waits;
        when(runs && node.row == Row::Draining && empty, Leave(n));
        when(gone && node.group, GuardianKills(n));
        let free = runs && empty && !node.group;
        let alive = !dead || !self.on(Rule::AcquireNeedsActive);
        when(free && alive && !own, Acquire(n));
        when(
            free && !own && self.may(state, Trouble::Delays),
            AcquireUnheard(n),
        );
        when(free && own && self.on(Rule::AdoptsOwn), Adopt(n));
        when(node.flight.is_some_and(|flight| !flight.landed), Land(n));
        when(
            runs && waits && node.flight.is_some_and(|flight| flight.landed),
            Learn(n),
        );
        when(runs && waits, Resolve(n));
        let Some(memory) = node.memory else { return };
        let due = memory.spawn && node.process != Process::Gone;
        when(due && self.may_spawn(state, n), Spawn(n));
        if !runs {
            return;
        }
        when(self.may(state, Trouble::Crashes), LoseTask(n));
        if waits {
            return;
        }
        when(!memory.fence.tenure, Forget(n));
        for write in self.writes(state, n, &memory) {
            all.push(Append(n, write));
            if self.may(state, Trouble::Delays) && node.flight.is_none() {
                all.push(Send(n, write));
            }
        }
    }

    /// R10: where a suspected owner's tools may still run, the first spawn waits for its lease's end.
    fn may_spawn(&self, state: &State, n: u8) -> bool {
        let mut others = (0..NODES as u8).filter(|other| *other != n);
        let feared = |other: u8| {
            let node = &state.nodes[usize::from(other)];
            let before = state.nodes[usize::from(n)]
                .memory
                .is_some_and(|memory| memory.after == Some(other));
            node.row == Row::Suspected
                && !node.expired
                && (before || !self.on(Rule::PredecessorOnly))
        };
        !self.on(Rule::SpawnWaits) || !others.any(feared)
    }

    /// What the holder may write next, by its own memory. It looks at its claim (R5), so it knows of an
    /// interrupt; of the inbox it may know an old state, so it tries whatever it could have seen.
    fn writes(&self, state: &State, n: u8, memory: &Memory) -> Vec<Write> {
        let turn = &memory.turn;
        let mut writes = Vec::with_capacity(8);
        // A refused start tells it as well, and recovery is one.
        let polls = self.on(Rule::OwnerPolls) || !turn.step || memory.recover;
        let told = memory.fence.tenure && state.head.phase == Some(Phase::Cancelling);
        if told && polls {
            writes.push(Write::Interrupted);
        }
        let draining = state.nodes[usize::from(n)].row == Row::Draining;
        if memory.recover {
            writes.push(
                match (state.head.attempts >= self.max_attempts, turn.step) {
                    (true, _) => Write::Quarantine,
                    (false, true) => Write::Continue,
                    (false, false) => Write::GoOn,
                },
            );
        } else if turn.step {
            match turn.tool {
                Tool::None => writes.extend([Write::StartTool, Write::EndStep]),
                Tool::Started if memory.spawn => {}
                Tool::Started => writes.push(Write::EndTool),
                Tool::Ended => writes.push(Write::EndStep),
            }
            if draining {
                writes.extend(self.heirs(state, n).map(|to| Write::Shutdown { to }));
                if !self.on(Rule::HandOverAtBoundary) {
                    writes.extend(self.heirs(state, n).map(|to| Write::HandOver { to }));
                }
            }
        } else if draining {
            writes.extend(self.heirs(state, n).map(|to| Write::HandOver { to }));
        } else if memory.resume {
            writes.push(Write::Promote { own: true });
        } else {
            let promote = if turn.execution {
                Write::Promote { own: false }
            } else {
                Write::Begin
            };
            writes.push(promote);
            writes.push(if turn.wants {
                Write::StartStep
            } else {
                Write::Finish
            });
            if turn.execution {
                writes.push(Write::Fail);
            }
            if turn.execution && state.head.continuation {
                writes.push(Write::Promote { own: true });
            }
        }
        writes
    }

    fn heirs(&self, _state: &State, n: u8) -> impl Iterator<Item = Option<Incarnation>> + use<> {
        let others = (0..NODES as u8).filter(move |slot| *slot != n);
        others
            .map(|slot| Some(Incarnation { slot, age: 0 }))
            .chain([None])
    }

    /// What becomes of the state, and what the store said. A refused attempt changes nothing.
    pub fn step(&self, before: &State, action: Action) -> (State, Verdict) {
        let mut state = *before;
        let verdict = self.happen(&mut state, action);
        state.invariant();
        (state, verdict)
    }

    fn happen(&self, state: &mut State, action: Action) -> Verdict {
        use Action::*;
        let rules = &self.rules;
        match action {
            Admit => {
                state.left.inputs -= 1;
                state.admit();
            }
            Interrupt => {
                let verdict = state.interrupt(rules);
                if verdict != Verdict::Idle {
                    state.left.troubles -= 1;
                }
                return verdict;
            }
            Lie(lie) => {
                state.left.troubles -= 1;
                state.lie = Some(lie);
            }
            OfferOver => state.head.offer = Offer::Over,
            Acquire(n) => return self.acquire(state, n, true),
            AcquireUnheard(n) => {
                state.left.troubles -= 1;
                return self.acquire(state, n, false);
            }
            Adopt(n) => {
                let taken = state.adopt(rules, n, self.max_attempts);
                return self.taken(state, n, taken, true);
            }
            Append(n, write) => return self.append(state, n, write),
            Send(n, write) => {
                state.left.troubles -= 1;
                self.kill_before(state, n, write);
                let node = &mut state.nodes[usize::from(n)];
                let Some(memory) = node.memory else {
                    return Verdict::Rejected;
                };
                node.flight = Some(Flight {
                    fence: memory.fence,
                    write,
                    landed: false,
                    awaited: true,
                    given_up: false,
                });
            }
            Land(n) => return self.land(state, n),
            Resolve(n) => return self.resolve(state, n),
            Learn(n) => self.learn_landed(state, n),
            _ => return self.live(state, action),
        }
        Verdict::Done
    }

    /// Processes, leases and rows of nodes.
    fn live(&self, state: &mut State, action: Action) -> Verdict {
        use Action::*;
        match action {
            Rejoin(n) => {
                rejoin(state, n);
                return Verdict::Done;
            }
            Crash(_) | LoseTask(_) | Pause(_) | Suspect(_) | Drain(_) => state.left.troubles -= 1,
            _ => {}
        }
        let node = match action {
            Drain(n) | Crash(n) | Pause(n) | Suspect(n) | Expire(n) | Resume(n) | Renew(n)
            | Mark(n) | Bury(n) | SelfFence(n) | Leave(n) | GuardianKills(n) | Spawn(n)
            | Forget(n) | LoseTask(n) => &mut state.nodes[usize::from(n)],
            _ => return Verdict::Rejected,
        };
        match action {
            Drain(_) => node.row = Row::Draining,
            Crash(_) => node.end(),
            Pause(_) => node.process = Process::Paused,
            Suspect(_) => node.row = Row::Suspected,
            Expire(_) => {
                node.expired = true;
                node.group &= !self.on(Rule::GuardianKills);
            }
            Resume(_) => node.process = Process::Runs,
            Renew(_) if node.row.dead() && self.on(Rule::RenewNeedsAlive) => return Verdict::Dead,
            Renew(_) => node.expired = false,
            Mark(_) => node.marked = true,
            Bury(_) => {
                (node.row, node.marked) = (Row::Dead, false);
                if !node.expired {
                    state.violate(Violation::BuriedAlive);
                }
            }
            SelfFence(_) => {
                node.group = false;
                node.end();
            }
            Leave(_) => {
                node.row = Row::Dead;
                node.end();
            }
            GuardianKills(_) => node.group = false,
            Forget(_) | LoseTask(_) => node.drop_task(),
            Spawn(_) => {
                if let Some(memory) = &mut node.memory {
                    memory.spawn = false;
                }
                // After the lease's end the guardian kills it at once.
                node.group = !node.expired || !self.on(Rule::GuardianKills);
            }
            _ => {}
        }
        Verdict::Done
    }

    fn acquire(&self, state: &mut State, n: u8, heard: bool) -> Verdict {
        let taken = state.acquire(&self.rules, n, self.max_attempts);
        self.taken(state, n, taken, heard)
    }

    fn taken(
        &self,
        state: &mut State,
        n: u8,
        taken: Result<Taken, Verdict>,
        heard: bool,
    ) -> Verdict {
        let before = *state;
        match taken {
            Err(refused) => return refused,
            Ok(Taken { fence, lost }) if heard => {
                let head = &before.head;
                // Where nothing was lost and nothing is open, nothing is to be recovered.
                let recover =
                    lost.is_some() || head.turn.step || head.phase == Some(Phase::Cancelling);
                state.nodes[usize::from(n)].memory = Some(Memory {
                    fence,
                    turn: head.turn,
                    recover,
                    resume: recover && head.continuation,
                    spawn: false,
                    after: lost.filter(|_| self.on(Rule::PredecessorOnly)),
                });
            }
            Ok(_) => {}
        }
        Verdict::Done
    }

    /// Whoever settles or lets go has killed its tools before.
    fn kill_before(&self, state: &mut State, n: u8, write: Write) {
        let kills = matches!(
            write,
            Write::Interrupted | Write::Shutdown { .. } | Write::EndTool
        );
        let node = &mut state.nodes[usize::from(n)];
        if kills {
            node.group = false;
            if let Some(memory) = &mut node.memory {
                memory.spawn = false;
            }
        }
    }

    fn append(&self, state: &mut State, n: u8, write: Write) -> Verdict {
        let Some(memory) = state.nodes[usize::from(n)].memory else {
            return Verdict::Rejected;
        };
        let max = self.max_attempts;
        let mut after = *state;
        self.kill_before(&mut after, n, write);
        let verdict = after.append(&self.rules, n, memory.fence, write, false, max);
        if verdict == Verdict::Done {
            if let Some(memory) = &mut after.nodes[usize::from(n)].memory {
                memory.fence.write = memory.fence.tenure;
            }
            self.learn(&mut after, n, write);
            *state = after;
        }
        verdict
    }

    /// The after-commit hook: memory is the fold of what is committed, and of nothing else.
    fn learn(&self, state: &mut State, n: u8, write: Write) {
        let node = &mut state.nodes[usize::from(n)];
        let Some(memory) = &mut node.memory else {
            return;
        };
        memory.turn.apply(write);
        match write {
            Write::GoOn => memory.recover = false,
            Write::Continue => (memory.recover, memory.resume) = (false, true),
            Write::Promote { own: true } => memory.resume = false,
            Write::StartTool => memory.spawn = true,
            Write::Quarantine
            | Write::Finish
            | Write::Fail
            | Write::Interrupted
            | Write::HandOver { .. }
            | Write::Shutdown { .. } => node.memory = None,
            _ => {}
        }
    }

    /// The append under way reaches the store, whatever became of its node.
    fn land(&self, state: &mut State, n: u8) -> Verdict {
        let Some(flight) = state.nodes[usize::from(n)].flight else {
            return Verdict::Rejected;
        };
        let Flight {
            fence,
            write,
            given_up,
            ..
        } = flight;
        let max = self.max_attempts;
        let verdict = state.append(&self.rules, n, fence, write, given_up, max);
        let slot = &mut state.nodes[usize::from(n)].flight;
        *slot = match slot {
            Some(flight) if verdict == Verdict::Done && flight.awaited => {
                flight.fence.write = flight.fence.tenure;
                Some(Flight {
                    landed: true,
                    ..*flight
                })
            }
            // Refused: its node, if it waits, is told and decides again. Or nobody waits.
            _ => None,
        };
        verdict
    }

    fn learn_landed(&self, state: &mut State, n: u8) {
        let node = &mut state.nodes[usize::from(n)];
        let Some(flight) = node.flight.take() else {
            return;
        };
        if let Some(memory) = &mut node.memory {
            memory.fence = flight.fence;
        }
        self.learn(state, n, flight.write);
    }

    fn resolve(&self, state: &mut State, n: u8) -> Verdict {
        match state.resolve(&self.rules, n) {
            Some(Verdict::Done) => {
                self.learn_landed(state, n);
                Verdict::Done
            }
            Some(verdict) => {
                state.nodes[usize::from(n)].drop_task();
                verdict
            }
            None => {
                let node = &mut state.nodes[usize::from(n)];
                if let Some(flight) = &mut node.flight {
                    (flight.awaited, flight.given_up) = (false, true);
                }
                if let Some(memory) = &mut node.memory {
                    memory.fence.write = true;
                }
                Verdict::Done
            }
        }
    }
}

impl Node {
    /// The session's task ends: what it sent is still under way, what it started is killed.
    fn drop_task(&mut self) {
        self.group = false;
        self.forget();
    }

    /// The process ends; what it started lives until its guardian acts.
    fn end(&mut self) {
        self.process = Process::Gone;
        self.forget();
    }

    fn forget(&mut self) {
        self.memory = None;
        if let Some(flight) = &mut self.flight {
            if flight.landed {
                self.flight = None;
            } else {
                flight.awaited = false;
            }
        }
    }
}

/// A new process start at the same place: everything that names the old incarnation ages.
fn rejoin(state: &mut State, n: u8) {
    let older = |who: &mut Incarnation| who.age += u8::from(who.slot == n);
    if let Some(owner) = &mut state.head.owner {
        older(owner);
    }
    for node in &mut state.nodes {
        if let Some(flight) = &mut node.flight
            && let Write::HandOver { to: Some(heir) } | Write::Shutdown { to: Some(heir) } =
                &mut flight.write
        {
            older(heir);
        }
    }
    let node = &mut state.nodes[usize::from(n)];
    node.row = Row::Active;
    node.process = Process::Runs;
    node.expired = false;
    node.marked = false;
    if let Some(flight) = &mut node.flight {
        flight.fence.age += 1;
    }
}
