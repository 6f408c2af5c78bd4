//! What one read per poll tells every session that runs here: that an interrupt was accepted, that it is another's
//! now, that its log has grown. Thousands of sessions that wait cost one read together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tenure_core::event::body::Phase;
use tenure_core::id::SessionId;
use tenure_store::{ClaimView, Fence, HeldClaim};
use tokio::sync::{Notify, watch};

/// How tenure over a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is held here.
    Held,
    /// An interrupt was accepted: settle.
    Cancelling,
    /// The claim does not name this tenure any more.
    Lost,
}

/// The newest of a session. It changes when there is something to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct News {
    pub standing: Standing,
    /// The log's last seq, once a poll has read it.
    pub head: u64,
    /// Grows with every request to look at this session at once.
    urged: u64,
}

struct Entry {
    fence: Fence,
    news: watch::Sender<News>,
    /// The round it was entered in: a read that began before says nothing about it.
    since: u64,
}

/// The news of every session that runs here.
#[derive(Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    hinted: Notify,
    urged: Notify,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<SessionId, Entry>,
    /// Sessions to be looked at by themselves.
    urgent: BTreeSet<SessionId>,
    round: u64,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The news of a session under this tenure, from now on.
    pub fn watch(&self, session: &SessionId, fence: &Fence) -> watch::Receiver<News> {
        let mut state = self.state();
        let since = state.round;
        let same =
            |entry: &&Entry| (&entry.fence.claim, entry.fence.epoch) == (&fence.claim, fence.epoch);
        if let Some(entry) = state.entries.get(session).filter(same) {
            return entry.news.subscribe();
        }
        let (news, receiver) = watch::channel(News {
            standing: Standing::Held,
            head: 0,
            urged: 0,
        });
        let entry = Entry {
            fence: fence.clone(),
            news,
            since,
        };
        state.entries.insert(session.clone(), entry);
        receiver
    }

    /// Something may have changed: the poll is due before its time.
    pub fn hint(&self) {
        self.hinted.notify_one();
    }

    /// Resolves after a hint.
    pub async fn hinted(&self) {
        self.hinted.notified().await;
    }

    /// The session is to be looked at now. False when it does not run here.
    pub fn urge(&self, session: &SessionId) -> bool {
        let mut state = self.state();
        // An entry that nobody looks at any more is what a run that ended has left.
        let entry = state.entries.get(session);
        let known = entry.is_some_and(|entry| entry.news.receiver_count() > 0);
        if known {
            state.urgent.insert(session.clone());
            self.urged.notify_one();
        }
        known
    }

    /// Resolves when some session is to be looked at now.
    pub async fn urged(&self) {
        self.urged.notified().await;
    }

    /// The sessions to be looked at now, with the tenure they are held under.
    pub fn take_urgent(&self) -> Vec<(SessionId, Fence)> {
        let mut state = self.state();
        let urgent = std::mem::take(&mut state.urgent);
        let fence = |session: SessionId| {
            let fence = state.entries.get(&session)?.fence.clone();
            Some((session, fence))
        };
        urgent.into_iter().filter_map(fence).collect()
    }

    /// What a read of one claim found, for the tenure it was read for.
    pub fn tell(&self, session: &SessionId, fence: &Fence, found: Option<ClaimView>) {
        let state = self.state();
        let Some(entry) = state.entries.get(session) else {
            return;
        };
        if (&entry.fence.claim, entry.fence.epoch) != (&fence.claim, fence.epoch) {
            return;
        }
        entry.news.send_modify(|news| {
            news.standing = found.map_or(Standing::Lost, |view| standing(view.phase));
            news.urged += 1;
        });
    }

    /// A read of everything begins: only sessions entered before are told by it.
    pub fn begin_round(&self) -> u64 {
        let mut state = self.state();
        state.round += 1;
        state.round
    }

    /// What a read of everything found. Forgets who is no longer looked at.
    pub fn tell_all(&self, round: u64, held: &[HeldClaim]) {
        let mut state = self.state();
        state
            .entries
            .retain(|_, entry| entry.news.receiver_count() > 0);
        for (session, entry) in &state.entries {
            if entry.since >= round {
                continue;
            }
            let claim = held
                .binary_search_by(|claim| claim.session.cmp(session))
                .ok()
                .map(|at| &held[at])
                .filter(|claim| {
                    (&claim.claim, claim.epoch) == (&entry.fence.claim, entry.fence.epoch)
                });
            entry.news.send_if_modified(|news| {
                let before = *news;
                match claim {
                    Some(claim) => {
                        news.standing = standing(claim.phase);
                        news.head = claim.head;
                    }
                    None => news.standing = Standing::Lost,
                }
                *news != before
            });
        }
    }
}

