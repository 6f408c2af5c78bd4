//! The log as a timeline for people: what happened, under which epoch, and where the process died.

use crate::render::escape::safe_line;
use crate::render::log_line::summary;
use crate::render::spans::Style;
use crate::render::terminal::Caps;
use crate::render::width;
use tenure_core::event::body::{RecoveryDecision, ToolFailure};
use tenure_core::event::{Event, EventBody};

/// Something that happened outside the log.
#[derive(Debug, Clone)]
pub struct Moment {
    /// After this seq.
    pub after: u64,
    /// What.
    pub words: String,
}

/// The lines of the timeline.
pub fn lines(events: &[Event], moments: &[Moment], caps: Caps) -> Vec<String> {
    let began = events.first().map_or(0, |e| e.created_ms);
    let colour = caps.colour && caps.stdout;
    let mut out = vec![Style::dim().paint("  seq epoch   time  event", colour)];
    let mut moments = moments.iter().peekable();
    for event in events {
        if interesting(event) {
            out.push(line(event, began, caps));
        }
        while let Some(moment) = moments.next_if(|m| m.after <= event.seq) {
            let text = format!("  ───────────────── {} ", moment.words);
            out.push(
                Style {
                    bold: true,
                    colour: Style::RED,
                    ..Style::default()
                }
                .paint(&text, colour),
            );
        }
    }
    out
}

fn line(event: &Event, began: i64, caps: Caps) -> String {
    let epoch = event.epoch.map_or("-".to_owned(), |e| e.to_string());
    let seconds = crate::render::human::between(began, event.created_ms).as_secs_f64();
    let text = format!(
        "{:>5} {epoch:>5} {seconds:>5.2}s  {:<21} {}",
        event.seq,
        event.body.type_name(),
        safe_line(&words(event))
    );
    let text = width::cut(text.trim_end(), if caps.stdout { caps.width } else { 120 });
    style(event).paint(&text, caps.colour && caps.stdout)
}

fn words(event: &Event) -> String {
    let all = summary(event);
    match &event.body {
        EventBody::ToolSucceeded(e) => {
            let line = e.text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("");
            format!("{} {line}", e.call)
        }
        _ => all,
    }
}

fn style(event: &Event) -> Style {
    match &event.body {
        EventBody::RecoveryStarted(_) => Style {
            bold: true,
            colour: Style::YELLOW,
            ..Style::default()
        },
        EventBody::ToolFailed(e) if e.failure == ToolFailure::OutcomeUnknown => {
            Style::colour(Style::YELLOW)
        }
        EventBody::ExecutionSucceeded(_) => Style::colour(Style::GREEN),
        EventBody::ExecutionInterrupted(_) | EventBody::InterruptRequested(_) => {
            Style::colour(Style::YELLOW)
        }
        _ => Style::default(),
    }
}

fn interesting(event: &Event) -> bool {
    !matches!(
        event.body,
        EventBody::FragmentStarted(_)
            | EventBody::FragmentChunk(_)
            | EventBody::FragmentEnded(_)
            | EventBody::ToolInputStarted(_)
            | EventBody::InstructionsSet(_)
            | EventBody::SessionRenamed(_)
            | EventBody::BlockRecorded(_)
    )
}

/// What recovery found and decided, in sentences: one for each takeover.
pub fn recovery(events: &[Event]) -> Vec<String> {
    let mut out = Vec::new();
    for (at, event) in events.iter().enumerate() {
        let EventBody::RecoveryStarted(recovery) = &event.body else {
            continue;
        };
        let settled = events[at..]
            .iter()
            .take_while(|e| !matches!(e.body, EventBody::StepFailed(_)))
            .filter_map(|e| match &e.body {
                EventBody::ToolFailed(f) => Some(format!(
                    "call {} was settled as \"{}\"",
                    f.call,
                    crate::render::transcript::failure_words(f.failure)
                )),
                _ => None,
            });
        let next = match recovery.decision {
            RecoveryDecision::GoOn => "nothing was ambiguous, the work went on",
            RecoveryDecision::Continue => {
                "the model was told, and went on with one continuation step"
            }
            RecoveryDecision::SettleOnly => "the interrupt was settled",
            RecoveryDecision::Quarantine => "the session was set aside",
        };
        let mut parts: Vec<String> = settled.collect();
        parts.push(next.to_owned());
        let epoch = event.epoch.unwrap_or_default();
        let phase = format!("{:?}", recovery.phase).to_lowercase();
        out.push(format!(
            "epoch {epoch} found the claim `{phase}`: {}",
            parts.join("; ")
        ));
    }
    out
}
