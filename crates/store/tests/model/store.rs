//! The store's rules: what each transaction on the head row and the node rows does. The counterpart of
//! `src/machine/`; `replay` holds the two together.

use crate::rules::{Rule, Rules};
use crate::state::*;

/// The answer of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Done,
    StaleClaim,
    Cancelling,
    InboxChanged,
    NotIdle,
    /// The state does not allow it, whoever asks.
    Rejected,
    Held,
    Quarantined,
    Idle,
    NotAllowed,
    /// The interrupt found the claim, or an open execution.
    Accepted,
    StoppedBeforeStart,
    /// A renewal of a node that is dead.
    Dead,
}

impl Write {
    /// Does it start something? Then `cancelling` refuses it (R2).
    pub fn starts(self) -> bool {
        !matches!(self, Write::EndTool | Write::EndStep | Write::Interrupted)
    }
}

impl Turn {
    /// What the events of a write change. Store and memory use the same fold.
    pub fn apply(&mut self, write: Write) {
        match write {
            Write::GoOn | Write::HandOver { .. } => {}
            Write::Begin => (self.execution, self.wants) = (true, true),
            Write::Promote { .. } => self.wants = true,
            Write::StartStep => (self.step, self.tool) = (true, Tool::None),
            Write::StartTool => self.tool = Tool::Started,
            Write::EndTool => self.tool = Tool::Ended,
            Write::EndStep => {
                *self = Turn {
                    execution: true,
                    wants: self.tool == Tool::Ended,
                    ..Turn::default()
                }
            }
            Write::Continue | Write::Shutdown { .. } if self.step => {
                *self = Turn {
                    execution: true,
                    ..Turn::default()
                };
            }
            Write::Continue | Write::Shutdown { .. } => {}
            Write::Quarantine | Write::Finish | Write::Fail | Write::Interrupted => {
                *self = Turn::default();
            }
        }
    }
}

/// A fence of the tenure in force.
const FRESH: Fence = Fence {
    epoch: true,
    claim: true,
    write: true,
    age: 0,
    tenure: true,
};

/// A tenure just taken.
#[derive(Clone, Copy)]
pub struct Taken {
    pub fence: Fence,
    /// The slot of the owner that lost it, be it the same node.
    pub lost: Option<u8>,
}

/// How a tenure begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taking {
    /// Nobody had it.
    Free,
    /// From an owner that is gone, or did not accept in time.
    Over,
    /// A claim of the node's own.
    Own,
}

impl State {
    fn fences(&mut self, mut change: impl FnMut(&mut Fence)) {
        for node in &mut self.nodes {
            if let Some(memory) = &mut node.memory {
                change(&mut memory.fence);
            }
            if let Some(flight) = &mut node.flight {
                change(&mut flight.fence);
            }
        }
    }

    /// The tenure in force ends: no fence of it matches whole any more.
    fn end_tenure(&mut self, rules: &Rules, raise_epoch: bool, keep_claim: bool) {
        self.fences(|fence| {
            fence.tenure = false;
            fence.write = false;
            fence.epoch &= !raise_epoch;
            fence.claim &= keep_claim;
        });
        if rules.shares_epochs() {
            self.facts.foreign = !raise_epoch && (self.facts.foreign || self.facts.written);
            self.facts.written = false;
        }
    }

    fn clear_owner(&mut self) {
        self.head.owner = None;
        self.head.phase = None;
        self.head.loading = false;
        self.head.cancel = false;
        self.head.offer = Offer::No;
    }

    /// R1, R7: one conditional write on the head row.
    pub fn acquire(&mut self, rules: &Rules, slot: u8, max: u8) -> Result<Taken, Verdict> {
        let node = self.nodes[usize::from(slot)];
        if node.row != Row::Active && rules.has(Rule::AcquireNeedsActive) {
            return Err(Verdict::NotAllowed);
        }
        let me = Incarnation { slot, age: 0 };
        let mut how = Taking::Free;
        if let Some(owner) = self.head.owner {
            let over = self.head.offer == Offer::Over && rules.has(Rule::OfferEnds);
            let free = self.gone(owner) || over || !rules.has(Rule::TakeoverNeedsGone);
            if !free {
                return Err(Verdict::Held);
            }
            how = Taking::Over;
        }
        if self.head.quarantined {
            return Err(Verdict::Quarantined);
        }
        if how == Taking::Free && !self.head.turn.execution && !self.head.eligible() {
            return Err(Verdict::Idle);
        }
        Ok(self.take(rules, me, how, max))
    }

