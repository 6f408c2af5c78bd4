//! Reads the sessions of a batch, and what their jobs will ask, in one snapshot and one flush: nothing is locked.

use super::conn::{Conn, Use};
use super::session::{Damaged, WIDTH, delivery_of, head_columns, process_of, read_head};
use super::sql::{int, params, uint};
use super::trouble::Trouble;
use crate::job::Asks;
use crate::machine::event::Stored;
use crate::machine::head::Head;
use crate::machine::loaded::{Around, Claim, Effect, InboxRow, InboxState, Session};
use crate::machine::rows::{Kin, NodeFacts, NodeState};
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tenure_core::event::EventBody;
use tenure_core::id::SessionId;
use tenure_core::placement::Serves;
use tokio_postgres::Row;

/// A session to be read, and what its jobs will ask.
pub(super) struct Wanted {
    pub(super) session: SessionId,
    pub(super) asks: Vec<Asks>,
}

impl Wanted {
    fn creates(&self) -> bool {
        self.asks.iter().any(|asks| asks.creates)
    }
}

/// What was read for one session. `nodes` of the surroundings holds only nodes that exist.
pub(super) struct Read {
    pub(super) session: Result<Session, Damaged>,
    pub(super) around: Around,
}

// A deleted session has another id, so that none of these finds it. Each row is looked up by its key, whatever the
// planner knows of a table that was empty when the plan was made: that is what LIMIT and OFFSET say here.

const HEADS: &str = concat!(
    "SELECT ",
    head_columns!(),
    ", c.sid, c.assistant_message_id, c.assistant_seq, c.recovery_input_id, c.recovery_error, c.wake_pending, \
     c.created_ms FROM unnest($1) u(id) CROSS JOIN LATERAL \
     (SELECT x.* FROM @.session x WHERE x.id = u.id LIMIT 1) s LEFT JOIN LATERAL \
     (SELECT x.* FROM @.claim x WHERE x.sid = s.sid LIMIT 1) c ON TRUE"
);
const INBOX: &str = "SELECT s.id, i.input, i.seq, i.delivery, i.state, i.fenced FROM unnest($1) u(id) \
     CROSS JOIN LATERAL (SELECT x.sid, x.id FROM @.session x WHERE x.id = u.id LIMIT 1) s CROSS JOIN LATERAL \
     (SELECT x.* FROM @.inbox x WHERE x.sid = s.sid AND x.state = 0 OFFSET 0) i";
const EFFECTS: &str = "SELECT s.id, e.message, e.call, e.epoch, e.generation, e.pid, e.pid_start, e.boot_id \
     FROM unnest($1) u(id) CROSS JOIN LATERAL (SELECT x.sid, x.id FROM @.session x WHERE x.id = u.id LIMIT 1) s \
     CROSS JOIN LATERAL (SELECT x.* FROM @.effect x WHERE x.sid = s.sid OFFSET 0) e";
const CLOCK: &str = "SELECT @.lease_clock()";
const NODES: &str = "SELECT n.incarnation, n.state, n.lease_until > @.lease_clock(), n.labels, n.roots, \
     n.lease_until, n.resigned, n.lease_ms, n.renewal_no FROM \
     (SELECT unnest($1) UNION SELECT s.owner FROM unnest($2) u(id) \
      CROSS JOIN LATERAL (SELECT x.owner FROM @.session x WHERE x.id = u.id LIMIT 1) s \
      WHERE s.owner IS NOT NULL) w(name) JOIN @.node n ON n.incarnation = w.name";
const EVENTS: &str = "SELECT e.sid, e.seq, e.id, e.epoch, e.created_ms, e.type, e.version, e.body \
     FROM unnest($1) u(id) CROSS JOIN LATERAL (SELECT x.* FROM @.event x WHERE x.id = u.id OFFSET 0) e";
