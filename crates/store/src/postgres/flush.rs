//! Writes a batch: locks, one conditional statement and COMMIT leave in one flush, and every session gets its verdict.
//!
//! A session whose head row is not as its jobs read it, or one of whose events is stored already, or whose nodes are
//! not as they were, is not written, and nobody else is harmed (R1, R12). No client round trip happens under a lock
//! (R6): the whole transaction is on its way before its first answer comes back.

use super::conn::{Conn, Use};
use super::load::state_number;
use super::session::{delivery_number, head_number, is_runnable, rest};
use super::sql::{Param, int};
use super::trouble::Trouble;
use crate::machine::head::{Head, phase_number};
use crate::machine::loaded::{Changes, InboxState, Session};
use crate::machine::rows::NodeFacts;
use crate::sqlite::Fault;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use tenure_core::event::EventBody;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

/// A session to be written: how it was read, what it is now, and what of it changed.
pub(super) struct Draft {
    /// None: it is new.
    pub(super) before: Option<Head>,
    /// Its column `runnable`, as it was read.
    pub(super) was_runnable: bool,
    pub(super) session: Session,
    pub(super) changes: Changes,
    /// The nodes its jobs looked at, as they were.
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    /// Ids of its events that are known to stand in other logs too, where an import put the same events.
    pub(super) shared: BTreeSet<String>,
}

/// Why a flush came to nothing.
#[derive(Debug)]
pub(super) enum Broken {
    /// Nothing of it is there. Worth trying one by one.
    Aborted(Trouble),
    /// The connection went before the answer came: nobody knows.
    Unknown(String),
    /// The connection went before anything was sent, or the server does not write.
    NotBegun(String),
}

/// Sessions written, by sid, with the number of their latest activity.
pub(super) type Won = HashMap<i64, i64>;

/// A value of a statement, borrowed from the drafts where it can be, and its type.
type Value<'a> = (Box<dyn ToSql + Sync + Send + 'a>, Type);

/// Values of one statement, and its text as it grows.
#[derive(Default)]
struct Text<'a> {
    sql: String,
    values: Vec<Value<'a>>,
}

impl<'a> Text<'a> {
    fn arg(&mut self, value: impl ToSql + Sync + Send + 'a, kind: Type) -> usize {
        self.values.push((Box::new(value), kind));
        self.values.len()
    }

    /// A source of rows, `alias`, over columns of equal length.
    fn unnest(&mut self, alias: &str, columns: Columns<'a>) -> String {
        let named = columns.0.into_iter().map(|(name, value, kind)| {
            self.values.push((value, kind));
            (name, self.values.len())
        });
        source(alias, &named.collect::<Vec<_>>())
    }

    /// Adds `name AS (…)`.
    fn part(&mut self, name: &str, sql: &str) {
        let begin = if self.sql.is_empty() { "WITH " } else { ", " };
        let _ = write!(self.sql, "{begin}{name} AS ({sql})");
    }
}

/// Rows of arrays of equal length, given by the numbers of their values. They are unnested side by side in the list of
/// a SELECT: as one FROM item, each array would be copied into a store of its own first, cell by cell.
fn source(alias: &str, columns: &[(&'static str, usize)]) -> String {
    let each = columns
        .iter()
        .map(|(name, value)| format!("unnest(${value}) AS {name}"));
    format!("(SELECT {}) {alias}", each.collect::<Vec<_>>().join(", "))
}

type Column<'a> = (&'static str, Box<dyn ToSql + Sync + Send + 'a>, Type);

/// Named columns for `unnest`.
#[derive(Default)]
struct Columns<'a>(Vec<Column<'a>>);

impl<'a> Columns<'a> {
    fn int(mut self, name: &'static str, values: Vec<i64>) -> Self {
        self.0.push((name, Box::new(values), Type::INT8_ARRAY));
        self
    }
    fn maybe_int(mut self, name: &'static str, values: Vec<Option<i64>>) -> Self {
        self.0.push((name, Box::new(values), Type::INT8_ARRAY));
        self
    }
    fn flag(mut self, name: &'static str, values: Vec<bool>) -> Self {
        self.0.push((name, Box::new(values), Type::BOOL_ARRAY));
        self
    }
    fn text<T: ToSql + Sync + Send + 'a>(mut self, name: &'static str, values: Vec<T>) -> Self {
        self.0.push((name, Box::new(values), Type::TEXT_ARRAY));
        self
    }
    fn maybe_text<T: ToSql + Sync + Send + 'a>(
        self,
        name: &'static str,
        values: Vec<Option<T>>,
    ) -> Self {
        self.text(name, values)
    }
}

