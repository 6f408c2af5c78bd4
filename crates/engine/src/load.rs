//! Bringing a session's fold up to the head of its log: from checkpoints, then page by page.
//!
//! A checkpoint is derived and versioned: one that is missing, damaged or from another version only costs
//! the time to fold the log from its start.

use tenure_core::id::SessionId;
use tenure_core::session::{FOLD_VERSION, SessionState, checkpoint};
use tenure_store::{Checkpoint, ReadError, Store};

/// Events read at once.
const PAGE: usize = 2_048;
/// Events behind the last checkpoint from which on another one is worth its write.
const SEAL_EVERY: u64 = 1_000;

/// A fold with the place of its newest checkpoint.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The fold, up to the head.
    pub state: SessionState,
    /// The last seq the stored checkpoints cover.
    pub sealed: Option<u64>,
}

/// The fold of the whole session.
///
/// # Errors
/// As [`Store::read`].
pub async fn load(store: &dyn Store, session: &SessionId) -> Result<Loaded, ReadError> {
    let segments = store.checkpoints(session, FOLD_VERSION).await?;
    let state = checkpoint::open(segments.iter().map(|segment| segment.bytes.as_slice()));
    let sealed = state.as_ref().and_then(|state| state.cursor);
    let mut state = state.unwrap_or_default();
    match catch_up(store, session, &mut state).await {
        Ok(()) => {}
        // A checkpoint ahead of the log (a file put back from a backup) counts for nothing.
        Err(ReadError::CursorBeyondHead { .. }) => {
            state = SessionState::default();
            catch_up(store, session, &mut state).await?;
        }
        Err(error) => return Err(error),
    }
    Ok(Loaded { state, sealed })
}

/// Applies everything behind the fold's cursor, up to the head read here. Cancellation safe: `state` is
/// always the fold of a prefix.
///
/// # Errors
/// As [`Store::read`].
pub async fn catch_up(
    store: &dyn Store,
    session: &SessionId,
    state: &mut SessionState,
) -> Result<(), ReadError> {
    loop {
        let page = store.read(session, state.cursor, PAGE).await?;
        for event in &page.events {
            state.apply(event);
        }
        if page.events.is_empty() || state.cursor >= page.head {
            return Ok(());
        }
    }
}

/// Stores a checkpoint when enough is behind the last one and nothing is open. A failure costs nothing but
/// the short cut.
pub async fn seal(
    store: &dyn Store,
    session: &SessionId,
    state: &SessionState,
    sealed: &mut Option<u64>,
) {
    let Some(through) = state.cursor else { return };
    if through < sealed.map_or(0, |at| at + 1) + SEAL_EVERY {
        return;
    }
    let from = sealed.map_or(0, |at| {
        state.entries.partition_point(|entry| entry.seq() <= at)
    });
    let Some(bytes) = checkpoint::seal(state, from) else {
        return;
    };
    let checkpoint = Checkpoint {
        through,
        version: FOLD_VERSION,
        bytes,
    };
    match store.put_checkpoint(session, checkpoint).await {
        Ok(()) => *sealed = Some(through),
        Err(error) => tracing::debug!(%session, %error, "no checkpoint stored"),
    }
}