const INPUTS: &str = "SELECT u.id, i.input, i.seq, i.delivery, i.state, i.fenced FROM unnest($1, $2) u(id, input) \
     CROSS JOIN LATERAL (SELECT x.sid FROM @.session x WHERE x.id = u.id LIMIT 1) s CROSS JOIN LATERAL \
     (SELECT x.* FROM @.inbox x WHERE x.sid = s.sid AND x.input = u.input AND x.state > 0 LIMIT 1) i";
const RECEIPTS: &str = "SELECT key, sid, answer FROM @.receipt WHERE key = ANY($1)";
const SIDS: &str = "SELECT nextval('@.next_sid') FROM generate_series(1, $1)";

/// The stretches of a log and who holds them: its own events, then the prefixes it shares.
macro_rules! chain {
    () => {
        "WITH RECURSIVE chain AS (\
           SELECT s.sid, s.base AS lo, s.head AS hi, s.base AS below, s.parent FROM @.session s \
           WHERE s.id = $1 \
           UNION ALL SELECT p.sid, p.base, c.below - 1, least(c.below, p.base), p.parent \
           FROM chain c \
           CROSS JOIN LATERAL (SELECT x.* FROM @.session x WHERE x.sid = c.parent LIMIT 1) p) "
    };
}
#[allow(unused_imports, reason = "readers of whole logs use it too")]
pub(super) use chain;

/// The types of events that hold settings, as their index wants to hear it.
macro_rules! setting_types {
    () => {
        "e.type IN ('session.created', 'session.renamed', 'model.selected', 'attachment.replaced', \
         'session.forked')"
    };
}

const RANGE: &str = concat!(
    chain!(),
    "SELECT e.sid, e.seq, e.id, e.epoch, e.created_ms, e.type, e.version, e.body FROM chain c \
     CROSS JOIN LATERAL (SELECT x.* FROM @.event x WHERE x.sid = c.sid \
       AND x.seq BETWEEN greatest(c.lo, $2) AND c.hi ORDER BY x.seq LIMIT $3) e ORDER BY e.seq LIMIT $3"
);
const HOLDER: &str = concat!(
    chain!(),
    "SELECT c.sid FROM chain c WHERE $2 BETWEEN c.lo AND c.hi LIMIT 1"
);
const SETTINGS: &str = concat!(
    chain!(),
    "SELECT e.type, e.version, e.body FROM chain c CROSS JOIN LATERAL (SELECT e.* FROM @.event e \
     WHERE e.sid = c.sid AND e.seq BETWEEN c.lo AND least(c.hi, $2) AND ",
    setting_types!(),
    " OFFSET 0) e ORDER BY e.seq"
);
const KIN: &str = concat!(
    "SELECT s.sid, s.id, e.type, e.version, e.body FROM unnest($1) u(sid) \
     CROSS JOIN LATERAL (SELECT x.sid, x.id FROM @.session x WHERE x.sid = u.sid LIMIT 1) s \
     LEFT JOIN LATERAL (SELECT e.* FROM @.event e WHERE e.sid = s.sid AND ",
    setting_types!(),
    " OFFSET 0) e ON TRUE"
);

/// A stored event: sid, seq, id, epoch, created_ms, type, version, body.
pub(super) fn read_stored(row: &Row) -> Stored {
    Stored {
        sid: row.get(0),
        seq: uint(row.get(1)),
        id: row.get(2),
        epoch: row.get::<_, Option<i64>>(3).map(uint),
        created_ms: row.get(4),
        type_name: row.get(5),
        version: version_of(row, 6),
        body: row.get(7),
    }
}

fn version_of(row: &Row, at: usize) -> u32 {
    u32::try_from(row.get::<_, i64>(at)).unwrap_or(u32::MAX)
}

/// The answers that concern all of them, in the order of their statements.
struct Answers {
    heads: Vec<Row>,
    inbox: Vec<Row>,
    effects: Vec<Row>,
    clock: Vec<Row>,
    nodes: Vec<Row>,
    events: Vec<Row>,
    inputs: Vec<Row>,
    receipts: Vec<Row>,
    sids: Vec<Row>,
}

