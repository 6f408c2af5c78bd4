//! Errors of the store, by what the caller can do about them.

use tenure_core::id::{EventId, Incarnation, SessionId};

/// Why an append changed nothing (or, for `Unknown`, may have).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No such session.
    #[error("session {0} does not exist; `tenure sessions` lists those that do")]
    UnknownSession(SessionId),
    /// The session exists already.
    #[error("session {0} exists already")]
    SessionExists(SessionId),
    /// The writer no longer holds tenure: drop its memory, kill its children, write nothing more.
    #[error("session {session}: this owner was replaced; nothing was written")]
    StaleClaim {
        /// The session.
        session: SessionId,
    },
    /// The store lacks what it had confirmed to this owner: the log was set back under it, by a restored copy or a server
    /// that lost its disk's last writes. As with `StaleClaim`: drop the memory, kill the children, write nothing more;
    /// whoever takes the session next goes on from what the log has now.
    #[error(
        "session {session}: the log was set back: what this owner last wrote there is gone; nothing was written, and the \
         session goes on from what the store has now. Stop every node before a backup is restored, and see that the server \
         keeps what it confirms (fsync = on)"
    )]
    Rewound {
        /// The session.
        session: SessionId,
    },
    /// An interrupt was accepted: settle, start nothing.
    #[error("session {session} is being interrupted; nothing new starts")]
    Cancelling {
        /// The session.
        session: SessionId,
    },
    /// An input to be promoted or cancelled is no longer pending: read the inbox and decide again.
    #[error("session {session}: its inbox changed; decide again")]
    InboxChanged {
        /// The session.
        session: SessionId,
    },
    /// Others wrote since this was decided: read on and decide again.
    #[error("session {session}: its log went on; decide again")]
    HeadMoved {
        /// The session.
        session: SessionId,
    },
    /// A release found eligible input: go on.
    #[error("session {session} has more to do; not released")]
    NotIdle {
        /// The session.
        session: SessionId,
    },
    /// The work belongs to an attachment that has been replaced.
    #[error("session {session}: its location was replaced; the late result was refused")]
    StaleAttachment {
        /// The session.
        session: SessionId,
    },
    /// The event id exists with another body.
    #[error("session {session}: event {event} exists with another content")]
    Conflict {
        /// The session.
        session: SessionId,
        /// The event.
        event: EventId,
    },
    /// The batch itself is not acceptable.
    #[error("session {session}: {reason}")]
    Rejected {
        /// The session.
        session: SessionId,
        /// What is wrong with it.
        reason: String,
    },
    /// The store cannot be written now; nothing was written.
    #[error("the store cannot be written: {reason}")]
    Unavailable {
        /// What happened and what to do.
        reason: String,
    },
    /// The commit's answer was lost, or its after-commit hook panicked: resolve before anything else.
    #[error("session {session}: it is not known whether the last write was stored: {reason}")]
    Unknown {
        /// The session.
        session: SessionId,
        /// What happened.
        reason: String,
    },
}

/// Why a read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such session.
    #[error("session {0} does not exist; `tenure sessions` lists those that do")]
    UnknownSession(SessionId),
    /// The cursor is beyond the head.
    #[error("session {session} ends at {head}; there is nothing after {after}")]
    CursorBeyondHead {
        /// The session.
        session: SessionId,
        /// The cursor.
        after: u64,
        /// The head.
        head: u64,
    },
    /// A stored row cannot be read.
    #[error("session {session}: event {seq} is damaged: {detail}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The seq.
        seq: u64,
        /// What is wrong.
        detail: String,
    },
    /// The store cannot be read now.
    #[error("the store cannot be read: {reason}")]
    Unavailable {
        /// What happened and what to do.
        reason: String,
    },
    /// A newer version of this program has changed the store: no waiting mends that.
    #[error("the store cannot be read any more: {reason}")]
    Outdated {
        /// What happened and what to do.
        reason: String,
    },
}

impl ReadError {
    /// Nothing could be read now, whatever is stored.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Outdated { .. })
    }
}

/// Why a session was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// No such session.
    #[error("session {0} does not exist")]
    UnknownSession(SessionId),
    /// Somebody alive runs it.
    #[error("session {session} is running on {owner}; interrupt it first")]
    Owned {
        /// The session.
        session: SessionId,
        /// The owner.
        owner: Incarnation,
    },
    /// The store cannot be written now.
    #[error("the store cannot be written: {reason}")]
    Unavailable {
        /// What happened and what to do.
        reason: String,
    },
}

/// Why a replay was refused; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A seq is missing.
    #[error("line {line}: seq {found} follows, {expected} was expected")]
    Gap {
        /// 1-based line of the export.
        line: u64,
        /// Expected seq.
        expected: u64,
        /// Found seq.
        found: u64,
    },
    /// An event differs from the stored one.
    #[error("seq {seq} differs from what is stored")]
    Divergent {
        /// The seq.
        seq: u64,
    },
    /// An event's type is not known.
    #[error("line {line}: this version does not know event type {type_name} version {version}")]
    UnknownType {
        /// 1-based line.
        line: u64,
        /// The type.
        type_name: String,
        /// The version.
        version: u32,
    },
    /// An event cannot be read, or belongs to another session, or its id is used elsewhere.
    #[error("line {line}: {detail}")]
    BadEvent {
        /// 1-based line.
        line: u64,
        /// What is wrong.
        detail: String,
    },
    /// The store cannot be written now.
    #[error("the store cannot be written: {reason}")]
    Unavailable {
        /// What happened and what to do.
        reason: String,
    },
}

