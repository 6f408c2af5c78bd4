//! The head row: the one row per session that orders and fences every write (R1).

use super::Failure;
use super::moving::Moving;
use super::rows::Rows;
use crate::api::LostOwner;
use tenure_core::event::body::{Location, Phase};
use tenure_core::id::SessionId;
use tenure_core::model::ModelRef;
use tenure_core::usage::Usage;

/// The head row, whole. Ids are kept as text: only what leaves the store is parsed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Head {
    pub(crate) sid: i64,
    pub(crate) id: SessionId,
    pub(crate) rev: i64,
    /// The last seq; `None` only while the row is being made.
    pub(crate) head: Option<u64>,
    pub(crate) base: u64,
    pub(crate) parent: Option<i64>,
    pub(crate) forked_from: Option<String>,
    pub(crate) forked_through: Option<u64>,
    pub(crate) epoch: u64,
    pub(crate) owner: Option<String>,
    pub(crate) claim_id: Option<String>,
    pub(crate) write_no: u64,
    pub(crate) phase: Option<Phase>,
    pub(crate) loading: bool,
    pub(crate) cancel: bool,
    pub(crate) attempts: u32,
    pub(crate) quarantine: Option<String>,
    pub(crate) parked_through: Option<u64>,
    pub(crate) dormant: bool,
    pub(crate) interrupt_seq: Option<u64>,
    pub(crate) generation: u64,
    pub(crate) execution: Option<String>,
    pub(crate) last_outcome: Option<String>,
    pub(crate) open_step: Option<String>,
    pub(crate) open_compaction: Option<String>,
    pub(crate) open_text: Option<String>,
    pub(crate) pending: u32,
    pub(crate) title: Option<String>,
    pub(crate) directory: String,
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) usage: Usage,
    pub(crate) cost: u64,
    pub(crate) cost_incomplete: bool,
    pub(crate) last_line: String,
    pub(crate) line_done: bool,
    pub(crate) created_ms: i64,
    pub(crate) updated_ms: i64,
    pub(crate) activity: i64,
    /// Until when the named successor of a hand-over may accept it alone, on the clock leases are judged by.
    pub(crate) handed_until: Option<i64>,
    /// Until when something that a lost owner started may still live, on the clock leases are judged by (R10). It
    /// outlives whoever took the session over: the one after has to wait as well.
    pub(crate) quiet_until: Option<i64>,
    /// Whose: so that a process that saw them renew last can judge by its own clock, too. Stored where the lease clock
    /// may jump.
    pub(crate) lost: Vec<LostOwner>,
    /// Labels a node must have to serve the location.
    pub(crate) requires: Vec<String>,
    /// A move that waits.
    pub(crate) moving: Option<Moving>,
    /// The indexed columns as they are stored; none while they are not known to be.
    pub(crate) stored: Option<Place>,
}

/// The longest a successor may have to accept what was handed over to it.
const LONGEST_ACCEPT_MS: i64 = 60_000;
/// Lost owners that are told apart.
const MOST_LOST: usize = 4;

/// Owner, busy, activity, parent: what indexes are made of.
pub(crate) type Place = (Option<String>, bool, i64, Option<i64>);

pub(crate) fn phase_number(phase: Phase) -> i64 {
    match phase {
        Phase::Safe => 0,
        Phase::Active => 1,
        Phase::Cancelling => 2,
    }
}

pub(crate) fn phase_of(number: i64) -> Phase {
    match number {
        0 => Phase::Safe,
        1 => Phase::Active,
        _ => Phase::Cancelling,
    }
}

impl Head {
    /// The row of a session that is being made.
    pub(crate) fn fresh(sid: i64, id: SessionId) -> Self {
        Self {
            sid,
            id,
            rev: 0,
            head: None,
            base: 0,
            parent: None,
            forked_from: None,
            forked_through: None,
            epoch: 0,
            owner: None,
            claim_id: None,
            write_no: 0,
            phase: None,
            loading: false,
            cancel: false,
            attempts: 0,
            quarantine: None,
            parked_through: None,
            dormant: false,
            interrupt_seq: None,
            generation: 0,
            execution: None,
            last_outcome: None,
            open_step: None,
            open_compaction: None,
            open_text: None,
            pending: 0,
            title: None,
            directory: String::new(),
            provider: String::new(),
            model: String::new(),
            usage: Usage::default(),
            cost: 0,
            cost_incomplete: false,
            last_line: String::new(),
            line_done: false,
            created_ms: 0,
            updated_ms: 0,
            activity: 0,
            handed_until: None,
            quiet_until: None,
            lost: Vec::new(),
            requires: Vec::new(),
            moving: None,
            stored: None,
        }
    }