/// Reads the sessions wanted. Also the clock leases are judged by, in each one's surroundings.
pub(super) async fn load(
    conn: &Conn,
    purpose: Use,
    wanted: &[Wanted],
) -> Result<Vec<Read>, Trouble> {
    let rare = wanted.iter().any(is_rare);
    let begin = if conn.is_pooled() {
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ; {}",
            purpose.limits(true)
        )
    } else {
        // Numbers for new sessions are drawn here too, which a read-only transaction may not.
        "BEGIN ISOLATION LEVEL REPEATABLE READ".to_owned()
    };
    let answers = ask(conn, &begin, wanted, !rare).await?;
    let mut read = sort(wanted, &answers);
    if rare {
        // No lock is held here, so these may take their turn.
        let more = load_rare(conn, wanted, &mut read).await;
        conn.batch("COMMIT").await?;
        more?;
    }
    Ok(read)
}

fn is_rare(wanted: &Wanted) -> bool {
    wanted
        .asks
        .iter()
        .any(|asks| asks.parent.is_some() || asks.stored.is_some())
}

async fn ask(
    conn: &Conn,
    begin: &str,
    wanted: &[Wanted],
    commit: bool,
) -> Result<Answers, Trouble> {
    let asks = || wanted.iter().flat_map(|one| &one.asks);
    let mut ids: BTreeSet<&str> = wanted.iter().map(|one| one.session.as_str()).collect();
    ids.extend(asks().filter_map(|asks| asks.parent.as_ref().map(|(parent, _)| parent.as_str())));
    let ids: Vec<&str> = ids.into_iter().collect();
    let events: Vec<&str> = asks()
        .flat_map(|a| &a.events)
        .map(|id| id.as_str())
        .collect();
    let (of, inputs): (Vec<&str>, Vec<&str>) = wanted
        .iter()
        .flat_map(|one| one.asks.iter().map(move |asks| (one, asks)))
        .flat_map(|(one, asks)| {
            asks.inputs
                .iter()
                .map(|i| (one.session.as_str(), i.as_str()))
        })
        .unzip();
    let nodes: Vec<&str> = asks()
        .flat_map(|a| &a.nodes)
        .map(|id| id.as_str())
        .collect();
    let receipts: Vec<&str> = asks().filter_map(|asks| asks.receipt.as_deref()).collect();
    let made = int(wanted.iter().filter(|one| one.creates()).count() as u64);
    let when = |wants: bool, sql: &'static str| wants.then_some(sql);
    // In the order in which they leave: nothing comes between them on this connection.
    let statements = [
        (Some(HEADS), params![TEXT_ARRAY: ids].to_vec()),
        (Some(INBOX), params![TEXT_ARRAY: ids].to_vec()),
        (Some(EFFECTS), params![TEXT_ARRAY: ids].to_vec()),
        (Some(CLOCK), Vec::new()),
        (
            // Whoever is interrupted is told whether its owner lives.
            when(!nodes.is_empty() || !receipts.is_empty(), NODES),
            params![TEXT_ARRAY: nodes, TEXT_ARRAY: ids].to_vec(),
        ),
        (
            when(!events.is_empty(), EVENTS),
            params![TEXT_ARRAY: events].to_vec(),
        ),
        (
            when(!inputs.is_empty(), INPUTS),
            params![TEXT_ARRAY: of, TEXT_ARRAY: inputs].to_vec(),
        ),
        (
            when(!receipts.is_empty(), RECEIPTS),
            params![TEXT_ARRAY: receipts].to_vec(),
        ),
        (when(made > 0, SIDS), params![INT8: made].to_vec()),
    ];
    for (sql, params) in &statements {
        if let Some(sql) = sql {
            conn.ready(sql, params).await?;
        }
    }
    let rows = join_all(statements.iter().map(|(sql, params)| async move {
        match sql {
            Some(sql) => conn.rows(sql, params).await,
            None => Ok(Vec::new()),
        }
    }));
    let end = async {
        match commit {
            true => conn.batch("COMMIT").await,
            false => Ok(()),
        }
    };
    let (begun, rows, ended) = futures::join!(conn.batch(begin), rows, end);
    begun?;
    let rows: Result<Vec<Vec<Row>>, Trouble> = rows.into_iter().collect();
    if rows.is_err() && !commit {
        conn.batch("ROLLBACK").await?;
    }
    let mut rows = rows?.into_iter();
    ended?;
    let mut next = || rows.next().unwrap_or_default();
    Ok(Answers {
        heads: next(),
        inbox: next(),
        effects: next(),
        clock: next(),
        nodes: next(),
        events: next(),
        inputs: next(),
        receipts: next(),
        sids: next(),
    })
}

