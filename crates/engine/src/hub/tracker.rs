//! Lays live items against the log, for one reader: each live byte is shown once, and is then confirmed by an
//! event or explicitly superseded (P6). Pure: it is told events and items, and says what to show.

use super::LiveItem;
use std::collections::{BTreeMap, VecDeque};
use tenure_core::event::body::FragmentKind;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::MessageId;

/// Messages whose attempts are remembered as over. Live items are never this far behind the log.
const REMEMBERED: usize = 64;
/// Items of an attempt that the log has not come to. The oldest goes first; the log has it.
const HELD: usize = 256;

/// One part of a message as this reader has seen it.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// None until something tells it, for a part that was under way when the reader came.
    attempt: Option<u32>,
    /// The end of what was shown live.
    shown: u64,
    /// The end of what the log holds, as far as the reader has read it.
    durable: u64,
    started: bool,
    /// The log's events of it began in its middle: where `durable` is, only its end tells.
    middle: bool,
    ended: bool,
}

/// What one reader of a session saw live and has not seen confirmed. Its size is bounded by the open step.
#[derive(Debug, Clone)]
pub struct LiveTracker {
    epoch: Option<u64>,
    /// The attempt that live text is shown of: the newest that the log began or, before it tells of any, the first that
    /// something came of.
    current: Option<(MessageId, u32)>,
    /// Text of other attempts. Its start may be on its way in the log, behind what takes earlier text back.
    held: VecDeque<LiveItem>,
    holds: bool,
    parts: BTreeMap<(MessageId, u32), Part>,
    /// Attempts below this number of a message are over; all of it, once its step is.
    floors: VecDeque<(MessageId, u32)>,
}

impl LiveTracker {
    /// A tracker that has seen nothing.
    pub fn new() -> Self {
        Self {
            epoch: None,
            current: None,
            held: VecDeque::new(),
            holds: true,
            parts: BTreeMap::new(),
            floors: VecDeque::new(),
        }
    }

    /// Broken on purpose: it shows text of attempts that the log has not come to.
    pub(crate) fn ahead_of_everything() -> Self {
        Self {
            holds: false,
            ..Self::new()
        }
    }

    /// The newest epoch seen in the log.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// The next event of the log. What is returned is to be shown *before* the event: live text that it, or
    /// the change of owner it shows, leaves unconfirmed. Behind the event, [`LiveTracker::released`] is to be asked.
    pub fn event(&mut self, event: &Event) -> Vec<LiveItem> {
        let mut out = Vec::new();
        if let Some(epoch) = event.epoch {
            // A reader that came in the middle may have seen no event of the lost owner, only its live text.
            let taken_over = matches!(event.body, EventBody::RecoveryStarted(_));
            if taken_over || self.epoch.is_some_and(|known| epoch > known) {
                self.owner_changed(&mut out);
            }
            self.epoch = self.epoch.max(Some(epoch));
        }
        match &event.body {
            EventBody::AttemptStarted(start) => {
                self.current = Some((start.message.clone(), start.attempt));
                self.raise_floor(&start.message, start.attempt);
                self.give_up_below(&start.message, start.attempt, &mut out);
            }
            EventBody::FragmentStarted(start) => {
                let part = self.part(&start.message, start.part, start.attempt);
                part.started = true;
            }
            EventBody::FragmentChunk(chunk) => {
                let key = (chunk.message.clone(), chunk.part);
                let part = self.parts.entry(key).or_default();
                part.middle |= !part.started;
                part.durable += chunk.text.len() as u64;
            }
            EventBody::FragmentEnded(end) => {
                let key = (end.message.clone(), end.part);
                if let Some(part) = self.parts.get_mut(&key) {
                    part.durable = end.bytes;
                    part.middle = false;
                    part.ended = true;
                    out.extend(unconfirmed(&key, part));
                }
            }
            EventBody::StepEnded(end) => self.step_over(&end.message, &mut out),
            EventBody::StepFailed(end) => self.step_over(&end.message, &mut out),
            _ => {}
        }
        out
    }

    /// What was held until the log came to it, to be shown behind the event that was told last; to be asked for until
    /// there is none.
    pub fn released(&mut self) -> Option<LiveItem> {
        loop {
            let due = self.held.iter().position(|item| self.is_due(item))?;
            let item = self.held.remove(due)?;
            let shown = self.live(item);
            if shown.is_some() {
                return shown;
            }
        }
    }

    fn is_due(&self, item: &LiveItem) -> bool {
        let LiveItem::Delta {
            message, attempt, ..
        } = item
        else {
            return true;
        };
        let current = self.current.as_ref();
        current.is_some_and(|(of, number)| of == message && number == attempt)
            || *attempt < self.floor(message)
    }

