//! Nodes: joining, renewing, and who is dead, by the server's clock and by what is seen of them (R7).

use super::Shared;
use super::conn::Conn;
use super::migrate::known;
use super::presence::key;
use super::probe::{machine_of, refuses};
use super::sql::params;
use super::trouble::Trouble;
use crate::api::{NodeInfo, Renewal};
use crate::error::NodeError;
use crate::machine::lapse::Suspect;
use crate::machine::rows::PROVEN_GONE;
use futures::future::join_all;
use std::sync::{Arc, PoisonError};
use tenure_core::id::Incarnation;

pub(super) fn unavailable(trouble: &Trouble) -> NodeError {
    let reason = trouble.words();
    match trouble {
        Trouble::Newer(_) => NodeError::Outdated { reason },
        _ => NodeError::Unavailable { reason },
    }
}

/// False when that incarnation is known already.
pub(super) async fn join(
    conn: &Conn,
    node: &NodeInfo,
    presence: Option<i64>,
    wall_ms: i64,
) -> Result<bool, Trouble> {
    let lease_ms = i64::try_from(node.lease.as_millis()).unwrap_or(i64::MAX / 4);
    let name = node.name.replace('\0', " ");
    let rows = conn
        .rows(
            "INSERT INTO @.node(incarnation, name, address, labels, roots, state, pid, presence, lease_ms, \
             lease_until, renewal_no, joined_ms) VALUES ($1, $2, $3, $4, $5, 0, $6, $7, $8, \
             @.lease_clock() + $8, 0, $9) ON CONFLICT DO NOTHING RETURNING 1",
            params![
                TEXT: node.incarnation.as_str(), TEXT: name, TEXT: node.address,
                TEXT_ARRAY: node.serves.labels, TEXT_ARRAY: node.serves.roots,
                INT8: i64::from(std::process::id()), INT8: presence, INT8: lease_ms, INT8: wall_ms
            ],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// R7: renewal requires *not dead*. It also looks whether this program still knows the schema: connections that were
/// there when a newer one changed it would go on for as long as they stand.
pub(super) async fn renew(
    conn: &Conn,
    incarnation: &Incarnation,
    shared: &Shared,
) -> Result<Renewal, Trouble> {
    let switches = &shared.switches;
    let barrier: i64 = if broken!(switches, RenewWhenDead) {
        3
    } else {
        2
    };
    let rows = conn
        .rows(
            "UPDATE @.node SET renewal_no = renewal_no + 1, lease_until = @.lease_clock() + lease_ms \
             WHERE incarnation = $1 AND state < $2 RETURNING (SELECT max(version) FROM @.migration)",
            params![TEXT: incarnation.as_str(), INT8: barrier],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Ok(Renewal::Dead);
    };
    known(&shared.maker.place, row.get(0))?;
    Ok(Renewal::Renewed)
}

/// False when it is not a live node.
pub(super) async fn drain(conn: &Conn, incarnation: &Incarnation) -> Result<bool, Trouble> {
    let rows = conn
        .rows(
            "UPDATE @.node SET state = 1 WHERE incarnation = $1 AND state < 2 RETURNING 1",
            params![TEXT: incarnation.as_str()],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// Marks a node dead that says itself that it is done, for good: nothing it started lives on (R10). Its sessions are
/// claimable from this commit on.
pub(super) async fn bury(conn: &Conn, incarnation: &str, wall_ms: i64) -> Result<bool, Trouble> {
    let rows = conn
        .rows(
            "UPDATE @.node SET state = 2, ended_ms = $2, \
             lease_until = $3 WHERE incarnation = $1 AND state < 2 RETURNING 1",
            params![TEXT: incarnation, INT8: wall_ms, INT8: PROVEN_GONE],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// The node has stopped by itself, whether or not others noticed.
pub(super) async fn resign(conn: &Conn, incarnation: &str, wall_ms: i64) -> Result<bool, Trouble> {
    let rows = conn
        .rows(
            "UPDATE @.node SET state = 2, ended_ms = coalesce(ended_ms, $2), resigned = TRUE, \
             lease_until = $3 WHERE incarnation = $1 AND NOT resigned RETURNING 1",
            params![TEXT: incarnation, INT8: wall_ms, INT8: PROVEN_GONE],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// Buries a node whose lease is over, tested again under its row's lock: one that renewed meanwhile lives. That
/// `renewal_no` has not moved is the test: it was watched for a whole lease. The server's clock, which may have been set
/// back since the renewal, is not asked again.
async fn bury_expired(conn: &Conn, node: &Suspect, wall_ms: i64) -> Result<bool, Trouble> {
    let rows = conn
        .rows(
            "UPDATE @.node SET state = 2, ended_ms = $3 WHERE incarnation = $1 AND state < 2 \
             AND renewal_no = $2 RETURNING 1",
            params![TEXT: node.incarnation, INT8: node.renewal_no, INT8: wall_ms],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// Advisory locks that are held in this database, as the numbers they were taken with.
macro_rules! held {
    () => {
        "(SELECT (l.classid::INT8 << 32) | l.objid::INT8 FROM pg_locks l WHERE l.locktype = 'advisory' \
          AND l.objsubid = 1 AND l.granted \
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
    };
}

/// Buries a node whose presence is gone, tested again.
async fn bury_absent(conn: &Conn, incarnation: &str, wall_ms: i64) -> Result<bool, Trouble> {
    let rows = conn
        .rows(
            concat!(
                "UPDATE @.node SET state = 2, ended_ms = $2 WHERE incarnation = $1 AND state < 2 \
                 AND presence IS NOT NULL AND presence NOT IN ",
                held!(),
                " RETURNING 1"
            ),
            params![TEXT: incarnation, INT8: wall_ms],
        )
        .await?;
    Ok(!rows.is_empty())
}

struct Seen {
    suspect: Suspect,
    address: Option<String>,
    /// It holds no presence lock, though it should.
    absent: bool,
}

async fn look(conn: &Conn) -> Result<Vec<Seen>, Trouble> {
    let rows = conn
        .rows(
            concat!(
                "SELECT incarnation, lease_ms, lease_until < @.lease_clock(), renewal_no, address, \
                 presence IS NOT NULL AND presence NOT IN ",
                held!(),
                " FROM @.node WHERE state < 2"
            ),
            &[],
        )
        .await?;
    let seen = rows.iter().map(|row| Seen {
        suspect: Suspect {
            incarnation: row.get(0),
            proven_dead: false,
            lease_ms: row.get(1),
            expired: row.get(2),
            renewal_no: row.get(3),
        },
        address: row.get(4),
        absent: row.get(5),
    });
    Ok(seen.collect())
}

/// Marks dead whoever is: by time, or because neither its presence nor its address answers. Addresses are asked
/// while nothing is held: one that keeps silent keeps nobody else waiting.
pub(super) async fn reap(
    shared: &Arc<Shared>,
    observer: &Incarnation,
) -> Result<Vec<Incarnation>, NodeError> {
    let seen = seen(shared)
        .await
        .map_err(|trouble| unavailable(&trouble))?;
    let suspects: Vec<Suspect> = seen.iter().map(|one| one.suspect.clone()).collect();
    let own = seen
        .iter()
        .find(|one| one.suspect.incarnation == observer.as_str());
    let Some(own) = own else {
        return Err(NodeError::NotLive(observer.clone()));
    };
    let expired = {
        let mut all = shared
            .observations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let observations = all.entry(own.suspect.incarnation.clone()).or_default();
        let now_ms = shared.clock.boottime_ms();
        observations.judge(now_ms, &own.suspect, &suspects, &shared.switches)
    };
    let machine = own.address.as_deref().and_then(machine_of);
    let absent: Vec<&Seen> = seen
        .iter()
        .filter(|one| one.absent && !broken!(shared.switches, LockNotAsked))
        .filter(|one| one.suspect.incarnation != own.suspect.incarnation)
        .collect();
    let asked = absent.iter().map(|one| async move {
        match &one.address {
            Some(address) => refuses(address, machine).await,
            None => shared.silent_is_gone,
        }
    });
    let refused = join_all(asked).await;
    let suspects = suspects.iter();
    let doomed = Doomed {
        expired: suspects
            .filter(|one| expired.contains(&one.incarnation))
            .collect(),
        gone: absent
            .iter()
            .zip(refused)
            .filter(|(_, refused)| *refused)
            .map(|(one, _)| one.suspect.incarnation.as_str())
            .collect(),
    };
    if doomed.expired.is_empty() && doomed.gone.is_empty() {
        return Ok(Vec::new());
    }
    let buried = doomed
        .bury(shared)
        .await
        .map_err(|trouble| unavailable(&trouble))?;
    Ok(buried
        .iter()
        .filter_map(|id| Incarnation::parse(id).ok())
        .collect())
}

async fn seen(shared: &Shared) -> Result<Vec<Seen>, Trouble> {
    let conn = shared.upkeep.get().await?;
    let seen = look(&conn).await;
    conn.ended(seen)
}

/// Who is to be buried, each tested again as it is.
struct Doomed<'a> {
    expired: Vec<&'a Suspect>,
    gone: Vec<&'a str>,
}

impl Doomed<'_> {
    async fn bury(&self, shared: &Shared) -> Result<Vec<String>, Trouble> {
        let conn = shared.upkeep.get().await?;
        let mut buried = Vec::new();
        let all = self.bury_each(&conn, shared.clock.wall_ms(), &mut buried);
        let all = all.await;
        if !buried.is_empty() {
            shared.wake_everybody();
            end_backends(shared, &conn, &buried).await;
        }
        conn.ended(all)?;
        Ok(buried)
    }

    async fn bury_each(
        &self,
        conn: &Conn,
        wall_ms: i64,
        buried: &mut Vec<String>,
    ) -> Result<(), Trouble> {
        for one in &self.expired {
            if bury_expired(conn, one, wall_ms).await? {
                buried.push(one.incarnation.clone());
            }
        }
        for name in &self.gone {
            if !buried.iter().any(|known| known == name) && bury_absent(conn, name, wall_ms).await?
            {
                buried.push((*name).to_owned());
            }
        }
        Ok(())
    }
}

/// R6: what a dead node left on the server may hold a head row's lock. Whoever has the right ends it.
async fn end_backends(shared: &Shared, conn: &Conn, buried: &[String]) {
    let others = buried.iter().filter(|name| !shared.owned.is_own(name));
    let names: Vec<String> = others.map(|name| format!("tenure/{name}")).collect();
    if names.is_empty() {
        return;
    }
    let ended = conn
        .rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = ANY($1) AND datname = current_database() AND pid <> pg_backend_pid()",
            params![TEXT_ARRAY: names],
        )
        .await;
    match ended {
        Ok(rows) if rows.is_empty() => {}
        Ok(rows) => tracing::info!(
            backends = rows.len(),
            "ended what dead nodes left on the server"
        ),
        Err(trouble) => {
            tracing::debug!(
                reason = trouble.words(),
                "what dead nodes left on the server stays"
            );
        }
    }
}

/// Rows of nodes that ended long ago and own nothing; how many were removed.
pub(super) async fn forget(conn: &Conn, before_ms: i64) -> Result<u64, Trouble> {
    let rows = conn
        .rows(
            "DELETE FROM @.node n WHERE n.state = 2 AND n.ended_ms < $1 \
             AND NOT EXISTS (SELECT 1 FROM @.session s WHERE s.owner = n.incarnation) RETURNING 1",
            params![INT8: before_ms],
        )
        .await?;
    Ok(rows.len() as u64)
}

/// The number of a node's presence lock, if it can hold one.
pub(super) fn presence_of(shared: &Shared, incarnation: &Incarnation) -> Option<i64> {
    let direct = !shared.maker.pooled;
    direct.then(|| key(&shared.maker.place.schema, incarnation.as_str()))
}
