//! Projectors: what each event type, by exact version, changes in the head row and the inbox.

use super::event::Encoded;
use super::head::Head;
use super::tx::{AppendStop, Stop, Tx, int, rejected};
use crate::error::AppendError;
use rusqlite::params;
use tenure_core::event::EventBody;
use tenure_core::event::body::{Delivery, FragmentKind, InputAdmitted, InterruptRequested};
use tenure_core::id::MessageId;
use tenure_core::usage::Usage;

/// Characters of the last line that lists show.
const LAST_LINE: usize = 200;

/// An append at work: the head row as it becomes, and what its operations need to know.
pub(super) struct Work<'a> {
    pub(super) tx: &'a Tx<'a>,
    /// The row as it becomes.
    pub(super) head: Head,
    /// The generation before this append (R14).
    pub(super) generation: u64,
    /// Under a fence?
    pub(super) fenced: bool,
    /// Rebuilding from an export: facts are taken as they are, nothing is checked against the present.
    pub(super) replay: bool,
    /// Inputs promoted by this append, and whether each was eligible.
    pub(super) promoted: Vec<(MessageId, bool)>,
    /// The seq of the last `step.started` or `compaction.started` of this append.
    pub(super) entered: Option<u64>,
}

impl<'a> Work<'a> {
    pub(super) fn new(tx: &'a Tx<'a>, head: Head, fenced: bool, replay: bool) -> Self {
        Self {
            tx,
            generation: head.generation,
            head,
            fenced,
            replay,
            promoted: Vec::new(),
            entered: None,
        }
    }

    fn refuse(&self, reason: impl Into<String>) -> AppendStop {
        rejected(&self.head.id, reason)
    }

    fn inbox_changed(&self) -> AppendStop {
        Stop::Refused(AppendError::InboxChanged {
            session: self.head.id.clone(),
        })
    }

    pub(super) fn stale_attachment(&self) -> AppendStop {
        Stop::Refused(AppendError::StaleAttachment {
            session: self.head.id.clone(),
        })
    }
}

/// Is `type_name` something only the holder of tenure may write?
pub(super) fn needs_fence(body: &EventBody) -> bool {
    use EventBody as E;
    matches!(
        body,
        E::InputPromoted(_)
            | E::ExecutionStarted(_)
            | E::ExecutionSucceeded(_)
            | E::ExecutionFailed(_)
            | E::ExecutionInterrupted(_)
            | E::RecoveryStarted(_)
            | E::SessionQuarantined(_)
            | E::StepStarted(_)
            | E::AttemptStarted(_)
            | E::AttemptEnded(_)
            | E::RetryScheduled(_)
            | E::FragmentStarted(_)
            | E::FragmentChunk(_)
            | E::FragmentEnded(_)
            | E::ToolInputStarted(_)
            | E::ToolCalled(_)
            | E::ToolStarted(_)
            | E::ToolSucceeded(_)
            | E::ToolFailed(_)
            | E::BlockRecorded(_)
            | E::StepEnded(_)
            | E::StepFailed(_)
            | E::CompactionStarted(_)
            | E::CompactionEnded(_)
            | E::CompactionFailed(_)
    )
}

/// Applies one event at `seq` to the projections.
pub(super) fn project(work: &mut Work<'_>, seq: u64, event: &Encoded) -> Result<(), AppendStop> {
    use EventBody as E;
    match &event.body {
        E::SessionCreated(_)
        | E::SessionForked(_)
        | E::SessionRenamed(_)
        | E::ModelSelected(_)
        | E::AttachmentReplaced(_) => settings(work, seq, event),
        E::InputAdmitted(data) => admitted(work, seq, event.created_ms, data),
        E::InputPromoted(data) => promoted(work, &data.input),
        E::InputCancelled(data) => cancelled(work, &data.input),
        E::InputDeliveryChanged(data) => delivery_changed(work, &data.input, data.delivery),
        E::InterruptRequested(data) => interrupted(work, seq, event.created_ms, data),
        E::ExecutionStarted(data) => {
            if work.head.execution.is_some() && !work.replay {
                return Err(work.refuse("an execution is open already"));
            }
            work.head.execution = Some(data.execution.as_str().to_owned());
            // An interrupt applies to what precedes it (R5): one from before is not of this execution.
            if !broken!(work.tx.switches, StaleInterrupt) {
                work.head.interrupt_seq = None;
            }
            Ok(())
        }
        E::ExecutionSucceeded(data) => {
            execution_over(work, seq, data.execution.as_str(), "succeeded")
        }
        E::ExecutionFailed(data) => execution_over(work, seq, data.execution.as_str(), "failed"),
        E::ExecutionInterrupted(data) => {
            execution_over(work, seq, data.execution.as_str(), "interrupted")
        }
        E::SessionQuarantined(data) => {
            work.head.quarantine = Some(data.error.message.clone());
            Ok(())
        }
        E::SessionReleased(_) => {
            work.head.quarantine = None;
            work.head.attempts = 0;
            Ok(())
        }
        E::PermissionAnswered(_) => Ok(work.head.touch(work.tx, event.created_ms)?),
        _ => turn(work, seq, event),
    }
}

