//! The line before a writer: two lanes in one, each session's own order kept (R12).

use crate::api::Lane;
use std::collections::{HashSet, VecDeque};
use tenure_core::id::SessionId;

/// What waits in the line.
pub(crate) trait Waits {
    /// The session whose order it keeps, if any.
    fn session(&self) -> Option<&SessionId>;
    fn lane(&self) -> Lane;
    /// Bytes it weighs in a batch.
    fn weight(&self) -> usize {
        0
    }
}

/// What one batch may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) jobs: usize,
    /// Their weight together; one that is heavier goes alone.
    pub(crate) weight: usize,
}

/// Takes jobs up to `most`. When not all fit, control goes first, and with it whatever the same sessions
/// queued before: lanes reorder across sessions only (R12).
pub(crate) fn pick<T: Waits>(jobs: &mut VecDeque<T>, most: Most) -> Vec<T> {
    let weight = || {
        jobs.iter()
            .map(Waits::weight)
            .fold(0, usize::saturating_add)
    };
    if jobs.len() <= most.jobs && (jobs.len() < 2 || weight() <= most.weight) {
        return jobs.drain(..).collect();
    }
    let mut urgent = HashSet::new();
    let mut first: Vec<bool> = jobs
        .iter()
        .rev()
        .map(|job| {
            let control = job.lane() == Lane::Control;
            match job.session() {
                Some(session) if control => {
                    urgent.insert(session.clone());
                    true
                }
                Some(session) => urgent.contains(session),
                None => control,
            }
        })
        .collect();
    first.reverse();
    let (mut taken, mut rest) = (
        Vec::with_capacity(most.jobs.min(jobs.len())),
        VecDeque::new(),
    );
    let mut late = VecDeque::new();
    let (mut count, mut heavy, mut full) = (0, 0_usize, false);
    // Once one does not fit nothing more is taken: what is lighter may be of the same session.
    let mut fits = |job: &T| {
        let with = heavy.saturating_add(job.weight());
        full |= count >= most.jobs || (count > 0 && with > most.weight);
        if !full {
            (count, heavy) = (count + 1, with);
        }
        !full
    };
    for (job, urgent) in jobs.drain(..).zip(first) {
        if urgent && fits(&job) {
            taken.push(job);
        } else {
            late.push_back(job);
        }
    }
    // A session with a job left behind may not overtake it with a later one.
    let mut held = HashSet::new();
    for job in late {
        let session = job.session().cloned();
        let behind = session
            .as_ref()
            .is_some_and(|session| held.contains(session));
        if !behind && fits(&job) {
            taken.push(job);
        } else {
            held.extend(session);
            rest.push_back(job);
        }
    }
    *jobs = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Probe(SessionId, Lane, usize);

    fn most(jobs: usize, weight: usize) -> Most {
        Most { jobs, weight }
    }

    impl Waits for Probe {
        fn session(&self) -> Option<&SessionId> {
            Some(&self.0)
        }
        fn lane(&self) -> Lane {
            self.1
        }
        fn weight(&self) -> usize {
            self.2
        }
    }

    #[test]
    fn a_batch_holds_so_many_bytes_and_a_session_keeps_its_order() {
        let id = |n: u128| SessionId::from_bits(n);
        let weights = |jobs: &[Probe]| jobs.iter().map(|job| job.2).collect::<Vec<_>>();
        let mut jobs: VecDeque<Probe> = [(1, 40), (2, 50), (3, 20), (3, 1), (4, 5), (5, 900)]
            .into_iter()
            .map(|(session, weight)| Probe(id(session), Lane::Text, weight))
            .collect();
        // The small ones behind what does not fit wait with it.
        assert_eq!(weights(&pick(&mut jobs, most(9, 100))), [40, 50]);
        jobs.push_back(Probe(id(5), Lane::Control, 2));
        assert_eq!(weights(&pick(&mut jobs, most(9, 100))), [900], "alone");
        assert_eq!(weights(&pick(&mut jobs, most(9, 100))), [20, 1, 5, 2]);
        assert!(jobs.is_empty());
    }

    #[test]
    fn control_overtakes_other_sessions_text_but_never_its_own() {
        let id = |n: u128| SessionId::from_bits(n);
        let mut jobs: VecDeque<Probe> = [
            (1, Lane::Text, 1),
            (2, Lane::Text, 2),
            (1, Lane::Text, 3),
            (2, Lane::Control, 4),
            (1, Lane::Text, 5),
        ]
        .into_iter()
        .map(|(session, lane, number)| Probe(id(session), lane, number))
        .collect();
        let order = |jobs: &[Probe]| jobs.iter().map(|job| job.2).collect::<Vec<_>>();
        let taken = pick(&mut jobs, most(3, 100));
        assert_eq!(order(&taken), [2, 4, 1]);
        let rest = pick(&mut jobs, most(9, 100));
        assert_eq!(order(&rest), [3, 5]);
    }
}