    /// A live item as it arrived, perhaps twice, late, or with a gap before it. What is returned is to be
    /// shown; a gap is left to the log, and text of an attempt that the log has not come to is held.
    pub fn live(&mut self, item: LiveItem) -> Option<LiveItem> {
        if let LiveItem::Delta {
            message, attempt, ..
        } = &item
            && self.holds
        {
            self.current
                .get_or_insert_with(|| (message.clone(), *attempt));
            if !self.is_due(&item) {
                if self.held.len() == HELD {
                    self.held.pop_front();
                }
                self.held.push_back(item);
                return None;
            }
        }
        let LiveItem::Delta {
            message,
            attempt,
            part,
            kind,
            offset,
            text,
        } = item
        else {
            return Some(item);
        };
        if attempt < self.floor(&message) {
            return None;
        }
        self.delta(message, attempt, part, kind, offset, text)
    }

    fn delta(
        &mut self,
        message: MessageId,
        attempt: u32,
        number: u32,
        kind: FragmentKind,
        offset: u64,
        text: String,
    ) -> Option<LiveItem> {
        let part = self.part(&message, number, attempt);
        if part.ended || part.attempt != Some(attempt) {
            return None;
        }
        let reach = if part.middle {
            part.shown
        } else {
            part.shown.max(part.durable)
        };
        // For a reader that came in the middle of the part, the text begins anywhere.
        let first = part.middle && part.shown == 0;
        if offset > reach && !first {
            return None;
        }
        let known = if first {
            0
        } else {
            usize::try_from(reach - offset).ok()?
        };
        // Both sides cut at characters; text that does not is another text, and is left to the log.
        let new = text.get(known..).filter(|new| !new.is_empty())?.to_owned();
        let offset = offset + known as u64;
        part.shown = offset + new.len() as u64;
        Some(LiveItem::Delta {
            message,
            attempt,
            part: number,
            kind,
            offset,
            text: new,
        })
    }

    /// A deposed owner confirms nothing any more (P1): what it showed ahead of the log is superseded.
    fn owner_changed(&mut self, out: &mut Vec<LiveItem>) {
        let open: Vec<(MessageId, u32)> = self
            .parts
            .iter()
            .map(|((message, _), part)| (message.clone(), part.attempt.unwrap_or(0)))
            .collect();
        for (message, attempt) in open {
            self.raise_floor(&message, attempt.saturating_add(1));
        }
        for (key, part) in &mut self.parts {
            // Where the log's end is not known, the part's own end tells it: recovery writes one.
            if !part.middle {
                out.extend(unconfirmed(key, part));
            }
        }
    }

    fn give_up_below(&mut self, message: &MessageId, attempt: u32, out: &mut Vec<LiveItem>) {
        for (key, part) in &mut self.parts {
            if &key.0 == message && part.attempt.is_none_or(|own| own < attempt) && !part.ended {
                part.ended = true;
                out.extend(unconfirmed(key, part));
            }
        }
    }

    fn step_over(&mut self, message: &MessageId, out: &mut Vec<LiveItem>) {
        self.raise_floor(message, u32::MAX);
        self.parts.retain(|key, part| {
            if &key.0 != message {
                return true;
            }
            out.extend(unconfirmed(key, part));
            false
        });
    }

    fn part(&mut self, message: &MessageId, part: u32, attempt: u32) -> &mut Part {
        let part = self.parts.entry((message.clone(), part)).or_default();
        part.attempt.get_or_insert(attempt);
        part
    }

    fn floor(&self, message: &MessageId) -> u32 {
        let known = self.floors.iter().find(|(of, _)| of == message);
        known.map_or(0, |(_, floor)| *floor)
    }

    fn raise_floor(&mut self, message: &MessageId, floor: u32) {
        if let Some((_, known)) = self.floors.iter_mut().find(|(of, _)| of == message) {
            *known = floor.max(*known);
            return;
        }
        if self.floors.len() == REMEMBERED {
            self.floors.pop_front();
        }
        self.floors.push_back((message.clone(), floor));
    }
}

impl Default for LiveTracker {
    fn default() -> Self {
        Self::new()
    }
}

/// The marker for what was shown beyond the log; says it once.
fn unconfirmed((message, number): &(MessageId, u32), part: &mut Part) -> Option<LiveItem> {
    // A part whose end nobody tells is superseded from its start.
    let from = if part.middle { 0 } else { part.durable };
    if part.shown <= from {
        return None;
    }
    part.shown = from;
    Some(LiveItem::Superseded {
        message: message.clone(),
        attempt: part.attempt.unwrap_or(0),
        part: *number,
        from,
    })
}

#[cfg(test)]
mod tests;
