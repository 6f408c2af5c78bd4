//! Projectors: what each event type, by exact version, changes in the head row and the inbox.

use super::event::Encoded;
use super::head::Head;
use super::rows::{Rows, Taken};
use super::{AppendStop, Stop, rejected};
use crate::error::AppendError;
use tenure_core::event::EventBody;
use tenure_core::event::body::{
    Delivery, FragmentKind, InputAdmitted, InterruptRequested, StepEnded, StepFailed,
};
use tenure_core::id::MessageId;
use tenure_core::usage::Usage;

/// Characters of the last line that lists show.
const LAST_LINE: usize = 200;

/// An append at work: the head row as it becomes, and what its operations need to know.
pub(crate) struct Work<'a, R: Rows> {
    pub(crate) rows: &'a R,
    /// The row as it becomes.
    pub(crate) head: Head,
    /// The head before this append.
    pub(crate) before: Option<u64>,
    /// The generation before this append (R14).
    pub(crate) generation: u64,
    /// Under a fence?
    pub(crate) fenced: bool,
    /// Rebuilding from an export: facts are taken as they are, nothing is checked against the present.
    pub(crate) replay: bool,
    /// Inputs promoted by this append, and whether each was eligible.
    pub(crate) promoted: Vec<(MessageId, bool)>,
    /// The seq of the last `step.started` or `compaction.started` of this append.
    pub(crate) entered: Option<u64>,
}

