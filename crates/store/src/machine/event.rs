//! An event on its way into a log, and as a row of one.

use std::ops::Deref;
use std::sync::Arc;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::{EventId, SessionId};

/// An event ready to be written: its body encoded once, outside the transaction. A copy is the same event.
#[derive(Debug, Clone)]
pub(crate) struct Encoded(Arc<Ready>);

/// What an [`Encoded`] holds.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) id: EventId,
    pub(crate) created_ms: i64,
    pub(crate) body: EventBody,
    pub(crate) text: String,
}

impl From<Ready> for Encoded {
    fn from(ready: Ready) -> Self {
        Self(Arc::new(ready))
    }
}

impl Deref for Encoded {
    type Target = Ready;

    fn deref(&self) -> &Ready {
        &self.0
    }
}

/// An event row as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) sid: i64,
    pub(crate) seq: u64,
    pub(crate) id: String,
    pub(crate) epoch: Option<u64>,
    pub(crate) created_ms: i64,
    pub(crate) type_name: String,
    pub(crate) version: u32,
    pub(crate) body: String,
}

impl Stored {
    /// The event as readers of `session` see it; what cannot be read, in words.
    pub(crate) fn decode(&self, session: &SessionId) -> Result<Event, String> {
        Ok(Event {
            id: EventId::parse(&self.id).map_err(|bad| bad.to_string())?,
            session: session.clone(),
            seq: self.seq,
            epoch: self.epoch,
            created_ms: self.created_ms,
            body: EventBody::decode(&self.type_name, self.version, &self.body)
                .map_err(|bad| bad.to_string())?,
        })
    }
}
