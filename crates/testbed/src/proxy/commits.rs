//! Finds the COMMIT that a fault was ordered for, and decides what passes from then on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::plan::{CommitFault, Shared};
use super::wire::{Downward, Statement, Upward};

/// Makes the server answer whatever came before it.
const SYNC: [u8; 5] = [b'S', 0, 0, 0, 4];

/// Why a connection ends before both sides have closed it.
#[derive(Debug)]
pub(super) enum End {
    /// Both sides are reset.
    Cut,
    /// A commit met its fault: the client is reset, the server is left.
    Commit,
    /// The same, and the server gets these bytes later.
    Late(Vec<u8>),
}

/// One connection's traffic with PostgreSQL, seen from both ways.
#[derive(Debug, Default)]
pub(super) struct Talk {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    up: Upward,
    down: Downward,
    /// Ends of transactions that were asked for and not yet answered.
    asked: usize,
    listens: bool,
    /// The client gets no answer any more.
    mute: bool,
    /// What is held back from the server; it ends with a COMMIT.
    held: Option<Vec<u8>>,
}

impl Talk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the client asked for notifications?
    pub fn listens(&self) -> bool {
        self.lock().listens
    }

    /// What of the client's bytes goes to the server now.
    pub fn up(&self, bytes: &[u8], shared: &Shared) -> Result<Vec<u8>, End> {
        let mut inner = self.lock();
        inner.up.push(bytes);
        let mut passed = Vec::new();
        let mut late = false;
        while let Some(message) = inner.up.next() {
            if message.asks_for_encryption() {
                inner.down.expect_bare_answer();
            }
            inner.listens |= message.runs == Statement::Listen;
            let fault = match message.runs {
                Statement::Commit => shared.take_fault(),
                Statement::Begin if shared.waiting() == Some(CommitFault::WholeLate) => {
                    shared.take_fault()
                }
                _ => None,
            };
            match fault {
                Some(CommitFault::RequestLost) => return Err(End::Commit),
                Some(CommitFault::AnswerLost) => inner.mute = true,
                Some(CommitFault::Late | CommitFault::WholeLate) => inner.held = Some(Vec::new()),
                None => {}
            }
            if let Some(held) = &mut inner.held {
                held.extend_from_slice(&message.bytes);
                late |= message.runs == Statement::Commit;
                continue;
            }
            if matches!(message.runs, Statement::Commit | Statement::Rollback) {
                inner.asked += 1;
            }
            passed.extend_from_slice(&message.bytes);
        }
        match inner.held.take_if(|_| late) {
            // What came before it in the same read does not matter to a client that is cut, and goes first.
            Some(held) => {
                passed.extend(held);
                passed.extend(SYNC);
                Err(End::Late(passed))
            }
            None => Ok(passed),
        }
    }

    /// What of the server's bytes goes to the client.
    pub fn down<'b>(&self, bytes: &'b [u8]) -> Result<&'b [u8], End> {
        let mut inner = self.lock();
        if inner.up.is_opaque() {
            return Ok(bytes);
        }
        let ends = inner.down.ends(bytes);
        inner.asked = inner.asked.saturating_sub(ends);
        if !inner.mute {
            return Ok(bytes);
        }
        if inner.asked == 0 {
            return Err(End::Commit);
        }
        Ok(&[])
    }

    /// Does the server's answer hold the end of a transaction?
    pub fn ends(&self, bytes: &[u8]) -> bool {
        self.lock().down.ends(bytes) > 0
    }
}
