//! A real store driven by the model's actions: names, fences and ids for what the model keeps as yes and no.

use crate::batch::{ACCEPT, Batch, Open};
use crate::nodes::Action;
use crate::state::{self, NODES, Offer, State, Tool, Write};
use crate::store::Verdict;
use std::time::Duration;
use tenure_core::event::NewEvent;
use tenure_core::event::body::*;
use tenure_core::id::*;
use tenure_store::conformance::World;
use tenure_store::*;

/// The lease of nodes in these worlds.
const LEASE: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_secs(1);

/// A holder's fence, and what it believes to be open.
#[derive(Debug, Clone)]
struct Held {
    fence: Fence,
    open: Open,
}

/// An append under way.
#[derive(Clone)]
struct Sent {
    fence: Fence,
    guard: Guard,
    events: Vec<NewEvent>,
    ops: Vec<HookOp>,
    /// What is open once it is durable.
    open: Open,
    landed: Option<Committed>,
}

pub struct Real<'a> {
    w: &'a World,
    session: SessionId,
    /// The incarnations of each slot, the present one last.
    names: Vec<Vec<Incarnation>>,
    /// Sees who is silent, and never takes anything.
    watcher: Incarnation,
    held: Vec<Option<Held>>,
    sent: Vec<Option<Sent>>,
    open: Open,
    epoch: u64,
    max_attempts: u8,
}

impl<'a> Real<'a> {
    pub async fn new(w: &'a World) -> Self {
        let session = w.create().await;
        let mut names = Vec::new();
        for _ in 0..NODES {
            names.push(vec![w.join().await]);
        }
        Self {
            w,
            session,
            names,
            watcher: w.join().await,
            held: vec![None; NODES],
            sent: vec![None; NODES],
            open: Open::default(),
            epoch: 0,
            max_attempts: 2,
        }
    }

    pub async fn end(&self) {
        for name in self.names.iter().flatten().chain([&self.watcher]) {
            self.w.store.leave(name).await.unwrap();
        }
    }

    fn name(&self, n: u8) -> &Incarnation {
        self.names[usize::from(n)].last().unwrap()
    }

    fn called(&self, who: state::Incarnation) -> &Incarnation {
        let names = &self.names[usize::from(who.slot)];
        &names[names.len() - 1 - usize::from(who.age)]
    }

    /// Does to the store what the model just did to its state.
    pub async fn act(
        &mut self,
        before: &State,
        after: &State,
        action: Action,
        expected: Verdict,
    ) -> Verdict {
        use Action::*;
        let store = self.w.store.clone();
        let verdict = match action {
            Admit => {
                self.w.admit(&self.session).await;
                Verdict::Done
            }
            Interrupt => self.interrupt().await,
            Acquire(n) | AcquireUnheard(n) => {
                let answer = store.acquire(&self.session, self.name(n), false).await;
                self.taken(n, answer.unwrap())
            }
            Adopt(n) => {
                let answer = store.adopt(&self.session, self.name(n)).await;
                self.taken(n, answer.unwrap())
            }
            Append(n, write) => {
                let sent = self.build(n, write).await;
                self.sent_and_heard(n, sent).await
            }
            Send(n, write) => {
                self.sent[usize::from(n)] = Some(self.build(n, write).await);
                Verdict::Done
            }
            Land(n) => self.land(n).await,
            Learn(n) => {
                self.learn(n);
                Verdict::Done
            }
            Resolve(n) => self.resolve(n, expected).await,
            _ => self.live(after, action).await,
        };
        if verdict == Verdict::Done {
            self.epoch += u64::from(raises(before, action));
        }
        for n in 0..NODES {
            if after.nodes[n].memory.is_none() {
                self.held[n] = None;
            }
            if after.nodes[n].flight.is_none() {
                self.sent[n] = None;
            }
        }
        verdict
    }

