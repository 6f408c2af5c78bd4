//! The head row: the one row per session that orders and fences every write (R1).

use super::tx::{Tx, first, int, uint};
use rusqlite::{Connection, Row, params};
use tenure_core::event::body::Phase;
use tenure_core::id::SessionId;
use tenure_core::usage::Usage;

/// The head row, whole. Ids are kept as text: only what leaves the store is parsed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Head {
    pub(super) sid: i64,
    pub(super) id: SessionId,
    pub(super) rev: i64,
    /// The last seq; `None` only while the row is being made.
    pub(super) head: Option<u64>,
    pub(super) base: u64,
    pub(super) parent: Option<i64>,
    pub(super) forked_from: Option<String>,
    pub(super) forked_through: Option<u64>,
    pub(super) epoch: u64,
    pub(super) owner: Option<String>,
    pub(super) claim_id: Option<String>,
    pub(super) write_no: u64,
    pub(super) phase: Option<Phase>,
    pub(super) loading: bool,
    pub(super) cancel: bool,
    pub(super) attempts: u32,
    pub(super) quarantine: Option<String>,
    pub(super) parked_through: Option<u64>,
    pub(super) dormant: bool,
    pub(super) interrupt_seq: Option<u64>,
    pub(super) generation: u64,
    pub(super) execution: Option<String>,
    pub(super) last_outcome: Option<String>,
    pub(super) open_step: Option<String>,
    pub(super) open_compaction: Option<String>,
    pub(super) open_text: Option<String>,
    pub(super) pending: u32,
    pub(super) title: Option<String>,
    pub(super) directory: String,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) usage: Usage,
    pub(super) cost: u64,
    pub(super) cost_incomplete: bool,
    pub(super) last_line: String,
    pub(super) line_done: bool,
    pub(super) created_ms: i64,
    pub(super) updated_ms: i64,
    pub(super) activity: i64,
    /// The indexed columns as they are stored; none while they are not known to be.
    stored: Option<Place>,
}

/// Owner, busy, activity, parent: what indexes are made of.
type Place = (Option<String>, bool, i64, Option<i64>);

/// The columns in the order [`Head::read`] expects.
macro_rules! head_columns {
    () => {
        "s.sid, s.id, s.rev, s.head, s.base, s.parent, s.forked_from, s.forked_through, s.epoch, s.owner, \
         s.claim_id, s.write_no, s.phase, s.loading, s.cancel, s.attempts, s.quarantine, s.parked_through, \
         s.dormant, s.interrupt_seq, s.generation, s.execution, s.last_outcome, s.open_step, \
         s.open_compaction, s.open_text, s.pending, s.title, s.directory, s.provider, s.model, \
         s.tokens_input, s.tokens_output, s.tokens_reasoning, s.tokens_cache_read, s.tokens_cache_write, \
         s.cost, s.cost_incomplete, s.last_line, s.line_done, s.created_ms, s.updated_ms, s.activity"
    };
}
pub(super) use head_columns;

/// How many columns `head_columns!` names: what a query selects after them begins here.
pub(super) const WIDTH: usize = 43;

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
    forked_through = ?38 WHERE sid = ?1";

/// The columns indexes are made of.
const PLACE: &str =
    "UPDATE session SET owner = ?2, busy = ?3, activity = ?4, parent = ?5 WHERE sid = ?1";

const INSERT: &str = "INSERT INTO session(id, rev, head, base, epoch, write_no, loading, cancel, attempts, \
    dormant, generation, pending, busy, directory, provider, model, tokens_input, tokens_output, \
    tokens_reasoning, tokens_cache_read, tokens_cache_write, cost, cost_incomplete, last_line, line_done, \
    created_ms, updated_ms, activity) \
    VALUES (?1, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '', '', '', 0, 0, 0, 0, 0, 0, 0, '', 0, 0, 0, 0)";

pub(super) fn phase_number(phase: Phase) -> i64 {
    match phase {
        Phase::Safe => 0,
        Phase::Active => 1,
        Phase::Cancelling => 2,
    }
}

pub(super) fn phase_of(number: i64) -> Phase {
    match number {
        0 => Phase::Safe,
        1 => Phase::Active,
        _ => Phase::Cancelling,
    }
}

