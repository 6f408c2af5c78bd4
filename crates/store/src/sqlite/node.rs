//! Nodes: who is alive, judged by a lock and by leases on the boot-time clock (R7, R13).

use super::head::{labels_of, labels_text};
use super::schema::known;
use super::tx::{Stop, Tx, first, int};
use crate::api::{NodeInfo, Renewal};
use crate::error::NodeError;
use crate::machine::lapse::Suspect;
use crate::machine::rows::{NodeFacts, NodeState, PROVEN_GONE};
use rusqlite::{Connection, params};
use std::path::Path;
use tenure_core::id::Incarnation;
use tenure_core::placement::Serves;

pub(super) type NodeStop = Stop<NodeError>;

/// What the rules ask about a node; none when there is no such row.
pub(super) fn facts(
    conn: &Connection,
    incarnation: &str,
    boot_ms: i64,
) -> rusqlite::Result<Option<NodeFacts>> {
    first(
        conn,
        "SELECT state, lease_until, labels, roots, resigned, lease_ms, renewal_no FROM node WHERE incarnation = ?1",
        [incarnation],
        |row| {
            Ok(NodeFacts {
                state: match row.get::<_, i64>(0)? {
                    0 => NodeState::Active,
                    1 => NodeState::Draining,
                    _ => NodeState::Dead,
                },
                leased: row.get::<_, i64>(1)? > boot_ms,
                lease_until: row.get(1)?,
                lease_ms: row.get(5)?,
                renewal_no: row.get(6)?,
                resigned: row.get(4)?,
                serves: Serves {
                    labels: labels_of(&row.get::<_, String>(2)?),
                    roots: labels_of(&row.get::<_, String>(3)?),
                },
            })
        },
    )
}

/// The first node since the machine was started: of what ran before nothing is left, and what is told in its boot-time
/// clock means nothing in this one's.
fn begin_boot(tx: &Tx<'_>) -> rusqlite::Result<()> {
    let known = "SELECT 1 FROM node WHERE boot_id = ?1 LIMIT 1";
    if first(tx.conn, known, [tx.boot_id], |_| Ok(()))?.is_some() {
        return Ok(());
    }
    tx.exec(
        "UPDATE node SET lease_until = ?1 WHERE lease_until > ?1",
        [PROVEN_GONE],
    )?;
    tx.exec(
        "UPDATE session SET quiet_until = NULL, rev = rev + 1 WHERE quiet_until IS NOT NULL",
        [],
    )?;
    tx.exec("DELETE FROM effect WHERE boot_id <> ?1", [tx.boot_id])?;
    Ok(())
}

pub(super) fn join(tx: &Tx<'_>, node: &NodeInfo) -> Result<(), NodeStop> {
    begin_boot(tx)?;
    let lease_ms = i64::try_from(node.lease.as_millis()).unwrap_or(i64::MAX / 4);
    let inserted = tx.exec(
        "INSERT INTO node(incarnation, name, address, state, pid, boot_id, lease_ms, lease_until, \
         renewal_no, joined_ms, labels, roots) VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?10) \
         ON CONFLICT DO NOTHING",
        params![
            node.incarnation.as_str(),
            node.name,
            node.address,
            std::process::id(),
            tx.boot_id,
            lease_ms,
            tx.boot_ms.saturating_add(lease_ms),
            tx.wall_ms,
            labels_text(&node.serves.labels),
            labels_text(&node.serves.roots)
        ],
    )?;
    if inserted == 0 {
        return Err(Stop::Refused(NodeError::NotLive(node.incarnation.clone())));
    }
    Ok(())
}

/// R7: renewal requires *not dead*. It also looks whether this program still knows the file's schema: a newer one may
/// have come meanwhile.
pub(super) fn renew(tx: &Tx<'_>, incarnation: &Incarnation) -> Result<Renewal, NodeStop> {
    let path = Path::new(tx.conn.path().unwrap_or_default());
    if let Err(newer) = known(tx.conn, path)? {
        let reason = newer.to_string();
        return Err(Stop::Refused(NodeError::Outdated { reason }));
    }
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

/// How a node's death is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// Its lease ended: what it started may live on for a moment.
    Lapsed,
    /// Its process is gone, or says itself that it is done.
    Proven,
}

/// Marks a node dead, for good. Its sessions are claimable from this commit on.
pub(super) fn bury(tx: &Tx<'_>, incarnation: &str, death: Death) -> rusqlite::Result<bool> {
    let lease_until = match death {
        Death::Lapsed => i64::MAX,
        Death::Proven => PROVEN_GONE,
    };
    let buried = tx.exec(
        "UPDATE node SET state = 2, ended_ms = ?2, lease_until = min(lease_until, ?3) \
         WHERE incarnation = ?1 AND state < 2",
        params![incarnation, tx.wall_ms, lease_until],
    )?;
    if buried == 1 {
        tx.exec(
            "UPDATE session SET rev = rev + 1 WHERE owner = ?1",
            [incarnation],
        )?;
    }
    Ok(buried == 1)
}

/// The node has stopped by itself, whether or not others noticed.
pub(super) fn resign(tx: &Tx<'_>, incarnation: &str) -> rusqlite::Result<bool> {
    let buried = bury(tx, incarnation, Death::Proven)?;
    let said = tx.exec(
        "UPDATE node SET resigned = 1, lease_until = min(lease_until, ?2) \
         WHERE incarnation = ?1 AND resigned = 0",
        params![incarnation, PROVEN_GONE],
    )?;
    Ok(buried || said == 1)
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
pub(super) fn suspects(tx: &Tx<'_>) -> rusqlite::Result<Vec<Suspect>> {
    let mut statement = tx.conn.prepare_cached(
        "SELECT incarnation, boot_id, lease_ms, lease_until, renewal_no FROM node WHERE state < 2",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Suspect {
            incarnation: row.get(0)?,
            // Its clock stopped with its boot: nothing of it can be alive.
            proven_dead: row.get::<_, String>(1)? != tx.boot_id,
            lease_ms: row.get(2)?,
            expired: row.get::<_, i64>(3)? < tx.boot_ms,
            renewal_no: row.get(4)?,
        })
    })?;
    rows.collect()
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
