//! The promises P1 to P5, checked on a session's log and on what the model was asked.

use std::collections::{HashMap, HashSet};
use tenure_core::event::body::ToolFailure;
use tenure_core::event::{Event, EventBody};
use tenure_core::{CallId, MessageId};
use tenure_scripted::{Recorded, Verdict};

/// A promise and whether the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What was seen.
    pub words: String,
    /// What breaks it.
    pub broken: Vec<String>,
}

/// P1: an event of epoch e never follows one of a later epoch.
pub fn one_owner(events: &[Event]) -> Check {
    let mut highest = 0;
    let mut epochs = Vec::new();
    let mut broken = Vec::new();
    let mut fenced = 0;
    for event in events {
        let Some(epoch) = event.epoch else { continue };
        fenced += 1;
        if epoch < highest {
            broken.push(format!(
                "event {} of epoch {epoch} follows one of epoch {highest}",
                event.seq
            ));
        } else if epoch > highest {
            highest = epoch;
            epochs.push(epoch.to_string());
        }
    }
    for (at, event) in events.iter().enumerate() {
        if event.seq != at as u64 {
            broken.push(format!("seq {} stands in place {at}", event.seq));
        }
    }
    Check {
        name: "P1 one owner",
        words: format!(
            "{fenced} fenced events, epochs {}, none written by a deposed owner",
            epochs.join(" → ")
        ),
        broken,
    }
}

/// P2: every admitted input ends delivered or cancelled, once, or is still pending.
pub fn nothing_lost(events: &[Event], pending: &[MessageId]) -> Check {
    let mut ends: HashMap<&MessageId, u32> = HashMap::new();
    let mut admitted = Vec::new();
    let mut broken = Vec::new();
    for event in events {
        match &event.body {
            EventBody::InputAdmitted(e) => {
                admitted.push(&e.input);
                ends.insert(&e.input, 0);
            }
            EventBody::InputPromoted(e) => end(&mut ends, &e.input, event.seq, &mut broken),
            EventBody::InputCancelled(e) => end(&mut ends, &e.input, event.seq, &mut broken),
            _ => {}
        }
    }
    for input in &admitted {
        let waits = pending.contains(input);
        match ends[input] {
            0 if !waits => broken.push(format!("{input} was accepted and is lost")),
            1 if waits => broken.push(format!("{input} was delivered and still waits")),
            n if n > 1 => broken.push(format!("{input} was delivered {n} times")),
            _ => {}
        }
    }
    Check {
        name: "P2 nothing accepted is lost",
        words: format!(
            "{} inputs accepted, each delivered or cancelled once",
            admitted.len()
        ),
        broken,
    }
}

fn end<'a>(
    ends: &mut HashMap<&'a MessageId, u32>,
    input: &'a MessageId,
    seq: u64,
    broken: &mut Vec<String>,
) {
    match ends.get_mut(input) {
        Some(count) => *count += 1,
        None => broken.push(format!(
            "event {seq} ends {input}, which was never accepted"
        )),
    }
}

/// P3: every request passed the strict rules of its vendor.
pub fn always_sendable(requests: &[Recorded]) -> Check {
    let broken = requests
        .iter()
        .filter(|r| r.verdict != Verdict::Accepted)
        .map(|r| format!("request {} was refused: {:?}", r.number, r.verdict))
        .collect();
    Check {
        name: "P3 always sendable",
        words: format!(
            "{} requests, all accepted by the strict validator",
            requests.len()
        ),
        broken,
    }
}

/// P4: an accepted interrupt ends its execution, starts nothing after it, and leaves no claim.
pub fn cancel_is_an_event(events: &[Event], claims: usize, alive: &[String]) -> Check {
    let mut broken: Vec<String> = alive
        .iter()
        .map(|p| format!("{p} is still alive"))
        .collect();
    if claims > 0 {
        broken.push(format!("{claims} claims were left behind"));
    }
    let at = events
        .iter()
        .rposition(|e| matches!(e.body, EventBody::InterruptRequested(_)));
    match at {
        None => broken.push("there was no interrupt".to_owned()),
        Some(at) => {
            for event in &events[at..] {
                if matches!(
                    event.body,
                    EventBody::ToolStarted(_) | EventBody::AttemptStarted(_)
                ) {
                    broken.push(format!(
                        "event {} starts something after the interrupt",
                        event.seq
                    ));
                }
            }
            if !events[at..]
                .iter()
                .any(|e| matches!(e.body, EventBody::ExecutionInterrupted(_)))
            {
                broken.push("the execution was not ended as interrupted".to_owned());
            }
        }
    }
    Check {
        name: "P4 cancel is an event",
        words:
            "interrupted durably; its processes are dead, nothing started after it, no claim left"
                .to_owned(),
        broken,
    }
}

/// P5: each call is started at most once and settled once, each attempt sent at most once.
pub fn honest_effects(events: &[Event], requests: usize) -> Check {
    type Key<'a> = (&'a MessageId, &'a CallId);
    let mut started: HashSet<Key<'_>> = HashSet::new();
    let mut settled: HashSet<Key<'_>> = HashSet::new();
    let mut called: Vec<Key<'_>> = Vec::new();
    let mut attempts: HashSet<(&MessageId, u32)> = HashSet::new();
    let mut broken = Vec::new();
    let mut unknown = 0;
    for event in events {
        let twice = match &event.body {
            EventBody::ToolCalled(e) => {
                called.push((&e.message, &e.call));
                None
            }
            EventBody::ToolStarted(e) => (!started.insert((&e.message, &e.call)))
                .then(|| format!("call {} was started twice", e.call)),
            EventBody::ToolSucceeded(e) => (!settled.insert((&e.message, &e.call)))
                .then(|| format!("call {} was settled twice", e.call)),
            EventBody::ToolFailed(e) => {
                unknown += u32::from(e.failure == ToolFailure::OutcomeUnknown);
                (!settled.insert((&e.message, &e.call)))
                    .then(|| format!("call {} was settled twice", e.call))
            }
            EventBody::AttemptStarted(e) => (!attempts.insert((&e.message, e.attempt)))
                .then(|| format!("attempt {} of {} was sent twice", e.attempt, e.message)),
            _ => None,
        };
        broken.extend(twice);
    }
    for (_, call) in called.iter().filter(|key| !settled.contains(*key)) {
        broken.push(format!("call {call} was never settled"));
    }
    if requests > attempts.len() {
        broken.push(format!(
            "{requests} requests arrived for {} attempts",
            attempts.len()
        ));
    }
    Check {
        name: "P5 honest effects",
        words: format!(
            "{} calls, each started at most once and settled once ({unknown} as outcome unknown); {} attempts, each sent once",
            called.len(),
            attempts.len()
        ),
        broken,
    }
}

#[cfg(test)]
mod tests;