/// A text the server can hold: what people and tools wrote may have a NUL in it.
fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', " ").into()
    } else {
        text.into()
    }
}

fn maybe_clean(text: Option<&String>) -> Option<Cow<'_, str>> {
    text.map(|text| clean(text))
}

/// Is `sid` one of those that `name` holds? Written so that it is looked up in a table made once.
fn among(sid: &str, name: &str) -> String {
    format!("({sid} IN (SELECT sid FROM {name})) IS TRUE")
}

/// A batch as one statement.
pub(super) struct Batch<'a> {
    text: Arc<str>,
    values: Vec<Value<'a>>,
    /// Whose rows are locked before the statement begins.
    sids: Vec<i64>,
    nodes: Vec<&'a str>,
}

/// How much of a head row is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// It is new.
    New,
    /// It was there, and anything may have changed.
    Whole,
    /// It was there and only went on, as it does with almost every append.
    Little,
}

fn extent(draft: &Draft) -> Extent {
    match (&draft.before, &draft.session.head) {
        (Some(before), Some(head)) if goes_on(draft, before, head) => Extent::Little,
        (Some(_), _) => Extent::Whole,
        (None, _) => Extent::New,
    }
}

/// Is everything that [`add_progress`] leaves alone as it was?
fn goes_on(draft: &Draft, before: &Head, head: &Head) -> bool {
    !draft.changes.touched
        && is_runnable(&draft.session, head) == draft.was_runnable
        && before.base == head.base
        && before.parent == head.parent
        && before.epoch == head.epoch
        && before.owner == head.owner
        && before.claim_id == head.claim_id
        && before.attempts == head.attempts
        && before.quarantine == head.quarantine
        && before.handed_until == head.handed_until
        && before.title == head.title
        && before.directory == head.directory
}

/// The rows of the batch, by table, in the order of their sessions' numbers.
struct Rows<'a> {
    drafts: Vec<(i64, &'a Draft)>,
    heads: Vec<(Extent, &'a Draft, &'a Head)>,
}

impl<'a> Rows<'a> {
    fn new(drafts: &'a [Draft]) -> Self {
        let mut heads: Vec<_> = drafts
            .iter()
            .filter_map(|draft| Some((extent(draft), draft, draft.session.head.as_ref()?)))
            .collect();
        heads.sort_unstable_by_key(|(.., head)| head.sid);
        Self {
            drafts: heads
                .iter()
                .map(|(_, draft, head)| (head.sid, *draft))
                .collect(),
            heads,
        }
    }

    fn heads(&self, extent: Extent) -> Vec<(&'a Draft, &'a Head)> {
        let heads = self.heads.iter().filter(|(of, ..)| *of == extent);
        heads.map(|(_, draft, head)| (*draft, *head)).collect()
    }

    fn all(&self) -> impl Iterator<Item = (i64, &'a Draft)> {
        self.drafts.iter().copied()
    }
}