/// Why a node operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The incarnation is not, or no longer, a live node.
    #[error("node {0} is not a live node of this store")]
    NotLive(Incarnation),
    /// A newer version of this program has changed the store's schema: stop for good, and write nothing more.
    #[error("{reason}")]
    Outdated {
        /// What was found and what to do.
        reason: String,
    },
    /// The store cannot be used now.
    #[error("the store cannot be used: {reason}")]
    Unavailable {
        /// What happened and what to do.
        reason: String,
    },
}

/// Why a store cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The file was written by a newer version.
    #[error(
        "{path} has schema {found}, this version knows {known}: use a newer tenure; nothing was changed"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its schema.
        found: u32,
        /// The newest this version knows.
        known: u32,
    },
    /// There is no store at that place, and none was to be made.
    #[error("there is no store at {path} yet; nothing was changed")]
    Missing {
        /// The file; or the database, without its password, and the schema.
        path: String,
        /// Schemas of the same database that hold a store: at most five, none for a file.
        others: Vec<String>,
        /// The statement that would let this user make one, where that right is missing.
        grant: Option<String>,
    },
    /// The store was written by an older version, and was not to be brought up to date.
    #[error(
        "{path} has schema {found}, which is older than this tenure's ({known}): who only looks, or acts on what is there, \
         does not change it. Start a node or a run with this tenure, which brings it up to date for all, or use the older \
         tenure; nothing was changed"
    )]
    Older {
        /// The file; or the database, without its password.
        path: String,
        /// Its schema.
        found: u32,
        /// This version's.
        known: u32,
    },
    /// The folder lies on a network file system.
    #[error(
        "{path} lies on a network file system ({kind}), where SQLite's locks are not reliable: choose a local folder with --store"
    )]
    NetworkFileSystem {
        /// The file.
        path: String,
        /// The file system.
        kind: String,
    },
    /// The folder or file may not be written.
    #[error(
        "{path} cannot be written: {detail}; check its owner and mode, or choose another place with --store"
    )]
    ReadOnly {
        /// The file.
        path: String,
        /// What the system said.
        detail: String,
    },
    /// The file is not a sound database.
    #[error(
        "{path} is damaged: {detail}; nothing was changed. Keep a copy; `sqlite3 FILE .recover` may save what is left"
    )]
    Corrupt {
        /// The file.
        path: String,
        /// What SQLite said.
        detail: String,
    },
    /// The disk is full.
    #[error("{path}: the disk is full; free some space and try again")]
    Full {
        /// The file.
        path: String,
    },
    /// The store's URL cannot be read.
    #[error("the store's URL cannot be used: {detail}")]
    BadUrl {
        /// What is wrong with it, without repeating it.
        detail: String,
    },
    /// The server cannot be reached now; trying again may help.
    #[error("{path} cannot be reached: {detail}; is the server running, and the address right?")]
    Unreachable {
        /// The store, without its password.
        path: String,
        /// What happened.
        detail: String,
    },
    /// The server is there and has no connection left for this user; trying again may help.
    #[error(
        "{path} has no connection left: {detail}; a node, and a `run` or `resume`, holds up to 13 (9, and 4 readers or \
         as many as `pool=` of its URL says), a command that looks up to 6: raise max_connections, or the limit of the role or the database, use fewer nodes, or \
         put a pooler in session or transaction mode before the server"
    )]
    Crowded {
        /// The store, without its password.
        path: String,
        /// What the server said.
        detail: String,
    },
    /// A pooler before the server gives the connection away after each statement.
    #[error(
        "{path} is behind a pooler in statement mode, which refuses transactions, and every write is one: set its pool_mode \
         to session or transaction, or name the server itself"
    )]
    StatementPooled {
        /// The store, without its password.
        path: String,
    },
    /// The server does not let this user in.
    #[error("{path} does not let this user in: {detail}; check the user and password of the URL")]
    NotAdmitted {
        /// The store, without its password.
        path: String,
        /// What the server said.
        detail: String,
    },
    /// The server is older than the statements need.
    #[error("{path} runs PostgreSQL {found}; version 14 or newer is needed")]
    TooOld {
        /// The store, without its password.
        path: String,
        /// Its version.
        found: String,
    },
    /// A right is missing.
    #[error("{path}: {detail}; the owner of the database can give the right: {grant}")]
    MissingRights {
        /// The store, without its password.
        path: String,
        /// What the server said.
        detail: String,
        /// The statements that give it.
        grant: String,
    },
    /// The server only reads.
    #[error("{path} is a standby, which only reads: name the primary")]
    Standby {
        /// The store, without its password.
        path: String,
    },
    /// Anything else.
    #[error("{path} cannot be opened: {detail}")]
    Other {
        /// The file.
        path: String,
        /// What happened.
        detail: String,
    },
}
