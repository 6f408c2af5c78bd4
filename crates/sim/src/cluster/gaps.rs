//! How long sessions stood still around a fault, told by the times that nodes of one machine wrote into their events.

use std::fmt;
use tenure_core::Event;

/// The gaps of many sessions, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    sorted: Vec<u64>,
    /// Sessions that did not go on.
    pub stranded: usize,
}

impl Gaps {
    /// From `at_ms` to the first event that another owner wrote than the one that owned then, one gap per log.
    ///
    /// Only good while all nodes read the same, unshifted clock. Logs without a fenced event before `at_ms` count nothing.
    pub fn to_next_owner<'e>(logs: impl IntoIterator<Item = &'e [Event]>, at_ms: i64) -> Self {
        let mut gaps = Self::default();
        for log in logs {
            let before = log
                .iter()
                .filter(|event| event.created_ms <= at_ms)
                .filter_map(|event| event.epoch)
                .max();
            let Some(old) = before else { continue };
            let next = log
                .iter()
                .find(|event| event.epoch.is_some_and(|epoch| epoch > old));
            match next {
                Some(next) => gaps.add(next.created_ms - at_ms),
                None => gaps.stranded += 1,
            }
        }
        gaps.sorted.sort_unstable();
        gaps
    }

    /// Each change of owner: from the last event of one owner to the first of the next, wherever that came later than
    /// `from_ms`.
    pub fn between_owners<'e>(logs: impl IntoIterator<Item = &'e [Event]>, from_ms: i64) -> Self {
        let mut gaps = Self::default();
        for log in logs {
            let fenced: Vec<(u64, i64)> = log
                .iter()
                .filter_map(|event| Some((event.epoch?, event.created_ms)))
                .collect();
            for pair in fenced.windows(2) {
                if pair[1].0 > pair[0].0 && pair[1].1 >= from_ms {
                    gaps.add(pair[1].1 - pair[0].1);
                }
            }
        }
        gaps.sorted.sort_unstable();
        gaps
    }

    /// The longest silence of each log between `from_ms` and `to_ms`, counted between neighbouring events.
    pub fn longest_silence<'e>(
        logs: impl IntoIterator<Item = &'e [Event]>,
        from_ms: i64,
        to_ms: i64,
    ) -> Self {
        let mut gaps = Self::default();
        for log in logs {
            let pairs = log.windows(2).map(|pair| (&pair[0], &pair[1]));
            let longest = pairs
                .filter(|(one, next)| next.created_ms >= from_ms && one.created_ms <= to_ms)
                .map(|(one, next)| next.created_ms - one.created_ms)
                .max();
            if let Some(longest) = longest {
                gaps.add(longest);
            }
        }
        gaps.sorted.sort_unstable();
        gaps
    }

    fn add(&mut self, gap_ms: i64) {
        self.sorted.push(u64::try_from(gap_ms).unwrap_or(0));
    }

    /// How many gaps there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// No session had one.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The gap that so many percent do not exceed; 0 when there is none.
    pub fn percentile(&self, percent: usize) -> u64 {
        let rank = (self.sorted.len() * percent).div_ceil(100);
        let at = rank.saturating_sub(1);
        self.sorted.get(at).copied().unwrap_or(0)
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sessions: p50 {} ms, p99 {} ms, longest {} ms, {} stranded",
            self.len(),
            self.percentile(50),
            self.percentile(99),
            self.percentile(100),
            self.stranded
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::event::EventBody;
    use tenure_core::event::body::ExecutionSucceeded;
    use tenure_core::{EventId, ExecutionId, SessionId};

    fn log(times: &[(i64, u64)]) -> Vec<Event> {
        let event = |(seq, (created_ms, epoch)): (usize, &(i64, u64))| Event {
            id: EventId::from_bits(seq as u128),
            session: SessionId::from_bits(1),
            seq: seq as u64,
            epoch: Some(*epoch),
            created_ms: *created_ms,
            body: EventBody::from(ExecutionSucceeded {
                execution: ExecutionId::from_bits(1),
            }),
        };
        times.iter().enumerate().map(event).collect()
    }

    #[test]
    fn gaps_end_with_the_next_owner_and_sessions_without_one_are_stranded() {
        let went_on = log(&[(0, 1), (90, 1), (130, 2), (400, 2)]);
        let slow = log(&[(50, 3), (1100, 4)]);
        let stranded = log(&[(10, 1), (105, 1)]);
        let later = log(&[(200, 1)]);
        let logs = [&went_on[..], &slow, &stranded, &later];
        let gaps = Gaps::to_next_owner(logs, 100);
        assert_eq!((gaps.len(), gaps.stranded), (2, 1));
        assert_eq!((gaps.percentile(50), gaps.percentile(99)), (30, 1000));
    }

    #[test]
    fn each_change_of_owner_is_a_gap() {
        let twice = log(&[(0, 1), (90, 1), (130, 2), (400, 2), (410, 3)]);
        let never = log(&[(0, 4), (900, 4)]);
        let gaps = Gaps::between_owners([&twice[..], &never], 100);
        assert_eq!(gaps.len(), 2);
        assert_eq!((gaps.percentile(50), gaps.percentile(100)), (10, 40));
        let late = Gaps::between_owners([&twice[..]], 300);
        assert_eq!((late.len(), late.percentile(100)), (1, 10));
    }

    #[test]
    fn the_longest_silence_is_between_neighbours_that_touch_the_window() {
        let one = log(&[(0, 1), (1000, 1), (1040, 1), (1300, 1), (9000, 1)]);
        let gaps = Gaps::longest_silence([&one[..]], 1010, 1200);
        assert_eq!(gaps.percentile(100), 260);
    }
}
