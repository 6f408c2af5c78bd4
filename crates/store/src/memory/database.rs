//! The database in memory: every operation of the store's contract as one synchronous transaction.
//!
//! It knows no processes and runs no hooks. Its clock is the database's: leases are judged by it.

use super::queries::Queries;
use super::rows::View;
use super::tables::{Node, Tables};
use crate::Switches;
use crate::api::*;
use crate::clock::StoreClock;
use crate::machine::append::{self, Wanted};
use crate::machine::lapse::{Observations, Suspect};
use crate::machine::rows::{NodeState, PROVEN_GONE};
use crate::machine::{AppendStop, Ran, Stop, check, claim, fork, replay};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenure_core::event::{Event, EventBody, EventRecord, NewEvent};
use tenure_core::id::*;
use tenure_core::inbox::PendingInput;

/// The database. Share it by an `Arc`.
pub struct Database {
    tables: Mutex<Tables>,
    clock: Arc<dyn StoreClock>,
    switches: Switches,
}

/// Everything as it was at one moment.
pub struct Copied(Tables);

/// Every node that is not dead, as a reaper looks at it.
#[derive(Debug, Clone)]
pub struct Suspects(Vec<Suspect>);

/// What one process has seen of the other nodes, on its own boot-time clock (R7).
#[derive(Debug, Default)]
pub struct Observer(Observations);

impl Observer {
    /// Which of the others `own` holds for dead at `now_ms` of its boot-time clock, with what it last saw of
    /// each. An error when `own` is not a live node itself.
    pub fn judge(
        &mut self,
        now_ms: i64,
        own: &Incarnation,
        suspects: &Suspects,
        switches: &Switches,
    ) -> Result<Suspects, NodeError> {
        let all = &suspects.0;
        let Some(me) = all.iter().find(|node| node.incarnation == own.as_str()) else {
            return Err(NodeError::NotLive(own.clone()));
        };
        let dead = self.0.judge(now_ms, me, all, switches);
        let dead = |node: &&Suspect| dead.contains(&node.incarnation);
        Ok(Suspects(all.iter().filter(dead).cloned().collect()))
    }

    /// What of the quiet time of a claim just taken is left at `now_ms` of this process's boot-time clock, by what it
    /// has seen itself (R10).
    pub fn quiet(&mut self, now_ms: i64, taken: Acquire, switches: &Switches) -> Acquire {
        self.0.quiet(now_ms, taken, switches)
    }
}

