//! Checkpoints of a session's fold, so that a long session opens without reading its whole log.
//!
//! A checkpoint is a row of *segments*. Each holds the small part of the state as it was when the segment was
//! sealed, and the conversation's entries since the segment before it; so sealing costs what is new, and
//! opening costs what is still in force. A checkpoint is only a short cut: whenever [`open`] gives nothing,
//! the fold of the log says the same.

mod wire;

use super::{FOLD_VERSION, SessionState};
use crate::id::ExecutionId;
use crate::message::Entry;
use crate::turn::Ran;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;

/// One segment, as it is stored.
#[derive(Debug, Serialize, Deserialize)]
pub struct Segment<'a> {
    /// [`FOLD_VERSION`] of the program that sealed it.
    fold: u32,
    /// The state without its entries.
    state: Cow<'a, SessionState>,
    /// The open execution, which the state's own form leaves out.
    execution: Option<ExecutionId>,
    /// How long that has run.
    ran: Option<Ran>,
    /// Entries in force when it was sealed, those of earlier segments included.
    total: usize,
    /// The entries new in this segment.
    #[serde(with = "wire")]
    entries: Vec<Arc<Entry>>,
}

/// Seals the state; `entries_from` is the index of the first entry that no earlier segment holds (entries
/// that two segments hold do no harm). `None` while a step or a compaction is open: seal at a boundary.
pub fn seal(state: &SessionState, entries_from: usize) -> Option<Vec<u8>> {
    let open =
        |entry: &Arc<Entry>| matches!(entry.as_ref(), Entry::Assistant(m) if m.end.is_none());
    let entries = state.entries.get(entries_from..)?;
    if !state.turn.at_boundary() || entries.iter().any(open) {
        return None;
    }
    let segment = Segment {
        fold: FOLD_VERSION,
        state: Cow::Borrowed(state),
        execution: state.turn.execution.clone(),
        ran: state.turn.ran.clone(),
        total: state.entries.len(),
        entries: entries.to_vec(),
    };
    serde_json::to_vec(&segment).ok()
}

/// The state the last of `segments` (in the order they were sealed) stands for. `None` when there is none,
/// when one is damaged, from another version, or missing: then the log is to be folded from its start.
pub fn open<'a>(segments: impl IntoIterator<Item = &'a [u8]>) -> Option<SessionState> {
    let mut entries: Vec<Arc<Entry>> = Vec::new();
    let mut last: Option<Segment<'static>> = None;
    for bytes in segments {
        let mut segment: Segment<'static> = serde_json::from_slice(bytes).ok()?;
        if segment.fold != FOLD_VERSION {
            return None;
        }
        let known = entries.last().map(|entry| entry.seq());
        let new = std::mem::take(&mut segment.entries).into_iter();
        entries.extend(new.filter(|entry| known.is_none_or(|seq| entry.seq() > seq)));
        last = Some(segment);
    }
    let last = last?;
    let mut state = last.state.into_owned();
    if let Some(summary) = &state.summary {
        let border = entries.partition_point(|entry| entry.seq() < summary.kept_from);
        entries.drain(..border);
    }
    if entries.len() != last.total {
        return None;
    }
    state.entries = entries;
    state.turn.cursor = state.cursor;
    state.turn.execution = last.execution;
    state.turn.ran = last.ran;
    Some(state)
}
