//! P4: behind an accepted interrupt nothing of its execution starts, and the execution ends interrupted.

use super::{Findings, Promise};
use tenure_core::event::EventBody;
use tenure_core::{Event, ExecutionId};

/// The interrupt that is being settled.
#[derive(Default)]
pub(super) struct Cancel {
    stopping: Option<(ExecutionId, u64)>,
}

impl Cancel {
    /// `running`: the execution that is open before this event.
    pub(super) fn on(&mut self, event: &Event, running: Option<&ExecutionId>, out: &mut Findings) {
        if let EventBody::InterruptRequested(e) = &event.body {
            if let Some(execution) = &e.execution {
                out.unless(running == Some(execution), Promise::CancelIsAnEvent, || {
                    format!(
                        "interrupt {} was accepted for {execution}, which was not running",
                        e.interrupt
                    )
                });
                self.stopping = Some((execution.clone(), event.seq));
            }
            return;
        }
        // What was being stopped in the parent is the parent's.
        if let EventBody::SessionForked(_) = &event.body {
            self.stopping = None;
        }
        let Some((execution, since)) = &self.stopping else {
            return;
        };
        if starts(event) {
            out.add(
                Promise::CancelIsAnEvent,
                format!(
                    "{} behind the interrupt of {execution} at seq {since}",
                    event.body.type_name()
                ),
            );
        }
        match &event.body {
            EventBody::ExecutionInterrupted(e) if e.execution == *execution => self.stopping = None,
            EventBody::ExecutionSucceeded(_) | EventBody::ExecutionFailed(_) => {
                out.add(
                    Promise::CancelIsAnEvent,
                    format!(
                        "{execution} was interrupted at seq {since} and ended with {}",
                        event.body.type_name()
                    ),
                );
                self.stopping = None;
            }
            _ => {}
        }
    }
}

/// Does it start something?
fn starts(event: &Event) -> bool {
    // A place may be rebuilt by others at any time; its owner moves no session that is being stopped.
    if matches!(event.body, EventBody::AttachmentReplaced(_)) {
        return event.epoch.is_some();
    }
    matches!(
        event.body,
        EventBody::StepStarted(_)
            | EventBody::AttemptStarted(_)
            | EventBody::ToolStarted(_)
            | EventBody::InputPromoted(_)
            | EventBody::CompactionStarted(_)
            | EventBody::ExecutionStarted(_)
    )
}
