//! Lays live items against the log, for one reader: each live byte is shown once, and is then confirmed by an
//! event or explicitly superseded (P6). Pure: it is told events and items, and says what to show.

use super::LiveItem;
use std::collections::{BTreeMap, VecDeque};
use tenure_core::event::body::FragmentKind;
use tenure_core::event::{Event, EventBody};
use tenure_core::id::MessageId;

/// Messages whose attempts are remembered as over. Live items are never this far behind the log.
const REMEMBERED: usize = 64;

/// One part of a message as this reader has seen it.
#[derive(Debug, Clone, Copy)]
struct Part {
    attempt: u32,
    /// The end of what was shown live.
    shown: u64,
    /// The end of what the log holds; none when the reader came after the part's start.
    durable: Option<u64>,
    ended: bool,
}

impl Part {
    /// Up to where a following item may be joined on.
    fn reach(&self) -> u64 {
        self.shown.max(self.durable.unwrap_or(0))
    }
}

/// What one reader of a session saw live and has not seen confirmed. Its size is bounded by the open step.
#[derive(Debug, Clone, Default)]
pub struct LiveTracker {
    epoch: Option<u64>,
    parts: BTreeMap<(MessageId, u32), Part>,
    /// Attempts below this number of a message are over; all of it, once its step is.
    floors: VecDeque<(MessageId, u32)>,
}

impl LiveTracker {
    /// A tracker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The newest epoch seen in the log.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// The next event of the log. What is returned is to be shown *before* the event: live text that it, or
    /// the change of owner it shows, leaves unconfirmed.
    pub fn event(&mut self, event: &Event) -> Vec<LiveItem> {
        let mut out = Vec::new();
        if let Some(epoch) = event.epoch {
            if self.epoch.is_some_and(|known| epoch > known) {
                self.owner_changed(&mut out);
            }
            self.epoch = self.epoch.max(Some(epoch));
        }
        match &event.body {
            EventBody::AttemptStarted(start) => {
                self.raise_floor(&start.message, start.attempt);
                self.give_up_below(&start.message, start.attempt, &mut out);
            }
            EventBody::FragmentStarted(start) => {
                let part = self.part(&start.message, start.part, start.attempt);
                part.durable = Some(part.durable.unwrap_or(0));
            }
            EventBody::FragmentChunk(chunk) => {
                let key = (chunk.message.clone(), chunk.part);
                if let Some(Part { durable, .. }) = self.parts.get_mut(&key) {
                    *durable = durable.map(|end| end + chunk.text.len() as u64);
                }
            }
            EventBody::FragmentEnded(end) => {
                let key = (end.message.clone(), end.part);
                if let Some(part) = self.parts.get_mut(&key) {
                    part.durable = Some(end.bytes);
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

    /// A live item as it arrived, perhaps twice, late, or with a gap before it. What is returned is to be
    /// shown; a gap is left to the log.
    pub fn live(&mut self, item: LiveItem) -> Option<LiveItem> {
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
        if part.ended || attempt != part.attempt {
            return None;
        }
        let reach = part.reach();
        // Of a part whose start this reader has not seen, anything is the first.
        let first = part.durable.is_none() && part.shown == 0;
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
            .map(|((message, _), part)| (message.clone(), part.attempt))
            .collect();
        for (message, attempt) in open {
            self.raise_floor(&message, attempt.saturating_add(1));
        }
        for (key, part) in &mut self.parts {
            // Where the log's end is not known, the part's own end tells it: recovery writes one.
            if part.durable.is_some() {
                out.extend(unconfirmed(key, part));
            }
        }
    }

    fn give_up_below(&mut self, message: &MessageId, attempt: u32, out: &mut Vec<LiveItem>) {
        for (key, part) in &mut self.parts {
            if &key.0 == message && part.attempt < attempt && !part.ended {
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
        // The reader saw the attempt begin: it has not missed the start of any part of it.
        let durable = (self.floor(message) == attempt).then_some(0);
        self.parts.entry((message.clone(), part)).or_insert(Part {
            attempt,
            shown: 0,
            durable,
            ended: false,
        })
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

/// The marker for what was shown beyond the log; says it once.
fn unconfirmed((message, number): &(MessageId, u32), part: &mut Part) -> Option<LiveItem> {
    let from = part.durable.unwrap_or(0);
    if part.shown <= from {
        return None;
    }
    part.shown = from;
    Some(LiveItem::Superseded {
        message: message.clone(),
        attempt: part.attempt,
        part: *number,
        from,
    })
}

#[cfg(test)]
mod tests;
