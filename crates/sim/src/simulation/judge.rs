//! What must hold at the end: of the exported logs, of what clients were told, of what physically happened.

use super::clients::{Clients, Told};
use super::ledger::{Ledger, Violation};
use super::world::World;
use crate::checker;
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::event::body::InterruptReason;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::*;
use tenure_store::{Interrupted, SessionState};

/// An exported log by session.
pub type Logs = BTreeMap<SessionId, Vec<Event>>;

/// Judges a world that has come to rest.
pub fn judge(world: &World, clients: &Clients) -> (Logs, Vec<Violation>) {
    let logs: Logs = world.database.export().into_iter().collect();
    let mut found = world.ledger.violations();
    for (session, events) in &logs {
        for finding in checker::check(events) {
            found.push(Violation {
                promise: finding.promise.to_string(),
                message: format!("{session} at seq {}: {}", finding.seq, finding.message),
            });
        }
        let judged = Judged {
            session,
            events,
            found: &mut found,
        };
        let woken = clients.told().unparked.contains(session);
        judged.log(&world.ledger, woken);
    }
    told(&clients.told(), &logs, &mut found);
    (logs, found)
}

/// Why the world is not at rest; none when it is.
pub fn unrest(world: &World, clients: &Clients) -> Option<String> {
    if clients.busy() > 0 {
        return Some(format!("{} clients have no answer", clients.busy()));
    }
    let claims = world.database.claims().unwrap_or_default();
    if let Some(claim) = claims.first() {
        return Some(format!("a claim is left: {claim:?}"));
    }
    let rows = world
        .database
        .sessions(&Default::default())
        .unwrap_or_default();
    let busy = rows.into_iter().find(|row| {
        !matches!(
            row.state,
            SessionState::Idle | SessionState::Parked { .. } | SessionState::Quarantined { .. }
        )
    });
    let busy = busy.map(|row| format!("{} is {:?}", row.id, row.state));
    // At rest, every reader sees the whole log (P6).
    busy.or_else(|| clients.behind())
}

fn add(found: &mut Vec<Violation>, promise: &str, message: String) {
    found.push(Violation {
        promise: promise.to_owned(),
        message,
    });
}

/// One session's log being judged.
struct Judged<'a> {
    session: &'a SessionId,
    events: &'a [Event],
    found: &'a mut Vec<Violation>,
}

