//! Death by time: what one observer has seen of the others, on its own boot-time clock (R7).

use crate::Switches;
use std::collections::HashMap;

/// What one observer has seen of the others.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    last_ms: Option<i64>,
    seen: HashMap<String, (i64, i64)>,
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
    /// Which of `nodes` are dead: their lease is over, and this observer, awake all the while, saw
    /// `renewal_no` stand still for a whole lease on its own clock `now`. One back from a pause starts over.
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
        if paused || own.expired {
            self.seen.clear();
        }
        self.last_ms = Some(now);
        self.seen
            .retain(|known, _| nodes.iter().any(|node| &node.incarnation == known));
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
            let silent = now - seen.1 >= node.lease_ms || hasty;
            if silent && node.expired {
                dead.push(node.incarnation.clone());
            }
        }
        dead
    }
}