/// Events of a turn: what is open, what it cost, its last line.
fn turn(work: &mut Work<'_>, seq: u64, event: &Encoded) -> Result<(), AppendStop> {
    use EventBody as E;
    match &event.body {
        E::StepStarted(data) => {
            if !work.replay
                && (work.head.open_step.is_some() || work.head.open_compaction.is_some())
            {
                return Err(work.refuse("a step or compaction is open already"));
            }
            work.head.open_step = Some(data.message.as_str().to_owned());
            work.entered = Some(seq);
        }
        E::StepEnded(_) | E::StepFailed(_) => {
            work.head.open_step = None;
            work.head.open_text = None;
        }
        E::CompactionStarted(data) => {
            work.head.open_compaction = Some(data.compaction.as_str().to_owned());
            work.entered = Some(seq);
        }
        E::CompactionEnded(data) => {
            work.head.open_compaction = None;
            spend(&mut work.head, data.usage.as_ref(), data.cost);
        }
        E::CompactionFailed(data) => {
            work.head.open_compaction = None;
            spend(&mut work.head, data.usage.as_ref(), data.cost);
        }
        E::AttemptEnded(data) => spend(&mut work.head, data.usage.as_ref(), data.cost),
        E::ToolStarted(data) => {
            let current = data.generation == work.generation;
            if !current && !work.replay && !broken!(work.tx.switches, NoGenerationCheck) {
                return Err(work.stale_attachment());
            }
        }
        E::FragmentStarted(data) if data.kind == FragmentKind::Text => {
            work.head.open_text = Some(part_key(&data.message, data.part));
            work.head.line_done = true;
        }
        E::FragmentChunk(data) => {
            let open = work.head.open_text.as_deref();
            if open == Some(part_key(&data.message, data.part).as_str()) {
                extend_line(
                    &mut work.head.last_line,
                    &mut work.head.line_done,
                    &data.text,
                );
            }
        }
        _ => {}
    }
    Ok(())
}

fn part_key(message: &MessageId, part: u32) -> String {
    format!("{message}/{part}")
}

/// Adds what an attempt cost; what is not known makes the sum a lower bound.
fn spend(head: &mut Head, usage: Option<&Usage>, cost: Option<u64>) {
    if let Some(usage) = usage {
        head.usage.add(usage);
    }
    head.cost = head.cost.saturating_add(cost.unwrap_or(0));
    head.cost_incomplete |= cost.is_none();
}

/// Follows the last line that is not blank over chunk borders. `done`: the next text begins a new line.
fn extend_line(line: &mut String, done: &mut bool, text: &str) {
    for piece in text.split_inclusive('\n') {
        let ends = piece.ends_with('\n');
        let piece = piece.trim_end_matches(['\n', '\r']);
        if *done {
            if !piece.trim().is_empty() {
                line.clear();
                line.extend(piece.trim_start().chars().take(LAST_LINE));
                *done = ends;
            }
        } else {
            let room = LAST_LINE.saturating_sub(line.chars().count());
            line.extend(piece.chars().take(room));
            *done = ends;
        }
    }
}

fn settings(work: &mut Work<'_>, seq: u64, event: &Encoded) -> Result<(), AppendStop> {
    use EventBody as E;
    match &event.body {
        E::SessionCreated(data) => {
            if seq != 0 {
                return Err(work.refuse("`session.created` is only ever the first event"));
            }
            work.head.title = data.title.clone();
            work.head.directory = data.location.directory.clone();
            work.head.provider = data.model.provider.clone();
            work.head.model = data.model.model.clone();
            work.head.created_ms = event.created_ms;
            work.head.touch(work.tx, event.created_ms)?;
        }
        E::SessionForked(data) => {
            if seq != data.through + 1 {
                return Err(work.refuse("`session.forked` follows the last shared event"));
            }
            let (sid, now) = (work.head.sid, event.created_ms);
            work.tx.exec("DELETE FROM inbox WHERE sid = ?1", [sid])?;
            let fresh = Head::begin_fork(&work.head, data.parent.as_str(), data.through, now);
            work.head = fresh;
            work.head.touch(work.tx, now)?;
        }
        E::SessionRenamed(data) => work.head.title = Some(data.title.clone()),
        E::ModelSelected(data) => {
            work.head.provider = data.model.provider.clone();
            work.head.model = data.model.model.clone();
        }
        E::AttachmentReplaced(data) => {
            let follows = data.generation == work.head.generation + 1;
            if !follows && !work.replay && !broken!(work.tx.switches, NoGenerationCheck) {
                return Err(work.stale_attachment());
            }
            work.head.generation = data.generation;
            work.head.directory = data.location.directory.clone();
        }
        _ => {}
    }
    Ok(())
}

fn delivery_number(delivery: Delivery) -> i64 {
    match delivery {
        Delivery::Steer => 0,
        Delivery::Queue => 1,
    }
}