impl<'a> Batch<'a> {
    /// Makes the statement. `trusting`: event ids are taken for new without a look.
    pub(super) fn new(conn: &Conn, drafts: &'a [Draft], trusting: bool) -> Self {
        let rows = Rows::new(drafts);
        let mut text = Text::default();
        let mut barred = Vec::new();
        let events = add_events(&mut text, &rows);
        if !trusting && let Some((known, _)) = &events {
            text.part("known", known);
            barred.push("known");
        }
        let nodes = add_nodes(&mut text, &rows);
        if !nodes.is_empty() {
            barred.push("moved");
        }
        add_heads(&mut text, &rows, &barred);
        if let Some((_, insert)) = events {
            text.part("put_event", &insert);
        }
        add_claims(&mut text, &rows);
        add_inbox(&mut text, &rows);
        add_effects(&mut text, &rows);
        add_receipts(&mut text, &rows);
        text.sql.push_str(" SELECT sid, activity FROM won");
        let old = rows
            .heads
            .iter()
            .filter(|(extent, ..)| *extent != Extent::New);
        let sids = match rows
            .heads
            .iter()
            .any(|(extent, ..)| *extent == Extent::Whole)
        {
            true => old.map(|(.., head)| head.sid).collect(),
            // One statement on one table, which both of its inputs bring in the order of its numbers.
            false => Vec::new(),
        };
        Self {
            text: conn.dialect().fill(&text.sql).into(),
            values: text.values,
            sids,
            nodes,
        }
    }
}

/// The statement that finds sessions with an event that is there already, and the one that inserts the events.
fn add_events<'a>(text: &mut Text<'a>, rows: &Rows<'a>) -> Option<(String, String)> {
    let all = || {
        rows.all()
            .flat_map(|(sid, draft)| draft.changes.events.iter().map(move |event| (sid, event)))
    };
    let sids: Vec<i64> = all().map(|(sid, _)| sid).collect();
    if sids.is_empty() {
        return None;
    }
    let ids: Vec<&str> = all().map(|(_, w)| w.event.id.as_str()).collect();
    let new = rows.all().flat_map(|(_, draft)| {
        let ids = draft.changes.events.iter().map(|w| w.event.id.as_str());
        ids.filter(|id| !draft.shared.contains(*id))
    });
    let new: Vec<&str> = new.collect();
    let all_new = new.len() == ids.len();
    let (sids, ids) = (
        text.arg(sids, Type::INT8_ARRAY),
        text.arg(ids, Type::TEXT_ARRAY),
    );
    let new = match all_new {
        true => ids,
        false => text.arg(new, Type::TEXT_ARRAY),
    };
    let pairs = source("i", &[("sid", sids), ("id", ids)]);
    // The ids are looked up in one pass over their index.
    let known = format!(
        "SELECT DISTINCT i.sid FROM {pairs} WHERE i.id IN \
         (SELECT e.id FROM @.event e WHERE e.id = ANY(${new}))"
    );
    let body = |body: &'a EventBody| (body.type_name(), i64::from(body.version()));
    let (types, versions): (Vec<&str>, Vec<i64>) = all().map(|(_, w)| body(&w.event.body)).unzip();
    let columns = [
        ("sid", sids),
        ("id", ids),
        (
            "seq",
            text.arg(
                all().map(|(_, w)| int(w.seq)).collect::<Vec<_>>(),
                Type::INT8_ARRAY,
            ),
        ),
        (
            "epoch",
            text.arg(
                all().map(|(_, w)| w.epoch.map(int)).collect::<Vec<_>>(),
                Type::INT8_ARRAY,
            ),
        ),
        (
            "created_ms",
            text.arg(
                all().map(|(_, w)| w.event.created_ms).collect::<Vec<_>>(),
                Type::INT8_ARRAY,
            ),
        ),
        ("type", text.arg(types, Type::TEXT_ARRAY)),
        ("version", text.arg(versions, Type::INT8_ARRAY)),
        (
            "body",
            text.arg(
                all()
                    .map(|(_, w)| w.event.text.as_str())
                    .collect::<Vec<_>>(),
                Type::TEXT_ARRAY,
            ),
        ),
    ];
    let insert = format!(
        "INSERT INTO @.event(sid, seq, id, epoch, created_ms, type, version, body) \
         SELECT i.sid, i.seq, i.id, i.epoch, i.created_ms, i.type, i.version, i.body FROM {} WHERE {}",
        source("i", &columns),
        among("i.sid", "won")
    );
    Some((known, insert))
}