    /// R11: a claim of this node on which nothing works: its answer was lost, or it was handed over.
    pub fn adopt(&mut self, rules: &Rules, slot: u8, max: u8) -> Result<Taken, Verdict> {
        let me = Incarnation { slot, age: 0 };
        if self.nodes[usize::from(slot)].row != Row::Active {
            return Err(Verdict::NotAllowed);
        }
        if self.head.owner != Some(me) || self.head.quarantined {
            return self.acquire(rules, slot, max);
        }
        if self.head.offer != Offer::No {
            return Ok(self.accept(rules));
        }
        Ok(self.take(rules, me, Taking::Own, max))
    }

    /// R11: the tenure began with the hand-over, and its epoch was raised then.
    fn accept(&mut self, rules: &Rules) -> Taken {
        if rules.has(Rule::AcceptEndsOffer) {
            self.head.offer = Offer::No;
        }
        self.head.loading = true;
        self.fences(|fence| fence.write = false);
        Taken {
            fence: FRESH,
            lost: None,
        }
    }

    fn take(&mut self, rules: &Rules, me: Incarnation, how: Taking, max: u8) -> Taken {
        if self.nodes[usize::from(me.slot)].row != Row::Active {
            self.violate(Violation::OwnerNotActive);
        }
        if let (Some(owner), Taking::Over) = (self.head.owner, how) {
            let memory = self.nodes[usize::from(owner.slot)].memory;
            let works = memory.is_some_and(|memory| memory.fence.tenure);
            if !self.gone(owner) && (self.head.offer != Offer::Over || works) {
                self.violate(Violation::LiveRobbed);
            }
        }
        let doing = self.head.turn.step || self.head.loading;
        if how == Taking::Over && doing {
            self.facts.losses = (self.facts.losses + 1).min(max);
        }
        let charged = how != Taking::Free
            && (doing || !rules.has(Rule::IdleNotCharged))
            && (how == Taking::Over || !rules.has(Rule::AdoptNotCharged))
            && rules.has(Rule::LossCharged);
        if charged {
            self.head.attempts = (self.head.attempts + 1).min(max);
        }
        let kept = self
            .head
            .phase
            .filter(|_| rules.has(Rule::TakeoverKeepsPhase));
        let cancel = self.head.cancel && rules.has(Rule::TakeSeesCancel);
        let open = self.head.turn.execution && self.head.turn.step;
        let found = match kept {
            Some(phase) => phase,
            None if cancel => Phase::Cancelling,
            None if open && rules.has(Rule::TakeoverKeepsPhase) => Phase::Active,
            None => Phase::Safe,
        };
        let raise = match how {
            Taking::Free => true,
            Taking::Over => rules.has(Rule::TakeoverRaisesEpoch),
            Taking::Own => rules.has(Rule::AdoptRaisesEpoch),
        };
        // The claim's id is made of the session, the taker and the epoch.
        self.end_tenure(rules, raise, !raise && how == Taking::Own);
        let lost = self.head.owner.map(|owner| owner.slot);
        self.head.owner = Some(me);
        self.head.phase = Some(found);
        self.head.loading = true;
        self.head.cancel = false;
        self.head.offer = Offer::No;
        Taken { fence: FRESH, lost }
    }

    /// R5: one unfenced transaction on the head row.
    pub fn interrupt(&mut self, rules: &Rules) -> Verdict {
        let running = self.head.owner.is_some() || self.head.turn.execution;
        if !running && !self.head.eligible() {
            return Verdict::Idle;
        }
        match (running, self.head.owner) {
            (false, _) => {}
            (true, Some(_)) => self.head.phase = Some(Phase::Cancelling),
            (true, None) => self.head.cancel = true,
        }
        self.facts.stopping |= running;
        self.head.interrupt = true;
        self.head.later = 0;
        if !self.head.turn.execution {
            self.head.parked = self.head.pending > 0 && rules.has(Rule::InterruptParks);
            self.facts.must_rest = self.head.pending > 0;
        }
        if running {
            Verdict::Accepted
        } else {
            Verdict::StoppedBeforeStart
        }
    }