impl Suspects {
    /// Nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Database {
    /// An empty database.
    pub fn new(clock: Arc<dyn StoreClock>, switches: Switches) -> Self {
        Self {
            tables: Mutex::default(),
            clock,
            switches,
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules that are broken on purpose.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// One transaction: undone when it is refused or changed nothing.
    fn write<T, E>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<(T, Ran), Stop<E>>,
        failed: impl FnOnce(String) -> E,
    ) -> Result<T, E> {
        let mut tables = self.tables();
        let (lease_ms, wall_ms) = (self.clock.boottime_ms(), self.clock.wall_ms());
        let view = View::new(&mut tables, lease_ms, wall_ms, &self.switches);
        match work(&view) {
            Ok((value, Ran::Wrote)) => Ok(value),
            Ok((value, Ran::Nothing)) => {
                view.roll_back();
                Ok(value)
            }
            Err(stop) => {
                view.roll_back();
                Err(match stop {
                    Stop::Refused(refusal) => refusal,
                    Stop::Failed(failure) => failed(format!("{failure:?}")),
                })
            }
        }
    }

    fn write_session<T>(
        &self,
        work: impl FnOnce(&View<'_>) -> Result<(T, Ran), AppendStop>,
    ) -> Result<T, AppendError> {
        self.write(work, |reason| AppendError::Unavailable { reason })
    }

    fn query<T>(&self, ask: impl FnOnce(&Queries<'_>) -> T) -> T {
        let tables = self.tables();
        ask(&Queries {
            tables: &tables,
            lease_ms: self.clock.boottime_ms(),
            wall_ms: self.clock.wall_ms(),
        })
    }

    /// As [`Store::append`], without the hook, which belongs to a process.
    pub fn append(&self, append: Append) -> Result<Committed, AppendError> {
        let wanted = Wanted {
            events: check::encode(&append.session, append.events)?,
            session: append.session,
            fence: append.fence,
            guard: append.guard,
            ops: append.ops,
        };
        self.write_session(|view| {
            let committed = append::run(view, &wanted)?;
            let ran = if committed.duplicate {
                Ran::Nothing
            } else {
                Ran::Wrote
            };
            Ok((committed, ran))
        })
    }

    /// As [`Store::resolve`].
    pub fn resolve(
        &self,
        session: &SessionId,
        fence: &Fence,
        ids: &[EventId],
    ) -> Result<Option<Committed>, AppendError> {
        self.write_session(|view| {
            let found = append::resolve(view, session, fence, ids)?;
            Ok((found, Ran::Wrote))
        })
    }

    /// As [`Store::fork`].
    pub fn fork(
        &self,
        parent: &SessionId,
        through: u64,
        child: &SessionId,
        event: NewEvent,
    ) -> Result<Committed, AppendError> {
        let encoded = check::encode(child, vec![event])?;
        self.write_session(|view| {
            let mut committed = None;
            for event in &encoded {
                committed = Some(fork::fork(view, parent, through, child, event)?);
            }
            let committed = committed.ok_or_else(|| {
                crate::machine::rejected(child, "a fork begins with its own event")
            })?;
            let ran = if committed.duplicate {
                Ran::Nothing
            } else {
                Ran::Wrote
            };
            Ok((committed, ran))
        })
    }

    /// As [`Store::acquire`].
    pub fn acquire(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
        even_if_idle: bool,
    ) -> Result<Acquire, AppendError> {
        self.write_session(|view| claim::acquire(view, session, incarnation, even_if_idle))
    }

    /// As [`Store::adopt`].
    pub fn adopt(
        &self,
        session: &SessionId,
        incarnation: &Incarnation,
    ) -> Result<Acquire, AppendError> {
        self.write_session(|view| claim::adopt(view, session, incarnation))
    }

    /// As [`Store::interrupt`].
    pub fn interrupt(&self, asked: &Interrupt) -> Result<Interrupted, AppendError> {
        self.write_session(|view| {
            let answer = claim::interrupt(view, asked)?;
            let wrote = !matches!(answer, Interrupted::Idle | Interrupted::AlreadyFinished);
            Ok((answer, if wrote { Ran::Wrote } else { Ran::Nothing }))
        })
    }

    /// As [`Store::replay`].
    pub fn replay(
        &self,
        session: &SessionId,
        events: Vec<EventRecord>,
    ) -> Result<Replayed, ReplayError> {
        let gaps = broken!(self.switches, ReplayAcceptsGap);
        let lines = replay::read_lines(session, events, gaps)?;
        self.write(
            |view| {
                let done = replay::replay(view, session, &lines)?;
                let ran = if done.inserted > 0 {
                    Ran::Wrote
                } else {
                    Ran::Nothing
                };
                Ok((done, ran))
            },
            |reason| ReplayError::Unavailable { reason },
        )
    }

    /// As [`Store::delete`].
    pub fn delete(&self, id: &SessionId) -> Result<(), DeleteError> {
        let mut tables = self.tables();
        let Some(session) = tables.find(id) else {
            return Err(DeleteError::UnknownSession(id.clone()));
        };
        let sid = session.head.sid;
        let owner = session.head.owner.clone();
        let alive = |owner: &String| {
            let node = tables.nodes.get(owner);
            node.is_some_and(|node| node.state != NodeState::Dead && !node.gone)
        };
        if let Some(owner) = owner.filter(alive) {
            let owner = Incarnation::parse(&owner).map_err(|bad| DeleteError::Unavailable {
                reason: bad.to_string(),
            })?;
            return Err(DeleteError::Owned {
                session: id.clone(),
                owner,
            });
        }
        tables.by_id.remove(id);
        tables.receipts.retain(|_, (holder, _)| *holder != sid);
        let forget = broken!(self.switches, DeleteForgetsCheckpoints);
        if let Some(session) = tables.session_mut(sid) {
            let head = &mut session.head;
            session.deleted = true;
            head.owner = None;
            head.claim_id = None;
            head.phase = None;
            head.pending = 0;
            head.execution = None;
            session.claim = None;
            session.inbox.clear();
            session.effects.clear();
            if forget {
                session.checkpoints.clear();
            }
        }
        tables.changed(sid);
        let harm = broken!(self.switches, DeleteHarmsForks);
        tables.purge(harm);
        Ok(())
    }

    /// As [`Store::join`].
    pub fn join(&self, node: NodeInfo) -> Result<(), NodeError> {
        let now = self.clock.boottime_ms();
        let mut tables = self.tables();
        let name = node.incarnation.as_str().to_owned();
        if tables.nodes.contains_key(&name) {
            return Err(NodeError::NotLive(node.incarnation));
        }
        tables.joins += 1;
        let lease_ms = i64::try_from(node.lease.as_millis()).unwrap_or(i64::MAX / 4);
        let row = Node {
            name: node.name,
            address: node.address,
            serves: node.serves,
            state: NodeState::Active,
            lease_ms,
            lease_until: now.saturating_add(lease_ms),
            renewal_no: 0,
            join: tables.joins,
            ended_ms: 0,
            gone: false,
            lingers: false,
            resigned: false,
        };
        tables.nodes.insert(name, row);
        Ok(())
    }

    /// As [`Store::renew`].
    pub fn renew(&self, incarnation: &Incarnation) -> Renewal {
        let now = self.clock.boottime_ms();
        let even_dead = broken!(self.switches, RenewWhenDead);
        let mut tables = self.tables();
        match tables.nodes.get_mut(incarnation.as_str()) {
            Some(node) if node.state != NodeState::Dead || even_dead => {
                node.renewal_no += 1;
                node.lease_until = now.saturating_add(node.lease_ms);
                Renewal::Renewed
            }
            _ => Renewal::Dead,
        }
    }

    /// As [`Store::drain`].
    pub fn drain(&self, incarnation: &Incarnation) -> Result<(), NodeError> {
        let mut tables = self.tables();
        match tables.nodes.get_mut(incarnation.as_str()) {
            Some(node) if node.state != NodeState::Dead => {
                node.state = NodeState::Draining;
                Ok(())
            }
            _ => Err(NodeError::NotLive(incarnation.clone())),
        }
    }

    /// As [`Store::leave`].
    pub fn leave(&self, incarnation: &Incarnation) {
        let now = self.now();
        bury(&mut self.tables(), incarnation.as_str(), Death::Proven, now);
    }

    /// As [`Store::resign`].
    pub fn resign(&self, incarnation: &Incarnation) {
        let now = self.now();
        let mut tables = self.tables();
        bury(&mut tables, incarnation.as_str(), Death::Proven, now);
        if let Some(node) = tables.nodes.get_mut(incarnation.as_str()) {
            node.resigned = true;
            node.lease_until = PROVEN_GONE;
        }
    }

    /// The lease clock and the wall clock.
    fn now(&self) -> (i64, i64) {
        (self.clock.boottime_ms(), self.clock.wall_ms())
    }

    /// Its connections closed and its address refuses: the process is dead, whatever its lease says.
    pub fn process_gone(&self, incarnation: &Incarnation) {
        let mut tables = self.tables();
        if let Some(node) = tables.nodes.get_mut(incarnation.as_str()) {
            node.gone = true;
        }
    }

    /// As [`Database::process_gone`], by fast suspicion alone: what it had started may live on until its lease is
    /// over (R10).
    pub fn process_absent(&self, incarnation: &Incarnation) {
        let mut tables = self.tables();
        if let Some(node) = tables.nodes.get_mut(incarnation.as_str()) {
            (node.gone, node.lingers) = (true, true);
        }
    }

    /// A copy of everything, as a backup.
    pub fn copy(&self) -> Copied {
        Copied(self.tables().clone())
    }

    /// Puts everything back to where it was.
    pub fn set_back(&self, to: Copied) {
        let mut tables = self.tables();
        let version = tables.version + 1;
        *tables = to.0;
        tables.version = version;
    }

    /// What a reaper judges by.
    pub fn suspects(&self) -> Suspects {
        let now = self.clock.boottime_ms();
        let tables = self.tables();
        let nodes = tables.nodes.iter();
        let alive = nodes.filter(|(_, node)| node.state != NodeState::Dead);
        let suspect = |(name, node): (&String, &Node)| Suspect {
            incarnation: name.clone(),
            proven_dead: node.gone,
            lease_ms: node.lease_ms,
            expired: node.lease_until < now,
            renewal_no: node.renewal_no,
        };
        Suspects(alive.map(suspect).collect())
    }

    /// Marks those dead whose row says the same as when they were judged: under the row's lock, a renewal since is
    /// looked for again (R7). Who is dead now by this.
    pub fn bury(&self, judged: &Suspects) -> Vec<Incarnation> {
        let now = self.now();
        let mut tables = self.tables();
        let mut buried = Vec::new();
        for suspect in &judged.0 {
            let death = match tables.nodes.get(&suspect.incarnation) {
                Some(node) if node.gone && !node.lingers => Death::Proven,
                Some(node) if node.gone => Death::Lapsed,
                Some(node) if node.renewal_no == suspect.renewal_no => Death::Lapsed,
                _ => continue,
            };
            if bury(&mut tables, &suspect.incarnation, death, now) {
                buried.extend(Incarnation::parse(&suspect.incarnation));
            }
        }
        buried
    }

    /// As [`Store::read`].
    pub fn read(
        &self,
        session: &SessionId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Page, ReadError> {
        self.query(|q| q.read(session, after, limit))
    }

    /// As [`Store::session`].
    pub fn session(&self, session: &SessionId) -> Result<Option<SessionRow>, ReadError> {
        self.query(|q| q.session(session))
    }

    /// As [`Store::sessions`].
    pub fn sessions(&self, query: &SessionQuery) -> Result<Vec<SessionRow>, ReadError> {
        self.query(|q| q.sessions(query))
    }

    /// As [`Store::claimable`].
    pub fn claimable(&self, limit: usize) -> Result<Vec<SessionRow>, ReadError> {
        self.query(|q| q.claimable(limit))
    }

    /// As [`Store::inbox`].
    pub fn inbox(&self, session: &SessionId) -> Result<Vec<PendingInput>, ReadError> {
        self.query(|q| q.inbox(session))
    }

    /// As [`Store::effects`].
    pub fn effects(&self, session: &SessionId) -> Result<Vec<EffectRow>, ReadError> {
        self.query(|q| q.effects(session))
    }

    /// As [`Store::leftovers`].
    pub fn leftovers(&self, limit: usize) -> Result<Vec<(SessionId, EffectRow)>, ReadError> {
        self.query(|q| Ok(q.leftovers(limit)))
    }

    /// As [`Store::claim_phase`].
    pub fn claim_phase(
        &self,
        session: &SessionId,
        fence: &Fence,
    ) -> Result<Option<ClaimView>, ReadError> {
        self.query(|q| q.claim_phase(session, fence))
    }

    /// As [`Store::claims`].
    pub fn claims(&self) -> Result<Vec<ClaimRow>, ReadError> {
        self.query(|q| q.claims())
    }

    /// As [`Store::held`].
    pub fn held(&self, incarnation: &Incarnation) -> Result<Vec<HeldClaim>, ReadError> {
        self.query(|q| q.held(incarnation))
    }

    /// As [`Store::nodes`].
    pub fn nodes(&self) -> Vec<NodeRow> {
        self.query(|q| q.nodes())
    }

    /// As [`Store::put_checkpoint`].
    pub fn put_checkpoint(
        &self,
        session: &SessionId,
        checkpoint: Checkpoint,
    ) -> Result<(), ReadError> {
        let mut tables = self.tables();
        let sid = tables.find(session).map(|s| s.head.sid);
        let Some(kept) = sid.and_then(|sid| tables.session_mut(sid)) else {
            return Err(ReadError::UnknownSession(session.clone()));
        };
        let (version, through) = (checkpoint.version, checkpoint.through);
        kept.checkpoints
            .retain(|c| c.version == version && c.through != through);
        let at = kept.checkpoints.partition_point(|c| c.through < through);
        kept.checkpoints.insert(at, checkpoint);
        Ok(())
    }

    /// As [`Store::checkpoints`].
    pub fn checkpoints(
        &self,
        session: &SessionId,
        version: u32,
    ) -> Result<Vec<Checkpoint>, ReadError> {
        self.query(|q| q.checkpoints(session, version))
    }

    /// As [`Store::gc`].
    pub fn gc(&self) -> GcReport {
        let harm = broken!(self.switches, DeleteHarmsForks);
        let before_ms = self.clock.wall_ms() - 3_600_000;
        let mut tables = self.tables();
        let events_removed = tables.purge(harm);
        let before = tables.nodes.len();
        let owners: Vec<String> = tables
            .sessions
            .iter()
            .filter_map(|s| s.head.owner.clone())
            .collect();
        tables.nodes.retain(|name, node| {
            node.state != NodeState::Dead || node.ended_ms >= before_ms || owners.contains(name)
        });
        GcReport {
            bytes_before: 0,
            bytes_after: 0,
            events_removed,
            nodes_removed: (before - tables.nodes.len()) as u64,
            more: false,
        }
    }

    /// As [`Store::health`].
    pub fn health(&self) -> StoreHealth {
        let sessions = self.tables().by_id.len() as u64;
        StoreHealth {
            engine: "memory".to_owned(),
            place: "this process".to_owned(),
            schema: 0,
            problems: Vec::new(),
            bytes: self.bytes(),
            sessions,
            durability: "none".to_owned(),
        }
    }

    /// Sessions changed after `version`, and the version now: what a poll finds.
    pub fn changes(&self, version: u64) -> (u64, Vec<SessionId>) {
        let tables = self.tables();
        if tables.version == version {
            return (version, Vec::new());
        }
        let changed = tables.sessions.iter().filter(|s| s.version > version);
        let changed = changed.map(|s| s.head.id.clone()).collect();
        (tables.version, changed)
    }

    /// Every session that is not deleted with its whole log: what an export holds.
    pub fn export(&self) -> Vec<(SessionId, Vec<Event>)> {
        let tables = self.tables();
        let live = tables.sessions.iter().filter(|s| !s.deleted);
        live.map(|session| {
            let id = &session.head.id;
            let segments = tables.segments(&session.head);
            let events = tables.rows(&segments, 0).map(|(_, row)| row.event(id));
            (id.clone(), events.collect())
        })
        .collect()
    }

    /// Bytes of the bodies it holds.
    pub fn bytes(&self) -> u64 {
        let tables = self.tables();
        let rows = tables.sessions.iter().flat_map(|s| &s.events);
        rows.map(|row| row.event.text.len() as u64).sum()
    }

    /// The newest event of a session that matches: its seq and epoch.
    pub fn find_event(
        &self,
        session: &SessionId,
        matches: impl Fn(&EventBody) -> bool,
    ) -> Option<(u64, Option<u64>)> {
        let tables = self.tables();
        let rows = tables.find(session)?.events.iter().rev();
        let found = rows.into_iter().find(|row| matches(&row.event.body))?;
        Some((found.seq, found.epoch))
    }

    /// The newest event of any session that matches: the session and its epoch.
    pub fn find_event_anywhere(
        &self,
        matches: impl Fn(&EventBody) -> bool,
    ) -> Option<(SessionId, Option<u64>)> {
        let tables = self.tables();
        tables.sessions.iter().find_map(|session| {
            let rows = session.events.iter().rev();
            let found = rows.into_iter().find(|row| matches(&row.event.body))?;
            Some((session.head.id.clone(), found.epoch))
        })
    }

    /// The epoch in force of a session.
    pub fn epoch(&self, session: &SessionId) -> Option<u64> {
        self.tables().find(session).map(|s| s.head.epoch)
    }

    /// Who holds the session while alive, and has not let the time for accepting it pass: nobody else may take it (R7).
    pub fn live_holder(&self, session: &SessionId) -> Option<String> {
        let now = self.clock.boottime_ms();
        let tables = self.tables();
        let head = &tables.find(session)?.head;
        let owner = head.owner.clone()?;
        let missed = head.missed(now);
        let node = tables.nodes.get(&owner)?;
        (!missed && node.state != NodeState::Dead && !node.gone).then_some(owner)
    }

    /// Is the session held under this very claim and epoch? Whatever the write number is.
    pub fn is_held_under(&self, session: &SessionId, fence: &Fence) -> bool {
        let tables = self.tables();
        tables.find(session).is_some_and(|session| {
            let head = &session.head;
            head.epoch == fence.epoch
                && head.claim_id.as_deref() == Some(fence.claim.as_str())
                && head.owner.as_deref() == Some(fence.owner.as_str())
        })
    }
}

/// How a node's death is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// Its lease ended, or it is gone by all signs: what it started may live on until its lease and a moment are over.
    Lapsed,
    /// Its process is gone, or says itself that it is done.
    Proven,
}

/// Marks a node dead, for good; false when it was. `now`: the lease clock and the wall clock.
fn bury(tables: &mut Tables, name: &str, death: Death, now: (i64, i64)) -> bool {
    match tables.nodes.get_mut(name) {
        Some(node) if node.state != NodeState::Dead => {
            node.state = NodeState::Dead;
            node.ended_ms = now.1;
            if death == Death::Proven {
                node.lease_until = PROVEN_GONE;
            }
        }
        _ => return false,
    }
    let sessions = tables.sessions.iter();
    let owned: Vec<i64> = sessions
        .filter(|s| s.head.owner.as_deref() == Some(name))
        .map(|s| s.head.sid)
        .collect();
    for sid in owned {
        if let Some(session) = tables.session_mut(sid) {
            session.head.rev += 1;
        }
        tables.changed(sid);
    }
    true
}
