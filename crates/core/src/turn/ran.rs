//! How long an execution has run: each owner's share by that one's own clock, since no two clocks agree.

use crate::event::{Event, EventBody};
use serde::{Deserialize, Serialize};

/// The time an execution has run. What is not counted: the time between two owners, and what an owner that was lost did
/// behind its last event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Of earlier owners, in milliseconds.
    before_ms: u64,
    /// The last owner's epoch.
    epoch: Option<u64>,
    /// Its first and its last event of the execution, by the clock of its machine.
    first_ms: i64,
    last_ms: i64,
}

impl Ran {
    /// What an event makes of it: it begins with `execution.started`, and events of others than the owner say nothing.
    pub(super) fn on(ran: Option<Self>, event: &Event) -> Option<Self> {
        let at = event.created_ms;
        let begins = |before_ms| Self {
            before_ms,
            epoch: event.epoch,
            first_ms: at,
            last_ms: at,
        };
        match (ran, &event.body) {
            (_, EventBody::ExecutionStarted(_)) => Some(begins(0)),
            (Some(ran), _) if event.epoch.is_none() => Some(ran),
            (Some(ran), _) if ran.epoch == event.epoch => Some(Self {
                last_ms: ran.last_ms.max(at),
                ..ran
            }),
            (Some(ran), _) => Some(begins(ran.ms())),
            (None, _) => None,
        }
    }

    /// In milliseconds, up to the last event.
    pub fn ms(&self) -> u64 {
        let own = self.last_ms.saturating_sub(self.first_ms);
        self.before_ms
            .saturating_add(u64::try_from(own).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::body::*;
    use crate::id::{EventId, ExecutionId, MessageId, SessionId};

    fn event(epoch: Option<u64>, at: i64, body: EventBody) -> Event {
        Event {
            id: EventId::from_bits(1),
            session: SessionId::from_bits(1),
            seq: 0,
            epoch,
            created_ms: at,
            body,
        }
    }

    fn begun(epoch: u64, at: i64) -> Option<Ran> {
        let execution = ExecutionId::from_bits(1);
        Ran::on(
            None,
            &event(Some(epoch), at, ExecutionStarted { execution }.into()),
        )
    }

    fn something(epoch: Option<u64>, at: i64) -> Event {
        let input = MessageId::from_bits(1);
        event(epoch, at, InputPromoted { input }.into())
    }

    #[test]
    fn an_owner_counts_from_its_first_event_by_its_own_clock() {
        assert_eq!(Ran::on(None, &something(Some(1), 5)), None, "nothing runs");
        let ran = begun(1, 1_000).unwrap();
        assert_eq!(ran.ms(), 0);
        let ran = Ran::on(Some(ran), &something(Some(1), 1_400)).unwrap();
        assert_eq!(ran.ms(), 400);
        let back = Ran::on(Some(ran.clone()), &something(Some(1), 0)).unwrap();
        assert_eq!(back.ms(), 400, "a clock set back takes nothing away");
        // Others' clocks are their own affair.
        let other = Ran::on(Some(ran.clone()), &something(None, 90_000_000));
        assert_eq!(other, Some(ran));
    }

    #[test]
    fn a_day_between_the_clocks_of_two_owners_is_no_time() {
        const DAY: i64 = 86_400_000;
        for off in [DAY, -DAY] {
            let ran = Ran::on(begun(1, DAY), &something(Some(1), DAY + 300));
            let ran = Ran::on(ran, &something(Some(2), DAY + off)).unwrap();
            assert_eq!(ran.ms(), 300);
            let ran = Ran::on(Some(ran), &something(Some(2), DAY + off + 50)).unwrap();
            assert_eq!(ran.ms(), 350);
        }
    }

    #[test]
    fn no_clock_makes_it_overflow() {
        let mut ran = begun(1, i64::MIN);
        for (epoch, at) in [
            (1, i64::MAX),
            (2, i64::MIN),
            (2, i64::MAX),
            (3, i64::MIN),
            (3, i64::MAX),
        ] {
            ran = Ran::on(ran, &something(Some(epoch), at));
        }
        assert_eq!(ran.map(|ran| ran.ms()), Some(u64::MAX));
    }
}
