//! A command that has begun, whoever follows it: its end does not depend on the call's future.

use crate::guardian::Guarded;
use crate::tool::AtWork;

/// A guardian whose command may have begun. Dropped before it is known that nothing is left, a thread of its own sees
/// to that; until then it keeps the call's mark of being at work.
pub(super) struct Followed {
    /// Taken only by the drop.
    guarded: Option<Guarded>,
    at_work: Option<AtWork>,
    over: bool,
    /// The guardian has reported what does not die.
    pub(super) stuck: bool,
}

impl Followed {
    pub(super) fn new(guarded: Guarded, at_work: Option<AtWork>) -> Self {
        Self {
            guarded: Some(guarded),
            at_work,
            over: false,
            stuck: false,
        }
    }

    pub(super) fn guarded(&mut self) -> &mut Guarded {
        self.guarded
            .as_mut()
            .expect("invariant: taken only by the drop")
    }

    /// Nothing is left, so that there is nothing to see to.
    pub(super) fn is_over(&mut self) {
        self.over = true;
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let Some(guarded) = self.guarded.take().filter(|_| !self.over) else {
            return;
        };
        let (at_work, stuck) = (self.at_work.take(), self.stuck);
        let (kept, guardian) = (at_work.clone(), guarded.spawned().pid);
        // Not a task: those end with their runtime, and this must not.
        let thread = std::thread::Builder::new().name("tenure-call-end".into());
        let started = thread.spawn(move || {
            if !guarded.outlast(stuck) {
                tracing::error!(guardian, "processes of a stopped command do not end");
            }
            drop(at_work);
        });
        if let Err(error) = started {
            tracing::error!(guardian, %error, "cannot see to the end of a stopped command");
            // The guardian has seen its pipe close, but nobody will know that it obeyed: never said to be over.
            std::mem::forget(kept);
        }
    }
}