fn admitted(
    work: &mut Work<'_>,
    seq: u64,
    now_ms: i64,
    data: &InputAdmitted,
) -> Result<(), AppendStop> {
    let sid = work.head.sid;
    let inserted = work.tx.exec(
        "INSERT INTO inbox(sid, input, seq, delivery, state, fenced) VALUES (?1, ?2, ?3, ?4, 0, ?5) \
         ON CONFLICT DO NOTHING",
        params![
            sid,
            data.input.as_str(),
            int(seq),
            delivery_number(data.delivery),
            work.fenced
        ],
    )?;
    if inserted == 0 {
        return Err(work.refuse(format!("input {} was accepted before", data.input)));
    }
    work.head.pending += 1;
    // A later input wakes what rests (R4). Tenure's own continuation is not a later input: it is
    // eligible by its place, and leaves the others as they are.
    if !work.fenced {
        work.head.parked_through = None;
        work.head.dormant = false;
        work.head.touch(work.tx, now_ms)?;
    }
    Ok(())
}

/// Takes a pending input out; its seq, or none when it is not pending.
fn take(work: &mut Work<'_>, input: &MessageId, state: i64) -> Result<Option<u64>, AppendStop> {
    let seq = work.tx.first(
        "SELECT seq FROM inbox WHERE sid = ?1 AND input = ?2 AND state = 0",
        params![work.head.sid, input.as_str()],
        |row| row.get::<_, i64>(0),
    )?;
    if seq.is_some() {
        work.tx.exec(
            "UPDATE inbox SET state = ?3 WHERE sid = ?1 AND input = ?2",
            params![work.head.sid, input.as_str(), state],
        )?;
        work.head.pending = work.head.pending.saturating_sub(1);
    }
    Ok(seq.map(super::tx::uint))
}

fn promoted(work: &mut Work<'_>, input: &MessageId) -> Result<(), AppendStop> {
    match take(work, input, 1)? {
        Some(seq) => {
            let eligible = work.head.eligible(seq);
            work.promoted.push((input.clone(), eligible));
            Ok(())
        }
        None if work.replay || broken!(work.tx.switches, NoCasPromote) => Ok(()),
        None => Err(work.inbox_changed()),
    }
}

fn cancelled(work: &mut Work<'_>, input: &MessageId) -> Result<(), AppendStop> {
    match take(work, input, 2)? {
        Some(_) => Ok(()),
        None if work.replay => Ok(()),
        None => Err(work.inbox_changed()),
    }
}

fn delivery_changed(
    work: &mut Work<'_>,
    input: &MessageId,
    delivery: Delivery,
) -> Result<(), AppendStop> {
    let changed = work.tx.exec(
        "UPDATE inbox SET delivery = ?3 WHERE sid = ?1 AND input = ?2 AND state = 0",
        params![work.head.sid, input.as_str(), delivery_number(delivery)],
    )?;
    if changed == 0 && !work.replay {
        return Err(work.inbox_changed());
    }
    Ok(())
}

fn interrupted(
    work: &mut Work<'_>,
    seq: u64,
    now_ms: i64,
    data: &InterruptRequested,
) -> Result<(), AppendStop> {
    work.head.interrupt_seq = Some(seq);
    // Nothing had begun: what waited rests (R5).
    if data.execution.is_none() && !broken!(work.tx.switches, NoPark) {
        work.head.parked_through = Some(seq);
    }
    Ok(work.head.touch(work.tx, now_ms)?)
}

fn execution_over(
    work: &mut Work<'_>,
    seq: u64,
    execution: &str,
    outcome: &str,
) -> Result<(), AppendStop> {
    if work.head.execution.as_deref() != Some(execution) && !work.replay {
        return Err(work.refuse(format!("execution {execution} is not the open one")));
    }
    work.head.execution = None;
    work.head.last_outcome = Some(outcome.to_owned());
    work.head.cancel = false;
    if outcome != "succeeded" && !broken!(work.tx.switches, NoPark) {
        park(work, seq)?;
    }
    work.head.interrupt_seq = None;
    Ok(())
}

/// Parks what waits (R4), unless a user's input came after the interrupt that ends this execution: an
/// interrupt never applies to later input (R5), and a later input wakes the earlier ones.
fn park(work: &mut Work<'_>, seq: u64) -> Result<(), AppendStop> {
    if let Some(after) = work.head.interrupt_seq {
        let later = work.tx.first(
            "SELECT 1 FROM inbox WHERE sid = ?1 AND state = 0 AND seq > ?2 AND fenced = 0 LIMIT 1",
            [work.head.sid, int(after)],
            |_| Ok(()),
        )?;
        if later.is_some() {
            return Ok(());
        }
    }
    work.head.parked_through = Some(seq);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_followed_over_chunk_borders() {
        let (mut line, mut done) = (String::new(), true);
        for (text, expected) in [
            ("Hel", "Hel"),
            ("lo\n", "Hello"),
            ("\n  \n", "Hello"),
            ("  next", "next"),
            (" one\r\nlast", "last"),
            (&"x".repeat(500), &format!("last{}", "x".repeat(196))),
        ] {
            extend_line(&mut line, &mut done, text);
            assert_eq!(line, *expected);
        }
    }
}