fn standing(phase: Phase) -> Standing {
    match phase {
        Phase::Cancelling => Standing::Cancelling,
        Phase::Safe | Phase::Active => Standing::Held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::id::{ClaimId, Incarnation};

    fn fence(epoch: u64) -> Fence {
        Fence {
            claim: ClaimId::derived(&["claim", &epoch.to_string()]),
            epoch,
            owner: Incarnation::from_bits(1),
            write_no: 1,
        }
    }

    fn held(session: &SessionId, epoch: u64, phase: Phase, head: u64) -> HeldClaim {
        HeldClaim {
            session: session.clone(),
            claim: fence(epoch).claim,
            epoch,
            phase,
            head,
            handed: false,
        }
    }

    #[test]
    fn each_session_hears_of_its_own_news_once() {
        let board = Board::default();
        let (a, b) = (SessionId::from_bits(1), SessionId::from_bits(2));
        let (mut news_a, mut news_b) = (board.watch(&a, &fence(1)), board.watch(&b, &fence(1)));
        let round = board.begin_round();
        let rows = [
            held(&a, 1, Phase::Active, 7),
            held(&b, 1, Phase::Cancelling, 3),
        ];
        board.tell_all(round, &rows);
        assert!(news_a.has_changed().unwrap() && news_b.has_changed().unwrap());
        assert_eq!(news_a.borrow_and_update().head, 7);
        assert_eq!(news_b.borrow_and_update().standing, Standing::Cancelling);
        board.tell_all(board.begin_round(), &rows);
        assert!(!news_a.has_changed().unwrap() && !news_b.has_changed().unwrap());
        // A claim of another epoch is not this tenure's.
        board.tell_all(board.begin_round(), &[held(&a, 2, Phase::Safe, 8)]);
        assert_eq!(news_a.borrow_and_update().standing, Standing::Lost);
        assert_eq!(news_b.borrow_and_update().standing, Standing::Lost);
    }

    #[test]
    fn a_read_that_began_before_a_session_was_entered_does_not_judge_it() {
        let board = Board::default();
        let a = SessionId::from_bits(1);
        let round = board.begin_round();
        let mut news = board.watch(&a, &fence(1));
        board.tell_all(round, &[]);
        assert_eq!(news.borrow_and_update().standing, Standing::Held);
        board.tell_all(board.begin_round(), &[]);
        assert_eq!(news.borrow_and_update().standing, Standing::Lost);
        // A new tenure begins anew, whatever was said of the old one.
        let again = board.watch(&a, &fence(3));
        assert_eq!(again.borrow().standing, Standing::Held);
    }

    #[test]
    fn only_what_runs_here_is_urgent_and_what_nobody_looks_at_is_forgotten() {
        let board = Board::default();
        let a = SessionId::from_bits(1);
        assert!(!board.urge(&a));
        let mut news = board.watch(&a, &fence(1));
        assert!(board.urge(&a) && board.urge(&a));
        let urgent = board.take_urgent();
        assert_eq!(urgent, [(a.clone(), fence(1))]);
        board.tell(&a, &fence(2), None);
        assert!(!news.has_changed().unwrap(), "of another tenure");
        board.tell(&a, &fence(1), None);
        assert_eq!(news.borrow_and_update().standing, Standing::Lost);
        drop(news);
        assert!(!board.urge(&a), "its run has ended");
    }
}
