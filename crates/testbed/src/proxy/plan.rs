//! What a proxy is to do, as its switches stand, and what it has done.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// How new connections are met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Door {
    /// They are taken.
    #[default]
    Open,
    /// Nobody listens: connecting fails at once. The port stays ours.
    Refuse,
}

/// One of the two ways through a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What happens to bytes on one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flow {
    /// They go through.
    #[default]
    Pass,
    /// They wait, and so does an end of the stream; nothing is lost, and with [`Flow::Pass`] it goes on. A network that
    /// comes back.
    Stall,
    /// They are taken and lost, and so is an end of the stream. A connection that has lost something stays silent on that
    /// way for ever, as nothing could make it whole. A network that does not come back.
    Swallow,
    /// They arrive later by this much, in order, without loss of throughput.
    Delay(Duration),
    /// This many more go through on each connection, then it is cut on both sides.
    CutAfter(u64),
}

/// What happens to one COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// The server never sees it and rolls back; the client is cut.
    RequestLost,
    /// The server has carried it out and answered; the client is cut without the answer.
    AnswerLost,
    /// The client is cut, and the server gets it at [`super::Proxy::deliver_late`]; until then the transaction is open
    /// and holds its locks.
    Late,
    /// As [`CommitFault::Late`], and the transaction's BEGIN and everything after it are held back too, so that no lock is
    /// held. Only for clients that send BEGIN to COMMIT without waiting for answers between; others hang.
    WholeLate,
}

/// How much went through a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections taken.
    pub connections: u64,
    /// Of these, open now.
    pub open: u64,
    /// Bytes handed to the server.
    pub up: u64,
    /// Bytes handed to clients.
    pub down: u64,
}

/// The switches. Numbers rise with each order, so that each connection sees each order once.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub target: SocketAddr,
    pub door: Door,
    pub up: Flow,
    pub down: Flow,
    /// For the answers to connections that listen for notifications.
    pub listeners: Flow,
    pub cuts: u64,
    pub deliveries: u64,
    pub over: bool,
}

impl Plan {
    /// What holds for one way of a connection; `listens`: it waits for notifications.
    pub fn flow(&self, way: Way, listens: bool) -> Flow {
        match way {
            Way::Up => self.up,
            Way::Down if listens && self.down == Flow::Pass => self.listeners,
            Way::Down => self.down,
        }
    }

    pub fn flow_mut(&mut self, way: Way) -> &mut Flow {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }
}

/// What the proxy's handle and its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub plan: watch::Sender<Plan>,
    /// Whether the traffic is PostgreSQL's.
    pub postgres: bool,
    commit: Mutex<Commit>,
    refusing: AtomicBool,
    pub connections: AtomicU64,
    pub open: AtomicU64,
    pub up: AtomicU64,
    pub down: AtomicU64,
    /// Commits that were cut from their client and not yet answered by the server.
    pub held: AtomicUsize,
}

/// A commit fault from the order to its end.
#[derive(Debug, Default)]
struct Commit {
    waiting: Option<CommitFault>,
    /// Taken by a connection that has not cut its client yet.
    taken: bool,
}

impl Shared {
    pub fn new(target: SocketAddr, postgres: bool) -> Self {
        let plan = Plan {
            target,
            door: Door::Open,
            up: Flow::Pass,
            down: Flow::Pass,
            listeners: Flow::Pass,
            cuts: 0,
            deliveries: 0,
            over: false,
        };
        Shared {
            plan: watch::Sender::new(plan),
            postgres,
            commit: Mutex::default(),
            refusing: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            held: AtomicUsize::new(0),
        }
    }

    pub fn change(&self, change: impl FnOnce(&mut Plan)) {
        self.plan.send_modify(change);
    }

    /// The door as it stands, not as it was ordered.
    pub fn door(&self) -> Door {
        if self.refusing.load(Ordering::SeqCst) {
            Door::Refuse
        } else {
            Door::Open
        }
    }

    pub fn door_stands(&self, door: Door) {
        self.refusing.store(door == Door::Refuse, Ordering::SeqCst);
    }

    fn commit(&self) -> MutexGuard<'_, Commit> {
        self.commit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn arm(&self, fault: CommitFault) {
        *self.commit() = Commit {
            waiting: Some(fault),
            taken: false,
        };
    }

    pub fn disarm(&self) {
        self.commit().waiting = None;
    }

    pub fn is_armed(&self) -> bool {
        let commit = self.commit();
        commit.waiting.is_some() || commit.taken
    }

    /// The fault that the next commit meets; it stays for others.
    pub fn waiting(&self) -> Option<CommitFault> {
        self.commit().waiting
    }

    /// Takes the fault, for one connection only.
    pub fn take_fault(&self) -> Option<CommitFault> {
        let mut commit = self.commit();
        let fault = commit.waiting.take();
        commit.taken |= fault.is_some();
        fault
    }

    /// The connection that took the fault has cut its client.
    pub fn fault_met(&self) {
        self.commit().taken = false;
    }

    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.load(Ordering::SeqCst),
            open: self.open.load(Ordering::SeqCst),
            up: self.up.load(Ordering::SeqCst),
            down: self.down.load(Ordering::SeqCst),
        }
    }
}
