//! In which state a session is (R4, P7): exactly one, and the same for every backend.

use super::head::Head;
use crate::status::SessionState;
use tenure_core::event::body::Phase;
use tenure_core::id::{BadId, Incarnation};
use tenure_core::placement::{Serves, Unserved};

/// The node of an owner that is not dead.
pub(crate) struct LiveOwner<'a> {
    pub(crate) name: &'a str,
    /// When its lease ends, on the clock leases are judged by.
    pub(crate) lease_until: i64,
}

fn claimable(reason: &str) -> SessionState {
    SessionState::Claimable {
        reason: reason.to_owned(),
    }
}

/// `eligible`: something eligible waits. `now`: on the clock leases are judged by.
pub(crate) fn state(
    head: &Head,
    live: Option<LiveOwner<'_>>,
    eligible: bool,
    now: i64,
) -> Result<SessionState, BadId> {
    if let Some(owner) = &head.owner
        && let Some(node) = live
    {
        let owner = Incarnation::parse(owner)?;
        return Ok(if head.missed(now) {
            claimable("a hand-over was not accepted in time")
        } else if node.lease_until > now {
            SessionState::Owned {
                owner,
                node: node.name.to_owned(),
                epoch: head.epoch,
                phase: head.phase.unwrap_or(Phase::Safe),
            }
        } else {
            SessionState::Waiting { owner, lease_ms: 0 }
        });
    }
    if let Some(reason) = &head.quarantine {
        return Ok(SessionState::Quarantined {
            reason: reason.clone(),
        });
    }
    Ok(if head.owner.is_some() {
        claimable("its owner is gone")
    } else if head.execution.is_some() && !head.dormant {
        claimable("an execution is open")
    } else if eligible {
        claimable("input is waiting")
    } else if head.pending > 0 || (head.dormant && head.execution.is_some()) {
        SessionState::Parked {
            inputs: head.pending,
        }
    } else {
        SessionState::Idle
    })
}

/// Why none of the nodes that take sessions serves this one; none when one does, or when there is no node to ask.
pub(crate) fn unserved<'a>(
    head: &Head,
    nodes: impl IntoIterator<Item = &'a Serves>,
) -> Option<String> {
    let model = head.model();
    let mut reason: Option<Unserved> = None;
    for serves in nodes {
        match head.check_served(serves) {
            Ok(()) => return None,
            Err(why) => {
                reason = Some(match reason {
                    Some(first) => first.and(why),
                    None => why,
                });
            }
        }
    }
    reason.map(|why| match why {
        Unserved::Provider(_) => format!("no node serves this model ({model}): {why}"),
        Unserved::Place { .. } => format!("no node serves this location: {why}"),
    })
}