/// The nodes whose state the verdicts rest on: sessions for which one moved are not written.
fn add_nodes<'a>(text: &mut Text<'a>, rows: &Rows<'a>) -> Vec<&'a str> {
    let looked = || {
        rows.all().flat_map(|(sid, draft)| {
            draft
                .changes
                .nodes
                .iter()
                .map(move |name| (sid, draft, name))
        })
    };
    let mut names: Vec<&str> = looked().map(|(_, _, name)| name.as_str()).collect();
    if names.is_empty() {
        return names;
    }
    let states = looked().map(|(_, draft, name)| state_number(draft.nodes.get(name)));
    let columns = Columns::default()
        .int("sid", looked().map(|(sid, _, _)| sid).collect())
        .text("name", names.clone())
        .int("state", states.collect());
    let source = text.unnest("c", columns);
    text.part(
        "moved",
        &format!(
            "SELECT DISTINCT c.sid FROM {source} WHERE \
             coalesce((SELECT n.state FROM @.node n WHERE n.incarnation = c.name), -1) <> c.state"
        ),
    );
    names.sort_unstable();
    names.dedup();
    names
}

/// The head rows: `won` holds the sessions that were as they were read.
fn add_heads<'a>(text: &mut Text<'a>, rows: &Rows<'a>, barred: &[&str]) {
    let bars = |sid: &str| {
        let each = barred
            .iter()
            .map(|name| format!(" AND NOT ({})", among(sid, name)));
        each.collect::<String>()
    };
    let mut parts = Vec::new();
    let little = rows.heads(Extent::Little);
    if !little.is_empty() {
        add_progress(text, &little, &bars("s.sid"));
        parts.push("SELECT sid, activity FROM went_on");
    }
    let old = rows.heads(Extent::Whole);
    if !old.is_empty() {
        let source = text.unnest("u", fence_columns(head_columns(&old), &old));
        let as_read = as_read(text, &old);
        text.part(
            "kept",
            &format!(
                "UPDATE @.session s SET rev = u.rev, head = u.head, base = u.base, parent = u.parent, \
                 epoch = u.epoch, owner = u.owner, claim_id = u.claim_id, write_no = u.write_no, \
                 phase = u.phase, attempts = u.attempts, quarantine = u.quarantine, \
                 handed_until = u.handed_until, runnable = u.runnable, activity = CASE WHEN u.touched \
                 THEN nextval('@.next_activity') ELSE s.activity END, title = u.title, \
                 directory = u.directory, last_line = u.last_line, rest = u.rest FROM {source} \
                 WHERE {as_read}{} RETURNING s.sid, s.activity",
                bars("s.sid")
            ),
        );
        parts.push("SELECT sid, activity FROM kept");
    }
    let new = rows.heads(Extent::New);
    if !new.is_empty() {
        let ids: Vec<&str> = new.iter().map(|(_, head)| head.id.as_str()).collect();
        let source = text.unnest("u", head_columns(&new).text("id", ids));
        text.part(
            "made",
            &format!(
                "INSERT INTO @.session(sid, id, rev, head, base, parent, epoch, owner, claim_id, write_no, \
                 phase, attempts, quarantine, handed_until, runnable, activity, title, directory, last_line, \
                 rest) SELECT u.sid, u.id, u.rev, u.head, u.base, u.parent, u.epoch, u.owner, u.claim_id, \
                 u.write_no, u.phase, u.attempts, u.quarantine, u.handed_until, u.runnable, \
                 nextval('@.next_activity'), u.title, u.directory, u.last_line, u.rest FROM {source} \
                 WHERE TRUE{} ON CONFLICT DO NOTHING RETURNING sid, activity",
                bars("u.sid")
            ),
        );
        parts.push("SELECT sid, activity FROM made");
    }
    text.part("won", &parts.join(" UNION ALL "));
}

/// How the rows were read, for [`as_read`].
fn fence_columns<'a>(columns: Columns<'a>, heads: &[(&'a Draft, &'a Head)]) -> Columns<'a> {
    let before = || heads.iter().filter_map(|(draft, _)| draft.before.as_ref());
    columns
        .int("rev0", before().map(|head| head.rev).collect())
        .int("epoch0", before().map(|head| int(head.epoch)).collect())
        .int("write0", before().map(|head| int(head.write_no)).collect())
        .maybe_text(
            "owner0",
            before().map(|head| head.owner.as_deref()).collect(),
        )
        .maybe_text(
            "claim0",
            before().map(|head| head.claim_id.as_deref()).collect(),
        )
}