    /// A user's input. It wakes what rests (R4).
    pub fn admit(&mut self) {
        self.head.pending += 1;
        self.head.later += u8::from(self.head.interrupt);
        self.head.parked = false;
        self.facts.must_rest = false;
    }

    /// A fenced append in one transaction. `given_up`: its node resolved it as not in the log.
    pub fn append(
        &mut self,
        rules: &Rules,
        slot: u8,
        fence: Fence,
        write: Write,
        given_up: bool,
        max: u8,
    ) -> Verdict {
        let owner = self.head.owner
            == Some(Incarnation {
                slot,
                age: fence.age,
            });
        let holds = (fence.epoch || !rules.has(Rule::FenceEpoch))
            && (fence.claim || !rules.has(Rule::FenceClaim))
            && (fence.write || !rules.has(Rule::FenceWriteNo))
            && (owner || !rules.has(Rule::FenceOwner));
        if !holds {
            return Verdict::StaleClaim;
        }
        if let Some(refused) = self.refused(rules, write) {
            return refused;
        }
        if !fence.tenure {
            self.violate(Violation::DeposedWrote);
            return Verdict::Done;
        }
        if given_up {
            self.violate(Violation::GhostLanded);
        }
        if self.facts.foreign {
            self.violate(Violation::EpochShared);
        }
        self.facts.written = rules.shares_epochs();
        if write.starts() && self.facts.stopping {
            self.violate(Violation::StartedAfterInterrupt);
        }
        self.fences(|fence| fence.write = false);
        self.effects(rules, write, max);
        self.head.turn.apply(write);
        if self.head.pending == 0 && !self.head.continuation {
            self.head.parked = false;
        }
        Verdict::Done
    }

    /// What the transaction compares beside the fence (R2).
    fn refused(&self, rules: &Rules, write: Write) -> Option<Verdict> {
        let head = &self.head;
        let stops = rules.has(Rule::StartsStop);
        if write.starts() && head.phase == Some(Phase::Cancelling) && stops {
            return Some(Verdict::Cancelling);
        }
        let user = head.pending > 0 && !head.parked || !rules.has(Rule::PromoteCompares);
        match write {
            Write::Begin if head.turn.execution => Some(Verdict::Rejected),
            Write::Begin if !user && !head.continuation => Some(Verdict::InboxChanged),
            Write::Promote { own: true } if !head.continuation => Some(Verdict::InboxChanged),
            Write::Promote { own: false } if !user => Some(Verdict::InboxChanged),
            Write::StartStep if head.phase == Some(Phase::Active) => Some(Verdict::StaleClaim),
            Write::Finish if head.eligible() && rules.has(Rule::ReleaseLooks) => {
                Some(Verdict::NotIdle)
            }
            _ => None,
        }
    }

    fn effects(&mut self, rules: &Rules, write: Write, max: u8) {
        match write {
            Write::GoOn => self.recovered(rules, max),
            Write::Continue => {
                self.recovered(rules, max);
                self.leave(rules);
                self.head.continuation = true;
            }
            Write::Quarantine => {
                if self.facts.losses < max {
                    self.violate(Violation::QuarantinedEarly);
                }
                self.head.continuation &= !rules.has(Rule::ContinuationCancelled);
                if self.head.turn.execution {
                    self.fail(rules);
                }
                self.head.quarantined = true;
                self.clear_owner();
                self.end_tenure(rules, false, false);
            }
            Write::Begin => {
                if rules.has(Rule::StartForgetsInterrupt) {
                    self.head.interrupt = false;
                    self.head.later = 0;
                }
                if self.head.continuation {
                    self.violate(Violation::StaleContinuation);
                }
                self.promote();
            }
            Write::Promote { own: true } => self.head.continuation = false,
            Write::Promote { own: false } => self.promote(),
            Write::StartStep => {
                self.head.phase = self.head.phase.map(|phase| phase.max(Phase::Active));
                self.head.loading = false;
            }
            Write::StartTool => {
                if !self.head.turn.step || self.head.turn.tool != Tool::None {
                    self.violate(Violation::CallStartedTwice);
                }
            }
            Write::EndTool => self.progress(rules),
            Write::EndStep => {
                self.leave(rules);
                self.progress(rules);
            }
            Write::Finish | Write::Fail | Write::Interrupted => self.terminal(rules, write),
            Write::HandOver { to } => self.hand_over(rules, to),
            Write::Shutdown { to } => {
                if self.head.turn.step {
                    self.leave(rules);
                    self.head.continuation = true;
                }
                self.hand_over(rules, to);
            }
        }
    }