    /// Leases, processes and rows of nodes.
    async fn live(&mut self, after: &State, action: Action) -> Verdict {
        use Action::*;
        let store = self.w.store.clone();
        match action {
            Drain(n) => store.drain(self.name(n)).await.unwrap(),
            Leave(n) => store.leave(self.name(n)).await.unwrap(),
            Suspect(n) => {
                // Its lock is free: proof enough for a store on one machine.
                self.w.backend.crash(self.name(n));
                store.renew(&self.watcher).await.unwrap();
                let dead = store.reap(&self.watcher).await.unwrap();
                assert_eq!(dead, std::slice::from_ref(self.name(n)));
            }
            Renew(n) => {
                return match store.renew(self.name(n)).await.unwrap() {
                    Renewal::Renewed => Verdict::Done,
                    Renewal::Dead => Verdict::Dead,
                };
            }
            Rejoin(n) => {
                let name = self.w.join().await;
                self.names[usize::from(n)].push(name);
            }
            Expire(_) => self.pass(after, LEASE + TICK).await,
            OfferOver => self.pass(after, ACCEPT + TICK).await,
            Bury(n) => self.bury(after, n).await,
            _ => {}
        }
        Verdict::Done
    }

    /// Time passes; whoever the model has alive and awake renewed in time.
    async fn pass(&self, after: &State, by: Duration) {
        self.w.backend.advance(by);
        self.renew_but(|n| after.nodes[n].expired, after).await;
    }

    async fn renew_but(&self, silent: impl Fn(usize) -> bool, after: &State) {
        for n in 0..NODES {
            if !silent(n) && !after.nodes[n].row.dead() {
                let renewed = self.w.store.renew(self.name(n as u8)).await.unwrap();
                assert_eq!(renewed, Renewal::Renewed);
            }
        }
        self.w.store.renew(&self.watcher).await.unwrap();
    }

    /// The watcher sees this one stand still for a whole lease, and nobody else.
    async fn bury(&self, after: &State, n: u8) {
        for _ in 0..20 {
            self.w.backend.advance(TICK);
            self.renew_but(|other| other == usize::from(n), after).await;
            let dead = self.w.store.reap(&self.watcher).await.unwrap();
            if dead == std::slice::from_ref(self.name(n)) {
                return self.pass(after, LEASE + TICK).await;
            }
            assert_eq!(dead, []);
        }
        panic!("n{n} is silent and was not found dead");
    }

    async fn interrupt(&self) -> Verdict {
        let asked = self.w.interrupt(&self.session, None);
        match self.w.store.interrupt(asked).await.unwrap() {
            Interrupted::Accepted { .. } => Verdict::Accepted,
            Interrupted::StoppedBeforeStart { .. } => Verdict::StoppedBeforeStart,
            Interrupted::Idle | Interrupted::AlreadyFinished => Verdict::Idle,
        }
    }

    fn taken(&mut self, n: u8, answer: Acquire) -> Verdict {
        match answer {
            Acquire::Acquired(tenure) => {
                self.held[usize::from(n)] = Some(Held {
                    fence: tenure.fence,
                    open: self.open.clone(),
                });
                Verdict::Done
            }
            Acquire::Held { .. } => Verdict::Held,
            Acquire::Quarantined { .. } => Verdict::Quarantined,
            Acquire::Idle => Verdict::Idle,
            Acquire::NotAllowed => Verdict::NotAllowed,
            Acquire::Unplaceable { .. } => Verdict::Rejected,
        }
    }

    async fn append(&self, sent: &Sent) -> Result<Committed, Verdict> {
        let append = Append {
            fence: Some(sent.fence.clone()),
            guard: sent.guard,
            ops: sent.ops.clone(),
            ..Append::unfenced(self.session.clone(), sent.events.clone())
        };
        self.w
            .store
            .append(append)
            .await
            .map_err(|error| verdict(&error))
    }

    async fn sent_and_heard(&mut self, n: u8, sent: Sent) -> Verdict {
        match self.append(&sent).await {
            Ok(committed) => {
                self.open = sent.open.clone();
                let fence = Fence {
                    write_no: committed.write_no,
                    ..sent.fence
                };
                let open = sent.open;
                self.held[usize::from(n)] = Some(Held { fence, open });
                Verdict::Done
            }
            Err(refused) => refused,
        }
    }

