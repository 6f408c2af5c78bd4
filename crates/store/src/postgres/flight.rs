//! Events that writers of this process are writing at the moment: an id is with one of them at a time.
//!
//! The server lets two transactions that cannot see each other insert one id twice, for no index may forbid it: an
//! import of a fork beside its parent has some ids in two logs. So whoever comes second waits, and then finds it there.

use super::failover::Writer;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_core::id::EventId;
use tokio::sync::watch;

/// What each writer has on its way.
pub(super) struct Flight {
    ids: Mutex<HashMap<Writer, HashSet<EventId>>>,
    landed: watch::Sender<u64>,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            ids: Mutex::default(),
            landed: watch::channel(0).0,
        }
    }
}

/// Are a batch's ids with another?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Boarding {
    /// They are this writer's until it lands.
    Taken,
    /// This writer has one of them in the same batch.
    Own,
    /// Another writer has one of them.
    Others,
}

impl Flight {
    fn ids(&self) -> MutexGuard<'_, HashMap<Writer, HashSet<EventId>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of these, or none.
    pub(super) fn board<'a>(
        &self,
        writer: Writer,
        events: impl Iterator<Item = &'a EventId> + Clone,
    ) -> Boarding {
        let mut ids = self.ids();
        let mut other = ids.iter().filter(|(of, _)| **of != writer);
        if other.any(|(_, held)| events.clone().any(|id| held.contains(id))) {
            return Boarding::Others;
        }
        let own = ids.entry(writer).or_default();
        if events.clone().any(|id| own.contains(id)) {
            return Boarding::Own;
        }
        own.extend(events.cloned());
        Boarding::Taken
    }

    /// Whatever became of what this writer had: nothing of it is on its way any more.
    pub(super) fn land(&self, writer: Writer) {
        let mut ids = self.ids();
        let was = ids.get_mut(&writer).is_some_and(|own| {
            let was = !own.is_empty();
            own.clear();
            was
        });
        drop(ids);
        if was && self.landed.receiver_count() > 0 {
            self.landed.send_modify(|turn| *turn += 1);
        }
    }

    /// Taken before boarding, it tells of every landing after it.
    pub(super) fn landings(&self) -> watch::Receiver<u64> {
        self.landed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conn::Use;
    use super::*;
    use futures::FutureExt;

    #[test]
    fn an_id_is_with_one_writer_until_it_lands() {
        let flight = Flight::default();
        let id = |n: u128| EventId::from_bits(n);
        let (one, two) = ((Use::Write, 0), (Use::Write, 1));
        let board = |writer, ids: &[EventId]| flight.board(writer, ids.iter());
        assert_eq!(board(one, &[id(1), id(2)]), Boarding::Taken);
        assert_eq!(board(one, &[id(3), id(2)]), Boarding::Own);
        let mut landings = flight.landings();
        assert_eq!(board(two, &[id(4), id(1)]), Boarding::Others);
        assert_eq!(
            board(two, &[id(3), id(4)]),
            Boarding::Taken,
            "none was taken in vain"
        );
        assert!(landings.changed().now_or_never().is_none());
        flight.land(one);
        assert!(landings.changed().now_or_never().is_some());
        assert_eq!(board(two, &[id(1)]), Boarding::Taken);
    }
}
