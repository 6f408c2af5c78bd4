//! Bringing a session's fold up to the head of its log: from checkpoints, then page by page.

use tenure_core::id::SessionId;
use tenure_core::session::SessionState;
use tenure_store::{ReadError, Store};

/// Events read at once.
const PAGE: usize = 2_048;

/// The fold of the whole session.
///
/// # Errors
/// As [`Store::read`].
pub async fn load(store: &dyn Store, session: &SessionId) -> Result<SessionState, ReadError> {
    let mut state = SessionState::default();
    catch_up(store, session, &mut state).await?;
    Ok(state)
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