    fn recovered(&mut self, rules: &Rules, max: u8) {
        if self.facts.losses >= max {
            self.violate(Violation::NotQuarantined);
        }
        if !rules.has(Rule::RecoveryIsNoProgress) {
            self.head.attempts = 0;
        }
    }

    fn progress(&mut self, rules: &Rules) {
        self.facts.losses = 0;
        if rules.has(Rule::ProgressClears) {
            self.head.attempts = 0;
        }
    }

    fn leave(&mut self, rules: &Rules) {
        if self.head.phase != Some(Phase::Cancelling) || !rules.has(Rule::LeaveKeepsCancelling) {
            self.head.phase = Some(Phase::Safe);
        }
    }

    /// Takes the oldest of the users' inputs.
    fn promote(&mut self) {
        if self.facts.must_rest {
            self.violate(Violation::RestingRan);
        }
        if self.head.pending == 0 {
            self.violate(Violation::DeliveredTwice);
            return;
        }
        self.head.pending -= 1;
        self.head.later = self.head.later.min(self.head.pending);
    }

    /// The end of an execution, if one is open, and of tenure.
    fn terminal(&mut self, rules: &Rules, write: Write) {
        let execution = self.head.turn.execution;
        match write {
            Write::Finish => {
                if self.head.eligible() {
                    self.violate(Violation::ReleasedWithInput);
                }
            }
            Write::Interrupted => {
                if !self.facts.stopping {
                    self.violate(Violation::InterruptMisapplied);
                }
                if execution {
                    let later = self.head.later > 0;
                    self.head.parked = !later && rules.has(Rule::InterruptParks);
                    self.facts.must_rest = !later && self.head.pending > 0;
                }
                self.facts.stopping = false;
            }
            _ => self.fail(rules),
        }
        if self.facts.stopping {
            self.violate(Violation::InterruptLost);
        }
        if write != Write::Finish {
            self.head.continuation &= !rules.has(Rule::ContinuationCancelled);
        }
        if execution {
            self.head.interrupt = false;
            self.head.later = 0;
        }
        self.clear_owner();
        self.end_tenure(rules, false, false);
    }

    /// A failed execution parks what is pending (R4).
    fn fail(&mut self, rules: &Rules) {
        let later = self.head.interrupt && self.head.later > 0;
        self.head.parked = !later && rules.has(Rule::FailureParks);
        self.facts.must_rest = self.head.pending > 0;
        self.head.interrupt = false;
        self.head.later = 0;
    }

    /// R11: to a successor that is active and live, as this transaction sees it; else to nobody.
    fn hand_over(&mut self, rules: &Rules, to: Option<Incarnation>) {
        let able = |who: &Incarnation| {
            let node = &self.nodes[usize::from(who.slot)];
            let leased = !self.seems_over(node);
            !self.gone(*who) && node.row == Row::Active && leased
        };
        let chosen = to.filter(|who| able(who) || !rules.has(Rule::SuccessorTested));
        let unable = chosen.is_some_and(|who| {
            self.gone(who) || self.nodes[usize::from(who.slot)].row != Row::Active
        });
        if unable {
            self.violate(Violation::OwnerNotActive);
        }
        let raise = rules.has(Rule::HandOverRaisesEpoch);
        self.end_tenure(rules, raise, false);
        match chosen {
            Some(heir) => {
                self.head.owner = Some(heir);
                self.head.loading = false;
                self.head.offer = Offer::Open;
            }
            None => self.clear_owner(),
        }
    }

    /// R3: locks the head and says whether the append under way is in the log. If not, raises `write_no`.
    pub fn resolve(&mut self, rules: &Rules, slot: u8) -> Option<Verdict> {
        let flight = self.nodes[usize::from(slot)].flight?;
        if flight.landed {
            return Some(Verdict::Done);
        }
        let owner = self.head.owner
            == Some(Incarnation {
                slot,
                age: flight.fence.age,
            });
        if !(flight.fence.epoch && flight.fence.claim && owner) {
            return Some(Verdict::StaleClaim);
        }
        if rules.has(Rule::ResolveRaises) {
            self.fences(|fence| fence.write = false);
        }
        None
    }
}
