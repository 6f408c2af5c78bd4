//! The head row in SQLite: reading, making and saving it.

use super::tx::{Tx, first, int, uint};
use crate::machine::head::{Head, phase_number, phase_of};
use crate::machine::moving::Moving;
use rusqlite::{Connection, Row, params};
use tenure_core::id::SessionId;
use tenure_core::usage::Usage;

/// The columns in the order [`read`] expects.
macro_rules! head_columns {
    () => {
        "s.sid, s.id, s.rev, s.head, s.base, s.parent, s.forked_from, s.forked_through, s.epoch, s.owner, \
         s.claim_id, s.write_no, s.phase, s.loading, s.cancel, s.attempts, s.quarantine, s.parked_through, \
         s.dormant, s.interrupt_seq, s.generation, s.execution, s.last_outcome, s.open_step, \
         s.open_compaction, s.open_text, s.pending, s.title, s.directory, s.provider, s.model, \
         s.tokens_input, s.tokens_output, s.tokens_reasoning, s.tokens_cache_read, s.tokens_cache_write, \
         s.cost, s.cost_incomplete, s.last_line, s.line_done, s.created_ms, s.updated_ms, s.activity, s.handed_until, s.requires, s.quiet_until, s.moving"
    };
}
pub(super) use head_columns;

/// How many columns `head_columns!` names: what a query selects after them begins here.
pub(super) const WIDTH: usize = 47;

const BY_ID: &str = concat!(
    "SELECT ",
    head_columns!(),
    " FROM session s WHERE s.id = ?1 AND s.deleted = 0"
);

/// What a turn changes: no column of an index, or every append would rewrite the indexes too.
const UPDATE: &str = "UPDATE session SET rev = rev + 1, head = ?2, epoch = ?3, claim_id = ?4, write_no = ?5, phase = \
    ?6, loading = ?7, cancel = ?8, attempts = ?9, quarantine = ?10, parked_through = ?11, dormant = \
    ?12, interrupt_seq = ?13, generation = ?14, execution = ?15, last_outcome = ?16, open_step = \
    ?17, open_compaction = ?18, open_text = ?19, pending = ?20, title = ?21, directory = ?22, \
    provider = ?23, model = ?24, tokens_input = ?25, tokens_output = ?26, tokens_reasoning = ?27, \
    tokens_cache_read = ?28, tokens_cache_write = ?29, cost = ?30, cost_incomplete = ?31, last_line \
    = ?32, line_done = ?33, created_ms = ?34, updated_ms = ?35, base = ?36, forked_from = ?37, \
    forked_through = ?38, handed_until = ?39, requires = ?40, quiet_until = ?41, moving = ?42 WHERE sid = ?1";

/// The columns indexes are made of.
const PLACE: &str =
    "UPDATE session SET owner = ?2, busy = ?3, activity = ?4, parent = ?5 WHERE sid = ?1";

const INSERT: &str = "INSERT INTO session(id, rev, head, base, epoch, write_no, loading, cancel, attempts, \
    dormant, generation, pending, busy, directory, provider, model, tokens_input, tokens_output, \
    tokens_reasoning, tokens_cache_read, tokens_cache_write, cost, cost_incomplete, last_line, line_done, \
    created_ms, updated_ms, activity) \
    VALUES (?1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', 0, 0, 0, 0, 0, 0, 0, '', 0, 0, 0, 0)";