/// Gives each session what is its own.
fn sort(wanted: &[Wanted], answers: &Answers) -> Vec<Read> {
    let mut sessions = sessions(answers);
    let nodes: BTreeMap<String, NodeFacts> = answers.nodes.iter().map(node).collect();
    let mut events: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
    for row in &answers.events {
        let stored = read_stored(row);
        events.entry(stored.id.clone()).or_default().push(stored);
    }
    let receipts: BTreeMap<String, (i64, String)> = answers
        .receipts
        .iter()
        .map(|row| (row.get(0), (row.get(1), row.get(2))))
        .collect();
    let lease_ms = answers.clock.first().map_or(0, |row| row.get(0));
    let mut sids = answers.sids.iter().map(|row| row.get::<_, i64>(0));
    let heads: BTreeMap<String, Head> = sessions
        .iter()
        .filter_map(|(id, session)| Some((id.clone(), session.as_ref().ok()?.head.clone()?)))
        .collect();
    let mut read = Vec::with_capacity(wanted.len());
    for one in wanted {
        let asked = |id: &str| {
            let mut named = one.asks.iter().flat_map(|asks| &asks.events);
            named.any(|event| event.as_str() == id)
        };
        let parents = one.asks.iter().filter_map(|asks| asks.parent.as_ref());
        let around = Around {
            new_sid: if one.creates() {
                sids.next().unwrap_or(0)
            } else {
                0
            },
            // A batch of one session is the rule for long lists: then there is nothing to look through.
            events: if wanted.len() == 1 {
                std::mem::take(&mut events)
            } else {
                let own = events.iter().filter(|(id, _)| asked(id));
                own.map(|(id, rows)| (id.clone(), rows.clone())).collect()
            },
            nodes: nodes.clone(),
            receipts: receipts.clone(),
            heads: parents
                .filter_map(|(id, _)| heads.get_key_value(id.as_str()))
                .map(|(id, head)| (id.clone(), head.clone()))
                .collect(),
            lease_ms,
            ..Around::default()
        };
        let found = sessions.remove(one.session.as_str());
        let session = found.unwrap_or_else(|| Ok(Session::default()));
        read.push(Read { session, around });
    }
    read
}

