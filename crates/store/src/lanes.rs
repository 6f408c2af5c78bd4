//! The line before a writer: two lanes in one, each session's own order kept (R12).

use crate::api::Lane;
use std::collections::{HashSet, VecDeque};
use tenure_core::id::SessionId;

/// What waits in the line.
pub(crate) trait Waits {
    /// The session whose order it keeps, if any.
    fn session(&self) -> Option<&SessionId>;
    fn lane(&self) -> Lane;
}

/// Takes up to `most` jobs. When not all fit, control goes first, and with it whatever the same sessions
/// queued before: lanes reorder across sessions only (R12).
pub(crate) fn pick<T: Waits>(jobs: &mut VecDeque<T>, most: usize) -> Vec<T> {
    if jobs.len() <= most {
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
    let (mut taken, mut rest) = (Vec::with_capacity(most), VecDeque::new());
    let mut late = VecDeque::new();
    for (job, urgent) in jobs.drain(..).zip(first) {
        if urgent && taken.len() < most {
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
        if taken.len() < most && !behind {
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

    struct Probe(SessionId, Lane, u32);

    impl Waits for Probe {
        fn session(&self) -> Option<&SessionId> {
            Some(&self.0)
        }
        fn lane(&self) -> Lane {
            self.1
        }
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
        let taken = pick(&mut jobs, 3);
        assert_eq!(order(&taken), [2, 4, 1]);
        let rest = pick(&mut jobs, 9);
        assert_eq!(order(&rest), [3, 5]);
    }
}