impl Judged<'_> {
    fn add(&mut self, promise: &str, message: String) {
        let message = format!("{}: {message}", self.session);
        add(self.found, promise, message);
    }

    /// `woken`: somebody woke what rested, which leaves no event.
    fn log(mut self, ledger: &Ledger, woken: bool) {
        let mut open: Option<ExecutionId> = None;
        let mut interrupted: Vec<ExecutionId> = Vec::new();
        let mut quarantined = false;
        let mut keys = BTreeSet::new();
        for event in self.events {
            match &event.body {
                // What was open in the parent is the parent's.
                EventBody::SessionForked(_) => open = None,
                EventBody::ExecutionStarted(e) => open = Some(e.execution.clone()),
                EventBody::ExecutionSucceeded(_) | EventBody::ExecutionFailed(_) => open = None,
                EventBody::ExecutionInterrupted(e) => {
                    open = None;
                    let asked = interrupted.contains(&e.execution);
                    if e.reason == InterruptReason::User && !asked {
                        let words = format!(
                            "{} was interrupted, and nobody had asked for it",
                            e.execution
                        );
                        self.add("P4", words);
                    }
                }
                EventBody::InterruptRequested(e) => {
                    interrupted.extend(e.execution.clone());
                    if !keys.insert(e.interrupt.clone()) {
                        let words = format!("interrupt {} was recorded twice", e.interrupt);
                        self.add("P4", words);
                    }
                }
                EventBody::SessionQuarantined(_) => quarantined = true,
                EventBody::SessionReleased(_) => quarantined = false,
                EventBody::ToolSucceeded(e) if e.native.is_none() => {
                    let own = event.session == *self.session;
                    if own
                        && !self.is_inherited(event.seq)
                        && !ledger.was_done(self.session, &e.message, &e.call)
                    {
                        let words = format!(
                            "call {} of {} is said to have succeeded, and did not",
                            e.call, e.message
                        );
                        self.add("P5", words);
                    }
                }
                _ => {}
            }
        }
        if let Some(open) = open.filter(|_| !quarantined) {
            self.add("P7", format!("{open} is open, and nobody works on it"));
        }
        self.stale_results();
        self.settled_first(&ledger.registry.lost(self.session));
        if !woken {
            self.rests();
        }
    }

    /// Without what a fork inherits: that is judged in its parent's log.
    fn own_events(&self) -> &[Event] {
        let fork = self.events.iter().rposition(is_fork);
        &self.events[fork.unwrap_or(0)..]
    }

    /// Whoever took the session from a lost owner in the middle of a step settles first: of what had not begun, nothing
    /// is run (R10).
    fn settled_first(&mut self, lost: &BTreeSet<u64>) {
        let mut begun = BTreeSet::new();
        let mut late = Vec::new();
        for event in self.own_events() {
            let Some(epoch) = event.epoch.filter(|epoch| begun.insert(*epoch)) else {
                continue;
            };
            let settles = matches!(
                event.body,
                EventBody::RecoveryStarted(_) | EventBody::SessionQuarantined(_)
            );
            if lost.contains(&epoch) && !settles {
                late.push(format!(
                    "epoch {epoch} found a lost owner's step open, and began with {} at seq {}",
                    event.body.type_name(),
                    event.seq
                ));
            }
        }
        for words in late {
            self.add("P5", words);
        }
    }

    /// What waits when an execution fails or is interrupted rests, until somebody says something new; what was said
    /// behind the interrupt is new (R4, R5).
    fn rests(&mut self) {
        let mut resting: Option<u64> = None;
        let mut stopped = false;
        let mut since: BTreeSet<MessageId> = BTreeSet::new();
        let mut early = Vec::new();
        for event in self.own_events() {
            match &event.body {
                EventBody::InputAdmitted(e) if event.epoch.is_none() => {
                    resting = None;
                    if stopped {
                        since.insert(e.input.clone());
                    }
                }
                EventBody::InputCancelled(e) => {
                    since.remove(&e.input);
                }
                EventBody::SessionReleased(_) => resting = None,
                EventBody::InterruptRequested(e) => match e.execution {
                    Some(_) => {
                        stopped = true;
                        since.clear();
                    }
                    // Nothing had begun.
                    None => resting = Some(event.seq),
                },
                EventBody::ExecutionFailed(_) | EventBody::ExecutionInterrupted(_) => {
                    resting = since.is_empty().then_some(event.seq);
                    stopped = false;
                    since.clear();
                }
                EventBody::ExecutionStarted(_) | EventBody::InputPromoted(_) => {
                    if let Some(at) = resting.take() {
                        early.push(format!(
                            "{} at seq {}, of what rests since seq {at}",
                            event.body.type_name(),
                            event.seq
                        ));
                    }
                }
                _ => {}
            }
        }
        for words in early {
            self.add("R4", words);
        }
    }

    /// Is the event one of the parent's?
    fn is_inherited(&self, seq: u64) -> bool {
        let forked = self.events.iter().rev();
        let mut forked = forked.filter(|event| matches!(event.body, EventBody::SessionForked(_)));
        forked.next().is_some_and(|event| seq < event.seq)
    }

    /// A call started under one generation is not settled well under another (R14).
    fn stale_results(&mut self) {
        let mut generation = 0;
        let mut started: BTreeMap<(MessageId, CallId), u64> = BTreeMap::new();
        let mut late = Vec::new();
        for event in self.events {
            match &event.body {
                EventBody::AttachmentReplaced(e) => generation = e.generation,
                EventBody::ToolStarted(e) => {
                    started.insert((e.message.clone(), e.call.clone()), e.generation);
                    if e.generation != generation {
                        late.push(format!(
                            "call {} of {} started under generation {}, which is not in force",
                            e.call, e.message, e.generation
                        ));
                    }
                }
                EventBody::ToolSucceeded(e) => {
                    let of = started.get(&(e.message.clone(), e.call.clone()));
                    if of.is_some_and(|of| *of != generation) {
                        late.push(format!(
                            "call {} of {} ended well for a replaced location",
                            e.call, e.message
                        ));
                    }
                }
                _ => {}
            }
        }
        for words in late {
            self.add("P5", words);
        }
    }
}