/// Reads `head_columns!`.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Head> {
    let number = |i: usize| row.get::<_, i64>(i).map(uint);
    let maybe = |i: usize| row.get::<_, Option<i64>>(i).map(|n| n.map(uint));
    let id: String = row.get(1)?;
    let mut head = Head {
        // The lease clock of one machine does not jump: nobody has to judge by another one.
        lost: Vec::new(),
        sid: row.get(0)?,
        id: super::event::parse(1, &id, SessionId::parse)?,
        rev: row.get(2)?,
        head: row.get::<_, i64>(3).map(|n| u64::try_from(n).ok())?,
        base: number(4)?,
        parent: row.get(5)?,
        forked_from: row.get(6)?,
        forked_through: maybe(7)?,
        epoch: number(8)?,
        owner: row.get(9)?,
        claim_id: row.get(10)?,
        write_no: number(11)?,
        phase: row.get::<_, Option<i64>>(12)?.map(phase_of),
        loading: row.get(13)?,
        cancel: row.get(14)?,
        attempts: row.get(15)?,
        quarantine: row.get(16)?,
        parked_through: maybe(17)?,
        dormant: row.get(18)?,
        interrupt_seq: maybe(19)?,
        generation: number(20)?,
        execution: row.get(21)?,
        last_outcome: row.get(22)?,
        open_step: row.get(23)?,
        open_compaction: row.get(24)?,
        open_text: row.get(25)?,
        pending: row.get(26)?,
        title: row.get(27)?,
        directory: row.get(28)?,
        provider: row.get(29)?,
        model: row.get(30)?,
        usage: Usage {
            input: number(31)?,
            output: number(32)?,
            reasoning: number(33)?,
            cache_read: number(34)?,
            cache_write: number(35)?,
            cache_write_long: 0,
            searches: None,
        },
        cost: number(36)?,
        cost_incomplete: row.get(37)?,
        last_line: row.get(38)?,
        line_done: row.get(39)?,
        created_ms: row.get(40)?,
        updated_ms: row.get(41)?,
        activity: row.get(42)?,
        handed_until: row.get(43)?,
        requires: labels_of(&row.get::<_, String>(44)?),
        quiet_until: row.get(45)?,
        moving: moving_of(row.get(46)?),
        stored: None,
    };
    head.stored = Some(head.place());
    Ok(head)
}

/// The row of a session that is not deleted.
pub(super) fn load(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Head>> {
    first(conn, BY_ID, [id.as_str()], read)
}

/// A fresh row, to be saved by the same transaction.
pub(super) fn insert(tx: &Tx<'_>, id: &SessionId) -> rusqlite::Result<Head> {
    tx.exec(INSERT, [id.as_str()])?;
    load(tx.conn, id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Writes everything back and raises `rev`.
pub(super) fn save(tx: &Tx<'_>, head: &mut Head) -> rusqlite::Result<()> {
    let maybe = |n: Option<u64>| n.map(int);
    tx.exec(
        UPDATE,
        params![
            head.sid,
            head.head.map_or(-1, int),
            int(head.epoch),
            head.claim_id,
            int(head.write_no),
            head.phase.map(phase_number),
            head.loading,
            head.cancel,
            head.attempts,
            head.quarantine,
            maybe(head.parked_through),
            head.dormant,
            maybe(head.interrupt_seq),
            int(head.generation),
            head.execution,
            head.last_outcome,
            head.open_step,
            head.open_compaction,
            head.open_text,
            head.pending,
            head.title,
            head.directory,
            head.provider,
            head.model,
            int(head.usage.input),
            int(head.usage.output),
            int(head.usage.reasoning),
            int(head.usage.cache_read),
            int(head.usage.cache_write),
            int(head.cost),
            head.cost_incomplete,
            head.last_line,
            head.line_done,
            head.created_ms,
            head.updated_ms,
            int(head.base),
            head.forked_from,
            maybe(head.forked_through),
            head.handed_until,
            labels_text(&head.requires),
            head.quiet_until,
            moving_text(head.moving.as_ref()),
        ],
    )?;
    let place = head.place();
    if head.stored != Some(place.clone()) {
        let (owner, busy, activity, parent) = &place;
        tx.exec(PLACE, params![head.sid, owner, busy, activity, parent])?;
        head.stored = Some(place);
    }
    head.rev += 1;
    Ok(())
}

fn moving_text(moving: Option<&Moving>) -> Option<String> {
    moving.and_then(|moving| serde_json::to_string(moving).ok())
}

/// The move of a column. One that cannot be read is no reason to hide the session: the old place's nodes carry it out.
fn moving_of(text: Option<String>) -> Option<Moving> {
    text.and_then(|text| serde_json::from_str(&text).ok())
}

/// Labels as one column: a line each, for a label holds no line break.
pub(super) fn labels_text(labels: &[String]) -> String {
    labels.join("\n")
}

/// The labels of a column.
pub(super) fn labels_of(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
