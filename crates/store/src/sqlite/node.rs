//! Nodes: who is alive, judged by a lock and by leases on the boot-time clock (R7, R13).

use super::tx::{Stop, Tx, first, int};
use crate::api::{NodeInfo, Renewal};
use crate::error::NodeError;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use tenure_core::id::Incarnation;

pub(super) type NodeStop = Stop<NodeError>;

/// The state of a node row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Active,
    Draining,
    Dead,
}

/// The state of a node; none when there is no such row.
pub(super) fn state(conn: &Connection, incarnation: &str) -> rusqlite::Result<Option<NodeState>> {
    first(
        conn,
        "SELECT state FROM node WHERE incarnation = ?1",
        [incarnation],
        |row| row.get::<_, i64>(0),
    )
    .map(|state| {
        state.map(|state| match state {
            0 => NodeState::Active,
            1 => NodeState::Draining,
            _ => NodeState::Dead,
        })
    })
}

/// R7: a claim is expired only if its owner's node row is missing or dead.
pub(super) fn gone(conn: &Connection, incarnation: &str) -> rusqlite::Result<bool> {
    Ok(matches!(
        state(conn, incarnation)?,
        None | Some(NodeState::Dead)
    ))
}

pub(super) fn join(tx: &Tx<'_>, node: &NodeInfo) -> Result<(), NodeStop> {
    let lease_ms = i64::try_from(node.lease.as_millis()).unwrap_or(i64::MAX / 4);
    let inserted = tx.exec(
        "INSERT INTO node(incarnation, name, address, state, pid, boot_id, lease_ms, lease_until, \
         renewal_no, joined_ms) VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, 0, ?8) ON CONFLICT DO NOTHING",
        params![
            node.incarnation.as_str(),
            node.name,
            node.address,
            std::process::id(),
            tx.boot_id,
            lease_ms,
            tx.boot_ms.saturating_add(lease_ms),
            tx.wall_ms
        ],
    )?;
    if inserted == 0 {
        return Err(Stop::Refused(NodeError::NotLive(node.incarnation.clone())));
    }
    Ok(())
}

/// R7: renewal requires *not dead*.
pub(super) fn renew(tx: &Tx<'_>, incarnation: &Incarnation) -> Result<Renewal, NodeStop> {
    let barrier = if broken!(tx.switches, RenewWhenDead) {
        3
    } else {
        2
    };
    let renewed = tx.exec(
        "UPDATE node SET renewal_no = renewal_no + 1, lease_until = ?2 + lease_ms \
         WHERE incarnation = ?1 AND state < ?3",
        params![incarnation.as_str(), tx.boot_ms, barrier],
    )?;
    Ok(if renewed == 1 {
        Renewal::Renewed
    } else {
        Renewal::Dead
    })
}

pub(super) fn drain(tx: &Tx<'_>, incarnation: &Incarnation) -> Result<(), NodeStop> {
    let drained = tx.exec(
        "UPDATE node SET state = 1 WHERE incarnation = ?1 AND state < 2",
        [incarnation.as_str()],
    )?;
    if drained == 0 {
        return Err(Stop::Refused(NodeError::NotLive(incarnation.clone())));
    }
    Ok(())
}

/// Marks a node dead, for good. Its sessions are claimable from this commit on.
pub(super) fn bury(tx: &Tx<'_>, incarnation: &str) -> rusqlite::Result<bool> {
    let buried = tx.exec(
        "UPDATE node SET state = 2, ended_ms = ?2 WHERE incarnation = ?1 AND state < 2",
        params![incarnation, tx.wall_ms],
    )?;
    if buried == 1 {
        tx.exec(
            "UPDATE session SET rev = rev + 1 WHERE owner = ?1",
            [incarnation],
        )?;
    }
    Ok(buried == 1)
}

/// What one observer has seen of the others, on its own boot-time clock.
#[derive(Debug, Default)]
pub(super) struct Observations {
    last_ms: Option<i64>,
    seen: HashMap<String, (i64, i64)>,
}

/// A node as the reaper looks at it.
#[derive(Debug, Clone)]
pub(super) struct Suspect {
    pub(super) incarnation: String,
    pub(super) boot_id: String,
    pub(super) lease_ms: i64,
    pub(super) lease_until: i64,
    pub(super) renewal_no: i64,
}

/// Where dead nodes listened.
pub(super) fn left_addresses(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare_cached(
        "SELECT address FROM node WHERE state = 2 AND address IS NOT NULL \
         AND address NOT IN (SELECT address FROM node WHERE state < 2 AND address IS NOT NULL)",
    )?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// Every node that is not dead.
pub(super) fn suspects(conn: &Connection) -> rusqlite::Result<Vec<Suspect>> {
    let mut statement = conn.prepare_cached(
        "SELECT incarnation, boot_id, lease_ms, lease_until, renewal_no FROM node WHERE state < 2",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Suspect {
            incarnation: row.get(0)?,
            boot_id: row.get(1)?,
            lease_ms: row.get(2)?,
            lease_until: row.get(3)?,
            renewal_no: row.get(4)?,
        })
    })?;
    rows.collect()
}

impl Observations {
    /// Which of `nodes` are dead by time: their lease is over, and this observer, awake all the while, saw
    /// `renewal_no` stand still for a whole lease (R7). An observer back from a pause starts over.
    pub(super) fn judge(&mut self, tx: &Tx<'_>, own: &Suspect, nodes: &[Suspect]) -> Vec<String> {
        let now = tx.boot_ms;
        let paused = self
            .last_ms
            .is_none_or(|last| now - last > own.lease_ms / 2 || now < last);
        // A node that did not renew in its own lease may not judge others either.
        if paused || own.lease_until < now {
            self.seen.clear();
        }
        self.last_ms = Some(now);
        self.seen
            .retain(|known, _| nodes.iter().any(|node| &node.incarnation == known));
        let hasty = broken!(tx.switches, ReapUnobserved);
        let mut dead = Vec::new();
        for node in nodes
            .iter()
            .filter(|node| node.incarnation != own.incarnation)
        {
            if node.boot_id != tx.boot_id {
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
            if silent && node.lease_until < now {
                dead.push(node.incarnation.clone());
            }
        }
        dead
    }
}

/// Rows of nodes that ended long ago and own nothing; how many were removed.
pub(super) fn forget(tx: &Tx<'_>, before_ms: i64) -> rusqlite::Result<usize> {
    tx.exec(
        "DELETE FROM node WHERE state = 2 AND ended_ms < ?1 \
         AND NOT EXISTS (SELECT 1 FROM session WHERE owner = node.incarnation)",
        [before_ms],
    )
}

/// How long until a lease can be judged over, in milliseconds; negative when it is.
pub(super) fn lease_left(lease_until: i64, boot_ms: i64) -> i64 {
    lease_until
        .saturating_sub(boot_ms)
        .clamp(-int(u64::MAX >> 2), int(u64::MAX >> 2))
}
