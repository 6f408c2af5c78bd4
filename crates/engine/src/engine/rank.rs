//! Who of several nodes takes a session first: every node comes to the same answer by itself, so that survivors
//! share what a dead node left instead of colliding on each session, and a drain spreads what it gives away.

use tenure_core::event::body::Location;
use tenure_core::id::{Incarnation, SessionId};
use tenure_core::model::ModelRef;
use tenure_core::placement::Serves;
use tenure_store::{NodeRow, SessionRow};

/// A label of nodes that run only what they were asked to: nothing is left or given to them.
pub(crate) const ASKED_ONLY: &str = "takes=asked";

/// The node's weight for a session: the heaviest goes first.
pub(crate) fn weight(session: &SessionId, node: &Incarnation) -> u64 {
    let bytes = session.as_str().bytes().chain(node.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    // FNV leaves neighbours close together: spread them.
    let mut mixed = hash ^ (hash >> 33);
    mixed = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// Does the node take any session, now, without being asked to?
pub fn takes(node: &NodeRow) -> bool {
    !node.draining && node.lease_ms > 0 && !node.labels.iter().any(|label| label == ASKED_ONLY)
}

/// Is `own` the first of `nodes` for the session?
pub(crate) fn is_first<'a>(
    session: &SessionId,
    own: &Incarnation,
    nodes: impl Iterator<Item = &'a NodeRow>,
) -> bool {
    let mine = weight(session, own);
    !nodes
        .filter(|node| &node.incarnation != own)
        .any(|node| weight(session, &node.incarnation) > mine)
}

/// Can the node have the session where it is, and ask its model? One that is being cancelled is only settled, which
/// any node can.
pub(crate) fn serves(node: &NodeRow, row: &SessionRow) -> bool {
    row.cancelling || serves_both(node, &row.location, &row.model)
}

/// Does the node serve the location, and the model?
pub(crate) fn serves_both(node: &NodeRow, location: &Location, model: &ModelRef) -> bool {
    let serves = Serves {
        labels: node.labels.clone(),
        roots: node.roots.clone(),
    };
    serves.check(location, model).is_ok()
}

/// Does the node serve the place that the session waits to be moved to?
pub(crate) fn awaits(node: &NodeRow, row: &SessionRow) -> bool {
    let to = row.moving.as_ref();
    to.is_some_and(|to| serves_both(node, to, &row.model))
}

/// Those of `nodes` that the session is for: who serves its place; where nobody does, who serves the one it moves to.
pub(crate) fn able<'a>(nodes: &'a [NodeRow], row: &SessionRow) -> Vec<&'a NodeRow> {
    let here: Vec<_> = nodes.iter().filter(|node| serves(node, row)).collect();
    if here.is_empty() {
        return nodes.iter().filter(|node| awaits(node, row)).collect();
    }
    here
}

/// Is there one among `nodes` that takes the session by itself?
pub fn has_taker(nodes: &[NodeRow], row: &SessionRow) -> bool {
    let takes = |node: &&NodeRow| takes(node);
    nodes
        .iter()
        .filter(takes)
        .any(|node| serves(node, row) || awaits(node, row))
}

/// The one of `nodes` that comes first for the session, of those that can have it.
pub(crate) fn first_of<'a>(
    row: &SessionRow,
    nodes: impl Iterator<Item = &'a NodeRow>,
) -> Option<&'a NodeRow> {
    let able = nodes.filter(|node| serves(node, row));
    able.max_by_key(|node| weight(&row.id, &node.incarnation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_shared_evenly_and_each_has_one_first() {
        let nodes: Vec<NodeRow> = (1..=3)
            .map(|n| NodeRow {
                incarnation: Incarnation::from_bits(n),
                name: String::new(),
                address: None,
                labels: Vec::new(),
                roots: Vec::new(),
                draining: false,
                pid: 1,
                lease_ms: 1,
                sessions: 0,
            })
            .collect();
        let mut share = [0_u32; 3];
        for n in 0..3_000 {
            let session = SessionId::from_bits(n);
            let firsts: Vec<usize> = (0..3)
                .filter(|i| is_first(&session, &nodes[*i].incarnation, nodes.iter()))
                .collect();
            assert_eq!(firsts.len(), 1);
            share[firsts[0]] += 1;
        }
        assert!(share.iter().all(|n| (850..1_150).contains(n)), "{share:?}");
    }

    #[test]
    fn who_drains_is_silent_or_takes_only_what_it_is_asked_is_given_nothing() {
        let node = NodeRow {
            incarnation: Incarnation::from_bits(1),
            name: String::new(),
            address: None,
            labels: vec!["gpu".to_owned()],
            roots: Vec::new(),
            draining: false,
            pid: 1,
            lease_ms: 1,
            sessions: 0,
        };
        assert!(takes(&node));
        let labels = vec![ASKED_ONLY.to_owned()];
        for other in [
            NodeRow {
                labels,
                ..node.clone()
            },
            NodeRow {
                draining: true,
                ..node.clone()
            },
            NodeRow {
                lease_ms: 0,
                ..node.clone()
            },
        ] {
            assert!(!takes(&other), "{other:?}");
        }
    }
}