fn sessions(answers: &Answers) -> HashMap<String, Result<Session, Damaged>> {
    let mut sessions: HashMap<String, Result<Session, Damaged>> = HashMap::new();
    for row in &answers.heads {
        let claim = row.get::<_, Option<i64>>(WIDTH).map(|_| Claim {
            message: row.get(WIDTH + 1),
            message_seq: row.get::<_, Option<i64>>(WIDTH + 2).map(uint),
            continuation: row.get(WIDTH + 3),
            recovery_error: row.get(WIDTH + 4),
            wake_pending: row.get(WIDTH + 5),
            created_ms: row.get(WIDTH + 6),
        });
        let session = read_head(row).map(|head| Session {
            head: Some(head),
            claim,
            ..Session::default()
        });
        sessions.insert(row.get(1), session);
    }
    for row in answers.inbox.iter().chain(&answers.inputs) {
        let waiting = InboxRow {
            seq: uint(row.get(2)),
            delivery: delivery_of(row.get(3)),
            state: match row.get::<_, i64>(4) {
                0 => InboxState::Pending,
                1 => InboxState::Promoted,
                _ => InboxState::Cancelled,
            },
            fenced: row.get(5),
        };
        if let Some(Ok(session)) = sessions.get_mut(row.get::<_, &str>(0)) {
            session.inbox.insert(row.get(1), waiting);
        }
    }
    for row in &answers.effects {
        let effect = Effect {
            epoch: uint(row.get(3)),
            generation: uint(row.get(4)),
            process: process_of(row, 5),
        };
        if let Some(Ok(session)) = sessions.get_mut(row.get::<_, &str>(0)) {
            session.effects.insert((row.get(1), row.get(2)), effect);
        }
    }
    sessions
}

fn node(row: &Row) -> (String, NodeFacts) {
    let facts = NodeFacts {
        state: node_state(row.get(1)),
        leased: row.get(2),
        lease_until: row.get(5),
        lease_ms: row.get(7),
        renewal_no: row.get(8),
        resigned: row.get(6),
        serves: Serves {
            labels: row.get(3),
            roots: row.get(4),
        },
    };
    (row.get(0), facts)
}

fn node_state(number: i64) -> NodeState {
    match number {
        0 => NodeState::Active,
        1 => NodeState::Draining,
        _ => NodeState::Dead,
    }
}

/// A node's state as it is stored; -1 for one that has no row.
pub(super) fn state_number(node: Option<&NodeFacts>) -> i64 {
    match node.map(|node| node.state) {
        None => -1,
        Some(NodeState::Active) => 0,
        Some(NodeState::Draining) => 1,
        Some(NodeState::Dead) => 2,
    }
}

/// What only forks and imports ask, in the same snapshot.
async fn load_rare(conn: &Conn, wanted: &[Wanted], read: &mut [Read]) -> Result<(), Trouble> {
    for (one, read) in wanted.iter().zip(read) {
        for asks in &one.asks {
            if let Some((parent, through)) = &asks.parent {
                let (id, through) = (parent.as_str(), int(*through));
                let holder = conn.first(HOLDER, params![TEXT: id, INT8: through]).await?;
                read.around.holder = holder.map(|row| row.get(0));
                let rows = conn
                    .rows(SETTINGS, params![TEXT: id, INT8: through])
                    .await?;
                read.around.settings = rows
                    .iter()
                    .map(|row| (row.get(0), version_of(row, 1), row.get(2)))
                    .collect();
            }
            if let Some((from, count)) = asks.stored {
                let id = one.session.as_str();
                let (from, count) = (int(from), int(count as u64));
                let rows = conn
                    .rows(RANGE, params![TEXT: id, INT8: from, INT8: count])
                    .await?;
                read.around.stored = rows.iter().map(read_stored).collect();
                load_kin(conn, read).await?;
            }
        }
    }
    Ok(())
}

/// Who the sessions are that hold events of the ids asked.
async fn load_kin(conn: &Conn, read: &mut Read) -> Result<(), Trouble> {
    let holders = read.around.events.values().flatten().map(|row| row.sid);
    let sids: Vec<i64> = holders.collect::<BTreeSet<_>>().into_iter().collect();
    for row in conn.rows(KIN, params![INT8_ARRAY: sids]).await? {
        let kin = read.around.kin.entry(row.get(0)).or_insert_with(|| Kin {
            id: row.get(1),
            parents: Vec::new(),
        });
        if let Some(name) = row.get::<_, Option<String>>(2)
            && let Ok(EventBody::SessionForked(forked)) =
                EventBody::decode(&name, version_of(&row, 3), row.get(4))
        {
            kin.parents.push(forked.parent.to_string());
        }
    }
    Ok(())
}
