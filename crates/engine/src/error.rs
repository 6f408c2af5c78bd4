//! Errors of the engine, by what the caller can do.

use tenure_core::id::{CallId, MessageId, SessionId};
use tenure_store::{AppendError, NodeError, ReadError};

/// Why an operation of the engine failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The store refused or failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The node's row could not be kept.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The question was answered before.
    #[error("session {session}: that question is already answered")]
    AlreadyAnswered {
        /// The session.
        session: SessionId,
    },
    /// Nothing waits for this answer: the call is settled, or was never asked about.
    #[error(
        "session {session}: no question about call {call} waits (any more): it is settled, or was never asked; nothing \
         was stored. Look at what it asks now"
    )]
    NotAsked {
        /// The session.
        session: SessionId,
        /// The call.
        call: CallId,
    },
    /// The input's id was used before, with another content: this one was not admitted.
    #[error(
        "session {session}: input {input} was admitted before with another content; nothing was changed. Give this \
         one an id of its own"
    )]
    InputExists {
        /// The session.
        session: SessionId,
        /// The id.
        input: MessageId,
    },
    /// What is attached cannot be.
    #[error(transparent)]
    Media(#[from] crate::media::MediaError),
    /// The form asked of the answer cannot be used.
    #[error("the form of the answer cannot be used: {reason}")]
    Schema {
        /// What is wrong, and what to give instead.
        reason: String,
    },
    /// The answer to a write was lost, and the store did not say in time what became of it.
    #[error(
        "session {session}: it is not known whether this was stored ({reason}){}",
        repeat(.again.as_deref())
    )]
    Unconfirmed {
        /// The session.
        session: SessionId,
        /// The id to repeat the request with, where it has one of its own: it is then stored once.
        again: Option<String>,
        /// What happened last.
        reason: String,
    },
    /// The session's log cannot be used as it is.
    #[error("session {session}: {reason}")]
    Unusable {
        /// The session.
        session: SessionId,
        /// Why, and what to do.
        reason: String,
    },
    /// This node has stopped.
    #[error("this node is shutting down")]
    Stopped,
}

fn repeat(again: Option<&str>) -> String {
    match again {
        Some(id) => {
            format!("; the same request with the id {id} is stored once, however often it is sent")
        }
        None => "; look before sending it again".to_owned(),
    }
}

impl EngineError {
    /// The store could not do it, or nobody knows yet whether it did: later it may.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Append(AppendError::Unavailable { .. } | AppendError::Unknown { .. })
                | Self::Unconfirmed { .. }
                | Self::Node(NodeError::Unavailable { .. })
                | Self::Read(ReadError::Unavailable { .. } | ReadError::Outdated { .. })
        )
    }
}

/// Why a drain ended other than well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DrainError {
    /// Somebody else holds tenure, or will: write nothing, start nothing.
    #[error("lost tenure")]
    Lost,
    /// An interrupt was accepted: settle.
    #[error("interrupted")]
    Cancelling,
    /// An input was taken back meanwhile: look at the boundary again.
    #[error("the inbox changed")]
    LookAgain,
    /// The store failed; ownership is unclear until it answers again.
    #[error("{0}")]
    Store(EngineError),
}

impl From<AppendError> for DrainError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::StaleClaim { .. } | AppendError::UnknownSession(_) => Self::Lost,
            AppendError::Rewound { .. } => {
                tracing::error!(%error, "the log was set back under its owner");
                Self::Lost
            }
            AppendError::Cancelling { .. } => Self::Cancelling,
            AppendError::InboxChanged { .. } => Self::LookAgain,
            other => Self::Store(other.into()),
        }
    }
}

impl From<ReadError> for DrainError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::UnknownSession(_) => Self::Lost,
            other => Self::Store(other.into()),
        }
    }
}