impl<'a, R: Rows> Work<'a, R> {
    pub(crate) fn new(rows: &'a R, head: Head, fenced: bool, replay: bool) -> Self {
        Self {
            rows,
            before: head.head,
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

    pub(crate) fn stale_attachment(&self) -> AppendStop {
        Stop::Refused(AppendError::StaleAttachment {
            session: self.head.id.clone(),
        })
    }
}

/// Is `type_name` something only the holder of tenure may write?
pub(crate) fn needs_fence(body: &EventBody) -> bool {
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
            | E::MediaWithheld(_)
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
pub(crate) fn project(
    work: &mut Work<'_, impl Rows>,
    seq: u64,
    event: &Encoded,
) -> Result<(), AppendStop> {
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
            if work.head.execution.is_some() {
                return Err(work.refuse("an execution is open already"));
            }
            work.head.execution = Some(data.execution.as_str().to_owned());
            // An interrupt applies to what precedes it (R5): one from before is not of this execution.
            if !broken!(work.rows.switches(), StaleInterrupt) {
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
        E::PermissionAnswered(_) => Ok(work.head.touch(work.rows, event.created_ms)?),
        _ => turn(work, seq, event),
    }
}

/// Events of a turn: what is open, what it cost, its last line.
fn turn(work: &mut Work<'_, impl Rows>, seq: u64, event: &Encoded) -> Result<(), AppendStop> {
    use EventBody as E;
    match &event.body {
        E::StepStarted(data) => {
            if work.head.open_step.is_some() || work.head.open_compaction.is_some() {
                return Err(work.refuse("a step or compaction is open already"));
            }
            work.head.open_step = Some(data.message.as_str().to_owned());
            work.entered = Some(seq);
        }
        E::StepEnded(StepEnded { message, .. }) | E::StepFailed(StepFailed { message, .. }) => {
            if work.head.open_step.as_deref() != Some(message.as_str()) {
                return Err(work.refuse(format!("step {message} is not the open one")));
            }
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
            if !current && !work.replay && !broken!(work.rows.switches(), NoGenerationCheck) {
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
        // The row keeps how much was written, not for how long, and no searches.
        head.usage.cache_write_long = 0;
        head.usage.searches = None;
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

fn settings(work: &mut Work<'_, impl Rows>, seq: u64, event: &Encoded) -> Result<(), AppendStop> {
    use EventBody as E;
    match &event.body {
        E::SessionCreated(data) => {
            if seq != 0 {
                return Err(work.refuse("`session.created` is only ever the first event"));
            }
            work.head.title = data.title.clone();
            work.head.set_location(&data.location);
            work.head.provider = data.model.provider.clone();
            work.head.model = data.model.model.clone();
            work.head.created_ms = event.created_ms;
            work.head.touch(work.rows, event.created_ms)?;
        }
        E::SessionForked(data) => {
            if seq != data.through + 1 {
                return Err(work.refuse("`session.forked` follows the last shared event"));
            }
            let (sid, now) = (work.head.sid, event.created_ms);
            work.rows.clear_inbox(sid)?;
            let fresh = Head::begin_fork(&work.head, data.parent.as_str(), data.through, now);
            work.head = fresh;
            work.head.touch(work.rows, now)?;
        }
        E::SessionRenamed(data) => work.head.title = Some(data.title.clone()),
        E::ModelSelected(data) => {
            work.head.provider = data.model.provider.clone();
            work.head.model = data.model.model.clone();
        }
        E::AttachmentReplaced(data) => {
            let follows = data.generation == work.head.generation + 1;
            if !follows && !broken!(work.rows.switches(), NoGenerationCheck) {
                return Err(work.stale_attachment());
            }
            work.head.generation = data.generation;
            work.head.set_location(&data.location);
        }
        _ => {}
    }
    Ok(())
}

fn admitted(
    work: &mut Work<'_, impl Rows>,
    seq: u64,
    now_ms: i64,
    data: &InputAdmitted,
) -> Result<(), AppendStop> {
    let sid = work.head.sid;
    let fresh = work
        .rows
        .admit(sid, &data.input, seq, data.delivery, work.fenced)?;
    if !fresh {
        return Err(work.refuse(format!("input {} was accepted before", data.input)));
    }
    work.head.pending += 1;
    work.head.note_move(seq, data);
    // A later input wakes what rests (R4). Tenure's own continuation is not a later input: it is
    // eligible by its place, and leaves the others as they are.
    if !work.fenced {
        work.head.parked_through = None;
        work.head.dormant = false;
        work.head.touch(work.rows, now_ms)?;
    }
    Ok(())
}

/// Takes a pending input out; its seq, or none when it is not pending.
fn take(
    work: &mut Work<'_, impl Rows>,
    input: &MessageId,
    taken: Taken,
) -> Result<Option<u64>, AppendStop> {
    let seq = work.rows.take_input(work.head.sid, input, taken)?;
    if seq.is_some() {
        work.head.pending = work.head.pending.saturating_sub(1);
        work.head.forget_move(input);
    }
    Ok(seq)
}

fn promoted(work: &mut Work<'_, impl Rows>, input: &MessageId) -> Result<(), AppendStop> {
    match take(work, input, Taken::Promoted)? {
        Some(seq) => {
            let eligible = work.head.eligible(seq);
            work.promoted.push((input.clone(), eligible));
            Ok(())
        }
        None if broken!(work.rows.switches(), NoCasPromote) => Ok(()),
        None if work.replay => Err(work.refuse(format!("input {input} is not pending"))),
        None => Err(work.inbox_changed()),
    }
}

fn cancelled(work: &mut Work<'_, impl Rows>, input: &MessageId) -> Result<(), AppendStop> {
    match take(work, input, Taken::Cancelled)? {
        Some(_) => Ok(()),
        None if work.replay => Err(work.refuse(format!("input {input} is not pending"))),
        None => Err(work.inbox_changed()),
    }
}

fn delivery_changed(
    work: &mut Work<'_, impl Rows>,
    input: &MessageId,
    delivery: Delivery,
) -> Result<(), AppendStop> {
    let changed = work.rows.redeliver(work.head.sid, input, delivery)?;
    match (changed, work.replay) {
        (true, _) => {}
        (false, true) => return Err(work.refuse(format!("input {input} is not pending"))),
        (false, false) => return Err(work.inbox_changed()),
    }
    Ok(())
}

fn interrupted(
    work: &mut Work<'_, impl Rows>,
    seq: u64,
    now_ms: i64,
    data: &InterruptRequested,
) -> Result<(), AppendStop> {
    work.head.interrupt_seq = Some(seq);
    // Nothing had begun: what waited rests (R5).
    if data.execution.is_none() && !broken!(work.rows.switches(), NoPark) {
        work.head.parked_through = Some(seq);
    }
    Ok(work.head.touch(work.rows, now_ms)?)
}

fn execution_over(
    work: &mut Work<'_, impl Rows>,
    seq: u64,
    execution: &str,
    outcome: &str,
) -> Result<(), AppendStop> {
    if work.head.execution.as_deref() != Some(execution) {
        return Err(work.refuse(format!("execution {execution} is not the open one")));
    }
    work.head.execution = None;
    work.head.last_outcome = Some(outcome.to_owned());
    work.head.cancel = false;
    if outcome != "succeeded" && !broken!(work.rows.switches(), NoPark) {
        park(work, seq)?;
    }
    work.head.interrupt_seq = None;
    Ok(())
}

/// Parks what waits (R4), unless a user's input came after the interrupt that ends this execution: an
/// interrupt never applies to later input (R5), and a later input wakes the earlier ones.
fn park(work: &mut Work<'_, impl Rows>, seq: u64) -> Result<(), AppendStop> {
    if let Some(after) = work.head.interrupt_seq
        && work.rows.is_pending(work.head.sid, Some(after), true)?
    {
        return Ok(());
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