/// R1: the fence is in the predicate, with `rev`, which moves with everything else.
fn as_read(text: &mut Text<'_>, heads: &[(&Draft, &Head)]) -> String {
    let sids: Vec<i64> = heads.iter().map(|(_, head)| head.sid).collect();
    let sids = text.arg(sids, Type::INT8_ARRAY);
    format!(
        "s.sid = ANY(${sids}) AND s.sid = u.sid AND s.rev = u.rev0 AND s.epoch = u.epoch0 \
         AND s.write_no = u.write0 AND s.owner IS NOT DISTINCT FROM u.owner0 \
         AND s.claim_id IS NOT DISTINCT FROM u.claim0"
    )
}

/// Rows that only went on: what [`goes_on`] compares stays as it is, and is not sent.
fn add_progress<'a>(text: &mut Text<'a>, heads: &[(&'a Draft, &'a Head)], bars: &str) {
    let each = || heads.iter().map(|(_, head)| *head);
    let columns = Columns::default()
        .int("sid", each().map(|head| head.sid).collect())
        .int("rev", each().map(|head| head.rev).collect())
        .int("head", each().map(head_number).collect())
        .int("write_no", each().map(|head| int(head.write_no)).collect())
        .maybe_int(
            "phase",
            each().map(|head| head.phase.map(phase_number)).collect(),
        )
        .text(
            "last_line",
            each().map(|head| clean(&head.last_line)).collect(),
        )
        .text("rest", each().map(rest).collect());
    let source = text.unnest("u", fence_columns(columns, heads));
    let as_read = as_read(text, heads);
    text.part(
        "went_on",
        &format!(
            "UPDATE @.session s SET rev = u.rev, head = u.head, write_no = u.write_no, phase = u.phase, \
             last_line = u.last_line, rest = u.rest FROM {source} WHERE {as_read}{bars} \
             RETURNING s.sid, s.activity"
        ),
    );
}

fn head_columns<'a>(heads: &[(&'a Draft, &'a Head)]) -> Columns<'a> {
    let each = || heads.iter().map(|(_, head)| *head);
    Columns::default()
        .int("sid", each().map(|head| head.sid).collect())
        .int("rev", each().map(|head| head.rev).collect())
        .int("head", each().map(head_number).collect())
        .int("base", each().map(|head| int(head.base)).collect())
        .maybe_int("parent", each().map(|head| head.parent).collect())
        .int("epoch", each().map(|head| int(head.epoch)).collect())
        .maybe_text("owner", each().map(|head| head.owner.as_deref()).collect())
        .maybe_text(
            "claim_id",
            each().map(|head| head.claim_id.as_deref()).collect(),
        )
        .int("write_no", each().map(|head| int(head.write_no)).collect())
        .maybe_int(
            "phase",
            each().map(|head| head.phase.map(phase_number)).collect(),
        )
        .int(
            "attempts",
            each().map(|head| i64::from(head.attempts)).collect(),
        )
        .maybe_text(
            "quarantine",
            each()
                .map(|head| maybe_clean(head.quarantine.as_ref()))
                .collect(),
        )
        .maybe_int(
            "handed_until",
            each().map(|head| head.handed_until).collect(),
        )
        .flag(
            "runnable",
            heads
                .iter()
                .map(|(draft, head)| is_runnable(&draft.session, head))
                .collect(),
        )
        .flag(
            "touched",
            heads
                .iter()
                .map(|(draft, _)| draft.changes.touched)
                .collect(),
        )
        .maybe_text(
            "title",
            each()
                .map(|head| maybe_clean(head.title.as_ref()))
                .collect(),
        )
        .text(
            "directory",
            each().map(|head| clean(&head.directory)).collect(),
        )
        .text(
            "last_line",
            each().map(|head| clean(&head.last_line)).collect(),
        )
        .text("rest", each().map(rest).collect())
}

