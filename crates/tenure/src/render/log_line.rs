//! One event as one line: seq, epoch, time, type and what matters of its data.

use super::escape::safe_line;
use super::terminal::Caps;
use super::transcript::{media_words, recovery_words, unseen_words};
use super::{human, width};
use crate::amounts::{Money, Time};
use tenure_core::event::body::*;
use tenure_core::event::{Event, EventBody};

/// The line, cut to the terminal.
pub fn line(event: &Event, caps: Caps) -> String {
    let epoch = event.epoch.map_or("-".to_owned(), |e| e.to_string());
    let time = human::time(event.created_ms);
    let text = format!(
        "{:>6} {epoch:>3} {time} {:<22} {}",
        event.seq,
        event.body.type_name(),
        safe_line(&summary(event))
    );
    if caps.stdout {
        width::cut(text.trim_end(), caps.width)
    } else {
        text.trim_end().to_owned()
    }
}

fn limits_words(limits: &Limits) -> String {
    let mut words = vec![format!("max_steps {}", limits.max_steps)];
    words.extend(limits.max_cost.map(|n| format!("max_cost {}", Money(n))));
    words.extend(limits.max_tokens.map(|n| format!("max_tokens {n}")));
    words.extend(limits.max_wall_ms.map(|n| format!("max_time {}", Time(n))));
    words.join(", ")
}

/// What matters of the event's data, for people. May hold control characters.
pub fn summary(event: &Event) -> String {
    match &event.body {
        EventBody::SessionCreated(e) => format!("{} in {}", e.model, e.location.directory),
        EventBody::SessionForked(e) => format!("{} at {}", e.parent, e.through),
        EventBody::SessionRenamed(e) => e.title.clone(),
        EventBody::ModelSelected(e) => e.model.to_string(),
        EventBody::LimitsChanged(e) => limits_words(&e.limits),
        EventBody::AttachmentReplaced(e) => {
            format!("{} (generation {})", e.location.directory, e.generation)
        }
        EventBody::InstructionsChanged(e) => e.text.clone(),
        EventBody::InputAdmitted(e) => {
            format!("{} {}", delivery_word(e.delivery), input_words(&e.kind))
        }
        EventBody::InputPromoted(e) => e.input.to_string(),
        EventBody::InputCancelled(e) => format!("{} by {}", e.input, e.by),
        EventBody::InputDeliveryChanged(e) => format!("{} {}", e.input, delivery_word(e.delivery)),
        EventBody::InterruptRequested(e) => format!("by {}", e.by),
        EventBody::ExecutionFailed(e) => e.error.message.clone(),
        EventBody::ExecutionInterrupted(e) => format!("{:?}", e.reason).to_lowercase(),
        EventBody::RecoveryStarted(e) => recovery_words(e, event.epoch),
        EventBody::SessionQuarantined(e) => e.error.message.clone(),
        EventBody::SessionReleased(e) => format!("by {}", e.by),
        EventBody::MediaWithheld(e) => unseen_words(e),
        EventBody::StepStarted(e) => {
            format!(
                "step {} {}{}",
                e.step,
                e.model,
                if e.last { " (last, no tools)" } else { "" }
            )
        }
        EventBody::AttemptStarted(e) => format!(
            "attempt {} {}",
            e.attempt,
            e.request_hash.get(..12).unwrap_or("")
        ),
        EventBody::AttemptEnded(e) => attempt_words(e),
        EventBody::RetryScheduled(e) => format!(
            "attempt {} in {} ms: {}",
            e.attempt, e.delay_ms, e.error.message
        ),
        EventBody::FragmentStarted(e) => format!("part {} {:?}", e.part, e.kind).to_lowercase(),
        EventBody::FragmentChunk(e) => e.text.clone(),
        EventBody::FragmentEnded(e) => {
            let mark = if e.superseded {
                " superseded"
            } else if e.partial {
                " partial"
            } else {
                ""
            };
            format!("part {} {} bytes{mark}", e.part, e.bytes)
        }
        EventBody::ToolInputStarted(e) => format!("{} {}", e.name, e.call),
        EventBody::ToolCalled(e) => format!("{} {} {}", e.name, e.call, e.input),
        EventBody::ToolStarted(e) => format!("{}", e.call),
        EventBody::ToolSucceeded(e) => format!(
            "{} {}",
            e.call,
            if e.title.is_empty() {
                &e.text
            } else {
                &e.title
            }
        ),
        EventBody::ToolFailed(e) => {
            format!(
                "{} {}: {}",
                e.call,
                super::transcript::failure_words(e.failure),
                e.text
            )
        }
        EventBody::PermissionAsked(e) => format!("{} {}", e.call, e.question),
        EventBody::PermissionAnswered(e) => format!("{} {}", e.call, answer_word(&e.answer)),
        EventBody::StepEnded(e) => {
            format!("{:?} {}", e.finish, human::tokens(&e.usage)).to_lowercase()
        }
        EventBody::StepFailed(e) => e.error.message.clone(),
        EventBody::CompactionStarted(e) => format!("{:?}", e.reason).to_lowercase(),
        EventBody::CompactionFailed(e) => e.error.message.clone(),
        EventBody::CompactionEnded(e) => format!(
            "kept from {}, summary of about {} tokens",
            e.kept_from,
            tenure_core::compaction::rough(&e.summary)
        ),
        EventBody::PermissionsChanged(_)
        | EventBody::InstructionsSet(_)
        | EventBody::ExecutionStarted(_)
        | EventBody::ExecutionSucceeded(_)
        | EventBody::BlockRecorded(_)
        | EventBody::Unknown(_) => String::new(),
    }
}

fn attempt_words(e: &AttemptEnded) -> String {
    match &e.error {
        Some(error) => format!(
            "attempt {} {}: {}",
            e.attempt,
            error.class.as_str(),
            error.message
        ),
        None => {
            let usage = e
                .usage
                .as_ref()
                .map(human::tokens)
                .unwrap_or_else(|| "usage unknown".to_owned());
            format!(
                "attempt {} {} {usage}",
                e.attempt,
                format!("{:?}", e.finish).to_lowercase()
            )
        }
    }
}

fn delivery_word(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Steer => "steer",
        Delivery::Queue => "queue",
    }
}

fn answer_word(answer: &PermissionAnswer) -> &'static str {
    match answer {
        PermissionAnswer::Once => "once",
        PermissionAnswer::Always { .. } => "always",
        PermissionAnswer::No { nobody: true, .. } => "no (nobody can be asked)",
        PermissionAnswer::No { .. } => "no",
    }
}

fn input_words(kind: &InputKind) -> String {
    match kind {
        InputKind::User { text, media, .. } => media.iter().fold(text.clone(), |line, one| {
            format!("{line} + {}", media_words(one))
        }),
        InputKind::Synthetic { text } => text.clone(),
        InputKind::Compaction => "compaction".to_owned(),
        InputKind::Move { location } => format!("move to {}", location.directory),
    }
}