/// What clients were told against what the logs say.
fn told(told: &Told, logs: &Logs, found: &mut Vec<Violation>) {
    // A deleted session may be made again by a creation that came late: what is in it then is another story.
    let kept = |session: &SessionId| !told.deleted.contains(session);
    for (session, input, seq) in told.admitted.iter().filter(|(of, _, _)| kept(of)) {
        let Some(events) = logs.get(session) else {
            let words = format!("{session} is gone, and nobody deleted it");
            add(found, "P2", words);
            continue;
        };
        let admitted = events
            .iter()
            .find(|event| matches!(&event.body, EventBody::InputAdmitted(e) if &e.input == input));
        match admitted {
            None => add(
                found,
                "P2",
                format!("{session}: input {input} was acknowledged and is not in the log"),
            ),
            // Zero says that only its being there is known.
            Some(event) if *seq != 0 && event.seq != *seq => {
                let words = format!(
                    "{session}: input {input} was acknowledged at {seq} and is at {}",
                    event.seq
                );
                add(found, "P2", words);
            }
            Some(_) => {}
        }
    }
    for (session, input) in told.cancelled.iter().filter(|(of, _)| kept(of)) {
        let Some(events) = logs.get(session) else {
            continue;
        };
        let gone = |event: &Event| matches!(&event.body, EventBody::InputCancelled(e) if &e.input == input);
        if !events.iter().any(gone) {
            add(
                found,
                "P2",
                format!(
                    "{session}: the cancellation of {input} was acknowledged and is not in the log"
                ),
            );
        }
    }
    for (session, named, answer) in told.interrupts.iter().filter(|(of, _, _)| kept(of)) {
        if let Some(events) = logs.get(session) {
            let woken = told.unparked.contains(session);
            interrupt(session, named.as_ref(), answer, events, woken, found);
        }
    }
    for ((session, _), seen) in told.seen.iter().filter(|((of, _), _)| kept(of)) {
        let Some(events) = logs.get(session) else {
            continue;
        };
        let same = seen
            .iter()
            .zip(events)
            .all(|(seen, event)| *seen == event.id);
        if !same || seen.len() > events.len() {
            add(
                found,
                "P6",
                format!("{session}: a reader saw another log than the one that is stored"),
            );
        }
    }
}

fn interrupt(
    session: &SessionId,
    named: Option<&ExecutionId>,
    answer: &Interrupted,
    events: &[Event],
    woken: bool,
    found: &mut Vec<Violation>,
) {
    match answer {
        Interrupted::Accepted { seq, execution, .. } => {
            let at = events.iter().find(|event| event.seq == *seq);
            let there = at.is_some_and(|event| {
                matches!(&event.body, EventBody::InterruptRequested(e) if e.execution == *execution)
            });
            if !there {
                add(
                    found,
                    "P4",
                    format!("{session}: an accepted interrupt is not at seq {seq}"),
                );
            }
            let Some(execution) = execution else { return };
            if named.is_some_and(|named| named != execution) {
                add(
                    found,
                    "P4",
                    format!("{session}: {named:?} was to be interrupted, and {execution} was"),
                );
            }
            let ends = events.iter().find_map(|event| match &event.body {
                EventBody::ExecutionInterrupted(e) if e.execution == *execution => Some(true),
                EventBody::ExecutionSucceeded(e) if e.execution == *execution => Some(false),
                EventBody::ExecutionFailed(e) if e.execution == *execution => {
                    Some(e.error.kind == "quarantined")
                }
                _ => None,
            });
            match ends {
                Some(true) => {}
                Some(false) => add(
                    found,
                    "P4",
                    format!("{session}: the interrupt of {execution} at seq {seq} was lost"),
                ),
                None => add(
                    found,
                    "P4",
                    format!("{session}: {execution}, interrupted at seq {seq}, never ended"),
                ),
            }
        }
        Interrupted::StoppedBeforeStart { seq } => {
            let at = events.iter().find(|event| event.seq == *seq);
            let there =
                at.is_some_and(|event| matches!(event.body, EventBody::InterruptRequested(_)));
            if !there {
                add(
                    found,
                    "P4",
                    format!("{session}: an interrupt that stopped a start is not at seq {seq}"),
                );
            }
            // Waking what is parked leaves no event.
            if !woken {
                stays_parked(session, *seq, events, found);
            }
        }
        Interrupted::AlreadyFinished => {
            let Some(named) = named else { return };
            let ended = events.iter().any(|event| match &event.body {
                EventBody::ExecutionInterrupted(e) => &e.execution == named,
                EventBody::ExecutionSucceeded(e) => &e.execution == named,
                EventBody::ExecutionFailed(e) => &e.execution == named,
                _ => false,
            });
            if !ended {
                add(
                    found,
                    "P4",
                    format!("{session}: {named} is said to have finished, and never did"),
                );
            }
        }
        Interrupted::Idle => {}
    }
}

fn is_fork(event: &Event) -> bool {
    matches!(event.body, EventBody::SessionForked(_))
}

/// After *stopped before start* nothing begins before somebody has written something new.
fn stays_parked(session: &SessionId, seq: u64, events: &[Event], found: &mut Vec<Violation>) {
    for event in events.iter().filter(|event| event.seq > seq) {
        match &event.body {
            EventBody::InputAdmitted(_) | EventBody::SessionReleased(_) => return,
            EventBody::ExecutionStarted(e) => {
                let words = format!(
                    "{session}: {} began behind the interrupt at seq {seq} that had stopped it",
                    e.execution
                );
                add(found, "P4", words);
                return;
            }
            _ => {}
        }
    }
}