fn add_claims<'a>(text: &mut Text<'a>, rows: &Rows<'a>) {
    let changed = || rows.all().filter(|(_, draft)| draft.changes.claim);
    let put: Vec<_> = changed()
        .filter_map(|(sid, draft)| Some((sid, draft.session.claim.as_ref()?)))
        .collect();
    if !put.is_empty() {
        let each = || put.iter().map(|(_, claim)| *claim);
        let columns = Columns::default()
            .int("sid", put.iter().map(|(sid, _)| *sid).collect())
            .maybe_text(
                "message",
                each().map(|claim| claim.message.as_deref()).collect(),
            )
            .maybe_int(
                "seq",
                each().map(|claim| claim.message_seq.map(int)).collect(),
            )
            .maybe_text(
                "input",
                each().map(|claim| claim.continuation.as_deref()).collect(),
            )
            .maybe_text(
                "error",
                each()
                    .map(|claim| maybe_clean(claim.recovery_error.as_ref()))
                    .collect(),
            )
            .flag("wake", each().map(|claim| claim.wake_pending).collect())
            .int("created_ms", each().map(|claim| claim.created_ms).collect());
        let source = text.unnest("c", columns);
        text.part(
            "put_claim",
            &format!(
                "INSERT INTO @.claim(sid, assistant_message_id, assistant_seq, recovery_input_id, \
                 recovery_error, wake_pending, created_ms) SELECT c.* FROM {source} WHERE {} \
                 ON CONFLICT (sid) DO UPDATE SET assistant_message_id = excluded.assistant_message_id, \
                 assistant_seq = excluded.assistant_seq, recovery_input_id = excluded.recovery_input_id, \
                 recovery_error = excluded.recovery_error, wake_pending = excluded.wake_pending, \
                 created_ms = excluded.created_ms",
                among("c.sid", "won")
            ),
        );
    }
    let gone: Vec<i64> = changed()
        .filter(|(_, draft)| draft.session.claim.is_none() && draft.before.is_some())
        .map(|(sid, _)| sid)
        .collect();
    if !gone.is_empty() {
        let sids = text.arg(gone.clone(), Type::INT8_ARRAY);
        let source = text.unnest("d", Columns::default().int("sid", gone));
        text.part(
            "drop_claim",
            &format!(
                "DELETE FROM @.claim c USING {source} WHERE c.sid = ANY(${sids}) AND c.sid = d.sid AND {}",
                among("d.sid", "won")
            ),
        );
    }
}

fn add_inbox<'a>(text: &mut Text<'a>, rows: &Rows<'a>) {
    let cleared: Vec<i64> = rows
        .all()
        .filter(|(_, draft)| draft.changes.inbox_cleared && draft.before.is_some())
        .map(|(sid, _)| sid)
        .collect();
    if !cleared.is_empty() {
        let sids = text.arg(cleared.clone(), Type::INT8_ARRAY);
        let source = text.unnest("d", Columns::default().int("sid", cleared));
        text.part(
            "clear_inbox",
            &format!(
                "DELETE FROM @.inbox i USING {source} WHERE i.sid = ANY(${sids}) AND i.sid = d.sid AND {}",
                among("d.sid", "won")
            ),
        );
    }
    let put: Vec<_> = rows
        .all()
        .flat_map(|(sid, draft)| {
            let changed = draft.changes.inbox.iter();
            changed.filter_map(move |id| Some((sid, id, draft.session.inbox.get(id)?)))
        })
        .collect();
    if put.is_empty() {
        return;
    }
    let each = || put.iter().map(|(_, _, input)| *input);
    let state = |state: InboxState| match state {
        InboxState::Pending => 0,
        InboxState::Promoted => 1,
        InboxState::Cancelled => 2,
    };
    let columns = Columns::default()
        .int("sid", put.iter().map(|(sid, _, _)| *sid).collect())
        .text(
            "input",
            put.iter().map(|(_, id, _)| id.as_str()).collect::<Vec<_>>(),
        )
        .int("seq", each().map(|input| int(input.seq)).collect())
        .int(
            "delivery",
            each().map(|i| delivery_number(i.delivery)).collect(),
        )
        .int("state", each().map(|input| state(input.state)).collect())
        .flag("fenced", each().map(|input| input.fenced).collect());
    let source = text.unnest("i", columns);
    text.part(
        "put_inbox",
        &format!(
            "INSERT INTO @.inbox(sid, input, seq, delivery, state, fenced) SELECT i.* FROM {source} WHERE {} \
             ON CONFLICT (sid, input) DO UPDATE SET delivery = excluded.delivery, state = excluded.state",
            among("i.sid", "won")
        ),
    );
}