    async fn land(&mut self, n: u8) -> Verdict {
        let Some(sent) = self.sent[usize::from(n)].clone() else {
            return Verdict::Rejected;
        };
        match self.append(&sent).await {
            Ok(committed) => {
                self.open = sent.open.clone();
                self.sent[usize::from(n)] = Some(Sent {
                    landed: Some(committed),
                    ..sent
                });
                Verdict::Done
            }
            Err(refused) => refused,
        }
    }

    fn learn(&mut self, n: u8) {
        if let Some(sent) = self.sent[usize::from(n)].take()
            && let Some(committed) = sent.landed
        {
            let fence = Fence {
                write_no: committed.write_no,
                ..sent.fence
            };
            let open = sent.open;
            self.held[usize::from(n)] = Some(Held { fence, open });
        }
    }

    async fn resolve(&mut self, n: u8, expected: Verdict) -> Verdict {
        let Some(sent) = self.sent[usize::from(n)].clone() else {
            return Verdict::Rejected;
        };
        let ids: Vec<EventId> = sent.events.iter().map(|event| event.id.clone()).collect();
        match self.w.store.resolve(&self.session, &sent.fence, &ids).await {
            Ok(Some(_)) => {
                assert!(sent.landed.is_some(), "resolved as durable, and it is not");
                self.learn(n);
                Verdict::Done
            }
            Ok(None) => {
                assert!(sent.landed.is_none(), "resolved as lost, and it is durable");
                if let Some(held) = &mut self.held[usize::from(n)] {
                    held.fence = sent.fence.given_up();
                }
                Verdict::Done
            }
            // Operations alone leave no event: that they ended the tenure looks like its loss, and is one.
            Err(AppendError::StaleClaim { .. }) if ids.is_empty() && sent.landed.is_some() => {
                expected
            }
            Err(error) => verdict(&error),
        }
    }

    /// The batch of a write, as its node would make it.
    async fn build(&self, n: u8, write: Write) -> Sent {
        let held = self.held[usize::from(n)].clone().unwrap();
        let inbox = self.w.store.inbox(&self.session).await.unwrap();
        let pending = |own: bool| {
            inbox
                .iter()
                .find(|i| matches!(i.kind, InputKind::Synthetic { .. }) == own)
                .map_or_else(|| self.w.message(), |i| i.input.clone())
        };
        let mut batch = Batch {
            w: self.w,
            session: &self.session,
            open: held.open,
            events: Vec::new(),
            ops: Vec::new(),
        };
        let own: Vec<MessageId> = inbox
            .iter()
            .filter(|i| matches!(i.kind, InputKind::Synthetic { .. }))
            .map(|i| i.input.clone())
            .collect();
        match write {
            Write::GoOn => batch.recovery(RecoveryDecision::GoOn),
            Write::Continue => {
                batch.recovery(RecoveryDecision::Continue);
                batch.settle_step(true);
            }
            Write::Quarantine => batch.quarantine(&own),
            Write::Begin => {
                batch.begin();
                batch.promote(pending(false));
            }
            Write::Promote { own } => batch.promote(pending(own)),
            Write::StartStep => batch.start_step(),
            Write::StartTool => batch.start_tool(),
            Write::EndTool => batch.end_tool(),
            Write::EndStep => {
                batch.settle_step(false);
                batch.ops.extend([HookOp::Leave, HookOp::Progress]);
            }
            Write::Finish => batch.finish(),
            Write::Fail => batch.fail(&own),
            Write::Interrupted => batch.interrupted(&own),
            Write::HandOver { to } => batch.hand_over(to.map(|to| self.called(to).clone())),
            Write::Shutdown { to } => {
                batch.settle_step(true);
                batch.hand_over(to.map(|to| self.called(to).clone()));
            }
        }
        Sent {
            fence: held.fence,
            guard: if write.starts() {
                Guard::Running
            } else {
                Guard::Settling
            },
            events: batch.events,
            ops: batch.ops,
            open: batch.open,
            landed: None,
        }
    }

