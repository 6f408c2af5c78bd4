//! The rules of the store, the same for every backend: fence, seqs, projectors, operations, claims.
//!
//! Synchronous code over [`Rows`], the rows of one transaction. SQLite answers them by statements; `Loaded`
//! answers them from memory for backends that read first and write conditionally.

pub(crate) mod append;
pub(crate) mod check;
pub(crate) mod claim;
pub(crate) mod event;
pub(crate) mod fork;
pub(crate) mod head;
pub(crate) mod hook;
pub(crate) mod lapse;
#[allow(dead_code, reason = "for the backends that read first")]
pub(crate) mod loaded;
pub(crate) mod moving;
pub(crate) mod project;
pub(crate) mod replay;
pub(crate) mod rows;
pub(crate) mod status;

use crate::error::AppendError;
use tenure_core::id::SessionId;

/// What went wrong below the rules.
#[derive(Debug)]
pub(crate) enum Failure {
    /// SQLite failed.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Why a piece of work stops: refused by a rule, or failed below.
#[derive(Debug)]
pub(crate) enum Stop<E> {
    /// A verdict: this job alone is rolled back.
    Refused(E),
    /// The rows could not be read or written.
    Failed(Failure),
}

impl<E> From<Failure> for Stop<E> {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<E> From<rusqlite::Error> for Stop<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(Failure::Sqlite(error))
    }
}

pub(crate) type AppendStop = Stop<AppendError>;

/// Refuses an append with words.
pub(crate) fn rejected(session: &SessionId, reason: impl Into<String>) -> AppendStop {
    Stop::Refused(AppendError::Rejected {
        session: session.clone(),
        reason: reason.into(),
    })
}

/// The highest seq a session may have, given by how backends number events.
pub(crate) const MAX_SEQ: u64 = 0xffff_fffe;

/// What a piece of work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It changed something: commit.
    Wrote,
    /// A verdict without a change: whatever it touched is undone.
    Nothing,
}