fn add_effects<'a>(text: &mut Text<'a>, rows: &Rows<'a>) {
    let changed = || {
        rows.all().flat_map(|(sid, draft)| {
            draft
                .changes
                .effects
                .iter()
                .map(move |key| (sid, draft, key))
        })
    };
    let put: Vec<_> = changed()
        .filter_map(|(sid, draft, key)| Some((sid, key, draft.session.effects.get(key)?)))
        .collect();
    if !put.is_empty() {
        let each = || put.iter().map(|(_, _, effect)| *effect);
        let process = || each().map(|effect| effect.process.as_ref());
        let columns = Columns::default()
            .int("sid", put.iter().map(|(sid, _, _)| *sid).collect())
            .text(
                "message",
                put.iter()
                    .map(|(_, key, _)| key.0.as_str())
                    .collect::<Vec<_>>(),
            )
            .text(
                "call",
                put.iter().map(|(_, key, _)| clean(&key.1)).collect(),
            )
            .int("epoch", each().map(|effect| int(effect.epoch)).collect())
            .int(
                "generation",
                each().map(|effect| int(effect.generation)).collect(),
            )
            .maybe_int(
                "pid",
                process().map(|p| p.map(|p| i64::from(p.pid))).collect(),
            )
            .maybe_int(
                "pid_start",
                process().map(|p| p.map(|p| int(p.pid_start))).collect(),
            )
            .maybe_text(
                "boot_id",
                process().map(|p| p.map(|p| clean(&p.boot_id))).collect(),
            );
        let source = text.unnest("e", columns);
        text.part(
            "put_effect",
            &format!(
                "INSERT INTO @.effect(sid, message, call, epoch, generation, pid, pid_start, boot_id) \
                 SELECT e.* FROM {source} WHERE {} ON CONFLICT (sid, message, call) DO UPDATE SET \
                 epoch = excluded.epoch, generation = excluded.generation, pid = excluded.pid, \
                 pid_start = excluded.pid_start, boot_id = excluded.boot_id",
                among("e.sid", "won")
            ),
        );
    }
    let gone: Vec<_> = changed()
        .filter(|(_, draft, key)| !draft.session.effects.contains_key(*key))
        .collect();
    if !gone.is_empty() {
        let sids: Vec<i64> = gone.iter().map(|(sid, _, _)| *sid).collect();
        let sids = text.arg(sids, Type::INT8_ARRAY);
        let columns = Columns::default()
            .int("sid", gone.iter().map(|(sid, _, _)| *sid).collect())
            .text(
                "message",
                gone.iter()
                    .map(|(_, _, key)| key.0.as_str())
                    .collect::<Vec<_>>(),
            )
            .text(
                "call",
                gone.iter().map(|(_, _, key)| clean(&key.1)).collect(),
            );
        let source = text.unnest("d", columns);
        text.part(
            "drop_effect",
            &format!(
                "DELETE FROM @.effect e USING {source} WHERE e.sid = ANY(${sids}) AND e.sid = d.sid AND e.message = d.message \
                 AND e.call = d.call AND {}",
                among("d.sid", "won")
            ),
        );
    }
}

fn add_receipts<'a>(text: &mut Text<'a>, rows: &Rows<'a>) {
    // The last answer to a key is the one that counts.
    let mut put: BTreeMap<&'a String, (i64, &'a String)> = BTreeMap::new();
    for (sid, draft) in rows.all() {
        for (key, answer) in &draft.changes.receipts {
            put.insert(key, (sid, answer));
        }
    }
    if put.is_empty() {
        return;
    }
    let columns = Columns::default()
        .text(
            "key",
            put.keys().map(|key| key.as_str()).collect::<Vec<_>>(),
        )
        .int("sid", put.values().map(|(sid, _)| *sid).collect())
        .text(
            "answer",
            put.values()
                .map(|(_, answer)| answer.as_str())
                .collect::<Vec<_>>(),
        );
    let source = text.unnest("r", columns);
    text.part(
        "put_receipt",
        &format!(
            "INSERT INTO @.receipt(key, sid, answer) SELECT r.* FROM {source} WHERE {} \
             ON CONFLICT (key) DO UPDATE SET sid = excluded.sid, answer = excluded.answer",
            among("r.sid", "won")
        ),
    );
}

