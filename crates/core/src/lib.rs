//! Floor 0 of Tenure: what things mean, and the pure machines that decide.
//!
//! Nothing here does IO, reads a clock, draws a random number or starts a thread: time and ids come
//! in as arguments ([`Facts`](facts::Facts)). Every machine has the same three parts:
//!
//! ```text
//!   command + facts ──▶ decide(&state) ──▶ events ──▶ (the store commits them) ──▶ apply(&mut state)
//!                                                                                     │
//!                                        what is now to be done  ◀── pending(&state) ◀┘
//! ```
//!
//! `apply` is total and is the *only* thing that changes a state, so a state is the fold of its log by
//! construction; recovery is the same fold followed by `pending`.
//!
//! Reading order: [`event`] (the vocabulary), [`turn`] (one provider turn), [`session`] (the fold of a
//! whole session), [`history`] (messages → request), [`inbox`], [`claim`], [`retry`], [`compaction`].

pub mod budget;
pub mod claim;
pub mod compaction;
pub mod error;
pub mod event;
pub mod facts;
pub mod fragment;
pub mod history;
pub mod id;
pub mod inbox;
pub mod message;
pub mod model;
pub mod placement;
pub mod price;
pub mod provider;
pub mod repeat;
pub mod request;
pub mod retry;
pub mod session;
pub mod turn;
pub mod usage;

pub use error::{ErrorClass, ProviderError, SessionError};
pub use event::{Event, EventBody, NewEvent};
pub use facts::{Facts, IdSource};
pub use id::{
    CallId, ClaimId, CompactionId, EventId, ExecutionId, Incarnation, InterruptId, MessageId,
    SessionId,
};
pub use model::ModelRef;
pub use price::{Price, Rate, Rates, Tier};
pub use usage::Usage;
