//! Deleting, giving space back, and saying whether the store is sound.

use super::Shared;
use super::conn::Conn;
use super::migrate::newest;
use super::node;
use super::rows::ReadStop;
use super::sql::{params, uint};
use super::trouble::Trouble;
use crate::error::DeleteError;
use crate::status::{GcReport, StoreHealth, Weakness};
use std::time::Duration;
use tenure_core::id::{Incarnation, SessionId};

/// Events one transaction removes at most.
const PURGE: i64 = 4_000;
/// Dead nodes are remembered for an hour, for people who look.
const REMEMBER_NODES_MS: i64 = 3_600_000;
/// How long a listener may take to begin before it is called deaf.
const LISTENER_BEGINS: Duration = Duration::from_secs(2);

/// One statement: the head row's lock is taken, looked under and given up in it.
const DELETE: &str = "WITH gone AS (UPDATE @.session s SET deleted = TRUE, id = s.id || '#' || s.sid, owner = NULL, \
       claim_id = NULL, phase = NULL, handed_until = NULL, runnable = FALSE, rev = s.rev + 1 \
       WHERE s.id = $1 AND NOT EXISTS \
         (SELECT 1 FROM @.node n WHERE n.incarnation = s.owner AND n.state < 2) RETURNING s.sid), \
     a AS (DELETE FROM @.claim x USING gone g WHERE x.sid = g.sid), \
     b AS (DELETE FROM @.inbox x USING gone g WHERE x.sid = g.sid), \
     c AS (DELETE FROM @.effect x USING gone g WHERE x.sid = g.sid), \
     d AS (DELETE FROM @.receipt x USING gone g WHERE x.sid = g.sid), \
     e AS (DELETE FROM @.checkpoint x USING gone g WHERE x.sid = g.sid AND ($2 OR x.through >= \
       coalesce((SELECT max(p.base) FROM @.session p WHERE p.parent = g.sid), 0))) \
     SELECT sid FROM gone";

/// Deletes a session that nobody alive owns: at once for every reader; its events go bit by bit. Checkpoints go as
/// the events do that they stand for: a fork opens from its parent's.
pub(super) async fn delete(
    shared: &Shared,
    conn: &Conn,
    session: &SessionId,
) -> Result<(), DeleteError> {
    let unavailable = |trouble: Trouble| DeleteError::Unavailable {
        reason: trouble.words(),
    };
    let every = broken!(shared.switches, DeleteForgetsCheckpoints);
    let id = session.as_str();
    let gone = conn
        .first(DELETE, params![TEXT: id, BOOL: every])
        .await
        .map_err(unavailable)?;
    if gone.is_some() {
        return Ok(());
    }
    let row = conn
        .first(
            "SELECT owner FROM @.session WHERE id = $1",
            params![TEXT: id],
        )
        .await
        .map_err(unavailable)?;
    let owner = row.map(|row| row.get::<_, Option<String>>(0));
    match owner {
        None => Err(DeleteError::UnknownSession(session.clone())),
        Some(owner) => match Incarnation::parse(owner.as_deref().unwrap_or_default()) {
            Ok(owner) => Err(DeleteError::Owned {
                session: session.clone(),
                owner,
            }),
            Err(_) => Err(DeleteError::Unavailable {
                reason: "it changed meanwhile; try again".to_owned(),
            }),
        },
    }
}

/// What a step of purging did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Purged {
    pub(super) removed: u64,
    pub(super) more: bool,
}

/// Removes some events of deleted sessions that no fork needs, and rows nothing hangs on any more.
pub(super) async fn purge(shared: &Shared, conn: &Conn) -> Result<Purged, Trouble> {
    let mut done = Purged::default();
    // Until nothing goes any more: a parent's row can go only after its forks'.
    loop {
        let mut went = false;
        let rows = conn
            .rows(
                "SELECT s.sid, (SELECT max(p.base) FROM @.session p WHERE p.parent = s.sid) \
                 FROM @.session s WHERE s.deleted ORDER BY s.sid DESC",
                &[],
            )
            .await?;
        for row in rows {
            let sid: i64 = row.get(0);
            let mut needed: Option<i64> = row.get(1);
            if broken!(shared.switches, DeleteHarmsForks) {
                needed = None;
            }
            let from = needed.unwrap_or(0);
            conn.rows(
                "DELETE FROM @.checkpoint WHERE sid = $1 AND through >= $2",
                params![INT8: sid, INT8: from],
            )
            .await?;
            let removed = conn
                .rows(
                    "DELETE FROM @.event WHERE sid = $1 AND seq IN (SELECT seq FROM @.event \
                     WHERE sid = $1 AND seq >= $2 ORDER BY seq LIMIT $3) RETURNING 1",
                    params![INT8: sid, INT8: from, INT8: PURGE],
                )
                .await?
                .len();
            done.removed += removed as u64;
            if removed as i64 == PURGE {
                done.more = true;
                return Ok(done);
            }
            if needed.is_none() {
                // A fork made just now would be in the way: then it stays.
                let row = conn
                    .rows(
                        "DELETE FROM @.session s WHERE s.sid = $1 AND s.deleted AND ($2 OR NOT EXISTS \
                         (SELECT 1 FROM @.session p WHERE p.parent = s.sid)) RETURNING 1",
                        params![INT8: sid, BOOL: broken!(shared.switches, DeleteHarmsForks)],
                    )
                    .await?;
                went |= !row.is_empty();
            }
        }
        if !went {
            return Ok(done);
        }
    }
}