    /// Where the session's tools run.
    pub(crate) fn location(&self) -> Location {
        Location {
            directory: self.directory.clone(),
            requires: self.requires.clone(),
        }
    }

    /// The model in force.
    pub(crate) fn model(&self) -> ModelRef {
        ModelRef {
            provider: self.provider.clone(),
            model: self.model.clone(),
        }
    }

    /// Takes over where the session's tools run.
    pub(crate) fn set_location(&mut self, location: &Location) {
        self.directory = location.directory.clone();
        self.requires = location.requires.clone();
    }

    /// What indexes are made of.
    pub(crate) fn place(&self) -> Place {
        let busy = self.owner.is_some() || self.execution.is_some() || self.pending > 0;
        (self.owner.clone(), busy, self.activity, self.parent)
    }

    /// The last seq, 0 while there is none.
    pub(crate) fn last(&self) -> u64 {
        self.head.unwrap_or(0)
    }

    /// The seq the next event gets.
    pub(crate) fn next_seq(&self) -> u64 {
        self.head.map_or(self.base, |head| head + 1)
    }

    /// Would an input admitted at `seq` be eligible (R4)?
    pub(crate) fn eligible(&self, seq: u64) -> bool {
        !self.dormant && self.parked_through.is_none_or(|through| seq > through)
    }

    /// Is any pending input eligible?
    pub(crate) fn has_eligible(&self, rows: &impl Rows) -> Result<bool, Failure> {
        if self.pending == 0 || self.dormant {
            return Ok(false);
        }
        rows.is_pending(self.sid, self.parked_through, false)
    }

    /// Something may be at work until then, if not longer by what is known already.
    pub(crate) fn be_quiet_until(&mut self, until: i64) {
        self.quiet_until = self.quiet_until.max(Some(until));
    }

    /// An owner was lost that may have left something running until then (R10).
    pub(crate) fn lose(&mut self, mut owner: LostOwner, until: i64) {
        self.be_quiet_until(until);
        if self.lost.len() >= MOST_LOST {
            // One after the other, faster than a lease: whoever comes judges by none of their renewals.
            self.lost.clear();
            owner.renewal_no = -1;
        }
        self.lost.push(owner);
    }

    /// Whatever lost owners had started is over: whoever starts something has waited for that (R10).
    pub(crate) fn end_quiet(&mut self) {
        self.quiet_until = None;
        self.lost.clear();
    }

    /// Gives the session to a successor that has so long to accept it, at `now` of the clock leases are judged by.
    pub(crate) fn hand_until(&mut self, now: i64, accept_ms: u64) {
        let accept = i64::try_from(accept_ms).unwrap_or(i64::MAX);
        self.handed_until = Some(now.saturating_add(accept.min(LONGEST_ACCEPT_MS)));
    }

    /// Has the successor let the time for accepting it pass? One that is longer than any was given on a clock that has
    /// been set back since: it must not keep the session from others for as long as the step.
    pub(crate) fn missed(&self, now: i64) -> bool {
        let left = self.handed_until.map(|until| until.saturating_sub(now));
        left.is_some_and(|left| !(0..=LONGEST_ACCEPT_MS).contains(&left))
    }

    /// Ends tenure: the owner goes, the epoch stays.
    pub(crate) fn clear_owner(&mut self, rows: &impl Rows) -> Result<(), Failure> {
        self.owner = None;
        self.claim_id = None;
        self.phase = None;
        self.loading = false;
        self.cancel = false;
        self.handed_until = None;
        rows.close_claim(self.sid)
    }

    /// Marks user activity: lists are ordered by a counter, so a clock set back changes nothing.
    pub(crate) fn touch(&mut self, rows: &impl Rows, now_ms: i64) -> Result<(), Failure> {
        self.activity = rows.next_activity(self.activity)?;
        self.updated_ms = self.updated_ms.max(now_ms);
        Ok(())
    }
}

impl Head {
    /// The row of a fork as it begins: its parent's settings as `settings` holds them, and a life of its own.
    pub(crate) fn begin_fork(settings: &Head, parent: &str, through: u64, now_ms: i64) -> Self {
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
            handed_until: None,
            quiet_until: None,
            lost: Vec::new(),
            requires: settings.requires.clone(),
            moving: None,
            stored: settings.stored.clone(),
        }
    }
}