impl Head {
    /// Reads `head_columns!`.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let number = |i: usize| row.get::<_, i64>(i).map(uint);
        let maybe = |i: usize| row.get::<_, Option<i64>>(i).map(|n| n.map(uint));
        let id: String = row.get(1)?;
        let mut head = Self {
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
            },
            cost: number(36)?,
            cost_incomplete: row.get(37)?,
            last_line: row.get(38)?,
            line_done: row.get(39)?,
            created_ms: row.get(40)?,
            updated_ms: row.get(41)?,
            activity: row.get(42)?,
            stored: None,
        };
        head.stored = Some(head.place());
        Ok(head)
    }

    /// The row of a session that is not deleted.
    pub(super) fn load(conn: &Connection, id: &SessionId) -> rusqlite::Result<Option<Self>> {
        first(conn, BY_ID, [id.as_str()], Self::read)
    }

    /// A fresh row, to be saved by the same transaction.
    pub(super) fn insert(tx: &Tx<'_>, id: &SessionId) -> rusqlite::Result<Self> {
        tx.exec(INSERT, [id.as_str()])?;
        Self::load(tx.conn, id)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Writes everything back and raises `rev`.
    pub(super) fn save(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        let maybe = |n: Option<u64>| n.map(int);
        tx.exec(
            UPDATE,
            params![
                self.sid,
                self.head.map_or(-1, int),
                int(self.epoch),
                self.claim_id,
                int(self.write_no),
                self.phase.map(phase_number),
                self.loading,
                self.cancel,
                self.attempts,
                self.quarantine,
                maybe(self.parked_through),
                self.dormant,
                maybe(self.interrupt_seq),
                int(self.generation),
                self.execution,
                self.last_outcome,
                self.open_step,
                self.open_compaction,
                self.open_text,
                self.pending,
                self.title,
                self.directory,
                self.provider,
                self.model,
                int(self.usage.input),
                int(self.usage.output),
                int(self.usage.reasoning),
                int(self.usage.cache_read),
                int(self.usage.cache_write),
                int(self.cost),
                self.cost_incomplete,
                self.last_line,
                self.line_done,
                self.created_ms,
                self.updated_ms,
                int(self.base),
                self.forked_from,
                maybe(self.forked_through),
            ],
        )?;
        let place = self.place();
        if self.stored != Some(place.clone()) {
            let (owner, busy, activity, parent) = &place;
            tx.exec(PLACE, params![self.sid, owner, busy, activity, parent])?;
            self.stored = Some(place);
        }
        self.rev += 1;
        Ok(())
    }

    fn place(&self) -> Place {
        let busy = self.owner.is_some() || self.execution.is_some() || self.pending > 0;
        (self.owner.clone(), busy, self.activity, self.parent)
    }

    /// The last seq, 0 while there is none.
    pub(super) fn last(&self) -> u64 {
        self.head.unwrap_or(0)
    }

    /// The seq the next event gets.
    pub(super) fn next_seq(&self) -> u64 {
        self.head.map_or(self.base, |head| head + 1)
    }

    /// Would an input admitted at `seq` be eligible (R4)?
    pub(super) fn eligible(&self, seq: u64) -> bool {
        !self.dormant && self.parked_through.is_none_or(|through| seq > through)
    }

    /// Is any pending input eligible?
    pub(super) fn has_eligible(&self, conn: &Connection) -> rusqlite::Result<bool> {
        if self.pending == 0 || self.dormant {
            return Ok(false);
        }
        let after = self.parked_through.map_or(-1, int);
        first(
            conn,
            "SELECT 1 FROM inbox WHERE sid = ?1 AND state = 0 AND seq > ?2 LIMIT 1",
            [self.sid, after],
            |_| Ok(()),
        )
        .map(|row| row.is_some())
    }

    /// Ends tenure: the owner goes, the epoch stays.
    pub(super) fn clear_owner(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        self.owner = None;
        self.claim_id = None;
        self.phase = None;
        self.loading = false;
        self.cancel = false;
        tx.exec("DELETE FROM claim WHERE sid = ?1", [self.sid])?;
        Ok(())
    }

    /// Marks user activity: lists are ordered by a counter, so a clock set back changes nothing.
    pub(super) fn touch(&mut self, tx: &Tx<'_>, now_ms: i64) -> rusqlite::Result<()> {
        let newest = tx
            .first(
                "SELECT activity FROM session WHERE deleted = 0 ORDER BY activity DESC LIMIT 1",
                [],
                |row| row.get::<_, i64>(0),
            )?
            .unwrap_or(0);
        if newest != self.activity || newest == 0 {
            self.activity = newest + 1;
        }
        self.updated_ms = self.updated_ms.max(now_ms);
        Ok(())
    }
}

impl Head {
    /// The row of a fork as it begins: its parent's settings as `settings` holds them, and a life of its own.
    pub(super) fn begin_fork(settings: &Head, parent: &str, through: u64, now_ms: i64) -> Self {
        Self {
            sid: settings.sid,
            id: settings.id.clone(),
            rev: settings.rev,
            head: settings.head,
            base: settings.base,
            parent: settings.parent,
            forked_from: Some(parent.to_owned()),
            forked_through: Some(through),
            epoch: settings.epoch,
            owner: None,
            claim_id: None,
            write_no: settings.write_no,
            phase: None,
            loading: false,
            cancel: false,
            attempts: 0,
            quarantine: None,
            parked_through: None,
            dormant: false,
            interrupt_seq: None,
            generation: settings.generation,
            execution: None,
            last_outcome: None,
            open_step: None,
            open_compaction: None,
            open_text: None,
            pending: 0,
            title: settings.title.clone(),
            directory: settings.directory.clone(),
            provider: settings.provider.clone(),
            model: settings.model.clone(),
            usage: Usage::default(),
            cost: 0,
            cost_incomplete: false,
            last_line: String::new(),
            line_done: true,
            created_ms: now_ms,
            updated_ms: now_ms,
            activity: settings.activity,
            stored: settings.stored.clone(),
        }
    }
}
