//! Death by time: what one observer has seen of the others, on its own boot-time clock (R7), and how long what a lost
//! one started may live by that (R10).

use super::rows::LOCK_DELAY_MS;
use crate::Switches;
use crate::api::{Acquire, LostOwner};
use std::collections::HashMap;

/// For how long a node that is gone is remembered. One that is forgotten costs whoever takes from it a lease.
const REMEMBERED_MS: i64 = 600_000;

/// What one observer has seen of the others.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    last_ms: Option<i64>,
    /// Of each that is not dead: the number of its newest renewal, and when that was seen first.
    seen: HashMap<String, (i64, i64)>,
    /// The same of those that are gone, as they were seen last.
    gone: HashMap<String, (i64, i64)>,
}

/// A node as the reaper looks at it.
#[derive(Debug, Clone)]
pub(crate) struct Suspect {
    pub(crate) incarnation: String,
    /// Known to be dead by other means than time.
    pub(crate) proven_dead: bool,
    pub(crate) lease_ms: i64,
    /// Its lease is over, on the clock leases are judged by.
    pub(crate) expired: bool,
    pub(crate) renewal_no: i64,
}

impl Observations {
    /// Which of `nodes` are dead: this observer, awake all the while, saw `renewal_no` stand still for a whole lease on
    /// its own clock `now`, and the store's clock says that the lease is over, or a moment more has passed. One back
    /// from a pause starts over.
    ///
    /// What was watched is enough: a renewal takes longer to be seen than to be sent, so an owner that renewed before
    /// the first look has, on its own clock, stopped its work when the watch ends; its writes fail, for `dead` is set
    /// under its row's lock only while `renewal_no` is what was watched, and a renewal requires *not dead*. The store's
    /// clock only decides a moment earlier: one that was set back would call an old lease good for as long as the step.
    pub(crate) fn judge(
        &mut self,
        now: i64,
        own: &Suspect,
        nodes: &[Suspect],
        switches: &Switches,
    ) -> Vec<String> {
        let paused = self
            .last_ms
            .is_none_or(|last| now - last > own.lease_ms / 2 || now < last);
        // A node that did not renew in its own lease may not judge others either.
        let over = paused || own.expired;
        self.last_ms = Some(now);
        self.gone
            .retain(|_, (_, since)| now.saturating_sub(*since) < REMEMBERED_MS);
        let lives = |known: &String| nodes.iter().any(|node| &node.incarnation == known);
        // That a renewal had been made by then stays true, whatever happened since.
        let gone = self.seen.extract_if(|known, _| over || !lives(known));
        self.gone.extend(gone);
        let hasty = broken!(switches, ReapUnobserved);
        let mut dead = Vec::new();
        for node in nodes
            .iter()
            .filter(|node| node.incarnation != own.incarnation)
        {
            if node.proven_dead {
                dead.push(node.incarnation.clone());
                continue;
            }
            let seen = self
                .seen
                .entry(node.incarnation.clone())
                .or_insert((node.renewal_no, now));
            if seen.0 != node.renewal_no {
                *seen = (node.renewal_no, now);
            }
            let stood = now.saturating_sub(seen.1);
            let silent = stood >= node.lease_ms || hasty;
            let watched = stood >= node.lease_ms.saturating_add(LOCK_DELAY_MS)
                && !broken!(switches, SilenceByStoreClock);
            if watched || silent && node.expired {
                dead.push(node.incarnation.clone());
            }
        }
        dead
    }

    /// What is left of the quiet time of a claim just taken at `now` of this process's clock (R10). Where the store keeps
    /// whose loss it is, its own clock has no say: it may have been set ahead, which would end the time early, or back,
    /// which would lengthen it by the whole step.
    pub(crate) fn quiet(&mut self, now: i64, taken: Acquire, switches: &Switches) -> Acquire {
        let Acquire::Acquired(mut tenure) = taken else {
            return taken;
        };
        let lost = tenure.lost.iter();
        let left = lost.map(|lost| self.may_live(now, lost)).max();
        if let Some(left) = left
            && !broken!(switches, QuietByStoreClock)
        {
            tenure.quiet_ms = u64::try_from(left).unwrap_or(0);
        }
        Acquire::Acquired(tenure)
    }

    /// For how long what the lost owner started may still live: it ends with the last renewal, which was sent before
    /// this process saw it. Where it saw another or none, all that is known is that there is none from now on.
    fn may_live(&mut self, now: i64, lost: &LostOwner) -> i64 {
        let known = [&self.seen, &self.gone];
        let known = known.iter().filter_map(|all| all.get(&lost.incarnation));
        let same = known.filter(|(renewal_no, _)| *renewal_no == lost.renewal_no);
        let since = same.map(|(_, since)| *since).min().unwrap_or_else(|| {
            self.gone
                .insert(lost.incarnation.clone(), (lost.renewal_no, now));
            now
        });
        let until = since
            .saturating_add(lost.lease_ms)
            .saturating_add(LOCK_DELAY_MS);
        until.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests;