/// Always in this order, so that two batches never wait for each other: nodes by name, then heads by number.
const LOCK_NODES: &str =
    "SELECT 1 FROM @.node WHERE incarnation = ANY($1) ORDER BY incarnation FOR SHARE";
const LOCK_HEADS: &str = "SELECT 1 FROM @.session WHERE sid = ANY($1) ORDER BY sid FOR UPDATE";

/// What a batch waits for a lock that made an earlier one fail.
const HURRIED: &str = "; SET LOCAL lock_timeout = '150ms'";

/// Sends the batch and its COMMIT. `fault` goes wrong on purpose. `hurried`: somebody holds a lock and does not move.
pub(super) async fn flush(
    conn: &Conn,
    purpose: Use,
    batch: &Batch<'_>,
    fault: Option<Fault>,
    hurried: bool,
) -> Result<Won, Broken> {
    let values: Vec<Param<'_>> = batch
        .values
        .iter()
        .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
        .collect();
    let nodes = super::sql::params![TEXT_ARRAY: batch.nodes];
    let heads = super::sql::params![INT8_ARRAY: batch.sids];
    let ready = async {
        conn.ready(LOCK_NODES, nodes).await?;
        conn.ready(LOCK_HEADS, heads).await?;
        conn.ready_of(&batch.text, &values).await
    };
    ready.await.map_err(not_begun)?;
    let mut begin = conn.begin(purpose);
    if hurried {
        begin.push_str(HURRIED);
    }
    let end = match fault {
        Some(Fault::CommitLost) => "ROLLBACK",
        _ => "COMMIT",
    };
    // Rows that only go on, or one session's, are locked by their own update; one node's by its own look.
    let lock = async |wanted: bool, sql, params| match wanted {
        true => conn.rows(sql, params).await,
        false => Ok(Vec::new()),
    };
    let (begun, locked_nodes, locked_heads, written, ended) = futures::join!(
        conn.batch(&begin),
        lock(!batch.nodes.is_empty(), LOCK_NODES, nodes),
        lock(batch.sids.len() > 1, LOCK_HEADS, heads),
        conn.rows_of(&batch.text, &values),
        conn.batch(end),
    );
    if let Some(fault) = fault {
        let reason = match fault {
            Fault::CommitLost => "the commit was lost (test)",
            Fault::AnswerLost => "the answer was lost (test)",
        };
        return Err(Broken::Unknown(reason.to_owned()));
    }
    begun.map_err(aborted)?;
    locked_nodes.map_err(aborted)?;
    locked_heads.map_err(aborted)?;
    let rows = written.map_err(aborted)?;
    match ended {
        Ok(()) => Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect()),
        Err(Trouble::Lost(reason)) => Err(Broken::Unknown(reason)),
        // A refused COMMIT that could not be serialised, or broke a constraint, is not there.
        Err(Trouble::Refused { code, words })
            if code.starts_with("40") || code.starts_with("23") =>
        {
            Err(Broken::Aborted(Trouble::Refused { code, words }))
        }
        Err(trouble) => Err(Broken::Unknown(trouble.words())),
    }
}

fn not_begun(trouble: Trouble) -> Broken {
    match trouble {
        Trouble::Lost(reason) => Broken::NotBegun(reason),
        refused => Broken::Aborted(refused),
    }
}

fn aborted(trouble: Trouble) -> Broken {
    if trouble.is(&SqlState::READ_ONLY_SQL_TRANSACTION) {
        return Broken::NotBegun(trouble.words());
    }
    match trouble {
        // What was sent may have been carried out, COMMIT and all.
        Trouble::Lost(reason) => Broken::Unknown(reason),
        refused => Broken::Aborted(refused),
    }
}