    /// Do the rows say what the model's state says?
    pub async fn compare(&self, state: &State) -> Result<(), String> {
        let store = &self.w.store;
        let row = store.session(&self.session).await.unwrap().unwrap();
        let claims = store.claims().await.unwrap();
        let claim = claims.iter().find(|claim| claim.session == self.session);
        let inbox = store.inbox(&self.session).await.unwrap();
        let head = &state.head;
        let own =
            |i: &&tenure_core::inbox::PendingInput| matches!(i.kind, InputKind::Synthetic { .. });
        let users: Vec<bool> = inbox
            .iter()
            .filter(|i| !own(i))
            .map(|i| i.eligible)
            .collect();
        let phase = head.phase.map(|phase| match phase {
            state::Phase::Safe => Phase::Safe,
            state::Phase::Active => Phase::Active,
            state::Phase::Cancelling => Phase::Cancelling,
        });
        let found = (
            claim.map(|claim| claim.owner.clone()),
            claim.map(|claim| claim.phase),
            row.epoch,
            row.attempts.min(u32::from(self.max_attempts)),
            row.execution.clone(),
            users,
            inbox.iter().filter(own).count(),
            kind(&row.state),
        );
        let expected = (
            head.owner.map(|owner| self.called(owner).clone()),
            phase,
            self.epoch,
            u32::from(head.attempts),
            self.open.execution.clone(),
            vec![!head.parked; usize::from(head.pending)],
            usize::from(head.continuation),
            self.expected_kind(state),
        );
        let open = (
            self.open.execution.is_some(),
            self.open.step.is_some(),
            self.open.tool,
        );
        let turn = &head.turn;
        assert_eq!(
            open,
            (turn.execution, turn.step, turn.tool == Tool::Started)
        );
        if found == expected {
            Ok(())
        } else {
            Err(format!(
                "the store has {found:?}\n     the model has {expected:?}"
            ))
        }
    }

    fn expected_kind(&self, state: &State) -> &'static str {
        let head = &state.head;
        let live = head
            .owner
            .filter(|owner| !state.gone(*owner) && head.offer != Offer::Over);
        let runnable = head.owner.is_some() || head.turn.execution || head.eligible();
        match live {
            _ if head.quarantined => "quarantined",
            Some(owner) if state.nodes[usize::from(owner.slot)].expired => "waiting",
            Some(_) => "owned",
            None if runnable => "claimable",
            None if head.pending > 0 => "parked",
            None => "idle",
        }
    }
}

fn kind(state: &SessionState) -> &'static str {
    match state {
        SessionState::Owned { .. } => "owned",
        SessionState::Claimable { .. } => "claimable",
        SessionState::Waiting { .. } => "waiting",
        SessionState::Parked { .. } => "parked",
        SessionState::Unplaceable { .. } => "unplaceable",
        SessionState::Quarantined { .. } => "quarantined",
        SessionState::Idle => "idle",
    }
}

/// Does the action, done, raise the epoch?
fn raises(before: &State, action: Action) -> bool {
    let hands = |write| matches!(write, Write::HandOver { .. } | Write::Shutdown { .. });
    match action {
        Action::Acquire(_) | Action::AcquireUnheard(_) => true,
        Action::Adopt(n) => {
            let me = state::Incarnation { slot: n, age: 0 };
            before.head.owner != Some(me) || before.head.offer == Offer::No
        }
        Action::Append(_, write) => hands(write),
        Action::Land(n) => before.nodes[usize::from(n)]
            .flight
            .is_some_and(|flight| hands(flight.write)),
        _ => false,
    }
}

fn verdict(error: &AppendError) -> Verdict {
    match error {
        AppendError::StaleClaim { .. } => Verdict::StaleClaim,
        AppendError::Cancelling { .. } => Verdict::Cancelling,
        AppendError::InboxChanged { .. } => Verdict::InboxChanged,
        AppendError::NotIdle { .. } => Verdict::NotIdle,
        AppendError::Rejected { .. } => Verdict::Rejected,
        other => panic!("{other}"),
    }
}