/// Bytes of the store's tables and indexes.
pub(super) async fn bytes(conn: &Conn) -> Result<u64, Trouble> {
    let schema = conn.dialect().schema().trim_matches('"').to_owned();
    let row = conn
        .first(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::INT8 FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
            params![TEXT: schema],
        )
        .await?;
    Ok(row.map_or(0, |row| uint(row.get(0))))
}

/// One bounded step. What rows leave behind is the server's to reuse.
pub(super) async fn gc(shared: &Shared, conn: &Conn) -> Result<GcReport, ReadStop> {
    let before = bytes(conn).await?;
    let purged = purge(shared, conn).await?;
    let forgotten = node::forget(conn, shared.clock.wall_ms() - REMEMBER_NODES_MS).await?;
    Ok(GcReport {
        bytes_before: before,
        bytes_after: bytes(conn).await?,
        events_removed: purged.removed,
        nodes_removed: forgotten,
        more: purged.more,
    })
}

/// What the store is, and how far its promises reach on this server.
pub(super) async fn health(shared: &Shared, conn: &Conn) -> Result<StoreHealth, ReadStop> {
    let row = conn
        .first(
            "SELECT current_setting('server_version'), current_setting('fsync'), \
             current_setting('full_page_writes'), current_setting('synchronous_commit'), \
             current_setting('synchronous_standby_names'), \
             (SELECT count(*) FROM @.session WHERE NOT deleted)",
            &[],
        )
        .await?;
    let Some(row) = row else {
        return Err(Trouble::lost("the server answered nothing").into());
    };
    let text = |at: usize| row.get::<_, String>(at);
    let mut durability = format!(
        "fsync={} full_page_writes={} synchronous_commit={} synchronous_standby_names={:?}",
        text(1),
        text(2),
        text(3),
        text(4)
    );
    // What does not flush at all is said by `weak`.
    if text(1) != "off" && text(2) != "off" && text(4).is_empty() {
        durability.push_str(
            "; no synchronous standby: a failover may lose the last acknowledged events (it is noticed and said)",
        );
    }
    if shared.maker.pooled {
        durability.push_str(
            "; behind a transaction-mode pooler: wakes by the poll of 1 s only, no fast suspicion of dead nodes",
        );
    } else if !shared.hearing.begins(LISTENER_BEGINS).await {
        durability.push_str("; deaf to wakes at the moment: the poll of 1 s goes on");
    }
    Ok(StoreHealth {
        engine: format!("postgresql {}", text(0)),
        place: shared.maker.place.shown.clone(),
        schema: newest(),
        problems: shared.owned.rewound(),
        bytes: bytes(conn).await?,
        sessions: uint(row.get(5)),
        durability,
    })
}

/// What this server makes of the promises: looked at once at a start, by one short question.
pub(super) async fn weak(conn: &Conn) -> Result<Vec<Weakness>, ReadStop> {
    let row = conn
        .first(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery(), \
             current_setting('default_transaction_read_only')",
            &[],
        )
        .await?;
    let Some(row) = row else {
        return Err(Trouble::lost("the server answered nothing").into());
    };
    let off = |at: usize| row.get::<_, String>(at) == "off";
    let mut found = Vec::new();
    if off(0) || off(1) {
        let named = [(0, "fsync"), (1, "full_page_writes")];
        let named: Vec<_> = named.into_iter().filter(|(at, _)| off(*at)).collect();
        let list = |after: &str| {
            let each = named.iter().map(|(_, name)| format!("{name} = {after}"));
            each.collect::<Vec<_>>().join(" and ")
        };
        found.push(Weakness {
            what: format!(
                "NOT DURABLE: the server has {}, and a crash of its machine may lose or damage everything",
                list("off")
            ),
            next: format!("set {} in its postgresql.conf, and reload it", list("on")),
        });
    }
    if row.get::<_, bool>(2) {
        found.push(Weakness {
            what: "the server is a standby, which only reads: nothing can be run".to_owned(),
            next: "name the primary, or promote this one".to_owned(),
        });
    } else if !off(3) {
        found.push(Weakness {
            what: "the database only reads (default_transaction_read_only = on): nothing can be run"
                .to_owned(),
            next: "take the setting back where it was made: ALTER DATABASE, ALTER ROLE or postgresql.conf"
                .to_owned(),
        });
    }
    Ok(found)
}

/// What nodes of this store prove to each other that they are.
pub(super) async fn secret(conn: &Conn) -> Result<Option<Vec<u8>>, ReadStop> {
    let row = conn.first("SELECT secret FROM @.cluster", &[]).await?;
    Ok(row.map(|row| row.get(0)))
}
